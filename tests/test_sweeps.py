"""Sweeps in the report: every number recomputed from the raw files, and what the page shows of which experiment."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from synthetic import tiny_experiment, write_results

from srpo.analysis import figures, load_results, style
from srpo.analysis.claims import findings
from srpo.analysis.report import render
from srpo.analysis.sweeps import FALL, lines, seeds_table, sweep_curves, sweep_frame, sweep_table
from srpo.compose import load_experiment
from srpo.config import RunId
from srpo.contents import contents

BENCHMARKS = ("chemistry", "physics")
BUDGETS = {"1h": 3, "5h": 10, "10h": 20}
TRAINING = {"clock": {"kind": "modelled"}, "budgets": BUDGETS, "validate_every": 2}


def experiment(**changes):
    block = {"models": ["miniature-small"], "benchmarks": ["miniature/chemistry", "miniature/physics"]}
    block |= {"methods": changes.pop("methods"), "seeds": changes.pop("seeds", [1])}
    return load_experiment(tiny_experiment(matrix=[block], training=TRAINING, **changes))


OF_METHODS = experiment(
    methods=["grpo", "srpo"],
    seeds=[1, 2, 3],
    sweep={"of": "srpo", "key": "entropy_beta", "values": [2, 0, 0.5], "label": "β"},
)
OF_MODELS = experiment(
    methods=["sdpo", "srpo"],
    sweep={"of": "miniature-small", "key": "warm_start.brevity", "values": [0, 0.3], "label": "teacher brevity"},
)
PLAIN = experiment(methods=["grpo"])


@pytest.fixture(scope="module", params=["methods", "models"])
def swept(request, tmp_path_factory):
    """A sweep of either kind: its results, and (line, setting) to the (model, method) of its runs."""
    made = {"methods": OF_METHODS, "models": OF_MODELS}[request.param]
    root = tmp_path_factory.mktemp(request.param)
    write_results(root, made)
    if request.param == "methods":
        runs = {("srpo", value): ("miniature-small", f"srpo-entropy_beta-{value:g}") for value in (2, 0, 0.5)}
        runs["grpo", math.nan] = ("miniature-small", "grpo")
    else:
        runs = {(m, value): (f"miniature-small-brevity-{value:g}", m) for m in ("sdpo", "srpo") for value in (0, 0.3)}
    return load_results(root), runs


def read(results, run: RunId, name: str):
    path = results.root / "runs" / run.path / name
    text = path.read_text()
    return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def runs_of(results, model: str, method: str, benchmark: str) -> list[RunId]:
    return [r for r in results.experiment.runs() if (r.model, r.method, r.benchmark) == (model, method, benchmark)]


def raw_fall(log: list[dict]) -> float:
    scores = [event["avg_at_k"] for event in log]
    stretches = [sum(scores[i : i + 3]) / 3 for i in range(len(scores) - 2)]
    return 100 * (max(stretches) - stretches[-1])


def raw(results, model: str, method: str, quantity: str) -> float:
    """A quantity from the files: the mean over seeds, then over benchmarks; NaN if a file lacks it."""
    means = []
    for benchmark in BENCHMARKS:
        found = []
        for run in runs_of(results, model, method, benchmark):
            if quantity == FALL:
                found.append(raw_fall(read(results, run, "validations.jsonl")))
            else:
                cell = read(results, run, "evaluation.json")["budgets"].get(quantity)
                found += [100 * cell["avg_at_k"]] if cell else []
        means.append(sum(found) / len(found) if found else math.nan)
    return sum(means) / len(means)


def rows_at(frame, method: str, value: float):
    same = frame["setting"].isna() if math.isnan(value) else frame["setting"] == value
    return frame[(frame["method"] == method) & same].set_index("quantity")


# ---------------------------------------------------------------- numbers


def test_scores_and_falls_are_those_of_the_files(swept):
    results, runs = swept
    frame = sweep_frame(results)
    assert len(frame) == len(runs) * 4 + (1 if results.experiment.sweep.kind == "methods" else 2)
    several = results.experiment.sweep.kind == "methods"
    for (method, value), names in runs.items():
        found = rows_at(frame, method, value)
        for quantity in (*BUDGETS, FALL):
            assert found.loc[quantity, "score"] == pytest.approx(raw(results, *names, quantity), abs=1e-9), quantity
            assert found.loc[quantity, "score_low"] <= found.loc[quantity, "score"] <= found.loc[quantity, "score_high"]
        assert found.loc["10h", "score_unit"] == ("seed" if several else "question")
        assert found.loc["10h", "seeds"] == (3 if several else 1)


def test_changes_are_differences_from_the_first_value_of_the_file(swept):
    results, runs = swept
    frame = sweep_frame(results)
    first = {}
    for (method, value), names in runs.items():
        first.setdefault(method, names)
        found = rows_at(frame, method, value)
        for quantity in ("10h", FALL):
            if names == first[method]:
                assert math.isnan(found.loc[quantity, "change"])
                continue
            difference = raw(results, *names, quantity) - raw(results, *first[method], quantity)
            assert found.loc[quantity, "change"] == pytest.approx(difference, abs=1e-9)
            low, high = found.loc[quantity, ["change_low", "change_high"]]
            assert low <= found.loc[quantity, "change"] <= high


def test_a_change_between_models_pairs_their_answers_to_a_question(swept):
    """The interval of a difference of equal answers is a point, however spread the questions are."""
    results, _ = swept
    if results.experiment.sweep.kind != "models":
        pytest.skip("models are compared in a sweep of models")
    half = results.evaluations[results.evaluations["model"].str.endswith("-0")]
    twice = pd.concat([half, half.assign(model="miniature-small-brevity-0.3")])
    found = rows_at(sweep_frame(dataclasses.replace(results, evaluations=twice)), "srpo", 0.3).loc["10h"]
    assert (found["change"], found["change_low"], found["change_high"]) == (0, 0, 0)
    assert found["score_high"] - found["score_low"] > 1


def test_base_models_of_a_sweep_of_models_have_a_point_each(swept):
    results, _ = swept
    base = sweep_frame(results).query("method == 'base'")
    for row in base.itertuples():
        suffix = f"-brevity-{row.setting:g}" if results.experiment.sweep.kind == "models" else ""
        scores = [
            json.loads((results.root / f"base/miniature-small{suffix}/{b}/evaluation.json").read_text())
            for b in BENCHMARKS
        ]
        mean = sum(100 * score["budgets"]["base"]["avg_at_k"] for score in scores) / 2
        assert row.score == pytest.approx(mean)


def test_curves_are_the_validations(swept):
    results, runs = swept
    frame = sweep_curves(results)
    for (method, value), (model, name) in runs.items():
        same = frame["setting"].isna() if math.isnan(value) else frame["setting"] == value
        for benchmark in BENCHMARKS:
            line = frame[same & (frame["method"] == method) & (frame["benchmark"] == benchmark)].set_index("step")
            logs = [read(results, run, "validations.jsonl") for run in runs_of(results, model, name, benchmark)]
            at_four = [event["avg_at_k"] for log in logs for event in log if event["step"] == 4]
            assert line.loc[4, "value"] == pytest.approx(100 * sum(at_four) / len(at_four))
    assert set(frame["model"]) == {"miniature-small"}


def test_the_table_says_the_same_as_its_data(swept):
    results, runs = swept
    table = sweep_table(results)
    (grid,) = table.grids
    rows = {row.label: row for row in grid.rows if not row.heading}
    titles = {"srpo": "SRPO", "sdpo": "SDPO", "grpo": "GRPO"}
    for (method, value), names in runs.items():
        label = titles[method] + ("" if math.isnan(value) else f", {results.experiment.sweep.label} = {value:g}")
        cells = rows[label].cells
        assert [cell.text for cell in cells[1:4]] == [
            "–" if math.isnan(score := raw(results, *names, budget)) else f"{score:.1f}" for budget in BUDGETS
        ]
    assert all(len(grid.placed(row)) == len(rows[label].cells) for row in rows.values() if row.label == label)
    assert any("over training seeds" in note for note in table.notes) == (results.experiment.sweep.kind == "methods")


def test_a_missing_run_is_a_dash(tmp_path):
    write_results(
        tmp_path, OF_METHODS, keep=lambda run: (run.method, run.benchmark) != ("srpo-entropy_beta-0", "physics")
    )
    frame = sweep_frame(load_results(tmp_path))
    assert rows_at(frame, "srpo", 0)["score"].isna().all()
    assert rows_at(frame, "srpo", 0.5)["score"].notna().any()
    labels = {row.label: row for row in sweep_table(load_results(tmp_path)).grids[0].rows}
    assert labels["SRPO, β = 0"].cells[3].text == "–"


def test_nothing_yet(tmp_path):
    write_results(tmp_path, OF_METHODS, keep=lambda run: False, evaluate=False)
    results = load_results(tmp_path)
    assert figures.FIGURES["sweep_response"].data(results).empty
    assert figures.FIGURES["sweep_curves"].data(results).empty
    assert 'id="sweep"' in render(results, tmp_path)


def test_seeds_table(tmp_path):
    write_results(tmp_path, OF_METHODS)
    results = load_results(tmp_path)
    frame = seeds_table(results).frame.set_index(["method", "benchmark"])
    for method in OF_METHODS.methods:
        for benchmark in BENCHMARKS:
            scores = [
                100 * read(results, run, "evaluation.json")["budgets"]["10h"]["avg_at_k"]
                for run in runs_of(results, "miniature-small", method, benchmark)
            ]
            row = frame.loc[method, benchmark]
            assert [row[f"seed{seed}"] for seed in (1, 2, 3)] == pytest.approx(scores)
            assert row["mean"] == pytest.approx(statistics.mean(scores))
            assert row["spread"] == pytest.approx(statistics.stdev(scores))
            assert row["mean_unit"] == "seed"
            assert 0 < row["one_seed_half_width"] < 20


# ---------------------------------------------------------------- the page


def test_sections_are_those_of_the_experiment():
    sections = {name: {s.id for s in contents(e)} for name, e in (("b", OF_METHODS), ("m", OF_MODELS), ("p", PLAIN))}
    assert sections["b"] - sections["p"] == {"sweep", "seeds"}
    assert sections["m"] - sections["p"] == {"sweep"}
    assert sections["p"] < sections["m"]


def test_the_page_names_what_was_swept(swept):
    results, _ = swept
    page = render(results, results.root / "figures")
    words = {
        "methods": ["β (<code>entropy_beta</code>) of\nSRPO is", "\n2, 0 or 0.5.", "a method of its own"],
        "models": [
            "teacher brevity (<code>warm_start.brevity</code>) of\nMiniature-S is",
            "\n0 or 0.3.",
            "a base model of its",
        ],
    }
    for word in words[results.experiment.sweep.kind]:
        assert word in page


def test_claims_are_about_methods_by_name_and_each_model(swept):
    results, _ = swept
    found = {finding.claim.id: finding for finding in findings(results)}["srpo_is_stable"]
    if results.experiment.sweep.kind == "methods":
        assert (found.verdict, found.outcomes[0].reason) == ("not tested", "not run with srpo")
    else:
        assert [outcome.model for outcome in found.outcomes] == list(results.experiment.models)
        assert all(outcome.estimate is not None for outcome in found.outcomes)


def test_figures_are_drawn_with_one_line_a_method(swept):
    results, runs = swept
    with mpl.rc_context(style.rc()):
        for name in ("sweep_response", "sweep_curves"):
            spec = figures.FIGURES[name]
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
    looks = style.method_looks(["grpo", *variants, "sdpo"], variants)
    plain = style.method_looks(["grpo", "sdpo", "srpo"], {})
    assert looks["grpo"] == plain["grpo"]
    assert looks["sdpo"] == plain["sdpo"]
    lightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (to_rgb(looks[v]["color"]) for v in variants)]
    assert lightness == sorted(lightness, reverse=True)
    assert all(a - b > 0.05 for a, b in itertools.pairwise(lightness))
    assert {looks[v]["linestyle"] for v in variants} == {plain["srpo"]["linestyle"]}
    assert len({looks[v]["marker"] for v in variants}) == 5
    assert looks["srpo-2"]["color"].lower() == plain["srpo"]["color"].lower()


def test_lines_keep_the_order_of_the_file():
    class Bare:
        experiment = OF_METHODS

    made = [(line.method, [value for value, *_ in line.points]) for line in lines(Bare())]
    assert [method for method, _ in made] == ["base", "grpo", "srpo"]
    assert made[2][1] == [2, 0, 0.5]
