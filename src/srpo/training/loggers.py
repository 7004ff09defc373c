"""Copies the logs of training runs to a logger of verl's: Weights & Biases, TensorBoard and others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_mapping
from srpo.ground.layout import Layout, RunFiles
from srpo.training.mirror import numbers, step_values


def copy_runs(folder: Path, logger: str) -> Iterator[str]:
    """Each training run of an experiment becomes a run of the logger, with the metrics of all steps and validations.

    Every call makes new runs there: unlike MLflow's copy, it does not know what an earlier one has copied.

    Args:
        folder: the experiment's folder.
        logger: the name that verl's ``trainer.logger`` has for it.

    Yields:
        The name of each run, once it is copied.
    """
    from verl.utils.tracking import Tracking

    loggers = [name for name in Tracking.supported_backend if name != "mlflow"]
    if logger not in loggers:
        raise SrpoError(f"--to {logger}: give one of {', '.join(loggers)}; srpo track sync copies to MLflow")
    layout = Layout(folder)
    runs = [RunFiles(origin.parent) for origin in layout.found(layout.any_run.origin)]
    if not runs:
        raise SrpoError(f"{folder}: no training run yet")
    for files in runs:
        spec = read_mapping(files.origin)["spec"]
        name = "{method}-seed{seed}-{benchmark}-{model}".format(**spec["id"])
        try:
            # its Weights & Biases reads the key trainer
            tracking = Tracking(layout.folder.name, name, logger, config={"trainer": {}, **spec})
        except ModuleNotFoundError as error:
            raise SrpoError(f"--to {logger}: package {error.name} is missing; install it beside srpo") from None
        except Exception as error:  # of a package that is not ours: no key, no network
            raise SrpoError(f"--to {logger}: {' '.join(str(error).split()) or repr(error)}") from error
        for step, metrics in _metrics_by_step(files).items():
            tracking.log(metrics, step)
        tracking.finish()
        yield name


def _metrics_by_step(files: RunFiles) -> dict[int, dict[str, Any]]:
    """Of steps and validations, in the order of steps: loggers take no step back."""
    found: dict[int, dict[str, Any]] = {}
    for event in read_events(files.steps):
        found[event["step"]] = step_values(event)
    for event in read_events(files.validations):
        found.setdefault(event["step"], {}).update(numbers(event, "validation"))
    return dict(sorted(found.items()))
