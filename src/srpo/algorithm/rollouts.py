"""The rollouts of a step, and the teacher's log-probs of them."""

from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of one step; the rollouts of a question are adjacent.

    Attributes:
        question: index of the question within the step.
        prompts, responses: token ids per rollout.
        texts: decoded responses, for the teacher's prompts and the logs.
        rollout_log_probs: float32 per rollout, as the rollout engine returned them.
        rewards: float32 in {0, 1}.
        in_format: whether a response has an answer that its reward can read; None if the reward does not tell.
        truncated: no end of sequence within the length limit.
    """

    question: Int64[Tensor, " rollouts"]
    prompts: list[Int64[Tensor, " _"]]
    responses: list[Int64[Tensor, " _"]]
    texts: list[str]
    rollout_log_probs: list[Float[Tensor, " _"]]
    rewards: Float[Tensor, " rollouts"]
    in_format: list[bool | None]
    truncated: Bool[Tensor, " rollouts"]

    def __len__(self) -> int:
        return len(self.responses)

    @property
    def correct(self) -> Bool[Tensor, " rollouts"]:
        """c_i: which rollouts are correct."""
        return self.rewards == 1


@dataclass(frozen=True)
class TeacherLogProbs:
    """What the teacher's pass computes, by rollout; named as the engine's outputs.

    Its distributions stay on the worker (``policy/worker.py``).

    Attributes:
        log_probs: [response] log q(y_t).
        entropy: [response] H_t in nats, over the full vocabulary.
        divergence: [response] D_t at the start of the batch; empty unless the weights preserve the loss scale.
    """

    log_probs: dict[int, Float[Tensor, " _"]] = field(default_factory=dict)
    entropy: dict[int, Float[Tensor, " _"]] = field(default_factory=dict)
    divergence: dict[int, Float[Tensor, " _"]] = field(default_factory=dict)
