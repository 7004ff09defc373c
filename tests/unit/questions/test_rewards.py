"""Rewards: hand-made examples, the reference's reading, and text that no one would write."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srpo.ground.errors import SrpoError
from srpo.questions import rewards
from srpo.questions.rewards import (
    Reward,
    check_truths,
    compute_reward,
    most_frequent_answer,
    render_tool_calls,
    shortest_answer,
)

KINDS = ("answer_match", "tool_use", "tool_use_reference")
CHOICE = ("answer_match", "answer_match_reference")


def truth(*calls: tuple[str, dict]) -> str:
    return json.dumps([{"Action": name, "Action_Input": json.dumps(arguments)} for name, arguments in calls])


ONE = truth(("search", {"color": "wild", "page": 1}))
TWO = truth(("search", {"size": "small"}), ("facts", {"limit": 3}))
CLASH = truth(("search", {"size": "small", "page": 1}), ("search", {"size": "large", "page": 1}))
SWAPPED = truth(("search", {"size": "large", "page": 1}), ("search", {"size": "small", "page": 1}))
NESTED = truth(("update", {"user": "u1", "profile": {"picture": "x.jpg"}}))


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<reasoning>\nbecause\n</reasoning>\n<answer>\nB\n</answer>", 1.0),
        ("<answer>A</answer> no: <answer>B</answer>", 1.0),
        ("<answer>B</answer> no: <answer>A</answer>", 0.0),
        ("<answer><answer>B</answer></answer>", 1.0),
        ("<answer>B</answer> and trailing words", 1.0),
        ("<answer>b</answer>", 0.0),
        ("<answer>B.</answer>", 0.0),
        ("<answer></answer>", 0.0),
        ("<answer>B", 0.0),
        ("<answer>B</answer><answer>", 0.0),
        ("B</answer>", 0.0),
        ("B", 0.0),
        ("", 0.0),
    ],
)
def test_answer_match(response, reward):
    assert compute_reward("answer_match", response, "B") == reward
    # the reference needs no tag: with both of them it reads the same
    bare = response in ("<answer>B", "B</answer>", "B")
    assert compute_reward("answer_match_reference", response, "B") == (1.0 if bare else reward)


@pytest.mark.parametrize(
    ("answer", "known", "reward"),
    [
        ("u\u0308ber", "\u00fcber", 1.0),  # composed and not
        ("\u221242", "-42", 1.0),  # a minus, a hyphen
        ("5 \u00b5m", "5\u00a0\u03bcm", 1.0),
        ("\uff14\uff12", "42", 1.0),
        ("42", "\ufeff4\u200b2", 1.0),
        ("x2", "x\u00b2", 0.0),
        ("\u200b", "B", 0.0),
    ],
)
def test_answers_that_look_alike_are_equal(answer, known, reward):
    check_truths("answer_match", {"x:1": known})
    assert compute_reward("answer_match", f"<answer>{answer}</answer>", known) == reward


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("  B\n", 1.0),
        ("because\n<answer>\nB\n", 1.0),
        ("B</answer> and trailing words", 1.0),
        ("<answer>A</answer> no: <answer>B", 1.0),
        ("B</answer><answer>A", 0.0),
        ("A</answer> no: B</answer>", 0.0),  # the first closing tag ends it
        ("The answer is B", 0.0),
        ("<Answer>B</Answer>", 0.0),
        ("<answer >B</answer>", 0.0),
    ],
)
def test_the_reference_needs_no_tags(response, reward):
    assert compute_reward("answer_match_reference", response, "B") == reward


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "A", "B", " ", "\n", "answer", "<", ">", "/"]), max_size=8))
def test_the_reference_reads_the_last_opening_tag_to_the_next_closing_one(parts):
    """The same rule as one regular expression. Whatever the strict reading rewards, this one does."""
    response = "".join(parts)
    (content,) = re.fullmatch("(?:.*<answer>)?(.*?)(?:</answer>.*)?", response, re.DOTALL).groups()
    for letter in "AB":
        found = compute_reward("answer_match_reference", response, letter)
        assert found == float(content.strip() == letter)
        assert found >= compute_reward("answer_match", response, letter)


@pytest.mark.parametrize(
    ("response", "ground_truth", "reward"),
    [
        ('Thought: look\nAction: search\nAction Input: {"page": 1, "color": "wild"}', ONE, 1.0),
        ('Action: search\nAction Input:\n{"page": 1,\n "color": "wild"}\nDone.', ONE, 1.0),
        ('Action: search\nAction Input: {"page": 2, "color": "wild"}', ONE, 0.0),
        ('Action: search\nAction Input: {"page": "1", "color": "wild"}', ONE, 0.0),
        ('Action: find\nAction Input: {"page": 1, "color": "wild"}', ONE, 0.0),
        ('Action Input: {"page": 1, "color": "wild"}', ONE, 0.0),
        ("Action: search", ONE, 0.0),
        ("Action: list", truth(("list", {})), 1.0),
        ("Action: list\nAction Input: {}", truth(("list", {})), 1.0),
        # several actions: their order is free, their number is not
        ('Action: facts\nAction Input: {"limit": 3}\nAction: search\nAction Input: {"size": "small"}', TWO, 1.0),
        ('Action: facts\nAction Input: {"limit": 3, "size": "small"}', TWO, 0.0),
        ('Action: search\nAction: search\nAction: facts\nAction Input: {"limit": 3, "size": "small"}', TWO, 0.0),
        ('Action: search\nAction: search\nAction Input: {"size": "small", "page": 1}', CLASH, 0.0),
        # all actions, then all inputs
        ('Action: facts\nAction: search\nAction Input: {"limit": 3}\nAction Input: {"size": "small"}', TWO, 1.0),
        # several on one line
        ('Action: facts Action Input: {"limit": 3} Action: search Action Input: {"size": "small"}', TWO, 1.0),
    ],
)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_tool_use(kind, response, ground_truth, reward):
    assert compute_reward(kind, response, ground_truth) == reward


@pytest.mark.parametrize(
    ("response", "ground_truth", "proper", "reference"),
    [
        (render_tool_calls(NESTED), NESTED, 1.0, 0.0),
        ('Action: say\nAction Input: {"text": "a } b"}', truth(("say", {"text": "a } b"})), 1.0, 0.0),
        ('Action: [Optional]go\nAction Input: {"a": 1}', truth(("[Optional]go", {"a": 1})), 1.0, 0.0),
        # a malformed input is wrong, while the reference only ignores it
        ("Action: list\nAction Input: {oops}", truth(("list", {})), 0.0, 1.0),
        ("Action: list\nAction Input: {", truth(("list", {})), 0.0, 1.0),
        ('Action: search\nAction Input: {"a": 1', truth(("search", {"a": 1})), 0.0, 0.0),
        # the reference joins all inputs, and of two equal keys the later value stays
        ('Action: facts\nAction: search\nAction Input: {"limit": 3, "size": "small"}', TWO, 0.0, 1.0),
        ('Action: search\nAction: search\nAction Input: {"size": "large", "page": 1}', CLASH, 0.0, 1.0),
        (render_tool_calls(SWAPPED), CLASH, 1.0, 0.0),
        (render_tool_calls(truth(("search", {"limit": 3}), ("facts", {"size": "small"}))), TWO, 0.0, 1.0),
    ],
)
def test_where_the_reference_reads_otherwise(response, ground_truth, proper, reference):
    assert compute_reward("tool_use", response, ground_truth) == proper
    assert compute_reward("tool_use_reference", response, ground_truth) == reference


def test_the_most_frequent_answer_is_what_a_guess_scores():
    assert most_frequent_answer("answer_match", ["A", "B", "B", "C"]) == 0.5
    entries = [json.dumps({"answer": answer, "question": str(i)}) for i, answer in enumerate("2123")]
    assert most_frequent_answer("reasoning_gym", entries) == 0.5


def test_a_truth_with_nested_json_is_never_right_for_the_reference():
    assert [shortest_answer("tool_use_reference", truth) is None for truth in (ONE, NESTED, TWO, CLASH)] == [0, 1, 0, 0]


@pytest.mark.parametrize("bad", ["", "null", "7", "[7]", "[{}]", '[{"Action": "a"}]', "{", "[" * 50_000, "9" * 10_000])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_unreadable_truth_rewards_nothing(kind, bad):
    assert compute_reward(kind, "Action: a\nAction Input: {}", bad) == 0.0


@pytest.mark.parametrize("kind", rewards.REWARDS)
def test_what_is_no_text_is_a_mistake_and_not_a_zero(kind):
    with pytest.raises(SrpoError, match=r"^response = None, truth = 'B': must be text$"):
        compute_reward(kind, None, "B")
    with pytest.raises(SrpoError, match=r", truth = 5: must be text$"):
        compute_reward(kind, "<answer>5</answer>", 5)


MEGABYTE = 1_000_000
NASTIES = {
    "opening tags": "<answer>" * (MEGABYTE // 8),
    "half a tag": "<answer" * (MEGABYTE // 7),
    "blanks in an answer": "<answer>" + " " * MEGABYTE,
    "names without an end": "Action:" + " " * MEGABYTE,
    "many names": "Action: a\n" * (MEGABYTE // 10),
    "empty names": "Action:" * (MEGABYTE // 7),
    "inputs without an end": "Action Input: {" * (MEGABYTE // 15),
    "inputs that never close": 'Action Input: {"a":"' * (MEGABYTE // 20),
    "inputs in inputs": 'Action Input: {"a":' * (MEGABYTE // 19) + "1" + "}" * (MEGABYTE // 19),
    "deep objects": "Action Input: " + '{"a":' * (MEGABYTE // 5),
    "deep lists": 'Action Input: {"a":' + "[" * MEGABYTE,
    "balanced depth": 'Action Input: {"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "huge integer": 'Action Input: {"a":' + "9" * MEGABYTE + "}",
    "huge exponent": 'Action Input: {"a":1e' + "9" * MEGABYTE + "}",
    "many blocks with a huge integer": ('Action Input: {"a":' + "9" * 4000 + "}") * 250,
    "escapes": 'Action Input: {"a":"' + "\\" * MEGABYTE + '"}',
    "surrogates": "\ud800" * MEGABYTE,
    "control characters": "\x00\x1b\x7f" * (MEGABYTE // 3),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nasty", NASTIES)
def test_a_megabyte_of_nonsense_is_wrong_and_ends(kind, nasty):
    start = time.process_time()
    assert compute_reward(kind, NASTIES[nasty], "B" if kind == "answer_match" else ONE) == 0.0
    assert time.process_time() - start < 30  # seconds; quadratic work would take hours


TAGS = ("<answer>", "</answer>", "Action:", "Action Input:")
FRAGMENTS = st.sampled_from([*TAGS, "B", "1", "NaN", "1e999", "null", '"a"', "\ud83d", *'{}[]:,"\\ \n'])
RESPONSES = st.one_of(
    st.text(st.characters(exclude_categories=[]), max_size=60), st.lists(FRAGMENTS, max_size=25).map("".join)
)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS), response=RESPONSES, ground_truth=st.one_of(st.just(ONE), st.just("B"), RESPONSES))
def test_any_text_scores_zero_or_one(kind, response, ground_truth):
    assert compute_reward(kind, response, ground_truth) in (0.0, 1.0)
    assert rewards.in_format(kind, response) in (True, False)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
CALLS = st.lists(
    st.tuples(st.text("abcXYZ_0", min_size=1, max_size=6), st.dictionaries(st.text(max_size=4), JSON, max_size=3)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(calls=CALLS)
def test_making_exactly_the_calls_is_right(calls):
    assert compute_reward("tool_use", render_tool_calls(truth(*calls)), truth(*calls)) == 1.0


@settings(max_examples=100, deadline=None)
@given(calls=CALLS)
def test_one_call_too_many_is_wrong(calls):
    response = render_tool_calls(truth(*calls)) + "\nAction: again\nAction Input: {}"
    assert compute_reward("tool_use", response, truth(*calls)) == 0.0


# ---------------------------------------------------------------- one's own


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (lambda response, truth: None, "reward own: None"),
        (lambda response, truth: float("nan"), "reward own: nan"),
        (lambda response, truth: 0.5, "reward own: 0.5"),
    ],
)
def test_a_mistake_in_a_reward_is_one_line_before_training(monkeypatch, own, says):
    monkeypatch.setitem(rewards.REWARDS, "own", Reward(own))
    for fails in (lambda: compute_reward("own", "4" * 1000, "4"), lambda: check_truths("own", {"x:1": "4"})):
        with pytest.raises(SrpoError) as failure:
            fails()
        message = str(failure.value)
        assert message.startswith(says)
        assert "for the response '4" in message
        assert "\n" not in message
        assert len(message) < 500


def test_truths_that_are_no_calls_are_named():
    check_truths("tool_use", {"x:1": ONE, "x:2": TWO})
    check_truths("answer_match", {"x:1": "B"})
    for reward, truth in (("tool_use", "B"), ("answer_match_reference", "42 ")):
        with pytest.raises(SrpoError, match=rf"^x:2: reward = {reward}: '{truth}' is not a "):
            check_truths(reward, {"x:1": ONE, "x:2": truth})


# ---------------------------------------------------------------- the answer's format


@pytest.mark.parametrize(
    ("kind", "response", "expected"),
    [
        ("answer_match", "<answer>C</answer>", True),
        ("answer_match", "<answer>C", False),
        ("answer_match", "<answer> </answer>", False),
        ("answer_match", "C", False),
        ("answer_match_reference", "C", False),
        ("answer_match_reference", "<answer>C</answer>", True),
        ("reasoning_gym", "so <answer>7</answer>.", True),
        ("reasoning_gym", "7", False),
        ("tool_use", 'Action: search\nAction Input: {"page": 1}', True),
        ("tool_use", 'Action: search\nAction Input: {"page": {"a": 1}}', True),
        ("tool_use", 'Action: search\nAction Input: {"page": 1', False),
        ("tool_use", "Action: search", False),
        ("tool_use", 'Action Input: {"page": 1}', False),
        ("tool_use_reference", 'Action: search\nAction Input: {"page": 1', True),
        ("tool_use_reference", "Action: search", False),
        ("operator:eq", "<answer>C</answer>", None),
    ],
)
def test_the_format_is_known_without_the_truth(kind, response, expected):
    assert rewards.in_format(kind, response) is expected


@pytest.mark.parametrize("kind", rewards.REWARDS)
def test_the_ground_truth_as_a_response_is_right(kind):
    entry = json.dumps({"answer": "2", "metadata": {"source_dataset": "gcd"}})
    for ground_truth in {"tool": (ONE, TWO, CLASH), "reas": (entry,)}.get(kind[:4], ("B", "1 2 3")):
        response = rewards.find_reward(kind).solution(ground_truth)
        if kind != "reasoning_gym":  # its scorer is the package's
            assert compute_reward(kind, response, ground_truth) == 1.0
        assert rewards.in_format(kind, response)
