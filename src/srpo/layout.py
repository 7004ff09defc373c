"""Where everything of one experiment lies below its results directory (docs/architecture.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from srpo.errors import SrpoError

if TYPE_CHECKING:
    from srpo.config import RunId


@dataclass(frozen=True)
class Layout:
    """Paths of an experiment; ``folder`` is ``results/<experiment>``."""

    folder: Path

    @property
    def experiment(self) -> Path:
        """The resolved experiment."""
        return self.folder / "experiment.yaml"

    @property
    def tables(self) -> Path:
        """Folder of the tables."""
        return self.folder / "tables"

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.folder / "figures"

    @property
    def report(self) -> Path:
        """The self-contained report."""
        return self.folder / "report.html"

    def split(self, benchmark: str, split: str) -> Path:
        """Questions of a benchmark's split."""
        return self.folder / "data" / benchmark / f"{split}.parquet"

    def statistics(self, benchmark: str) -> Path:
        """Statistics of a benchmark's splits."""
        return self.folder / "data" / benchmark / "statistics.json"

    def model(self, model: str) -> Path:
        """Folder of a base model, in Hugging Face format."""
        return self.folder / "models" / model

    def base(self, model: str, benchmark: str) -> Path:
        """Folder of a base model's evaluation."""
        return self.folder / "base" / model / benchmark

    def run(self, run: RunId) -> Path:
        """Folder of a training run."""
        return self.folder / "runs" / run.path

    def run_log(self, run: RunId, name: str) -> Path:
        """What a rule printed about a run: ``train``, ``train.<attempt>`` or ``evaluate``."""
        return self.folder / "logs" / "runs" / run.path / f"{name}.log"


def check_writable(folder: Path) -> None:
    """Raise if ``folder`` cannot be created or written; nothing is created.

    Raises:
        SrpoError: naming the part of the path that stands in the way.
    """
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise SrpoError(f"{folder}: cannot be written, {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SrpoError(f"{folder}: cannot be written, no permission in {existing}")
