"""Chat messages to prompt tokens, for the student and for the self-teacher.

The teacher's prompt is SDPO's reprompt: the question, a correct response, and the request to solve the original
question (section 3 and appendix; its template has a place for feedback, which stays empty in the paper).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from srpo.ground.errors import SrpoError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Messages = list[dict[str, str]]

_SHOWN = "\nCorrect solution:\n\n{solution}\n\nCorrectly solve the original question."
_CUT = "\ufdd0"
"""Between two parts of a prompt that become tokens apart. Unicode has no such character."""


def student_prompts(
    tokenizer: PreTrainedTokenizerFast,
    conversations: Iterable[Messages],
    max_length: int,
    key: str = "training.max_prompt_length",
) -> list[list[int]]:
    """Tokenize questions as the policy sees them, each ending in the assistant's header, thinking off."""
    prompts = [_prompt_ids(tokenizer, messages) for messages in conversations]
    longest = max(map(len, prompts), default=0)
    if longest > max_length:
        raise SrpoError(f"{key} = {max_length}: a question has {longest} tokens; allow as many")
    return prompts


def prompt_lengths(tokenizer: PreTrainedTokenizerFast, conversations: Iterable[Messages]) -> list[int]:
    """Tokens of each question as the policy sees it (:func:`student_prompts`)."""
    return [len(_prompt_ids(tokenizer, messages)) for messages in conversations]


def strip_thinking(text: str) -> str:
    """Remove every ``<think>...</think>``, which a prompt may have opened, and white space after it; in linear time."""
    lone = text.find("</think>")
    if lone >= 0 and "<think>" not in text[:lone]:
        text = text[lone + len("</think>") :].lstrip()
    kept = []
    start = 0
    while (opening := text.find("<think>", start)) >= 0 and (closing := text.find("</think>", opening)) >= 0:
        kept.append(text[start:opening])
        start = closing + len("</think>")
        while start < len(text) and text[start].isspace():
            start += 1
    return "".join([*kept, text[start:]])


@lru_cache(maxsize=4)
def turn_marks(tokenizer: PreTrainedTokenizerFast) -> tuple[frozenset[int], frozenset[int]]:
    """The ids that end a response, by the tokenizer or the template, and all that are none of its text."""
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    talk = _render(tokenizer, [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}], asks=False)
    written = [token for token in _encode(tokenizer, talk)["input_ids"] if token in special]
    after = [token for token in _encode(tokenizer, talk.rpartition("!")[2])["input_ids"] if token in special]
    ends = {tokenizer.eos_token_id, *after[:1]} - {None}
    return frozenset(ends), frozenset({*ends, *written, tokenizer.pad_token_id, tokenizer.bos_token_id} - {None})


def response_texts(tokenizer: PreTrainedTokenizerFast, responses: Iterable[Sequence[int]]) -> list[str]:
    """Responses as text. Marks of turns are left out by their ids; a tag stays, even if it is a special token."""
    _, marks = turn_marks(tokenizer)
    return tokenizer.batch_decode([[token for token in response if token not in marks] for response in responses])


def teacher_messages(messages: Messages, solution: str) -> Messages:
    """Enrich a question with a correct response, such as a sibling's; messages before the last stay as they are."""
    if (role := messages[-1]["role"]) in ("assistant", "system"):
        raise ValueError(f"the last message is of the role {role}: give the question last, to which the text is added")
    return _enriched(messages, strip_thinking(solution))


def teacher_prompt_ids(
    tokenizer: PreTrainedTokenizerFast, messages: Messages, solution: str, max_length: int
) -> list[int]:
    """Tokenize the enriched prompt, shortening the solution if it would be too long.

    The reference cuts the prompt's end instead and with it the assistant's header. A mark of turns that a response
    spells, such as ``<|im_end|>``, stays text.
    """
    marks = "|".join(map(re.escape, tokenizer.convert_ids_to_tokens(sorted(turn_marks(tokenizer)[1])))) or "(?!)"
    text = re.sub(f"(?={marks}).", rf"\g<0>{_CUT}", strip_thinking(solution))
    ids = _prompt_ids(tokenizer, _enriched(messages, text))
    ends = [end for _, end in _encode(tokenizer, text, offsets=True)["offset_mapping"]] if len(ids) > max_length else []
    while ends and len(ids) > max_length:
        del ends[max(0, len(ends) - (len(ids) - max_length)) :]
        ids = _prompt_ids(tokenizer, _enriched(messages, text[: ends[-1]] if ends else ""))
    return ids


def _enriched(messages: Messages, solution: str) -> Messages:
    *before, last = messages
    return [*before, {**last, "content": last["content"] + _SHOWN.format(solution=solution)}]


def _prompt_ids(tokenizer: PreTrainedTokenizerFast, messages: Messages) -> list[int]:
    text, told = _render(tokenizer, messages), _render(tokenizer, messages, asks=False)
    if text == told or any(message["content"].strip() not in text for message in messages):
        raise SrpoError("the model's chat template drops a message, or does not begin the answer; mend the template")
    # the template writes the special tokens, the tokenizer must not add its own
    return [token for part in text.split(_CUT) for token in _encode(tokenizer, part)["input_ids"]]


def _render(tokenizer: PreTrainedTokenizerFast, messages: Messages, asks: bool = True) -> str:
    # in the place of transformers' own, so that a prompt does not depend on the day
    options = {"enable_thinking": False, "strftime_now": date(2024, 7, 26).strftime}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks, **options)


def _encode(tokenizer: PreTrainedTokenizerFast, text: str, offsets: bool = False) -> dict[str, list]:
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=offsets, verbose=False)
