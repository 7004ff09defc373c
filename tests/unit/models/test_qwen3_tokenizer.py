"""Prompts, responses and rewards with Qwen3's own tokenizer, where the hub's cache has it: no test uses the network."""

import pytest
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from srpo.benchmarks.prompts import Messages, student_prompts, teacher_messages, teacher_prompt_ids
from srpo.benchmarks.response_parts import response_parts
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.miniature.tokenizer import CHAT_TEMPLATE
from srpo.rewards import compute_reward

PADDED = 151900


@pytest.fixture(scope="module")
def qwen3() -> PreTrainedTokenizerBase:
    model = load_experiment(experiment_file("paper-arms")).models["qwen3-4b"]
    try:
        folder = snapshot_download(model.repository, revision=model.revision, local_files_only=True)
    except LocalEntryNotFoundError:
        pytest.skip(f"{model.repository} is not in the hub's cache")
    return AutoTokenizer.from_pretrained(folder)


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


def test_the_parts_of_a_response_bear_ids_that_no_token_has(qwen3):
    ids = qwen3.encode("<reasoning>\nÅ 汉\n</reasoning>\n<answer>\nB\n</answer>", add_special_tokens=False)
    parts = response_parts(qwen3, {0: torch.tensor(ids), 1: torch.tensor([PADDED, *ids])})
    assert parts[1][1:].tolist() == parts[0].tolist()
