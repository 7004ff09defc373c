"""Does the gap before training predict what distillation gains? Over base models whose runs are published.

    python bench/gap.py published/NAME published/NAME     # measures, writes their rows of bench/gap.csv
    python bench/gap.py results/NAME/base/*/*/gap.json    # the same for gaps without published runs: no gain
    python bench/gap.py                                   # prints slopes, draws docs/gap.svg

One row per base model and benchmark: what `srpo gap` measures, in percent or points, and for every method the final
gain: its cross-fitted score in the last budget minus the untrained model's score, on test questions. One run per gain;
of a base model that all runs share, their mean. `dose` is the percentage of the warm start's examples that show a
solution.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.stats import linregress
from scipy.stats import t as student_t

from srpo.analysis.figures import style
from srpo.analysis.results.gap import SLOPE, as_json, gap_estimates
from srpo.analysis.results.load import load_results
from srpo.analysis.results.matrix import BASE
from srpo.analysis.results.scores import Scores
from srpo.benchmarks.splits import write_split
from srpo.evaluation.self_teacher import sample_teacher
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.files import read_json, write_json
from srpo.layout import Layout
from srpo.models import build_model
from srpo.publish.published import unpacked
from srpo.repository import ROOT
from srpo.sources.build import build_split

CSV, FIGURE = Path(__file__).with_suffix(".csv"), ROOT / "docs" / "gap.svg"
METHODS = {"grpo": "GRPO", "sdpo": "SDPO", "srpo": "SRPO"}
PREDICTORS = ("gap", "gap_masked", "student")
QUESTIONS = 48
DOSED, SEEDS = ("physics", "tooluse"), ("9", "10", "11")
"""Benchmarks and base models of `doses`; `registered` has the same with the dose 60."""

Row = dict[str, str | float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, nargs="*", help="published/NAME or gap.json; none: the file as it is")
    sources = parser.parse_args().source
    if found := [row for path in sources for row in (pairs(path) if path.is_dir() else [alone(path)])]:
        rows = pd.DataFrame(found)
        if CSV.exists():
            older = pd.read_csv(CSV)
            rows = pd.concat([older[~older["experiment"].isin(rows["experiment"])], rows])
        rows.to_csv(CSV, index=False, float_format="%.2f", lineterminator="\n")
    rows = pd.read_csv(CSV)
    print(rows.groupby(["experiment", "benchmark"]).mean(numeric_only=True).round(1).T.to_string(), "\n")
    low, gain = rows["gap_low"], rows["gain_sdpo"]
    print(f"{len(rows)} pairs: gap above 0 in {(low > 0).sum()}, SDPO's gain above 0 in {(gain > 0).sum()}", "\n")
    one_dose = rows[rows["experiment"].isin(["ablations", "registered"])]
    for name, part, by in (
        ("one dose", one_dose, ["experiment", "benchmark"]),
        ("doses", dosed(rows), ["benchmark"]),
    ):
        print(name, slopes(part, by).to_string(index=False, float_format="{:.2f}".format), "", sep="\n")
    draw(dosed(rows))


def pairs(folder: Path) -> Iterator[Row]:
    """A row per base model and benchmark of a published experiment."""
    results = load_results(unpacked(folder))
    experiment, scores = results.experiment, Scores.of(results)
    layout, last = Layout(Path("results", "gap", folder.name)), list(experiment.training.budget_seconds)[-1]
    for model, benchmark in experiment.bases():
        lookup = scores.lookup(model, "cross_fitted")
        untrained = lookup(benchmark, BASE, BASE)
        for seed, base in experiment.base_models(model).items():
            row = measured(experiment, base.name, benchmark, layout)
            for method in METHODS:
                if runs := lookup(benchmark, method, last):
                    of_base = [runs[seed]] if experiment.draws_per_seed(model) else [*runs.values()]
                    row[f"gain_{method}"] = np.mean(of_base) - untrained[seed].mean()
            print(base.name, benchmark, flush=True)
            yield row


def alone(path: Path) -> Row:
    """The row of a gap that ``srpo gap`` has measured: ``results/NAME/base/MODEL/BENCHMARK/gap.json``."""
    layout, (model, benchmark) = Layout(path.parents[3]), path.parts[-3:-1]
    return measured(load_experiment(layout.experiment), model, benchmark, layout)


def measured(experiment: Experiment, model: str, benchmark: str, layout: Layout) -> Row:
    """What ``srpo gap`` says of a base model, which is built if need be."""
    path, base = layout.gap(model, benchmark), experiment.every_base_model()[model]
    if not path.exists():
        questions = experiment.data_set(benchmark, model)
        split = layout.split(questions.data_set, "train")
        write_split(split, build_split(questions, "train", None), "train")
        if not layout.model_description(model).exists():
            build_model(base, layout.model(model), {benchmark: split})
        samples = sample_teacher(experiment, model, benchmark, layout, QUESTIONS)
        write_json(path, as_json(samples, gap_estimates(samples)))
    found = read_json(path)["estimates"]
    row: Row = {"experiment": experiment.name, "model": model, "benchmark": benchmark}
    row["dose"] = 100 * base.warm_start.informed_fraction
    row |= {key: estimate["value"] for key, estimate in found.items() if key != "expected_gain"}
    return row | {f"gap_{end}": found["gap"][end] for end in ("low", "high") if "gap" in found}


def dosed(rows: pd.DataFrame) -> pd.DataFrame:
    """The pairs of all doses: the same tables of facts, questions and settings."""
    of_doses = rows["experiment"].isin(["doses", "registered"]) & rows["benchmark"].isin(DOSED)
    return rows[of_doses & rows["model"].str.rsplit("-", n=1).str[-1].isin(SEEDS)]


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


def draw(rows: pd.DataFrame) -> None:
    """Gain against gap, a line with its 95 % band for each method, and the published slope beside them."""
    with mpl.rc_context(style.rc() | {"svg.fonttype": "none"}):
        figure = style.new_figure(7.5, 3.6, "Gain against the gap before training · toys of four doses")
        axes = figure.subplots()
        styles = style.method_styles(METHODS)
        for method, title in METHODS.items():
            known = rows.dropna(subset=[f"gain_{method}", "gap"])
            x, y = known["gap"].to_numpy(), known[f"gain_{method}"].to_numpy()
            fit, ends = linregress(x, y), np.linspace(x.min(), x.max(), 50)
            line = fit.intercept + fit.slope * ends
            spread = np.sqrt(((y - fit.intercept - fit.slope * x) ** 2).sum() / (len(x) - 2))
            far = (ends - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
            band = student_t.ppf(0.975, len(x) - 2) * spread * np.sqrt(1 / len(x) + far)
            look = styles[method]
            axes.plot(x, y, look["marker"], color=look["color"], alpha=0.6, linestyle="none")
            axes.plot(ends, line, color=look["color"], linestyle=look["linestyle"], label=title)
            axes.fill_between(ends, line - band, line + band, color=look["color"], alpha=style.BAND, linewidth=0)
        gaps = np.array([rows["gap"].min(), rows["gap"].max()])
        axes.plot(gaps, SLOPE * gaps, color=style.BASE_COLOUR, linestyle=":", label=f"published: {SLOPE} x gap")
        axes.axhline(0, color=style.BASE_COLOUR, linewidth=0.6)
        axes.axvline(0, color=style.BASE_COLOUR, linewidth=0.6)
        gains = rows[[f"gain_{method}" for method in METHODS]]
        axes.set_ylim(min(gains.min().min(), 0) - 5, gains.max().max() + 5)
        axes.set(xlabel="self-teacher minus student, untrained, points", ylabel="gain of the trained model, points")
        figure.legend(loc="outside right upper")
        figure.savefig(FIGURE, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
