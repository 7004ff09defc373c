"""The map of regimes: its numbers against the logs, its table and its figure."""

from __future__ import annotations

import json
import re
import statistics

import matplotlib as mpl
import pytest
from synthetic import tiny_experiment, write_results

from srpo.analysis.figures import style
from srpo.analysis.figures.regime_map import draw_regimes, regime_caption
from srpo.analysis.outline import figures_of, sections_of, tables_of
from srpo.analysis.results.load import load_results
from srpo.analysis.results.regimes import differences, regime_frame
from srpo.analysis.tables.regime_table import regime_table
from srpo.experiment.compose import load_experiment

BLOCK = {
    "models": ["miniature-small"],
    "benchmarks": ["miniature/physics", "miniature/materials"],
    "methods": ["grpo", "srpo", "sdpo"],
    "seeds": [1, 2],
}
SWEEP = {"of": "miniature-small", "key": "warm_start.fact_errors", "values": [0.5, 1], "label": "fact errors"}
TRAINING = {"clock": {"kind": "modelled"}, "budget_seconds": {"1h": 3, "5h": 10, "10h": 20}, "validate_every": 2}
MAP = load_experiment(tiny_experiment(matrix=[BLOCK], sweep=SWEEP, training=TRAINING))
MODEL = "miniature-small-fact_errors-0.5"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("map")
    write_results(root, MAP)
    return load_results(root)


def value(frame, **key):
    for name, wanted in key.items():
        frame = frame[frame[name] == wanted]
    assert len(frame) == 1
    return frame.iloc[0]


def scores(results, method, budget):
    folders = [results.root / "runs" / MODEL / "physics" / method / f"seed{seed}" for seed in (1, 2)]
    found = [json.loads((folder / "evaluation.json").read_text())["budgets"][budget]["avg_at_k"] for folder in folders]
    return [100 * score for score in found]


def test_a_point_says_what_the_logs_say(results):
    frame = regime_frame(results)
    budget = list(MAP.training.budget_seconds)[-1]
    here = {"model": MODEL, "benchmark": "physics"}
    srpo, grpo = (statistics.fmean(scores(results, method, budget)) for method in ("srpo", "grpo"))
    assert value(frame, **here, quantity="srpo", budget=budget)["value"] == pytest.approx(srpo)
    found = value(frame, **here, quantity="srpo-grpo", budget=budget)
    assert found["value"] == pytest.approx(srpo - grpo)
    assert found["value_low"] < found["value"] < found["value_high"]
    assert (found["seeds"], found["value_unit"]) == (2, "seed and question")
    routed = []
    for seed in (1, 2):
        path = results.root / "runs" / MODEL / "physics" / "srpo" / f"seed{seed}" / "steps.jsonl"
        log = [json.loads(line)["metrics"]["routing/sdpo_fraction"] for line in path.read_text().splitlines()]
        routed.append(100 * statistics.fmean(log[: -(-len(log) // 10)]))
    assert value(frame, **here, quantity="routed")["value"] == pytest.approx(statistics.fmean(routed))
    base = json.loads((results.root / "base" / MODEL / "physics" / "evaluation.json").read_text())
    assert value(frame, **here, quantity="base")["value"] == pytest.approx(100 * base["budgets"]["base"]["avg_at_k"])


def test_the_table_has_a_row_a_point_and_a_column_a_budget_and_rival(results):
    (grid,) = (table := regime_table(results)).grids
    assert [row.label for row in grid.rows] == [
        "Miniature-S, fact errors = 0.5",
        "Physics",
        "Materials",
        "Miniature-S, fact errors = 1",
        "Physics",
        "Materials",
    ]
    budgets = len(MAP.training.budget_seconds)
    assert all(len(row.cells) == len(grid.columns) == 7 + 2 * budgets for row in grid.rows if not row.heading)
    assert len(differences(table.frame)) == 2 * 2 * 2 * budgets
    assert f"Of {2 * 2 * 2 * budgets} differences about 1 would" in table.notes[0]


def test_the_figure_writes_every_difference_and_is_bold_only_beside_zero(results):
    frame = regime_frame(results)
    with mpl.rc_context(style.rc()):
        figure = draw_regimes("Map", results, frame)
    texts = [text for axes in figure.axes for text in axes.texts]
    gains = differences(frame)
    for row in gains.to_dict("records"):
        shown = f"{row['value']:+.1f}\n[{row['value_low']:.1f}, {row['value_high']:.1f}]"
        (text,) = {t for t in texts if t.get_text() == shown} or pytest.fail(shown)
        beside = row["value_low"] > 0 or row["value_high"] < 0
        assert text.get_fontweight() == ("bold" if beside else "normal")
    caption = regime_caption(results, frame)
    assert "2 seeds per method" in caption
    assert "training seeds and test questions" in caption


def test_a_missing_run_leaves_its_cells_empty(tmp_path):
    write_results(tmp_path, MAP, keep=lambda run: run.method != "sdpo" or run.benchmark != "physics")
    results = load_results(tmp_path)
    frame = regime_frame(results)
    gone = frame[(frame["benchmark"] == "physics") & (frame["quantity"] == "srpo-sdpo")]
    assert gone["value"].isna().all()
    assert frame[frame["quantity"] == "srpo-grpo"]["value"].notna().all()
    budgets = len(MAP.training.budget_seconds)
    assert f"Of {2 * 3 * budgets} differences about" in regime_table(results).notes[0]  # 2 of 8 cells are not measured
    with mpl.rc_context(style.rc()):
        draw_regimes("Map", results, frame.dropna(subset=["value"]))


def test_a_routed_share_stays_within_0_and_100_percent(tmp_path):
    write_results(tmp_path, MAP)
    for seed, share in ((1, 0.001), (2, 0.01)):
        for path in tmp_path.glob(f"runs/**/srpo/seed{seed}/steps.jsonl"):
            path.write_text(
                re.sub(r'"routing/sdpo_fraction": [^,}]+', f'"routing/sdpo_fraction": {share}', path.read_text())
            )
    routed = value(regime_frame(load_results(tmp_path)), model=MODEL, benchmark="physics", quantity="routed")
    assert routed["value"] == pytest.approx(0.55)
    assert 0 <= routed["value_low"] < routed["value"] < routed["value_high"] <= 100


def test_only_a_map_has_the_section():
    one_model = load_experiment(tiny_experiment(matrix=[BLOCK]))
    without_srpo = load_experiment(tiny_experiment(matrix=[BLOCK | {"methods": ["grpo"]}], sweep=SWEEP))
    assert "regimes" in {section.id for section in sections_of(MAP)}
    assert "regimes" in {*figures_of(MAP)} & {*tables_of(MAP)}
    for experiment in (one_model, without_srpo):
        assert "regimes" not in {section.id for section in sections_of(experiment)}
