"""Copies the logs of the results directory to MLflow; the logs are the originals."""

from srpo.tracking.mirror import LiveMirror, Mirror, is_mirrored_live, mirrored, sync

__all__ = ["LiveMirror", "Mirror", "is_mirrored_live", "mirrored", "sync"]
