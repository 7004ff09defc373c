"""Does the gap before training predict what distillation gains? Over the toys' base models, whose runs are published.

    python bench/gap.py published/ablations published/registered     # writes bench/gap.csv, prints slopes

One row per base model and benchmark: what `srpo gap` measures, in percent or points, and for every method the final
gain: its cross-fitted score in the last budget minus the untrained model's score, on test questions. One run per gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy.stats import linregress

from srpo.analysis.results.gap import as_json, gap_estimates
from srpo.analysis.results.load import load_results
from srpo.analysis.results.matrix import BASE
from srpo.analysis.results.scores import Scores
from srpo.benchmarks.splits import write_split
from srpo.evaluation.self_teacher import sample_teacher
from srpo.files import read_json, write_json
from srpo.layout import Layout
from srpo.models import build_model
from srpo.publish.published import unpacked
from srpo.sources.build import build_split

CSV = Path(__file__).with_suffix(".csv")
METHODS = ("grpo", "sdpo", "srpo")
PREDICTORS = ("gap", "gap_masked", "student")
QUESTIONS = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("published", type=Path, nargs="*", help="published/NAME; none: print the slopes of the file")
    if folders := parser.parse_args().published:
        rows = pd.DataFrame([row for folder in folders for row in pairs(folder)])
        rows.to_csv(CSV, index=False, float_format="%.2f", lineterminator="\n")
    rows = pd.read_csv(CSV)
    print(rows.groupby(["experiment", "benchmark"]).mean(numeric_only=True).round(1).T.to_string(), "\n")
    low, gain = rows["gap_low"], rows["gain_sdpo"]
    print(f"{len(rows)} pairs: gap above 0 in {(low > 0).sum()}, SDPO's gain above 0 in {(gain > 0).sum()}", "\n")
    print(slopes(rows).to_string(index=False, float_format="{:.2f}".format))


def pairs(folder: Path) -> Iterator[dict[str, str | float]]:
    """A row per base model and benchmark of a published experiment with toys."""
    results = load_results(unpacked(folder))
    experiment, scores = results.experiment, Scores.of(results)
    layout, last = Layout(Path("results", "gap", folder.name)), list(experiment.training.budget_seconds)[-1]
    for model, benchmark in experiment.bases():
        lookup = scores.lookup(model, "cross_fitted")
        untrained = lookup(benchmark, BASE, BASE)
        for seed, base in experiment.base_models(model).items():
            path = layout.gap(base.name, benchmark)
            if not path.exists():
                questions = experiment.data_set(benchmark, base.name)
                split = layout.split(questions.data_set, "train")
                write_split(split, build_split(questions, "train", None), "train")
                if not layout.model_description(base.name).exists():
                    build_model(base, layout.model(base.name), {benchmark: split})
                samples = sample_teacher(experiment, base.name, benchmark, layout, QUESTIONS)
                write_json(path, as_json(samples, gap_estimates(samples)))
            found = read_json(path)["estimates"]
            row: dict[str, str | float] = {"experiment": folder.name, "model": base.name, "benchmark": benchmark}
            row |= {key: estimate["value"] for key, estimate in found.items() if key != "expected_gain"}
            row |= {f"gap_{end}": found["gap"][end] for end in ("low", "high") if "gap" in found}
            for method in METHODS:
                if runs := lookup(benchmark, method, last):
                    row[f"gain_{method}"] = runs[seed].mean() - untrained[seed].mean()
            print(base.name, benchmark, flush=True)
            yield row


def slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """Least squares of each gain on each predictor: over all pairs, within benchmarks (means removed), by each."""
    table = []
    for gain in (f"gain_{method}" for method in METHODS if f"gain_{method}" in rows):
        for predictor in PREDICTORS:
            known = rows.dropna(subset=[gain, predictor])
            within = known.copy()
            columns, by = [gain, predictor], known.groupby(["experiment", "benchmark"])
            within[columns] = known[columns] - by[columns].transform("mean")
            for name, part in [("all pairs", known), ("within benchmarks", within), *known.groupby("benchmark")]:
                fit = linregress(part[predictor], part[gain])
                lost = len(by) - 1 if part is within else 0  # degrees of freedom of the means that were removed
                error = fit.stderr * ((len(part) - 2) / (len(part) - 2 - lost)) ** 0.5
                table.append(
                    {"gain": gain, "of": predictor, "pairs": name, "n": len(part), "slope": fit.slope}
                    | {"se": error, "r": fit.rvalue}
                )
    return pd.DataFrame(table)


if __name__ == "__main__":
    main()
