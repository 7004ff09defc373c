"""Prompts that are too long: found by the model's own tokenizer, and refused with one line."""

import re
from dataclasses import replace

import pytest
from one_line import refused
from synthetic import tiny_experiment as reported_experiment
from tiny import prepare, tiny_experiment

from srpo.algorithm.teacher import TeacherContext
from srpo.experiment.compose import load_experiment
from srpo.ground.errors import SrpoError
from srpo.questions.prompts import student_prompts, teacher_prompt_ids
from srpo.questions.splits import read_split, write_split
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.lengths import check_experiment, check_lengths, check_teacher


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    experiment = tiny_experiment("grpo", max_steps=1)
    spec, layout = prepare(experiment, tmp_path_factory.mktemp("lengths"))
    for split in ("train", "test"):
        path = layout.split("physics", split)
        write_split(
            path, [longer(question) if question.index % 3 == 1 else question for question in read_split(path)], split
        )
    tokenizer = open_tokenizer(layout.model("miniature-tiny"))
    return spec, tokenizer, read_split(layout.split("physics", "train"))


def longer(question):
    message = question.messages[0]
    return replace(question, messages=[{**message, "content": message["content"] + question.index * "."}])


def limited(training, **changes):
    return training.model_copy(update=changes)


def lengths_of(tokenizer, questions):
    return [len(ids) for ids in student_prompts(tokenizer, [question.messages for question in questions], 10_000)]


def test_lengths_are_those_of_the_prompts_that_the_policy_sees(prepared):
    spec, tokenizer, questions = prepared
    longest = max(lengths_of(tokenizer, questions))
    check_lengths(tokenizer, questions, "train", limited(spec.training, max_prompt_length=longest))
    with refused(f"has {longest} tokens; training.max_prompt_length = {longest - 1}"):
        check_lengths(tokenizer, questions, "train", limited(spec.training, max_prompt_length=longest - 1))


def test_lengths_that_are_too_short_for_any_tokenizer_are_refused_before_there_is_one():
    experiment = load_experiment(reported_experiment())
    fits = limited(experiment.training, max_prompt_length=17, max_response_length=5, max_reprompt_len=22)
    check_experiment(experiment.model_copy(update={"training": fits}))
    for key in ("max_prompt_length", "max_response_length", "max_reprompt_len"):
        short = limited(fits, **{key: getattr(fits, key) - 1})
        with refused(f"training.{key} = {getattr(short, key)}"):
            check_experiment(experiment.model_copy(update={"training": short}))


def test_a_teacher_is_shown_whole_responses(prepared):
    spec, tokenizer, questions = prepared
    frames = [len(teacher_prompt_ids(tokenizer, question.messages, "", 512)) for question in questions]
    fits = limited(spec.training, max_response_length=20, max_reprompt_len=max(frames) + 20)
    longest = check_lengths(tokenizer, questions, "train", fits)
    check_teacher(tokenizer, longest, fits, max(frames) + 40)
    with refused("room for a response of 19 tokens, one may have 20"):
        check_teacher(tokenizer, longest, fits, max(frames) + 39)
    truth = TeacherContext(solution="ground_truth")
    thought, long = (replace(longest, response=text) for text in (f"<think>{200 * '!'}</think>!", 200 * "!"))
    check_teacher(tokenizer, longest, fits, max(frames) + 39, truth, [thought])
    with refused("one may have 200"):
        check_teacher(tokenizer, longest, fits, max(frames) + 39, truth, [long])


def test_the_shortest_right_response_may_be_all_that_fits(prepared):
    spec, tokenizer, questions = prepared
    with pytest.raises(SrpoError) as caught:
        check_lengths(tokenizer, questions, "test", limited(spec.training, max_response_length=1))
    fits = int(re.findall(r"has (\d+) tokens", str(caught.value))[0])
    check_lengths(tokenizer, questions, "test", limited(spec.training, max_response_length=fits))
    own = [replace(question, reward="some:function") for question in questions]
    check_lengths(tokenizer, own, "test", limited(spec.training, max_response_length=1))
