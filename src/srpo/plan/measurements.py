"""What finished runs measured for a plan: seconds by phase, and the speed of the disk."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from srpo.algorithm.method import Method
from srpo.experiment import memory
from srpo.experiment.config import Execution, Experiment, ModelledClock, changed
from srpo.experiment.step_times import timed_like
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json, read_mapping
from srpo.ground.layout import Layout, RunId
from srpo.training.provenance import checked_experiment

SAME = (
    *(f"training.{key}" for key in ("questions_per_batch", "rollouts_per_question", "micro_batch_size")),
    *(f"training.{key}" for key in ("max_prompt_length", "max_response_length", "max_reprompt_len")),
    *(f"execution.{key}" for key in Execution.model_fields if key != "tracking"),
)
"""Settings that a step's seconds depend on: the planned and the measured experiment must have the same."""

Phases = Mapping[str, float]
"""Mean seconds of a step by phase."""


@dataclass(frozen=True)
class Measurements:
    """What was measured; nothing of it where nothing was.

    Attributes:
        folders: the results folders that were read.
        gpus: the names of the cards on which their runs trained, if known.
        phases: by model and method, mean wall seconds of each phase of a step.
        validations: by model, seconds and rollouts of a validation.
        write_bytes_per_second: of checkpoints, the slowest; None if none was timed.
    """

    folders: tuple[Path, ...] = ()
    gpus: tuple[str, ...] = ()
    phases: Mapping[tuple[str, str], Phases] = field(default_factory=dict)
    validations: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    write_bytes_per_second: float | None = None

    def of(self, model: str, method: str | None, methods: Mapping[str, Method]) -> tuple[str, Phases] | None:
        """The measured phases of a model's method, or of one with the same passes, and the name of that method.

        Without a method those of the untrained model, which generates like GRPO's at first.
        """
        like = timed_like(methods[method] if method else None)
        plain = [name for of, name in self.phases if of == model and methods[name].second_routing is None]
        found = [name for name in plain if timed_like(methods[name]) == like]
        if (model, method) in self.phases:
            found.append(str(method))
        name = method if method in found else next(iter(found), None)
        return None if name is None else (name, self.phases[model, name])


def read_measurements(paths: Iterable[Path], planned: Experiment) -> Measurements:
    """Read the finished runs of results folders, of models and methods that the plan has and defines alike.

    A run's first step, which compiles kernels, is left out if there is another.
    """
    folders = tuple(paths)
    steps: dict[tuple[str, str], list[Phases]] = defaultdict(list)
    validations: dict[str, list[tuple[float, int]]] = defaultdict(list)
    speeds: list[float] = []
    gpus: dict[str, None] = {}
    for folder in folders:
        layout = Layout(folder)
        measured = checked_experiment(layout)
        _check(folder, measured, planned)
        common = [run for run in measured.runs() if not changed(_named(measured, run), _named(planned, run))]
        found = [run for run in common if layout.run_files(run).summary.exists()]
        if not found:
            raise SrpoError(
                f"{folder}: no finished run of a model and method of {planned.name}; there is nothing to take over"
            )
        for run in found:
            files = layout.run_files(run)
            if files.origin.is_file():
                gpus[read_mapping(files.origin)["provenance"].get("gpu") or ""] = None
            events = [*read_events(files.steps)]
            events = events[1:] or events  # without the first if there are several
            steps[run.model, run.method] += [event["phase_seconds"] for event in events]
            summary = read_json(files.summary)
            if seconds := summary.get("validation_seconds"):
                questions = measured.benchmarks[run.benchmark].questions("test")
                validations[run.model].append((seconds, measured.training.validation.rollouts * questions))
            if seconds := summary.get("checkpoint_seconds"):
                speeds.append(_checkpoint_bytes(measured, run) / seconds)
    return Measurements(
        folders,
        tuple(filter(None, gpus)),
        {key: {phase: fmean(step[phase] for step in of) for phase in of[0]} for key, of in steps.items()},
        {
            model: (fmean(s for s, _ in found), round(fmean(n for _, n in found)))
            for model, found in validations.items()
        },
        min(speeds, default=None),
    )


def _named(experiment: Experiment, run: RunId) -> dict[str, Any]:
    """Model and method of a run; of those that the experiment does not have nothing."""
    found = {"model": experiment.models.get(run.model), "method": experiment.methods.get(run.method)}
    return {part: definition.model_dump(mode="json") for part, definition in found.items() if definition}


def _check(folder: Path, measured: Experiment, planned: Experiment) -> None:
    if isinstance(measured.training.clock, ModelledClock):
        raise SrpoError(
            f"{folder}: training.clock.kind = modelled: it measured no seconds; give a folder of another clock"
        )
    for key in SAME:
        part, name = key.split(".")
        there, here = (getattr(getattr(experiment, part), name) for experiment in (measured, planned))
        if there != here:
            raise SrpoError(f"{folder}: {key} = {there}, but {here} in {planned.name}: other steps take other seconds")


def _checkpoint_bytes(experiment: Experiment, run: RunId) -> float:
    shape, teacher = memory.shape_of(experiment.models[run.model]), experiment.methods[run.method].teacher_has_weights
    return memory.checkpoint_bytes(shape, experiment.execution, teacher).total
