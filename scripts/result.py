"""Draws the picture of a result: docs/result.png, and docs/result.json beside it.

    python scripts/result.py results/embedded

The picture is the forest plot of the primary claims, the learning curves and table 1. The script reads the finished
experiment's figures and table and computes no score. The same results give the same bytes.
``docs/result.json`` records from which commit's runs the picture is, and its checksum.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import yaml

from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.files import write_bytes, write_json
from srpo.layout import Layout, RunFiles

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FIGURES = ("primary_differences", "learning_curves")
DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 11.0
"""Inches."""
LINE = 0.27
"""Inches of a line of the table."""


def main(arguments: list[str] | None = None) -> int:
    """Write the picture and its record.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        description="Draws forest plot, learning curves and table 1 of a finished experiment."
    )
    parser.add_argument("results", type=Path, help="e.g. results/embedded")
    parser.add_argument("--output", type=Path, default=DOCS / "result.png", help="default: docs/result.png")
    options = parser.parse_args(arguments)
    try:
        write_picture(options.results, options.output)
    except SrpoError as error:
        print(f"result.py: {error}", file=sys.stderr)
        return 2
    return 0


def write_picture(results: Path, output: Path) -> None:
    """Draw ``results`` into ``output``, a PNG, and write the record beside it, as JSON.

    Raises:
        SrpoError: if a run is not finished and evaluated, or a table or figure is missing.
    """
    layout = Layout(results)
    experiment = load_experiment(layout.experiment)
    commits = _commits(experiment, layout)
    figures, table = [layout.figure(name, "png") for name in FIGURES], layout.table("table1", "csv")
    for path in (*figures, table):
        if not path.is_file():
            raise SrpoError(f"{path}: missing; srpo report --experiment {layout.experiment} makes it")
    content = _draw(experiment, [plt.imread(figure) for figure in figures], pd.read_csv(table))
    write_bytes(output, content)
    record = {
        "experiment": experiment.name,
        "runs": len(experiment.runs()),
        "commits": commits,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_json(output.with_suffix(".json"), record)


def _commits(experiment: Experiment, layout: Layout) -> list[str]:
    """The commits that the runs were made with, in the runs' order."""
    found = []
    for run in experiment.runs():
        files: RunFiles = layout.run_files(run)
        if not files.evaluation.exists():
            raise SrpoError(f"{files.folder}: not finished and evaluated")
        found.append(str(yaml.safe_load(files.origin.read_text())["provenance"].get("commit", "unknown")))
    return list(dict.fromkeys(found))


def _draw(experiment: Experiment, figures: list[np.ndarray], scores: pd.DataFrame) -> bytes:
    heads, rows = table_of(experiment, scores)
    # The widest figure fills the picture; the others have the same size of letters.
    inch = max(figure.shape[1] for figure in figures) / WIDTH
    heights = [figure.shape[0] / inch for figure in figures]
    below = LINE * (len(rows) + 3)
    tall = sum(heights) + below
    picture = plt.figure(figsize=(WIDTH, tall), dpi=110, facecolor="white")
    top = tall
    for figure, height in zip(figures, heights, strict=True):
        top -= height
        axes = picture.add_axes((0, top / tall, figure.shape[1] / inch / WIDTH, height / tall))
        axes.imshow(figure)
        axes.axis("off")
    axes = picture.add_axes((0.02, 0.01, 0.96, (below - 1.5 * LINE) / tall))
    axes.axis("off")
    shown = axes.table([row for row, _ in rows], colLabels=heads, loc="center", cellLoc="right", bbox=(0, 0, 1, 1))
    shown.auto_set_font_size(False)
    shown.set_fontsize(9)
    for (line, column), cell in shown.get_celld().items():
        cell.set_linewidth(0.3)
        cell.set_edgecolor("#d9dee3")
        if column < 2:
            cell.set_text_props(ha="left")
        if line == 0 or column in rows[line - 1][1]:
            cell.set_text_props(weight="bold")
    budgets = list(experiment.training.budget_seconds)
    picture.text(
        0.02,
        (below - 0.75 * LINE) / tall,
        f"Table 1, selected checkpoint resampled, avg@{experiment.evaluation.rollouts}, %: the average within each "
        f"budget, each benchmark within {budgets[-1]}. Bold: the highest.",
        fontsize=9.5,
        va="center",
    )
    target = BytesIO()
    picture.savefig(target, format="png", metadata={"Software": None})
    plt.close(picture)
    return target.getvalue()


def table_of(experiment: Experiment, scores: pd.DataFrame) -> tuple[list[str], list[tuple[list[str], set[int]]]]:
    """Heads and rows of the small table 1; a row goes with the columns in which its score is its model's highest.

    Args:
        scores: ``table1.csv``.
    """
    cells = {tuple(row[:4]): row[4] for row in scores[["model", "method", "benchmark", "budget", "resampled"]].values}
    budgets = list(experiment.training.budget_seconds)
    places = [(b, budgets[-1]) for b in experiment.benchmarks]
    heads = ["Model", "Method"]
    if "average" in set(scores["benchmark"]):
        places = [*(("average", budget) for budget in budgets), *places]
        heads += [f"Average {budget}" for budget in budgets]
    heads += [benchmark.title for benchmark in experiment.benchmarks.values()]
    rows = []
    for model, of_model in scores.groupby("model", sort=False):
        methods = dict.fromkeys(of_model["method"])
        values = {
            method: [
                cells.get((model, method, place, "base" if method == "base" else budget)) for place, budget in places
            ]
            for method in methods
        }
        numbers = {
            method: ["" if v is None or pd.isna(v) else f"{v:.1f}" for v in row] for method, row in values.items()
        }
        highest = [
            max(map(float, filter(None, column)), default=None) for column in zip(*numbers.values(), strict=True)
        ]
        for method, row in numbers.items():
            title = "Base" if method == "base" else experiment.methods[method].title
            best = {i + 2 for i, number in enumerate(row) if number and float(number) == highest[i]}
            rows.append(([experiment.models[model].title, title, *row], best))
    return heads, rows


if __name__ == "__main__":
    sys.exit(main())
