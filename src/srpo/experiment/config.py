"""The types of an experiment's YAML files; values are checked before anything runs.

:mod:`srpo.experiment.compose` makes one frozen :class:`Experiment` from an experiment file. All other code uses it
and, for each training run, one :class:`RunSpec`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from srpo.algorithm.method import Method
from srpo.experiment.step_times import TimedMethod, paper_step_seconds
from srpo.ground.errors import SrpoError
from srpo.ground.layout import RunId
from srpo.ground.schema import REPOSITORY, Config, Count, Fraction, Positive, Rate, Title, flattened
from srpo.questions.rows import Columns

REHEARSAL_STEPS = 10
"""A run of fewer steps shows that the path works and what it takes, not what a method learns."""

# ---------------------------------------------------------------- models


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Architecture(Config):
    """Qwen3 sizes of a model that is built here."""

    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count = 512
    vocab_size: Count = 400


FamilyName = Literal["chemistry", "physics", "biology", "materials", "tooluse"]
"""A family of the toys' questions (:data:`srpo.questions.families.FAMILIES`)."""

FactsPerQuestion = Annotated[int, Field(ge=2, le=10)]


class WarmStart(Config):
    """Supervised start of a model that is built here: it teaches the answer format and the use of a solution."""

    corpus: Literal["families", "splits", "files"]
    """What it learns from: the toys' families, made-up responses to the train splits' questions, or the responses that
    own data files give."""
    families: dict[FamilyName, FactsPerQuestion | None] = Field(default_factory=dict)
    """The families of the corpus ``families``, and the number of facts in their questions; null: the family's own
    questions. Empty: all families with their own."""
    facts: int = 0
    """The table of facts of the corpus ``families``."""
    steps: Count
    batch_size: Count = 64
    learning_rate: Rate = 3e-3
    informed_fraction: Fraction = 0.4
    brevity: Fraction = 0.0
    seed: int = 0


class _Named(Config):
    name: str
    title: Title


class _Model(_Named):
    @property
    def facts(self) -> int:
        """The table of facts that the model knows; 0 of a model that knows no toy."""
        return 0

    @property
    def is_linked(self) -> bool:
        """Whether the weights stay where they are, in as many files as there are."""
        return False

    def base_model(self, seed: int) -> Self:
        """The base model that runs with this training seed start from."""
        return self


Draws = Literal["shared", "per_seed"]
"""``per_seed``: runs with seed s start from base model s, whose warm start has seed s; a toy's has table of facts s
too, and the questions are about it. A contrast of methods over seeds then covers the draw. ``shared``: all runs start
from one base model."""


def _drawn(model: MiniatureModel | GgufModel, seed: int, warm_start: WarmStart, **update: Any) -> Any:
    """Base model ``seed`` of a model that is drawn for each seed."""
    names = {"name": f"{model.name}-{seed}", "title": f"{model.title}, base model {seed}", "draws": "shared"}
    return model.model_copy(update=names | {"warm_start": warm_start} | update)


class MiniatureModel(_Model):
    """A tiny Qwen3 built and warm-started by the workflow, or read from the repository.

    Its tokenizer has at most ``architecture.vocab_size`` entries and is made from the corpus of the warm start.
    """

    kind: Literal["miniature"]
    architecture: Architecture
    warm_start: WarmStart
    draws: Draws = "shared"
    stored: dict[int, Sha256] = Field(default_factory=dict)
    """The base models that the repository has (``configs/models/stored``): by the seed of the warm start, the hash of
    the file."""

    @property
    def facts(self) -> int:
        return self.warm_start.facts

    def base_model(self, seed: int) -> Self:
        if self.draws == "shared":
            return self
        stored = {seed: self.stored[seed]} if seed in self.stored else {}
        return _drawn(self, seed, self.warm_start.model_copy(update={"seed": seed, "facts": seed}), stored=stored)


class TransformerShape(Config):
    """Sizes of a Qwen3 or Llama, named as in ``config.json``; memory, disk and FLOPs are computed from them."""

    model_type: Literal["qwen3", "llama"] = "qwen3"
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    intermediate_size: Count
    vocab_size: Count
    tie_word_embeddings: bool


class HubModel(_Model):
    """A pinned revision on the Hugging Face hub.

    ``srpo plan`` computes with ``shape`` before anything is downloaded. After the download it is compared with the
    checkpoint's ``config.json``.
    """

    kind: Literal["hub"]
    repository: Annotated[str, Field(pattern=REPOSITORY)]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    shape: TransformerShape | None = None

    @property
    def is_linked(self) -> bool:
        return True


class LocalModel(_Model):
    """A checkpoint directory in Hugging Face format."""

    kind: Literal["local"]
    path: Path

    @property
    def is_linked(self) -> bool:
        return True


class GgufModel(_Model):
    """A model in one GGUF file, in a folder or in an installed Python package; a warm start is optional.

    ``path`` is relative to where ``package`` (``name==version``) is installed, if there is one. ``shape`` is held
    against the file.
    """

    kind: Literal["gguf"]
    package: Annotated[str, Field(pattern=r"^[\w.-]+==[\w.]+$")] | None = None
    path: Path
    sha256: Sha256
    shape: TransformerShape
    warm_start: WarmStart | None = None
    draws: Annotated[Draws, Field(exclude_if=lambda draws: draws == "shared")] = "shared"

    @model_validator(mode="after")
    def _there_is_something_to_draw(self) -> Self:
        if self.draws == "per_seed" and self.warm_start is None:
            raise ValueError("draws = per_seed: the base models would be the same; give a warm_start")
        return self

    def base_model(self, seed: int) -> Self:
        if self.draws == "shared" or self.warm_start is None:
            return self
        return _drawn(self, seed, self.warm_start.model_copy(update={"seed": seed}))


Model = Annotated[MiniatureModel | HubModel | LocalModel | GgufModel, Field(discriminator="kind")]


# ---------------------------------------------------------------- benchmarks


RewardName = str
"""A key of :data:`srpo.questions.rewards.REWARDS`, or ``module:function``."""

NOT_OF_TESTS: Any = dict.fromkeys(("name", "title", "reward", "train_questions", "test_questions"), True) | {
    "source": {"train": True, "test": {"first"}},
    "contents": {"train": True},
    "columns": {"response"},
    **dict.fromkeys(("train_file", "test_file"), True),
}
"""Keys of a benchmark that do not change what its test questions are, but for their number."""


class SourceFile(Config):
    """One file of a data source, identified byte for byte; ``first`` limits how many of its rows are used."""

    path: str
    git_blob: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    rows: Count
    first: Count | None = None

    @model_validator(mode="after")
    def _rows_exist(self) -> SourceFile:
        if self.first is not None and self.first > self.rows:
            raise ValueError(f"first = {self.first}: the file has {self.rows} rows")
        return self


class Source(Config):
    """Where real splits come from."""

    repository: Annotated[str, Field(pattern=REPOSITORY)]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    train: SourceFile
    test: SourceFile


class _Benchmark(_Named):
    reward: RewardName
    held_out_questions: Annotated[int, Field(ge=0)] = 0
    """A search of hyperparameters sets it: this number of questions of the train split is held out and takes the
    place of the test split, which is not touched. 0: the splits as they are."""

    @property
    def data_set(self) -> str:
        """The name of the folder of its splits."""
        return self.name

    def for_model(self, base_model: _Model) -> Self:
        """The benchmark as a base model meets it: a toy's questions are about the facts that the model knows."""
        return self

    def published(self, split: Literal["train", "test"]) -> int:
        """How many questions a split has before any is held out."""
        raise NotImplementedError

    def questions(self, split: Literal["train", "test"]) -> int:
        held_out = self.held_out_questions
        if not held_out:
            return self.published(split)
        return held_out if split == "test" else self.published("train") - held_out


class _DrawnBenchmark(_Benchmark):
    """A benchmark whose questions are drawn, as many as are asked for."""

    train_questions: Count
    test_questions: Count
    seed: int = 0

    def published(self, split: Literal["train", "test"]) -> int:
        return self.train_questions if split == "train" else self.test_questions


class MiniatureBenchmark(_DrawnBenchmark):
    """A procedural family of questions."""

    kind: Literal["miniature"]
    family: FamilyName
    facts_per_question: FactsPerQuestion | None = None
    """The length of the reasoning: a question asks for the result of each of this number of facts, and one wrong fact
    makes the answer wrong. None: the family's own questions, of two or three facts."""
    facts: int = 0
    """The table of facts; a run has the table of its base model."""

    @property
    def data_set(self) -> str:
        """The name of the folder of its splits: there is one for each table of facts."""
        return f"{self.name}-facts{self.facts}" if self.facts else self.name

    def for_model(self, base_model: _Model) -> Self:
        return self.model_copy(update={"facts": base_model.facts})


class SourcedBenchmark(_Benchmark):
    """Real splits, fetched and verified."""

    kind: Literal["sourced"]
    source: Source

    def published(self, split: Literal["train", "test"]) -> int:
        file = self.source.train if split == "train" else self.source.test
        return file.first or file.rows


class FileContent(Config):
    """What a file of questions contains."""

    sha256: Sha256
    rows: Count


class Files(Config):
    """Two files of questions, JSON lines or parquet, as a benchmark's file names them."""

    train_file: Path
    test_file: Path
    columns: Columns = Columns()


class FilesBenchmark(_Benchmark, Files):
    """Questions in files of one's own.

    :mod:`srpo.experiment.compose` makes the paths absolute and fills in ``contents``. The contents determine a run's
    result, the paths do not.
    """

    kind: Literal["files"]
    contents: dict[Literal["train", "test"], FileContent]

    def file(self, split: Literal["train", "test"]) -> Path:
        return self.train_file if split == "train" else self.test_file

    def published(self, split: Literal["train", "test"]) -> int:
        return self.contents[split].rows


class ReasoningGymBenchmark(_DrawnBenchmark):
    """Questions of a task of the package reasoning-gym, scored by the task's own scorer.

    ``settings`` are the task's own, such as ``max_word_len`` of ``spell_backward``.
    """

    kind: Literal["reasoning_gym"]
    reward: Literal["reasoning_gym"] = "reasoning_gym"
    task: str
    settings: dict[str, bool | int | float | str] = Field(default_factory=dict)


Benchmark = Annotated[
    MiniatureBenchmark | SourcedBenchmark | FilesBenchmark | ReasoningGymBenchmark,
    Field(discriminator="kind"),
]


# ---------------------------------------------------------------- training


Temperature = Annotated[float, Field(ge=0.01, le=10)]
"""Below, float32 has no room for logits; above, samples are noise."""
FlopsPerSecond = Annotated[float, Field(ge=1e6, le=1e18)]
"""From below any machine to above all: with more a run would not end."""


class Sampling(Config):
    """How validation and evaluation sample."""

    rollouts: Count = 16
    temperature: Temperature = 0.6
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95


class WallClock(Config):
    """The training clock counts the measured seconds of a step's phases."""

    kind: Literal["wall"]


class ModelledClock(Config):
    """The training clock counts the FLOPs of a step's phases at nominal rates: results do not depend on the machine."""

    kind: Literal["modelled"]
    decode_flops_per_second: FlopsPerSecond = 1e10
    dense_flops_per_second: FlopsPerSecond = 3e10


class CalibratedClock(Config):
    """The training clock counts, for each step, the seconds that it took in the paper: the same steps on any GPU.

    ``step_seconds`` has, by method of figure 4b and hours of training, the mean seconds per step up to then; other
    methods count like the one whose passes they share (``step_times.timed_like``).
    """

    kind: Literal["calibrated"]
    step_seconds: dict[TimedMethod, dict[Positive, Positive]] = Field(default_factory=paper_step_seconds)

    @model_validator(mode="after")
    def _steps_increase(self) -> CalibratedClock:
        for method in get_args(TimedMethod):
            means = self.step_seconds[method]
            steps = [hours / mean for hours, mean in sorted(means.items())]
            if any(a >= b for a, b in itertools.pairwise(steps)):
                raise ValueError(f"step_seconds.{method} = {means}: more hours must be more steps")
        return self


Clock = Annotated[WallClock | ModelledClock | CalibratedClock, Field(discriminator="kind")]
"""What a second of the training clock is."""

BUDGET_IS = {
    "wall": "measured time: a faster machine takes more steps within it",
    "modelled": "time on a modelled clock, which counts FLOPs at the same fixed rates on every machine",
    "calibrated": "a number of steps: each counts the seconds of the paper's Qwen3-8B (figure 4b), on any machine and "
    "for any model, though the paper's Qwen3-4B may have taken more steps",
}
"""What a budget is, by the kind of the clock."""


class Training(Config):
    """Settings that all methods of an experiment share (table 3)."""

    gone: ClassVar = {"overlong_prompts": "refuse", "stop_on": ..., "branch_gradients_every": ...}

    questions_per_batch: Count = 32
    rollouts_per_question: Annotated[int, Field(ge=2)] = 8
    max_prompt_length: Count = 2048
    max_response_length: Count = 8192
    max_reprompt_len: Count = 10240
    temperature: Temperature = 1.0
    weight_decay: Fraction = 0.01
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    clip_grad: Positive = 1.0
    micro_batch_size: Count = 64
    validate_every: Count = 5
    # another number within the first budget, where runs rise fastest
    validate_every_in_first_budget: Annotated[Count | None, Field(exclude_if=lambda every: every is None)] = None
    validation: Sampling = Sampling()
    clock: Clock
    budget_seconds: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], Positive]
    max_steps: Count | None = None

    @field_validator("budget_seconds")
    @classmethod
    def _budgets_increase(cls, budgets: dict[str, float]) -> dict[str, float]:
        if not budgets or any(a >= b for a, b in itertools.pairwise(budgets.values())):
            raise ValueError("give at least one, in strictly increasing seconds")
        return budgets

    def validates(self, step: int, clock: float) -> bool:
        """Whether a validation is due after a step that ends at ``clock`` seconds."""
        early = clock <= min(self.budget_seconds.values()) and self.validate_every_in_first_budget
        return step > 0 and step % (early or self.validate_every) == 0


# ---------------------------------------------------------------- execution


Precision = Literal["float32", "bfloat16"]

VerlKey = Literal[
    "actor_rollout_ref.actor.fsdp_config.reshard_after_forward",
    "actor_rollout_ref.rollout.max_num_seqs",
    "actor_rollout_ref.rollout.engine_kwargs.sglang.cuda_graph_max_bs",
    "actor_rollout_ref.rollout.engine_kwargs.sglang.mem_fraction_static",
    "actor_rollout_ref.rollout.engine_kwargs.sglang.speculative_algorithm",
]
"""Settings of verl that have an effect here. It accepts others, and nothing or something else happens."""


def limit_reached(training: Training, clock: float, step: int) -> str | None:
    """Which limit a run has reached at a step: its last budget or its last allowed step."""
    if clock >= max(training.budget_seconds.values()):
        return "budget"
    return "max_steps" if step == training.max_steps else None


class Execution(Config):
    """Driver, devices, precision and memory of a run; they are not part of the method."""

    gone: ClassVar = {"attention": "sdpa", "remove_padding": False}

    driver: Literal["in_process", "ray"] = "in_process"
    ranks: Count = 1
    precision: Precision = "float32"
    max_tokens_per_rank: Count | None = None
    gradient_checkpointing: bool = False
    offload_teacher: bool = False
    # sampling
    rollout_engine: Literal["embedded", "sglang"] = "embedded"
    rollout_tensor_parallel: Count = 1
    rollout_memory_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.6
    # for tests: so SGLang draws one token in 28,000 regardless of its probability (sgl-project/sglang#25106)
    deterministic_rollouts: bool = False
    # whether MLflow shows a run while it trains, or a copy at the end; None: a copy of a miniature's
    tracking: Annotated[Literal["live", "copy"] | None, Field(exclude_if=lambda value: value is None)] = None
    # further settings of verl, by their Hydra keys (docs/verl.md); they are part of a run's identity
    verl_overrides: Annotated[
        dict[VerlKey, bool | int | float | str],
        BeforeValidator(lambda given: flattened(given) if isinstance(given, Mapping) else given),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _parts_fit(self) -> Execution:
        if self.driver == "in_process":
            for key, only in (("ranks", 1), ("rollout_engine", "embedded")):
                if getattr(self, key) != only:
                    raise ValueError(f"{key} = {getattr(self, key)}: the in-process driver has {only} only; use ray")
        return self


# ---------------------------------------------------------------- experiment


class Block(Config):
    """A rectangle of the run matrix. Without methods it only evaluates the base models."""

    models: list[str] = Field(min_length=1)
    benchmarks: list[str] = Field(min_length=1)
    methods: list[str] = Field(default_factory=list)
    seeds: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field([1], min_length=1)

    def holds(self, run: RunId) -> bool:
        return (
            run.seed in self.seeds
            and run.method in self.methods
            and run.model in self.models
            and run.benchmark in map(short_name, self.benchmarks)
        )


class Variant(Config):
    """A method that differs from the method ``of`` in these values only, and in its name and title."""

    of: str
    values: dict[str, float | int]


class TrialResult(Config):
    """A trial of a finished search: the method, its values, and its score on the held-out questions, percent."""

    method: str
    values: dict[str, float | int]
    score: float


class Tuned(Config):
    """A finished search: a file of ``configs/tuned``, which ``srpo tune`` writes.

    ``methods`` has the chosen hyperparameters. ``runs``, ``training_steps``, ``clock_seconds`` (of the training clock)
    and ``wall_seconds`` are what the search cost.
    """

    search: str
    models: list[str]
    benchmarks: list[str]
    questions: Count
    seeds: list[int]
    budget_seconds: dict[str, Positive]
    runs: Count
    training_steps: Count
    clock_seconds: Positive
    wall_seconds: Positive
    methods: dict[str, dict[str, float | int]]
    trials: list[TrialResult]


CHANGEABLE_ON_RESUME = {
    "training": {"micro_batch_size"},
    "execution": {"max_tokens_per_rank", "gradient_checkpointing", "offload_teacher", "rollout_memory_fraction"},
}
"""Memory settings. They may change when a run is resumed: they cost memory or time, the result stays."""

NOT_PART_OF_IDENTITY = CHANGEABLE_ON_RESUME | {
    "training": CHANGEABLE_ON_RESUME["training"] | {"branch_gradients_every"},  # of runs of earlier versions
    "model": {"title", "path", "shape", "stored"},
    "benchmark": {"title", "train_file", "test_file"},
    "method": {"title"},
    "execution": CHANGEABLE_ON_RESUME["execution"] | {"tracking"},
}
"""Keys that change no result of a run, titles included: of files the bytes count. Nor does the experiment's name."""


def identity_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys of a dumped :class:`RunSpec` that determine the run's result, with their values."""
    ignored = {"experiment", *(f"{part}.{name}" for part, names in NOT_PART_OF_IDENTITY.items() for name in names)}
    return {key: value for key, value in flattened(spec).items() if ".".join(key.split(".")[:2]) not in ignored}


Changed = dict[str, tuple[Any, Any]]
"""Old and new value by dotted key."""


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Changed:
    """What determines a result and differs, of two dumped specifications."""
    old, new = identity_of(before), identity_of(now)
    return {k: (old.get(k), new.get(k)) for k in sorted(old.keys() | new.keys()) if old.get(k) != new.get(k)}


def listed(changed: Changed) -> str:
    """``training.max_steps = 4, now 2``."""
    return ", ".join(f"{key} = {old}, now {new}" for key, (old, new) in changed.items())


class RunSpec(Config):
    """Everything that determines a training run's result, resolved; ``model`` is the base model of the run's seed."""

    experiment: str
    scale: Literal["embedded", "paper"]
    id: RunId
    model: Model
    benchmark: Benchmark
    method: Method
    training: Training
    execution: Execution

    def identity(self) -> dict[str, Any]:
        """What determines the result, by dotted key (:func:`identity_of`)."""
        return identity_of(self.model_dump(mode="json"))


class Experiment(Config):
    """A resolved experiment."""

    gone: ClassVar[Mapping[str, Any]] = {"sweep": None, "search": None}

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=100)]
    title: Title
    scale: Literal["embedded", "paper"]
    comparable_with_paper: bool = False
    matrix: list[Block] = Field(min_length=1)
    training: Training
    execution: Execution = Execution()
    evaluation: Sampling = Sampling()
    methods: dict[str, Method]
    models: dict[str, Model]
    benchmarks: dict[str, Benchmark]
    # methods that a grid of values has made, by name
    variants: dict[str, Variant] = Field({})
    # where the hyperparameters were searched for
    tuned: Tuned | None = None
    # a warning at the beginning of the report; such a report begins with a figure and ends with the claims
    notice: str | None = None

    @model_validator(mode="after")
    def _methods_fit(self) -> Experiment:
        for name, method in self.methods.items():
            if self.training.questions_per_batch % method.mini_batch_questions:
                raise ValueError(
                    f"methods.{name}.mini_batch_questions = {method.mini_batch_questions}: "
                    f"must divide training.questions_per_batch = {self.training.questions_per_batch}"
                )
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Experiment:
        for kind in ("methods", "models", "benchmarks"):
            named: dict[str, str] = {}  # the first of each title, which tells tables' rows apart, and folder
            for name, definition in getattr(self, kind).items():
                bases = self.base_models(name).values() if kind == "models" else ()
                for given in (f"title = {definition.title!r}", *(f"base model {base.name}" for base in bases)):
                    first = named.setdefault(given, name)
                    if first != name:
                        raise ValueError(f"{kind}.{name}: {given}: {first} has it, too")
        return self

    @model_validator(mode="after")
    def _samples_alike(self) -> Experiment:
        for key in ("temperature", "top_p"):
            here, validation = getattr(self.evaluation, key), getattr(self.training.validation, key)
            if here != validation:  # the untrained model's score stands beside those of validations
                raise ValueError(f"evaluation.{key} = {here}: training.validation.{key} = {validation} is another")
        return self

    @model_validator(mode="after")
    def _batches_can_be_filled(self) -> Experiment:
        for benchmark in dict.fromkeys(name for block in self.matrix if block.methods for name in block.benchmarks):
            found, batch = self.benchmarks[short_name(benchmark)].questions("train"), self.training.questions_per_batch
            if found < batch:
                raise ValueError(
                    f"training.questions_per_batch = {batch}: benchmark {benchmark} has {found} questions to train on"
                )
        return self

    def runs(self) -> list[RunId]:
        """The training runs, each once, in the matrix's order."""
        ids = (
            RunId(model=model, benchmark=short_name(benchmark), method=method, seed=seed)
            for block in self.matrix
            for model in block.models
            for benchmark in block.benchmarks
            for method in block.methods
            for seed in block.seeds
        )
        return list(dict.fromkeys(ids))

    def draws_per_seed(self, model: str) -> bool:
        """Whether seed s of every method of ``model`` starts from base model s."""
        return getattr(self.models[model], "draws", "shared") == "per_seed"

    def base_models(self, model: str) -> dict[int, Model]:
        """The base models of a model by the training seed of the runs that start from them.

        One base model that all runs share stands under the seed 0.
        """
        definition = self.models[model]
        seeds = sorted({seed for block in self.matrix if model in block.models for seed in block.seeds})
        drawn = {seed: definition.base_model(seed) for seed in seeds}
        return {0: definition} if all(base is definition for base in drawn.values()) else drawn

    def every_base_model(self) -> dict[str, Model]:
        return {base.name: base for model in self.models for base in self.base_models(model).values()}

    def base_evaluations(self) -> list[tuple[str, str]]:
        """The (base model, benchmark) pairs that are evaluated untrained, each once."""
        return [
            (base.name, benchmark) for model, benchmark in self.bases() for base in self.base_models(model).values()
        ]

    def data_set(self, benchmark: str, base_model: str) -> Benchmark:
        """A benchmark as the runs meet it that start from a base model, which is given by its name."""
        return self.benchmarks[benchmark].for_model(self.every_base_model()[base_model])

    def data_sets(self) -> dict[str, Benchmark]:
        """The benchmarks as all base models meet them, by the names of their folders."""
        bases = self.every_base_model()
        met = (self.benchmarks[benchmark].for_model(bases[model]) for model, benchmark in self.base_evaluations())
        return {benchmark.data_set: benchmark for benchmark in met}

    def bases(self) -> list[tuple[str, str]]:
        """The (model, benchmark) pairs whose base models are evaluated, each once."""
        pairs = ((m, short_name(b)) for block in self.matrix for m in block.models for b in block.benchmarks)
        return list(dict.fromkeys(pairs))

    def gaps(self) -> list[tuple[str, str]]:
        """The (base model, benchmark) pairs whose gap is measured before training: those that runs begin with."""
        if self.is_rehearsal:
            return []
        pairs = ((self.models[run.model].base_model(run.seed).name, run.benchmark) for run in self.runs())
        return list(dict.fromkeys(pairs))

    @property
    def same_tests(self) -> list[list[str]]:
        """The names of benchmarks that have one test split, or parts of one, under several names."""
        alike: dict[str, list[str]] = {}
        for name, each in self.benchmarks.items():
            held_out = name if each.held_out_questions else ""  # each name draws its own
            alike.setdefault(each.model_dump_json(exclude=NOT_OF_TESTS) + held_out, []).append(name)
        return [names for names in alike.values() if len(names) > 1]

    @property
    def is_toy(self) -> bool:
        """Whether every model is a toy: trained from scratch on invented questions."""
        return all(model.kind == "miniature" for model in self.models.values())

    def budget_title(self, name: str) -> str:
        """A budget's title: ``budget 1`` if it is named after hours that it does not last; else its name."""
        budgets = self.training.budget_seconds
        hours = re.fullmatch(r"(\d+)h", name)
        if name not in budgets or not hours or budgets[name] == 3600 * int(hours[1]):
            return re.sub(r"(?<=\d)(?=[a-z]{2})", " ", name)
        return f"budget {[*budgets].index(name) + 1}"

    @property
    def measures_as_the_paper(self) -> bool:
        """Whether budgets are those of table 1, and batches, responses and validations those of table 3."""
        hours, of = {f"{hours}h": 3600 * hours for hours in (1, 5, 10)}, self.training
        sizes = of.questions_per_batch, of.rollouts_per_question, of.max_prompt_length, of.max_response_length
        same = (of.budget_seconds, of.validation, sizes) == (hours, Sampling(), (32, 8, 2048, 8192))
        return same and of.clock in (WallClock(kind="wall"), CalibratedClock(kind="calibrated")) and not of.max_steps

    @property
    def is_rehearsal(self) -> bool:
        """Whether its runs are too short for anything but to see that the path works."""
        return self.training.max_steps is not None and self.training.max_steps < REHEARSAL_STEPS

    @property
    def is_search(self) -> bool:
        """Whether its variants are compared on held-out questions, and end in a file of the best ones."""
        return bool(self.variants) and any(each.held_out_questions for each in self.benchmarks.values())

    def run(self, run: RunId) -> RunSpec:
        # not runs(): this is called for each of thousands of runs
        if not any(block.holds(run) for block in self.matrix):
            raise SrpoError(f"run {run.path} is not in the matrix of experiment {self.name}")
        base_model = self.models[run.model].base_model(run.seed)
        return RunSpec(
            experiment=self.name,
            scale=self.scale,
            id=run,
            model=base_model,
            benchmark=self.benchmarks[run.benchmark].for_model(base_model),
            method=self.methods[run.method],
            training=self.training,
            execution=self.execution,
        )


def short_name(name: str) -> str:
    """``miniature/physics`` -> ``physics``, ``data/sums.yaml`` -> ``sums``: only the file's name counts."""
    return name.rsplit("/", 1)[-1].removesuffix(".yaml")
