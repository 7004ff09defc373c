"""What others get: an experiment's numbers as files; a trained checkpoint, its model card, its answers, its upload."""
