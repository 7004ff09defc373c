"""A token in each variable of the environment that has one, and the files that contain it."""

from pathlib import Path

SECRET = "swordfish-4711"
VARIABLES = ("HF_TOKEN", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")


def files_with_the_secret(*folders: Path) -> list[Path]:
    """The files below ``folders`` that contain it."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if SECRET.encode() in path.read_bytes()]
