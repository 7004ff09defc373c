"""The rollouts of a step, and their scores under student and teacher."""

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
        truncated: no end of sequence within the length limit.
    """

    question: Int64[Tensor, " rollouts"]
    prompts: list[Int64[Tensor, " _"]]
    responses: list[Int64[Tensor, " _"]]
    texts: list[str]
    rollout_log_probs: list[Float[Tensor, " _"]]
    rewards: Float[Tensor, " rollouts"]
    truncated: Bool[Tensor, " rollouts"]

    def __len__(self) -> int:
        return len(self.responses)


@dataclass(frozen=True)
class StudentScores:
    """The student's view before the update, by rollout; all but ``log_probs`` only where the teacher scores too.

    The names are also those of the engine's outputs.

    Attributes:
        log_probs: [response] log pi_old(y_t).
        top_k_ids: [response, K] the most likely tokens at each position, best first.
        top_k_mass: [response] their probability.
        top_k_log_probs: [response, K + 1] log p of these tokens and the tail; empty unless requested.
    """

    log_probs: dict[int, Float[Tensor, " _"]]
    top_k_ids: dict[int, Int64[Tensor, "_ _"]]
    top_k_mass: dict[int, Float[Tensor, " _"]]
    top_k_log_probs: dict[int, Float[Tensor, "_ _"]] = field(default_factory=dict)

    @property
    def argmax_ids(self) -> dict[int, Tensor]:
        """[response] int64 the most likely token at each position."""
        return {row: ids[:, 0] for row, ids in self.top_k_ids.items()}


@dataclass(frozen=True)
class TeacherScores:
    """The teacher's view of the rollouts that it scores, by rollout. The names are also those of the engine's outputs.

    Attributes:
        log_probs: [response] log q(y_t).
        entropy: [response] H_t in nats, over the full vocabulary.
        top_k_log_probs: [response, K + 1] log q of the student's top-K tokens and the tail.
        argmax_ids: [response] the most likely token at each position.
        vocabulary_log_probs: [response, vocabulary] log q, where the student's top K is not known before the update;
            ``top_k_log_probs`` and ``argmax_ids`` are empty then.
    """

    log_probs: dict[int, Float[Tensor, " _"]]
    entropy: dict[int, Float[Tensor, " _"]]
    top_k_log_probs: dict[int, Float[Tensor, "_ _"]]
    argmax_ids: dict[int, Int64[Tensor, " _"]] = field(default_factory=dict)
    vocabulary_log_probs: dict[int, Float[Tensor, "_ _"]] = field(default_factory=dict)
