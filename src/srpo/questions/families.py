"""Procedural question families for models of 0.1-0.2 M parameters.

A family is a table of *noisy facts*: (world, key) has one true value and a few misconceptions, and the
warm-start corpus states the true value with the fact's own probability. A question combines two or three facts of
one world and asks for a short open answer; held-out questions are new combinations of known facts. A
model warm-started on such a corpus therefore fails on particular facts, which training can correct, and finds
them stated correctly in a sibling's response.

A family has one dial and a number. With ``facts_per_question`` a question has that number of facts and asks for the
result of each, so that one wrong fact makes the answer wrong. ``facts`` is the number of the table of facts: another
table has other truths and other probabilities, and the same questions.

Text is laid out for a small vocabulary: words are short and lower-case, and a number or a word is always
preceded by the space that its token includes, so that one value is the same token in the question, in the
reasoning and in the answer.

Every draw comes from the ``random.Random`` passed in; a table of facts follows from its number.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from srpo.ground.errors import SrpoError
from srpo.ground.seeds import derive_seed

Style = Literal["plain", "reversed", "terse", "checking"]
STYLE_PROBABILITIES: dict[Style, float] = {"plain": 0.4, "reversed": 0.2, "terse": 0.2, "checking": 0.2}
COPY_PROBABILITY = 0.92
"""Probability that an informed response takes a fact from the solution in its prompt."""
KEEP_STYLE_PROBABILITY = 0.7
"""Probability that an informed response that is not cut short keeps the solution's style."""
KEEP_ANSWER_PROBABILITY = 0.7
"""Probability that an informed response ends with the solution's answer, even if its own facts give another."""

EACH = "each"
"""What a question asks if it asks for the result of each of its facts."""

_HELD_OUT_ONE_IN = 8
_MAX_REPEATS = 20_000


@dataclass(frozen=True)
class Fact:
    """One entry of a family's table; the corpus states ``truth`` with ``probability``."""

    truth: str
    misconceptions: tuple[str, ...]
    probability: float


@dataclass(frozen=True)
class Problem:
    """A question's data: facts ``(world, key)`` and the operands that come with each key.

    ``asked`` is what the question wants of them ("larger"), empty if a family always asks the same.
    """

    world: str
    keys: tuple[str, ...]
    operands: tuple[tuple[int, ...], ...] = ()
    asked: str = ""

    @property
    def identity(self) -> str:
        """Equal for problems that differ only in the order in which their facts are named."""
        operands = self.operands or ((),) * len(self.keys)
        return repr((self.world, self.asked, sorted(zip(self.keys, operands, strict=True))))


@dataclass(frozen=True)
class FamilyResponse:
    """A rendered response, the fact values it ends up believing, and its final answer."""

    text: str
    style: Style
    values: tuple[str, ...]
    answer: str


class Family(ABC):
    """A fact table, how questions are drawn from it and how they read.

    A new family gives its tables as class attributes and implements :meth:`alternatives`, :meth:`make`,
    :meth:`prompt`, :meth:`line` and :meth:`answer`.
    """

    name: str
    worlds: tuple[str, ...]
    keys: tuple[str, ...]
    probabilities: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 0.95)

    def __init__(self, facts_per_question: int | None = None, facts: int = 0) -> None:
        """Make the table of facts.

        Args:
            facts_per_question: of questions that ask for the result of each fact; None: the family's own questions.
            facts: the number of the table.
        """
        self.facts_per_question = facts_per_question
        rng = random.Random(derive_seed("facts", self.name, *([facts] if facts else [])))
        entries = [(world, key) for world in self.worlds for key in self.keys]
        # each probability occurs equally often, so that no family is hard or easy by chance
        shares = [self.probabilities[i % len(self.probabilities)] for i in range(len(entries))]
        rng.shuffle(shares)
        self.facts: dict[tuple[str, str], Fact] = {}
        for (world, key), probability in zip(entries, shares, strict=True):
            truth, *misconceptions = self.alternatives(key, rng)
            self.facts[world, key] = Fact(truth, tuple(misconceptions), probability)

    @property
    def most_facts(self) -> int:
        return len(self.keys)

    @property
    def label(self) -> str:
        """The family's name, with the number of facts of a question if it is set."""
        return self.name if self.facts_per_question is None else f"{self.name}-{self.facts_per_question}"

    def number_of_facts(self, usual: int) -> int:
        """How many facts :meth:`make` draws: ``usual``, unless the number is set."""
        return self.facts_per_question or usual

    @abstractmethod
    def alternatives(self, key: str, rng: random.Random) -> Sequence[str]:
        """Draw a fact's possible values: the true one first, then its misconceptions."""

    @abstractmethod
    def make(self, rng: random.Random) -> Problem:
        """Draw a problem of either split."""

    @abstractmethod
    def prompt(self, problem: Problem) -> str:
        """The question as the user asks it."""

    def term(self, problem: Problem, position: int) -> str:
        """How a question names fact ``position``, with its operands."""
        return problem.keys[position]

    @abstractmethod
    def line(self, problem: Problem, position: int, value: str) -> str:
        """One step of reasoning: fact ``position`` under the belief ``value``, without a leading space."""

    @abstractmethod
    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        """The final answer that follows from believing ``values``."""

    def ground_truth(self, problem: Problem) -> str:
        """What the reward compares with, in the real benchmarks' format."""
        return self.answer(problem, self.true_values(problem))

    def compose(self, reasoning: str, answer: str) -> str:
        """Put reasoning and answer into the benchmark's response format."""
        return f"<reasoning>{reasoning}</reasoning><answer> {answer}</answer>"

    def true_values(self, problem: Problem) -> tuple[str, ...]:
        return tuple(self.facts[problem.world, key].truth for key in problem.keys)

    def draw_problem(self, rng: random.Random, split: Literal["train", "test"]) -> Problem:
        """Draw a problem of one split; whether a combination of facts is held out never changes."""
        while True:
            problem = self.make(rng)
            held_out = derive_seed("held-out", self.name, problem.identity) % _HELD_OUT_ONE_IN == 0
            if held_out == (split == "test"):
                return problem

    def sample_response(self, problem: Problem, rng: random.Random, style: Style | None = None) -> FamilyResponse:
        """Draw a response as the warm-start corpus answers: noisy facts, in a style of the usual mix."""
        style = style or _draw_style(rng)
        values = self._draw_values(problem, rng, style)
        draft = self._draw_values(problem, rng, "plain") if style == "checking" else values
        return self.render(problem, values, style, draft=draft)

    def informed_response(
        self, problem: Problem, solution: FamilyResponse, rng: random.Random, brevity: float = 0.0
    ) -> str:
        """Draw a response to the enriched prompt that shows ``solution``.

        It copies most of the solution's facts and usually its answer, correct or wrong. So the model learns to use a
        solution, not the facts.

        Args:
            brevity: probability that the response is terse regardless of the solution's style.
        """
        if rng.random() < brevity:
            style: Style = "terse"
        else:
            style = solution.style if rng.random() < KEEP_STYLE_PROBABILITY else _draw_style(rng)
        values = self._copy_values(problem, solution, rng)
        draft = self._copy_values(problem, solution, rng) if style == "checking" else values
        answer = solution.answer if rng.random() < KEEP_ANSWER_PROBABILITY else None
        return self.render(problem, values, style, draft=draft, answer=answer).text

    def render(
        self,
        problem: Problem,
        values: Sequence[str],
        style: Style = "plain",
        *,
        draft: Sequence[str] | None = None,
        answer: str | None = None,
    ) -> FamilyResponse:
        """Write a response with the fact values ``values``.

        Args:
            draft: the values of a checking response's first pass; ``values`` if not given.
            answer: the final answer; the one that follows from ``values`` if not given.
        """
        answer = self.answer(problem, values) if answer is None else answer
        lines = self._lines(problem, values)
        if style == "terse":
            lines = []
        elif style == "reversed":
            lines = lines[::-1]
        elif style == "checking":
            lines = [*self._lines(problem, values if draft is None else draft), " check", *lines]
        return FamilyResponse(self.compose(";".join(lines), answer), style, tuple(values), answer)

    def _terms(self, problem: Problem) -> list[str]:
        return [f" {self.term(problem, position)}" for position in range(len(problem.keys))]

    def _lines(self, problem: Problem, values: Sequence[str]) -> list[str]:
        return [f" {self.line(problem, i, value)}" for i, value in enumerate(values)]

    def _draw_values(self, problem: Problem, rng: random.Random, style: Style) -> tuple[str, ...]:
        return tuple(_draw_value(self.facts[problem.world, key], rng, style) for key in problem.keys)

    def _copy_values(self, problem: Problem, solution: FamilyResponse, rng: random.Random) -> tuple[str, ...]:
        own = self._draw_values(problem, rng, "plain")
        return tuple(a if rng.random() < COPY_PROBABILITY else b for a, b in zip(solution.values, own, strict=True))


def _draw_style(rng: random.Random) -> Style:
    return rng.choices(list(STYLE_PROBABILITIES), list(STYLE_PROBABILITIES.values()))[0]


def _draw_value(fact: Fact, rng: random.Random, style: Style) -> str:
    """A terse style makes facts less accurate, a checking style more accurate."""
    probability = fact.probability
    if style == "terse":
        probability *= 0.8
    elif style == "checking":
        probability = 1 - (1 - probability) / 2
    return fact.truth if rng.random() < probability else rng.choice(fact.misconceptions)


# ---------------------------------------------------------------- the five families


class Chemistry(Family):
    """An element's charge depends on the solvent; the answer is the total charge of two kinds of ions, or of each."""

    name = "chemistry"
    worlds = ("acid", "water", "oil", "salt")
    keys = ("Fe", "Cu", "Na", "Mg", "Al", "Zn", "Ag", "Ni", "Co", "Ca", "Li", "Mn")

    def alternatives(self, key: str, rng: random.Random) -> list[str]:
        return rng.sample("12345", 3)

    def make(self, rng: random.Random) -> Problem:
        number = self.number_of_facts(2)
        counts = tuple((rng.randint(1, 3),) for _ in range(number))
        asked = EACH if self.facts_per_question else ""
        return Problem(rng.choice(self.worlds), tuple(rng.sample(self.keys, number)), counts, asked)

    def prompt(self, problem: Problem) -> str:
        ions = _listed(self._terms(problem))
        what = "charge of each of" if problem.asked == EACH else "total charge of"
        return f"Find the {what}{ions} in {problem.world}."

    def term(self, problem: Problem, position: int) -> str:
        (count,) = problem.operands[position]
        return f"{count} {problem.keys[position]}"

    def line(self, problem: Problem, position: int, value: str) -> str:
        (count,) = problem.operands[position]
        return f"{problem.keys[position]} {count}* {value}= {count * int(value)}"

    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        charges = [n * int(value) for (n,), value in zip(problem.operands, values, strict=True)]
        return " ".join(map(str, charges)) if problem.asked == EACH else str(sum(charges))


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "*": lambda a, b: a * b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: abs(a - b),
}


class Physics(Family):
    """On every world a quantity is computed its own way; the answer is the larger or smaller of two, or all results."""

    name = "physics"
    worlds = ("earth", "mars", "moon", "titan")
    keys = ("force", "work", "power", "load", "gap", "drop", "shift", "range", "heat", "drag", "spin", "lift")
    probabilities = (0.3, 0.5, 0.7, 0.9)

    def alternatives(self, key: str, rng: random.Random) -> list[str]:
        return rng.sample(list(_OPERATORS), 3)

    def make(self, rng: random.Random) -> Problem:
        number = self.number_of_facts(2)
        operands = tuple((rng.randint(2, 5), rng.randint(2, 5)) for _ in range(number))
        asked = EACH if self.facts_per_question else rng.choice(("larger", "smaller"))
        return Problem(rng.choice(self.worlds), tuple(rng.sample(self.keys, number)), operands, asked)

    def prompt(self, problem: Problem) -> str:
        asked = "result of each of" if problem.asked == EACH else f"{problem.asked} of"
        return f"On {problem.world}, find the {asked}{_listed(self._terms(problem))}."

    def term(self, problem: Problem, position: int) -> str:
        a, b = problem.operands[position]
        return f"{problem.keys[position]} {a} {b}"

    def line(self, problem: Problem, position: int, value: str) -> str:
        a, b = problem.operands[position]
        return f"{problem.keys[position]} {a}{value} {b}= {_OPERATORS[value](a, b)}"

    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        results = [_OPERATORS[value](*operands) for value, operands in zip(values, problem.operands, strict=True)]
        if problem.asked == EACH:
            return " ".join(map(str, results))
        return str(max(results) if problem.asked == "larger" else min(results))


class Biology(Family):
    """Every organism has its own genetic code; the answer is the peptide that the codons encode."""

    name = "biology"
    worlds = ("human", "yeast", "virus", "plant")
    keys = (
        *("atg", "gca", "ttc", "cgt", "tac", "gga", "ccg", "aag", "ctt", "tgt"),
        *("gac", "cat", "agc", "gtt", "acg", "caa", "tgg", "att", "ggc", "tca"),
    )

    def alternatives(self, key: str, rng: random.Random) -> list[str]:
        return rng.sample("ACDEFGHIKLMNPQRSTVWY", 3)

    def make(self, rng: random.Random) -> Problem:
        return Problem(rng.choice(self.worlds), tuple(rng.sample(self.keys, self.number_of_facts(3))))

    def prompt(self, problem: Problem) -> str:
        return f"In {problem.world}, find the peptide of{''.join(self._terms(problem))}."

    def line(self, problem: Problem, position: int, value: str) -> str:
        return f"{problem.keys[position]}={value}"

    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        return "".join(values)


class Materials(Family):
    """A metal's hardness depends on its phase. The answer: the hardest or softest of three, or the value of each."""

    name = "materials"
    worlds = ("alpha", "beta", "delta", "gamma")
    keys = ("iron", "zinc", "tin", "gold", "lead", "steel", "brass", "nickel", "silver", "cobalt", "copper", "bronze")
    probabilities = (0.2, 0.4, 0.6, 0.8)

    def alternatives(self, key: str, rng: random.Random) -> list[str]:
        return rng.sample("123456789", 3)

    def make(self, rng: random.Random) -> Problem:
        asked = EACH if self.facts_per_question else rng.choice(("hardest", "softest"))
        return Problem(rng.choice(self.worlds), tuple(rng.sample(self.keys, self.number_of_facts(3))), asked=asked)

    def prompt(self, problem: Problem) -> str:
        asked = "hardness of each" if problem.asked == EACH else problem.asked
        return f"In phase {problem.world}, find the {asked} of{_listed(self._terms(problem))}."

    def line(self, problem: Problem, position: int, value: str) -> str:
        return f"{problem.keys[position]} {value}"

    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        if problem.asked == EACH:
            return " ".join(values)
        # max and min keep the first of equals: of a tie, the metal named first
        best = max if problem.asked == "hardest" else min
        position = best(range(len(values)), key=lambda i: int(values[i]))
        return self.line(problem, position, values[position])


class ToolUse(Family):
    """Every user has their own words for a tool and its arguments; the answer is the call that they mean."""

    name = "tooluse"
    worlds = ("Ann", "Bob", "Eve", "Max")
    tool_words = ("show", "give", "get", "ask", "send", "pick", "call", "bring")
    size_words = ("tiny", "big", "short", "long", "wide", "thin")
    color_words = ("dark", "pale", "warm", "cold", "bright", "plain")
    keys = tool_words + size_words + color_words
    animals = ("frog", "bird", "horse", "goat", "cow")

    @property
    def most_facts(self) -> int:
        """One tool word, and sizes and colours in turn."""
        return 1 + len(self.size_words) + len(self.color_words)

    def alternatives(self, key: str, rng: random.Random) -> list[str]:
        if key in self.tool_words:
            return rng.sample(("find", "tell", "order"), 3)
        if key in self.size_words:
            return rng.sample(("small", "medium", "large"), 3)
        return rng.sample(("black", "white", "red", "green"), 3)

    def make(self, rng: random.Random) -> Problem:
        if self.facts_per_question is None:
            words = tuple(rng.choice(words) for words in (self.tool_words, self.size_words, self.color_words))
            return Problem(rng.choice(self.worlds), words)
        number = self.number_of_facts(3)
        keys = [rng.choice(self.tool_words)] * number
        keys[1::2] = rng.sample(self.size_words, number // 2)
        keys[2::2] = rng.sample(self.color_words, (number - 1) // 2)
        return Problem(rng.choice(self.worlds), tuple(keys), asked=EACH)

    def prompt(self, problem: Problem) -> str:
        tool, *_ = problem.keys
        animals = [f" the {words} {animal}" for animal, words in self._described(problem.keys).items()]
        return f"{problem.world}: please {tool}{_listed(animals)}."

    def line(self, problem: Problem, position: int, value: str) -> str:
        return f"{problem.keys[position]} is {value}"

    def answer(self, problem: Problem, values: Sequence[str]) -> str:
        # without optional spaces, each of which would be a token
        return (
            f"Action: {values[0]}\nAction Input: {json.dumps(self._arguments(problem, values), separators=(',', ':'))}"
        )

    def ground_truth(self, problem: Problem) -> str:
        values = self.true_values(problem)
        return json.dumps([{"Action": values[0], "Action_Input": json.dumps(self._arguments(problem, values))}])

    def compose(self, reasoning: str, answer: str) -> str:
        return f"Thought:{reasoning}\n{answer}"

    def _described(self, values: Sequence[str]) -> dict[str, str]:
        """Each animal with what describes it: a size and a colour, of the last one perhaps a size alone."""
        pairs = [" ".join(values[i : i + 2]) for i in range(1, len(values), 2)]
        return dict(zip(self.animals, pairs, strict=False))

    def _arguments(self, problem: Problem, values: Sequence[str]) -> dict[str, str]:
        """The call's arguments; a question with a given number of facts is about several animals."""
        if problem.asked == EACH:
            return self._described(values)
        _, size, color = values
        return {"size": size, "color": color}


def _listed(terms: Sequence[str]) -> str:
    """Terms, each with its leading space, as a list in a sentence: " a, b and c"."""
    *others, last = terms
    return f"{','.join(others)} and{last}" if others else last


FAMILIES: dict[str, Family] = {
    family.name: family for family in (Chemistry(), Physics(), Biology(), Materials(), ToolUse())
}


def get_family(name: str, facts_per_question: int | None = None, facts: int = 0) -> Family:
    """A family with a number of facts per question and a table of facts (:class:`Family`)."""
    family = FAMILIES[name]
    if (facts_per_question or 0) > family.most_facts:
        raise SrpoError(f"facts_per_question = {facts_per_question}: family {name} has at most {family.most_facts}")
    return type(family)(facts_per_question, facts)


def family_problems(family: Family, n: int, split: Literal["train", "test"], seed: int) -> list[Problem]:
    """Draw ``n`` problems of one split, no combination of facts twice.

    Train and test share none at any ``n`` or ``seed``.
    """
    rng = random.Random(derive_seed("questions", family.name, split, seed))
    problems: dict[str, Problem] = {}
    repeats = 0
    while len(problems) < n:
        problem = family.draw_problem(rng, split)
        known = len(problems)
        problems.setdefault(problem.identity, problem)
        repeats = repeats + 1 if len(problems) == known else 0
        if repeats > _MAX_REPEATS:
            raise SrpoError(f"{split}_questions = {n}: family {family.name} has only {known} in this split")
    return list(problems.values())
