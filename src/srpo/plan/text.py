"""An experiment's estimate (:mod:`srpo.plan`) as text: one table, the range of its price, and what it rests on."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from tabulate import tabulate

from srpo.cost import memory
from srpo.experiment.config import BUDGET_IS, WallClock
from srpo.layout import RunId
from srpo.plan.gpus import BANDWIDTH_SHARE, GPUS, MEAN_PROMPT, TRAINING_SHARES, USUAL, lengths_of, mean_context
from srpo.plan.plan import (
    BROKEN_PACE,
    BROKEN_RUNS,
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
)
from srpo.plan.shortages import gigabytes, some_teacher_has_weights
from srpo.text import duration, joined, plural
from srpo.training.checkpoints import CHECKPOINT_SHARE


def render(plan: Plan, source: str | None = None) -> str:
    """The plan as text.

    Args:
        source: as for :func:`headline`; default: the experiment's name.
    """
    parts = [
        _head(plan),
        _gap_first(plan, source or plan.experiment.name),
        _table(plan),
        _sums(plan),
        _range(plan),
        _broken(plan),
        _seeds(plan),
        _notes(plan, source or plan.experiment.name),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def headline(plan: Plan, source: str, finished: Container[RunId] = ()) -> str:
    """Two lines: how much there is to compute and how long that may take, and what that assumes.

    Args:
        source: what ``srpo plan`` takes for this experiment: a name or a file.
        finished: runs that are trained already.
    """
    counts = [(len(plan.model_seconds), "base model"), (len(plan.runs), "run")]
    what = ", ".join(plural(count, name) for count, name in counts if count)
    busy = duration(3600 * plan.device_hours, _device(plan))
    left = [run.total_seconds for run in plan.runs if run.run not in finished]
    rest = f", the other {len(left)} about {_hours(plan, sum(left))}" if left else ""
    there = f"; {len(plan.runs) - len(left)} finished{rest}" if len(left) < len(plan.runs) else ""
    rates = f"FLOPs at {'the rate of this machine' if plan.product_rate else 'nominal rates'}"
    computed = f"the data sheet of {plan.gpu}" if plan.gpu else rates
    from_what = "measured seconds per step" if plan.measured.folders else computed
    return (
        f"{plan.experiment.name}: {what or 'no run'}; from nothing about {busy}, {_duration(plan)}{there}\n"
        f"An estimate from {from_what}; srpo plan {source} says more."
    )


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


def _gap_first(plan: Plan, source: str) -> str:
    """What measures before any training whether a shown solution helps: of models that are no toys of ours.

    Nothing if nothing is trained, or if the experiment's own runs were measured.
    """
    experiment = plan.experiment
    begun = experiment.name in {folder.name for folder in plan.measured.folders}
    if begun or experiment.is_search or not experiment.gaps() or all(map(is_toy, experiment.models.values())):
        return ""
    file = source if source.endswith(".yaml") else f"configs/experiments/{source}.yaml"
    return (
        f"Before you train: snakemake --configfile {file} --until gap\n"
        f"Then srpo report results/{experiment.name} --only tables writes tables/before_training.md."
    )


def _sums(plan: Plan) -> str:
    """All of them together: time, disk and, of GPUs, memory."""
    ranks, digits = plan.experiment.execution.ranks, _digits(plan)
    parts = {name: sum(run.seconds[name] for run in plan.runs) for name in (plan.runs[0].seconds if plan.runs else [])}
    parts["untrained models"] = sum(plan.base_seconds)
    parts["base models"] = sum(plan.model_seconds) / ranks
    shown = [f"{name} {duration(seconds * ranks, digits=digits)}" for name, seconds in parts.items() if seconds]
    lines = [
        f"All: {duration(3600 * plan.device_hours, _device(plan), digits)}; {_duration(plan)}.",
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
        f"A server has room for the keys and values of {joined(rooms)}.",
    ]


def _range(plan: Plan) -> str:
    """What the price depends on most, if it is computed for a card: the longest response, and the pace of training.

    With a wall clock the hours are fixed, and the number of steps depends on them.
    """
    if plan.gpu is None or plan.experiment.is_rehearsal or not plan.computed:
        return ""
    wall = isinstance(plan.experiment.training.clock, WallClock)

    def cell(other: Plan) -> str:
        if not wall:
            return f"{other.device_hours:.0f}"
        return f"{_last_steps(other) / _last_steps(plan):.2f} x"

    fast = TRAINING_SHARES[0]
    measured = all(card != plan.gpu for card in plan.cards.values())
    paces = {
        "training as measured" if measured else f"training at {plan.gpu.flops_share * share / fast:.0%} of peak": share
        for share in TRAINING_SHARES[: 1 if measured else None]
    }
    rows = []
    for lengths in lengths_of(plan.experiment.training):
        cases = [replace(lengths, training=share / fast) for share in paces.values()]
        prices = [replace(plan, assumed=case) for case in cases]
        rows.append([str(lengths.longest), str(lengths.response), *map(cell, prices)])
    header = ["longest response of a batch", "mean", *paces]
    what = "Steps in these hours (1.00 x: those of the table above)" if wall else "GPU-hours"
    read = (
        "A rehearsal logs response_length/max, response_length/mean and perf/mfu; --from reads the rehearsal's seconds."
    )
    return f"{what}, by two things that no data sheet has:\n\n{_columns(header, rows)}\n\n{read}"


def _last_steps(plan: Plan) -> int:
    return sum(max(run.steps.values()) for run in plan.runs)


def _broken(plan: Plan) -> str:
    """What a run costs that breaks as a published one did, and what ``training.stop_on`` saves of it."""
    if not plan.can_break_at_a_price or plan.experiment.is_rehearsal:
        return ""
    ranks = plan.experiment.execution.ranks / 3600
    run = max(plan.runs, key=lambda each: each.after_break)
    sound = run.total_seconds * ranks
    broken = sound + (BROKEN_PACE - 1) * run.after_break * ranks
    stopped = sound - run.after_break * ranks
    stop = plan.experiment.training.stop_on
    ends = f"training.stop_on: {stop or 'cost'} {'ends' if stop else 'would end'} it at about {stopped:.0f}"
    return (
        f"A run that breaks halfway takes {broken:.0f} GPU-hours instead of {sound:.0f}; {ends}. Published: "
        f"{BROKEN_RUNS} runs of SRPO broke, one halfway, with {BROKEN_PACE:.1f} times the seconds per step (SDCL)."
    )


def _seeds(plan: Plan) -> str:
    """What the planned seeds tell apart, what one more would, and what it takes; trials are not compared."""
    if plan.experiment.is_search:
        return ""
    if plan.experiment.is_rehearsal:
        steps = plan.experiment.training.max_steps or 0
        return f"A run ends after {plural(steps, 'step')}: it shows that the path works, and no difference of methods."
    from srpo.analysis.report.power_text import assumed_sentences
    from srpo.analysis.results.power import sample_noise

    experiment, samples = plan.experiment, plan.experiment.evaluation.rollouts
    models: dict[str, list[str]] = {}  # by what is said of them
    titles = {name: method.title for name, method in experiment.methods.items()}
    for model in experiment.models:
        runs = [run.run for run in plan.runs if run.run.model == model]
        if not runs:
            continue
        names = dict.fromkeys(run.benchmark for run in runs)
        questions = tuple(experiment.benchmarks[name].questions("test") for name in names)
        if plan.gpu:
            sentences = [*_simulated(runs, titles, questions, samples)]
        else:
            noise = sample_noise(questions, samples)
            sentences = assumed_sentences(runs, titles, noise, paired=experiment.draws_per_seed(model))
        said = "\n".join(f"- {sentence}" for sentence in sentences)
        models.setdefault(said, []).append(model)
    if not models:
        return "No run, and nothing to tell apart."
    # methods may have different numbers of seeds
    one_seed = {(run.run.model, run.run.benchmark, run.run.method): run.total_seconds for run in plan.runs}
    return "\n".join(
        [
            *(f"Seeds, {joined(names)}\n{said}" for said, names in models.items()),
            f"One more seed of every run takes about {_hours(plan, sum(one_seed.values()))}.",
        ]
    )


def _simulated(
    runs: Sequence[RunId], titles: Mapping[str, str], questions: tuple[int, ...], samples: int
) -> Iterator[str]:
    """What the seeds of one model's methods resolve and find, from the smaller to the larger spreads."""
    from srpo.analysis.report.power_text import methods_by_seeds
    from srpo.analysis.results.power import POWER
    from srpo.plan.simulated import PUBLISHED_RUN_SDS, QUESTION_SDS, RUN_SDS, Setting

    for seeds, methods in methods_by_seeds(runs, titles):
        few, count = ("one seed resolves nothing; ", 2) if seeds == 1 else ("", seeds)
        least, most = (Setting(questions, samples, count, *pair) for pair in zip(RUN_SDS, QUESTION_SDS, strict=True))
        yield (
            f"{joined(methods)}: {few}{count} seeds resolve ±{least.resolves:.1f} to {most.resolves:.1f} points "
            f"between two methods, and find a true difference of {least.finds:.1f} to {most.finds:.1f} points with a "
            f"power of {POWER:.0%}."
        )
    published = joined([f"{sd} ({source})" for source, sd in PUBLISHED_RUN_SDS.items()])
    yield (
        f"Simulated: a method's runs on a benchmark have an SD of {RUN_SDS[0]:g} to {RUN_SDS[1]:g} points, published "
        f"are {published}; two methods' true difference has an SD of {QUESTION_SDS[0]:g} to {QUESTION_SDS[1]:g} points "
        "over questions, which nobody has published."
    )


def _notes(plan: Plan, source: str) -> str:
    """What the numbers of this experiment rest on."""
    speed = plan.measured.write_bytes_per_second
    lines = [
        *_measured(plan, source),
        *(_on_a_card(plan) if plan.gpu else _on_cores(plan)),
        *(
            f"{name}: a step generates {rule.max_num_gen_batches} times, its bound, each time as long as the first, "
            "unless its own steps were measured: the numbers of steps are the least."
            for name, method in plan.experiment.methods.items()
            if (rule := method.filter_groups)
        ),
        f"Checkpoints take {CHECKPOINT_SHARE:.0%} of the time, their limit; {SAVED_VALIDATIONS:.0%} of the validations "
        f"save weights; the disk takes {(speed or WRITE_BYTES_PER_SECOND) / 1e9:.3g} GB/s "
        f"({'measured' if speed else 'assumed'}).",
        f"A run keeps {COMPLETE_CHECKPOINTS['running']} checkpoints and writes one more; a finished one keeps "
        f"{COMPLETE_CHECKPOINTS['finished']}, and the weights of each budget's best.",
        "Not included: the gaps before training, queues, attempts that fail, downloads, data, tables and figures.",
    ]
    return "What this rests on\n" + "\n".join(f"- {line}" for line in lines)


def _measured(plan: Plan, source: str) -> list[str]:
    measured, name, first = plan.measured, plan.experiment.name, _measured_on_a_card(plan)
    if not measured.folders:
        later = f"srpo rehearse {source}, then srpo plan {source} --from results/{name}-rehearsal"
        nothing = f"Measured: {'no step' if first else 'nothing'}. {later}."
        return [*first, *([nothing] if plan.gpu and not plan.experiment.is_rehearsal else [])]
    lines = [*first, f"Measured in {', '.join(map(str, measured.folders))}; of each run the steps after its first:"]
    for (model, method), phases in measured.phases.items():
        total = sum(phases.values())
        shown = [f"{phase} {seconds:.3g}" for phase, seconds in phases.items() if seconds >= 0.001 * total]
        longest = measured.longest.get((model, method))
        tokens = f"; longest response of a batch {longest:.0f} tokens" if longest else ""
        lines.append(f"{model}, {method}: {total:.3g} s per step ({', '.join(shown)}){tokens}.")
    for model, (seconds, rollouts) in measured.validations.items():
        lines.append(f"{model}: {seconds:.3g} s for a validation of {rollouts} rollouts.")
    missing = [f"{model}, {joined(methods)}" for model, methods in plan.computed.items()]
    return [*lines, f"Not measured: {'; '.join(missing)}."] if missing else lines


def _measured_on_a_card(plan: Plan) -> list[str]:
    """What ``bench/first_gpu.py`` measured, and what of it this plan takes."""
    first, gpu = plan.measured.first_gpu, plan.gpu
    if first is None or gpu is None:
        return []
    peak = GPUS[first.card].flops if first.card else None
    lines = [f"Measured in {first.path} on {first.device}:"]
    for update in first.updates:
        share = f", {update.flops / peak:.0%} of peak" if peak else ""
        prompts = "shared prompts" if update.execution[1] else f"packed rows, {update.execution[0]}"
        lines.append(
            f"{update.model}, {plural(update.shape.num_hidden_layers, 'layer')}, {prompts}: {update.flops / 1e12:.0f} "
            f"TFLOP/s{share}; memory {update.peak:.3g} GB, computed {update.planned:.3g} GB."
        )
    taken = {name: first.update_of(gpu, shape, plan.experiment.execution) for name, shape in plan.shapes.items()}
    if missing := [name for name, update in taken.items() if update is None]:
        why = "another card" if gpu.name != first.card else "another shape"
        lines.append(f"Nobody has measured {joined(missing)} on {gpu.name} ({why}): the assumed pace stays.")
    return lines


def _on_a_card(plan: Plan) -> list[str]:
    assert plan.gpu is not None
    card, training, execution = plan.gpu, plan.experiment.training, plan.experiment.execution
    response, longest = (min(each, training.max_response_length) for each in (USUAL.response, USUAL.longest))
    shares = {f"{each.flops_share:.0%}": None for each in plan.cards.values()}
    sheet = f"{card.bandwidth / 1e9:.0f} GB/s and {card.flops / 1e12:.0f} TFLOP/s in bfloat16"
    known = "a measured validation or a step's" if plan.measured.folders else "a step's"
    start, server = START_SECONDS[execution.driver] + SERVER_SECONDS["sglang"], SERVER_SECONDS["sglang"]
    tokens = memory.micro_batch_tokens(execution, training)
    every = plural(training.validate_every, "step").removeprefix("1 ")
    computed = [
        f"Seconds per step: from the data sheet of {card}, {sheet}{', chosen; --gpu names yours' * plan.gpu_chosen}; "
        f"generation reaches {BANDWIDTH_SHARE:.0%} of the bandwidth, all else {joined([*shares])} of the FLOP/s.",
        f"Prompts have {min(MEAN_PROMPT, training.max_prompt_length)} tokens, responses {response}, the longest of a "
        f"batch {longest} (assumed; src/srpo/plan/gpus.py).",
    ]
    return [
        *(computed if plan.computed else []),
        f"Validations: every {every}, of the whole test split. They and evaluations "
        f"take what {known} generation takes, times more rollouts; larger batches are faster as far as reading weights "
        f"and keys limits a server, with {mean_context(training):.0f} tokens a sequence and {CONCURRENT} sequences.",
        f"Starts, assumed: a run {start:.0f} s, an evaluation {EVALUATION_START_SECONDS['sglang']:.0f} s and "
        f"{server:.0f} s for each checkpoint. The largest micro-batch has {tokens} tokens, all of them distilled.",
    ]


def _on_cores(plan: Plan) -> list[str]:
    execution, models = plan.experiment.execution, plan.experiment.models.values()
    lines = []
    if any(run.source == "FLOPs" for run in plan.runs):
        second = "is counted as 1 s of a core"
        if any(map(is_toy, models)):
            second = f"of training takes {MODELLED_SECOND:g} s of a core (docs/speed.md)"
        elif plan.product_rate:
            rate = f"{plan.product_rate / 1e9:.0f} GFLOP/s in {execution.precision}, measured now"
            second = (
                f"takes what its FLOPs take on a core of this machine: matrix products at {rate}, and "
                f"{OVERHEAD_SECONDS * 1e12:g} ps more for a FLOP (docs/speed.md)"
            )
        elif execution.precision == "bfloat16":
            second += ", because this processor would emulate products in bfloat16"
        lines = [
            "A step's seconds on the clock: FLOPs at its nominal rates, prompts and responses as long as they may be; "
            "steps are the fewest there can be.",
            f"A second of the clock {second}.",
        ]
    if execution.driver == "in_process":
        start, evaluation = START_SECONDS["in_process"], EVALUATION_START_SECONDS["embedded"]
        lines.append(f"Measured: a run starts in {start:.0f} s, an evaluation in {evaluation:.0f} s (docs/speed.md).")
    if plan.model_seconds:
        lines.append("Base models: an example of their warm start takes what it took then (docs/toy-models.md).")
    return lines
