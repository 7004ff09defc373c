"""An experiment's estimate (:mod:`srpo.plan`) as text: tables, and where their numbers come from."""

import re
from collections.abc import Sequence

import jinja2
from tabulate import tabulate

from srpo.cost import memory
from srpo.experiment.config import BUDGET_IS, CalibratedClock, Experiment, WallClock
from srpo.experiment.step_times import paper_step_seconds, timed_like
from srpo.plan.gpus import BANDWIDTH_SHARE, GPUS, LONGEST_RESPONSE, MEAN_PROMPT, MEAN_RESPONSE, PAPER_GPU, mean_context
from srpo.plan.plan import (
    COMPLETE_CHECKPOINTS,
    CONCURRENT,
    EVALUATION_START_SECONDS,
    MODELLED_SECOND,
    OVERHEAD_SECONDS,
    SAVED_VALIDATIONS,
    SERVER_SECONDS,
    START_SECONDS,
    WRITE_BYTES_PER_SECOND,
    Plan,
    RunPlan,
    is_toy,
    like_the_paper,
    make_plan,
)
from srpo.plan.published import published_steps
from srpo.plan.shortages import gigabytes, some_teacher_has_weights
from srpo.repository import CONFIGS, REPORTS
from srpo.text import duration, joined, plural
from srpo.training.checkpoints import CHECKPOINT_SHARE

PAPER_VALIDATES_EVERY, FEWER_VALIDATIONS = 5, 10
"""Steps from one validation to the next: the paper's, and what an experiment takes that need not match it."""

GPU_SIZES = (80e9, 96e9)
"""Bytes of the GPUs that memory is compared with, if steps are like the paper's and nobody named a card."""


def render(plan: Plan) -> str:
    """The plan as text: tables, then where their numbers come from."""
    parts = [_render_head(plan), _render_runs(plan), _render_time(plan), _render_seeds(plan), _render_disk(plan)]
    if plan.experiment.execution.rollout_engine == "sglang":
        parts.append(_render_memory(plan))
    parts.append(_render_sources(plan))
    return "\n\n".join(filter(None, parts)) + "\n"


def _render_seeds(plan: Plan) -> str:
    """What the planned seeds tell apart, what one more would, and what it takes; trials are not compared."""
    if plan.experiment.search:
        return ""
    if plan.rehearsal:
        steps = plan.experiment.training.max_steps or 0
        return f"A run ends after {plural(steps, 'step')}: it shows that the path works, and no difference of methods."
    from srpo.analysis.report.power_text import assumed_sentences
    from srpo.analysis.results.power import sample_noise

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
        sentences = assumed_sentences(runs, titles, noise, paired=experiment.draws_per_seed(model))
        said = "\n".join(f"- {sentence}" for sentence in sentences)
        models.setdefault(said, []).append(model)
    if not models:
        return "No run, and nothing to tell apart."
    # methods may have different numbers of seeds
    one_seed = {(run.run.model, run.run.benchmark, run.run.method): run.total_seconds for run in plan.runs}
    seconds = sum(one_seed.values()) * experiment.execution.ranks
    return "\n".join(
        [
            *(f"Seeds, {joined(names)}\n{said}" for said, names in models.items()),
            f"One more seed of every run takes about {duration(seconds, _device(experiment))}.",
        ]
    )


def headline(plan: Plan, source: str) -> str:
    """Two lines: how much there is to compute and how long that may take, and what that assumes.

    Args:
        source: what ``srpo plan`` takes for this experiment: a name or a file.
    """
    experiment = plan.experiment
    counts = [(len(plan.model_seconds), "base model"), (len(plan.runs), "run")]
    what = ", ".join(plural(count, name) for count, name in counts if count)
    busy = duration(3600 * plan.device_hours, _device(experiment))
    from_what = (
        "measured seconds per step"
        if plan.measured.folders
        else "the paper's seconds per step"
        if any(run.step.source.startswith("paper") for run in plan.runs)
        else f"the data sheet of {plan.gpu}"
        if plan.gpu
        else f"FLOPs at {'the rate of this machine' if plan.product_rate else 'nominal rates'}, "
        "prompts and responses as long as they may be, cores idle otherwise"
    )
    return (
        f"{experiment.name}: {what or 'no run'}; from nothing about {busy}, {_duration(plan)}\n"
        f"An estimate from {from_what}; srpo plan {source} says more."
    )


def _device(experiment: Experiment) -> str:
    return "GPU" if experiment.execution.rollout_engine == "sglang" else "core"


def _render_head(plan: Plan) -> str:
    experiment = plan.experiment
    clock = experiment.training.clock.kind
    runs = f"{plural(len(plan.runs), 'run')} of {plural(experiment.execution.ranks, _device(experiment))}"
    card = f"; card: {plan.gpu}, {GPUS[plan.gpu].memory / 1e9:.0f} GB" if plan.gpu else ""
    return (
        f"{experiment.name}: {experiment.title}{card}\n"
        f"{runs}, {plural(len(plan.base_seconds), 'evaluation')} of untrained models\n"
        f"training clock: {clock}; a budget is {BUDGET_IS[clock]}"
    )


def _render_runs(plan: Plan) -> str:
    """One line for each model and method; a method's runs differ in their test split only.

    Steps that follow from FLOPs are the fewest there can be (:func:`_computed`), and the head of their columns says so.
    Those of a rehearsal end before any budget.
    """
    labels = [*plan.experiment.training.budget_seconds]
    groups: dict[tuple[str, str], list[RunPlan]] = {}
    for run in plan.runs:
        groups.setdefault((run.run.model, run.run.method), []).append(run)
    ranks, device = plan.experiment.execution.ranks, _device(plan.experiment)
    shown = labels[-1:] if plan.rehearsal else labels
    rows = []
    for (model, method), runs in groups.items():
        seconds = [run.total_seconds for run in runs]
        rows.append(
            [
                model,
                method,
                str(len(runs)),
                f"{runs[0].step.seconds[labels[-1]]:.{_digits(plan)}g}",
                runs[0].step.source,
                *(str(runs[0].steps[label]) for label in shown),
                _range(min(seconds), max(seconds), _digits(plan)),
                duration(sum(seconds) * ranks, digits=_digits(plan)),
            ]
        )
    at_least = ", at least," if any(run.step.source == "FLOPs" for run in plan.runs) else ""
    steps = ["steps"] if plan.rehearsal else [f"steps{at_least} in {label}" for label in labels]
    per_step = "clock s/step" if at_least else "s/step"
    return table(["model", "method", "runs", per_step, "from", *steps, "time/run", f"{device} time"], rows)


def not_measured(plan: Plan) -> str:
    """Models and methods without measured seconds, though some were to be read, as ``qwen3-4b, grpo and sdpo``."""
    return "; ".join(f"{model}, {joined(methods)}" for model, methods in plan.unmeasured.items())


def _digits(plan: Plan) -> int:
    """Digits of a time: a rehearsal is start-up, checkpoints and evaluation, whose times are mostly assumed."""
    return 2 if plan.rehearsal else 3


def _range(low: float, high: float, digits: int) -> str:
    """Two durations in seconds as ``13 to 17.4 hours``, or as one if they look the same."""
    first, last = duration(low, digits=digits), duration(high, digits=digits)
    return last if first == last else f"{first.removesuffix(last.lstrip('.0123456789'))} to {last}"


def _render_time(plan: Plan) -> str:
    runs, ranks, device = plan.runs, plan.experiment.execution.ranks, _device(plan.experiment)
    parts = {name: sum(run.seconds[name] for run in runs) for name in (runs[0].seconds if runs else [])}
    parts["untrained models"] = sum(plan.base_seconds)
    rows = [[name, duration(seconds * ranks, digits=_digits(plan))] for name, seconds in parts.items()]
    if plan.model_seconds:
        rows.append(["base models", duration(sum(plan.model_seconds))])
    rows.append(["all", duration(3600 * plan.device_hours, digits=_digits(plan))])
    more = [*_published_range(plan), *_other_clock(plan), *_other_validations(plan)]
    return "\n".join([table(["part", f"{device} time"], rows), _duration(plan), *more])


def _duration(plan: Plan) -> str:
    """How long the experiment takes with this number of runs at a time."""
    days = plan.wall_seconds / 86400
    takes = f"{days:.1f} days" if days > 2 else duration(plan.wall_seconds, digits=_digits(plan))
    return f"{takes} with {plural(plan.nodes, 'run')} at a time"


def _published_range(plan: Plan) -> list[str]:
    """What the experiment takes if its steps are as short, or as long, as published ones on the paper's card.

    With a wall clock it takes the same, and makes another number of steps.
    """
    on_card = any(run.step.source.startswith(("paper", plan.gpu)) for run in plan.runs) if plan.gpu else False
    if not on_card or plan.rehearsal:
        return []
    steps = published_steps()
    short, long = steps[0].pace, steps[-1].pace
    runs = joined([f"{each.method} {each.seconds:.0f} s ({each.source}; figure 4b {each.paper:g})" for each in steps])
    published = f"published on 8 {PAPER_GPU} are {runs}."
    if isinstance(plan.experiment.training.clock, WallClock):
        return [f"In the same hours {1 / long:.2f} to {1 / short:.2f} times as many steps are possible: {published}"]
    low, high = (
        make_plan(plan.experiment, plan.nodes, plan.measured, plan.gpu, pace).device_hours for pace in (short, long)
    )
    return [f"{low:.0f} to {high:.0f} GPU-hours if steps take {short:.2f} to {long:.2f} times as long: {published}"]


def _other_clock(plan: Plan) -> list[str]:
    """The price of the same budgets on the other clock, for steps like the paper's."""
    experiment = plan.experiment
    if plan.rehearsal or not plan.runs or not like_the_paper(experiment):
        return []
    wall = isinstance(experiment.training.clock, WallClock)
    clock = CalibratedClock(kind="calibrated") if wall else WallClock(kind="wall")
    hours = _hours_with(plan, clock=clock)
    steps = "the paper's steps" if wall else "as many steps as these GPUs make in the paper's hours"
    return [f"With training.clock {{kind: {clock.kind}}}, {steps}: {hours:.0f} GPU-hours."]


def _other_validations(plan: Plan) -> list[str]:
    """The price with half as many validations, or with as many as the paper's, for steps like the paper's."""
    experiment = plan.experiment
    if plan.rehearsal or not plan.runs or not like_the_paper(experiment):
        return []
    every = PAPER_VALIDATES_EVERY if experiment.training.validate_every > PAPER_VALIDATES_EVERY else FEWER_VALIDATIONS
    hours, paper = _hours_with(plan, validate_every=every), ", as in the paper" * (every == PAPER_VALIDATES_EVERY)
    return [f"With training.validate_every: {every}{paper}: {hours:.0f} GPU-hours."]


def _hours_with(plan: Plan, **changes: object) -> float:
    """Hours of all GPUs if the experiment's training has these values."""
    training = plan.experiment.training.model_copy(update=changes)
    other = plan.experiment.model_copy(update={"training": training})
    return make_plan(other, plan.nodes, plan.measured, plan.gpu).device_hours


def _render_disk(plan: Plan) -> str:
    rows = []
    for model in plan.shapes:
        for teacher in (False, True):
            runs = [
                run
                for run in plan.runs
                if run.run.model == model and plan.experiment.methods[run.run.method].teacher_has_weights == teacher
            ]
            if runs:
                sizes = memory.checkpoint_bytes(plan.shapes[model], plan.experiment.execution, teacher)
                numbers = (sizes.model, sizes.optimizer, sizes.teacher, sizes.weights, sizes.total)
                cells = (*numbers, max(run.disk_peak for run in runs), max(run.disk_end for run in runs))
                rows.append([model, "yes" if teacher else "no", *map(gigabytes, cells)])
    columns = ["model", "teacher's weights", "weights", "Adam", "teacher"]
    columns += ["huggingface", "checkpoint", "run, peak", "run, end"]
    return (
        table([f"disk, GB: {columns[0]}", *columns[1:]], rows)
        + f"\nwhole experiment: {gigabytes(plan.disk_end)} GB at the end, {gigabytes(plan.disk_peak)} GB at its peak"
    )


def memory_sizes(plan: Plan) -> tuple[float, ...]:
    """Bytes of the GPUs that memory is compared with: the card's, or the usual ones of the paper's experiment."""
    if plan.gpu is None or (plan.gpu_chosen and plan.gpu == PAPER_GPU):
        return GPU_SIZES
    return (GPUS[plan.gpu].memory,)


def _render_memory(plan: Plan) -> str:
    """Device memory of an update and of generation, for each model and size of GPU."""
    execution, training = plan.experiment.execution, plan.experiment.training
    shapes, teacher = plan.shapes.values(), some_teacher_has_weights(plan.experiment)
    update = [memory.update_memory(shape, execution, training, teacher) for shape in shapes]
    sizes = memory_sizes(plan)
    rows = _render_items(update, sizes)
    text = table(["memory of a GPU in an update, GB", *plan.shapes], rows)
    longest = training.max_prompt_length + training.max_response_length
    servers = execution.ranks // execution.rollout_tensor_parallel
    sequences = -(-training.questions_per_batch * training.rollouts_per_question // servers)
    for size in sizes:
        rollout = [memory.rollout_memory(shape, execution, size, teacher) for shape in shapes]
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
        text += "\n\n" + table([f"memory of a GPU of {size / 1e9:.0f} GB in generation, GB", *plan.shapes], rows)
    host = [gigabytes(memory.host_memory(shape, execution, teacher)) for shape in shapes]
    return text + "\n\n" + table(["memory of the host, GB", *plan.shapes], [["all ranks together", *host]])


def _render_items(models: Sequence[dict[str, float]], sizes: Sequence[float]) -> list[list[str]]:
    """A line for each item that a model has, their sums, and what is left of GPUs of these sizes."""
    rows = [[name, *(gigabytes(items[name]) for items in models)] for name in models[0] if any(m[name] for m in models)]
    rows.append(["all", *(gigabytes(sum(items.values())) for items in models)])
    for size in sizes:
        rows.append([f"left of {size / 1e9:.0f} GB", *(gigabytes(size - sum(items.values())) for items in models)])
    return rows


def _render_sources(plan: Plan) -> str:
    """What is measured, what is the paper's, what is computed and what is assumed (``reports/plan.txt.j2``)."""
    experiment = plan.experiment
    execution, training = experiment.execution, experiment.training
    first, *_, last = paper_step_seconds()["grpo"].values()
    from_the_paper = [run for run in plan.runs if run.step.source.startswith("paper")]
    likes = {run.run.method: timed_like(experiment.methods[run.run.method]) for run in from_the_paper}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string((REPORTS / "plan.txt.j2").read_text()).render(
        plan=plan,
        experiment=experiment,
        execution=execution,
        training=training,
        measured=plan.measured,
        not_measured=not_measured(plan),
        has_rehearsal=(CONFIGS / "experiments" / f"{experiment.name}-rehearsal.yaml").exists(),
        from_the_paper=bool(from_the_paper),
        scaled=any(run.step.source.endswith("scaled") for run in from_the_paper),
        likes=[f"{name} like {like}" for name, like in likes.items() if name != like],
        filtered={name: each for name, method in experiment.methods.items() if (each := method.filter_groups)},
        context=mean_context(training),
        paper_gpu=PAPER_GPU,
        growth=last / first - 1,
        card=GPUS[plan.gpu] if plan.gpu else None,
        start=START_SECONDS[execution.driver],
        evaluation_start=EVALUATION_START_SECONDS[execution.rollout_engine],
        server=SERVER_SECONDS[execution.rollout_engine],
        toys=any(is_toy(model) for model in experiment.models.values()),
        modelled_second=f"{MODELLED_SECOND:g}",
        product_rate=plan.product_rate and f"{plan.product_rate / 1e9:.0f} GFLOP/s",
        overhead=f"{OVERHEAD_SECONDS * 1e12:g} ps",
        micro_batch_tokens=memory.micro_batch_tokens(execution, training),
        checkpoint_share=CHECKPOINT_SHARE,
        assumed={
            "BANDWIDTH_SHARE": BANDWIDTH_SHARE,
            "COMPLETE_CHECKPOINTS": COMPLETE_CHECKPOINTS,
            "CONCURRENT": CONCURRENT,
            "LONGEST_RESPONSE": LONGEST_RESPONSE,
            "MEAN_PROMPT": MEAN_PROMPT,
            "MEAN_RESPONSE": MEAN_RESPONSE,
            "SAVED_VALIDATIONS": SAVED_VALIDATIONS,
            "WRITE_BYTES_PER_SECOND": WRITE_BYTES_PER_SECOND,
        },
        memory=memory,
        number=lambda value: f"{value:.3g}",
        percent=lambda value: f"{value:.0%}",
    )
    joined_lines = re.sub(r"\n {2,}", " ", text)
    return re.sub(r"\n{2,}(?=- )", "\n", re.sub(r"\n{3,}", "\n\n", joined_lines)).strip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: names to the left, numbers to the right."""
    columns = list(zip(*rows, strict=True)) if rows else []
    align = ["right" if all(cell[:1].isdigit() or cell[:1] == "-" for cell in column) else "left" for column in columns]
    return tabulate(rows, header, tablefmt="simple", colalign=align or None, disable_numparse=True)
