"""The interface of a policy, and the calls that both drivers pass on to their workers."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tensordict import TensorDict

from srpo.experiment.flops import ModelCost
from srpo.rollout.interface import RolloutEngine


class Policy(ABC):
    """The student and its self-teacher.

    Attributes:
        tokenizer: the model's.
        cost: the FLOPs of a forward pass.
        worker: a :class:`srpo.policy.worker.SRPOWorker`, or verl's group of them. All must see the folders below.
    """

    tokenizer: Any
    cost: ModelCost
    worker: Any

    @abstractmethod
    def sampling(self) -> AbstractContextManager[RolloutEngine]:
        """A rollout engine with the current weights, for the duration of the context."""

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass before the update (``pass_name`` "old_log_prob" of the engine)."""
        return self.worker.compute_log_prob(batch)

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass (``pass_name`` "teacher")."""
        return self.worker.compute_teacher_log_prob(batch)

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """One optimizer step per mini-batch, each followed by the teacher's."""
        return self.worker.update_actor(batch)

    def compute_gradient_norm(self, batch: TensorDict) -> TensorDict:
        """The gradient norm that an update with one mini-batch would have; nothing is updated."""
        return self.worker.compute_gradient_norm(batch)

    def save_checkpoint(self, folder: Path, step: int) -> None:
        """Write weights, optimizer, schedule and teacher below ``folder``."""
        self.worker.save_checkpoint(str(folder.absolute()), None, step)

    def save_weights(self, folder: Path) -> None:
        """Write what evaluation needs below ``folder``: the weights, in Hugging Face format."""
        self.worker.save_weights(str(folder.absolute()))

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what :meth:`save_checkpoint` wrote."""
        self.worker.load_checkpoint(str(folder.absolute()))
