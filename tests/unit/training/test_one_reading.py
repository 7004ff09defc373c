"""A model is read in one way: the same weights, ends and text for training, evaluation and gap, whatever lies there."""

import json
import operator
from contextlib import nullcontext
from dataclasses import replace

import pytest
from one_line import refused
from safetensors.torch import load_file, save_file
from synthetic import tiny_of
from tiny import prepare, tiny_experiment
from tokenizers import normalizers

from srpo.experiment.config import Execution, LocalModel
from srpo.policy.in_process import InProcessPolicy
from srpo.questions.prompts import response_texts, student_prompts
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import read_split
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.interface import SamplingParams
from srpo.starts.base_models import build_model
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.evaluate_run import serving
from srpo.training.lengths import check_lengths

PARAMS = SamplingParams(1.0, 12)


@pytest.fixture
def prepared(tmp_path):
    spec, layout = prepare(tiny_experiment("srpo"), tmp_path)
    folder = layout.model("miniature-tiny")
    return spec, folder, open_tokenizer(folder), read_split(layout.split("physics", "train"))


def sampled(spec, folder, tokenizer, questions):
    """Lengths of the same samples in training and in evaluation."""
    prompts = student_prompts(tokenizer, [question.messages for question in questions[:4]], 96)
    seeds, ends = [[*range(8)]] * 4, end_tokens(folder, tokenizer)
    with InProcessPolicy(spec, folder).sampling() as engine:
        trained = engine.generate(prompts, PARAMS, seeds)
    with serving(spec.execution, spec.training, folder, folder / "log", ends) as engine:
        evaluated = engine.generate(prompts, PARAMS, seeds)
    return [[[len(c.token_ids) for c in group] for group in groups] for groups in (trained, evaluated)]


def test_training_and_evaluation_end_at_the_same_tokens(prepared):
    """Of a model whose configuration names another end than its tokenizer, as that of a base model does."""
    spec, folder, tokenizer, questions = prepared
    other = tokenizer.convert_tokens_to_ids("5")
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": other}))
    assert end_tokens(folder, tokenizer) == {other, tokenizer.eos_token_id}
    assert operator.eq(*sampled(spec, folder, tokenizer, questions))


def test_weights_beside_the_model_are_not_read(prepared, tmp_path):
    spec, folder, tokenizer, questions = prepared
    weights = load_file(folder / "model.safetensors")
    save_file({name: -weight for name, weight in weights.items()}, folder / "model_old.safetensors")
    assert operator.eq(*sampled(spec, folder, tokenizer, questions))
    build_model(LocalModel(kind="local", name="own", title="Own", path=folder), tmp_path / "own", {})
    assert [path.name for path in (tmp_path / "own").glob("*.safetensors")] == ["model.safetensors"]
    parameters = json.loads((tmp_path / "own" / "base.json").read_text())["parameters"]
    assert parameters == sum(weight.numel() for weight in weights.values())


def test_tags_that_are_special_tokens_are_text(prepared):
    spec, _, tokenizer, questions = prepared
    tokenizer.add_special_tokens({"additional_special_tokens": ["<answer>", "</answer>"]})
    (ids,) = tokenizer(["<|im_start|><answer>5</answer><|im_end|><|endoftext|>"])["input_ids"]
    assert response_texts(tokenizer, [ids]) == ["<answer>5</answer>"]
    assert [compute_reward("answer_match", text, "5") for text in response_texts(tokenizer, [ids])] == [1.0]
    check_lengths(tokenizer, questions, "train", spec.training)


def test_answers_that_get_lost_in_tokens_are_refused_or_said(prepared, caplog):
    spec, _, tokenizer, questions = prepared
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("%", "")
    known = [replace(question, ground_truth="5") for question in questions]
    check_lengths(tokenizer, [*known[1:], replace(known[0], ground_truth="5%")], "train", spec.training)
    assert "1 of 40 right answers" in caplog.text
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("<answer>", "")
    with refused("40 of 40 answers get lost in tokens"):
        check_lengths(tokenizer, known, "train", spec.training)


def test_a_question_with_marks_of_turns_is_refused(prepared):
    spec, _, tokenizer, questions = prepared
    marked = replace(questions[0], messages=[{"role": "user", "content": "Is <|im_end|> one token?"}])
    with refused("1 questions have marks of turns"):
        check_lengths(tokenizer, [marked, *questions[1:]], "train", spec.training)


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("m in messages", "m in messages[1:]") + ASKS])
def test_a_template_that_asks_for_nothing_or_drops_a_message_is_refused(prepared, template):
    *_, tokenizer, _ = prepared
    tokenizer.chat_template = template
    with refused("chat template"):
        student_prompts(tokenizer, [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]], 96)


def test_a_prompt_is_the_same_on_every_day(prepared):
    """As Llama 3's template writes it; transformers would fill in the date, or here the time."""
    *_, tokenizer, _ = prepared
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y %H:%M:%S') }}" + TEMPLATE + ASKS
    (ids,) = student_prompts(tokenizer, [[{"role": "user", "content": "?"}]], 96)
    assert tokenizer.decode(ids).startswith("26 Jul 2024 00:00:00<|im_start|>user")


def test_samples_of_the_whole_vocabulary_have_no_seed(monkeypatch, tmp_path):
    asked = []
    server = "srpo.rollout.sglang_server.SGLangServer"
    monkeypatch.setattr(server, lambda checkpoint, log, options: nullcontext(asked.append(options)))
    monkeypatch.setattr("srpo.training.evaluate_run.hold_gpus", lambda ranks: None)
    training, execution = tiny_of().training, Execution(driver="ray", rollout_engine="sglang")
    for of in ({"top_p": 0.95}, {"max_prompt_length": 1000}):
        serving(execution, training, tmp_path, tmp_path / "log", frozenset(), **of).__enter__()
    assert [options.deterministic for options in asked] == [True, False]
    room = [options.context_length - training.max_response_length for options in asked]
    assert room == [training.max_prompt_length, 1000]
