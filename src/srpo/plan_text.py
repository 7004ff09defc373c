"""An experiment's estimate (:mod:`srpo.plan`) as text: tables, and where their numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from srpo import memory
from srpo.config import Experiment
from srpo.gpus import BANDWIDTH_SHARE, FLOPS_SHARE, GPUS, LONGEST_RESPONSE, MEAN_PROMPT, MEAN_RESPONSE
from srpo.plan import (
    COMPLETE_CHECKPOINTS,
    CONCURRENT,
    CONTEXT_TOKENS,
    EVALUATION_START_SECONDS,
    GENERATION_SHARE,
    MODELLED_SECOND,
    SAVED_VALIDATIONS,
    SERVER_SECONDS,
    START_SECONDS,
    WRITE_BYTES_PER_SECOND,
    Plan,
    RunPlan,
)
from srpo.repository import CONFIGS
from srpo.step_times import paper_step_seconds
from srpo.text import duration, joined, plural
from srpo.training.checkpoints import CHECKPOINT_SHARE

GPU_SIZES = (80e9, 96e9)
"""Bytes of the GPUs that the memory of a run is compared with, if the plan is not for one card."""


def render(plan: Plan) -> str:
    """The plan as text: tables, then where their numbers come from."""
    parts = [_render_head(plan), _render_runs(plan), _render_time(plan), _render_seeds(plan), _render_disk(plan)]
    if plan.experiment.execution.rollout_engine == "sglang":
        parts.append(_render_memory(plan))
    parts += [
        f"{title}\n" + "\n".join(f"- {line}" for line in lines) for title, lines in _sources(plan).items() if lines
    ]
    return "\n\n".join(parts) + "\n"


def _render_seeds(plan: Plan) -> str:
    """What the planned seeds tell apart, what one more would, and what it takes."""
    from srpo.analysis.results.power import power_sentences, sample_noise

    experiment = plan.experiment
    models: dict[str, list[str]] = {}  # by what is said of them
    titles = {name: method.title for name, method in experiment.methods.items()}
    for model in experiment.models:
        runs = [run.run for run in plan.runs if run.run.model == model]
        if not runs:
            continue
        benchmarks = {run.benchmark for run in runs}
        questions = sum(experiment.benchmarks[name].questions("test") for name in benchmarks) / len(benchmarks)
        noise = sample_noise(questions, experiment.evaluation.rollouts)
        said = "\n".join(f"- {sentence}" for sentence in power_sentences(runs, titles, noise))
        models.setdefault(said, []).append(model)
    if not models:
        return "No run, and nothing to tell apart."
    # methods may have different numbers of seeds
    one_seed = {(run.run.model, run.run.benchmark, run.run.method): run.total_seconds for run in plan.runs}
    seconds = sum(one_seed.values()) * experiment.execution.ranks
    return "\n".join(
        [
            *(f"Seeds, {joined(names)}\n{said}" for said, names in models.items()),
            f"One more seed of every run takes about {duration(seconds, _unit(experiment))}.",
        ]
    )


def headline(plan: Plan) -> str:
    """Two lines: how much there is to compute and how long that may take, and what that assumes."""
    experiment = plan.experiment
    counts = [(len(plan.model_seconds), "base model"), (len(plan.runs), "run")]
    what = ", ".join(plural(count, name) for count, name in counts if count)
    busy = duration(3600 * plan.device_hours, _unit(experiment))
    from_what = (
        "measured seconds per step"
        if plan.measured.folders
        else f"the data sheet of {plan.gpu}"
        if plan.gpu
        else "the paper's seconds per step"
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


_CLOCKS = {
    "wall": "wall, budgets of measured seconds",
    "modelled": "modelled, budgets of FLOPs at nominal rates",
    "calibrated": "calibrated, budgets of steps: as many as the paper took in that time (figure 4b)",
}


def _render_head(plan: Plan) -> str:
    experiment = plan.experiment
    runs = f"{plural(len(plan.runs), 'run')} of {plural(experiment.execution.ranks, _unit(experiment))}"
    return (
        f"{experiment.name}: {experiment.title}\n"
        f"{runs}, {plural(len(plan.base_seconds), 'evaluation')} of untrained models\n"
        f"training clock: {_CLOCKS[experiment.training.clock.kind]}"
    )


def _render_runs(plan: Plan) -> str:
    """One line for each model and method; a method's runs differ in their test split only.

    Steps that follow from FLOPs are the fewest there can be (:func:`_computed`), and the head of their columns says so.
    """
    labels = [*plan.experiment.training.budget_seconds]
    groups: dict[tuple[str, str], list[RunPlan]] = {}
    for run in plan.runs:
        groups.setdefault((run.run.model, run.run.method), []).append(run)
    ranks, unit = plan.experiment.execution.ranks, _unit(plan.experiment)
    rows = []
    for (model, method), runs in groups.items():
        seconds = [run.total_seconds for run in runs]
        rows.append(
            [
                model,
                method,
                str(len(runs)),
                f"{runs[0].step.seconds[labels[-1]]:.3g}",
                runs[0].step.source,
                *(str(runs[0].steps[label]) for label in labels),
                _range(min(seconds), max(seconds)),
                duration(sum(seconds) * ranks),
            ]
        )
    at_least = ", at least," if any(run.step.source == "FLOPs" for run in plan.runs) else ""
    steps = [f"steps{at_least} in {label}" for label in labels]
    return _table(["model", "method", "runs", "s/step", "from", *steps, "time/run", f"{unit} time"], rows)


def _range(low: float, high: float) -> str:
    """Two durations in seconds as ``13 to 17.4 hours``, or as one if they look the same."""
    first, last = duration(low), duration(high)
    return last if first == last else f"{first.removesuffix(last.lstrip('.0123456789'))} to {last}"


def _render_time(plan: Plan) -> str:
    runs, ranks, unit = plan.runs, plan.experiment.execution.ranks, _unit(plan.experiment)
    parts = {name: sum(run.seconds[name] for run in runs) for name in (runs[0].seconds if runs else [])}
    parts["untrained models"] = sum(plan.base_seconds)
    rows = [[name, duration(seconds * ranks)] for name, seconds in parts.items()]
    if plan.model_seconds:
        rows.append(["base models", duration(sum(plan.model_seconds))])
    rows.append(["all", duration(3600 * plan.device_hours)])
    return _table(["part", f"{unit} time"], rows) + f"\n{_duration(plan)}"


def _duration(plan: Plan) -> str:
    """How long the experiment takes with so many runs at a time."""
    days = plan.wall_seconds / 86400
    takes = f"{days:.1f} days" if days > 2 else duration(plan.wall_seconds)
    return f"{takes} with {plural(plan.nodes, 'run')} at a time"


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
                sizes = memory.checkpoint_bytes(plan.shapes[model], plan.experiment.execution, teacher)
                numbers = (sizes.model, sizes.optimizer, sizes.teacher, sizes.weights, sizes.total)
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
    sizes = (GPUS[plan.gpu].memory,) if plan.gpu else GPU_SIZES
    rows = _render_items(update, sizes)
    text = _table(["memory of a GPU in an update, GB", *plan.shapes], rows)
    longest = training.max_prompt_length + training.max_response_length
    servers = execution.ranks // execution.rollout_tensor_parallel
    sequences = -(-training.questions_per_batch * training.rollouts_per_question // servers)
    for size in sizes:
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


def _sources(plan: Plan) -> dict[str, list[str]]:
    """What is measured, what is the paper's, what is computed and what is assumed, by heading."""
    on_gpus = plan.experiment.execution.rollout_engine == "sglang"
    return {
        "Measured": _measured(plan),
        "From the paper": _from_the_paper(plan),
        "Computed": _computed(plan),
        "Assumed": [*_assumed_speeds(plan), *_assumed_sizes(plan)],
        "Not included": [
            "Time in queues, attempts that fail, downloads of models and data; data, tables, figures and the copy in "
            + ("MLflow need no GPU." if on_gpus else "MLflow, about a minute of a core (docs/speed.md).")
        ],
    }


def _measured(plan: Plan) -> list[str]:
    measured, embedded = plan.measured, plan.experiment.execution.rollout_engine == "embedded"
    lines = []
    if measured.folders:
        lines.append(f"In {', '.join(map(str, measured.folders))}; steps but each run's first, which compiles kernels:")
    for (model, method), phases in measured.phases.items():
        total = sum(phases.values())
        parts = ", ".join(f"{phase} {seconds:.3g}" for phase, seconds in phases.items() if seconds >= 0.001 * total)
        lines.append(
            f"{model}, {method}: {total:.3g} s per step ({parts}); generation {phases['generate'] / total:.0%}."
        )
    for model, (seconds, rollouts) in measured.validations.items():
        lines.append(f"{model}: {seconds:.3g} s for a validation of {rollouts} rollouts.")
    if measured.write_bytes_per_second:
        lines.append(f"Checkpoints: {measured.write_bytes_per_second / 1e9:.3g} GB/s.")
    if embedded:
        execution = plan.experiment.execution
        start, evaluation = START_SECONDS[execution.driver], EVALUATION_START_SECONDS[execution.rollout_engine]
        if execution.driver == "in_process":
            lines.append(
                f"A run starts and ends in {start:.0f} s, an evaluation starts in {evaluation:.0f} s (docs/speed.md)."
            )
        if any(run.step.source == "FLOPs" for run in plan.runs):
            lines.append(
                f"A second of training on the modelled clock takes {MODELLED_SECOND:g} s of a core with the "
                "miniature's models (docs/speed.md); with others it is counted as 1 s."
            )
        if plan.model_seconds:
            lines.append(
                "An example of a base model's warm start takes what it took of Miniature-S and -L "
                "(docs/miniature.md), on one core."
            )
    elif not measured.folders:
        name = plan.experiment.name
        rehearsal = f"{name}-rehearsal"
        if (CONFIGS / "experiments" / f"{rehearsal}.yaml").exists():
            lines.append(f"Nothing. After a rehearsal: srpo plan {name} --from results/{rehearsal}.")
        else:
            lines.append(f"Nothing. After the first finished runs: srpo plan {name} --from results/{name}.")
    return lines


def _from_the_paper(plan: Plan) -> list[str]:
    if plan.experiment.execution.rollout_engine != "sglang":
        return []
    likes = {
        run.run.method: like
        for run in plan.runs
        if (like := run.step.source.removeprefix("paper, ")) != run.step.source
    }
    lines = []
    if any(run.step.source.startswith("paper") for run in plan.runs):
        lines.append(
            "Seconds per step up to each budget, where no others are named: those of figure 4b, of Qwen3-8B on 8 GPUs "
            "of 96 GB (H20), a mean over benchmarks. A smaller model or a faster GPU takes less: with a wall clock "
            "more steps, and more validations, in the same hours."
        )
    if likes:
        others = ", ".join(f"{name} like {like}" for name, like in likes.items())
        lines.append(f"The figure has grpo, sdpo and srpo. Other methods are counted like them: {others}.")
    if plan.experiment.training.clock.kind == "calibrated":
        lines.append("Steps in each budget: those of figure 4b, for every model and on every GPU.")
    return lines


def _computed(plan: Plan) -> list[str]:
    if plan.experiment.execution.rollout_engine == "embedded":
        return [
            "A step's seconds follow from FLOPs at the clock's nominal rates, with prompts and responses as long as "
            "they may be: steps are the fewest there can be.",
            "Disk, from the shapes of the models.",
        ]
    training = plan.experiment.training
    by_data_sheet = []
    if plan.gpu and any(run.step.source == plan.gpu for run in plan.runs):
        card = GPUS[plan.gpu]
        by_data_sheet = [
            f"Seconds per step, where no others are named: from the data sheet of {plan.gpu} ({card.memory / 1e9:.0f} "
            f"GB, {card.bandwidth / 1e9:.0f} GB/s, {card.flops / 1e12:.0f} TFLOP/s in bfloat16). Generation reaches "
            f"{BANDWIDTH_SHARE:.0%} of it and the other passes {FLOPS_SHARE:.0%}; prompts have {MEAN_PROMPT} and "
            f"responses {MEAN_RESPONSE} tokens on average, {LONGEST_RESPONSE} at most, or as many as allowed."
        ]
    return [
        *by_data_sheet,
        "Disk and memory, from the shapes of the models: docs/paper-scale.md has what they were checked against. The "
        f"largest micro-batch of an update holds {memory.micro_batch_tokens(plan.experiment.execution, training)} "
        "tokens, all of them distilled responses.",
        f"Validations: every {training.validate_every} steps and at the end, of the whole test split.",
    ]


def _assumed_speeds(plan: Plan) -> list[str]:
    """Assumptions about time."""
    experiment, measured = plan.experiment, plan.measured
    execution = experiment.execution
    lines = []
    if execution.rollout_engine == "sglang":
        if measured.phases:
            first, *_, last = paper_step_seconds()["grpo"].values()
            lines.append(
                "Responses as long as in the measured steps. In figure 4b they grow: GRPO's steps up to 10 hours take "
                f"{last / first - 1:.0%} more than those up to 1 hour."
            )
        if any(run.step.source.startswith("paper") for run in plan.runs):
            lines.append(
                f"Generation is {GENERATION_SHARE:.0%} of the paper's step: a reviewer's model of Qwen3-8B on H100 has "
                "70 to 75%. On H20, whose arithmetic is slower, it is less, and sampling outside of training too."
            )
        known = "a measured validation or a step's generation" if measured.folders else "a step's generation"
        lines.append(
            f"Validations and evaluations take what {known} takes, times more rollouts; a server's larger batch is "
            "faster as far as reading weights, keys and values limits it, with "
            f"{CONTEXT_TOKENS} tokens a sequence and {CONCURRENT} sequences a server."
        )
    server = SERVER_SECONDS[execution.rollout_engine]
    if execution.driver == "ray":
        start, evaluation = START_SECONDS["ray"], EVALUATION_START_SECONDS[execution.rollout_engine]
        lines.append(
            f"A run starts in {start + server:.0f} s, an evaluation in {evaluation:.0f} s and {server:.0f} s for each "
            f"of up to {len(experiment.training.budget_seconds)} checkpoints."
        )
    disk = "" if measured.write_bytes_per_second else f" The disk takes {WRITE_BYTES_PER_SECOND / 1e9:g} GB/s."
    return [
        *lines,
        f"Complete checkpoints take {CHECKPOINT_SHARE:.0%} of the time, their limit, and one at the end. "
        f"{SAVED_VALIDATIONS:.0%} of the validations save weights.{disk}",
    ]


def _assumed_sizes(plan: Plan) -> list[str]:
    """Assumptions about disk and memory."""
    lines = [
        f"Disk: {COMPLETE_CHECKPOINTS['running']} complete checkpoints of a run under way and one being written, "
        f"{COMPLETE_CHECKPOINTS['finished']} of a finished run (a longer budget continues from it), and the weights of "
        "each budget's best. Logs and samples are small."
    ]
    if plan.experiment.execution.rollout_engine == "sglang":
        lines.append(
            f"Memory: CUDA, NCCL and a sleeping server take {memory.DEVICE_RUNTIME / 1e9:g} GB of a GPU, a rank's "
            f"processes {memory.HOST_PER_RANK / 1e9:g} GB of the host."
        )
    return lines


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g}" if abs(size) < 100e9 else f"{size / 1e9:.0f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: names to the left, numbers to the right."""
    columns = list(zip(*rows, strict=True)) if rows else []
    align = ["right" if all(cell[:1].isdigit() or cell[:1] == "-" for cell in column) else "left" for column in columns]
    return tabulate(rows, header, tablefmt="simple", colalign=align or None, disable_numparse=True)
