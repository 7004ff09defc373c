"""The interface of everything that samples responses, shaped after SGLang's.

Each sample has its own seed: a server that is given one seed and ``n`` samples returns the same
sample ``n`` times.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from srpo.ground.errors import SrpoError

MAX_RESTARTS = 3
"""How often failed rollout servers are started again before the next step, or evaluation, is finished."""


class ServersFailed(SrpoError):
    """The rollout servers have died or do not work: what failed is repeated with new ones.

    Attributes:
        can_checkpoint: whether the workers that train the weights are unharmed, so that they can still write one.
    """

    def __init__(self, message: str, can_checkpoint: bool = False) -> None:
        super().__init__(message)
        self.can_checkpoint = can_checkpoint


@dataclass(frozen=True)
class SamplingParams:
    """How to sample."""

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0


@dataclass(frozen=True)
class Completion:
    """One sampled response.

    Attributes:
        token_ids: the response; its last token is the end of sequence when ``finish_reason`` is "stop".
        log_probs: natural logarithm of each token's probability in the temperature-scaled distribution,
            before the top-p cut; as long as ``token_ids``.
        finish_reason: "stop" after an end-of-sequence token, "length" after ``max_new_tokens`` without one.
    """

    token_ids: list[int]
    log_probs: list[float]
    finish_reason: Literal["stop", "length"]


class RolloutEngine(Protocol):
    """A model that can be sampled from."""

    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        """Sample ``len(seeds[i])`` responses to prompt ``i``; a sample depends on its prompt and seed only."""
        ...
