"""Samples of student and self-teacher with a scripted engine, and `srpo gap` on a tiny random model."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tiny import hash_reward, prepare, tiny_experiment

from srpo import cli
from srpo.questions.splits import Question
from srpo.rollout.interface import Completion
from srpo.starts.make_tokenizer import text_tokenizer
from srpo.training import self_teacher
from srpo.training.self_teacher import gap_samples, not_learned

TRAINING = SimpleNamespace(
    temperature=1.0, max_response_length=32, rollouts_per_question=2, max_prompt_length=64, max_reprompt_len=256
)
LONG = "because <answer>{}</answer>"
SHORT = "<answer>{}</answer>"


class Scripted:
    """Answers call after call with its script: one group of texts for each prompt."""

    def __init__(self, tokenizer, calls) -> None:
        self.tokenizer, self.calls, self.prompts, self.seeds = tokenizer, iter(calls), [], []

    def generate(self, prompts, params, seeds):
        assert (params.temperature, params.max_new_tokens, params.top_p) == (1.0, 32, 1.0)
        self.prompts.append([self.tokenizer.decode(ids) for ids in prompts])
        self.seeds.append(seeds)
        groups = next(self.calls)
        assert len(groups) == len(prompts)
        return [[Completion(self.tokenizer(text)["input_ids"], [], "stop") for text in group] for group in groups]


@pytest.fixture(scope="module")
def tokenizer():
    return text_tokenizer(
        ["Question 0 1 2 3? because <answer>5</answer> ... Correctly solve the original question."] * 5, 300
    )


def questions(truths: str) -> list[Question]:
    return [
        Question(i, [{"role": "user", "content": f"Question {i}?"}], truth, "answer_match", "test")
        for i, truth in enumerate(truths)
    ]


def test_what_the_warm_start_learned_by_heart_is_not_asked(caplog) -> None:
    """Of 160 such rows a model knew 99.7 %, of the test 62.5 %: nothing seemed left to learn."""
    asked = [replace(q, response="<answer>1</answer>" if q.index < 2 else None) for q in questions("1234")]
    learned, other = (SimpleNamespace(warm_start=SimpleNamespace(corpus=corpus)) for corpus in ("files", "families"))
    assert [len(not_learned(model, asked)) for model in (learned, other, SimpleNamespace())] == [2, 4, 4]
    assert not caplog.text
    assert not_learned(learned, asked[:2]) == asked[:2]
    assert "knows every question by heart" in caplog.text


def test_hand_worked(tokenizer) -> None:
    rollouts = [
        [SHORT.format(9), LONG.format(1)],
        ["none", "none"],
        [SHORT.format(1), SHORT.format(1)],
        [SHORT.format(2)] * 2,
    ]
    student = [[SHORT.format(1), "none"], ["none", "none"], [SHORT.format(2)] * 2]
    sibling = [[LONG.format(1), SHORT.format(1)], [SHORT.format(1)] * 2, [SHORT.format(2), "none"]]
    engine = Scripted(tokenizer, [rollouts, student, sibling])
    found = gap_samples(engine, tokenizer, questions("1012"), TRAINING)

    assert found.rollouts.tolist() == [[0, 1], [0, 0], [1, 1], [1, 1]]
    assert found.shown == [0, 2, 3]
    assert found.student.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert found.teacher.tolist() == [[1, 1], [1, 1], [1, 0]]
    assert found.copied.tolist() == [[1, 0], [1, 1], [1, 0]]

    plain, _, shown = engine.prompts
    assert [f"Question {i}?" in prompt for i, prompt in enumerate(plain)] == [True] * 4
    assert LONG.format(1) in shown[0]  # the first right one, not the wrong one before it
    flat = [seed for call in engine.seeds for group in call for seed in group]
    assert len(set(flat)) == len(flat) == 2 * (4 + 2 * 3)


def test_without_a_right_rollout_the_teacher_is_not_asked(tokenizer) -> None:
    found = gap_samples(Scripted(tokenizer, [[["none", "none"]] * 2]), tokenizer, questions("12"), TRAINING)
    assert found.shown == []
    assert found.teacher.shape == (0, 2)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = tiny_experiment("srpo")
    _, layout = prepare(experiment, tmp_path)
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    monkeypatch.setattr(self_teacher, "compute_reward", hash_reward)
    asked, serve = [], self_teacher.serving
    monkeypatch.setattr(self_teacher, "serving", lambda *args, **more: asked.append(more) or serve(*args, **more))
    command = ["gap", str(layout.gap("miniature-tiny", "physics"))]
    assert cli.main([*command, "--questions", "12"]) == 0
    assert asked == [{"max_prompt_length": experiment.training.max_reprompt_len}]  # room for the teacher's prompt
    printed, written = capsys.readouterr().out, layout.gap("miniature-tiny", "physics").read_bytes()
    found = json.loads(written)
    assert (found["questions"], found["samples"]) == (12, 4)
    scores = found["question_scores"]
    assert (
        found["questions_with_sibling"]
        == sum(score > 0 for score in scores["student"])
        == len(scores["teacher_sibling"])
    )
    assert found["estimates"]["student"]["value"] == pytest.approx(100 * sum(scores["student"]) / 12)
    assert "gap: teacher - student" in printed
    assert cli.main([*command, "--questions", "12"]) == 0
    assert layout.gap("miniature-tiny", "physics").read_bytes() == written
