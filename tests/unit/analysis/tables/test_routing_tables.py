"""Table 6: a logged group, checked against the log and the paper's rule."""

import re
from dataclasses import replace

import pytest
from report_cases import MODEL, raw_log, read, results_of
from synthetic import tiny_of, write_results

from srpo.analysis.load import load_results
from srpo.analysis.write import make_tables, write_tables


def test_table_6_is_the_first_logged_group_with_both_branches(finished):
    """Checked against the log and the paper's rule: wrong with a correct other one goes to SDPO, the rest to GRPO."""
    groups = raw_log(finished, "chemistry", "srpo", "groups")
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
        assert row["sibling_available"] == str(sum(rewards[chosen]) > reward)
        assert row["branch"] == ("grpo" if reward else "sdpo")
        assert row["sibling_shown"] == ("" if reward else str(first_correct))
        assert float(row["advantage"]) == pytest.approx(reward - sum(rewards[chosen]) / 8, abs=1e-4)
    text = (finished / "tables/table6.md").read_text()
    assert "| Rollout 1 | no | yes | SDPO | The self-teacher is shown rollout 3 | -0.250 | 20 |" in text
    assert "| Rollout 3 | yes | yes | GRPO | Correct; a sibling is available but not shown | +0.750 | 22 |" in text
    assert "27 (cut off)" in text
    assert r"Rollout 2 of chemistry. \<answer>larger\</answer> |" in text
    assert f"training step {groups[chosen]['step']}" in text


def test_the_answer_of_a_task_is_shown_without_what_its_scorer_needs(finished):
    results = load_results(finished)
    task = results.experiment.benchmarks["chemistry"].model_copy(update={"reward": "reasoning_gym"})
    experiment = results.experiment.model_copy(
        update={"benchmarks": results.experiment.benchmarks | {"chemistry": task}}
    )
    run, group = results.routed_group
    for truth, said in (('{"answer": "evarg", "metadata": {"word_len": 5}}', "evarg"), ('{"cut', '{"cut')):
        table = make_tables(
            replace(results, experiment=experiment, routed_group=(run, group | {"ground_truth": truth}))
        )["table6"]
        assert table.shown[0].rows[0][0].endswith(f" Correct answer: {said}")
        assert {*table.frame["ground_truth"]} == {truth}


def test_table_6_prefers_srpo_and_takes_the_first_run_that_has_a_group(tmp_path):
    write_results(tmp_path, tiny_of(methods=["srpo_without_weighting", "srpo"]))
    for expected in (("chemistry", "srpo"), ("physics", "srpo"), ("chemistry", "srpo_without_weighting")):
        frame = make_tables(load_results(tmp_path))["table6"].frame
        assert {*zip(frame["benchmark"], frame["method"], strict=True)} == {expected}
        (tmp_path / f"runs/{MODEL}/{expected[0]}/{expected[1]}/seed1/groups.jsonl").unlink()


def test_table_6_is_empty_and_says_why(tmp_path):
    table = make_tables(results_of(tmp_path, stop_at=3))["table6"]
    assert table.frame.empty
    assert "No group with rollouts in both branches is logged" in table.notes[0]
    assert list(table.frame.columns)[:4] == ["model", "benchmark", "method", "seed"]
    table = make_tables(results_of(tmp_path / "sdpo", tiny_of(methods=["sdpo"])))["table6"]
    assert "No method of this experiment sends rollouts to both branches." in table.notes


def test_model_text_cannot_leave_its_cell(tmp_path):
    attack = "a | b \\| c\n\n| ![x](http://x) <img src=x> \\input{x} $y$ % _z_ `d`\ud800\u202e"
    write_tables(results_of(tmp_path, response=attack), tmp_path / "tables")
    shown = (tmp_path / "tables/table6.md").read_text()
    escaped = r"a \| b \\\| c \| ![x\](http://x) \<img src=x> \\input{x} $y$ % \_z\_ \`d\`"
    lines = [line for line in shown.splitlines() if re.match(r"\| Rollout \d", line)]
    assert len(lines) == 8
    assert all(escaped in line for line in lines)
    for kind in ("csv", "md", "rst"):
        text = (tmp_path / f"tables/table6.{kind}").read_text()
        assert "\u202e" not in text
    assert len(read(tmp_path / "tables/table6.csv")) == 8
