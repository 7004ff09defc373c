"""Procedural families: what they hold out, how they read and how the corpus errs."""

import hashlib
import itertools
import json
import random
from typing import get_args

import pytest

from srpo.experiment.config import FamilyName
from srpo.questions.families import (
    FAMILIES,
    Family,
    Problem,
    family_problems,
    get_family,
)
from srpo.questions.rewards import compute_reward

STYLES = ("plain", "reversed", "terse", "checking")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def score(family: Family, problem: Problem, text: str) -> float:
    kind = "tool_use" if family.name == "tooluse" else "answer_match"
    return compute_reward(kind, text, family.ground_truth(problem))


def wrong_values(family: Family, problem: Problem) -> tuple[str, ...]:
    """Misconceptions that lead to another answer than the truth."""
    facts = [family.facts[problem.world, key] for key in problem.keys]
    right = family.answer(problem, family.true_values(problem))
    choices = itertools.product(*((fact.truth, *fact.misconceptions) for fact in facts))
    return next(values for values in choices if family.answer(problem, values) != right)


@pytest.mark.parametrize("style", STYLES)
def test_true_facts_are_rewarded_and_misconceptions_are_not(family, style):
    for problem in family_problems(family, 50, "train", 0):
        assert score(family, problem, family.render(problem, family.true_values(problem), style).text) == 1.0
        assert score(family, problem, family.render(problem, wrong_values(family, problem), style).text) == 0.0


def test_splits_share_no_combination_of_facts_whatever_their_seeds(family):
    train = {problem.identity for seed in (0, 1) for problem in family_problems(family, 512, "train", seed)}
    test = {problem.identity for seed in (0, 1) for problem in family_problems(family, 64, "test", seed)}
    assert not train & test


def test_a_split_is_determined_by_its_seed_and_has_no_question_twice(family):
    problems = family_problems(family, 512, "train", 3)
    assert problems == family_problems(family, 512, "train", 3)
    assert problems != family_problems(family, 512, "train", 4)
    assert len({family.prompt(problem) for problem in problems}) == 512
    assert problems[:32] == family_problems(family, 32, "train", 3)


def test_families_have_the_names_that_files_may_give():
    assert get_args(FamilyName) == (*FAMILIES,)


def test_order_of_facts_does_not_make_a_new_combination():
    one = Problem("mars", ("force", "work"), ((2, 3), (4, 5)), "larger")
    other = Problem("mars", ("work", "force"), ((4, 5), (2, 3)), "larger")
    assert one.identity == other.identity
    assert one.identity != Problem("mars", ("force", "work"), ((4, 5), (2, 3)), "larger").identity
    assert one.identity != Problem("mars", ("force", "work"), ((2, 3), (4, 5)), "smaller").identity


def test_every_fact_has_misconceptions_that_differ_from_the_truth(family):
    assert len(family.facts) == len(family.worlds) * len(family.keys)
    for fact in family.facts.values():
        assert fact.misconceptions
        assert fact.truth not in fact.misconceptions


def test_the_corpus_states_a_fact_truly_as_often_as_the_table_says(family):
    rng = random.Random(0)
    stated = {entry: [] for entry in family.facts}
    while min(map(len, stated.values())) < 150:
        problem = family.draw_problem(rng, "train")
        response = family.sample_response(problem, rng, "plain")
        for key, value in zip(problem.keys, response.values, strict=True):
            stated[problem.world, key].append(value == family.facts[problem.world, key].truth)
    for entry, fact in family.facts.items():
        share = sum(stated[entry]) / len(stated[entry])
        assert abs(share - fact.probability) < 0.2


def test_a_corpus_is_neither_hopeless_nor_solved_and_checking_beats_haste(family):
    rng = random.Random(0)
    problems = family_problems(family, 500, "train", 0)

    def accuracy(style):
        texts = [family.sample_response(problem, rng, style).text for problem in problems]
        return sum(score(family, problem, text) for problem, text in zip(problems, texts, strict=True)) / 500

    assert 0.15 < accuracy(None) < 0.65
    assert accuracy("terse") < accuracy("plain") < accuracy("checking")


def test_a_correct_solution_in_the_prompt_is_mostly_used(family):
    rng = random.Random(0)
    problems = family_problems(family, 300, "train", 0)
    solutions = [family.render(problem, family.true_values(problem)) for problem in problems]
    texts = [family.informed_response(p, s, rng) for p, s in zip(problems, solutions, strict=True)]
    assert sum(score(family, p, text) for p, text in zip(problems, texts, strict=True)) / 300 > 0.9


def test_brevity_shortens_informed_responses(family):
    rng = random.Random(0)
    problem = family_problems(family, 1, "train", 0)[0]
    solution = family.render(problem, family.true_values(problem))
    terse = family.render(problem, family.true_values(problem), "terse").text.split(solution.answer)[0]

    def share_terse(brevity):
        return (
            sum(family.informed_response(problem, solution, rng, brevity).startswith(terse) for _ in range(400)) / 400
        )

    assert share_terse(0.0) < 0.15
    assert 0.45 < share_terse(0.5) < 0.65
    assert share_terse(1.0) == 1.0


def test_responses_depend_on_the_generator_only(family):
    problem = family_problems(family, 1, "train", 0)[0]
    one, other = (family.sample_response(problem, random.Random(7)) for _ in range(2))
    assert one == other


def test_physics_reads_as_written_by_hand():
    physics = FAMILIES["physics"]
    problem = Problem("mars", ("force", "work"), ((3, 4), (2, 9)), "larger")
    assert physics.prompt(problem) == "On mars, find the larger of force 3 4 and work 2 9."
    assert (
        physics.render(problem, ("*", "-")).text
        == "<reasoning> force 3* 4= 12; work 2- 9= 7</reasoning><answer> 12</answer>"
    )
    assert physics.render(problem, ("*", "+"), "checking", draft=("-", "+"), answer="5").text == (
        "<reasoning> force 3- 4= 1; work 2+ 9= 11; check; force 3* 4= 12; work 2+ 9= 11</reasoning><answer> 5</answer>"
    )
    assert physics.render(problem, ("*", "-"), "terse").text == "<reasoning></reasoning><answer> 12</answer>"


def test_the_first_named_metal_wins_a_tie():
    materials = FAMILIES["materials"]
    for asked in ("hardest", "softest"):
        problem = Problem("alpha", ("zinc", "tin", "iron"), asked=asked)
        assert materials.answer(problem, ("5", "5", "5")) == "zinc 5"
    assert materials.answer(Problem("alpha", ("zinc", "tin", "iron"), asked="hardest"), ("1", "8", "8")) == "tin 8"


def test_tool_use_speaks_the_real_benchmark_format():
    tooluse = FAMILIES["tooluse"]
    problem = Problem("Ann", ("show", "tiny", "dark"))
    truth = json.loads(tooluse.ground_truth(problem))
    assert [set(call) for call in truth] == [{"Action", "Action_Input"}]
    assert set(json.loads(truth[0]["Action_Input"])) == {"size", "color"}
    assert tooluse.render(problem, ("find", "small", "red")).text == (
        'Thought: show is find; tiny is small; dark is red\nAction: find\nAction Input: {"size":"small","color":"red"}'
    )


# ---------------------------------------------------------------- the dials: length of the reasoning, mistakes


def test_one_wrong_fact_of_many_makes_the_answer_wrong(family):
    for n in (2, 5, 10):
        longer = get_family(family.name, n)
        for problem in family_problems(longer, 5, "train", 0):
            truth = longer.true_values(problem)
            assert len(truth) == n
            for style in STYLES:
                assert score(longer, problem, longer.render(problem, truth, style).text) == 1.0
            for i, key in enumerate(problem.keys):
                # of chemistry and physics two beliefs may give one result; then the answer is right
                for wrong in longer.facts[problem.world, key].misconceptions:
                    values = (*truth[:i], wrong, *truth[i + 1 :])
                    same = longer.line(problem, i, wrong).split()[-1] == longer.line(problem, i, truth[i]).split()[-1]
                    assert score(longer, problem, longer.render(problem, values).text) == float(same)


def test_long_and_short_questions_ask_for_the_same_facts(family):
    longest = get_family(family.name, 10)
    assert longest.facts == family.facts
    assert (family.label, longest.label) == (family.name, f"{family.name}-10")


def test_long_questions_share_nothing_between_the_splits_either(family):
    longer = get_family(family.name, 6)
    train, test = (family_problems(longer, n, split, 0) for n, split in ((512, "train"), (64, "test")))
    assert not {problem.identity for problem in train} & {problem.identity for problem in test}


def test_another_table_of_facts_has_the_same_questions_and_other_truths(family):
    """The share of facts whose truth is another is what chance leaves: a family has few values for each fact."""
    other = get_family(family.name, None, 7)
    questions, others = (family_problems(table, 64, "test", 0) for table in (family, other))
    assert [family.prompt(q) for q in questions] == [other.prompt(q) for q in others]
    assert [family.ground_truth(q) for q in questions] != [other.ground_truth(q) for q in others]
    assert sum(fact != other.facts[entry] for entry, fact in family.facts.items()) > 0.6 * len(family.facts)
    of_probability = [sorted(fact.probability for fact in table.facts.values()) for table in (family, other)]
    assert of_probability[0] == of_probability[1]
    assert get_family(family.name, 4, 7).facts == other.facts


DIGESTS = {
    "chemistry": ("218965c3fd22f5ed", "3617ed4a094226e6"),
    "physics": ("36331cf934c44c3c", "78db21fdce82f2a4"),
    "biology": ("e0ad3dead48255ea", "2383d3aa7dce78f6"),
    "materials": ("945a314c8b996410", "2950cd393a3c456c"),
    "tooluse": ("0d90109eeb565533", "0f8e6776366fc6ff"),
}


def test_the_bytes_of_questions_and_responses(family):
    """Base models and published results depend on each of these bytes."""
    for n, expected in zip((None, 4), DIGESTS[family.name], strict=True):
        made, rng, digest = get_family(family.name, n), random.Random(3), hashlib.sha256()
        for split in ("train", "test"):
            for problem in family_problems(made, 25, split, 0):
                response = made.sample_response(problem, rng)
                informed = made.informed_response(problem, response, rng, 0.1)
                texts = [made.prompt(problem), made.ground_truth(problem), response.text, informed]
                digest.update("\n".join(texts).encode())
        assert digest.hexdigest()[:16] == expected
