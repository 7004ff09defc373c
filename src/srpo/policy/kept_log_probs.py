"""Log-probs that stay on the worker that computed them: the teacher's distributions, and the student's top-K ids.

They are large, 1.2 kB for each token of the teacher's pass at K = 100, and only workers read them. So a step gives
each rollout to one rank for all of its passes (``placement.py``): the pass that computes them keeps them, and a later
pass finds them where they are. A batch names the rollouts in its entry ``kept`` (``batches.kept_entry``).
"""

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from srpo.policy.batches import NOT_KEPT, jagged_of_parts, split_row

KEPT = {"top_k_ids": torch.int64, "student_log_probs": torch.float32, "teacher_log_probs": torch.float32}
"""Outputs of the engine's passes that stay on the worker, and their types."""


class KeptLogProbs:
    """One rank's log-probs and ids of the rollouts of one step, in host memory."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._kept: dict[str, dict[int, Tensor]] = {}

    def keep(self, data: TensorDict, output: TensorDict) -> None:
        """Take what stays here out of the output of a pass, and forget what an earlier step left."""
        self._forget_other_steps(data)
        for name in [name for name in KEPT if name in output]:
            flat, found = output.pop(name), self._kept.setdefault(name, {})
            rows = flat.values().split(flat.offsets().diff().tolist())
            for lengths, row in zip(kept_lengths(data), rows, strict=True):
                found |= split_row(row, lengths)

    def add(self, data: TensorDict, name: str, fillers: bool = False) -> None:
        """Add what is kept of the batch's rollouts to the batch, as an entry of flat rows.

        Args:
            fillers: give rows without rollouts, which have one token, ids of the teacher's pass.
        """
        self._forget_other_steps(data)
        kept, by_row = self.of(name), kept_lengths(data)
        if lost := {rollout for lengths in by_row for rollout in lengths} - kept.keys():
            raise RuntimeError(f"step {self._step}: this rank has no {name} of rollouts {sorted(lost)}")
        rows = [[kept[rollout] for rollout in lengths] for lengths in by_row]
        if fillers:
            rollout, length = next((item for lengths in by_row for item in lengths.items()), (None, 1))
            columns = 1 if rollout is None else len(kept[rollout]) // length
            rows = [row or [torch.arange(columns)] for row in rows]
        data[name] = jagged_of_parts(rows, KEPT[name])

    def of(self, name: str) -> dict[int, Tensor]:
        """[tokens * columns] by rollout; empty if nothing is kept."""
        return self._kept.get(name, {})

    def _forget_other_steps(self, data: TensorDict) -> None:
        step = tu.get_non_tensor_data(data, "step", default=None)
        if step != self._step:
            self._step, self._kept = step, {}


def kept_lengths(data: TensorDict) -> list[dict[int, int]]:
    """For each row of a batch: tokens of the response, by rollout, of the rollouts whose log-probs are kept."""
    return [
        {rollout: length for rollout, length in zip(own.tolist(), lengths.tolist(), strict=True) if rollout != NOT_KEPT}
        for own, lengths in zip(data["kept"].unbind(), data["response_lengths"].unbind(), strict=True)
    ]
