"""Scores, ablations and differences: every number recomputed from the raw logs by other code, gaps left open."""

import json
import math

import numpy as np
import pytest
from report_cases import EXPERIMENT, MODEL, cell, raw_log, raw_maximum, read, results_of
from synthetic import paper_experiment, tiny_experiment, tiny_of

from srpo.analysis.figures import step_seconds
from srpo.analysis.load import load_results
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.cross_fit import selected_scores
from srpo.analysis.tables.table import number
from srpo.analysis.write import make_table, write_tables
from srpo.experiment.compose import load_experiment


@pytest.mark.parametrize(("budget", "seconds"), [("1h", 3), ("5h", 10), ("10h", 20)])
@pytest.mark.parametrize("method", ["grpo", "sdpo", "srpo"])
def test_table1_is_the_maximum_of_the_validations_within_the_budget(finished, method, budget, seconds):
    rows = read(finished / "tables/table1.csv")
    scores = {b: raw_maximum(finished, b, method, seconds) for b in ("chemistry", "physics")}
    for benchmark, score in scores.items():
        shown = cell(rows, method=method, benchmark=benchmark, budget=budget)
        assert shown["in_training"] == ("" if math.isnan(score) else f"{score:.1f}")
        assert shown["in_training_seeds"] == ("0" if math.isnan(score) else "1")
        evaluation = json.loads((finished / f"runs/{MODEL}/{benchmark}/{method}/seed1/evaluation.json").read_text())[
            "budgets"
        ].get(budget)
        assert shown["resampled"] == ("" if evaluation is None else f"{100 * evaluation['avg_at_k']:.1f}")
    average = sum(scores.values()) / 2
    shown = cell(rows, method=method, benchmark="average", budget=budget)["in_training"]
    assert shown == ("" if math.isnan(average) else f"{average:.1f}")


@pytest.mark.parametrize(("budget", "seconds"), [("5h", 10), ("10h", 20)])
def test_the_end_of_a_budget_is_the_mean_of_the_last_three_validations(finished, budget, seconds):
    ends = load_results(finished).of(MODEL, "end")
    for benchmark in ("chemistry", "physics"):
        log = raw_log(finished, benchmark, "srpo", "validations")
        last = [100 * entry["avg_at_k"] for entry in log if entry["clock"] <= seconds][-3:]
        assert ends[benchmark, "srpo", budget][1].mean() == pytest.approx(sum(last) / len(last))


def test_a_budget_without_a_validation_is_a_gap(finished):
    assert (
        cell(read(finished / "tables/table1.csv"), method="grpo", benchmark="physics", budget="1h")["resampled"] == ""
    )


def test_base_rows_are_the_base_evaluations(finished):
    rows = read(finished / "tables/table1.csv")
    scores = []
    for benchmark in ("chemistry", "physics"):
        evaluation = json.loads((finished / f"base/{MODEL}/{benchmark}/evaluation.json").read_text())
        scores.append(100 * evaluation["budgets"]["base"]["avg_at_k"])
        assert cell(rows, method="base", benchmark=benchmark)["resampled"] == f"{scores[-1]:.1f}"
    assert cell(rows, method="base", benchmark="average")["resampled"] == f"{sum(scores) / 2:.1f}"


def test_a_missing_run_leaves_its_cells_and_the_average_open(tmp_path):
    results = results_of(tmp_path, keep=lambda run: (run.benchmark, run.method) != ("physics", "srpo"))
    write_tables(results, tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    for benchmark, missing in (("chemistry", False), ("physics", True), ("average", True)):
        row = cell(rows, method="srpo", benchmark=benchmark, budget="10h")
        assert (row["in_training"] == "") is missing
        assert (row["resampled"] == "") is missing
    assert cell(rows, method="grpo", benchmark="average", budget="10h")["in_training"] != ""
    assert {*step_seconds.data(results)["benchmarks"]} == {1}  # methods compare on what all of them have


def test_a_budget_that_a_running_run_has_not_reached_is_open(tmp_path):
    write_tables(results_of(tmp_path, stop_at=12), tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="sdpo", benchmark="physics", budget="5h")["in_training"] != ""
    assert cell(rows, method="sdpo", benchmark="physics", budget="10h")["in_training"] == ""


def test_seeds_are_averaged_and_counted(tmp_path):
    experiment = tiny_of(benchmarks=["miniature/physics"], seeds=[1, 2, 3])
    write_tables(results_of(tmp_path, experiment, keep=lambda run: run.seed < 3), tmp_path / "tables")
    row = cell(read(tmp_path / "tables/table1.csv"), method="srpo", benchmark="physics", budget="10h")
    expected = (raw_maximum(tmp_path, "physics", "srpo", 20) + raw_maximum(tmp_path, "physics", "srpo", 20, 2)) / 2
    assert (row["in_training"], row["in_training_seeds"]) == (f"{expected:.1f}", "2")
    assert not [r for r in read(tmp_path / "tables/table1.csv") if r["benchmark"] == "average"]


def test_averages_of_an_unfinished_report_are_over_the_same_base_models(tmp_path):
    """One run of GRPO is missing: of its base model no average counts SRPO's runs either."""
    benchmarks = ["miniature/chemistry", "miniature/physics"]
    experiment = tiny_of(models=["miniature-large"], benchmarks=benchmarks, methods=["grpo", "srpo"], seeds=[1, 2, 3])
    missing = ("grpo", "physics", 3)
    results = results_of(tmp_path, experiment, keep=lambda run: (run.method, run.benchmark, run.seed) != missing)
    made, values = make_table("table1", results), results.of("miniature-large", "in_training")
    rows = made.frame.set_index(["method", "benchmark", "budget"])
    for method in ("grpo", "srpo"):
        runs = [values[b, method, "10h"][seed].mean() for b in ("chemistry", "physics") for seed in (1, 2)]
        row = rows.loc[(method, "average", "10h")]
        assert row["in_training"] == pytest.approx(np.mean(runs))
        assert row["in_training_seeds"] == 2


def test_ablations_are_averaged_and_compared(tmp_path):
    names = ["srpo", "srpo_without_weighting", "advantage_mix"]
    write_tables(results_of(tmp_path, tiny_of(methods=names)), tmp_path / "tables")
    scores = {m: sum(raw_maximum(tmp_path, b, m, 20) for b in ("chemistry", "physics")) / 2 for m in names}
    rows = read(tmp_path / "tables/table2.csv")
    for method, other in (("srpo_without_weighting", "srpo"), ("advantage_mix", "srpo_without_weighting")):
        row = cell(rows, method=method, benchmark="average", budget="10h")
        assert row["compared_with"] == other
        assert row["in_training"] == f"{scores[method]:.1f}"
        assert float(row["in_training_difference"]) == pytest.approx(scores[method] - scores[other], abs=0.051)
    assert {row["method"] for row in read(tmp_path / "tables/table1.csv")} == {"base", "srpo"}


def test_an_ablation_on_one_benchmark_of_several_is_compared_there(tmp_path):
    block = tiny_experiment()["matrix"][0]
    matrix = [
        {**block, "methods": ["srpo"]},
        {**block, "benchmarks": ["miniature/physics"], "methods": ["srpo_without_weighting"]},
    ]
    write_tables(results_of(tmp_path, load_experiment(tiny_experiment(matrix=matrix))), tmp_path / "tables")
    rows = read(tmp_path / "tables/table2.csv")
    for method in ("srpo", "srpo_without_weighting"):
        row = cell(rows, method=method, benchmark="average", budget="10h")
        assert row["in_training"] == f"{raw_maximum(tmp_path, 'physics', method, 20):.1f}"


def test_published_numbers_only_where_comparable(finished, tmp_path):
    for path in (finished / "tables").iterdir():
        text = path.read_text()
        assert "Published" not in text
        assert "paper," not in text.splitlines()[0]
    assert "not comparable with the paper" in (finished / "tables/table1.md").read_text()

    results = results_of(tmp_path, paper_experiment())
    write_tables(results, tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="srpo", benchmark="physics", budget="10h")["paper"] == "78.4"
    assert cell(rows, method="base", benchmark="chemistry")["paper"] == "41.1"
    assert cell(rows, method="sdpo", benchmark="average", budget="5h")["paper"] == "71.1"
    assert cell(read(tmp_path / "tables/table4.csv"), benchmark="physics", split="test")["paper"] == "80"
    example = cell(read(tmp_path / "tables/table5.csv"), benchmark="physics")
    assert example == {
        "benchmark": "physics",
        "question": "A question of physics: <b>larger</b> or smaller?",
        "answer": "larger",
    }
    seconds = step_seconds.data(results).to_dict("records")
    assert cell(seconds, method="grpo", budget="10h")["paper"] == 91.5
    text = (tmp_path / "tables/table1.md").read_text()
    assert "Published" in text
    assert "not comparable" not in text


def test_published_averages_only_over_the_same_benchmarks(tmp_path):
    results = results_of(tmp_path, paper_experiment(["chemistry", "physics"]))
    write_tables(results, tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="grpo", benchmark="physics", budget="10h")["paper"] == "73.6"
    assert cell(rows, method="grpo", benchmark="average", budget="10h")["paper"] == ""
    assert step_seconds.data(results)["paper"].isna().all()


def question_scores(root, benchmark, method, budget):
    """Cross-fitted (its own test: test_cross_fit.py), from the raw log."""
    seconds = EXPERIMENT.training.budget_seconds[budget]
    log = [v for v in raw_log(root, benchmark, method, "validations") if v["clock"] <= seconds]
    return 100 * selected_scores(np.array([v["question_scores"] for v in log]))


def test_differences_are_paired_on_the_same_questions(finished):
    """The difference and, up to the bootstrap's noise, its interval, from the raw scores by the normal formula."""
    rows = read(finished / "tables/differences.csv")
    means, errors = [], []
    for benchmark in ("chemistry", "physics"):
        sides = [question_scores(finished, benchmark, method, "10h") for method in ("srpo", "grpo")]
        paired = [a - b for a, b in zip(*sides, strict=True)]
        means.append(sum(paired) / len(paired))
        errors.append(sum((d - means[-1]) ** 2 for d in paired) / (len(paired) - 1) / len(paired))
        row = cell(rows, benchmark=benchmark, method="grpo", budget="10h")
        assert row["difference"] == f"{means[-1]:.1f}".replace("-0.0", "0.0")
        assert (row["difference_unit"], row["benchmarks"]) == ("question", "1")
    row = cell(rows, benchmark="average", method="grpo", budget="10h")
    mean, margin = sum(means) / 2, 1.96 * math.sqrt(sum(errors)) / 2
    assert float(row["difference"]) == pytest.approx(mean, abs=0.051)
    assert float(row["difference_low"]) == pytest.approx(mean - margin, abs=0.25 * margin)
    assert float(row["difference_high"]) == pytest.approx(mean + margin, abs=0.25 * margin)


def test_the_average_comes_first_in_tables_of_scores_and_of_differences(finished):
    results = load_results(finished)
    for table in (make_table("table1", results), make_table("differences", results)):
        for grid in table.shown:
            groups = list(dict.fromkeys(group for group, _ in grid.columns if group))
            assert groups == ["Average", "Chemistry", "Physics"]
        benchmarks = list(dict.fromkeys(table.frame["benchmark"]))
        assert benchmarks == ["chemistry", "physics", "average"]
    shown = {
        (label, *column): text.split(" [")[0]
        for label, texts in grid.rows
        for column, text in zip(grid.columns, texts, strict=True)
    }
    for row in table.frame.to_dict("records"):
        title = {"average": "Average", "chemistry": "Chemistry", "physics": "Physics"}[row["benchmark"]]
        text = shown[f"SRPO minus {row['method'].upper()}", title, results.experiment.budget_title(row["budget"])]
        assert text == number(row["difference"], sign=True)


def test_the_selection_bias_is_the_difference_between_the_two_protocols(finished):
    for row in read(finished / "tables/table1.csv"):
        if row["method"] != "base" and row["in_training"]:
            gap = float(row["in_training"]) - float(row["resampled"])
            assert float(row["selection_bias"]) == pytest.approx(gap, abs=0.101)
            assert float(row["selection_bias_low"]) <= gap + 0.101
            assert float(row["selection_bias_high"]) >= gap - 0.101


def test_intervals_are_over_seeds_and_questions(tmp_path):
    """The estimate has its oracles in test_contrasts.py; here, that a table gives it the right scores."""
    write_tables(results_of(tmp_path, tiny_of(benchmarks=["miniature/physics"], seeds=[1, 2, 3])), tmp_path / "tables")
    row = cell(read(tmp_path / "tables/table1.csv"), method="srpo", benchmark="physics", budget="10h")
    best = []
    for seed in (1, 2, 3):
        log = raw_log(tmp_path, "physics", "srpo", "validations", seed)
        best.append(max((v for v in log if v["step"] > 0 and v["clock"] <= 20), key=lambda v: v["avg_at_k"]))
    expected = contrast([[Arm(100 * np.array([v["question_scores"] for v in best]))]], bounds=(0.0, 100.0))
    assert (row["in_training_unit"], row["in_training_seeds"]) == ("seed and question", "3")
    assert row["in_training_low"] == f"{expected.low:.1f}"
    assert row["in_training_high"] == f"{expected.high:.1f}"
    assert 0 < float(row["in_training_low"]) < expected.value < float(row["in_training_high"]) < 100
