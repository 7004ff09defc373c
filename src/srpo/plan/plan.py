"""What an experiment will take, before anything is submitted: runs, steps, hours, disk and memory.

Everything is computed from the experiment, the shapes of its models and seconds per step: those that finished runs
measured (:mod:`srpo.plan.measurements`), else those of a card (:mod:`srpo.plan.gpus`). What had to be assumed is a
named constant, printed with the result. :func:`make_plan` is pure; :mod:`srpo.plan.text` makes text of it.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

from srpo.algorithm.method import Method
from srpo.cost import memory
from srpo.cost.flops import model_cost, modelled_seconds
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import (
    CalibratedClock,
    Experiment,
    GgufModel,
    MiniatureModel,
    Model,
    ModelledClock,
    Training,
    TransformerShape,
)
from srpo.experiment.step_times import TimedMethod, paper_step_seconds, seconds_of_steps, steps_in_seconds, timed_like
from srpo.layout import RunId
from srpo.miniature.stored import stored_file
from srpo.plan.gpus import GPUS, PAPER_GPU, data_sheet_seconds, mean_context
from srpo.plan.measurements import Measurements, depends_on_products
from srpo.plan.shortages import shortages
from srpo.repository import CONFIGS
from srpo.training.checkpoints import CHECKPOINT_SHARE

PAPER_MODEL = "qwen3-8b"
"""The model whose seconds figure 4b has."""

REHEARSAL_STEPS = 10
"""A run of fewer steps shows that the path works and what it takes, not what a method learns."""

CONCURRENT = 256
"""Requests that an SGLang server works on at once (verl's ``rollout.max_num_seqs``)."""

START_SECONDS = {"in_process": 16.0, "ray": 60.0}
"""Seconds to start training, imports included, and to end it: measured in one process, two runs at a time
(docs/speed.md); assumed of a Ray cluster."""

EVALUATION_START_SECONDS = {"embedded": 4.0, "sglang": 15.0}
"""Seconds to start an evaluation: measured with the embedded engine (docs/speed.md), assumed of SGLang's client."""

SERVER_SECONDS = {"embedded": 0.0, "sglang": 120.0}
"""Assumed seconds to start rollout servers, including loading the model."""

MODELLED_SECOND = 5.0
"""Seconds of a core that a second of the modelled clock takes with the miniature's models (docs/speed.md): the clock
counts FLOPs, and steps of so small a model take most of their time for other things."""

OVERHEAD_SECONDS = 4e-12
"""Seconds of a core that a FLOP takes besides its matrix product: norms, activations, softmax, optimizer. Measured
with a model of 135 M parameters, nearly the same in float32 and bfloat16 on three processors (docs/speed.md)."""

WARM_START_SECONDS = {"families": (1.36e-3, 7.1e-9), "splits": (5.4e-3, 2.8e-8)}
"""CPU seconds of an example of a warm start, and more for each parameter: the line through Miniature-S and -L
(docs/toy-models.md); examples of real splits are four times as long."""

WRITE_BYTES_PER_SECOND = 2e9
"""Assumed speed of the file system with the results."""

SAVED_VALIDATIONS = 0.25
"""Assumed share of validations that are the best so far in a budget, so that their step is saved."""

COMPLETE_CHECKPOINTS = {"writing": 3, "running": 2, "finished": 1}
"""Complete checkpoints of a run (``training/checkpoints.py``): one in the making, one in reserve, one at the end."""


@dataclass(frozen=True)
class StepTime:
    """How long a training step takes.

    Attributes:
        seconds: mean up to each budget, by label.
        generation: part of it that is generation.
        source: whose seconds they are: ``measured``, ``paper``, ``FLOPs`` or a card of
            :data:`srpo.plan.gpus.GPUS`; of which method, if of another one; ``scaled``, if the paper's are of another
            model or of other passes.
    """

    seconds: dict[str, float]
    generation: float
    source: str


@dataclass(frozen=True)
class TimedSampling:
    """A sampling whose time is known: the number of rollouts at a time and the shape of the model."""

    seconds: float
    rollouts: int
    shape: TransformerShape


@dataclass(frozen=True)
class RunPlan:
    """What one training run needs.

    Attributes:
        run: which.
        step: seconds of a step.
        steps: number of steps within each budget, by label.
        validations: number of validations.
        seconds: wall time by part: start, the phases of training, validation, checkpoints, evaluation.
        disk_peak, disk_end: bytes while it is under way, with a checkpoint in the making, and when it is finished.
    """

    run: RunId
    step: StepTime
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
        measured: what was measured of it before.
        gpu: the card, by its name in :data:`srpo.plan.gpus.GPUS`; None without SGLang.
        gpu_chosen: whether nobody named the card.
        shapes: its models' shapes, by name.
        nodes: runs at a time.
        product_rate: FLOP/s of a core of this machine, if the plan depends on it and it was measured.
        runs: its training runs.
        model_seconds: wall time of building each base model, on one core; none of models that are not built here.
        base_seconds: wall time of each evaluation of an untrained model.
        base_bytes: the published weights of its models.
        wall_seconds: from start to end: base models, then the rest; the first free node takes the longest job left.
    """

    experiment: Experiment
    measured: Measurements
    gpu: str | None
    gpu_chosen: bool
    shapes: dict[str, TransformerShape]
    nodes: int
    product_rate: float | None
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
        """Hours of all jobs times the devices of each: GPUs, or cores if there is none."""
        return (self.busy_seconds * self.experiment.execution.ranks + sum(self.model_seconds)) / 3600

    @property
    def unmeasured(self) -> dict[str, list[str]]:
        """By model, the methods whose seconds nobody measured; none if nothing was to be read."""
        found: dict[str, list[str]] = {}
        for run in self.runs if self.measured.folders else []:
            methods = found.setdefault(run.run.model, [])
            if not run.step.source.startswith("measured") and run.run.method not in methods:
                methods.append(run.run.method)
        return {model: methods for model, methods in found.items() if methods}

    @property
    def rehearsal(self) -> bool:
        """Whether its runs are too short for anything but to see that the path works."""
        limit = self.experiment.training.max_steps
        return limit is not None and limit < REHEARSAL_STEPS

    @property
    def disk_end(self) -> float:
        """Bytes when all runs are finished."""
        return self.base_bytes + sum(run.disk_end for run in self.runs)

    @property
    def disk_peak(self) -> float:
        """Bytes while the last and largest runs are under way and the others are finished."""
        extra = sorted((run.disk_peak - run.disk_end for run in self.runs), reverse=True)
        return self.disk_end + sum(extra[: self.nodes])


NOTHING = Measurements()


def make_plan(
    experiment: Experiment,
    nodes: int = 1,
    measured: Measurements = NOTHING,
    gpu: str | None = None,
    pace: float = 1.0,
    product_rate: float | None = None,
) -> Plan:
    """Compute what an experiment needs.

    Args:
        experiment: resolved.
        nodes: how many runs there are at a time.
        measured: of finished runs with the same settings.
        gpu: a card of :data:`srpo.plan.gpus.GPUS`, for steps that were not measured; by default :func:`default_gpu`.
        pace: how many times as long a step on a card takes as expected, if it was not measured.
        product_rate: FLOP/s of a core (:func:`srpo.plan.measurements.product_rate_here`), for experiments that depend
            on it; without it, a second of their clock is counted as a second of a core.

    Raises:
        SrpoError: if the shape of a model is not known.
    """
    chosen = gpu is None
    gpu = gpu or default_gpu(experiment)
    product_rate = product_rate if depends_on_products(experiment) else None
    shapes = {name: memory.shape_of(model) for name, model in experiment.models.items()}
    planner = _Planner(experiment, shapes, measured, gpu, pace, product_rate)
    runs = [planner.run(run) for run in experiment.runs()]
    base = [
        planner.base_seconds(model, benchmark)
        for model, benchmark in experiment.bases()
        for _ in experiment.base_models(model)
    ]
    base_bytes = sum(memory.BFLOAT16 * memory.parameters(shape) for shape in shapes.values())
    models = [
        seconds
        for name, shape in shapes.items()
        for base_model in experiment.base_models(name).values()
        if (seconds := _warm_start_seconds(base_model, shape))
    ]
    wall = _makespan(models, nodes) + _makespan([*(run.total_seconds for run in runs), *base], nodes)
    return Plan(experiment, measured, gpu, chosen, shapes, nodes, product_rate, runs, models, base, base_bytes, wall)


def default_gpu(experiment: Experiment) -> str | None:
    """The card of an experiment if nobody names one; None without SGLang.

    The paper's card for steps like the paper's, else the smallest that has room for it, and the largest if none has.
    """
    if experiment.execution.rollout_engine != "sglang":
        return None
    if like_the_paper(experiment):
        return PAPER_GPU
    cards = sorted(GPUS, key=lambda name: GPUS[name].memory)
    return next((name for name in cards if not shortages(experiment, GPUS[name].memory)), cards[-1])


def is_toy(model: Model) -> bool:
    """Whether a second of the modelled clock takes :data:`MODELLED_SECOND` with a model."""
    return isinstance(model, MiniatureModel) and model.warm_start.corpus == "families"


def like_the_paper(experiment: Experiment) -> bool:
    """Whether steps have the size and the number of cards of those of figure 4b."""
    training, execution = experiment.training, experiment.execution
    sizes = (training.questions_per_batch, training.rollouts_per_question, training.max_response_length)
    return execution.rollout_engine == "sglang" and (*sizes, execution.ranks) == (32, 8, 8192, 8)


class _Planner:
    """Plans the runs of an experiment."""

    def __init__(
        self,
        experiment: Experiment,
        shapes: dict[str, TransformerShape],
        measured: Measurements,
        gpu: str | None,
        pace: float,
        product_rate: float | None,
    ) -> None:
        self.experiment, self.shapes, self.measured, self.gpu, self.pace = experiment, shapes, measured, gpu, pace
        self.product_rate = product_rate
        self.speed = measured.write_bytes_per_second or WRITE_BYTES_PER_SECOND
        self.paper_ratios = _paper_ratios() if gpu == PAPER_GPU and like_the_paper(experiment) else None

    def run(self, run: RunId) -> RunPlan:
        """What one training run and its evaluation need."""
        training, execution = self.experiment.training, self.experiment.execution
        method, shape = self.experiment.methods[run.method], self.shapes[run.model]
        step = self.step_time(run.model, run.method)
        limit = training.max_steps or math.inf
        steps = {label: min(limit, count) for label, count in _steps(training, method, step).items()}
        last = [*training.budget_seconds][-1]
        horizon = steps[last] * step.seconds[last]
        generation, rest = step.generation * horizon, (1 - step.generation) * horizon
        if step.source == "FLOPs":
            generation, rest = self.core_seconds(run.model, generation, rest)
        validations = max(1, math.ceil(int(steps[last]) / training.validate_every))
        sizes = memory.checkpoint_bytes(shape, execution, method.teacher_has_weights)
        evaluated = min(len(training.budget_seconds), validations)
        server = SERVER_SECONDS[execution.rollout_engine]
        known = self.known_sampling(run.model, step, method.generation_batches)
        validating = validations * self.sampling_seconds(run.model, run.benchmark, training.validation.rollouts, known)
        evaluation = self.sampling_seconds(run.model, run.benchmark, self.experiment.evaluation.rollouts, known)
        complete = sizes.total / self.speed + CHECKPOINT_SHARE * (generation + rest + validating)
        selected = SAVED_VALIDATIONS * validations * sizes.weights / self.speed
        return RunPlan(
            run=run,
            step=step,
            steps={label: int(count) for label, count in steps.items()},
            validations=validations,
            seconds={
                "start": START_SECONDS[execution.driver] + server,
                "generation": generation,
                "log-probs, teacher, update": rest,
                "validation": validating,
                "checkpoints": complete + selected,
                "evaluation": EVALUATION_START_SECONDS[execution.rollout_engine] + evaluated * (server + evaluation),
            },
            disk_peak=COMPLETE_CHECKPOINTS["writing"] * sizes.total + evaluated * sizes.weights,
            disk_end=COMPLETE_CHECKPOINTS["finished"] * sizes.total + evaluated * sizes.weights,
        )

    def core_seconds(self, model: str, generation: float, rest: float) -> tuple[float, float]:
        """What seconds of the modelled clock take on a core of this machine."""
        definition = self.experiment.models[model]
        if is_toy(definition):
            return MODELLED_SECOND * generation, MODELLED_SECOND * rest
        if self.product_rate is None or isinstance(definition, MiniatureModel):
            return generation, rest
        rates, flop = _rates(self.experiment.training), 1 / self.product_rate + OVERHEAD_SECONDS
        return generation * rates.decode_flops_per_second * flop, rest * rates.dense_flops_per_second * flop

    def base_seconds(self, model: str, benchmark: str) -> float:
        """Wall time of the evaluation of an untrained model, whose responses take as long as GRPO's at first."""
        engine = self.experiment.execution.rollout_engine
        known = self.known_sampling(model, self.step_time(model, None), first=True)
        sampling = self.sampling_seconds(model, benchmark, self.experiment.evaluation.rollouts, known)
        return EVALUATION_START_SECONDS[engine] + SERVER_SECONDS[engine] + sampling

    def step_time(self, model: str, method: str | None) -> StepTime:
        """Seconds of the steps of a model's method; None: of GRPO, for the untrained model.

        Measured, if a run of the model and of a method with the same passes was; else, with SGLang on GPUs, those of
        the card; else those of FLOPs.
        """
        definition = self.experiment.methods[method] if method else None
        if definition is None or len(definition.phases) == 1 or (model, method) in self.measured.phases:
            return self._step_time(model, method, definition)
        first, later = (self._step_time(model, method, phase) for phase in definition.phases)
        return _of_phases(self.experiment.training, definition, first, later)

    def _step_time(self, model: str, method: str | None, definition: Method | None) -> StepTime:
        """The same of one phase of a method, or of one that has no other."""
        experiment, labels = self.experiment, self.experiment.training.budget_seconds
        methods = experiment.methods if definition is None else {**experiment.methods, str(method): definition}
        if found := self.measured.of(model, method, methods):
            name, phases = found
            total = sum(phases.values())
            source = "measured" if name == method else f"measured, {name}"
            return StepTime(dict.fromkeys(labels, total), phases["generate"] / total, source)
        if self.gpu is not None:
            return self.card_step(self.gpu, model, method, definition)
        generation, rest = _modelled_step(experiment, self.shapes[model], definition)
        return StepTime(dict.fromkeys(labels, generation + rest), generation / (generation + rest), "FLOPs")

    def card_step(self, gpu: str, model: str, method: str | None, definition: Method | None) -> StepTime:
        """Seconds and their split from the card's data sheet.

        For steps like the paper's on the paper's card they are scaled: for the model and the methods of figure 4b they
        are the figure's, at the nearest budget.
        """
        training, like = self.experiment.training, timed_like(definition)
        card, shape = GPUS[gpu], self.shapes[model]
        generation, rest = data_sheet_seconds(card, shape, training, self.experiment.execution, definition, like)
        total = generation + rest
        if self.paper_ratios is None:
            return StepTime(dict.fromkeys(training.budget_seconds, self.pace * total), generation / total, gpu)
        seconds, figure, of_figure = {}, *self.paper_ratios[like]
        for label, budget in training.budget_seconds.items():
            mean = figure[min(figure, key=lambda hours: abs(3600 * hours - budget))]
            seconds[label] = self.pace * mean * total / of_figure
        own = math.isclose(total, of_figure)
        source = ", ".join(["paper", *([like] if method not in (None, like) else []), *([] if own else ["scaled"])])
        return StepTime(seconds, generation / total, source)

    def known_sampling(self, model: str, step: StepTime, batches: int = 1, first: bool = False) -> TimedSampling:
        """A sampling of the model whose time is known: a measured validation, or a generation batch of a step.

        Args:
            batches: as how many the step's generation counts.
            first: whether the step is one of the first.
        """
        if model in self.measured.validations:
            return TimedSampling(*self.measured.validations[model], self.shapes[model])
        training = self.experiment.training
        seconds = [*step.seconds.values()][0 if first else -1]
        rollouts = training.questions_per_batch * training.rollouts_per_question
        return TimedSampling(step.generation * seconds / batches, rollouts, self.shapes[model])

    def sampling_seconds(self, model: str, benchmark: str, samples: int, known: TimedSampling) -> float:
        """Time to sample a benchmark's test questions, each ``samples`` times.

        Servers: a known sampling's time, times more rollouts, divided by the speed of larger batches. Generating a
        token takes the time to read the weights, and keys and values of all sequences at work, from memory.
        """
        experiment, execution = self.experiment, self.experiment.execution
        rollouts = samples * experiment.benchmarks[benchmark].questions("test")
        if execution.rollout_engine == "embedded":
            training = experiment.training
            cost = model_cost(self.shapes[model])
            decode = cost.decode_flops([training.max_prompt_length], [training.max_response_length])
            seconds = modelled_seconds(_rates(training), rollouts * decode, 0.0)
            toy = is_toy(experiment.models[model])  # its second is one of training; sampling is faster
            return seconds if toy else self.core_seconds(model, seconds, 0.0)[0]
        servers = execution.ranks // execution.rollout_tensor_parallel

        def bytes_per_sequence(at_work: int) -> float:
            weights = memory.BFLOAT16 * memory.parameters(known.shape)
            return weights / at_work + mean_context(experiment.training) * memory.kv_bytes_per_token(known.shape)

        before, now = (min(CONCURRENT, max(1, number // servers)) for number in (known.rollouts, rollouts))
        speed_up = max(1.0, bytes_per_sequence(before) / bytes_per_sequence(now))
        return known.seconds * max(1.0, rollouts / known.rollouts / speed_up)


# ---------------------------------------------------------------- a run


def _paper_ratios() -> dict[TimedMethod, tuple[dict[float, float], float]]:
    """By method of figure 4b: its seconds by hours, and the seconds of the same step by the card's data sheet."""
    paper = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    shape, settings = memory.shape_of(paper.models[PAPER_MODEL]), (paper.training, paper.execution)
    return {
        name: (figure, sum(data_sheet_seconds(GPUS[PAPER_GPU], shape, *settings, paper.methods[name], name)))
        for name, figure in paper_step_seconds().items()
    }


def _steps(training: Training, method: Method, step: StepTime) -> dict[str, float]:
    """How many steps each budget is enough for."""
    budgets, clock = training.budget_seconds, training.clock
    if isinstance(clock, CalibratedClock):
        return {label: _calibrated_steps(clock, method, seconds) for label, seconds in budgets.items()}
    return {label: seconds / step.seconds[label] for label, seconds in budgets.items()}


def _calibrated_steps(clock: CalibratedClock, method: Method, seconds: float) -> float:
    means = clock.step_seconds[timed_like(method)]
    steps = steps_in_seconds(means, seconds)
    switch = method.first_phase_steps
    if switch is None or steps <= switch:
        return steps
    later = clock.step_seconds[timed_like(method, switch + 1)]
    left = seconds - seconds_of_steps(means, switch)
    return steps_in_seconds(later, seconds_of_steps(later, switch) + left)


def _of_phases(training: Training, method: Method, first: StepTime, later: StepTime) -> StepTime:
    """The mean step up to each budget of a method that changes from the first kind of step to the later one."""
    switch = method.first_phase_steps
    assert switch is not None
    seconds, parts = {}, [0.0, 0.0]
    for label, budget in training.budget_seconds.items():
        of_first, of_later = first.seconds[label], later.seconds[label]
        if isinstance(training.clock, CalibratedClock):
            steps = _calibrated_steps(training.clock, method, budget)
        else:
            steps = min(budget / of_first, switch) + max(0.0, budget - switch * of_first) / of_later
        steps = min(steps, training.max_steps or math.inf)
        parts = [min(steps, switch) * of_first, max(0.0, steps - switch) * of_later]
        seconds[label] = sum(parts) / steps if steps > switch else of_first
    generation = (parts[0] * first.generation + parts[1] * later.generation) / sum(parts)  # of the last budget
    sources = dict.fromkeys((first.source, later.source))
    return StepTime(seconds, generation, ", then ".join(sources))


def _warm_start_seconds(model: Model, shape: TransformerShape) -> float:
    """CPU time of a base model's warm start, if it has one."""
    if not isinstance(model, MiniatureModel | GgufModel) or model.warm_start is None:
        return 0.0
    if isinstance(model, MiniatureModel) and stored_file(model):
        return 0.0
    example, parameter = WARM_START_SECONDS[model.warm_start.corpus]
    examples = model.warm_start.steps * model.warm_start.batch_size
    return examples * (example + parameter * memory.parameters(shape))


def _modelled_step(experiment: Experiment, shape: TransformerShape, method: Method | None) -> tuple[float, float]:
    """Seconds of a step's generation and of its other phases: FLOPs of responses as long as they may be."""
    training = experiment.training
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
    if method is not None and method.needs_teacher:  # two prompts a group: the sibling shown sees another
        shown = 2 if method.sibling_choice == "first" else training.rollouts_per_question
        dense += method.teacher_passes * forward(training.max_reprompt_len, shown * training.questions_per_batch)
    prompts = training.questions_per_batch * cost.forward_flops([prompt])
    decode = rows * cost.decode_flops([prompt], [response])
    rates = _rates(training)
    batches = method.generation_batches if method is not None else 1
    return batches * modelled_seconds(rates, decode, prompts), modelled_seconds(rates, 0.0, dense)


def _rates(training: Training) -> ModelledClock:
    """The modelled clock's rates, or nominal ones if the clock has none."""
    return training.clock if isinstance(training.clock, ModelledClock) else ModelledClock(kind="modelled")


def _makespan(durations: Iterable[float], nodes: int) -> float:
    """When the last job ends if the first free node takes the longest job left."""
    free = [0.0] * nodes
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
