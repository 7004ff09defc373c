"""The teacher of a trust region (SDPO, appendix A.1): two models whose next-token distributions are mixed."""

from typing import Any

import torch
from torch import nn


class TrustRegionModel(nn.Module):
    """A frozen and a live model as one, without gradients.

    Logits are log-probs up to a constant at each position, so their mixture is the logits of
    ``q_frozen^(1 - share) q_live^share / Z``, whatever is then computed from it: top K, tail, entropy. The mixture has
    the precision of the models' own logits. It overwrites the frozen model's.

    Args:
        share: of the live model, in [0, 1]. At 0 the logits are the frozen model's, at 1 the live one's, bit for bit.
    """

    def __init__(self, frozen: nn.Module, live: nn.Module, share: float) -> None:
        super().__init__()
        self.frozen, self.live, self.share = frozen, live, share

    @torch.no_grad()
    def forward(self, **inputs: Any) -> Any:
        """The frozen model's output with the mixed logits."""
        output = self.frozen(**inputs)
        output.logits.lerp_(self.live(**inputs).logits, self.share)
        return output
