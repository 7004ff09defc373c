"""What an experiment will take, before anything is submitted: runs, steps, hours, disk and memory.

Seconds per step are measured by finished runs (:mod:`srpo.plan.measurements`) or else computed: from a card's data
sheet (:mod:`srpo.plan.gpus`), or on a CPU from FLOPs. What had to be assumed is a named constant.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from srpo.algorithm.method import Method
from srpo.experiment import memory
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
from srpo.experiment.flops import model_cost, modelled_seconds
from srpo.experiment.step_times import seconds_of_steps, steps_in_seconds, timed_like
from srpo.ground.layout import RunId
from srpo.plan.gpus import BEST, GPUS, USUAL, WORST, Assumed, Gpu, card_seconds, find_gpu, mean_context
from srpo.plan.measurements import Measurements
from srpo.plan.shortages import shortages
from srpo.starts.data import known_questions
from srpo.starts.stored import stored_file
from srpo.training.checkpoints import CHECKPOINT_SHARE

CONCURRENT = 256
"""Requests that an SGLang server works on at once (verl's ``rollout.max_num_seqs``)."""

START_SECONDS = {"in_process": 8.0, "ray": 60.0}
"""Seconds to start training, imports included, and to end it. In one process: 6.2 CPU seconds to the first step,
measured, and what Snakemake adds; assumed of a Ray cluster."""

EVALUATION_START_SECONDS = {"embedded": 2.5, "sglang": 15.0}
"""Seconds to start an evaluation: measured with the embedded engine, assumed of SGLang's client."""

SERVER_SECONDS = {"embedded": 0.0, "sglang": 120.0}
"""Assumed seconds to start rollout servers, including loading the model."""

MODELLED_SECOND = 3.1
"""Seconds of a core that a second of the modelled clock takes with the toys (36 runs of `paper-in-small`): the clock
counts FLOPs, and steps of so small a model take most of their time for other things."""

WARM_START_SECONDS = {"families": (1.36e-3, 7.1e-9)} | dict.fromkeys(("splits", "files"), (9.7e-3, 3.8e-9))
"""CPU seconds of an example of a warm start, and more for each parameter. Of the families: the line through Miniature-S
and -L. Of real splits: through Miniature-L, whose examples are a quarter as long, and
SmolLM2-135M, of which only the wall seconds are known (``published/real-cpu-spelling``): its two threads may have taken
up to twice as many CPU seconds."""

WRITE_BYTES_PER_SECOND = 2e9
"""Assumed speed of the file system with the results."""

SAVED_VALIDATIONS = 0.25
"""Assumed share of validations that are the best so far in a budget, so that their step is saved."""

COMPLETE_CHECKPOINTS = {"writing": 3, "running": 2, "finished": 1}
"""Complete checkpoints of a run (``training/checkpoints.py``): one in the making, one in reserve, one at the end."""

REST = "log-probs, teacher, update"
"""The phases of a step except generation."""

NODE = 8
"""Cards of a node of the paper's size."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a kind of training step: of generation, and of all other phases.

    ``source`` says whose they are: ``measured``, and of which method if of another one; a card; or ``FLOPs``.
    """

    generation: float
    rest: float
    source: str

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.generation + self.rest


@dataclass(frozen=True)
class Course:
    """The steps of a run: all of one kind, or of another one after the first ``switch``."""

    first: StepTime
    later: StepTime
    switch: float = math.inf

    def parts(self, steps: float) -> tuple[float, float]:
        """Seconds of generation and of all other phases in a number of steps."""
        counts = ((min(steps, self.switch), self.first), (max(0.0, steps - self.switch), self.later))
        return sum(n * each.generation for n, each in counts), sum(n * each.rest for n, each in counts)

    def steps_in(self, seconds: float) -> float:
        """How many steps seconds are enough for."""
        if seconds <= (before := self.switch * self.first.seconds):
            return seconds / self.first.seconds
        return self.switch + (seconds - before) / self.later.seconds

    @property
    def source(self) -> str:
        """Of both kinds of steps."""
        return ", then ".join(dict.fromkeys((self.first.source, self.later.source)))


@dataclass(frozen=True)
class RunPlan:
    """What one training run needs.

    Attributes:
        step_seconds: mean of its steps.
        source: whose seconds they are (:class:`StepTime`).
        steps: number of steps within each budget, by label.
        seconds: wall time by part: start, the phases of training, validation, checkpoints, evaluation.
        disk_peak, disk_end: bytes while it is under way, with a checkpoint in the making, and when it is finished.
    """

    run: RunId
    step_seconds: float
    source: str
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
    """What an experiment needs (:func:`make_plan`).

    Attributes:
        shapes: its models' shapes, by name.
        nodes: runs at a time.
        gpu: the card; None without SGLang.
        assumed: of steps on a card that were not measured.
    """

    experiment: Experiment
    shapes: dict[str, TransformerShape]
    nodes: int
    measured: Measurements
    gpu: Gpu | None
    assumed: Assumed

    @cached_property
    def runs(self) -> list[RunPlan]:
        """Its training runs."""
        return [self._run(run) for run in self.experiment.runs()]

    @cached_property
    def model_seconds(self) -> list[float]:
        """Wall time of building each base model, on one core; none of models that are not built here."""
        models = ((self.experiment.base_models(name).values(), shape) for name, shape in self.shapes.items())
        return [seconds for bases, shape in models for each in bases if (seconds := _warm_start_seconds(each, shape))]

    @cached_property
    def base_seconds(self) -> list[float]:
        """Wall time of each evaluation of an untrained model."""
        evaluated = [] if self.experiment.is_search else self.experiment.bases()
        return [
            self._base_seconds(model, each) for model, each in evaluated for _ in self.experiment.base_models(model)
        ]

    @property
    def base_bytes(self) -> float:
        """The published weights of its models."""
        return sum(memory.BFLOAT16 * memory.parameters(shape) for shape in self.shapes.values())

    @property
    def wall_seconds(self) -> float:
        """From start to end: base models, then the rest; the first free node takes the longest job left."""
        rest = [*(run.total_seconds for run in self.runs), *self.base_seconds]
        return _makespan(self.model_seconds, self.nodes) + _makespan(rest, self.nodes)

    @property
    def busy_seconds(self) -> float:
        """Wall time of all jobs that take a run's devices, one after the other."""
        return sum(run.total_seconds for run in self.runs) + sum(self.base_seconds)

    @property
    def device_hours(self) -> float:
        """Hours of all jobs times the devices of each: GPUs, or cores if there is none."""
        return (self.busy_seconds * self.experiment.execution.ranks + sum(self.model_seconds)) / 3600

    @property
    def device_seconds_range(self) -> tuple[float, float]:
        """The least and the most of them, in seconds, by what is assumed of steps on a card."""
        same = self.assumed.prompt
        prices = [3600 * replace(self, assumed=replace(a, prompt=same)).device_hours for a in (BEST, USUAL, WORST)]
        return min(prices), max(prices)

    @property
    def computed(self) -> dict[str, list[str]]:
        """By model, the methods whose seconds on a card are computed, because nobody measured them."""
        runs = [run.run for run in self.runs if self.gpu and not run.source.startswith("measured")]
        return {
            model: [*dict.fromkeys(run.method for run in runs if run.model == model)]
            for model in dict.fromkeys(run.model for run in runs)
        }

    @property
    def disk_end(self) -> float:
        """Bytes when all runs are finished."""
        return self.base_bytes + sum(run.disk_end for run in self.runs)

    @property
    def disk_peak(self) -> float:
        """Bytes while the last and largest runs are under way and the others are finished."""
        extra = sorted((run.disk_peak - run.disk_end for run in self.runs), reverse=True)
        return self.disk_end + sum(extra[: self.nodes])

    # ------------------------------------------------------------ how it is computed

    def _run(self, run: RunId) -> RunPlan:
        """What one training run and its evaluation need."""
        training, execution = self.experiment.training, self.experiment.execution
        method, shape = self.experiment.methods[run.method], self.shapes[run.model]
        course = self._course(run.model, run.method)
        limit = training.max_steps or math.inf
        budgets = training.budget_seconds
        steps = {label: min(limit, _steps(training, method, course, budget)) for label, budget in budgets.items()}
        last = [*steps.values()][-1]
        generation, rest = course.parts(last)
        step_seconds = (generation + rest) / last
        if course.source == "FLOPs":
            generation, rest = (self._core_seconds(run.model, part) for part in (generation, rest))
        validations = max(1, math.ceil(int(last) / training.validate_every))
        if early := training.validate_every_in_first_budget:
            first = int(next(iter(steps.values())))
            validations += first // early - first // training.validate_every
        sizes = memory.checkpoint_bytes(shape, execution, method.teacher_has_weights)
        evaluated = min(len(budgets), validations)
        starting = EVALUATION_START_SECONDS[execution.rollout_engine]
        server = SERVER_SECONDS[execution.rollout_engine]
        batch = course.later.generation
        validating = validations * self._sampling_seconds(run.model, run.benchmark, training.validation.rollouts, batch)
        evaluation = self._sampling_seconds(run.model, run.benchmark, self.experiment.evaluation.rollouts, batch)
        speed = self.measured.write_bytes_per_second or WRITE_BYTES_PER_SECOND
        complete = sizes.total / speed + CHECKPOINT_SHARE * (generation + rest + validating)
        selected = SAVED_VALIDATIONS * validations * sizes.weights / speed
        return RunPlan(
            run=run,
            step_seconds=step_seconds,
            source=course.source,
            steps={label: int(count) for label, count in steps.items()},
            validations=validations,
            seconds={
                "start": START_SECONDS[execution.driver] + server,
                "generation": generation,
                REST: rest,
                "validation": validating,
                "checkpoints": complete + selected,
                "evaluation": 0.0 if self.experiment.is_search else starting + evaluated * (server + evaluation),
            },
            disk_peak=COMPLETE_CHECKPOINTS["writing"] * sizes.total + evaluated * sizes.weights,
            disk_end=COMPLETE_CHECKPOINTS["finished"] * sizes.total + evaluated * sizes.weights,
        )

    def _core_seconds(self, model: str, seconds: float) -> float:
        """What seconds of the modelled clock take on a core."""
        return (MODELLED_SECOND if is_toy(self.experiment.models[model]) else 1.0) * seconds

    def _base_seconds(self, model: str, benchmark: str) -> float:
        """Wall time of the evaluation of an untrained model, whose responses take as long as GRPO's."""
        engine = self.experiment.execution.rollout_engine
        batch = self._course(model, None).first.generation
        sampling = self._sampling_seconds(model, benchmark, self.experiment.evaluation.rollouts, batch)
        return EVALUATION_START_SECONDS[engine] + SERVER_SECONDS[engine] + sampling

    def _course(self, model: str, method: str | None) -> Course:
        """The steps of a model's method; None: of GRPO, for the untrained model."""
        definition = self.experiment.methods[method] if method else None
        if definition is None or len(definition.phases) == 1 or (model, method) in self.measured.phases:
            step = self._step_time(model, method, definition)
            return Course(step, step)
        first, later = (self._step_time(model, method, phase) for phase in definition.phases)
        return Course(first, later, definition.first_phase_steps or 0)

    def _step_time(self, model: str, method: str | None, definition: Method | None) -> StepTime:
        """Seconds of the steps of one phase of a method, or of one that has no other.

        Measured, if a run of the model and of a method with the same passes was; else computed.
        """
        experiment = self.experiment
        methods = experiment.methods if definition is None else {**experiment.methods, str(method): definition}
        if found := self.measured.of(model, method, methods):
            name, phases = found
            rest = sum(phases.values()) - phases["generate"]
            return StepTime(phases["generate"], rest, "measured" if name == method else f"measured, {name}")
        shape, training = self.shapes[model], experiment.training
        if self.gpu is not None:
            parts = card_seconds(self.gpu, shape, training, experiment.execution, definition, self.assumed)
            return StepTime(*parts, self.gpu.name)
        return StepTime(*_modelled_step(experiment, shape, definition), "FLOPs")

    def _sampling_seconds(self, model: str, benchmark: str, samples: int, batch: float) -> float:
        """Time to sample a benchmark's test questions, each ``samples`` times.

        Servers: a known sampling's time, times more rollouts, divided by the speed of larger batches. Without a
        measured validation that is ``batch``, the seconds of a training step's generation.
        """
        experiment, execution = self.experiment, self.experiment.execution
        training, shape = experiment.training, self.shapes[model]
        rollouts = samples * experiment.benchmarks[benchmark].questions("test")
        if execution.rollout_engine == "embedded":
            decode = model_cost(shape).decode_flops([training.max_prompt_length], [training.max_response_length])
            seconds = modelled_seconds(_rates(training), rollouts * decode, 0.0)
            toy = is_toy(experiment.models[model])  # a toy's clock counts training seconds; sampling takes less
            return seconds if toy else self._core_seconds(model, seconds)
        in_training = batch, training.questions_per_batch * training.rollouts_per_question
        seconds, known = self.measured.validations.get(model, in_training)
        servers = execution.ranks // execution.rollout_tensor_parallel
        weights = memory.BFLOAT16 * memory.parameters(shape)
        cached = mean_context(training, self.assumed) * memory.kv_bytes_per_token(shape)
        before, now = (weights / min(CONCURRENT, max(1, count // servers)) + cached for count in (known, rollouts))
        return seconds * max(1.0, rollouts / known / max(1.0, before / now))


NOTHING = Measurements()


def make_plan(
    experiment: Experiment,
    nodes: int = 1,
    measured: Measurements = NOTHING,
    gpu: str | None = None,
    assumed: Assumed = USUAL,
) -> Plan:
    """Compute what an experiment needs with ``nodes`` runs at a time.

    Args:
        measured: of finished runs with the same settings.
        gpu: a card (:func:`srpo.plan.gpus.find_gpu`), for steps that were not measured; default: :func:`default_gpu`.
        assumed: of these steps. Prompts of own files are as long as their questions, at four characters a token.
    """
    benchmarks = experiment.benchmarks.values()
    all_own = all(each.kind == "files" for each in benchmarks)
    if own := [question for each in benchmarks for question in known_questions(each, "train")] if all_own else []:
        characters = sum(len(message["content"]) for question in own for message in question.messages)
        assumed = replace(assumed, prompt=round(characters / len(own) / 4))
    card = default_gpu(experiment) if gpu is None else find_gpu(gpu)
    shapes = {name: memory.shape_of(model) for name, model in experiment.models.items()}
    return Plan(experiment, shapes, nodes, measured, card, assumed)


def default_gpu(experiment: Experiment) -> Gpu | None:
    """The card of an experiment if nobody names one: the smallest with room for it; None without SGLang.

    A node of eight cards has H100 or larger ones. Of cards with the same memory it is the first of
    :data:`~srpo.plan.gpus.GPUS`; the largest if none has room.
    """
    if experiment.execution.rollout_engine != "sglang":
        return None
    least = GPUS["h100"].memory if experiment.execution.ranks >= NODE else 0.0
    cards = sorted((card for card in GPUS.values() if card.memory >= least), key=lambda card: card.memory)
    return next((card for card in cards if not shortages(experiment, card.memory)), cards[-1])


def is_toy(model: Model) -> bool:
    """Whether a second of the modelled clock takes :data:`MODELLED_SECOND` with a model."""
    return isinstance(model, MiniatureModel) and model.warm_start.corpus == "families"


# ---------------------------------------------------------------- a run


def _steps(training: Training, method: Method, course: Course, seconds: float) -> float:
    clock = training.clock
    if not isinstance(clock, CalibratedClock):
        return course.steps_in(seconds)
    means = clock.step_seconds[timed_like(method)]
    steps = steps_in_seconds(means, seconds)
    switch = method.first_phase_steps
    if switch is None or steps <= switch:
        return steps
    later = clock.step_seconds[timed_like(method, switch + 1)]
    left = seconds - seconds_of_steps(means, switch)
    return steps_in_seconds(later, seconds_of_steps(later, switch) + left)


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
        return prompts * cost.forward_flops([prompt]) + rows * cost.decode_flops([prompt], [response])

    # forward and backward of the update; old log-probs, unless an only update computes them itself
    once = (
        method is not None
        and method.mini_batch_questions == training.questions_per_batch
        and not method.preserve_loss_scale
    )
    passes = 3 if once else 4
    dense = passes * forward(prompt, training.questions_per_batch)
    if method is not None and method.needs_teacher:  # two prompts a group: the sibling shown sees another
        dense += forward(training.max_reprompt_len, 2 * training.questions_per_batch)
    prompts = training.questions_per_batch * cost.forward_flops([prompt])
    decode = rows * cost.decode_flops([prompt], [response])
    rates = _rates(training)
    return modelled_seconds(rates, decode, prompts), modelled_seconds(rates, 0.0, dense)


def _rates(training: Training) -> ModelledClock:
    """The modelled clock's rates, or nominal ones if the clock has none."""
    return training.clock if isinstance(training.clock, ModelledClock) else ModelledClock(kind="modelled")


def _makespan(durations: Iterable[float], nodes: int) -> float:
    """When the last job ends if the first free node takes the longest job left."""
    durations = [*durations]
    free = [0.0] * min(nodes, len(durations) or 1)
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
