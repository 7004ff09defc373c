"""What an experiment will take, before anything is submitted: runs, steps, hours, disk and memory.

Everything is computed from the experiment, the shapes of its models and the paper's step times; what had to be
assumed is a named constant and printed with the result. :func:`make_plan` is pure, :func:`render` makes text of it.
"""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from srpo import memory
from srpo.config import Experiment, Method, MiniatureModel, Model, RunId, TransformerShape
from srpo.training.clock import ModelCost, modelled_seconds

STEP_SECONDS = Path(__file__).resolve().parents[2] / "reports" / "reference" / "fig4b_step_seconds.csv"

GPU_SIZES = (80e9, 96e9)
"""Bytes of the GPUs that the memory of a run is compared with."""

GENERATION_SHARE = 0.5
"""Assumed part of a step that is generation (a step log's ``phase_seconds`` says it of a run)."""

CONTEXT_TOKENS = 1024
"""Assumed mean length of prompt and response while a response is being generated."""

CONCURRENT = 256
"""Requests that an SGLang server works on at once (verl's ``rollout.max_num_seqs``)."""

START_SECONDS = {"in_process": 15.0, "ray": 60.0}
"""Assumed start of a process, or of a Ray cluster, with its imports."""

SERVER_SECONDS = {"embedded": 0.0, "sglang": 120.0}
"""Assumed start of rollout servers, with loading the model."""

WARM_START_SECONDS = {"families": (1.36e-3, 7.1e-9), "splits": (5.4e-3, 2.8e-8)}
"""CPU seconds of an example of a warm start, and more for each parameter: the line through Miniature-S and -L
(docs/miniature.md); examples of real splits are four times as long."""

WRITE_BYTES_PER_SECOND = 2e9
"""Assumed of the results' file system."""

SAVED_VALIDATIONS = 0.25
"""Assumed part of the validations that are a budget's best so far, so that their step is saved."""

WHOLE_CHECKPOINTS = {"writing": 3, "running": 2, "finished": 1}
"""Whole checkpoints of a run (``training/checkpoints.py``): one in the making, one in reserve, one at the end."""


@dataclass(frozen=True)
class RunPlan:
    """What one training run takes.

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
    """What an experiment takes.

    Attributes:
        experiment: the experiment.
        shapes: its models' shapes, by name.
        nodes: runs at a time.
        runs: its training runs.
        model_seconds: wall time of building each base model, on one core; none of models that are not built here.
        base_seconds: wall time of each evaluation of an untrained model.
        base_bytes: the published weights of its models.
        wall_seconds: from start to end: base models, then the rest, each time the longest job that is left for the
            node that is free first.
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
    """Compute what an experiment takes.

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
    steps = {label: int(min(limit, seconds // step_seconds[label])) for label, seconds in training.budgets.items()}
    last = [*training.budgets][-1]
    horizon = min(training.budgets[last], limit * step_seconds[last])
    validations = max(1, math.ceil(steps[last] / training.validate_every))
    sizes = memory.checkpoint_bytes(shape, method.routing.needs_teacher)
    evaluated = min(len(training.budgets), validations)
    server = SERVER_SECONDS[execution.rollout_engine]
    validation, evaluation = (
        _sampling_seconds(experiment, shape, run.benchmark, sampling.rollouts, step_seconds[last])
        for sampling in (training.validation, experiment.evaluation)
    )
    seconds = {
        "start": START_SECONDS[execution.driver] + server,
        "training": horizon,
        "validation": validations * validation,
        "checkpoints": (1 + SAVED_VALIDATIONS * validations) * sizes.whole / WRITE_BYTES_PER_SECOND,
        "evaluation": START_SECONDS["in_process"] + evaluated * (server + evaluation),
    }
    selected = evaluated * sizes.weights
    return RunPlan(
        run=run,
        step_seconds=step_seconds,
        steps=steps,
        validations=validations,
        seconds=seconds,
        disk_peak=WHOLE_CHECKPOINTS["writing"] * sizes.whole + selected,
        disk_end=WHOLE_CHECKPOINTS["finished"] * sizes.whole + selected,
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
    first = _step_seconds(experiment, shape, None, paper)[next(iter(experiment.training.budgets))]
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
            for label, seconds in training.budgets.items()
        }
    rows = training.questions_per_batch * training.rollouts_per_question
    cost, prompt, response = _cost(shape), training.max_prompt_length, training.max_response_length
    dense = rows * cost.forward_flops([prompt + response]) * 4  # old log-probs; forward and backward of the update
    dense += training.questions_per_batch * cost.forward_flops([prompt])
    if method is not None and method.routing.needs_teacher:
        dense += rows * cost.forward_flops([training.max_teacher_prompt_length + response])
    decode = rows * cost.decode_flops([prompt], [response])
    seconds = modelled_seconds(training.clock, decode, dense)
    return dict.fromkeys(training.budgets, seconds)


def timed_like(method: Method | None) -> str:
    """The method of figure 4b whose passes a method shares; the untrained model's is GRPO."""
    if method is None or not method.routing.needs_teacher:
        return "grpo"
    return "srpo" if "grpo" in method.routing.branches else "sdpo"


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
        cost, prompt, response = _cost(shape), training.max_prompt_length, training.max_response_length
        return modelled_seconds(training.clock, rollouts * cost.decode_flops([prompt], [response]), 0.0)
    in_training = training.questions_per_batch * training.rollouts_per_question
    servers = execution.ranks // execution.rollout_tensor_parallel

    def bytes_per_sequence(at_work: int) -> float:
        weights = memory.BFLOAT16 * memory.parameters(shape)
        return weights / at_work + CONTEXT_TOKENS * memory.kv_bytes_per_token(shape)

    batches = [min(CONCURRENT, max(1, number // servers)) for number in (in_training, rollouts)]
    speed_up = max(1.0, bytes_per_sequence(batches[0]) / bytes_per_sequence(batches[1]))
    return GENERATION_SHARE * step_seconds * max(1.0, rollouts / in_training / speed_up)


def _cost(shape: TransformerShape) -> ModelCost:
    lookup = 0 if shape.tie_word_embeddings else memory.embedding_parameters(shape)
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    return ModelCost(memory.parameters(shape) - lookup, width)


def _paper_step_seconds() -> dict[str, dict[float, float]]:
    """Figure 4b: by method and hours of training."""
    seconds: dict[str, dict[float, float]] = {}
    with STEP_SECONDS.open(newline="") as file:
        for row in csv.DictReader(file):
            seconds.setdefault(row["method"], {})[float(row["budget_hours"])] = float(row["seconds_per_step"])
    return seconds


def _makespan(durations: Iterable[float], nodes: int) -> float:
    """When the last job ends if the node that is free first takes the longest job that is left."""
    free = [0.0] * nodes
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


# ---------------------------------------------------------------- text


def render(plan: Plan) -> str:
    """The plan as text: tables, then the assumptions behind them."""
    parts = [_render_head(plan), _render_runs(plan), _render_time(plan), _render_disk(plan)]
    if plan.experiment.execution.rollout_engine == "sglang":
        parts.append(_render_memory(plan))
    parts.append("Assumptions\n" + "\n".join(f"- {line}" for line in _assumptions(plan)))
    return "\n\n".join(parts) + "\n"


def headline(plan: Plan) -> str:
    """Two lines: how much there is to compute and how long that may take, and what that assumes."""
    experiment, unit, hours = plan.experiment, _unit(plan.experiment), plan.device_hours
    counts = [(len(plan.model_seconds), "base model"), (len(plan.runs), "run")]
    what = ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count)
    busy = f"{hours:.4g} {unit}-hours" if hours > 5 or unit == "GPU" else f"{hours * 60:.0f} CPU minutes"
    from_what = (
        "the paper's seconds a step"
        if experiment.execution.rollout_engine == "sglang"
        else "FLOPs at nominal rates, prompts and responses as long as they may be, cores idle otherwise"
    )
    return (
        f"{experiment.name}: {what or 'no run'}; from nothing about {busy}, {_duration(plan)}\n"
        f"An estimate from {from_what}; srpo plan {experiment.name} says more."
    )


def shortages(experiment: Experiment, gpu: float) -> list[str]:
    """One line for each way in which a model does not fit into a GPU, with what to change; none without SGLang.

    Args:
        gpu: bytes of a GPU.
    """
    execution, training = experiment.execution, experiment.training
    if execution.rollout_engine != "sglang":
        return []
    longest = training.max_prompt_length + training.max_response_length
    floor = training.max_teacher_prompt_length + training.max_response_length
    lower_tokens = f"lower execution.max_tokens_per_rank (to {floor} at least) or set execution.offload_teacher"
    lines = []
    for name, model in experiment.models.items():
        shape = memory.shape_of(model)
        rollout = memory.rollout_memory(shape, execution, gpu)
        for what, items, remedy in (
            ("an update", memory.update_memory(shape, execution, training), lower_tokens),
            ("generation", rollout, "lower execution.rollout_memory_fraction"),
        ):
            if (needed := sum(items.values())) > gpu:
                lines.append(f"{name}: {what} needs about {_gigabytes(needed)} of {_gigabytes(gpu)} GB a GPU; {remedy}")
        per_token = memory.kv_bytes_per_token(shape) / execution.rollout_tensor_parallel
        if rollout["keys and values"] < longest * per_token:
            lines.append(
                f"{name}: a server's share of {_gigabytes(gpu)} GB has no room for a sequence of {longest} tokens; "
                "raise execution.rollout_memory_fraction or rollout_tensor_parallel"
            )
    return lines


def _unit(experiment: Experiment) -> str:
    return "GPU" if experiment.execution.rollout_engine == "sglang" else "core"


def _render_head(plan: Plan) -> str:
    experiment = plan.experiment
    ranks, unit = experiment.execution.ranks, _unit(experiment)
    unit = f"{unit}s" if ranks > 1 else unit
    return (
        f"{experiment.name}: {experiment.title}\n"
        f"{len(plan.runs)} runs of {ranks} {unit}, {len(plan.base_seconds)} evaluations of untrained models"
    )


def _render_runs(plan: Plan) -> str:
    """One line for each model and method; a method's runs differ in their test split only."""
    labels = [*plan.experiment.training.budgets]
    groups: dict[tuple[str, str], list[RunPlan]] = {}
    for run in plan.runs:
        groups.setdefault((run.run.model, run.run.method), []).append(run)
    ranks, unit = plan.experiment.execution.ranks, _unit(plan.experiment)
    rows = []
    for (model, method), runs in groups.items():
        hours = [run.total_seconds / 3600 for run in runs]
        rows.append(
            [
                model,
                method,
                str(len(runs)),
                f"{runs[0].step_seconds[labels[-1]]:.3g}",
                *(str(runs[0].steps[label]) for label in labels),
                f"{min(hours):.3g}"
                if f"{min(hours):.3g}" == f"{max(hours):.3g}"
                else f"{min(hours):.3g}-{max(hours):.3g}",
                f"{sum(hours) * ranks:.4g}",
            ]
        )
    steps = [f"steps in {label}" for label in labels]
    return _table(["model", "method", "runs", "s a step", *steps, "hours a run", f"{unit}-hours"], rows)


def _render_time(plan: Plan) -> str:
    runs, ranks, unit = plan.runs, plan.experiment.execution.ranks, _unit(plan.experiment)
    parts = {name: sum(run.seconds[name] for run in runs) for name in (runs[0].seconds if runs else [])}
    parts["untrained models"] = sum(plan.base_seconds)
    rows = [[name, f"{seconds / 3600 * ranks:.4g}"] for name, seconds in parts.items()]
    if plan.model_seconds:
        rows.append(["base models", f"{sum(plan.model_seconds) / 3600:.4g}"])
    rows.append(["all", f"{plan.device_hours:.4g}"])
    return _table(["time", f"{unit}-hours"], rows) + f"\n{_duration(plan)}"


def _duration(plan: Plan) -> str:
    """How long the experiment takes with so many runs at a time."""
    hours = plan.wall_seconds / 3600
    duration = (
        f"{hours / 24:.1f} days" if hours > 48 else f"{hours:.1f} hours" if hours > 1 else f"{hours * 60:.0f} minutes"
    )
    return f"{duration} with {plan.nodes} {'run' if plan.nodes == 1 else 'runs'} at a time"


def _render_disk(plan: Plan) -> str:
    rows = []
    for model in plan.shapes:
        for teacher in (False, True):
            runs = [
                run
                for run in plan.runs
                if run.run.model == model and plan.experiment.methods[run.run.method].routing.needs_teacher == teacher
            ]
            if runs:
                sizes = memory.checkpoint_bytes(plan.shapes[model], teacher)
                numbers = (sizes.model, sizes.optimiser, sizes.teacher, sizes.weights, sizes.whole)
                cells = (*numbers, max(run.disk_peak for run in runs), max(run.disk_end for run in runs))
                rows.append([model, "yes" if teacher else "no", *map(_gigabytes, cells)])
    columns = ["model", "teacher", "weights", "Adam", "EMA", "huggingface", "checkpoint", "run, peak", "run, end"]
    return (
        _table([f"disk, GB: {columns[0]}", *columns[1:]], rows)
        + f"\nwhole experiment: {_gigabytes(plan.disk_end)} GB at the end, {_gigabytes(plan.disk_peak)} GB at its peak"
    )


def _render_memory(plan: Plan) -> str:
    """Device memory of an update and of generation, for each model and size of GPU."""
    execution, training = plan.experiment.execution, plan.experiment.training
    shapes = plan.shapes.values()
    update = [memory.update_memory(shape, execution, training) for shape in shapes]
    rows = [
        [name, *(_gigabytes(items[name]) for items in update)] for name in update[0] if any(i[name] for i in update)
    ]
    rows.append(["all", *(_gigabytes(sum(items.values())) for items in update)])
    for size in GPU_SIZES:
        rows.append([f"left of {size / 1e9:.0f} GB", *(_gigabytes(size - sum(items.values())) for items in update)])
    text = _table(["memory of a GPU in an update, GB", *plan.shapes], rows)
    longest = training.max_prompt_length + training.max_response_length
    servers = execution.ranks // execution.rollout_tensor_parallel
    sequences = -(-training.questions_per_batch * training.rollouts_per_question // servers)
    for size in GPU_SIZES:
        rollout = [memory.rollout_memory(shape, execution, size) for shape in shapes]
        rows = _render_items(rollout, [size])
        tokens = [
            items["keys and values"] / memory.kv_bytes_per_token(shape) * execution.rollout_tensor_parallel
            for items, shape in zip(rollout, shapes, strict=True)
        ]
        rows.append(["tokens that keys and values are for", *(f"{number:.0f}" for number in tokens)])
        rows.append(
            [
                f"of {sequences} rollouts of full length",
                *(f"{min(1.0, number / (sequences * longest)):.0%}" for number in tokens),
            ]
        )
        text += "\n\n" + _table([f"memory of a GPU of {size / 1e9:.0f} GB in generation, GB", *plan.shapes], rows)
    host = [_gigabytes(memory.host_memory(shape, execution)) for shape in shapes]
    return text + "\n\n" + _table(["memory of the host, GB", *plan.shapes], [["all ranks together", *host]])


def _render_items(models: Sequence[dict[str, float]], sizes: Sequence[float]) -> list[list[str]]:
    """A line for each item that a model has, their sums, and what is left of GPUs of these sizes."""
    rows = [
        [name, *(_gigabytes(items[name]) for items in models)] for name in models[0] if any(m[name] for m in models)
    ]
    rows.append(["all", *(_gigabytes(sum(items.values())) for items in models)])
    for size in sizes:
        rows.append([f"left of {size / 1e9:.0f} GB", *(_gigabytes(size - sum(items.values())) for items in models)])
    return rows


def _assumptions(plan: Plan) -> list[str]:
    experiment = plan.experiment
    execution, training = experiment.execution, experiment.training
    start, server = START_SECONDS[execution.driver], SERVER_SECONDS[execution.rollout_engine]
    common = [
        f"A run starts in {start + server:.0f} s, an evaluation in {START_SECONDS['in_process']:.0f} s and "
        f"{server:.0f} s for each of up to {len(training.budgets)} checkpoints.",
        f"{SAVED_VALIDATIONS:.0%} of the validations save a checkpoint, at {WRITE_BYTES_PER_SECOND / 1e9:g} GB/s.",
        f"Disk: {WHOLE_CHECKPOINTS['running']} whole checkpoints of a run under way and one in the making, "
        f"{WHOLE_CHECKPOINTS['finished']} of a finished run (a longer budget goes on from it), and the weights of each "
        "budget's best, all in float32 as verl writes them. Logs and samples are small.",
    ]
    if execution.rollout_engine == "embedded":
        return [
            "A step's seconds follow from FLOPs at the clock's nominal rates, with prompts and responses as long as "
            "they may be: steps are the fewest, hours the most there can be. A modelled second is counted as one of a "
            "core.",
            "An example of a base model's warm start takes what it took of Miniature-S and -L (docs/miniature.md), on "
            "one core.",
            *common,
        ]
    likes = {name: timed_like(method) for name, method in experiment.methods.items()}
    others = ", ".join(f"{name} like {like}" for name, like in likes.items() if name != like)
    return [
        "Seconds a step up to each budget are those of the paper's figure 4b: Qwen3-8B, 8 GPUs of 96 GB (H20), a mean "
        "over benchmarks. A smaller model or a faster GPU takes more steps in the same hours.",
        *([f"The figure has grpo, sdpo and srpo. Other methods are counted like them: {others}."] if others else []),
        f"Sampling outside of training: generation is {GENERATION_SHARE:.0%} of a step; a server's larger batch is "
        "faster as far as reading weights, keys and values limits it, with "
        f"{CONTEXT_TOKENS} tokens a sequence and {CONCURRENT} sequences a server.",
        *common,
        f"Memory: the largest micro-batch of an update holds {memory.micro_batch_tokens(execution, training)} tokens, "
        f"all of them distilled responses; CUDA, NCCL and a sleeping server take {memory.DEVICE_RUNTIME / 1e9:g} GB of "
        f"a GPU, a rank's processes {memory.HOST_PER_RANK / 1e9:g} GB of the host.",
        "The step times are the paper's; nothing else here was measured on GPUs.",
    ]


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g}" if abs(size) < 100e9 else f"{size / 1e9:.0f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if i and _is_number(cell, header) else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def _is_number(cell: str, header: Sequence[str]) -> bool:
    return cell in header or cell[:1].isdigit() or cell.startswith("-")
