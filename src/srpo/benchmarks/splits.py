"""Splits on disk, in verl's row format, and how a benchmark's splits are built."""

import hashlib
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from srpo import rewards
from srpo.benchmarks import families, hub_datasets, sources, tasks
from srpo.errors import SrpoError
from srpo.experiment.config import (
    Benchmark,
    FilesBenchmark,
    HubDatasetBenchmark,
    MiniatureBenchmark,
    ReasoningGymBenchmark,
)
from srpo.experiment.rows import Row, parse_rows, read_file
from srpo.seeds import derive_seed

SplitName = Literal["train", "test"]


@dataclass(frozen=True)
class Question:
    """One question; ``index`` is its position in the split, ``reward`` the kind that scores it."""

    index: int
    messages: list[dict[str, str]]
    ground_truth: str
    reward: str
    data_source: str


def write_split(path: Path, questions: Sequence[Question], split: SplitName) -> None:
    """Write a split as parquet, atomically; the same questions give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([_to_row(question, split) for question in questions], schema=_schema())
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    pq.write_table(table, partial, write_page_checksum=True)
    os.replace(partial, path)


def read_split(path: Path) -> list[Question]:
    """Read a split that :func:`write_split` wrote.

    Raises:
        SrpoError: if the file is missing, is no such parquet file or has no rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # read_table would import pandas, and start threads that abort a process which ends at once
        file = pq.ParquetFile(pa.BufferReader(path.read_bytes()), page_checksum_verification=True)
        rows = file.read(use_threads=False).to_pylist()
        questions = [_from_row(row) for row in rows]
    except FileNotFoundError as error:
        raise SrpoError(f"{path}: there is no such split; srpo data builds it") from error
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SrpoError(f"{path}: not a readable split ({reason}); delete it and run srpo data") from error
    if not questions:
        raise SrpoError(f"{path}: the split has no questions; delete it and run srpo data")
    return questions


def build_split(
    benchmark: Benchmark, split: SplitName, mirror: Path | None = None, cache: Path | None = None
) -> list[Question]:
    """Draw the questions of a miniature or a task, or read or fetch a split, verify and parse it.

    With ``held_out_questions`` both splits are parts of the train split: a fixed random choice of its questions is the
    test split, the others are the train split.

    Args:
        mirror: a local copy of the source repository; None fetches.
        cache: where fetched files are kept; the user's cache folder if None.

    Raises:
        SrpoError: if the split cannot be read or fetched, or is not the one the configuration describes.
    """
    source: SplitName = "train" if benchmark.held_out_questions else split
    if isinstance(benchmark, MiniatureBenchmark):
        questions = _family_questions(benchmark, source)
    elif isinstance(benchmark, ReasoningGymBenchmark):
        questions = _task_questions(benchmark, source)
    elif isinstance(benchmark, FilesBenchmark):
        questions = _questions(benchmark, _file_rows(benchmark, source), "files")
    elif isinstance(benchmark, HubDatasetBenchmark):
        questions = _questions(benchmark, hub_datasets.load_rows(benchmark, source), benchmark.repository)
    else:
        file = getattr(benchmark.source, source)
        rows = sources.load_rows(benchmark.source, file, mirror, cache or sources.default_cache())
        questions = _questions(benchmark, rows, benchmark.source.repository)
    if benchmark.held_out_questions:
        questions = _part_of_train(questions, benchmark, split)
    rewards.check_truths(benchmark.reward, [question.ground_truth for question in questions])
    return questions


def split_statistics(benchmark: Benchmark, splits: dict[SplitName, list[Question]]) -> dict[str, Any]:
    """Summarise the splits that exist for ``statistics.json`` (docs/architecture.md).

    ``most_frequent_answer`` is the share of questions with this answer. ``reference_cannot_score`` counts the tool-use
    questions that the reference's reading can never reward.
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
    unscored = {
        split: rewards.count_reference_cannot_score(benchmark.reward, of_split) for split, of_split in truths.items()
    }
    if None not in unscored.values():
        statistics["reference_cannot_score"] = unscored
    return statistics


def _part_of_train(questions: list[Question], benchmark: Benchmark, split: SplitName) -> list[Question]:
    """The held-out part of the train split as the test split, or the rest as the train split."""
    rng = random.Random(derive_seed("held-out questions", benchmark.name))
    held_out = {*rng.sample(range(len(questions)), benchmark.held_out_questions)}
    part = [question for i, question in enumerate(questions) if (i in held_out) == (split == "test")]
    return [replace(question, index=i) for i, question in enumerate(part)]


def _family_questions(benchmark: MiniatureBenchmark, split: SplitName) -> list[Question]:
    count = benchmark.published(split)
    family = families.get_family(benchmark.family, benchmark.facts_per_question, distractors=benchmark.distractors)
    return [
        Question(
            index=i,
            messages=[{"role": "user", "content": family.question(problem)}],
            ground_truth=family.ground_truth(problem),
            reward=benchmark.reward,
            data_source=f"miniature/{benchmark.name}",
        )
        for i, problem in enumerate(families.family_problems(family, count, split, benchmark.seed))
    ]


def _task_questions(benchmark: ReasoningGymBenchmark, split: SplitName) -> list[Question]:
    return [
        Question(i, entry.messages, entry.ground_truth, benchmark.reward, f"reasoning-gym/{benchmark.name}")
        for i, entry in enumerate(tasks.task_entries(benchmark)[split])
    ]


def _file_rows(benchmark: FilesBenchmark, split: SplitName) -> list[Row]:
    path = benchmark.file(split)
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != benchmark.contents[split].sha256:
        raise SrpoError(f"{path}: it has changed since the experiment was read; start again")
    return parse_rows(content, str(path), benchmark.columns)


def _questions(benchmark: Benchmark, rows: Sequence[Row], place: str) -> list[Question]:
    """The questions of rows; ``place`` is the repository that they are from."""
    data_source = f"{place.rsplit('/', 1)[-1].lower()}/{benchmark.name}"
    return [Question(i, row.messages, row.ground_truth, benchmark.reward, data_source) for i, row in enumerate(rows)]


def _describe_source(benchmark: Benchmark) -> dict[str, Any]:
    if isinstance(benchmark, MiniatureBenchmark):
        return {"family": benchmark.family, "seed": benchmark.seed}
    if isinstance(benchmark, ReasoningGymBenchmark):
        return {"task": benchmark.task, "settings": benchmark.settings, "seed": benchmark.seed}
    if isinstance(benchmark, FilesBenchmark):
        return {"train": benchmark.train_file.name, "test": benchmark.test_file.name}
    if isinstance(benchmark, HubDatasetBenchmark):
        return benchmark.model_dump(include={"repository", "revision", "subset", "train", "test"})
    return benchmark.source.model_dump()


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct({"split": text, "index": pa.int64(), "reward": text}),
        }
    )


def _to_row(question: Question, split: SplitName) -> dict[str, Any]:
    return {
        "data_source": question.data_source,
        "prompt": question.messages,
        "ability": question.data_source.rsplit("/", 1)[-1],
        "reward_model": {"style": "rule", "ground_truth": question.ground_truth},
        "extra_info": {"split": split, "index": question.index, "reward": question.reward},
    }


def _from_row(row: dict[str, Any]) -> Question:
    return Question(
        index=row["extra_info"]["index"],
        messages=[{"role": message["role"], "content": message["content"]} for message in row["prompt"]],
        ground_truth=row["reward_model"]["ground_truth"],
        reward=row["extra_info"]["reward"],
        data_source=row["data_source"],
    )
