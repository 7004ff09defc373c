"""Multiple testing, and equivalence tests.

If many null hypotheses are true, some of them look significant. So the primary claims are decided together by Holm's
procedure (1979): the probability of any false "holds" among them is at most ``ALPHA``, one-sided. An interval that
contains 0 does not show that two methods are equal. Two one-sided tests show it (TOST; Schuirmann 1987): the difference
is above minus a margin and below the margin.
"""

from collections.abc import Sequence

import numpy as np

from srpo.analysis.results.estimates import Estimate

ALPHA = 0.025
"""One-sided level of a verdict: the side of a 95 % interval."""


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values, in the order given.

    Args:
        p_values: one per claim decided together; NaN for a claim that was not tested, which does not count.

    Returns:
        Adjusted values, comparable with the level of all together; NaN stays.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted


def equivalence_p(estimate: Estimate, margin: float) -> float:
    """P-value against "the truth differs from 0 by ``margin`` or more" (TOST); NaN without an interval.

    Raises:
        ValueError: unless the margin is above 0.
    """
    if not margin > 0:
        raise ValueError(f"margin {margin} of an equivalence: it must be above 0")
    return max(estimate.p_above(-margin), estimate.p_below(margin))
