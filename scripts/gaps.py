"""What bench/gap.csv shows: how well the gap before training predicts the gain, and slopes with their picture.

    python scripts/gaps.py    # prints means, scores and slopes

A row is a base model and a benchmark (bench/gap.py).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import linregress
from scipy.stats import t as student_t

from srpo.analysis.tables.before_training import held
from srpo.ground.repository import ROOT

METHODS = {"grpo": "GRPO", "sdpo": "SDPO", "srpo": "SRPO"}
PREDICTORS = ("gap", "gap_masked", "student", "expected_gain")
ANOTHER_DOSE = {"doses": "registered", "real-doses": "real-cpu-spelling"}
"""Experiments whose models differ in the dose alone, and the one that has the same with another dose."""


def read() -> pd.DataFrame:
    """All measured pairs."""
    return pd.read_csv(ROOT / "bench" / "gap.csv")


def main() -> None:
    rows = toys(read())
    print(rows.groupby(["experiment", "benchmark"]).mean(numeric_only=True).round(1).T.to_string(), "\n")
    low, gain = rows["gap_low"], rows["gain_sdpo"]
    print(f"{len(rows)} pairs: gap above 0 in {(low > 0).sum()}, SDPO's gain above 0 in {(gain > 0).sum()}", "\n")
    for method, title in METHODS.items():
        (inside, pairs), (ours, of, width), (alone, _, wide) = (
            held(rows, method),
            left_out(rows, method),
            left_out(rows, method, by_gap=False),
        )
        print(
            f"{title}: the law's interval holds {inside} of {pairs} gains; one from the other base models {ours} of "
            f"{of}, with a half width of {width:.0f} points (without the gap {alone}, {wide:.0f})"
        )
    print()
    one_dose = rows[rows["experiment"].isin(["ablations", "registered"])]
    for name, part, by in (
        ("one dose", one_dose, ["experiment", "benchmark"]),
        ("doses", dosed(rows), ["benchmark"]),
    ):
        print(name, slopes(part, by).to_string(index=False, float_format="{:.2f}".format), "", sep="\n")


def toys(rows: pd.DataFrame) -> pd.DataFrame:
    """The pairs of toys: the others are single models, and too few for a count."""
    return rows[rows["model"].str.startswith("miniature")]


def dosed(rows: pd.DataFrame, doses: str = "doses") -> pd.DataFrame:
    """The pairs of all doses: those of the experiment ``doses`` and, with the same questions, settings and (of toys)
    tables of facts, of ``ANOTHER_DOSE``.
    """
    mine, others = (rows[rows["experiment"] == name] for name in (doses, ANOTHER_DOSE[doses]))
    seed, seeds = (part["model"].str.extract(r"^miniature-.*-(\d+)$")[0] for part in (others, mine))
    same = others["benchmark"].isin(mine["benchmark"]) & (seed.isna() | seed.isin(seeds))
    return pd.concat([mine, others[same]])


def left_out(rows: pd.DataFrame, method: str, by_gap: bool = True) -> tuple[int, int, float]:
    """How 95 % prediction intervals do that come from the pairs of all other base models.

    Args:
        by_gap: the gain is linear in the gap (least squares); otherwise it is their mean.

    Returns:
        How many of the intervals hold the gain, of how many pairs, and their mean half width in points.
    """
    known = rows.dropna(subset=["gap", f"gain_{method}"])
    known = known.assign(base=known["model"].str.rsplit("-", n=1).str[-1])
    inside, widths = 0, []
    for base in known["base"].unique():
        others, left = known[known["base"] != base], known[known["base"] == base]
        x, ahead = (np.vander(part["gap"].to_numpy(), 1 + by_gap) for part in (others, left))
        y, dof = others[f"gain_{method}"].to_numpy(), len(others) - 1 - by_gap
        fit = np.linalg.lstsq(x, y)[0]
        variance = ((y - x @ fit) ** 2).sum() / dof
        far = np.einsum("ij,jk,ik->i", ahead, np.linalg.inv(x.T @ x), ahead)
        half = student_t.ppf(0.975, dof) * np.sqrt(variance * (1 + far))
        inside += int((np.abs(left[f"gain_{method}"] - ahead @ fit) <= half).sum())
        widths += [*half]
    return inside, len(known), float(np.mean(widths))


def slopes(rows: pd.DataFrame, groups: list[str]) -> pd.DataFrame:
    """Least squares of each gain on each predictor: over all pairs, within groups (means removed), by benchmark."""
    table = []
    for gain in (f"gain_{method}" for method in METHODS if f"gain_{method}" in rows):
        for predictor in PREDICTORS:
            known = rows.dropna(subset=[gain, predictor])
            within = known.copy()
            columns, by = [gain, predictor], known.groupby(groups)
            within[columns] = known[columns] - by[columns].transform("mean")
            for name, part in [("all pairs", known), ("within groups", within), *known.groupby("benchmark")]:
                fit = linregress(part[predictor], part[gain])
                lost = len(by) - 1 if part is within else 0  # degrees of freedom of the means that were removed
                error = fit.stderr * ((len(part) - 2) / (len(part) - 2 - lost)) ** 0.5
                table.append(
                    {"gain": gain, "of": predictor, "pairs": name, "n": len(part), "slope": fit.slope}
                    | {"se": error, "at 0": fit.intercept, "se at 0": fit.intercept_stderr, "R2": fit.rvalue**2}
                )
    return pd.DataFrame(table)


if __name__ == "__main__":
    main()
