"""Measures CPU seconds of a round of SRPO, SDPO and GRPO, here and in TRL, with the same shapes, on one core.

    make peers            or, with your own environments
    python bench/peers.py --peer .venv-trl/bin/python [--passes 3] [--rounds 3]

A round is 32 questions x 8 responses of exactly 56 tokens, a Qwen3 of 0.17 M parameters, prompts of 30 to 50 tokens
teacher prompts that add a solution, and random rewards. Each pass starts one process of TRL and one of this project. A
process runs a few rounds of every method; the first round does not count. The smallest value of each number counts.

Both sides use the micro-batch size that is fastest for them, 64 rows (for TRL, 32 to 256 differ by less than 5 %).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

QUESTIONS, SAMPLES, RESPONSE_TOKENS = 32, 8, 56
VOCABULARY, PROMPT_WORDS = 437, range(26, 44)
ROWS = 64
SOLUTION = "\nCorrect solution:\n\n{successful_previous_attempt}"
REPROMPT = "{prompt}{solution}{feedback}\n\nCorrectly solve the original question."
PHASES = ("generate", "old log-probs", "teacher", "update")
METHODS = {
    "SRPO": ("srpo", 32),
    "SDPO": ("sdpo", 32),
    "GRPO, 4 updates": ("grpo", 8),
    "GRPO, 1 update": ("grpo", 32),
}

Rounds = list[dict[str, float]]
"""CPU seconds by phase of each round, ``total`` among them."""


# ---------------------------------------------------------------- the work


def write_workload(folder: Path) -> None:
    """A random Qwen3 whose tokens are words, so that texts come back as the tokens they were, and questions."""
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
    tokenizer.save_pretrained(folder / "model")
    random_qwen3(VOCABULARY, 0.1, eos_token_id=1, pad_token_id=0).save_pretrained(folder / "model")
    (folder / "model" / "base.json").write_text('{"sha256": "peers"}')
    draw = random.Random(0)
    questions = [" ".join(draw.choices(words, k=draw.choice(PROMPT_WORDS))) for _ in range(QUESTIONS)]
    (folder / "questions.json").write_text(json.dumps(questions))


def coin(response: str) -> float:
    """A reward that is 1 for half of the responses."""
    return float(hashlib.md5(response.encode()).digest()[0] < 128)


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


def run_here(folder: Path, rounds: int) -> dict[str, Rounds]:
    """Steps of this project in one process; its own phases, on a clock of CPU seconds."""
    import torch
    import yaml

    from srpo.benchmarks.splits import Question
    from srpo.experiment.compose import load_experiment
    from srpo.layout import RunId
    from srpo.policy.in_process import InProcessPolicy
    from srpo.repository import CONFIGS
    from srpo.training import clock
    from srpo.training import step as steps

    torch.set_num_threads(1)
    clock.time.perf_counter = time.process_time
    steps.compute_reward = lambda kind, response, truth: coin(response)
    texts = json.loads((folder / "questions.json").read_text())
    questions = [
        Question(i, [{"role": "user", "content": text}], "", "answer_match", "peers") for i, text in enumerate(texts)
    ]
    names = {name for name, _ in METHODS.values()}
    raw = yaml.safe_load((CONFIGS / "experiments" / "embedded.yaml").read_text())
    block = {"models": ["miniature-large"], "benchmarks": ["miniature/physics"]}
    result = {}
    for title, (name, mini_batch) in METHODS.items():
        raw["matrix"] = [{**block, "methods": sorted(names)}]
        raw["overrides"] = {n: {"learning_rate": 1e-4, "mini_batch_questions": mini_batch} for n in names}
        raw["training"] |= {"questions_per_batch": QUESTIONS, "micro_batch_size": ROWS, "branch_gradients_every": 10**6}
        spec = load_experiment(raw).run(RunId(model="miniature-large", benchmark="physics", method=name, seed=1))
        policy = InProcessPolicy(spec, folder / "model")
        policy._engine._eos = -1  # no response ends early
        result[title] = []
        for number in range(1, rounds + 2):
            step = steps.Step(spec, policy, number)
            start = time.process_time()
            step.take(questions)
            total = time.process_time() - start
            spent = step.phases.wall
            result[title].append(
                {
                    "generate": spent["generate"],
                    "old log-probs": spent["log_prob"],
                    "teacher": spent["teacher"],
                    "update": spent["update"],
                    "total": total,
                }
            )
    return result


# ---------------------------------------------------------------- TRL


def run_trl(folder: Path, rounds: int) -> dict[str, Rounds]:
    """TRL's GRPO and SDPO, set to the same work."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

    torch.set_num_threads(1)
    texts = json.loads((folder / "questions.json").read_text())
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])
    batch = QUESTIONS * SAMPLES

    def reward(completions, **_) -> list[float]:
        return [coin(completion[0]["content"]) for completion in completions]

    def settings(updates: int) -> dict:
        """A generation batch of all questions, ``updates`` optimiser steps on it."""
        rows = min(ROWS, batch // updates)
        return {
            "output_dir": str(folder / "trl"),
            "per_device_train_batch_size": rows,
            "gradient_accumulation_steps": batch // updates // rows,
            "steps_per_generation": batch // rows,
            "num_generations": SAMPLES,
            "max_completion_length": RESPONSE_TOKENS,
            "generation_kwargs": {"min_new_tokens": RESPONSE_TOKENS},
            "temperature": 1.0,
            "learning_rate": 1e-4,
            "max_steps": (rounds + 1) * updates,
            "beta": 0.0,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": [],
            "logging_strategy": "no",
            "save_strategy": "no",
            "disable_tqdm": True,
            "seed": 1,
        }

    def run(trainer, updates: int, watch: Stopwatch) -> Rounds:
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
                    found.append({**seconds, "update": total - sum(seconds.values()), "total": total})
                    marks[0] = now

        trainer.add_callback(Marks())
        trainer.train()
        return found

    result = {}
    sdpo = SDPOConfig(
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
    trainer = SDPOTrainer(str(folder / "model"), reward_funcs=reward, args=sdpo, train_dataset=data)
    trainer._generate_transformers = watch.timed("generate", trainer._generate_transformers)
    trainer._compute_rollout_logps = watch.timed("old log-probs", trainer._compute_rollout_logps)
    trainer._forward_logits = watch.timed(
        lambda: None if torch.is_grad_enabled() else "teacher", trainer._forward_logits
    )
    result["SDPO"] = run(trainer, 1, watch)
    for updates in (4, 1):
        grpo = GRPOConfig(**settings(updates), epsilon_high=0.28, scale_rewards="none", loss_type="dapo")
        watch = Stopwatch()
        trainer = GRPOTrainer(str(folder / "model"), reward_funcs=reward, args=grpo, train_dataset=data)
        trainer._generate_single_turn = watch.timed("generate", trainer._generate_single_turn)
        trainer._get_per_token_logps_and_entropies = watch.timed(
            lambda: None if torch.is_grad_enabled() else "old log-probs", trainer._get_per_token_logps_and_entropies
        )
        result["GRPO, 4 updates" if updates == 4 else "GRPO, 1 update"] = run(trainer, updates, watch)
    return result


# ---------------------------------------------------------------- both


def best(rounds: Rounds) -> dict[str, float]:
    """The smallest total and the smallest of each phase; the first round warms up."""
    return {name: min(each.get(name, 0.0) for each in rounds[1:]) for name in (*PHASES, "total")}


def print_table(found: dict[str, dict[str, Rounds]]) -> None:
    """A line a method and side; ratios to TRL's total."""
    totals = {title: best(rounds)["total"] for title, rounds in found["trl"].items()}
    against = {title: title if title in totals else "SDPO" for title in METHODS}
    print(f"| CPU seconds of a round | | total | {' | '.join(PHASES)} | ratio to TRL |")
    print("| --- " * (len(PHASES) + 4) + "|")
    for side in ("trl", "here"):
        for title, rounds in found[side].items():
            seconds = best(rounds)
            ratio = f"{seconds['total'] / totals[against[title]]:.2f}" if side == "here" else ""
            cells = " | ".join(f"{seconds[phase]:.2f}" if seconds[phase] else "-" for phase in PHASES)
            other = f" ({against[title]})" if side == "here" and against[title] != title else ""
            print(f"| {title} | {side} | {seconds['total']:.2f} | {cells} | {ratio}{other} |")


def main() -> None:
    """Run both sides in turn, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a Python with TRL (envs/peers.txt)")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="rounds a method that count, in each pass")
    parser.add_argument("--side", choices=("here", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = {"here": run_here, "trl": run_trl}[options.side]
        result = run(options.folder, options.rounds)
        (options.folder / f"{options.side}.json").write_text(json.dumps(result))
        return
    pythons = {"here": sys.executable} | ({"trl": options.peer} if options.peer else {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_workload(folder)
        found: dict[str, dict[str, Rounds]] = {side: defaultdict(list) for side in ("trl", "here")}
        for _ in range(options.passes):
            for side, python in pythons.items():
                command = [python, __file__, "--side", side, "--folder", folder, "--rounds", str(options.rounds)]
                environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
                subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
                for title, rounds in json.loads((folder / f"{side}.json").read_text()).items():
                    found[side][title] += rounds if not found[side][title] else rounds[1:]
        print_table(found)


if __name__ == "__main__":
    main()
