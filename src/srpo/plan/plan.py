"""What an experiment will take, before anything is submitted: runs, steps, hours, disk and memory.

Everything is computed from the experiment, the shapes of its models and seconds per step: those that finished runs
measured (:mod:`srpo.plan.measurements`), else the paper's. What had to be assumed is a named constant, printed with the
result. :func:`make_plan` is pure; :mod:`srpo.plan.text` makes text of it.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from srpo.algorithm.method import Method
from srpo.algorithm.teacher import Ema
from srpo.cost import memory
from srpo.cost.flops import model_cost, modelled_seconds
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
from srpo.layout import RunId
from srpo.models.stored import stored_file
from srpo.plan.gpus import GPUS, PAPER_GPU, data_sheet_seconds
from srpo.plan.measurements import Measurements
from srpo.repository import CONFIGS
from srpo.step_times import paper_step_seconds, steps_in_seconds, timed_like
from srpo.training.checkpoints import CHECKPOINT_SHARE

GENERATION_SHARE = 0.72
"""Assumed part of a step that is generation: 70 to 75 % by a reviewer's model of Qwen3-8B on H100, which nobody has
measured. It is less on GPUs with slower arithmetic, as H20."""

CONTEXT_TOKENS = 1024
"""Assumed mean length of prompt and response while a response is being generated."""

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
            :data:`srpo.plan.gpus.GPUS`, and of which method, if of another one.
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
        gpu: the card, by its name in :data:`srpo.plan.gpus.GPUS`, whose data sheet is reckoned with; None if none is.
        shapes: its models' shapes, by name.
        nodes: runs at a time.
        runs: its training runs.
        model_seconds: wall time of building each base model, on one core; none of models that are not built here.
        base_seconds: wall time of each evaluation of an untrained model.
        base_bytes: the published weights of its models.
        wall_seconds: from start to end: base models, then the rest; the first free node takes the longest job left.
    """

    experiment: Experiment
    measured: Measurements
    gpu: str | None
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
        """Hours of all jobs times the devices of each: GPUs, or cores if there is none."""
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


NOTHING = Measurements()


def make_plan(experiment: Experiment, nodes: int = 1, measured: Measurements = NOTHING, gpu: str | None = None) -> Plan:
    """Compute what an experiment needs.

    Args:
        experiment: resolved.
        nodes: how many runs there are at a time.
        measured: of finished runs with the same settings.
        gpu: a card of :data:`srpo.plan.gpus.GPUS`, for steps that were not measured. Without it, the paper's step times
            are for steps like the paper's, and the data sheet of the paper's card for others.

    Raises:
        SrpoError: if the shape of a model is not known.
    """
    if gpu is None and not _like_the_paper(experiment):
        gpu = PAPER_GPU
    shapes = {name: memory.shape_of(model) for name, model in experiment.models.items()}
    planner = _Planner(experiment, shapes, measured, gpu)
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
    return Plan(experiment, measured, gpu, shapes, nodes, runs, models, base, base_bytes, wall)


class _Planner:
    """Plans the runs of an experiment."""

    def __init__(
        self,
        experiment: Experiment,
        shapes: dict[str, TransformerShape],
        measured: Measurements,
        gpu: str | None,
    ) -> None:
        self.experiment, self.shapes, self.measured, self.gpu = experiment, shapes, measured, gpu
        self.speed = measured.write_bytes_per_second or WRITE_BYTES_PER_SECOND
        self.paper = paper_step_seconds()

    def run(self, run: RunId) -> RunPlan:
        """What one training run and its evaluation need."""
        training, execution = self.experiment.training, self.experiment.execution
        method, shape = self.experiment.methods[run.method], self.shapes[run.model]
        step = self.step_time(run.model, run.method)
        limit = training.max_steps or math.inf
        steps = {label: min(limit, count) for label, count in _steps(training, method, step).items()}
        last = [*training.budget_seconds][-1]
        horizon = steps[last] * step.seconds[last]
        model = self.experiment.models[run.model]
        toy = isinstance(model, MiniatureModel) and model.warm_start.corpus == "families"
        if step.source == "FLOPs" and toy:
            horizon *= MODELLED_SECOND
        validations = max(1, math.ceil(int(steps[last]) / training.validate_every))
        sizes = memory.checkpoint_bytes(shape, execution, method.teacher_has_weights)
        evaluated = min(len(training.budget_seconds), validations)
        server = SERVER_SECONDS[execution.rollout_engine]
        known = self.known_sampling(run.model, step)
        validating = validations * self.sampling_seconds(run.model, run.benchmark, training.validation.rollouts, known)
        evaluation = self.sampling_seconds(run.model, run.benchmark, self.experiment.evaluation.rollouts, known)
        complete = sizes.total / self.speed + CHECKPOINT_SHARE * (horizon + validating)
        selected = SAVED_VALIDATIONS * validations * sizes.weights / self.speed
        return RunPlan(
            run=run,
            step=step,
            steps={label: int(count) for label, count in steps.items()},
            validations=validations,
            seconds={
                "start": START_SECONDS[execution.driver] + server,
                "generation": step.generation * horizon,
                "log-probs, teacher, update": (1 - step.generation) * horizon,
                "validation": validating,
                "checkpoints": complete + selected,
                "evaluation": EVALUATION_START_SECONDS[execution.rollout_engine] + evaluated * (server + evaluation),
            },
            disk_peak=COMPLETE_CHECKPOINTS["writing"] * sizes.total + evaluated * sizes.weights,
            disk_end=COMPLETE_CHECKPOINTS["finished"] * sizes.total + evaluated * sizes.weights,
        )

    def base_seconds(self, model: str, benchmark: str) -> float:
        """Wall time of the evaluation of an untrained model, whose responses take as long as GRPO's at first."""
        engine = self.experiment.execution.rollout_engine
        known = self.known_sampling(model, self.step_time(model, None), first=True)
        sampling = self.sampling_seconds(model, benchmark, self.experiment.evaluation.rollouts, known)
        return EVALUATION_START_SECONDS[engine] + SERVER_SECONDS[engine] + sampling

    def step_time(self, model: str, method: str | None) -> StepTime:
        """Seconds of the steps of a model's method; None: of GRPO, for the untrained model.

        Measured, if a run of the model and of a method with the same passes was; else, with SGLang on GPUs, those of a
        card's data sheet if there is one, or the paper's (figure 4b) for the method or the one whose passes it shares,
        and the nearest budget, with more for a second pass of the teacher; else those of FLOPs.
        """
        experiment, labels = self.experiment, self.experiment.training.budget_seconds
        definition = experiment.methods[method] if method else None
        like = timed_like(definition)
        if found := self.measured.of(model, method, experiment.methods):
            name, phases = found
            total = sum(phases.values())
            source = "measured" if name == method else f"measured, {name}"
            return StepTime(dict.fromkeys(labels, total), phases["generate"] / total, source)
        if experiment.execution.rollout_engine == "sglang" and self.gpu:
            training, execution = experiment.training, experiment.execution
            card, shape = GPUS[self.gpu], self.shapes[model]
            generation, rest = data_sheet_seconds(card, shape, training, execution, definition, like)
            return StepTime(dict.fromkeys(labels, generation + rest), generation / (generation + rest), self.gpu)
        if experiment.execution.rollout_engine == "sglang":
            figure = self.paper[like]
            seconds = {
                label: figure[min(figure, key=lambda hours: abs(3600 * hours - budget))]
                for label, budget in labels.items()
            }
            whole = {label: each + self.second_pass_seconds(model, definition) for label, each in seconds.items()}
            share = GENERATION_SHARE * sum(seconds.values()) / sum(whole.values())
            return StepTime(whole, share, "paper" if like == method else f"paper, {like}")
        generation, rest = _modelled_step(experiment, self.shapes[model], definition)
        return StepTime(dict.fromkeys(labels, generation + rest), generation / (generation + rest), "FLOPs")

    def second_pass_seconds(self, model: str, method: Method | None) -> float:
        """Seconds on the paper's card of what a method's teacher computes beyond the one pass of the paper's."""
        if method is None or method.teacher_passes < 2:
            return 0.0
        once = method.model_copy(update={"teacher": Ema()})
        training, execution = self.experiment.training, self.experiment.execution
        card, shape, like = GPUS[PAPER_GPU], self.shapes[model], timed_like(method)
        own, usual = (data_sheet_seconds(card, shape, training, execution, each, like)[1] for each in (method, once))
        return own - usual

    def known_sampling(self, model: str, step: StepTime, first: bool = False) -> TimedSampling:
        """A sampling of the model whose time is known: a measured validation, or the generation of a step."""
        if model in self.measured.validations:
            return TimedSampling(*self.measured.validations[model], self.shapes[model])
        training = self.experiment.training
        seconds = [*step.seconds.values()][0 if first else -1]
        shape = _paper_shape() if step.source.startswith("paper") else self.shapes[model]
        rollouts = training.questions_per_batch * training.rollouts_per_question
        return TimedSampling(step.generation * seconds, rollouts, shape)

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
            return modelled_seconds(_rates(training), rollouts * decode, 0.0)
        servers = execution.ranks // execution.rollout_tensor_parallel

        def bytes_per_sequence(at_work: int) -> float:
            weights = memory.BFLOAT16 * memory.parameters(known.shape)
            return weights / at_work + CONTEXT_TOKENS * memory.kv_bytes_per_token(known.shape)

        before, now = (min(CONCURRENT, max(1, number // servers)) for number in (known.rollouts, rollouts))
        speed_up = max(1.0, bytes_per_sequence(before) / bytes_per_sequence(now))
        return known.seconds * max(1.0, rollouts / known.rollouts / speed_up)


# ---------------------------------------------------------------- a run


def _like_the_paper(experiment: Experiment) -> bool:
    """Whether steps have the size and the number of cards of those of figure 4b; without SGLang there is no card."""
    training, execution = experiment.training, experiment.execution
    sizes = (training.questions_per_batch, training.rollouts_per_question, training.max_response_length)
    return execution.rollout_engine != "sglang" or (*sizes, execution.ranks) == (32, 8, 8192, 8)


def _paper_shape() -> TransformerShape:
    """The model whose seconds figure 4b has."""
    definition = yaml.safe_load((CONFIGS / "models" / "qwen3-8b.yaml").read_text())
    return TransformerShape.model_validate(definition["shape"])


def _steps(training: Training, method: Method, step: StepTime) -> dict[str, float]:
    """How many steps each budget is enough for."""
    budgets, clock = training.budget_seconds, training.clock
    if isinstance(clock, CalibratedClock):
        means = clock.step_seconds[timed_like(method)]
        return {label: steps_in_seconds(means, seconds) for label, seconds in budgets.items()}
    return {label: seconds / step.seconds[label] for label, seconds in budgets.items()}


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
    if method is not None and method.routing.needs_teacher:  # two prompts a group: the sibling shown sees another
        dense += method.teacher_passes * forward(training.max_reprompt_len, 2 * training.questions_per_batch)
    prompts = training.questions_per_batch * cost.forward_flops([prompt])
    decode = rows * cost.decode_flops([prompt], [response])
    rates = _rates(training)
    return modelled_seconds(rates, decode, prompts), modelled_seconds(rates, 0.0, dense)


def _rates(training: Training) -> ModelledClock:
    """The modelled clock's rates, or nominal ones if the clock has none."""
    return training.clock if isinstance(training.clock, ModelledClock) else ModelledClock(kind="modelled")


def _makespan(durations: Iterable[float], nodes: int) -> float:
    """When the last job ends if the first free node takes the longest job left."""
    free = [0.0] * nodes
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
