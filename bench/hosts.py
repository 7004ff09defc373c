"""Trains SRPO from the same base model here and in TRL (``srpo.hosts.trl``); compares rewards and final scores.

    make test-trl   # leaves TRL in .venv/trl
    python bench/hosts.py miniature --trl .venv/trl
    python bench/hosts.py smollm2 --trl .venv/trl --seeds 1 --run results/real-cpu-spelling/runs/.../srpo/seed2

Both sides have the same questions in the same order, hyperparameters, prompts and rewards, and one program computes the
final scores. They differ in how a seed makes samples; TRL warms up by update, ours by batch; TRL decays no norms and
reads the top K from the student of each update, ours from that before the batch's first.

Writes ``bench/hosts.csv``: the mean reward of each training step, and of the test questions in the line of step
``test``, in percent. Prints, of each side, means over runs, and the standard deviation between runs that differ by the
seed of their samples only.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srpo.experiment.config import RunSpec

TASKS = {
    "miniature": ("embedded", "miniature-large", "physics", [1, 2, 3], 40, "float32"),
    "smollm2": ("real-cpu-spelling", "smollm2-135m-spelling", "spell_short_backward", [2], 10, "bfloat16"),
}
"""Experiment, model, benchmark, seeds of the base model, steps, precision."""

SIDES = ("here", "trl")
TABLE = Path(__file__).with_suffix(".csv")


def run_of(task: str, base: int, seed: int) -> RunSpec:
    """The run of the experiment, with its own base model and facts, and another seed of its samples."""
    from srpo.experiment.compose import experiment_file, load_experiment
    from srpo.ground.layout import RunId

    experiment, model, benchmark, _, _, precision = TASKS[task]
    loaded = load_experiment(experiment_file(experiment))
    spec = loaded.run(RunId(model=model, benchmark=benchmark, method="srpo", seed=base))
    return spec.model_copy(
        update={
            "id": spec.id.model_copy(update={"seed": 1000 * base + seed}),
            "execution": spec.execution.model_copy(update={"precision": precision}),
        }
    )


def prepare(task: str, base: int, steps: int, folder: Path) -> None:
    """The base model, the train and test questions, and the order in which a run asks them."""
    from srpo.questions.splits import write_split
    from srpo.starts import build_model
    from srpo.starts.data import build_split
    from srpo.training.questions import questions_of_step

    spec = run_of(task, base, 0)
    for split in ("train", "test"):
        write_split(folder / f"{split}.parquet", build_split(spec.benchmark, split), split)
    build_model(spec.model, folder / "model", {spec.benchmark.data_set: folder / "train.parquet"})
    questions, per_batch = build_split(spec.benchmark, "train"), spec.training.questions_per_batch
    order = [questions_of_step(step + 1, len(questions), per_batch, base) for step in range(steps)]
    (folder / "order.json").write_text(json.dumps(order))


def questions_of(folder: Path, split: str) -> list:
    from srpo.questions.splits import read_split

    return read_split(folder / f"{split}.parquet")


def show(rewards: list[float]) -> None:
    print(
        f"step {len(rewards)}: reward {rewards[-1]:.3f}, {time.process_time():.0f} CPU s", file=sys.stderr, flush=True
    )


# ---------------------------------------------------------------- here


def train_here(spec: RunSpec, folder: Path) -> list[float]:
    """Mean rewards; saves the last weights."""
    from srpo.policy.in_process import InProcessPolicy
    from srpo.training.step import Step

    policy, questions = InProcessPolicy(spec, folder / "model"), questions_of(folder, "train")
    rewards = []
    for number, chosen in enumerate(json.loads((folder / "order.json").read_text()), 1):
        batch, _ = Step(spec, policy, number).take(lambda _, chosen=chosen: [questions[i] for i in chosen])
        rewards.append(batch.rollouts.rewards.mean().item())
        show(rewards)
    policy.save_weights(folder / "here")
    return rewards


def finished(run: Path, steps: int) -> tuple[list[float], float]:
    """Mean rewards of a run that has been trained, and its validation after the last of these steps."""
    events = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    tests = [json.loads(line) for line in (run / "validations.jsonl").read_text().splitlines()]
    (test,) = (each["avg_at_k"] for each in tests if each["step"] == steps)
    return [each["metrics"]["reward/mean"] for each in events[:steps]], 100 * test


def score(spec: RunSpec, folder: Path, side: str) -> float:
    """Percent of the test questions right, of one side's last weights."""
    from srpo.ground.layout import WEIGHTS
    from srpo.policy.in_process import InProcessPolicy
    from srpo.training.avg_at_k import evaluate_questions

    weights = folder / "here" / WEIGHTS if side == "here" else folder / "trl"
    policy, training = InProcessPolicy(spec, weights), spec.training
    lengths = training.max_prompt_length, training.max_response_length
    with policy.sampling() as engine:
        found = evaluate_questions(
            engine,
            policy.tokenizer,
            questions_of(folder, "test"),
            training.validation,
            *lengths,
            ("hosts", spec.id.seed),
        )
    return 100 * found.avg_at_k


# ---------------------------------------------------------------- TRL


def train_trl(spec: RunSpec, folder: Path) -> list[float]:
    """The same with TRL's trainer."""
    import torch
    from datasets import Dataset

    from srpo.hosts.trl import SRPOConfig, SRPOTrainer
    from srpo.questions.rewards import compute_reward

    torch.set_num_threads(1)
    training, method, questions = spec.training, spec.method, questions_of(folder, "train")
    order = json.loads((folder / "order.json").read_text())
    samples, rows = training.rollouts_per_question, training.micro_batch_size
    batch, update = training.questions_per_batch * samples, method.mini_batch_questions * samples
    rows = min(rows, update)
    rewards = []

    def reward(completions: list, kind: list, truth: list, **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        found = [compute_reward(*each) for each in zip(kind, texts, truth, strict=True)]
        rewards.append(statistics.fmean(found))
        show(rewards)
        return found

    args = SRPOConfig(
        str(folder / "trl"),
        method=method,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=update // rows,
        steps_per_generation=batch // rows,
        num_generations=samples,
        max_prompt_length=training.max_prompt_length,
        max_completion_length=training.max_response_length,
        max_reprompt_len=training.max_reprompt_len,
        chat_template_kwargs={"enable_thinking": False},
        temperature=training.temperature,
        weight_decay=training.weight_decay,
        warmup_steps=training.warmup_steps * batch // update,
        max_grad_norm=training.clip_grad,
        max_steps=len(order) * batch // update,
        shuffle_dataset=False,
        seed=spec.id.seed,
        use_cpu=True,
        bf16=spec.execution.precision == "bfloat16",
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    asked = [questions[i] for i in itertools.chain(*order)]
    data = [{"prompt": each.messages, "kind": each.reward, "truth": each.ground_truth} for each in asked]
    trainer = SRPOTrainer(str(folder / "model"), reward_funcs=reward, args=args, train_dataset=Dataset.from_list(data))
    trainer.train()
    shutil.copytree(folder / "model", folder / "trl", dirs_exist_ok=True)
    trainer.model.save_pretrained(folder / "trl")
    return rewards


# ---------------------------------------------------------------- both


def measure(
    task: str, base: int, seed: int, folder: Path, trl: Path, run: Path | None
) -> dict[str, tuple[list[float], float]]:
    """Rewards and the final score of each side, each in its own process: verl and TRL exclude each other."""
    steps = len(json.loads((folder / "order.json").read_text()))
    found = {} if run is None else {"here": finished(run, steps)}
    for side in SIDES:
        if side in found:
            continue
        for each in SIDES:
            shutil.rmtree(folder / each, ignore_errors=True)
        start = time.monotonic()
        answers = []
        for what in (side, f"score-{side}"):
            extra = [str(trl.resolve())] if what == "trl" else []
            paths = os.pathsep.join([*extra, *filter(None, [os.environ.get("PYTHONPATH")])])
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
            command = [sys.executable, __file__, task, "--child", what, str(base), str(seed), str(folder)]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            answers.append(json.loads((folder / "answer.json").read_text()))
        print(f"{task} {base} {seed} {side}: {time.monotonic() - start:.0f} s, test {answers[1]:.1f}", flush=True)
        found[side] = tuple(answers)
    return found


def write(task: str, rows: list[dict[str, Any]]) -> None:
    """Replace the task's lines."""
    kept = [row for row in csv.DictReader(TABLE.open()) if row["task"] != task] if TABLE.exists() else []
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["task", "base_model", "seed", "step", *SIDES], lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])


def report(task: str) -> None:
    """Of the table: means, and the deviation between seeds of one base model."""
    rows = [row for row in csv.DictReader(TABLE.open()) if row["task"] == task]
    steps = max(int(row["step"]) for row in rows if row["step"] != "test")
    last = range(steps - steps // 4 + 1, steps + 1)
    parts = {"test": {"test"}, "all steps": {*map(str, range(1, steps + 1))}, "last quarter": {*map(str, last)}}
    runs = [*dict.fromkeys((row["base_model"], row["seed"]) for row in rows)]
    print(f"{task}: {len(runs)} runs of {steps} steps a side, in percent")
    for name, wanted in parts.items():
        by_base: dict[str, dict[str, list[float]]] = {}
        for base, seed in runs:
            own = [row for row in rows if (row["base_model"], row["seed"]) == (base, seed) and row["step"] in wanted]
            for side in SIDES:
                mean = statistics.fmean(float(row[side]) for row in own)
                by_base.setdefault(base, {}).setdefault(side, []).append(mean)
        means = {side: statistics.fmean(statistics.fmean(own[side]) for own in by_base.values()) for side in SIDES}
        here, trl = (means[side] for side in SIDES)
        line = f"  {name}: here {here:.1f}, trl {trl:.1f}, trl - here {trl - here:+.1f}"
        groups = [values for own in by_base.values() for values in own.values() if len(values) > 1]
        if groups:
            variance = statistics.fmean(map(statistics.variance, groups))
            error = (variance * sum(2 / len(own["here"]) for own in by_base.values())) ** 0.5 / len(by_base)
            line += (
                f"; standard deviation between seeds {variance**0.5:.1f}, standard error of the difference {error:.1f}"
            )
        print(line)


def main() -> None:
    """Train both sides, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--trl", type=Path, help="a folder with TRL (pip install --no-deps --target)")
    parser.add_argument("--run", type=Path, help="of the task's base model: it stands for training here")
    parser.add_argument("--seeds", type=int, default=3, help="of the samples, for each base model")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, base, seed, folder = (
            options.child[0],
            int(options.child[1]),
            int(options.child[2]),
            Path(options.child[3]),
        )
        spec = run_of(options.task, base, seed)
        work = {"here": train_here, "trl": train_trl}
        answer = score(spec, folder, what.removeprefix("score-")) if "score" in what else work[what](spec, folder)
        (folder / "answer.json").write_text(json.dumps(answer))
        return
    if options.trl:
        rows: list[dict[str, Any]] = []
        _, _, _, bases, steps, _ = TASKS[options.task]
        for base in bases:
            with tempfile.TemporaryDirectory() as name:
                prepare(options.task, base, steps, Path(name))
                for seed in range(1, options.seeds + 1):
                    found = measure(options.task, base, seed, Path(name), options.trl, options.run)
                    curves = zip(*(found[side][0] for side in SIDES), strict=True)
                    values = [[100 * reward for reward in rewards] for rewards in curves]
                    names = [*range(1, len(values) + 1), "test"]
                    for step, pair in zip(names, [*values, [found[side][1] for side in SIDES]], strict=True):
                        numbers = {side: f"{value:.2f}" for side, value in zip(SIDES, pair, strict=True)}
                        rows.append({"task": options.task, "base_model": base, "seed": seed, "step": step, **numbers})
        write(options.task, rows)
    report(options.task)


if __name__ == "__main__":
    main()
