"""Publishes a trained checkpoint: its model card, its answers, the upload to the hub."""
