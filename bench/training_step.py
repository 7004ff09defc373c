"""Measures seconds and tokens of a training step by phase, for every method, on one core.

    OMP_NUM_THREADS=1 python bench/training_step.py results/embedded

The script takes splits and base model from a finished experiment and trains physics at the larger size for a few steps
with the paper's 32 x 8 rollouts. Ratios are to GRPO in the same process.
"""

import os
import sys
import tempfile
from pathlib import Path

import yaml

from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events
from srpo.ground.layout import Layout, RunId
from srpo.ground.repository import CONFIGS
from srpo.training import loop

METHODS = ("grpo", "sdpo", "srpo", "srpo_without_weighting", "advantage_mix")
STEPS = 8
QUESTIONS = 32


def experiment() -> dict:
    """The embedded experiment, cut to one benchmark and a few large steps."""
    raw = yaml.safe_load((CONFIGS / "experiments" / "embedded.yaml").read_text())
    raw["matrix"] = [{"models": ["miniature-large"], "benchmarks": ["miniature/physics"], "methods": list(METHODS)}]
    for name, values in raw["overrides"].items():
        values["mini_batch_questions"] = QUESTIONS // 4 if name == "grpo" else QUESTIONS
    raw["training"] |= {
        "questions_per_batch": QUESTIONS,
        "validate_every": STEPS,
        "max_steps": STEPS,
        "budget_seconds": {"1h": 1e9},
    }
    return raw


def main(results: Path) -> None:
    """Train each method and print the mean of all steps but the first."""
    resolved, base = load_experiment(experiment()), None
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        layout = Layout(Path(folder) / "bench")
        layout.folder.mkdir()
        for part in ("data", "models"):
            (layout.folder / part).symlink_to((results / part).absolute())
        for method in METHODS:
            run = RunId(model="miniature-large", benchmark="physics", method=method, seed=1)
            loop.train(resolved.run(run), layout)
            events = list(read_events(layout.run(run) / "steps.jsonl"))[1:]
            seconds = sum(event["wall_seconds"] for event in events) / len(events)
            base = base or seconds
            tokens = {
                phase: sum(event["phase_tokens"].get(phase, 0) for event in events) // len(events)
                for phase in events[0]["phase_tokens"]
            }
            print(f"{method:24}{seconds:6.2f} s a step {seconds / base:6.2f} x grpo   tokens {tokens}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
