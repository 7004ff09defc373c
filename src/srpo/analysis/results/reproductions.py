"""What others measured on the paper's benchmarks: ``reports/reference/reproductions.csv``, copied by hand.

One row per score. Columns; an empty field is unknown or does not apply:

- ``source``, ``reference`` (arXiv id or repository), ``document``, ``run``: where the number is from.
- ``model``; ``method``: base, grpo, sdpo or srpo, as the source calls it; ``paper_method``: ``no`` if it is not the
  paper's method of this name.
- ``benchmark``: one of the paper's five, or another one that was measured with a method called SRPO.
- ``when``: ``base``; the ``best`` validation of the run, or the best within ``1h`` or ``5h`` of the source's clock;
  or the ``last`` one; ``short``: of a run of less than 150 steps. ``steps`` of the run; ``score`` in percent.
- ``learning_rate``, ``updates_per_step``; ``seeds`` behind the score; ``collapse``: what broke in the run, by its
  source; ``caveat``.
- ``added``: the day when the row was copied; ``read``: in the ``source`` itself, or ``second-hand``.
"""

from functools import cache
from typing import Any

import pandas as pd

from srpo.analysis.results.matrix import AVERAGE
from srpo.analysis.results.paper import paper_splits
from srpo.repository import REFERENCE

NUMBERS: dict[str, Any] = {
    "steps": "Int64",
    "score": float,
    "learning_rate": float,
    "updates_per_step": "Int64",
    "seeds": "Int64",
}
SERIES = ["source", "reference", "run", "model", "method", "when"]
"""What rows have in common whose mean over the five benchmarks is an average."""


def reproductions() -> pd.DataFrame:
    """All rows; text that is not there is empty, numbers that are not there are missing."""
    return _read().copy()


def averages(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean score over the paper's five benchmarks of each series that has them all, with ``benchmark`` average."""
    names = set(paper_splits()["benchmark"])
    five = rows[rows["benchmark"].isin(names)]
    complete = five.groupby(SERIES, sort=False).filter(lambda series: set(series["benchmark"]) == names)
    means = complete.groupby(SERIES, sort=False, as_index=False).agg({"score": "mean"})
    settings = ["paper_method", "steps", "learning_rate", "updates_per_step", "seeds"]
    return means.merge(complete.drop_duplicates(SERIES)[[*SERIES, *settings]]).assign(benchmark=AVERAGE)


@cache
def _read() -> pd.DataFrame:
    rows = pd.read_csv(REFERENCE / "reproductions.csv", dtype=str, keep_default_na=False)
    return rows.assign(**{name: pd.to_numeric(rows[name]) for name in NUMBERS}).astype(NUMBERS)
