"""MLflow as a mirror of the results directory: the logs are the truth, MLflow is what one looks at."""

from srpo.tracking.mirror import LiveMirror, Mirror, is_mirrored_live, mirrored, sync

__all__ = ["LiveMirror", "Mirror", "is_mirrored_live", "mirrored", "sync"]
