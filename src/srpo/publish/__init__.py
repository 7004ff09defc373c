"""What others get: an experiment's numbers as files."""
