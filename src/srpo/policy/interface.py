"""The interface of a policy: the calls that both drivers pass on to their workers, and the metrics of an update."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from srpo.experiment.flops import ModelCost
from srpo.rollout.interface import RolloutEngine


class Policy(ABC):
    """The student and its self-teacher.

    Attributes:
        tokenizer: the model's.
        cost: the FLOPs of a forward pass.
        positions: tokens of the longest sequence that the model was made for.
        worker: a :class:`srpo.policy.worker.SRPOWorker`, or verl's group of them. All must see the folders below.
    """

    tokenizer: Any
    cost: ModelCost
    positions: int
    worker: Any

    @abstractmethod
    def sampling(self) -> AbstractContextManager[RolloutEngine]:
        """A rollout engine with the current weights, for the duration of the context."""

    def warm_up(self) -> None:  # noqa: B027  nothing in one process
        """Do what only the first request to a rollout engine takes, before the clock starts."""

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass before the update (``pass_name`` "old_log_prob" of the engine)."""
        return self.worker.compute_log_prob(batch)

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass (``pass_name`` "teacher")."""
        return self.worker.compute_teacher_log_prob(batch)

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """One optimizer step per mini-batch; the teacher moves as its kind says, by default after the last."""
        return self.worker.update_actor(batch)

    def save_checkpoint(self, folder: Path, step: int) -> None:
        """Write weights, optimizer, schedule and teacher below ``folder``."""
        self.worker.save_checkpoint(str(folder.absolute()), None, step)

    def save_weights(self, folder: Path) -> None:
        """Write what evaluation needs below ``folder``: the weights, in Hugging Face format."""
        self.worker.save_weights(str(folder.absolute()))

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what :meth:`save_checkpoint` wrote."""
        self.worker.load_checkpoint(str(folder.absolute()))


DEVICE_MEMORY = {
    "perf/device_memory_gb": torch.max,
    "perf/device_memory_reserved_gb": torch.max,
    "perf/device_memory_free_gb": torch.min,
}
"""GiB of the GPU with the least free memory: peak allocated and reserved by the trainer, and free after an update.

Not logged on CPUs."""


def update_metrics(output: TensorDict) -> dict[str, float]:
    """Means over a step's updates, from the output of ``update_actor``; for metrics per token, ratios of sums."""
    values = {name: torch.tensor(per_update, dtype=torch.float64) for name, per_update in _numbers(output).items()}
    metrics = {name: value.mean().item() for name, value in values.items() if name.startswith("loss/")}
    metrics["loss/total"] = sum(metrics.values())
    metrics["actor/grad_norm"] = values["grad_norm"].mean().item()
    metrics["actor/skipped_updates"] = (~values["grad_norm"].isfinite()).sum().item()
    metrics["actor/learning_rate"] = values["lr"][-1].item()
    for name, worst in DEVICE_MEMORY.items():
        if name in values:
            metrics[name] = worst(values[name]).item()
    for name, total, count in (
        ("loss/divergence", "sum/divergence", "sum/distilled_tokens"),
        ("actor/clip_fraction", "sum/clipped_tokens", "sum/policy_tokens"),
        ("actor/rollout_is_weight", "sum/rollout_is_weight", "sum/trained_tokens"),
        ("rollout_corr/log_prob_rms", "sum/log_prob_difference_squared", "sum/trained_tokens"),
    ):
        if {total, count} <= values.keys() and values[count].sum() > 0:
            metrics[name] = (values[total].sum() / values[count].sum()).item()
    if "rollout_corr/log_prob_rms" in metrics:
        metrics["rollout_corr/log_prob_rms"] **= 0.5
    return metrics


def _numbers(output: TensorDict) -> dict[str, list[float]]:
    names = ("loss/", "sum/", "grad_norm", "lr", "perf/device_")
    metrics = {name: value for name, value in tu.get(output, "metrics").items() if name.startswith(names)}
    return {name: [value] if isinstance(value, float) else [float(v) for v in value] for name, value in metrics.items()}
