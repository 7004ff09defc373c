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

    The names are also those of the engine's outputs. The top-K ids themselves stay on the worker
    (``policy/kept_scores.py``).

    Attributes:
        log_probs: [response] log pi_old(y_t).
        top_k_mass: [response] probability of the K most likely tokens at each position.
        argmax_ids: [response] the most likely token at each position.
    """

    log_probs: dict[int, Float[Tensor, " _"]]
    top_k_mass: dict[int, Float[Tensor, " _"]]
    argmax_ids: dict[int, Int64[Tensor, " _"]]


@dataclass(frozen=True)
class TeacherScores:
    """The teacher's view of the rollouts that it scores, by rollout. The names are also those of the engine's outputs.

    Its distributions stay on the worker (``policy/kept_scores.py``).

    Attributes:
        log_probs: [response] log q(y_t).
        entropy: [response] H_t in nats, over the full vocabulary.
        argmax_ids: [response] the most likely token at each position.
        top_k_mass: [response] probability of the student's top-K tokens; empty where they are not known before the
            update.
        divergence: [response] D_t at the start of the batch; empty unless the weights preserve the loss scale.
    """

    log_probs: dict[int, Float[Tensor, " _"]]
    entropy: dict[int, Float[Tensor, " _"]]
    argmax_ids: dict[int, Int64[Tensor, " _"]]
    top_k_mass: dict[int, Float[Tensor, " _"]] = field(default_factory=dict)
    divergence: dict[int, Float[Tensor, " _"]] = field(default_factory=dict)
