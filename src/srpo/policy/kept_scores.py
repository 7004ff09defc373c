"""Scores that stay on the worker that computed them: the student's top-K ids and the teacher's distributions.

They are large, 1.2 kB for each token that the teacher scores at K = 100, and only workers read them. So a step gives
each rollout to one rank for all of its passes (``batches.assign_ranks``): the pass that computes such scores keeps
them, and a later pass finds them where they are. A batch names the rollouts in its entry ``kept``
(``batches.kept_entry``).
"""

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from srpo.policy.batches import NOT_KEPT, jagged_of_parts, split_row

KEPT = {"top_k_ids": torch.int64, "student_log_probs": torch.float32, "teacher_log_probs": torch.float32}
"""Outputs of the engine's passes that stay on the worker, and their types."""


class KeptScores:
    """One rank's scores of the rollouts of one step, in host memory."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._scores: dict[str, dict[int, Tensor]] = {}

    def keep(self, data: TensorDict, output: TensorDict) -> None:
        """Take the scores out of the output of a pass; those of an earlier step are forgotten.

        Args:
            data: the batch of the pass.
        """
        self._forget_other_steps(data)
        for name in [name for name in KEPT if name in output]:
            flat, scores = output.pop(name), self._scores.setdefault(name, {})
            rows = flat.values().split(flat.offsets().diff().tolist())
            for lengths, row in zip(kept_lengths(data), rows, strict=True):
                scores |= split_row(row, lengths)

    def add(self, data: TensorDict, name: str, fillers: bool = False) -> None:
        """Add the kept scores of the batch's rollouts to the batch, as an entry of flat rows.

        Args:
            fillers: give rows without rollouts, which have one token, ids to be scored at.

        Raises:
            RuntimeError: if this rank has not kept the scores of a rollout.
        """
        self._forget_other_steps(data)
        scores, by_row = self.of(name), kept_lengths(data)
        if lost := {rollout for lengths in by_row for rollout in lengths} - scores.keys():
            raise RuntimeError(f"step {self._step}: this rank has no {name} of rollouts {sorted(lost)}")
        rows = [[scores[rollout] for rollout in lengths] for lengths in by_row]
        if fillers:
            rollout, length = next((item for lengths in by_row for item in lengths.items()), (None, 1))
            columns = 1 if rollout is None else len(scores[rollout]) // length
            rows = [row or [torch.arange(columns)] for row in rows]
        data[name] = jagged_of_parts(rows, KEPT[name])

    def of(self, name: str) -> dict[int, Tensor]:
        """[tokens * columns] scores by rollout; empty where there are none."""
        return self._scores.get(name, {})

    def _forget_other_steps(self, data: TensorDict) -> None:
        step = tu.get_non_tensor_data(data, "step", default=None)
        if step != self._step:
            self._step, self._scores = step, {}


def kept_lengths(data: TensorDict) -> list[dict[int, int]]:
    """For each row of a batch, its rollouts whose scores are kept, and the tokens of their responses."""
    return [
        {rollout: length for rollout, length in zip(own.tolist(), lengths.tolist(), strict=True) if rollout != NOT_KEPT}
        for own, lengths in zip(data["kept"].unbind(), data["response_lengths"].unbind(), strict=True)
    ]
