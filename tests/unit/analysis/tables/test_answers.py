"""The scores taken apart, by hand: 32 questions with 16 answers each are 512 answers."""

import dataclasses

import pytest
from report_cases import MODEL, changed, results_of

from srpo.analysis.tables.answers import sentences
from srpo.analysis.write import make_table


@pytest.fixture
def counted(tmp_path):
    """Of 512 answers of the untrained models 384 are cut and 64 right, of trained ones 16 are cut and 256 right."""
    results = results_of(tmp_path)
    assert {*results.bases["k"] * results.bases["questions"]} == {512}
    bases = results.bases.assign(right=64, wrong=32, unreadable=32, cut=384)
    evaluations = results.evaluations.assign(right=256, wrong=192, unreadable=48, cut=16)
    return dataclasses.replace(results, bases=bases, evaluations=evaluations)


def test_the_parts_of_a_score_by_hand(counted):
    made = make_table("answers", counted)
    rows = made.frame.set_index(["benchmark", "method"])[["right", "wrong", "unreadable", "cut"]]
    assert len(rows) == 2 * 4
    assert rows.loc[("physics", "base")].tolist() == [12.5, 6.25, 6.25, 75]
    assert rows.loc[("physics", "srpo")].tolist() == [50, 37.5, 9.375, 3.125]
    assert dict(made.shown[0].rows)["SRPO"] == ["50.0", "37.5", "9.4", "3.1"]


def test_many_cut_answers_are_a_sentence(counted):
    cut = [said for said in sentences(counted) if "answers cut" in said]
    assert len(cut) == 2
    assert "Untrained 75.0 %, GRPO 3.1 %" in cut[0]
    few = dataclasses.replace(counted, bases=counted.bases.assign(cut=25))  # 4.9 %
    assert not [said for said in sentences(few) if "answers cut" in said]


def test_a_method_that_ends_below_its_untrained_model_is_a_sentence(counted):
    low = (counted.validations["method"] == "sdpo") & (counted.validations["benchmark"] == "physics")
    scores = counted.validations["question_scores"].map(lambda own: 0.1 * own)
    fallen = counted.validations.assign(question_scores=scores.where(low, counted.validations["question_scores"]))
    results = changed(counted, validations=fallen)
    values = results.of(MODEL, "end")
    lost = (
        values["physics", "sdpo", "10h"][1].mean() - results.of(MODEL, "resampled")["physics", "base", "base"][0].mean()
    )
    (said,) = [each for each in sentences(results) if "SDPO ends below" in each]
    assert f"on Physics ({lost:.1f})" in said


def test_without_counts_there_is_no_table(tmp_path):
    results = results_of(tmp_path)
    assert not make_table("answers", results).shown
    assert not [said for said in sentences(results) if "answers cut" in said]
