"""The settings that the method's functions read; ``srpo.config.Method`` and ``Routing`` implement them. No torch."""

from typing import Protocol, runtime_checkable

LOGITS_CHUNK = 2**26
"""Number of logits converted to float32 at a time (``distribution.py``); the plan counts their memory."""


@runtime_checkable
class RoutingTable(Protocol):
    """Which branch a rollout takes (table 7).

    Attributes:
        branches: names for rollouts that are correct with a correct sibling, correct without, wrong with, and wrong
            without.
    """

    @property
    def branches(self) -> tuple[str, ...]: ...


@runtime_checkable
class Settings(Protocol):
    """Hyperparameters (table 3)."""

    @property
    def routing(self) -> RoutingTable: ...

    @property
    def clip_ratio_low(self) -> float: ...

    @property
    def clip_ratio_high(self) -> float: ...

    @property
    def clip_ratio_c(self) -> float: ...

    @property
    def rollout_is_threshold(self) -> float: ...

    @property
    def divergence_alpha(self) -> float: ...

    @property
    def distillation_is_threshold(self) -> float: ...

    @property
    def entropy_beta(self) -> float: ...

    @property
    def preserve_loss_scale(self) -> bool: ...

    @property
    def mix_lambda(self) -> float: ...

    @property
    def kl_coef(self) -> float: ...
