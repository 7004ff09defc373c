"""Read an experiment's results directory into tidy frames.

A run, evaluation or budget that does not exist (yet) becomes a missing value, so the results of an experiment can be
read while it is still training.
"""

import math
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srpo.algorithm.branches import trained_branches
from srpo.analysis.numbers import with_numbers
from srpo.analysis.paper import paper_scores
from srpo.analysis.registered import claims_of
from srpo.analysis.results import RUN_KEY, Results
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, limit_reached
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json, read_mapping, read_yaml
from srpo.ground.layout import Layout, RunFiles, RunId
from srpo.training.clock import PHASES
from srpo.training.watch import signals_of

# The report shows one question. Only a few are read, because long responses take memory.
SAMPLED_QUESTIONS = 3

_COLUMNS = {
    "runs": ["status", "steps", "clock", "wall_seconds", "peak_memory_gb", "stopped_by", "evaluation_wall_seconds"],
    "steps": ["step", "clock", "step_seconds", "wall_seconds", *(f"phase_seconds/{p}" for p in PHASES)],
    "validations": ["step", "clock", "avg_at_k", "k", "questions", "response_length", "question_scores"],
    "evaluations": ["budget", "step", "avg_at_k", "k", "questions", "response_length", "question_scores"],
    "signals": ["step", "clock", "rule", "level", "value", "reference"],
    "samples": ["budget", "question", "sample", "prompt", "response", "ground_truth", "reward"],
}
_TEXT = {"model", "benchmark", "method", "budget", "status", "stopped_by", "question_scores"}
_TEXT |= {"prompt", "response", "ground_truth", "rule", "level"}


def load_results(results_dir: Path, experiment: Experiment | None = None) -> Results:
    """Read the existing results of an experiment below ``results_dir`` (``results/<experiment>``).

    Args:
        experiment: its runs are read; by default that in the folder's ``experiment.yaml``.

    Raises:
        SrpoError: if a file exists but cannot be parsed.
    """
    root = Path(results_dir)
    layout = Layout(root)
    if experiment is None:
        experiment = load_experiment(layout.experiment)
    rows: dict[str, list] = {name: [] for name in (*_COLUMNS, "bases")}
    specs, provenance, gaps = {}, {}, {}
    for run in experiment.runs():
        files = layout.run_files(run)
        if files.origin.is_file():
            record = read_mapping(files.origin)
            specs[run], provenance[run] = record["spec"], record["provenance"]
        _read_run(files, run.model_dump(), experiment, rows)
    for model, benchmark in experiment.bases():
        for seed, base in experiment.base_models(model).items():
            key = {"model": model, "benchmark": benchmark, "method": "base", "seed": seed}
            files = layout.base_files(base.name, benchmark)
            path = files.evaluation
            rows["bases"] += _evaluation_rows(path, _json_if_there(path), key, ["base"])
            rows["samples"] += _sample_rows(files.samples, key)
            if gap := _json_if_there(layout.gap(base.name, benchmark)):
                gaps[model, benchmark, seed] = gap
    logs = {name: [pd.DataFrame(), *rows.pop(name)] for name in ("steps", "validations")}
    frames = {name: pd.concat(of_runs, ignore_index=True) for name, of_runs in logs.items()}
    frames |= {name: pd.DataFrame(found) for name, found in rows.items()}
    frames = {name: tidy(frame, _COLUMNS.get(name, _COLUMNS["evaluations"])) for name, frame in frames.items()}
    results = Results(
        root=root,
        experiment=experiment,
        **frames,
        # of the first table of facts: the others have the same questions
        statistics={
            data.name: _json_if_there(layout.statistics(folder))
            for folder, data in reversed(experiment.data_sets().items())
        },
        gaps=gaps,
        specs=specs,
        provenance=provenance,
        trained=read_yaml(layout.provenance)["trained"] if layout.provenance.is_file() else days(ends(layout, specs)),
        routed_group=_routed_group(root, experiment),
        paper_scores=paper_scores(experiment) if experiment.comparable_with_paper else None,
        claims=claims_of(experiment),
    )
    return with_numbers(results)


# ---------------------------------------------------------------- one run


def _read_run(files: RunFiles, key: dict[str, Any], experiment: Experiment, rows: dict[str, list]) -> None:
    events = _read_log(files.steps)
    steps = [_flat_step(event) for event in events]
    validations = _read_log(files.validations)
    summary = _json_if_there(files.summary)
    evaluation = _json_if_there(files.evaluation)
    for path, record in ((files.summary, summary), (files.evaluation, evaluation)):
        if record.get("run", key) != key:
            raise SrpoError(f"{path}: of another run, {record['run']}; restore it, or delete its folder")
    ended = summary.get("steps", 0)  # with a longer budget, a run goes on after its summary
    clocks, validated = ({event["step"]: event["clock"] for event in log} for log in (events, validations))
    due = {step for step, clock in clocks.items() if experiment.training.validates(step, clock)}
    own = due <= validated.keys() and all(math.isclose(at, clocks.get(step, at)) for step, at in validated.items())
    if len(events) < ended or (len(events) == ended and not own):
        log = files.steps if len(events) < ended else files.validations
        raise SrpoError(f"{log}: not those of the run's {ended} steps; restore it, or delete its folder")
    # One frame per run: as dictionaries, the steps of the paper's full matrix would take gigabytes.
    rows["steps"].append(pd.DataFrame([key | step for step in steps]))
    rows["validations"].append(pd.DataFrame([key | _with_array(v, files.validations) for v in validations]))
    for signal in signals_of(events, validations, experiment.training.warmup_steps):
        rows["signals"].append(key | signal.event() | {"clock": clocks.get(signal.step)})
    rows["evaluations"] += _evaluation_rows(files.evaluation, evaluation, key, experiment.training.budget_seconds)
    rows["samples"] += _sample_rows(files.samples, key)
    over = summary and limit_reached(experiment.training, summary["clock"], summary["steps"])
    rows["runs"].append(key | _run_row(steps, summary, evaluation, bool(over)))


def _run_row(steps: list[dict], summary: dict, evaluation: dict, over: bool) -> dict[str, Any]:
    last = steps[-1] if steps else {}
    seconds = sum(step.get("wall_seconds") or 0.0 for step in steps) if steps else None
    so_far = {"steps": last.get("step"), "clock": last.get("clock"), "wall_seconds": seconds}
    in_summary = {name: summary[name] for name in _COLUMNS["runs"] if name in summary}
    status = "finished" if over else "in progress" if steps else "not started"
    return so_far | in_summary | {"status": status, "evaluation_wall_seconds": evaluation.get("wall_seconds")}


def ends(layout: Layout, runs: Iterable[RunId]) -> list[float]:
    """When attempts at the runs ended, seconds since the epoch; ``srpo train`` without Snakemake records none."""
    attempts = (event for run in runs for event in read_events(layout.run_files(run).attempts))
    return [event["time"] for event in attempts if event["event"] == "end"]


def days(times: Collection[float]) -> str:
    """The first and the last day, in UTC, of ``times``; empty without any."""
    found = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in (min(times), max(times))] if times else []
    return " to ".join(dict.fromkeys(found))


def _flat_step(event: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in event.items() if not isinstance(value, dict)}
    for name in ("phase_seconds", "phase_tokens"):
        flat |= {f"{name}/{phase}": value for phase, value in (event.get(name) or {}).items()}
    return flat | (event.get("metrics") or {})


def _evaluation_rows(path: Path, evaluation: dict, key: dict[str, Any], budgets: Iterable[str]) -> list[dict[str, Any]]:
    scores = evaluation.get("budgets") or {}
    shared = {"k": evaluation.get("k"), "questions": evaluation.get("questions")}
    return [key | shared | _with_array(scores[name], path) | {"budget": name} for name in budgets if scores.get(name)]


def _with_array(score: dict[str, Any], path: Path) -> dict[str, Any]:
    where = f"{path}: the score of step {score.get('step')}"
    if not score.get("question_scores"):
        raise SrpoError(f"{where} has no question_scores")
    scores = np.asarray(score["question_scores"], dtype=float)
    if not ((scores >= 0) & (scores <= 1)).all():  # nor is NaN
        raise SrpoError(f"{where} has a question outside 0 to 1 (0 to 100 %)")
    if not math.isclose(score.get("avg_at_k", math.nan), scores.mean(), abs_tol=1e-9):
        raise SrpoError(f"{where}: avg_at_k is not {scores.mean()}, the mean of its question_scores")
    return score | {"question_scores": scores}


def _sample_rows(path: Path, key: dict[str, Any]) -> list[dict[str, Any]]:
    shown = (s for s in read_events(path) if s["sample"] == 0 and s["question"] < SAMPLED_QUESTIONS)
    return [key | _encodable(sample) for sample in shown]


def _routed_group(root: Path, experiment: Experiment) -> tuple[RunId, dict[str, Any]] | None:
    """The first logged group with rollouts in several branches, of the first run that has one.

    SRPO's runs come first. The first group is taken, because it stays the same while the run continues.
    """
    runs = [run for run in experiment.runs() if experiment.methods[run.method].routes_samples]
    for run in sorted(runs, key=lambda run: run.method != "srpo"):
        for group in read_events(Layout(root).run_files(run).groups):
            if len(trained_branches(rollout["branch"] for rollout in group["rollouts"])) > 1:
                return run, _encodable(group)
    return None


def _encodable(value: Any) -> Any:
    """Replace lone surrogates by their code: a model may sample them, and UTF-8 cannot encode them."""
    if isinstance(value, dict):
        return {name: _encodable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_encodable(inner) for inner in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


# ---------------------------------------------------------------- files


def _read_log(path: Path) -> list[dict[str, Any]]:
    """The events of a log in step order.

    A run that was killed and resumed from a checkpoint repeats steps. The repeated steps replace those that the killed
    attempt had logged.
    """
    log: list[dict[str, Any]] = []
    for event in read_events(path):
        while log and log[-1]["step"] >= event["step"]:
            log.pop()
        log.append(event)
    return log


def _json_if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def tidy(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with at least ``columns``. Numbers are floats; absent values are missing."""
    frame = frame.reindex(columns=[*dict.fromkeys([*RUN_KEY, *columns, *frame.columns])])
    types: dict[str, Any] = dict.fromkeys([c for c in ("model", "benchmark", "method", "budget") if c in frame], "str")
    types |= {c: float for c in columns if c not in _TEXT} | {"seed": int}
    return frame.astype({c: kind for c, kind in types.items() if frame[c].dtype != kind})
