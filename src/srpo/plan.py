"""What an experiment will take, before anything is submitted: runs, steps, hours, disk and memory.

Everything is computed from the experiment, the shapes of its models and the paper's step times; what had to be
assumed is a named constant, printed with the result. :func:`make_plan` is pure; :mod:`srpo.plan_text` makes text of it.
"""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

from srpo import memory
from srpo.algorithm.branches import trained
from srpo.config import Experiment, Method, MiniatureModel, Model, RunId, TransformerShape
from srpo.cost import model_cost, modelled_seconds
from srpo.repository import REFERENCE

STEP_SECONDS = REFERENCE / "fig4b_step_seconds.csv"

GENERATION_SHARE = 0.5
"""Assumed part of a step that is generation (a step log's ``phase_seconds`` says it of a run)."""

CONTEXT_TOKENS = 1024
"""Assumed mean length of prompt and response while a response is being generated."""

CONCURRENT = 256
"""Requests that an SGLang server works on at once (verl's ``rollout.max_num_seqs``)."""

START_SECONDS = {"in_process": 15.0, "ray": 60.0}
"""Assumed seconds to start a process, or a Ray cluster, including imports."""

SERVER_SECONDS = {"embedded": 0.0, "sglang": 120.0}
"""Assumed seconds to start rollout servers, including loading the model."""

WARM_START_SECONDS = {"families": (1.36e-3, 7.1e-9), "splits": (5.4e-3, 2.8e-8)}
"""CPU seconds of an example of a warm start, and more for each parameter: the line through Miniature-S and -L
(docs/miniature.md); examples of real splits are four times as long."""

WRITE_BYTES_PER_SECOND = 2e9
"""Assumed speed of the file system with the results."""

SAVED_VALIDATIONS = 0.25
"""Assumed share of validations that are the best so far in a budget, so that their step is saved."""

COMPLETE_CHECKPOINTS = {"writing": 3, "running": 2, "finished": 1}
"""Complete checkpoints of a run (``training/checkpoints.py``): one in the making, one in reserve, one at the end."""


@dataclass(frozen=True)
class RunPlan:
    """What one training run needs.

    Attributes:
        run: which.
        step_seconds: mean seconds a step up to each budget.
        steps: number of steps within each budget, by label.
        validations: number of validations.
        seconds: wall time by part: start, training, validation, checkpoints, evaluation.
        disk_peak, disk_end: bytes while it is under way, with a checkpoint in the making, and when it is finished.
    """

    run: RunId
    step_seconds: dict[str, float]
    steps: dict[str, int]
    validations: int
    seconds: dict[str, float]
    disk_peak: float
    disk_end: float

    @property
    def total_seconds(self) -> float:
        """Wall time of the run and of its evaluation."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Plan:
    """What an experiment needs.

    Attributes:
        experiment: the experiment.
        shapes: its models' shapes, by name.
        nodes: runs at a time.
        runs: its training runs.
        model_seconds: wall time of building each base model, on one core; none of models that are not built here.
        base_seconds: wall time of each evaluation of an untrained model.
        base_bytes: the published weights of its models.
        wall_seconds: from start to end: base models, then the rest; the first free node takes the longest job left.
    """

    experiment: Experiment
    shapes: dict[str, TransformerShape]
    nodes: int
    runs: list[RunPlan]
    model_seconds: list[float]
    base_seconds: list[float]
    base_bytes: float
    wall_seconds: float

    @property
    def busy_seconds(self) -> float:
        """Wall time of all jobs that take a run's devices, one after the other."""
        return sum(run.total_seconds for run in self.runs) + sum(self.base_seconds)

    @property
    def device_hours(self) -> float:
        """Hours of all jobs times the devices of each: GPUs, or cores where there is none."""
        return (self.busy_seconds * self.experiment.execution.ranks + sum(self.model_seconds)) / 3600

    @property
    def disk_end(self) -> float:
        """Bytes when all runs are finished."""
        return self.base_bytes + sum(run.disk_end for run in self.runs)

    @property
    def disk_peak(self) -> float:
        """Bytes while the last and largest runs are under way and the others are finished."""
        extra = sorted((run.disk_peak - run.disk_end for run in self.runs), reverse=True)
        return self.disk_end + sum(extra[: self.nodes])


def make_plan(experiment: Experiment, nodes: int = 1) -> Plan:
    """Compute what an experiment needs.

    Args:
        experiment: resolved.
        nodes: how many runs there are at a time.

    Raises:
        SrpoError: if the shape of a model is not known.
    """
    shapes = {name: memory.shape_of(model) for name, model in experiment.models.items()}
    paper = _paper_step_seconds()
    runs = [_plan_run(experiment, run, shapes[run.model], paper) for run in experiment.runs()]
    base = [_base_seconds(experiment, shapes[model], benchmark, paper) for model, benchmark in experiment.bases()]
    base_bytes = sum(memory.BFLOAT16 * memory.parameters(shape) for shape in shapes.values())
    models = [seconds for name in shapes if (seconds := _warm_start_seconds(experiment.models[name], shapes[name]))]
    wall = _makespan(models, nodes) + _makespan([*(run.total_seconds for run in runs), *base], nodes)
    return Plan(experiment, shapes, nodes, runs, models, base, base_bytes, wall)


# ---------------------------------------------------------------- a run


def _plan_run(experiment: Experiment, run: RunId, shape: TransformerShape, paper: dict) -> RunPlan:
    training, execution = experiment.training, experiment.execution
    method = experiment.methods[run.method]
    step_seconds = _step_seconds(experiment, shape, method, paper)
    limit = training.max_steps or math.inf
    steps = {
        label: int(min(limit, seconds // step_seconds[label])) for label, seconds in training.budget_seconds.items()
    }
    last = [*training.budget_seconds][-1]
    horizon = min(training.budget_seconds[last], limit * step_seconds[last])
    validations = max(1, math.ceil(steps[last] / training.validate_every))
    sizes = memory.checkpoint_bytes(shape, method.routing.needs_teacher)
    evaluated = min(len(training.budget_seconds), validations)
    server = SERVER_SECONDS[execution.rollout_engine]
    validation, evaluation = (
        _sampling_seconds(experiment, shape, run.benchmark, sampling.rollouts, step_seconds[last])
        for sampling in (training.validation, experiment.evaluation)
    )
    seconds = {
        "start": START_SECONDS[execution.driver] + server,
        "training": horizon,
        "validation": validations * validation,
        "checkpoints": (1 + SAVED_VALIDATIONS * validations) * sizes.total / WRITE_BYTES_PER_SECOND,
        "evaluation": START_SECONDS["in_process"] + evaluated * (server + evaluation),
    }
    selected = evaluated * sizes.weights
    return RunPlan(
        run=run,
        step_seconds=step_seconds,
        steps=steps,
        validations=validations,
        seconds=seconds,
        disk_peak=COMPLETE_CHECKPOINTS["writing"] * sizes.total + selected,
        disk_end=COMPLETE_CHECKPOINTS["finished"] * sizes.total + selected,
    )


def _warm_start_seconds(model: Model, shape: TransformerShape) -> float:
    """CPU time of a base model that is built here."""
    if not isinstance(model, MiniatureModel):
        return 0.0
    example, parameter = WARM_START_SECONDS[model.warm_start.corpus]
    examples = model.warm_start.steps * model.warm_start.batch_size
    return examples * (example + parameter * memory.parameters(shape))


def _base_seconds(experiment: Experiment, shape: TransformerShape, benchmark: str, paper: dict) -> float:
    """Wall time of the evaluation of an untrained model, whose responses take as long as GRPO's at first."""
    first = _step_seconds(experiment, shape, None, paper)[next(iter(experiment.training.budget_seconds))]
    start = START_SECONDS["in_process"] + SERVER_SECONDS[experiment.execution.rollout_engine]
    return start + _sampling_seconds(experiment, shape, benchmark, experiment.evaluation.rollouts, first)


def _step_seconds(
    experiment: Experiment, shape: TransformerShape, method: Method | None, paper: dict[str, dict[float, float]]
) -> dict[str, float]:
    """Mean seconds of the training clock a step takes up to each budget.

    With SGLang on GPUs they are the paper's (figure 4b) for the method, or the one whose passes it shares, and the
    nearest budget. In one process they follow from the FLOPs of responses as long as they may be, at the clock's
    rates.
    """
    training = experiment.training
    if experiment.execution.rollout_engine == "sglang":
        figure = paper[timed_like(method)]
        return {
            label: figure[min(figure, key=lambda hours: abs(3600 * hours - seconds))]
            for label, seconds in training.budget_seconds.items()
        }
    rows = training.questions_per_batch * training.rollouts_per_question
    cost, prompt, response = model_cost(shape), training.max_prompt_length, training.max_response_length

    def forward(prompt: int, prompts: int) -> float:
        shared = prompts if experiment.execution.shares_prompts else rows
        return shared * cost.forward_flops([prompt]) + rows * cost.decode_flops([prompt], [response])

    # forward and backward of the update; old log-probs, unless an only update computes them itself
    once = (
        method is not None
        and method.mini_batch_questions == training.questions_per_batch
        and not method.preserve_loss_scale
    )
    passes = 3 if once else 4
    dense = passes * forward(prompt, training.questions_per_batch)
    dense += training.questions_per_batch * cost.forward_flops([prompt])
    if method is not None and method.routing.needs_teacher:  # two prompts a group: the sibling shown sees another
        dense += forward(training.max_teacher_prompt_length, 2 * training.questions_per_batch)
    decode = rows * cost.decode_flops([prompt], [response])
    seconds = modelled_seconds(training.clock, decode, dense)
    return dict.fromkeys(training.budget_seconds, seconds)


def timed_like(method: Method | None) -> str:
    """The method of figure 4b whose passes a method shares; the untrained model's is GRPO."""
    if method is None or not method.routing.needs_teacher:
        return "grpo"
    every = all(branch.uses_teacher for branch in trained(method.routing.branches))
    return "sdpo" if every else "srpo"


def _sampling_seconds(
    experiment: Experiment, shape: TransformerShape, benchmark: str, samples: int, step_seconds: float
) -> float:
    """Time to sample a benchmark's test questions, each ``samples`` times.

    Servers: a step's generation, times more rollouts, divided by the speed of larger batches. Generating a token takes
    the time to read the weights, and keys and values of all sequences at work, from memory.
    """
    training, execution = experiment.training, experiment.execution
    rollouts = samples * experiment.benchmarks[benchmark].questions("test")
    if execution.rollout_engine == "embedded":
        cost, prompt, response = model_cost(shape), training.max_prompt_length, training.max_response_length
        return modelled_seconds(training.clock, rollouts * cost.decode_flops([prompt], [response]), 0.0)
    in_training = training.questions_per_batch * training.rollouts_per_question
    servers = execution.ranks // execution.rollout_tensor_parallel

    def bytes_per_sequence(at_work: int) -> float:
        weights = memory.BFLOAT16 * memory.parameters(shape)
        return weights / at_work + CONTEXT_TOKENS * memory.kv_bytes_per_token(shape)

    batches = [min(CONCURRENT, max(1, number // servers)) for number in (in_training, rollouts)]
    speed_up = max(1.0, bytes_per_sequence(batches[0]) / bytes_per_sequence(batches[1]))
    return GENERATION_SHARE * step_seconds * max(1.0, rollouts / in_training / speed_up)


def _paper_step_seconds() -> dict[str, dict[float, float]]:
    """Figure 4b: by method and hours of training."""
    seconds: dict[str, dict[float, float]] = {}
    with STEP_SECONDS.open(newline="") as file:
        for row in csv.DictReader(file):
            seconds.setdefault(row["method"], {})[float(row["budget_hours"])] = float(row["seconds_per_step"])
    return seconds


def _makespan(durations: Iterable[float], nodes: int) -> float:
    """When the last job ends if the first free node takes the longest job left."""
    free = [0.0] * nodes
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
