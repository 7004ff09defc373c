"""SRPO in TRL 1.16, on the demo's base model and questions. It needs the clone, and not verl; it writes to results/trl.
On a CPU it takes some minutes.

python -m pip install -e '.[trl]'
python examples/trl_trainer.py
"""

from pathlib import Path

from datasets import Dataset

from srpo.experiment.compose import experiment_file, load_experiment
from srpo.hosts.trl import SRPOConfig, SRPOTrainer
from srpo.questions.rewards import compute_reward
from srpo.starts import build_model
from srpo.starts.data import build_split


def is_right(completions: list, truth: list, **_: object) -> list[float]:
    """1 for a right answer; ``truth`` is a column of the questions."""
    pairs = zip(completions, truth, strict=True)
    return [compute_reward("answer_match", response[0]["content"], right) for response, right in pairs]


def main(folder: Path = Path("results/trl"), batches: int = 20, seed: int = 2) -> list[float]:
    """The mean reward of each batch: 8 questions with 8 rollouts, for four updates. Noisy; base model 2 learns."""
    experiment = load_experiment(experiment_file("demo"))
    base = experiment.models["miniature-large"].base_model(seed)
    build_model(base, folder / "model", {})
    questions = build_split(experiment.benchmarks["physics"].for_model(base), "train")
    data = Dataset.from_list([{"prompt": each.messages, "truth": each.ground_truth} for each in questions])
    sizes = {"per_device_train_batch_size": 16, "steps_per_generation": 4, "num_generations": 8}
    of_the_toy = {"learning_rate": 3e-4, "warmup_steps": 12, "lr_scheduler_type": "constant_with_warmup"}
    where = {"report_to": [], "save_strategy": "no", "logging_steps": 4, "use_cpu": True, "bf16": False}
    lengths = {"max_completion_length": 80, "max_steps": 4 * batches}
    args = SRPOConfig(str(folder), method="srpo", seed=seed, **sizes, **of_the_toy, **lengths, **where)
    trainer = SRPOTrainer(str(folder / "model"), reward_funcs=is_right, args=args, train_dataset=data)
    trainer.train()
    history = trainer.state.log_history
    return [entry["self_distillation/reward_mean"] for entry in history if "routing/sdpo_fraction" in entry]


if __name__ == "__main__":
    print(main())
