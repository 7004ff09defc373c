"""The figures of a sweep."""

from __future__ import annotations

import itertools
import math

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb
from sweep_cases import BENCHMARKS, BUDGETS, read, runs_of

from srpo.analysis.figures import style
from srpo.analysis.figures.curves import sweep_curves
from srpo.analysis.figures.registry import FIGURES


def test_curves_are_the_latest_validation_of_each_run(swept):
    results, runs = swept
    frame = sweep_curves(results)
    for (method, value), (model, name) in runs.items():
        same = frame["setting"].isna() if math.isnan(value) else frame["setting"] == value
        for benchmark in BENCHMARKS:
            line = frame[same & (frame["method"] == method) & (frame["benchmark"] == benchmark)]
            logs = [read(results, run, "validations.jsonl") for run in runs_of(results, model, name, benchmark)]
            point = line.iloc[len(line) // 2]
            latest = [[e["avg_at_k"] for e in log if e["clock"] <= point["clock"] + 1e-9][-1] for log in logs]
            assert point["value"] == pytest.approx(100 * sum(latest) / len(latest))
            assert point["seeds"] == len(logs)
    assert set(frame["model"]) == {"miniature-small"}


def test_figures_are_drawn_with_one_line_a_method(swept):
    results, runs = swept
    with mpl.rc_context(style.rc()):
        for name in ("sweep_response", "sweep_curves"):
            spec = FIGURES[name]
            frame = spec.data(results)
            figure = spec.draw(spec.title, results, frame)
            labels = {text.get_text() for text in figure.legends[0].get_texts()} - {"Base"}
            assert labels == {results.experiment.sweep.titles.get(m, m.upper()) for m, _ in runs}
            columns = len(BUDGETS) + 1 if name == "sweep_response" else len({v for _, v in runs if v == v})
            rows = 1 if name == "sweep_response" else len(BENCHMARKS)
            assert len(figure.axes) == rows * columns
            seeds = "3 seeds" if results.experiment.sweep.kind == "methods" else "ne seed"
            caption = spec.caption(results, frame)
            assert seeds in caption or "From 1 seed" in caption


def test_variants_are_shades_of_their_method():
    variants = {f"srpo-{i}": "srpo" for i in range(5)}
    styles = style.method_styles(["grpo", *variants, "sdpo"], variants)
    plain = style.method_styles(["grpo", "sdpo", "srpo"], {})
    assert styles["grpo"] == plain["grpo"]
    assert styles["sdpo"] == plain["sdpo"]
    lightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (to_rgb(styles[v]["color"]) for v in variants)]
    assert lightness == sorted(lightness, reverse=True)
    assert all(a - b > 0.05 for a, b in itertools.pairwise(lightness))
    assert {styles[v]["linestyle"] for v in variants} == {plain["srpo"]["linestyle"]}
    assert len({styles[v]["marker"] for v in variants}) == 5
    assert styles["srpo-2"]["color"].lower() == plain["srpo"]["color"].lower()
