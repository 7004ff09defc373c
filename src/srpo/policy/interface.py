"""The interface of a policy, which both drivers implement."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from tensordict import TensorDict

from srpo.cost import ModelCost
from srpo.rollout.interface import RolloutEngine


class Policy(Protocol):
    """The student and its self-teacher.

    Attributes:
        tokenizer: the model's.
        cost: the FLOPs of a forward pass.
    """

    tokenizer: Any
    cost: ModelCost

    def sampling(self) -> AbstractContextManager[RolloutEngine]:
        """A rollout engine with the current weights, for the duration of the context."""
        ...

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass before the update (``pass_name`` "old_log_prob" of the engine)."""
        ...

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass (``pass_name`` "teacher")."""
        ...

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """One optimizer step per mini-batch, each followed by the teacher's."""
        ...

    def compute_gradient_norm(self, batch: TensorDict) -> TensorDict:
        """The gradient norm that an update with one mini-batch would have; nothing is updated."""
        ...

    def save_checkpoint(self, folder: Path, step: int) -> None:
        """Write weights, optimizer, schedule and teacher below ``folder``."""
        ...

    def save_weights(self, folder: Path) -> None:
        """Write what evaluation needs below ``folder``: the weights, in Hugging Face format."""
        ...

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what :meth:`save_checkpoint` wrote."""
        ...
