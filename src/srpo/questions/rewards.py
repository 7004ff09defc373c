"""Verifiable rewards (paper, appendix; SDPO repository, ``reward_score/feedback``): 1.0 or 0.0.

Responses come from a sampling model, so they can contain anything. Parsing takes time linear in the
response's length, and a response that cannot be parsed is wrong, not an error. :data:`REWARDS` declares all of them;
``module:function`` names another.
"""

import contextlib
import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from srpo.ground.errors import SrpoError
from srpo.ground.mistakes import resolve_own

FORMS = ("...", "<answer>...</answer>", "\\boxed{...}")
"""Responses that a truth, in the place of the points, is likely to make right."""

_ANSWER = "text without blanks at its ends and without tags, so that a response can have it as its answer"
_DECODER = json.JSONDecoder()
_OWN = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_INPUT = re.compile(r"Action Input:\s*+(?={)")
_NAME = re.compile(r"Action:\s*+(\S+)")
_WORD_NAME = re.compile(r"Action:\s*+(\w+)")


@dataclass(frozen=True)
class Reward:
    """A reward function and the check of its ground truths.

    Attributes:
        is_correct: from a response and the ground truth, whether the response is right: True, False, 1 or 0. A
            ValueError counts as wrong.
        check_truth: raises ValueError for a ground truth that cannot be used for scoring.
        truth_format: what a ground truth must be, for the error message.
        answer: the right answer in a ground truth.
        form: what a response must have around its answer, which its prompt should name; empty if nobody knows.
        has_format: whether a response has an answer that the reward can read, right or wrong; a ValueError counts as
            no. None if nobody can know, as of a function of one's own.
        solution: the ground truth as a right response.
    """

    is_correct: Callable[[str, str], object]
    check_truth: Callable[[str], object] = str
    truth_format: str = "text"
    answer: Callable[[str], str] = str
    form: str = ""
    has_format: Callable[[str], bool] | None = None
    solution: Callable[[str], str] = str


def is_own(kind: str) -> bool:
    """Whether a name is written like a function of one's own, ``module:function``."""
    return _OWN.fullmatch(kind) is not None


def find_reward(kind: str) -> Reward:
    """The reward of a key of :data:`REWARDS`, or of ``module:function`` of a response and its ground truth."""
    if kind in REWARDS:
        return REWARDS[kind]
    if is_own(kind):
        return Reward(_own_function(kind))
    raise SrpoError(f"reward = {kind!r}: unknown; there is {', '.join(REWARDS)}; or give module:function")


@cache
def _own_function(kind: str) -> Callable[[str, str], object]:
    try:
        return resolve_own(kind)
    except ValueError as error:
        raise SrpoError(f"reward = {error}") from error


def compute_reward(kind: str, response: str, ground_truth: str) -> float:
    """Score a response.

    Args:
        ground_truth: the answer; for tool use a JSON list of ``{"Action", "Action_Input"}``; for reasoning-gym its
            entry in JSON.

    Returns:
        1.0 if right, otherwise 0.0, whatever the response and the truth are.
    """
    is_correct = find_reward(kind).is_correct
    if not (isinstance(response, str) and isinstance(ground_truth, str)):  # the number 5 would never be right
        raise SrpoError(f"response = {response!r:.80}, truth = {ground_truth!r:.80}: must be text")
    try:
        reward = is_correct(response, ground_truth)
    except (ValueError, RecursionError):
        # JSON that is malformed, too deep or has an integer of thousands of digits
        return 0.0
    with contextlib.suppress(TypeError, ValueError):  # if it is not a number
        if (score := float(reward)) in (0.0, 1.0):  # type: ignore[arg-type]  # a reward may return anything
            return score
    raise SrpoError(f"reward {kind}: {reward!r:.200} for the response {response[:200]!r}; routing knows 0 and 1")


def shortest_answer(kind: str, ground_truth: str) -> str | None:
    """The ground truth as a right response with nothing else; None of a function of one's own: nobody knows one."""
    texts = () if is_own(kind) else (ground_truth, find_reward(kind).solution(ground_truth))
    return next((text for text in texts if compute_reward(kind, text, ground_truth)), None)


def in_format(kind: str, response: str) -> bool | None:
    """Whether a response has an answer that the reward can read, right or wrong; None if the reward does not tell."""
    has_format = find_reward(kind).has_format
    if has_format is None:
        return None
    try:
        return has_format(response)
    except (ValueError, RecursionError):
        return False


def check_truths(kind: str, truths: Mapping[str, str]) -> None:
    """Check that rewards of this kind can be computed with these ground truths.

    If a function of one's own calls some of them right in one of :data:`FORMS`, the others are counted. So are those
    that it judges differently a second time.
    """
    own, right, fickle = is_own(kind), [], 0
    for where, truth in truths.items():
        tries = [[compute_reward(kind, f.replace("...", truth), truth) for f in FORMS] for _ in range(1 + own)]
        right.append(any(tries[0]))
        fickle += tries[0] != tries[-1]
        try:
            find_reward(kind).check_truth(truth)
        except (ValueError, TypeError, KeyError) as error:
            line = f"{where}: reward = {kind}: {truth[:200]!r} is not a {find_reward(kind).truth_format}"
            raise SrpoError(line) from error
    logger = logging.getLogger(__name__)
    if own and any(right) and not all(right):
        lost, where = right.count(False), list(truths)[right.index(False)]
        logger.warning("reward %s: %d of %d answers are never right, as of %s", kind, lost, len(right), where)
    if fickle:
        logger.warning("reward %s: tried twice, %d of %d answers got two rewards", kind, fickle, len(right))


def shown_answer(kind: str, ground_truth: str) -> str:
    """The answer for readers, without what a scorer needs beside it; the whole truth of one's own reward."""
    with contextlib.suppress(KeyError, ValueError):
        return str(REWARDS[kind].answer(ground_truth))
    return ground_truth


def most_frequent_answer(kind: str, ground_truths: Iterable[str]) -> float:
    """The share of truths with the most frequent answer: what a model scores that always gives this answer."""
    answers = Counter(map(find_reward(kind).answer, ground_truths))
    return max(answers.values()) / answers.total()


def render_tool_calls(ground_truth: str) -> str:
    """Write a tool-use truth as a response with exactly its calls."""
    calls = _read_truth(ground_truth)
    return "\n".join(f"Action: {name}\nAction Input: {json.dumps(arguments)}" for name, arguments in calls)


_ALIKE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | str.maketrans(
    "\u2212\u2010\u2011\u00b5\u00a0", "---\u03bc "
)
"""Characters that nobody tells apart: fullwidth ones, minus and hyphens, micro and mu, blanks."""


def _plain(text: str) -> str:
    """A text as it looks: composed, without invisible characters, with one of those that look alike."""
    composed = unicodedata.normalize("NFC", text)
    seen = "".join(each for each in composed if unicodedata.category(each) != "Cf")
    return seen.translate(_ALIKE).strip()


def _matches_answer(response: str, truth: str) -> bool:
    """Compare the content of the last ``<answer>...</answer>`` as it looks, without surrounding white space."""
    answer = _last_answer(response)
    return answer == truth or (answer is not None and _plain(answer) == _plain(truth))


def _check_answer(truth: str, matches: Callable[[str, str], bool] = _matches_answer) -> None:
    """Check that a response can have this answer: not if nothing of it is seen, or if it has a tag."""
    if not _plain(truth) or not matches(f"<answer>{truth}</answer>", truth):
        raise ValueError("no response can have it")


def _last_answer(response: str) -> str | None:
    _, opening, rest = response.rpartition("<answer>")
    answer, closing, _ = rest.partition("</answer>")
    return answer.strip() if opening and closing else None


def _matches_answer_as_reference(response: str, truth: str) -> bool:
    """Compare what stands between the tags, of which the reference needs none: a bare answer counts."""
    return response.rpartition("<answer>")[2].partition("</answer>")[0].strip() == truth


def _has_answer(response: str) -> bool:
    return bool(_last_answer(response))


def _as_answer(truth: str) -> str:
    return f"<answer> {truth}</answer>"


def _matches_task(response: str, truth: str) -> bool:
    """Whether the task's own scorer gives the answer its full score; a part of it counts as wrong."""
    answer = _last_answer(response)
    return answer is not None and _task_score(answer, truth) == 1.0


def _check_task(truth: str) -> None:
    """Check that a question still knows its own answer after it was written to a split."""
    if (score := _task_score(json.loads(truth)["answer"], truth)) != 1.0:
        raise ValueError(f"its own answer scores {score}")


@cache
def _task_scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    """The scorer of a task; making one reads the task's data, which takes longer than scoring."""
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(task)


def _task_score(answer: str, truth: str) -> float:
    entry = json.loads(truth)
    scorer = _task_scorer(entry["metadata"]["source_dataset"])
    try:
        return float(scorer(answer, entry))
    except Exception as error:  # the scorers of a hundred tasks, given any text
        raise ValueError(f"the scorer fails: {error!r}") from error


def _has_calls(response: str) -> bool:
    """Whether at least one action is named, and all its inputs, at least one, are JSON."""
    [*_inputs(response)]  # a ValueError for one that is malformed
    return bool(_NAME.search(response) and _INPUT.search(response))


def _has_calls_as_reference(response: str) -> bool:
    """Whether actions and inputs are there as the reference reads them: it skips malformed inputs."""
    return bool(_WORD_NAME.search(response) and _INPUT.search(response))


def _matches_calls(response: str, truth: str) -> bool:
    """Compare the calls in any order. An input is of the action before it, or all are in order if none lacks one."""
    names, inputs = [*_NAME.finditer(response)], [*_inputs(response)]
    calls: list[tuple[str, dict[str, Any]]] = [(name[1], {}) for name in names]
    for place, (start, arguments) in enumerate(inputs if calls else []):
        before = place if len(names) == len(inputs) else max(0, sum(name.start() < start for name in names) - 1)
        calls[before][1].update(arguments)
    for call in _read_truth(truth):
        if call not in calls:
            return False
        calls.remove(call)
    return not calls and bool(names) >= bool(inputs)


def _matches_calls_as_reference(response: str, truth: str) -> bool:
    """Compare the multiset of names and the union of arguments, in which a later call's key wins."""
    calls = _read_truth(truth)
    expected: dict[str, Any] = {}
    for _, of_call in calls:
        expected.update(of_call)
    same_names = Counter(_WORD_NAME.findall(response)) == Counter(name for name, _ in calls)
    return same_names and _read_inputs_as_reference(response) == expected


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


def _inputs(response: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects after ``Action Input:`` and where they stand; one that is malformed makes the response wrong."""
    found = _INPUT.search(response)
    while found:
        arguments, end = _DECODER.raw_decode(response, found.end())
        yield found.start(), arguments
        found = _INPUT.search(response, end)


def _read_inputs_as_reference(response: str) -> dict[str, Any]:
    """Merge the inputs as the reference does: each up to its first ``}``, skipping malformed ones."""
    merged: dict[str, Any] = {}
    found = _INPUT.search(response)
    while found and (closing := response.find("}", found.end())) >= 0:
        with contextlib.suppress(json.JSONDecodeError):
            merged.update(json.loads(response[found.end() : closing + 1]))
        found = _INPUT.search(response, closing + 1)
    return merged


_ANSWERS = Reward(
    _matches_answer,
    _check_answer,
    _ANSWER,
    form="<answer>",
    has_format=_has_answer,
    solution=_as_answer,
)
_CALLS = Reward(
    _matches_calls,
    render_tool_calls,
    "list of calls",
    form="Action Input:",
    has_format=_has_calls,
    solution=render_tool_calls,
)

REWARDS = {
    "answer_match": _ANSWERS,
    "answer_match_reference": replace(
        _ANSWERS,
        is_correct=_matches_answer_as_reference,
        check_truth=partial(_check_answer, matches=_matches_answer_as_reference),
        form="",
    ),
    "tool_use": _CALLS,
    "tool_use_reference": replace(_CALLS, is_correct=_matches_calls_as_reference, has_format=_has_calls_as_reference),
    "reasoning_gym": Reward(
        _matches_task,
        _check_task,
        "task's entry of reasoning-gym",
        answer=lambda truth: json.loads(truth)["answer"],
        has_format=_has_answer,
        solution=lambda truth: _as_answer(json.loads(truth)["answer"]),
    ),
}
"""Every reward, by the name that ``reward:`` of a benchmark's configuration gives it."""
