"""Tasks of the package reasoning-gym: splits that share no question, scored by the tasks' own scorers."""

import json

import pytest

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import ReasoningGymBenchmark
from srpo.ground.repository import CONFIGS
from srpo.questions import rewards
from srpo.questions.rewards import compute_reward, find_reward
from srpo.questions.splits import read_split, write_split
from srpo.starts.data import build_split, split_statistics
from srpo.starts.reasoning_gym import INSTRUCTION

SHIPPED = sorted(path.stem for path in (CONFIGS / "benchmarks" / "reasoning-gym").glob("*.yaml"))


def task(name="spell_backward", **changes) -> ReasoningGymBenchmark:
    fields = {"kind": "reasoning_gym", "name": name, "title": name, "task": name}
    return ReasoningGymBenchmark(**fields | {"train_questions": 40, "test_questions": 8} | changes)


@pytest.fixture(scope="module")
def gym():
    return pytest.importorskip("reasoning_gym", reason="optional: pip install --no-deps -r envs/reasoning-gym.txt")


def answer(text: str) -> str:
    return f"<reasoning>\nHm.\n</reasoning>\n<answer>\n{text}\n</answer>"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_tasks_make_splits_that_score_their_own_answers(gym, name, tmp_path):
    matrix = [{"models": ["miniature-tiny"], "benchmarks": [f"reasoning-gym/{name}"]}]
    experiment = {"name": "x", "title": "X", "extends": "smoke", "matrix": matrix}
    benchmark = load_experiment(experiment).benchmarks[name]
    questions = {split: build_split(benchmark, split) for split in ("train", "test")}
    for split, of_split in questions.items():
        assert len(of_split) == benchmark.questions(split)
        assert [question.index for question in of_split] == list(range(len(of_split)))
    asked = [question.messages[-1]["content"] for of_split in questions.values() for question in of_split]
    assert len(set(asked)) == len(asked), "no question twice, within a split or in both"
    path = tmp_path / "test.parquet"
    write_split(path, questions["test"], "test")
    for question in read_split(path):
        assert [message["role"] for message in question.messages] == ["system", "user"]
        right = json.loads(question.ground_truth)["answer"]
        assert compute_reward(question.reward, answer(right), question.ground_truth) == 1.0
        assert compute_reward(question.reward, right, question.ground_truth) == 0.0, "no answer without the tags"
        assert compute_reward(question.reward, answer(right + "9"), question.ground_truth) == 0.0
    described = split_statistics(benchmark, questions)
    assert described["source"] == {"task": benchmark.task, "settings": benchmark.settings, "seed": 0}


def test_the_same_configuration_gives_the_same_bytes_and_another_seed_other_questions(gym, tmp_path):
    for number, changes in enumerate([{}, {}, {"seed": 10_000}]):
        write_split(tmp_path / str(number), build_split(task(**changes), "train"), "train")
    one, two, other = ((tmp_path / str(number)).read_bytes() for number in range(3))
    assert one == two != other


def test_more_train_questions_leave_the_test_split_as_it_is(gym):
    assert build_split(task(train_questions=80), "test") == build_split(task(), "test")


def test_the_same_numbers_in_another_order_are_the_same_question(gym):
    splits = [
        build_split(task("gcd", settings={"min_value": 2, "max_value": 20}), split) for split in ("train", "test")
    ]
    pairs = [frozenset(json.loads(q.ground_truth)["metadata"]["numbers"]) for split in splits for q in split]
    assert len(pairs) == 48 == len(set(pairs))
    sums = [
        build_split(task("chain_sum", settings={"max_terms": 2, "max_digits": 1}), split) for split in ("train", "test")
    ]
    expressions = {json.loads(q.ground_truth)["metadata"]["expression"] for split in sums for q in split}
    assert {"+", "-"} <= {sign for expression in expressions for sign in expression}, "a sum is not a difference"


def test_settings_reach_the_task(gym):
    for question in build_split(task(settings={"min_word_len": 5, "max_word_len": 5}), "train"):
        assert len(json.loads(question.ground_truth)["answer"]) == 5


def test_a_part_of_the_score_is_wrong_and_the_last_answer_counts(gym):
    (question, *_) = build_split(task(), "test")
    right = json.loads(question.ground_truth)["answer"]
    scorer = gym.get_score_answer_fn("spell_backward")
    nearly = right[:-1] + "?"
    assert 0 < scorer(nearly, json.loads(question.ground_truth)) < 1
    assert compute_reward("reasoning_gym", answer(nearly), question.ground_truth) == 0.0
    assert compute_reward("reasoning_gym", answer(nearly) + answer(right), question.ground_truth) == 1.0
    assert compute_reward("reasoning_gym", answer(right) + answer(nearly), question.ground_truth) == 0.0


def test_a_scorer_that_fails_is_a_wrong_response(gym, monkeypatch):
    (question, *_) = build_split(task(), "test")

    def fails(answer, entry):
        raise ZeroDivisionError

    monkeypatch.setattr(rewards, "_task_scorer", lambda task: fails)
    assert compute_reward("reasoning_gym", answer("x"), question.ground_truth) == 0.0
    with pytest.raises(ValueError, match="the scorer fails: ZeroDivisionError"):
        find_reward("reasoning_gym").check_truth(question.ground_truth)


def test_the_instruction_asks_for_what_the_reward_reads():
    assert "<answer>\n...\n</answer>" in INSTRUCTION
