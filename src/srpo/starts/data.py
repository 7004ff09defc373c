"""How a benchmark's splits are built: drawn, read or fetched, and verified."""

import hashlib
import logging
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from srpo.experiment.config import (
    Benchmark,
    FilesBenchmark,
    MiniatureBenchmark,
    ReasoningGymBenchmark,
)
from srpo.ground.errors import SrpoError
from srpo.ground.files import default_cache, read_bytes
from srpo.ground.seeds import derive_seed
from srpo.questions import families, rewards
from srpo.questions.rows import Row, check_responses, parse_rows
from srpo.questions.splits import Question, SplitName, question_key
from srpo.starts import github, reasoning_gym

_log = logging.getLogger(__name__)


def build_split(
    benchmark: Benchmark, split: SplitName, mirror: Path | None = None, cache: Path | None = None
) -> list[Question]:
    """Draw the questions of a toy or a task, or read or fetch a split, verify and parse it.

    With ``held_out_questions`` both splits are parts of the train split: a fixed random choice of its questions is the
    test split, the others are the train split.

    Args:
        mirror: a local copy of the source repository; None fetches.
        cache: where fetched files are kept; the user's cache folder if None.
    """
    source: SplitName = "train" if benchmark.held_out_questions else split
    if isinstance(benchmark, MiniatureBenchmark):
        place, rows = "miniature", _family_rows(benchmark, source)
    elif isinstance(benchmark, ReasoningGymBenchmark):
        place, rows = "reasoning-gym", reasoning_gym.task_rows(benchmark)[source]
    elif isinstance(benchmark, FilesBenchmark):
        place, rows = "files", _file_rows(benchmark, source)
    else:
        place = benchmark.source.repository.rsplit("/", 1)[-1].lower()
        file = getattr(benchmark.source, source)
        rows = github.load_rows(benchmark.source, file, mirror, cache or default_cache())
    questions = _questions(benchmark, rows, place)
    if benchmark.held_out_questions:
        questions = _part_of_train(questions, benchmark, split)
    rewards.check_truths(
        benchmark.reward, {f"{benchmark.name}, question {each.index}": each.ground_truth for each in questions}
    )
    return questions


def known_questions(benchmark: Benchmark, split: SplitName) -> list[Question]:
    """The questions of a split that are known before it is built: those of toys and of own files; none of others."""
    if isinstance(benchmark, MiniatureBenchmark):
        return build_split(benchmark, split)
    if isinstance(benchmark, FilesBenchmark) and (file := benchmark.file(split)).is_file():
        return _questions(benchmark, parse_rows(read_bytes(file), str(file), benchmark.columns), "files")
    return []


def split_statistics(benchmark: Benchmark, splits: dict[SplitName, list[Question]]) -> dict[str, Any]:
    """Summarise the splits that exist for ``statistics.json`` (docs/architecture.md).

    ``most_frequent_answer`` is the share of questions with this answer. ``test_copies`` counts the test questions that
    another one asks already, ``trained_tests`` those that are train questions; without any they are absent.
    """
    questions = [question for split in splits.values() for question in split]
    lengths = [sum(len(message["content"]) for message in question.messages) for question in questions]
    statistics = {
        "benchmark": benchmark.name,
        "kind": benchmark.kind,
        "rows": {split: len(of_split) for split, of_split in splits.items()},
        "prompt_characters": {"mean": sum(lengths) / len(lengths), "max": max(lengths)},
        "example": {"prompt": questions[0].messages[-1]["content"], "answer": questions[0].ground_truth},
        "source": _describe_source(benchmark),
    }
    truths = {split: [question.ground_truth for question in of_split] for split, of_split in splits.items()}
    statistics["most_frequent_answer"] = {
        split: rewards.most_frequent_answer(benchmark.reward, of_split) for split, of_split in truths.items()
    }
    trained, tested = ([question_key(each.messages) for each in splits.get(split, [])] for split in ("train", "test"))
    counts = {"test_copies": len(tested) - len({*tested}), "trained_tests": sum(map({*trained}.__contains__, tested))}
    return statistics | {name: count for name, count in counts.items() if count}


def _part_of_train(questions: list[Question], benchmark: Benchmark, split: SplitName) -> list[Question]:
    """The held-out part of the train split as the test split, or the rest, without copies of it, as the train split."""
    rng = random.Random(derive_seed("held-out questions", benchmark.name))
    held_out = {*rng.sample(range(len(questions)), benchmark.held_out_questions)}
    keys = [question_key(question.messages) for question in questions]
    known = {keys[i] for i in held_out}
    part = [q for i, q in enumerate(questions) if (i in held_out if split == "test" else keys[i] not in known)]
    return [replace(question, index=i) for i, question in enumerate(part)]


def _family_rows(benchmark: MiniatureBenchmark, split: SplitName) -> list[Row]:
    family = families.get_family(benchmark.family, benchmark.facts_per_question, benchmark.facts)
    problems = families.family_problems(family, benchmark.published(split), split, benchmark.seed)
    return [Row([{"role": "user", "content": family.prompt(each)}], family.ground_truth(each)) for each in problems]


def _file_rows(benchmark: FilesBenchmark, split: SplitName) -> list[Row]:
    path = benchmark.file(split)
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != benchmark.contents[split].sha256:
        raise SrpoError(f"{path}: it has changed since the experiment was read; start again")
    rows = parse_rows(content, str(path), benchmark.columns)
    check_responses(benchmark.reward, rows)
    return rows


def _questions(benchmark: Benchmark, rows: Iterable[Row], place: str) -> list[Question]:
    return [
        Question(i, row.messages, row.ground_truth, benchmark.reward, f"{place}/{benchmark.name}", row.response)
        for i, row in enumerate(rows)
    ]


def _describe_source(benchmark: Benchmark) -> dict[str, Any]:
    if isinstance(benchmark, MiniatureBenchmark):
        return {"family": benchmark.family, "seed": benchmark.seed, "facts": benchmark.facts}
    if isinstance(benchmark, ReasoningGymBenchmark):
        return {"task": benchmark.task, "settings": benchmark.settings, "seed": benchmark.seed}
    if isinstance(benchmark, FilesBenchmark):
        return {"train": benchmark.train_file.name, "test": benchmark.test_file.name}
    return benchmark.source.model_dump()
