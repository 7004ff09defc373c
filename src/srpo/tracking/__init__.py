"""Copies the logs of training runs to MLflow and other loggers; the logs are the originals."""
