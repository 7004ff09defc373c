"""What the paper claims, held against what was measured here. Every sentence is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from srpo.analysis.grid import MISSING, Cell, Grid, Row, number
from srpo.analysis.load import RUN_KEY, Results
from srpo.analysis.scores import (
    BASE,
    Protocol,
    average_scores,
    cell_scores,
    difference,
    main_methods,
    model_benchmarks,
    planned,
    run_scores,
)
from srpo.analysis.tables import benchmark_title, method_title, step_seconds

COLLAPSE_POINTS = 10.0
_SMOOTHED = 3  # validations: one alone is noisy

Verdict = Literal["seen here", "seen in part", "not seen here", "no data yet"]


@dataclass(frozen=True)
class Finding:
    """A claim of the paper beside what was measured here."""

    claim: str
    here: str
    verdict: Verdict


@dataclass(frozen=True)
class _Difference:
    """One method minus another, in points, over ``benchmarks`` of ``planned`` benchmarks."""

    points: float
    error: float
    benchmarks: int
    planned: int

    @property
    def margin(self) -> float:
        """Two standard errors: what is within it may be chance in the questions and samples alone."""
        return 2 * self.error

    @property
    def side(self) -> Literal["ahead", "behind", "level"]:
        return "level" if not abs(self.points) > self.margin else "ahead" if self.points > 0 else "behind"

    def __str__(self) -> str:
        margin = "" if math.isinf(self.margin) else f" ± {self.margin:.1f}"
        partly = "" if self.benchmarks == self.planned else f" ({self.benchmarks} of {self.planned} benchmarks)"
        return f"{number(self.points, sign=True)}{margin}{partly}"


class Comparison:
    """Differences between methods on one protocol: sampled anew where that is there for every score."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.runs = run_scores(results)
        evaluated = self.runs["resampled"].notna().sum()
        self.protocol: Protocol = (
            "resampled" if evaluated >= max(1, self.runs["in_training"].count()) else "in_training"
        )
        self.protocol_name = "re-sampled" if self.protocol == "resampled" else "in-training maximum"

    def of(self, model: str, pair: tuple[str, str], budget: str) -> _Difference | None:
        """``pair[0]`` minus ``pair[1]`` over the benchmarks that have both; None if there is none."""
        benchmarks = model_benchmarks(self.results, model, pair)
        both = [b for b in benchmarks if difference(self.runs, model, pair, budget, [b], self.protocol)]
        found = difference(self.runs, model, pair, budget, both, self.protocol)
        return found and _Difference(*found, len(both), len(benchmarks))


# ---------------------------------------------------------------- summary


def headlines(results: Results) -> list[str]:
    """The few sentences that open the report."""
    sentences = [_progress(results), *_best_scores(results), _verdicts(results), _selection_bias(results)]
    return [sentence for sentence in (*sentences, _seeds(results)) if sentence]


def _progress(results: Results) -> str:
    status = results.runs["status"].value_counts()
    total, bases = len(results.runs), len(results.experiment.bases())
    rest = [f"{status[s]} {s}" for s in ("in progress", "not started") if status.get(s)]
    tail = f" ({', '.join(rest)})" if rest else ""
    return (
        f"{status.get('finished', 0)} of {total} training runs are finished{tail}; "
        f"{results.evaluations[RUN_KEY].drop_duplicates().shape[0]} of them are evaluated anew, as are "
        f"{len(results.bases)} of {bases} base models."
    )


def _best_scores(results: Results) -> list[str]:
    """Per model, the average at the last budget of every method that has one."""
    budget, protocol = list(results.experiment.training.budgets)[-1], Comparison(results)
    sentences = []
    for model, spec in results.experiment.models.items():
        cells = cell_scores(results)
        benchmarks = model_benchmarks(results, model)
        averages = average_scores(cells[cells["model"] == model], benchmarks).set_index(["method", "budget"])
        base = averages["resampled"].get((BASE, BASE), math.nan)
        scores = {m: averages[protocol.protocol].get((m, budget), math.nan) for m in planned(results, model)}
        there = {m: score for m, score in scores.items() if not math.isnan(score)}
        if not there:
            continue
        listed = ", ".join(f"{method_title(results, m)} {s:.1f}{_gain(s, base)}" for m, s in there.items())
        start = "" if math.isnan(base) else f" from a base of {base:.1f}"
        over = (
            f"average of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else benchmark_title(results, *benchmarks)
        )
        sentences.append(f"{spec.title} within {budget} ({over}, {protocol.protocol_name}){start}: {listed}.")
    return sentences


def _verdicts(results: Results) -> str:
    """How many of the paper's claims were seen, and which were not."""
    known = [finding for finding in findings(results) if finding.verdict != "no data yet"]
    if not known:
        return ""
    counts = {verdict: sum(f.verdict == verdict for f in known) for verdict in ("seen here", "seen in part")}
    absent = [finding.claim for finding in known if finding.verdict == "not seen here"]
    listed = f"; not seen: {'; '.join(absent)}" if absent else ""
    return (
        f"Of {len(known)} claims of the paper that can be looked at, {counts['seen here']} are seen here and "
        f"{counts['seen in part']} in part{listed}."
    )


def _gain(score: float, base: float) -> str:
    return "" if math.isnan(base) else f" ({number(score - base, sign=True)})"


def _selection_bias(results: Results) -> str:
    both = run_scores(results).dropna(subset=["in_training", "resampled"])
    if both.empty:
        return ""
    gap = (both["in_training"] - both["resampled"]).mean()
    return (
        f"The in-training maximum is on average {number(gap, sign=True)} points from the same checkpoint's score "
        f"sampled anew ({len(both)} scores): a maximum of noisy validations is biased upward."
    )


def _seeds(results: Results) -> str:
    started = results.runs[results.runs["status"] != "not started"]
    if started.empty:
        return ""
    counts = started.groupby(["model", "benchmark", "method"])["seed"].nunique()
    if counts.max() == 1:
        return (
            "Every cell is one training seed: margins cover the draw of questions and samples, not what another "
            "seed would give, so small differences between methods are not evidence."
        )
    return (
        f"Cells are means over {counts.min()} to {counts.max()} seeds; margins cover the draw of questions and "
        "samples, not the spread between seeds."
    )


def comparison_grid(results: Results) -> Grid | None:
    """SRPO minus each other method of table 1 at each budget, with two standard errors."""
    comparison = Comparison(results)
    budgets = list(results.experiment.training.budgets)
    rows: list[Row] = []
    for model, spec in results.experiment.models.items():
        plan = planned(results, model)
        others = [m for m in main_methods(results) if m in plan and m != "srpo"]
        if "srpo" not in plan or not others:
            continue
        rows.append(Row(spec.title, heading=True))
        for other in others:
            found = [comparison.of(model, ("srpo", other), budget) for budget in budgets]
            cells = [Cell(str(d), d.side == "ahead", d.side == "behind") if d else Cell(MISSING) for d in found]
            rows.append(Row(f"SRPO minus {method_title(results, other)}", cells))
    if not rows:
        return None
    title = f"SRPO against the others, points ({comparison.protocol_name}; ± two standard errors over test questions)"
    return Grid("", [("", f"within {budget}") for budget in budgets], rows, title=title)


# ---------------------------------------------------------------- the claims


def findings(results: Results) -> list[Finding]:
    """The paper's claims about the methods of this experiment."""
    budgets = list(results.experiment.training.budgets)
    first, last = budgets[0], budgets[-1]
    comparison = Comparison(results)
    methods = results.experiment.methods
    found = []
    if "srpo" in methods and {"grpo", "sdpo"} & methods.keys():
        pairs = [("srpo", m) for m in ("grpo", "sdpo") if m in methods]
        found.append(_compared(comparison, "SRPO ends above both GRPO and SDPO", pairs, last))
        found.append(_compared(comparison, "SRPO is early ahead of GRPO", [("srpo", "grpo")], first))
    if {"sdpo", "grpo"} <= methods.keys():
        found.append(_compared(comparison, "SDPO is early ahead of GRPO", [("sdpo", "grpo")], first))
    if "sdpo" in methods:
        found.append(_collapse(results))
        found.append(
            _trend(results, "SDPO's teacher becomes less certain (its entropy rises)", "sdpo", "teacher/entropy", +1)
        )
    if {"grpo", "sdpo", "srpo"} <= methods.keys():
        found.append(_lengths(results))
    if "srpo" in methods:
        found.append(_step_cost(results, last))
        claim = "SRPO routes fewer rollouts to self-distillation as it improves"
        found.append(_trend(results, claim, "srpo", "routing/sdpo_fraction", -1))
    if "srpo_without_weighting" in methods:
        pairs = [("srpo", "srpo_without_weighting")]
        found.append(_compared(comparison, "Dynamic weighting helps in the end", pairs, last))
    if "advantage_mix" in methods:
        other = "srpo_without_weighting" if "srpo_without_weighting" in methods else "srpo"
        claim = "Routing samples ends above mixing advantages"
        found.append(_compared(comparison, claim, [(other, "advantage_mix")], last))
    return found


def _compared(comparison: Comparison, claim: str, pairs: list[tuple[str, str]], budget: str) -> Finding:
    """The first of each pair is claimed to be ahead of the second at ``budget``."""
    results = comparison.results
    sentences, sides = [], []
    for model, spec in results.experiment.models.items():
        found = {
            pair: comparison.of(model, pair, budget) for pair in pairs if {*pair} <= planned(results, model).keys()
        }
        there = {pair: d for pair, d in found.items() if d}
        sides += [d.side for d in there.values()]
        if there:
            listed = ", ".join(
                f"{method_title(results, a)} {_SIDES[d.side]} {method_title(results, b)} ({d})"
                for (a, b), d in there.items()
            )
            sentences.append(f"{spec.title} within {budget}: {listed}.")
    return Finding(claim, " ".join(sentences), _verdict(side == "ahead" for side in sides))


_SIDES = {"ahead": "above", "behind": "below", "level": "not distinguishable from"}


def _verdict(held: Iterable[bool]) -> Verdict:
    held = list(held)
    if not held:
        return "no data yet"
    return "seen here" if all(held) else "seen in part" if any(held) else "not seen here"


def _collapse(results: Results) -> Finding:
    """By how much the end of training lies below its best stretch, each a mean of a few validations."""
    falls: dict[str, list[float]] = {}
    for key, log in _finished(results, results.validations).groupby(RUN_KEY, sort=False):
        smooth = 100 * log["avg_at_k"].rolling(_SMOOTHED).mean()
        if smooth.count() > _SMOOTHED:
            falls.setdefault(key[2], []).append(smooth.max() - smooth.iloc[-1])
    shown = [m for m in ("sdpo", "grpo", "srpo") if m in falls]
    fallen = {m: sum(fall >= COLLAPSE_POINTS for fall in falls[m]) for m in shown}
    claim = "SDPO collapses in prolonged training; GRPO and SRPO do not"
    if "sdpo" not in falls:
        return Finding(claim, "", "no data yet")
    listed = "; ".join(
        f"{method_title(results, m)} {fallen[m]} of {len(falls[m])} (largest fall {max(falls[m]):.1f})" for m in shown
    )
    opening = "No SDPO run collapsed here. " if not fallen["sdpo"] else ""
    here = f"{opening}Runs that ended {COLLAPSE_POINTS:g} points or more below their best stretch: {listed}."
    if not fallen["sdpo"]:
        return Finding(claim, here, "not seen here")
    whole = fallen["sdpo"] == len(falls["sdpo"]) and not any(fallen[m] for m in shown if m != "sdpo")
    return Finding(claim, here, "seen here" if whole else "seen in part")


def _trend(results: Results, claim: str, method: str, metric: str, direction: int) -> Finding:
    """A metric is claimed to rise (+1) or fall (-1) from the first to the last tenth of a method's training."""
    sentences, held = [], []
    for model, spec in results.experiment.models.items():
        ends = _ends(results, model, method, metric)
        if not ends:
            continue
        moved = [direction * (late - early) > 0 for early, late in ends]
        held += moved
        early, late = (sum(side) / len(ends) for side in zip(*ends, strict=True))
        word = "higher" if direction > 0 else "lower"
        values = (
            f"{early:.0%} to {late:.0%}".replace("%", " %")
            if metric.startswith("routing/")
            else f"{early:.3f} to {late:.3f} nats"
        )
        sentences.append(f"{spec.title}: {values}, {word} in {sum(moved)} of {len(moved)} runs.")
    here = f"First to last tenth of training. {' '.join(sentences)}" if sentences else ""
    return Finding(claim, here, _verdict(held))


def _ends(results: Results, model: str, method: str, metric: str) -> list[tuple[float, float]]:
    """Means over the first and the last tenth of the steps of each finished run."""
    steps = _finished(results, results.steps)
    steps = steps[(steps["model"] == model) & (steps["method"] == method)].dropna(subset=[metric])
    ends = []
    for _, run in steps.groupby(RUN_KEY, sort=False):
        tenth = math.ceil(len(run) / 10)
        ends.append((run[metric].iloc[:tenth].mean(), run[metric].iloc[-tenth:].mean()))
    return ends


def _lengths(results: Results) -> Finding:
    """The order of response lengths in the last tenth of training, benchmark by benchmark."""
    sentences, held = [], []
    for model, spec in results.experiment.models.items():
        lengths = pd.DataFrame(
            {m: _late_lengths(results, model, m) for m in ("grpo", "srpo", "sdpo")}, dtype=float
        ).dropna()
        if lengths.empty:
            continue
        between = (lengths["grpo"] > lengths["srpo"]) & (lengths["srpo"] > lengths["sdpo"])
        held += list(between)
        mean = lengths.mean()
        sentences.append(
            f"{spec.title}: GRPO {mean['grpo']:.1f}, SRPO {mean['srpo']:.1f}, SDPO {mean['sdpo']:.1f} tokens; in this "
            f"order on {between.sum()} of {len(between)} benchmarks."
        )
    here = f"Mean over the last tenth of training. {' '.join(sentences)}" if sentences else ""
    return Finding("SRPO's responses are shorter than GRPO's and longer than SDPO's", here, _verdict(held))


def _late_lengths(results: Results, model: str, method: str) -> dict[str, float]:
    steps = _finished(results, results.steps)
    steps = steps[(steps["model"] == model) & (steps["method"] == method)]
    late = {
        key: run["response_length/mean"].iloc[-math.ceil(len(run) / 10) :].mean()
        for key, run in steps.groupby(["benchmark", "seed"], sort=False)
    }
    by_benchmark: dict[str, list[float]] = {}
    for (benchmark, _), length in late.items():
        by_benchmark.setdefault(benchmark, []).append(length)
    return {benchmark: sum(values) / len(values) for benchmark, values in by_benchmark.items()}


def _step_cost(results: Results, budget: str) -> Finding:
    """Mean seconds a step up to the last budget."""
    table = step_seconds(results)
    table = table[table["budget"] == budget].set_index(["model", "method"])["step_seconds"]
    sentences, held = [], []
    for model, spec in results.experiment.models.items():
        seconds = {m: table[(model, m)] for m in ("srpo", "grpo", "sdpo") if (model, m) in table.index}
        if "srpo" not in seconds or len(seconds) < 2:
            continue
        held.append(min(seconds, key=seconds.get) == "srpo")
        listed = ", ".join(f"{method_title(results, m)} {s:.3f}" for m, s in seconds.items())
        clock = results.experiment.training.clock.kind
        sentences.append(f"{spec.title}: {listed} s of the {clock} clock a step up to {budget}.")
    return Finding("Over long training a step of SRPO is the cheapest", " ".join(sentences), _verdict(held))


def _finished(results: Results, log: pd.DataFrame) -> pd.DataFrame:
    """The rows of finished runs: half a training has no end to speak of."""
    finished = results.runs.loc[results.runs["status"] == "finished", RUN_KEY]
    return log.merge(finished, on=RUN_KEY)
