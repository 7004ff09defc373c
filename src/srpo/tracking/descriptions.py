"""The description of a training run in MLflow: tags, a sentence, data sets."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpo.layout import Layout
from srpo.watch import Signal, summary_of

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

SOURCE, COMMIT, NOTE = "mlflow.source.name", "mlflow.source.git.commit", "mlflow.note.content"
"""Tags that MLflow's pages show."""

ABOUT = "Training runs, each with its evaluation below it. A mirror of the logs: `srpo track sync` makes it again."
ABOUT_INPUTS = "Data, base models and their evaluations: the inputs of the training runs."


def run_note(spec: dict[str, Any]) -> str:
    """A sentence about a run, from its specification."""
    return (
        f"{spec['method']['title']} of {spec['model']['title']} on {spec['benchmark']['title']}, "
        f"seed {spec['id']['seed']}, experiment {spec['experiment']}"
    )


def watch_text(signals: Iterable[Signal]) -> str:
    """The rules of the watch that gave an alarm, then those that only warned: ``alarm: entropy, gap; warn: length``."""
    return "; ".join(f"{level}: {', '.join(rules)}" for level, rules in summary_of(signals).items() if rules)


def user() -> dict[str, str]:
    try:
        return {"mlflow.user": getpass.getuser()}
    except (OSError, KeyError):  # a container's user may have no name
        return {}


def data_sets(spec: dict[str, Any], provenance: dict[str, Any]) -> list[DatasetInput]:
    """Train and test split, under the checksums that the run recorded."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    benchmark, inputs = spec["benchmark"], []
    for split, checksum in provenance.get("data", {}).items():
        rows = benchmark.get(f"{split}_questions") or benchmark.get("source", {}).get(split, {}).get("rows")
        place = Layout(Path(spec["experiment"])).split(spec["id"]["benchmark"], split)
        data = Dataset(
            name=f"{spec['id']['benchmark']} {split}",
            digest=checksum[:36],  # MLflow's limit
            source_type="local",
            source=json.dumps({"uri": place.as_posix()}),
            profile=json.dumps({"num_rows": rows}),
        )
        context = {"train": "training", "test": "evaluation"}[split]
        inputs.append(DatasetInput(data, [InputTag("mlflow.data.context", context)]))
    return inputs
