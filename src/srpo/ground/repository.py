"""The repository's folders of data: configurations, the report's templates, the paper's own numbers.

In a checkout they are at the top level, where people edit them. A built package (``pip install .``) carries a copy
next to its modules; ``setup.py`` puts it there.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]

DATA_FOLDERS = ("configs", "reports")
"""What a built package carries along; ``setup.py`` lists the same folders."""

ROOT = _PACKAGE if all((_PACKAGE / name).is_dir() for name in DATA_FOLDERS) else _PACKAGE.parents[1]
"""The folder that holds :data:`DATA_FOLDERS`: the checkout's top or the installed package."""

CONFIGS = ROOT / "configs"
"""Experiments, methods, models and benchmarks, as YAML."""


def method_files(configs: Path = CONFIGS) -> dict[str, Path]:
    """The method files by name; their folders, such as ``paper`` and ``controls``, are no part of the name."""
    return {path.stem: path for path in sorted((configs / "methods").rglob("*.yaml"), key=lambda path: path.stem)}


REPORTS = ROOT / "reports"
"""The report's templates, its contents and the claims it checks."""

REFERENCE = REPORTS / "reference"
"""The paper's tables and figures as CSV."""
