"""Our questions that were tested, for each model."""

import pandas as pd

from srpo.analysis.figures.forest import CAPTION, differences, draw
from srpo.analysis.results import Results

__all__ = ["CAPTION", "TITLE", "data", "draw"]

TITLE = "Our questions"


def data(results: Results) -> pd.DataFrame:
    return differences(results, lambda claim: claim.ours)
