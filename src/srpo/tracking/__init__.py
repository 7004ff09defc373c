"""Copies the logs of training runs to MLflow; the logs are the originals."""
