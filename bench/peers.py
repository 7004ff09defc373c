"""Measures CPU seconds of a round of SRPO, SDPO and GRPO, here and in TRL, with the same work, on one core.

    make peers            or, with your own environments
    python bench/peers.py --peer .venv-trl/bin/python
    python bench/peers.py --peer .venv-trl/bin/python --model smollm2 --precision bfloat16

With ``qwen3`` a round is 32 questions x 8 responses of exactly 56 tokens, a random Qwen3 of 0.17 M parameters, and
prompts of 30 to 50 tokens; with ``smollm2`` 8 questions of a task of reasoning-gym x 8 responses of exactly 40 tokens,
and SmolLM2-135M. Teacher prompts add a solution, rewards are random. Each pass starts one process of TRL and one of
this project. A process runs a few rounds of every method; the first round does not count. The smallest value of each
number counts.

A second table has the share of the rate of large matrix products, which this process measures on one thread before
each of the others: FLOPs of a phase by its seconds. Both sides' FLOPs count the same way (``srpo.experiment.flops``): a
prompt once for all its responses, a backward pass as two forward passes, the head for the tokens of responses only.

In bfloat16 both sides have weights and Adam's moments in float32 and compute in bfloat16: TRL's own default, ``bf16``,
which is autocast.

Both sides use the micro-batch size that is fastest for them, in 7 GB: 64 rows with ``qwen3`` (for TRL, 32 to 256 differ
by less than 5 %).
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srpo.experiment.config import RunSpec, TransformerShape
    from srpo.experiment.flops import ModelCost

VOCABULARY, PROMPT_WORDS = 437, range(26, 44)
LEARNING_RATE = 1e-6
"""So small that random rewards leave the responses as they are."""
SOLUTION = "\nCorrect solution:\n\n{successful_previous_attempt}"
REPROMPT = "{prompt}{solution}{feedback}\n\nCorrectly solve the original question."
PHASES = {"generate": 1, "old log-probs": 1, "teacher": 1, "update": 3}
"""How many forward passes the arithmetic of a phase is."""
METHODS = {"SRPO": ("srpo", 1), "SDPO": ("sdpo", 1), "GRPO, 4 updates": ("grpo", 4), "GRPO, 1 update": ("grpo", 1)}
"""The method here, and its updates per round; TRL has no SRPO."""
PRODUCTS = (1024, 2048, 4096)
"""Sizes of the square matrices whose products give the machine's rate."""


@dataclass(frozen=True)
class Workload:
    """What both sides do.

    Attributes:
        experiment, model, benchmark: of this project; a random Qwen3 and random questions stand for a miniature's.
        questions: of a round.
        response_tokens: of each response, exactly.
        rows: of a micro-batch.
        methods: keys of :data:`METHODS`.
        rounds: of a method that count, in each pass.
    """

    experiment: str
    model: str
    benchmark: str
    questions: int
    response_tokens: int
    rows: int
    methods: list[str]
    passes: int
    rounds: int
    precision: str = "float32"
    samples: int = 8

    @classmethod
    def read(cls, folder: Path) -> Workload:
        """The workload that :func:`write_workload` wrote."""
        return cls(**json.loads((folder / "workload.json").read_text()))

    def questions_of(self, folder: Path) -> list[Messages]:
        """The questions that :func:`write_workload` wrote."""
        return json.loads((folder / "questions.json").read_text())


WORKLOADS = {
    "qwen3": Workload("embedded", "miniature-large", "miniature/physics", 32, 56, 64, [*METHODS], 3, 3),
    "smollm2": Workload(
        "real-cpu",
        "smollm2-135m-cold",
        "reasoning-gym/word_reversal",
        8,
        40,
        8,
        ["SRPO", "SDPO", "GRPO, 1 update"],
        1,
        1,
    ),
}

Messages = list[dict[str, str]]
Prompts = list[list[int]]
"""Tokens of each distinct prompt of a phase, and how many responses follow it."""


@dataclass
class Round:
    """CPU seconds by phase, ``total`` among them, and what each phase computed."""

    seconds: dict[str, float]
    prompts: dict[str, Prompts]


Rounds = list[Round]


# ---------------------------------------------------------------- the work


def specification(workload: Workload, title: str) -> RunSpec:
    """A run of one of :data:`METHODS` with the workload's settings."""
    import yaml

    from srpo.experiment.compose import load_experiment
    from srpo.ground.layout import RunId
    from srpo.ground.repository import CONFIGS

    name, updates = METHODS[title]
    raw = yaml.safe_load((CONFIGS / "experiments" / f"{workload.experiment}.yaml").read_text())
    raw["matrix"] = [{"models": [workload.model], "benchmarks": [workload.benchmark], "methods": [name]}]
    del raw["tuned"]
    mini_batch = workload.questions // updates
    raw["overrides"] = {name: {"learning_rate": LEARNING_RATE, "mini_batch_questions": mini_batch}}
    raw["execution"] = {"precision": workload.precision}
    raw["training"] |= {
        "questions_per_batch": workload.questions,
        "rollouts_per_question": workload.samples,
        "max_response_length": workload.response_tokens,
        "micro_batch_size": workload.rows,
        "branch_gradients_every": 10**6,
    }
    benchmark = workload.benchmark.rpartition("/")[2]
    return load_experiment(raw).run(RunId(model=workload.model, benchmark=benchmark, method=name, seed=1))


def write_workload(folder: Path, workload: Workload) -> None:
    """The workload, its model and its questions, for both sides."""
    from srpo.experiment.config import MiniatureModel
    from srpo.starts.base_models import build_model
    from srpo.starts.data import build_split

    spec = specification(workload, workload.methods[0])
    if isinstance(spec.model, MiniatureModel):
        questions = write_random_qwen3(folder / "model", workload.questions)
    else:
        build_model(spec.model, folder / "model", {})
        questions = [question.messages for question in build_split(spec.benchmark, "train")[: workload.questions]]
    (folder / "questions.json").write_text(json.dumps(questions))
    (folder / "workload.json").write_text(json.dumps(asdict(workload)))


def write_random_qwen3(folder: Path, count: int) -> list[Messages]:
    """A random Qwen3 whose tokens are words, so that texts come back as the tokens they were; questions for it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
    from random_qwen3 import random_qwen3
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>"]
    fixed = ["user", "assistant", "Correct", "solution:", "Correctly", "solve", "the", "original", "question."]
    words = [f"w{i}" for i in range(VOCABULARY - len(special) - len(fixed))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *fixed, *words])}, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=special[0],
        eos_token=special[1],
        chat_template=(
            "{%- for message in messages -%}{{- message.role + ' ' + message.content + ' ' + '<|end|>' + ' ' -}}"
            "{%- endfor -%}{%- if add_generation_prompt -%}{{- 'assistant' -}}{%- endif -%}"
        ),
    )
    tokenizer.save_pretrained(folder)
    random_qwen3(VOCABULARY, 0.1, eos_token_id=1, pad_token_id=0).save_pretrained(folder)
    (folder / "base.json").write_text('{"sha256": "peers"}')
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=draw.choice(PROMPT_WORDS))) for _ in range(count)]
    return [[{"role": "user", "content": text}] for text in texts]


def coin(response: str) -> float:
    """A reward that is 1 for half of the responses."""
    return float(hashlib.md5(response.encode()).digest()[0] < 128)


def distinct(prompts: Iterable[Iterable[int]]) -> Prompts:
    """The distinct prompts of responses, of which each has its own here."""
    return [[len(prompt), count] for prompt, count in Counter(map(tuple, prompts)).items()]


class Stopwatch:
    """CPU seconds by phase; an inner phase's do not count to the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.inner = [0.0]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what is spent inside to ``name``."""
        self.inner.append(0.0)
        start = time.process_time()
        yield
        spent = time.process_time() - start
        self.seconds[name] += spent - self.inner.pop()
        self.inner[-1] += spent

    def timed(self, name: str | Callable[[], str | None], function: Callable) -> Callable:
        """``function``, charged to a phase; a callable says which when it is called, or None."""

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            phase = name() if callable(name) else name
            if phase is None:
                return function(*args, **kwargs)
            with self.phase(phase):
                return function(*args, **kwargs)

        return wrapped

    def taken(self) -> dict[str, float]:
        """What was charged since the last call."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds


# ---------------------------------------------------------------- here


def run_here(folder: Path, workload: Workload) -> dict[str, Rounds]:
    """Steps of this project in one process; its own phases, on a clock of CPU seconds."""
    import torch

    from srpo.training import clock
    from srpo.training import step as steps

    torch.set_num_threads(1)
    clock.time.perf_counter = time.process_time
    steps.compute_reward = lambda kind, response, truth: coin(response)
    return {title: steps_of(folder, workload, title) for title in workload.methods}


def steps_of(folder: Path, workload: Workload, title: str) -> Rounds:
    """Rounds of a method; what it allocated is free again."""
    from srpo.policy.in_process import InProcessPolicy
    from srpo.questions.splits import Question
    from srpo.training.step import Step

    names = {"generate": "generate", "log_prob": "old log-probs", "teacher": "teacher", "update": "update"}

    class Recorded(Step):
        """A step that keeps what its passes computed."""

        def _count(self, phase, batch, batches, prompts, times=1) -> None:
            super()._count(phase, batch, batches, prompts, times)
            prompts_of[names[phase]] = distinct(prompts[row].tolist() for rows in batches for row in rows)

    questions = [
        Question(i, messages, "", "answer_match", "peers") for i, messages in enumerate(workload.questions_of(folder))
    ]
    spec = specification(workload, title)
    policy = InProcessPolicy(spec, folder / "model")
    forbid_end(policy._engine)
    found = []
    for number in range(1, workload.rounds + 2):
        prompts_of: dict[str, Prompts] = {}
        step = Recorded(spec, policy, number)
        start = time.process_time()
        batch, _ = step.take(questions)
        total = time.process_time() - start
        prompts_of["generate"] = distinct(prompt.tolist() for prompt in batch.rollouts.prompts)
        seconds = {name: step.phases.wall[phase] for phase, name in names.items()}
        found.append(Round({**seconds, "total": total}, prompts_of))
    del policy, step
    gc.collect()
    return found


def forbid_end(engine: Any) -> None:
    """No response ends early: the end has no probability, as with ``min_new_tokens`` of transformers."""
    logits = engine._logits

    def without_end(hidden):
        found = logits(hidden)
        found[:, engine._eos] = -float("inf")
        return found

    engine._logits = without_end


# ---------------------------------------------------------------- TRL


def run_trl(folder: Path, workload: Workload) -> dict[str, Rounds]:
    """TRL's GRPO and SDPO, set to the same work."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

    torch.set_num_threads(1)
    data = Dataset.from_list([{"prompt": messages} for messages in workload.questions_of(folder)])
    batch = workload.questions * workload.samples

    def reward(completions, **_) -> list[float]:
        return [coin(completion[0]["content"]) for completion in completions]

    def settings(updates: int) -> dict:
        """A generation batch of all questions, ``updates`` optimiser steps on it."""
        rows = min(workload.rows, batch // updates)
        return {
            "output_dir": str(folder / "trl"),
            "per_device_train_batch_size": rows,
            "gradient_accumulation_steps": batch // updates // rows,
            "steps_per_generation": batch // rows,
            "num_generations": workload.samples,
            "max_completion_length": workload.response_tokens,
            "generation_kwargs": {"min_new_tokens": workload.response_tokens},
            "temperature": 1.0,
            "learning_rate": LEARNING_RATE,
            "max_steps": (workload.rounds + 1) * updates,
            "beta": 0.0,
            "use_cpu": True,
            "bf16": workload.precision == "bfloat16",
            "gradient_checkpointing": False,
            "report_to": [],
            "logging_strategy": "no",
            "save_strategy": "no",
            "disable_tqdm": True,
            "seed": 1,
        }

    def run(trainer, updates: int, watch: Stopwatch, prompts: dict[str, Prompts]) -> Rounds:
        """CPU seconds of each round; what no phase claims is the update's."""
        found: Rounds = []
        marks = [0.0]

        class Marks(TrainerCallback):
            def on_train_begin(self, *_, **__) -> None:
                watch.taken()
                marks[0] = time.process_time()

            def on_step_end(self, args, state, control, **_) -> None:
                if state.global_step % updates == 0:
                    now = time.process_time()
                    seconds = watch.taken()
                    total = now - marks[0]
                    found.append(
                        Round({**seconds, "update": total - sum(seconds.values()), "total": total}, dict(prompts))
                    )
                    marks[0] = now

        trainer.add_callback(Marks())
        trainer.train()
        return found

    def sdpo() -> Rounds:
        config = SDPOConfig(
            **settings(1),
            epsilon_high=0.28,
            distillation_mode="topk_logits",
            distillation_topk=100,
            distillation_alpha=0.5,
            distillation_add_tail=True,
            solution_template=SOLUTION,
            reprompt_template=REPROMPT,
        )
        watch = Stopwatch()
        prompts: dict[str, Prompts] = {}
        trainer = SDPOTrainer(str(folder / "model"), reward_funcs=reward, args=config, train_dataset=data)
        generate = watch.timed("generate", trainer._generate_transformers)
        tokenize = trainer.teacher_context_builder._tokenize_teacher_messages

        def generate_noted(prompt_ids):
            prompts["generate"] = prompts["update"] = distinct(prompt_ids)
            return generate(prompt_ids)

        def tokenize_noted(messages):
            found = tokenize(messages)
            rows = zip(found["prompt_ids"], found["prompt_mask"].bool(), strict=True)
            prompts["teacher"] = distinct(ids[mask].tolist() for ids, mask in rows)
            return found

        trainer._generate_transformers = generate_noted
        trainer.teacher_context_builder._tokenize_teacher_messages = tokenize_noted
        trainer._compute_rollout_logps = watch.timed("old log-probs", trainer._compute_rollout_logps)
        trainer._forward_logits = watch.timed(
            lambda: None if torch.is_grad_enabled() else "teacher", trainer._forward_logits
        )
        return run(trainer, 1, watch, prompts)

    def grpo(updates: int) -> Rounds:
        config = GRPOConfig(**settings(updates), epsilon_high=0.28, scale_rewards="none", loss_type="dapo")
        watch = Stopwatch()
        prompts: dict[str, Prompts] = {}
        trainer = GRPOTrainer(str(folder / "model"), reward_funcs=reward, args=config, train_dataset=data)
        generate = watch.timed("generate", trainer._generate_single_turn)

        def generate_noted(prompt_ids, *others):
            prompts["generate"] = prompts["old log-probs"] = prompts["update"] = distinct(prompt_ids)
            return generate(prompt_ids, *others)

        trainer._generate_single_turn = generate_noted
        trainer._get_per_token_logps_and_entropies = watch.timed(
            lambda: None if torch.is_grad_enabled() else "old log-probs", trainer._get_per_token_logps_and_entropies
        )
        return run(trainer, updates, watch, prompts)

    result = {}
    for title in workload.methods:
        name, updates = METHODS[title]
        if name != "srpo":
            result[title] = sdpo() if name == "sdpo" else grpo(updates)
            gc.collect()  # a trainer is part of circles
    return result


# ---------------------------------------------------------------- both


def best(rounds: Rounds) -> dict[str, float]:
    """The smallest total and the smallest of each phase; the first round warms up."""
    return {name: min(each.seconds.get(name, 0.0) for each in rounds[1:]) for name in (*PHASES, "total")}


def product_rate(precision: str) -> float:
    """FLOPs a CPU second of the fastest of some large matrix products, on one thread."""
    import torch

    torch.set_num_threads(1)
    rates = []
    for size in PRODUCTS:
        one, other = torch.randn(2, size, size).to(getattr(torch, precision))
        for _ in range(3):
            start = time.process_time()
            torch.mm(one, other)
            rates.append(2 * size**3 / (time.process_time() - start))
    return max(rates)


def forward_flops(cost: ModelCost, head: int, prompts: Prompts, response_tokens: int) -> float:
    """FLOPs of a forward pass, a prompt once for all its responses.

    Args:
        head: weights of the output head, which only the tokens that predict a response's are multiplied with.
    """
    layers = replace(cost, matmul_parameters=cost.matmul_parameters - head)
    return sum(
        layers.forward_flops([tokens])
        + layers.decode_flops([tokens] * count, [response_tokens] * count)
        + 2 * head * response_tokens * count
        for tokens, count in prompts
    )


def shares(rounds: Rounds, shape: TransformerShape, response_tokens: int, rate: float) -> dict[str, float]:
    """The largest share of the rate that each phase, and the whole, reached in a round that counts."""
    from srpo.experiment.flops import model_cost
    from srpo.experiment.memory import embedding_parameters

    cost, head = model_cost(shape), embedding_parameters(shape)
    found: dict[str, list[float]] = defaultdict(list)
    for each in rounds[1:]:
        flops = {
            phase: PHASES[phase] * forward_flops(cost, head, prompts, response_tokens)
            for phase, prompts in each.prompts.items()
            if each.seconds.get(phase)
        }
        for phase, own in {**flops, "total": sum(flops.values())}.items():
            found[phase].append(own / each.seconds[phase] / rate)
    return {phase: max(each) for phase, each in found.items()}


def print_tables(found: dict[str, dict[str, Rounds]], workload: Workload, shape: TransformerShape, rate: float) -> None:
    """A line a method and side: seconds, with ratios to TRL's total; shares of the rate; tokens of the prompts."""
    totals = {title: best(rounds)["total"] for title, rounds in found["trl"].items()}
    against = {title: title if title in totals else "SDPO" for title in METHODS}
    lines = [(side, title, rounds) for side in ("trl", "here") for title, rounds in found[side].items()]
    print(f"| CPU seconds of a round | | total | {' | '.join(PHASES)} | ratio to TRL |")
    print("| --- " * (len(PHASES) + 4) + "|")
    for side, title, rounds in lines:
        seconds = best(rounds)
        ratio = f"{seconds['total'] / totals[against[title]]:.2f}" if side == "here" and totals else ""
        cells = " | ".join(f"{seconds[phase]:.2f}" if round(seconds[phase], 2) else "-" for phase in PHASES)
        other = f" ({against[title]})" if ratio and against[title] != title else ""
        print(f"| {title} | {side} | {seconds['total']:.2f} | {cells} | {ratio}{other} |")
    print(f"\n| share of {rate / 1e9:.0f} GFLOP/s, {workload.precision} | | total | {' | '.join(PHASES)} |")
    print("| --- " * (len(PHASES) + 3) + "|")
    for side, title, rounds in lines:
        own = shares(rounds, shape, workload.response_tokens, rate)
        cells = " | ".join(f"{own[phase]:.2f}" if phase in own else "-" for phase in ("total", *PHASES))
        print(f"| {title} | {side} | {cells} |")
    print(f"\n| distinct prompts: mean tokens | | {' | '.join(PHASES)} |")
    print("| --- " * (len(PHASES) + 2) + "|")
    for side, title, rounds in lines:
        last = rounds[-1]
        lengths = [[n for n, _ in last.prompts.get(phase, []) if last.seconds.get(phase)] for phase in PHASES]
        cells = " | ".join(f"{len(own)}: {sum(own) / len(own):.0f}" if own else "-" for own in lengths)
        print(f"| {title} | {side} | {cells} |")


def measure(workload: Workload, pythons: dict[str, str]) -> None:
    """Run both sides in turn, each in its own process, and print the tables."""
    from srpo.experiment.config import LocalModel
    from srpo.experiment.memory import shape_of

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_workload(folder, workload)
        found: dict[str, dict[str, Rounds]] = {side: defaultdict(list) for side in ("trl", "here")}
        rate = 0.0
        for _ in range(workload.passes):
            for side, python in pythons.items():
                rate = max(rate, product_rate(workload.precision))
                command = [python, __file__, "--side", side, "--folder", folder]
                environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
                subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
                for title, rounds in json.loads((folder / f"{side}.json").read_text()).items():
                    own = [Round(**each) for each in rounds]
                    found[side][title] += own if not found[side][title] else own[1:]
        shape = shape_of(LocalModel(kind="local", name="peers", title="peers", path=folder / "model"))
        print_tables(found, workload, shape, rate)


def main() -> None:
    """Run both sides in turn, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a Python with TRL (envs/peers.txt)")
    parser.add_argument("--model", choices=WORKLOADS, default="qwen3")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--passes", type=int)
    parser.add_argument("--rounds", type=int, help="rounds a method that count, in each pass")
    parser.add_argument("--side", choices=("here", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = {"here": run_here, "trl": run_trl}[options.side]
        result = run(options.folder, Workload.read(options.folder))
        written = {title: [asdict(each) for each in rounds] for title, rounds in result.items()}
        (options.folder / f"{options.side}.json").write_text(json.dumps(written))
        return
    given = {name: value for name in ("passes", "rounds") if (value := getattr(options, name)) is not None}
    workload = replace(WORKLOADS[options.model], precision=options.precision, **given)
    measure(workload, ({"trl": options.peer} if options.peer else {}) | {"here": sys.executable})


if __name__ == "__main__":
    main()
