"""Writes the files of a run and of an evaluation, as docs/architecture.md describes them, from made-up numbers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from srpo.ground.files import write_events, write_json
from srpo.ground.layout import RunId

Event = dict[str, Any]


def write_log(path: Path, events: Iterable[Event]) -> None:
    """One event per line; no file without events."""
    if lines := [*events]:
        write_events(path, lines)


def validation(step: int, clock: float, scores: Sequence[float], k: int, response_length: float = 300.0) -> Event:
    """A line of the validation log, from the score of each question."""
    return {
        "step": step,
        "clock": clock,
        "avg_at_k": sum(scores) / len(scores),
        "k": k,
        "questions": len(scores),
        "response_length": response_length,
        "truncated_fraction": 0.0,
        "question_scores": list(scores),
    }


def write_run(
    folder: Path,
    run: RunId,
    steps: Sequence[Event],
    validations: Sequence[Event],
    budgets: Mapping[str, float] | None,
    **measured: float,
) -> dict[str, Event]:
    """The logs of a run, and the summary of a finished one.

    Args:
        budgets: seconds of each budget; None if the run is still in progress.
        measured: further numbers of the summary.

    Returns:
        The best validation within each budget that has one.
    """
    write_log(folder / "steps.jsonl", steps)
    write_log(folder / "validations.jsonl", validations)
    if budgets is None:
        return {}
    selected, places = {}, dict.fromkeys(budgets)
    for name, seconds in budgets.items():
        if within := [v for v in validations if v["clock"] <= seconds]:
            best = selected[name] = max(within, key=lambda v: v["avg_at_k"])
            place = {key: best[key] for key in ("step", "clock", "avg_at_k")}
            places[name] = {"seconds": seconds, **place, "checkpoint": f"weights/step{best['step']}"}
    last = {key: steps[-1][key] for key in ("step", "clock")}
    summary = {"run": run.model_dump(), "steps": last["step"], "clock": last["clock"], "stopped_by": "budget"}
    write_json(folder / "summary.json", {**summary, **measured, "budgets": places})
    return selected


def write_evaluation(
    folder: Path, run: Mapping[str, Any], k: int, scores: Mapping[str, tuple[int, Sequence[float]]]
) -> None:
    """The evaluation of a run or of a base model: by budget, the checkpoint's step and the score of each question."""
    budgets = {
        name: {
            "step": step,
            "avg_at_k": sum(found) / len(found),
            "response_length": 30.0,
            "truncated_fraction": 0.0,
            "question_scores": list(found),
        }
        for name, (step, found) in scores.items()
    }
    questions = max((len(found) for _, found in scores.values()), default=0)
    content = {"run": dict(run), "k": k, "questions": questions, "budgets": budgets, "wall_seconds": 9.5}
    write_json(folder / "evaluation.json", content)


def base_identity(model: str, benchmark: str) -> dict[str, Any]:
    """What stands for the run in the evaluation of a base model."""
    return {"model": model, "benchmark": benchmark, "method": "base", "seed": 0}


def write_gap(folder: Path, **estimates: tuple[float, float | None, float | None]) -> None:
    """What ``srpo gap`` writes of a base model: its estimates, each with the ends of its interval."""
    found = {name: {"value": value, "low": low, "high": high} for name, (value, low, high) in estimates.items()}
    counts = {"questions": 48, "questions_with_sibling": 40, "samples": 8, "slope": 1.5}
    write_json(folder / "gap.json", {**counts, "estimates": found, "question_scores": {}})
