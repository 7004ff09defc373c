"""Tables: every number recomputed from the raw logs by other code, gaps left open, bytes repeatable."""

import csv
import json
import math
import re

import pytest
from synthetic import paper_experiment, tiny_experiment, write_results

from srpo.analysis.grid import latex, text_grid
from srpo.analysis.load import load_results
from srpo.analysis.tables import build_tables, write_tables
from srpo.compose import load_experiment

EXPERIMENT = load_experiment(tiny_experiment())
MODEL = "miniature-small"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    write_results(root, EXPERIMENT)
    write_tables(load_results(root), root / "tables")
    return root


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cell(rows, **key):
    (row,) = [row for row in rows if all(row[name] == value for name, value in key.items())]
    return row


def raw_maximum(root, benchmark, method, seconds, seed=1):
    """Table 1's protocol, straight from the log."""
    path = root / f"runs/{MODEL}/{benchmark}/{method}/seed{seed}/validations.jsonl"
    log = [json.loads(line) for line in path.read_text().splitlines()]
    return max((100 * entry["avg_at_k"] for entry in log if entry["clock"] <= seconds), default=math.nan)


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
    write_results(tmp_path, EXPERIMENT, keep=lambda run: (run.benchmark, run.method) != ("physics", "srpo"))
    write_tables(load_results(tmp_path), tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    for benchmark, missing in (("chemistry", False), ("physics", True), ("average", True)):
        row = cell(rows, method="srpo", benchmark=benchmark, budget="10h")
        assert (row["in_training"] == "") is missing
        assert (row["resampled"] == "") is missing
    assert cell(rows, method="grpo", benchmark="average", budget="10h")["in_training"] != ""
    seconds = read(tmp_path / "tables/step_seconds.csv")
    assert {row["benchmarks"] for row in seconds} == {"1"}  # methods compare on what all of them have


def test_a_budget_that_a_running_run_has_not_used_up_is_open(tmp_path):
    write_results(tmp_path, EXPERIMENT, stop_at=12)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="sdpo", benchmark="physics", budget="5h")["in_training"] != ""
    assert cell(rows, method="sdpo", benchmark="physics", budget="10h")["in_training"] == ""


def test_seeds_are_averaged_and_counted(tmp_path):
    blocks = [{**tiny_experiment()["matrix"][0], "benchmarks": ["miniature/physics"], "seeds": [1, 2, 3]}]
    experiment = load_experiment(tiny_experiment(matrix=blocks))
    write_results(tmp_path, experiment, keep=lambda run: run.seed < 3)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    row = cell(read(tmp_path / "tables/table1.csv"), method="srpo", benchmark="physics", budget="10h")
    expected = (raw_maximum(tmp_path, "physics", "srpo", 20) + raw_maximum(tmp_path, "physics", "srpo", 20, 2)) / 2
    assert (row["in_training"], row["in_training_seeds"]) == (f"{expected:.1f}", "2")
    assert not [r for r in read(tmp_path / "tables/table1.csv") if r["benchmark"] == "average"]


def test_ablations_are_averaged_and_compared(tmp_path):
    names = ["srpo", "srpo_without_weighting", "advantage_mix"]
    experiment = load_experiment(tiny_experiment(matrix=[{**tiny_experiment()["matrix"][0], "methods": names}]))
    write_results(tmp_path, experiment)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    scores = {m: sum(raw_maximum(tmp_path, b, m, 20) for b in ("chemistry", "physics")) / 2 for m in names}
    rows = read(tmp_path / "tables/table2.csv")
    for method, other in (("srpo_without_weighting", "srpo"), ("advantage_mix", "srpo_without_weighting")):
        row = cell(rows, method=method, benchmark="average", budget="10h")
        assert row["compared_with"] == other
        assert row["in_training"] == f"{scores[method]:.1f}"
        assert float(row["in_training_difference"]) == pytest.approx(scores[method] - scores[other], abs=0.051)
    assert {row["method"] for row in read(tmp_path / "tables/table1.csv")} == {"base", "srpo"}


def test_published_numbers_only_where_comparable(finished, tmp_path):
    for path in (finished / "tables").iterdir():
        text = path.read_text()
        assert "Published" not in text
        assert "paper," not in text.splitlines()[0]
    assert "not comparable with the paper" in (finished / "tables/table1.md").read_text()

    experiment = paper_experiment()
    write_results(tmp_path, experiment)
    write_tables(load_results(tmp_path, experiment), tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="srpo", benchmark="physics", budget="10h")["paper"] == "78.4"
    assert cell(rows, method="base", benchmark="chemistry")["paper"] == "41.1"
    assert cell(rows, method="sdpo", benchmark="average", budget="5h")["paper"] == "71.1"
    assert cell(read(tmp_path / "tables/table4.csv"), benchmark="physics", split="test")["paper"] == "80"
    assert cell(read(tmp_path / "tables/step_seconds.csv"), method="grpo", budget="10h")["paper"] == "91.5"
    text = (tmp_path / "tables/table1.md").read_text()
    assert "Published" in text
    assert "not comparable" not in text


def test_published_averages_only_over_the_same_benchmarks(tmp_path):
    experiment = paper_experiment(["chemistry", "physics"])
    write_results(tmp_path, experiment)
    write_tables(load_results(tmp_path, experiment), tmp_path / "tables")
    rows = read(tmp_path / "tables/table1.csv")
    assert cell(rows, method="grpo", benchmark="physics", budget="10h")["paper"] == "73.6"
    assert cell(rows, method="grpo", benchmark="average", budget="10h")["paper"] == ""
    assert {row["paper"] for row in read(tmp_path / "tables/step_seconds.csv")} == {""}


def test_tables_do_not_depend_on_the_machine(tmp_path):
    """Other wall times and memory, files written in another order: the same bytes but for cost/."""
    roots = tmp_path / "a", tmp_path / "b"
    for root in roots:
        write_results(root, EXPERIMENT)
    for path in (roots[1] / "runs").rglob("*.json*"):
        path.write_text(path.read_text().replace('"wall_seconds": ', '"wall_seconds": 9'))
    for root in roots:
        write_tables(load_results(root), root / "tables")
    names = sorted(path.name for path in (roots[0] / "tables").iterdir())
    assert names == sorted(path.name for path in (roots[1] / "tables").iterdir())
    for name in names:
        content = (roots[0] / "tables" / name).read_bytes()
        assert content == (roots[1] / "tables" / name).read_bytes()
        assert b"\r" not in content
    assert (roots[0] / "cost/cost.csv").read_bytes() != (roots[1] / "cost/cost.csv").read_bytes()


def test_settings_are_those_of_the_runs(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    path.write_text(path.read_text().replace("learning_rate: 5.0e-06", "learning_rate: 0.25"))
    table = build_tables(load_results(tmp_path))["table3"].frame.set_index("setting")
    assert table.loc["Learning rate", "srpo"] == "2.5e-01"
    assert table.loc["Entropy weighting beta", "grpo"] == "–"


def question_scores(root, benchmark, method, budget):
    path = root / f"runs/{MODEL}/{benchmark}/{method}/seed1/evaluation.json"
    return [100 * score for score in json.loads(path.read_text())["budgets"][budget]["question_scores"]]


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


def test_the_selection_bias_is_the_difference_between_the_two_protocols(finished):
    for row in read(finished / "tables/table1.csv"):
        if row["method"] != "base" and row["in_training"]:
            gap = float(row["in_training"]) - float(row["resampled"])
            assert float(row["selection_bias"]) == pytest.approx(gap, abs=0.101)
            assert float(row["selection_bias_low"]) <= gap + 0.101
            assert float(row["selection_bias_high"]) >= gap - 0.101


def test_intervals_over_seeds_are_students(tmp_path):
    blocks = [{**tiny_experiment()["matrix"][0], "benchmarks": ["miniature/physics"], "seeds": [1, 2, 3]}]
    experiment = load_experiment(tiny_experiment(matrix=blocks))
    write_results(tmp_path, experiment)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    row = cell(read(tmp_path / "tables/table1.csv"), method="srpo", benchmark="physics", budget="10h")
    maxima = [raw_maximum(tmp_path, "physics", "srpo", 20, seed) for seed in (1, 2, 3)]
    mean = sum(maxima) / 3
    margin = 4.302653 * math.sqrt(sum((m - mean) ** 2 for m in maxima) / 2 / 3)
    assert (row["in_training_unit"], row["in_training_seeds"]) == ("seed", "3")
    assert row["in_training_low"] == f"{mean - margin:.1f}"
    assert row["in_training_high"] == f"{mean + margin:.1f}"


def test_seconds_a_step_and_shares_are_means_of_the_log(finished):
    seconds, early = [], []
    for benchmark in ("chemistry", "physics"):
        path = finished / f"runs/{MODEL}/{benchmark}/srpo/seed1/steps.jsonl"
        steps = [json.loads(line) for line in path.read_text().splitlines()]
        within = [step["step_seconds"] for step in steps if step["clock"] <= 10]
        seconds.append(sum(within) / len(within))
        tenth = steps[: math.ceil(len(steps) / 10)]
        # section 3.1 of the paper: SRPO sends exactly the wrong rollouts with a teacher to self-distillation
        early.append(sum(step["metrics"]["routing/sdpo_fraction"] for step in tenth) / len(tenth))
    row = cell(read(finished / "tables/step_seconds.csv"), method="srpo", budget="5h")
    assert row["step_seconds"] == f"{sum(seconds) / 2:.4f}"
    rows = read(finished / "tables/routing_cases.csv")
    row = cell(rows, method="srpo", case="wrong_with_teacher", part="early")
    assert float(row["percent"]) == pytest.approx(100 * sum(early) / 2, abs=0.051)
    shares = [float(r["percent"]) for r in rows if (r["method"], r["part"]) == ("grpo", "late")]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_latex_is_booktabs_and_escaped(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / "data/physics/statistics.json"
    path.write_text(path.read_text().replace("or smaller?", "50 % & a_b $x$ \\\\input{x}"))
    write_tables(load_results(tmp_path), tmp_path / "tables")
    text = (tmp_path / "tables/table5.tex").read_text()
    assert r"50 \% \& a\_b \$x\$ \textbackslash input\{x\}" in text
    main = (tmp_path / "tables/table1.tex").read_text()
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\multicolumn{3}{c}{Chemistry}", r"\label{tab:table1}"):
        assert part in main
    for path in (tmp_path / "tables").glob("*.tex"):
        body = [line for line in path.read_text().splitlines() if not line.startswith("%")]
        assert "\n".join(body).count(r"\begin{") == "\n".join(body).count(r"\end{")


def test_long_texts_break_their_lines_in_latex():
    rows = [("short", ["x" * 40, "4 " * 50, "1"]), ("other", ["y", "9 " * 200, "2"])]
    text = latex(text_grid("a", ["b", "c", "d"], rows, numeric=False), "caption", "label")
    assert r"\begin{tabular}{llp{0.75\linewidth}l}" in text
    wide = latex(text_grid("a", ["b", "c"], [("x", ["4 " * 50, "9 " * 200])], numeric=False), "caption", "label")
    assert r"\begin{tabular}{lp{0.25\linewidth}p{0.50\linewidth}}" in wide


# ---------------------------------------------------------------- table 6


def test_table_6_is_the_first_logged_group_with_both_branches(finished):
    """Checked against the log and the paper's rule: wrong with a correct other one goes to SDPO, the rest to GRPO."""
    log = (finished / f"runs/{MODEL}/chemistry/srpo/seed1/groups.jsonl").read_text().splitlines()
    groups = [json.loads(line) for line in log]
    rewards = [[rollout["reward"] for rollout in group["rollouts"]] for group in groups]
    chosen = next(i for i, found in enumerate(rewards) if 0 < sum(found) < 8)
    assert chosen == 1  # the first one has no success
    rows = read(finished / "tables/table6.csv")
    assert [row["rollout"] for row in rows] == [str(i) for i in range(1, 9)]
    assert {(row["benchmark"], row["method"], row["seed"]) for row in rows} == {("chemistry", "srpo", "1")}
    assert {row["step"] for row in rows} == {str(groups[chosen]["step"])}
    first_correct = rewards[chosen].index(1) + 1
    for row, reward in zip(rows, rewards[chosen], strict=True):
        assert row["correct"] == str(reward == 1)
        assert row["teacher_available"] == str(sum(rewards[chosen]) > reward)
        assert row["branch"] == ("grpo" if reward else "sdpo")
        assert row["sibling_shown"] == ("" if reward else str(first_correct))
        assert float(row["advantage"]) == pytest.approx(reward - sum(rewards[chosen]) / 8, abs=1e-4)
    text = (finished / "tables/table6.md").read_text()
    assert "| Rollout 1 | no | yes | SDPO | The self-teacher is shown rollout 3 | -0.250 | 20 |" in text
    assert "| Rollout 3 | yes | yes | GRPO | Correct; a teacher is available but unused | +0.750 | 22 |" in text
    assert "27 (cut off)" in text
    assert r"Rollout 2 of chemistry. \<answer>larger\</answer> |" in text
    assert f"training step {groups[chosen]['step']}" in text


def test_table_6_prefers_srpo_and_takes_the_first_run_that_has_a_group(tmp_path):
    names = ["srpo_without_weighting", "srpo"]
    experiment = load_experiment(tiny_experiment(matrix=[{**tiny_experiment()["matrix"][0], "methods": names}]))
    write_results(tmp_path, experiment)
    for expected in (("chemistry", "srpo"), ("physics", "srpo"), ("chemistry", "srpo_without_weighting")):
        frame = build_tables(load_results(tmp_path))["table6"].frame
        assert {*zip(frame["benchmark"], frame["method"], strict=True)} == {expected}
        (tmp_path / f"runs/{MODEL}/{expected[0]}/{expected[1]}/seed1/groups.jsonl").unlink()


def test_table_6_is_empty_and_says_why(tmp_path):
    write_results(tmp_path, EXPERIMENT, stop_at=3)
    table = build_tables(load_results(tmp_path))["table6"]
    assert table.frame.empty
    assert "No group with rollouts in both branches is logged" in table.notes[0]
    assert list(table.frame.columns)[:4] == ["model", "benchmark", "method", "seed"]
    experiment = load_experiment(tiny_experiment(matrix=[{**tiny_experiment()["matrix"][0], "methods": ["sdpo"]}]))
    write_results(tmp_path / "sdpo", experiment)
    table = build_tables(load_results(tmp_path / "sdpo"))["table6"]
    assert "No method of this experiment sends rollouts to both branches." in table.notes


def test_model_text_cannot_leave_its_cell(tmp_path):
    attack = "a | b \\| c\n\n| ![x](http://x) <img src=x> \\input{x} $y$ % _z_ `d`\ud800\u202e"
    write_results(tmp_path, EXPERIMENT, response=attack)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    shown = (tmp_path / "tables/table6.md").read_text()
    escaped = r"a \| b \\\| c \| ![x\](http://x) \<img src=x> \\input{x} $y$ % \_z\_ \`d\`"
    lines = [line for line in shown.splitlines() if re.match(r"\| Rollout \d", line)]
    assert len(lines) == 8
    assert all(escaped in line for line in lines)
    latex = (tmp_path / "tables/table6.tex").read_text()
    assert r"\textbackslash input\{x\} \$y\$ \% \_z\_" in latex
    assert r"\input" not in latex
    for kind in ("csv", "md", "tex", "rst"):
        text = (tmp_path / f"tables/table6.{kind}").read_text()
        assert "\u202e" not in text
    assert len(read(tmp_path / "tables/table6.csv")) == 8


# ---------------------------------------------------------------- diagnostics


def logged(root, benchmark, method, metric, seed=1):
    """A metric's values in the log, in step order."""
    path = root / f"runs/{MODEL}/{benchmark}/{method}/seed{seed}/steps.jsonl"
    metrics = [json.loads(line)["metrics"] for line in path.read_text().splitlines()]
    return [found[metric] for found in metrics if metric in found]


@pytest.mark.parametrize("part", ["early", "late"])
@pytest.mark.parametrize(
    ("method", "metric", "factor"),
    [
        ("srpo", "grad_norm/policy", 1),
        ("srpo", "grad_norm/distillation", 1),
        ("srpo", "weights/p10", 1),
        ("srpo", "weights/loss_scale", 100),
        ("sdpo", "distillation_share/answer_start", 100),
        ("sdpo", "copying/teacher", 100),
        ("grpo", "actor/rollout_is_truncated_fraction", 100),
        ("grpo", "routing/all_correct_groups", 100),
    ],
)
def test_diagnostics_are_means_of_the_first_and_last_tenth_of_the_log(finished, method, metric, factor, part):
    means = []
    for benchmark in ("chemistry", "physics"):
        values = logged(finished, benchmark, method, metric)
        tenth = -(-len(values) // 10)
        chosen = values[:tenth] if part == "early" else values[-tenth:]
        means.append(factor * math.fsum(chosen) / tenth)
    row = cell(read(finished / "tables/diagnostics.csv"), method=method, metric=metric, part=part)
    assert float(row["value"]) == pytest.approx(sum(means) / 2, abs=0.6e-4)
    assert row["unit"] == ("%" if factor == 100 else "")
    assert row["benchmarks"] == "2"


def test_diagnostics_that_do_not_apply_are_dashes(finished):
    rows = read(finished / "tables/diagnostics.csv")
    for method, metric in (("grpo", "copying/teacher"), ("sdpo", "weights/max"), ("sdpo", "grad_norm/policy")):
        assert cell(rows, method=method, metric=metric, part="late")["value"] == ""
    shares = [r["value"] for r in rows if r["metric"].startswith("distillation_share/q") and r["method"] == "srpo"]
    assert sum(map(float, shares)) == pytest.approx(2 * 100, abs=1e-3)


def test_diagnostics_of_older_logs_are_left_out(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    for path in tmp_path.glob("runs/**/steps.jsonl"):
        path.write_text(re.sub(r', "(weights|copying|distillation_share|grad_norm)/\w+": [^,}]+', "", path.read_text()))
    for path in tmp_path.glob("runs/**/groups.jsonl"):
        path.unlink()
    write_tables(load_results(tmp_path), tmp_path / "tables")
    metrics = {row["metric"] for row in read(tmp_path / "tables/diagnostics.csv")}
    assert "actor/grad_norm" in metrics
    assert not [name for name in metrics if name.startswith(("weights", "copying", "distillation", "grad_norm"))]
    assert "Dynamic weights" not in (tmp_path / "tables/diagnostics.md").read_text()
