"""An experiment's estimate (:mod:`srpo.plan`) as text: one table, the range of its price, and what it rests on."""

from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from srpo.experiment import memory
from srpo.experiment.config import BUDGET_IS
from srpo.ground.text import duration, joined, plural
from srpo.plan.gpus import BEST, USUAL, WORST
from srpo.plan.plan import MODELLED_SECOND, Plan, RunPlan
from srpo.plan.shortages import gigabytes, some_teacher_has_weights


def render(plan: Plan) -> str:
    """The plan as text."""
    return "\n\n".join([_head(plan), _table(plan), _sums(plan), _notes(plan)]) + "\n"


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: names to the left, numbers to the right."""
    columns = list(zip(*rows, strict=True)) if rows else []
    align = ["right" if all(cell[:1].isdigit() or cell in {"", "-"} for cell in c) else "left" for c in columns]
    return tabulate(rows, header, tablefmt="simple", colalign=align or None, disable_numparse=True)


def _device(plan: Plan) -> str:
    return "GPU" if plan.gpu else "core"


def _digits(plan: Plan) -> int:
    """Digits of a time: a rehearsal is start-up, checkpoints and evaluation, whose times are mostly assumed."""
    return 2 if plan.experiment.is_rehearsal else 3


def _hours(plan: Plan, seconds: float) -> str:
    return duration(seconds * plan.experiment.execution.ranks, _device(plan), _digits(plan))


def _duration(plan: Plan) -> str:
    days = plan.wall_seconds / 86400
    takes = f"{days:.1f} days" if days > 2 else duration(plan.wall_seconds, digits=_digits(plan))
    return f"{takes} with {plural(plan.nodes, 'run')} at a time"


def _head(plan: Plan) -> str:
    clock = plan.experiment.training.clock.kind
    runs = f"{plural(len(plan.runs), 'run')} of {plural(plan.experiment.execution.ranks, _device(plan))}"
    files = [each for each in plan.experiment.benchmarks.values() if each.kind == "files"]
    own = "".join(
        f"\n{each.name}: {each.published(split)} questions to {split}, from {each.file(split)}"
        for each in files
        for split in each.contents
    )
    return (
        f"{plan.experiment.name}: {plan.experiment.title}{f'; card: {plan.gpu}' if plan.gpu else ''}\n"
        f"{runs}, {plural(len(plan.base_seconds), 'evaluation')} of untrained models\n"
        f"training clock: {clock}; a budget is {BUDGET_IS[clock]}{own}"
    )


def _table(plan: Plan) -> str:
    """Steps, time, disk and memory: one line for each model and method, whose runs differ in their test split only.

    Steps that follow from FLOPs are the fewest there can be, and the head of their columns says so. Those of a
    rehearsal end before any budget.
    """
    labels = [*plan.experiment.training.budget_seconds]
    groups: dict[tuple[str, str], list[RunPlan]] = {}
    for run in plan.runs:
        groups.setdefault((run.run.model, run.run.method), []).append(run)
    rows = []
    for (model, method), runs in groups.items():
        times = [run.total_seconds for run in runs]
        of_method = plan.experiment.methods[method].teacher_has_weights
        rows.append(
            [
                model,
                method,
                str(len(runs)),
                f"{runs[0].step_seconds:.{_digits(plan)}g}",
                runs[0].source,
                *(str(runs[0].steps[label]) for label in (labels[-1:] if plan.experiment.is_rehearsal else labels)),
                _from_to(min(times), max(times), _digits(plan)),
                _hours(plan, sum(times)),
                gigabytes(max(run.disk_peak for run in runs)),
                *([_needed(plan, model, of_method)] if plan.gpu else []),
            ]
        )
    at_least = any(run.source == "FLOPs" for run in plan.runs)
    titles = [plan.experiment.budget_title(label) for label in labels]
    steps = [f"steps{' >=' * at_least} in {title}" for title in titles]
    steps = ["steps"] if plan.experiment.is_rehearsal else steps
    header = ["model", "method", "runs", "clock s/step" if at_least else "s/step", "from", *steps, "time/run"]
    return _columns([*header, f"{_device(plan)} time", "disk/run, GB", *(["GB/GPU"] if plan.gpu else [])], rows)


def _from_to(low: float, high: float, digits: int) -> str:
    """Two durations in seconds as ``13 to 17.4 hours``, or as one if they look the same."""
    first, last = duration(low, digits=digits), duration(high, digits=digits)
    return last if first == last else f"{first.removesuffix(last.lstrip('.0123456789'))} to {last}"


def _needed(plan: Plan, model: str, teacher: bool) -> str:
    """GB of a GPU in an update and in generation; what is not needed there is left to the program."""
    assert plan.gpu is not None
    shape, execution, training = plan.shapes[model], plan.experiment.execution, plan.experiment.training
    update = memory.update_memory(shape, execution, training, teacher)
    rollout = memory.rollout_memory(shape, execution, plan.gpu.memory, teacher)
    return f"{gigabytes(sum(update.values()))}, {gigabytes(sum(rollout.values()))}"


def _sums(plan: Plan) -> str:
    """All of them together: time, disk and, of GPUs, memory."""
    ranks, digits = plan.experiment.execution.ranks, _digits(plan)
    parts = Counter[str]()
    for run in plan.runs:
        parts.update(run.seconds)
    parts.update({"untrained models": sum(plan.base_seconds), "base models": sum(plan.model_seconds) / ranks})
    shown = [f"{name} {duration(seconds * ranks, digits=digits)}" for name, seconds in parts.items() if seconds]
    between = f" ({_from_to(*plan.device_seconds_range, digits)})" if plan.computed else ""
    lines = [
        f"All: {duration(3600 * plan.device_hours, _device(plan), digits)}{between}; {_duration(plan)}.",
        f"Of it: {'; '.join(shown)}.",
        f"Disk: {gigabytes(plan.disk_peak)} GB at its peak, {gigabytes(plan.disk_end)} GB at the end.",
    ]
    return "\n".join(lines + (_memory(plan) if plan.gpu else []))


def _memory(plan: Plan) -> list[str]:
    """What the column of memory has, how many rollouts a server has room for, and the memory of the host."""
    assert plan.gpu is not None
    execution, training = plan.experiment.execution, plan.experiment.training
    teacher = some_teacher_has_weights(plan.experiment)
    servers = execution.ranks // execution.rollout_tensor_parallel
    sequences = -(-training.questions_per_batch * training.rollouts_per_question // servers)
    longest = training.max_prompt_length + training.max_response_length
    rooms = []
    for name, shape in plan.shapes.items():
        cached = memory.rollout_memory(shape, execution, plan.gpu.memory, teacher)["keys and values"]
        tokens = cached / memory.kv_bytes_per_token(shape) * execution.rollout_tensor_parallel
        room = min(1.0, tokens / (sequences * longest))
        rooms.append(f"{tokens:.0f} tokens of {name}, {room:.0%} of its {sequences} rollouts at full length")
    host = max(memory.host_memory(shape, execution, teacher) for shape in plan.shapes.values())
    return [
        f"Memory of a GPU, of its {plan.gpu.memory / 1e9:.0f} GB: in an update, and in generation; "
        f"{memory.DEVICE_RUNTIME / 1e9:g} GB of both are CUDA, NCCL and the server. Of the host: {gigabytes(host)} GB.",
        "An update is overestimated: by 15 to 30 %, without these GB, of four updates measured on one H100.",
        f"A server has room for the keys and values of {joined(rooms)}.",
    ]


def _notes(plan: Plan) -> str:
    """What the numbers of this experiment rest on."""
    measured, lines = plan.measured, []
    if measured.folders:
        where, on = ", ".join(map(str, measured.folders)), f" on {joined(measured.gpus)}" * bool(measured.gpus)
        lines.append(f"Measured in {where}{on}; of each run the steps after its first.")
    for (model, method), phases in measured.phases.items():
        shown = ", ".join(f"{phase} {seconds:.3g}" for phase, seconds in phases.items())
        lines.append(f"{model}, {method}: {sum(phases.values()):.3g} s per step ({shown}).")
    if missing := [f"{model}, {joined(methods)}" for model, methods in plan.computed.items()]:
        assert plan.gpu is not None
        limit = plan.experiment.training.max_response_length
        usual, best, worst = (
            f"responses of {min(each.response, limit)}, at most {min(each.longest, limit)} tokens, "
            f"and training at {each.training * plan.gpu.flops_share:.0%} of peak"
            for each in (USUAL, BEST, WORST)
        )
        lines += [
            f"Computed from the data sheet of {plan.gpu}: {'; '.join(missing)}. srpo rehearse measures them.",
            f"Assumed: prompts of {plan.assumed.prompt} tokens, {usual}. The price's range: {best}, to {worst}. "
            "One H100 reached 18 to 30 %.",
        ]
    if any(run.source == "FLOPs" for run in plan.runs):
        lines.append(
            "Computed: FLOPs at the clock's nominal rates, prompts and responses as long as they may be. A second of a "
            f"toy's clock takes {MODELLED_SECOND:g} s of a core."
        )
    lines.append("Not included: queues, attempts that fail, downloads, data, gaps, tables and figures.")
    return "What this rests on\n" + "\n".join(f"- {line}" for line in lines)
