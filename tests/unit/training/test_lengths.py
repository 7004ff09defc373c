"""Prompts that are too long: found by the model's own tokenizer, refused with one line or left out and reported."""

import json
import re
from dataclasses import replace

import pytest
import yaml
from one_line import refused
from synthetic import tiny_experiment as reported_experiment
from synthetic import write_results
from tiny import prepare, tiny_experiment

from srpo import cli
from srpo.analysis.load import load_results
from srpo.analysis.report import write_report
from srpo.experiment.compose import load_experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import write_json
from srpo.ground.layout import Layout
from srpo.questions.prompts import student_prompts
from srpo.questions.splits import read_split, write_split
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training import loop
from srpo.training.lengths import check_experiment, check_lengths, describe_lengths


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    experiment = tiny_experiment("grpo", max_steps=1)
    spec, layout = prepare(experiment, tmp_path_factory.mktemp("lengths"))
    for split in ("train", "test"):
        path = layout.split("physics", split)
        write_split(
            path, [longer(question) if question.index % 3 == 1 else question for question in read_split(path)], split
        )
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    tokenizer = open_tokenizer(layout.model("miniature-tiny"))
    return spec, layout, tokenizer, read_split(layout.split("physics", "train"))


def longer(question):
    message = question.messages[0]
    return replace(question, messages=[{**message, "content": message["content"] + question.index * "."}])


def limited(training, **changes):
    return training.model_copy(update=changes)


def lengths_of(tokenizer, questions):
    return [len(ids) for ids in student_prompts(tokenizer, [question.messages for question in questions], 10_000)]


def test_lengths_are_those_of_the_prompts_that_the_policy_sees(prepared):
    spec, _, tokenizer, questions = prepared
    checked = check_lengths(tokenizer, questions, "train", spec.training)
    assert checked.tokens == lengths_of(tokenizer, questions)
    assert checked.used == questions
    assert checked.left_out == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"max_response_length": 1}, "training.max_response_length = 1: the shortest right re"),
        ({"max_prompt_length": 5, "overlong_prompts": "leave_out"}, "0 train questions are short enough, 4 are needed"),
    ],
)
def test_lengths_with_which_nothing_is_learned_are_refused(prepared, changes, line):
    spec, _, tokenizer, questions = prepared
    with refused(line):
        check_lengths(tokenizer, questions, "train", limited(spec.training, **changes))


def test_lengths_that_are_too_short_for_any_tokenizer_are_refused_before_there_is_one():
    experiment = load_experiment(reported_experiment())
    fits = limited(experiment.training, max_prompt_length=17, max_response_length=5, max_reprompt_len=17)
    check_experiment(experiment.model_copy(update={"training": fits}))
    for key in ("max_prompt_length", "max_response_length"):
        short = limited(fits, **{key: getattr(fits, key) - 1})
        with refused(f"training.{key} = {getattr(short, key)}: "):
            check_experiment(experiment.model_copy(update={"training": short}))


def test_the_shortest_right_response_may_be_all_that_fits(prepared):
    spec, _, tokenizer, questions = prepared
    with pytest.raises(SrpoError) as caught:
        check_lengths(tokenizer, questions, "test", limited(spec.training, max_response_length=1))
    fits = int(re.findall(r"has (\d+) tokens", str(caught.value))[0])
    assert check_lengths(tokenizer, questions, "test", limited(spec.training, max_response_length=fits)).used
    own = [replace(question, reward="some:function") for question in questions]
    assert check_lengths(tokenizer, own, "test", limited(spec.training, max_response_length=1)).used


def test_left_out_questions_keep_the_others_and_their_indices(prepared):
    spec, _, tokenizer, questions = prepared
    lengths = lengths_of(tokenizer, questions)
    limit = sorted(lengths)[len(lengths) // 2]
    training = limited(spec.training, max_prompt_length=limit, overlong_prompts="leave_out")
    checked = check_lengths(tokenizer, questions, "train", training)
    assert [q.index for q in checked.used] == [q.index for q, n in zip(questions, lengths, strict=True) if n <= limit]
    assert {q.index: n for q, n in checked.left_out} == {
        q.index: n for q, n in zip(questions, lengths, strict=True) if n > limit
    }
    assert checked.left_out, "a question must be left out for this test to mean anything"
    described = describe_lengths({"train": checked}, training)["splits"]["train"]
    assert described["questions"] == len(questions)
    assert described["tokens"]["max"] == max(lengths)
    assert len(described["left_out"]) == len(checked.left_out)


def test_the_verb_writes_what_it_found_or_one_line(prepared):
    _, layout, _, questions = prepared
    verb = ["lengths", str(layout.lengths("physics", "miniature-tiny"))]
    assert cli.main(verb) == 0
    written = json.loads(layout.lengths("physics", "miniature-tiny").read_text())
    assert written["splits"]["train"]["questions"] == len(questions)
    short = yaml.safe_load(layout.experiment.read_text())
    short["training"]["max_prompt_length"] = 5
    layout.experiment.write_text(yaml.safe_dump(short))
    assert cli.main(verb) == 2


def test_a_run_trains_and_validates_on_the_short_enough_questions_only(prepared, monkeypatch):
    spec, layout, tokenizer, questions = prepared
    lengths = lengths_of(tokenizer, questions)
    training = limited(
        spec.training, max_prompt_length=sorted(lengths)[len(lengths) // 2], overlong_prompts="leave_out"
    )
    seen = []
    take = loop.Step.take

    def recorded(self, asked):
        result = take(self, asked)
        seen.extend(result[0].questions)
        return result

    monkeypatch.setattr(loop.Step, "take", recorded)
    loop.train(spec.model_copy(update={"training": training}), layout)
    used = {q.index for q in check_lengths(tokenizer, questions, "train", training).used}
    assert seen
    assert {question.index for question in seen} <= used
    tests = read_split(layout.split("physics", "test"))
    validation = json.loads(layout.run_files(spec.id).validations.read_text().splitlines()[-1])
    assert validation["questions"] == len(check_lengths(tokenizer, tests, "test", training).used) < len(tests)


def test_the_report_says_what_was_left_out(tmp_path):
    experiment = load_experiment(reported_experiment())
    layout = Layout(tmp_path / "tiny")
    write_results(layout.folder, experiment)
    model, benchmark = experiment.bases()[0]
    left_out = [{"question": index, "tokens": 2100 + index} for index in range(7)]
    split = {"questions": 512, "tokens": {"mean": 50.0, "max": 2106}, "left_out": left_out}
    write_json(layout.lengths(benchmark, model), {"max_prompt_length": 2048, "splits": {"train": split}})
    write_report(load_results(layout.folder), layout.report)
    page = " ".join(layout.report.read_text().split())
    assert "7 of 512 train questions are longer than 2048 tokens" in page
