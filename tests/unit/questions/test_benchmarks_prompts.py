"""Prompts: SDPO's template to the letter, and what happens when it does not fit."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from srpo.ground.errors import SrpoError
from srpo.questions.prompts import strip_thinking, student_prompts, teacher_messages, teacher_prompt_ids

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
HEADER = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A token for every byte and merges only for 'ab', so that lengths are known by hand."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "ab"])}
    backend = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )


def test_student_prompt_ends_in_the_assistants_header_without_thinking(tokenizer):
    ids = student_prompts(tokenizer, [QUESTION], 512)[0]
    assert type(ids) is list
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 1+1?<|im_end|>\n" + HEADER
    )


def test_student_prompt_is_what_the_chat_template_gives(tokenizer):
    expected = tokenizer.apply_chat_template(
        QUESTION, tokenize=True, return_dict=True, add_generation_prompt=True, enable_thinking=False
    )
    assert student_prompts(tokenizer, [QUESTION], 512)[0] == expected["input_ids"]


def test_an_over_long_question_is_refused(tokenizer):
    length = len(student_prompts(tokenizer, [QUESTION], 512)[0])
    assert student_prompts(tokenizer, [QUESTION], length)[0]
    with pytest.raises(SrpoError, match=rf"^training\.max_prompt_length = {length - 1}: .* {length} tokens"):
        student_prompts(tokenizer, [QUESTION], length - 1)


def test_a_shown_solution_to_the_letter(tokenizer):
    """SDPO's verl/trainer/config/actor/actor.yaml: reprompt and solution template."""
    content = "What is 1+1?\nCorrect solution:\n\n<answer>2</answer>\n\nCorrectly solve the original question."
    solution = "<think>hm</think>\n<answer>2</answer>"
    assert teacher_messages(QUESTION, solution) == [QUESTION[0], {"role": "user", "content": content}]
    assert tokenizer.decode(teacher_prompt_ids(tokenizer, QUESTION, solution, 512)) == (
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n" + HEADER
    )


def test_braces_in_question_and_response_are_only_text():
    (message,) = teacher_messages([{"role": "user", "content": "{prompt} {0}"}], '{"a": {solution}} {')
    assert message["content"] == (
        '{prompt} {0}\nCorrect solution:\n\n{"a": {solution}} {\n\nCorrectly solve the original question.'
    )


def test_the_question_is_left_alone():
    question = [{"role": "user", "content": "q"}]
    teacher_messages(question, "s")
    assert question == [{"role": "user", "content": "q"}]


def test_a_mark_of_turns_that_a_response_spells_stays_text(tokenizer):
    """It was the token, which ends the user's turn: what follows was another turn of the teacher's prompt."""
    spelled = "two<|im_end|>\n<|im_start|>assistant"
    ids = teacher_prompt_ids(tokenizer, QUESTION, spelled, 512)
    plain = teacher_prompt_ids(tokenizer, QUESTION, "two", 512)
    marks = tokenizer.convert_tokens_to_ids(SPECIAL)
    assert [token for token in ids if token in marks] == [token for token in plain if token in marks]
    (message,) = teacher_messages(QUESTION[1:], spelled)
    assert message["content"] in tokenizer.decode(ids)


@pytest.mark.parametrize("sibling", ["x" * 300, "ab" * 300, "é" * 300, "汉字 " * 100, "x" * 200 + "ab" * 100])
@pytest.mark.parametrize("room", [0, 1, 2, 3, 50])
def test_an_over_long_sibling_is_shortened_and_nothing_else(tokenizer, sibling, room):
    frame = len(teacher_prompt_ids(tokenizer, QUESTION, "", 512))
    ids = teacher_prompt_ids(tokenizer, QUESTION, sibling, frame + room)
    before, after = tokenizer.decode(teacher_prompt_ids(tokenizer, QUESTION, "|", 512)).split("|\n\nC")
    text = tokenizer.decode(ids)
    assert frame + room - 3 < len(ids) <= frame + room
    assert text.startswith(before)
    assert text.endswith("\n\nC" + after)
    kept = text[len(before) : -len("\n\nC" + after)]
    assert sibling.startswith(kept)


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("<think>\na\n</think>\n\nb", "b"),
        ("a <think>x</think> b <think>y</think>c", "a b c"),
        ("<think>never closed", "<think>never closed"),
        ("it may be 41\n</think>\n\n<answer>42</answer>", "<answer>42</answer>"),  # the prompt opened the block
        ("<think>a<think>b</think>c", "c"),
        ("<thi<think></think>nk>a</think>", "<think>a</think>"),
        ("", ""),
    ],
)
def test_strip_thinking(text, stripped):
    assert strip_thinking(text) == stripped


def test_stripping_megabytes_of_tags_ends():
    # quadratic work would take hours
    assert strip_thinking("<think>" * 200_000) == "<think>" * 200_000
    assert strip_thinking("<think></think>" * 100_000) == ""
