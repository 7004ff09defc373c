"""Verifiable rewards (paper, appendix; SDPO repository, ``reward_score/feedback``): 1.0 or 0.0.

Responses come from a sampling model, so anything can stand in them. Every reader here is linear in the
response's length, and what cannot be read is wrong, never an error.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from srpo.errors import SrpoError

_DECODER = json.JSONDecoder()
_INPUT = re.compile(r"Action Input:\s*+(?={)")
_NAME = re.compile(r"Action:\s*+(\S+)")
_WORD_NAME = re.compile(r"Action:\s*+(\w+)")


def compute_reward(kind: str, response: str, ground_truth: str) -> float:
    """Score a response.

    Args:
        kind: ``answer_match``, ``tool_use`` or ``tool_use_reference``.
        response: what the model wrote; any text.
        ground_truth: the answer, or for tool use a JSON list of ``{"Action", "Action_Input"}``.

    Returns:
        1.0 if right, otherwise 0.0, whatever the response and the truth are.

    Raises:
        SrpoError: if there is no such kind, or its function fails or gives something else.
    """
    if kind not in _MATCHERS:
        raise SrpoError(f"reward = {kind!r}: unknown; there is {', '.join(_MATCHERS)}")
    try:
        reward = _MATCHERS[kind](response, ground_truth)
    except (ValueError, RecursionError):
        # JSON that is malformed, too deep or has an integer of thousands of digits
        return 0.0
    except Exception as error:
        raise SrpoError(f"reward {kind}: {error!r:.200} for the response {response[:200]!r}") from error
    with contextlib.suppress(TypeError, ValueError):  # of what is no number
        if (score := float(reward)) in (0.0, 1.0):
            return score
    raise SrpoError(f"reward {kind}: {reward!r:.200} for the response {response[:200]!r}; routing knows 0 and 1")


def check_truths(kind: str, ground_truths: Sequence[str]) -> None:
    """Whether rewards of this kind can be computed with these truths.

    Raises:
        SrpoError: naming the question that has none, or the reward's mistake.
    """
    for index, truth in enumerate(ground_truths):
        compute_reward(kind, truth, truth)
        if kind.startswith("tool_use"):
            try:
                render_tool_calls(truth)
            except ValueError as error:
                raise SrpoError(f"reward = {kind}: question {index}: {truth[:200]!r} is no list of calls") from error


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """Score a response for verl, which passes a row's ``extra_info``; its ``reward`` names the kind.

    Raises:
        SrpoError: if the row names none.
    """
    kind = (extra_info or {}).get("reward")
    if kind is None:
        raise SrpoError(f"{data_source}: a row has no extra_info.reward; srpo data writes one")
    reward = compute_reward(kind, solution_str, ground_truth)
    return {"score": reward, "acc": reward}


def count_reference_cannot_score(ground_truths: Iterable[str]) -> int:
    """Count tool-use truths that ``tool_use_reference`` does not even recognise in their own rendering."""
    return sum(compute_reward("tool_use_reference", render_tool_calls(truth), truth) == 0.0 for truth in ground_truths)


def render_tool_calls(ground_truth: str) -> str:
    """Write a tool-use truth as a response that makes exactly its calls.

    Raises:
        ValueError: if it is not a JSON list of ``{"Action", "Action_Input"}``.
    """
    calls = _read_truth(ground_truth)
    return "\n".join(f"Action: {name}\nAction Input: {json.dumps(arguments)}" for name, arguments in calls)


def _matches_answer(response: str, truth: str) -> bool:
    """Compare what the last ``<answer>...</answer>`` holds, white space around it aside."""
    _, opening, rest = response.rpartition("<answer>")
    answer, closing, _ = rest.partition("</answer>")
    return bool(opening and closing) and answer.strip() == truth


def _matches_calls(response: str, truth: str) -> bool:
    return _same_calls(_NAME.findall(response), _read_inputs(response), truth)


def _matches_calls_as_reference(response: str, truth: str) -> bool:
    return _same_calls(_WORD_NAME.findall(response), _read_inputs_as_reference(response), truth)


_MATCHERS = {
    "answer_match": _matches_answer,
    "tool_use": _matches_calls,
    "tool_use_reference": _matches_calls_as_reference,
}


def _same_calls(names: list[str], arguments: dict[str, Any], truth: str) -> bool:
    """Compare the multiset of names and the union of arguments, in which a later call's key wins."""
    calls = _read_truth(truth)
    expected: dict[str, Any] = {}
    for _, of_call in calls:
        expected.update(of_call)
    return Counter(names) == Counter(name for name, _ in calls) and arguments == expected


def _read_truth(truth: str) -> list[tuple[str, dict[str, Any]]]:
    calls = json.loads(truth)
    if not isinstance(calls, list):
        raise ValueError("a list of calls is expected")
    return [_read_call(call) for call in calls]


def _read_call(call: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(call, dict) or not isinstance(call.get("Action"), str):
        raise ValueError("a call has an Action and an Action_Input")
    arguments = call.get("Action_Input")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("an Action_Input is a JSON object")
    return call["Action"], arguments


def _read_inputs(response: str) -> dict[str, Any]:
    """Merge the JSON objects after ``Action Input:``; one that is malformed makes the response wrong."""
    merged: dict[str, Any] = {}
    found = _INPUT.search(response)
    while found:
        arguments, end = _DECODER.raw_decode(response, found.end())
        merged.update(arguments)
        found = _INPUT.search(response, end)
    return merged


def _read_inputs_as_reference(response: str) -> dict[str, Any]:
    """Merge the inputs as the reference does: each up to its first ``}``, skipping what is malformed then."""
    merged: dict[str, Any] = {}
    found = _INPUT.search(response)
    while found and (closing := response.find("}", found.end())) >= 0:
        with contextlib.suppress(json.JSONDecodeError):
            merged.update(json.loads(response[found.end() : closing + 1]))
        found = _INPUT.search(response, closing + 1)
    return merged
