"""SRPO in TRL 1.16, on the toy's base model and questions, which ``make demo`` leaves in results/demo.

python examples/trl_trainer.py results/demo/models/miniature-large-1 results/demo/data/physics-facts1/train.parquet
"""

import sys

from datasets import Dataset

from srpo.rewards import compute_reward
from srpo.trl import SRPOConfig, SRPOTrainer


def is_right(completions: list, reward_model: list, **_: object) -> list[float]:
    """1 for a right answer; ``reward_model`` is a column of the questions."""
    pairs = zip(completions, reward_model, strict=True)
    return [compute_reward("answer_match", response[0]["content"], truth["ground_truth"]) for response, truth in pairs]


def main(model: str, questions: str, batches: int = 20, seed: int = 1) -> list[float]:
    """The mean reward of each batch: 8 questions with 8 rollouts, for four updates."""
    sizes = {"per_device_train_batch_size": 16, "steps_per_generation": 4, "num_generations": 8}
    of_the_toy = {"learning_rate": 3e-4, "warmup_steps": 12, "lr_scheduler_type": "constant_with_warmup"}
    where = {"report_to": [], "save_strategy": "no", "logging_steps": 4, "use_cpu": True, "bf16": False}
    lengths = {"max_completion_length": 80, "max_steps": 4 * batches}
    args = SRPOConfig("results/trl", method="srpo", seed=seed, **sizes, **of_the_toy, **lengths, **where)
    data = Dataset.from_parquet(questions)
    trainer = SRPOTrainer(model, reward_funcs=is_right, args=args, train_dataset=data)
    trainer.train()
    history = trainer.state.log_history
    return [entry["self_distillation/reward_mean"] for entry in history if "routing/sdpo_fraction" in entry]


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
