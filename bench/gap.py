"""Does the gap before training predict what distillation gains? Over base models whose runs are published.

    python bench/gap.py published/NAME published/NAME     # measures, writes their rows of bench/gap.csv
    python bench/gap.py results/NAME/base/*/*/gap.json    # the same for gaps without published runs: no gain
    python scripts/gaps.py                                # what the rows show

One row per base model and benchmark: what `srpo gap` measures, in percent or points, and for every method the final
gain: its cross-fitted score in the last budget minus the untrained model's score, on test questions. One run per gain;
of a base model that all runs share, their mean. `dose` is the percentage of the warm start's examples that show a
solution. The gain by the law came later, on another processor: it is known of stored base models only. The others,
built there again, had other weights, and gaps that differ by up to 12 points.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from srpo.analysis.gap import as_json, gap_estimates
from srpo.analysis.load import load_results
from srpo.analysis.published import unpacked
from srpo.analysis.results import Results
from srpo.analysis.tables.before_training import METHODS, gain
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.experiment.job import job_of
from srpo.ground.files import read_json, write_json
from srpo.ground.layout import Layout
from srpo.questions.splits import write_split
from srpo.starts import build_model
from srpo.starts.data import build_split
from srpo.training.self_teacher import sample_teacher

CSV = Path(__file__).with_suffix(".csv")
QUESTIONS = 48

Row = dict[str, str | float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, nargs="+", help="published/NAME or gap.json")
    sources = parser.parse_args().source
    rows = pd.DataFrame([row for path in sources for row in (pairs(path) if path.is_dir() else [alone(path)])])
    if CSV.exists():
        older = pd.read_csv(CSV)
        rows = pd.concat([older[~older["experiment"].isin(rows["experiment"])], rows])
    rows.to_csv(CSV, index=False, float_format="%.2f", lineterminator="\n")


def pairs(folder: Path) -> Iterator[Row]:
    """A row per base model and benchmark of a published experiment."""
    results = load_results(unpacked(folder))
    experiment = results.experiment
    layout = Layout(results.root if results.gaps else Path("results", "gap", folder.name))
    for model, benchmark in experiment.bases():
        for seed, base in experiment.base_models(model).items():
            row = measured(experiment, base.name, benchmark, layout)
            _check_weights(read_json(layout.model_description(base.name)), results, base.name)
            for method in METHODS:
                if gained := gain(results, model, benchmark, method, seed):
                    row[f"gain_{method}"] = gained.value
            print(base.name, benchmark, flush=True)
            yield row


def _check_weights(built: dict[str, Any], results: Results, base: str) -> None:
    """A model that is not stored, built again on another processor, is not the one that the runs began with."""
    runs = results.experiment.runs()
    begun = [run for run in runs if results.experiment.models[run.model].base_model(run.seed).name == base]
    trained = {results.provenance[run]["base_model"] for run in begun}
    if trained != {built["sha256"]}:
        raise SystemExit(f"{base}: built here it has other weights than its runs began with; measure where they ran")


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
        names = {"model": model, "benchmark": benchmark}
        samples = sample_teacher(job_of(experiment, names), benchmark, layout, QUESTIONS)
        write_json(path, as_json(samples, gap_estimates(samples)))
    found = read_json(path)["estimates"]
    row: Row = {"experiment": experiment.name, "model": model, "benchmark": benchmark}
    row["dose"] = 100 * base.warm_start.informed_fraction
    row |= {key: estimate["value"] for key, estimate in found.items()}
    ends = [(key, end) for key in ("gap", "expected_gain") if key in found for end in ("low", "high")]
    return row | {f"{key}_{end}": found[key][end] for key, end in ends}


if __name__ == "__main__":
    main()
