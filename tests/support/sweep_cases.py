"""Sweeps of made-up logs, and their numbers straight from the files."""

from __future__ import annotations

import json
import math

import numpy as np
from synthetic import tiny_experiment

from srpo.analysis.results.sweeps import LATE_DROP
from srpo.experiment.compose import load_experiment
from srpo.layout import RunId
from srpo.seeds import derive_seed

BENCHMARKS = ("chemistry", "physics")


BUDGETS = {"1h": 3, "5h": 10, "10h": 20}


TRAINING = {"clock": {"kind": "modelled"}, "budget_seconds": BUDGETS, "validate_every": 2}


def experiment(**changes):
    block = {"models": ["miniature-small"], "benchmarks": ["miniature/chemistry", "miniature/physics"]}
    block |= {"methods": changes.pop("methods"), "seeds": changes.pop("seeds", [1])}
    return load_experiment(tiny_experiment(matrix=[block], training=TRAINING, **changes))


OF_METHODS = experiment(
    methods=["grpo", "srpo"],
    seeds=[1, 2, 3],
    sweep={"of": "srpo", "key": "entropy_beta", "values": [2, 0, 0.5], "label": "β"},
)


OF_MODELS = experiment(
    methods=["sdpo", "srpo"],
    sweep={"of": "miniature-small", "key": "warm_start.brevity", "values": [0, 0.3], "label": "teacher brevity"},
)


PLAIN = experiment(methods=["grpo"])


def read(results, run: RunId, name: str):
    path = results.root / "runs" / run.path / name
    text = path.read_text()
    return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def runs_of(results, model: str, method: str, benchmark: str) -> list[RunId]:
    return [r for r in results.experiment.runs() if (r.model, r.method, r.benchmark) == (model, method, benchmark)]


def raw_late_drop(log: list[dict]) -> float:
    """Of the ten divisions of the questions: one half chooses the best three in a row, the other measures."""
    rows = [event["question_scores"] for event in log]
    places, drops = range(len(rows) - 2), []
    rng = np.random.default_rng(derive_seed("report", "question halves"))
    for _ in range(10):
        order = [int(i) for i in rng.permutation(len(rows[0]))]
        one, other = order[: len(order) // 2], order[len(order) // 2 :]
        for chooses, measures in ((one, other), (other, one)):
            chosen = [sum(rows[v][q] for v in (p, p + 1, p + 2) for q in chooses) for p in places]
            best = max(p for p in places if math.isclose(chosen[p], max(chosen), abs_tol=1e-9))
            measured = [sum(rows[v][q] for v in (p, p + 1, p + 2) for q in measures) / 3 for p in places]
            drops.append(measured[best] - measured[-1])
    return 100 * sum(drops) / 10 / len(rows[0])


def raw(results, model: str, method: str, quantity: str) -> float:
    """A quantity from the files: the mean over seeds, then over benchmarks; NaN if a file lacks it."""
    means = []
    for benchmark in BENCHMARKS:
        found = []
        for run in runs_of(results, model, method, benchmark):
            if quantity == LATE_DROP:
                found.append(raw_late_drop(read(results, run, "validations.jsonl")))
            else:
                cell = read(results, run, "evaluation.json")["budgets"].get(quantity)
                found += [100 * cell["avg_at_k"]] if cell else []
        means.append(sum(found) / len(found) if found else math.nan)
    return sum(means) / len(means)


def rows_at(frame, method: str, value: float):
    same = frame["setting"].isna() if math.isnan(value) else frame["setting"] == value
    return frame[(frame["method"] == method) & same].set_index("quantity")
