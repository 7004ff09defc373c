"""A token in each variable of the environment that has one, and the files that contain it."""

from pathlib import Path

SECRET = "swordfish-4711"
OTHERS = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY"]
VARIABLES = [*OTHERS, "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"]


def files_with_the_secret(*folders: Path) -> list[Path]:
    """The files below ``folders`` that contain it."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if SECRET.encode() in path.read_bytes()]
