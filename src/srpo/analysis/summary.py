"""The few sentences that open the report, and what a reader should know about its runs. Every one is computed."""

from __future__ import annotations

import math

from srpo.analysis.claims import VERDICTS, Finding
from srpo.analysis.grid import interval, number
from srpo.analysis.load import RUN_KEY, Results
from srpo.analysis.scores import BASE, PROTOCOLS, Scores, model_benchmarks, planned
from srpo.analysis.statistics import Estimate
from srpo.analysis.table import benchmark_title, method_title
from srpo.config import WITHOUT_EFFECT, Execution


def headlines(results: Results, findings: list[Finding]) -> list[str]:
    """What was run, what it says about the paper, and how sure that is."""
    sentences = [
        _verdicts([finding for finding in findings if not finding.claim.ours]),
        *_best_scores(results),
        _selection_bias(results),
        _progress(results),
        _seeds(results),
    ]
    return [sentence for sentence in sentences if sentence]


def _verdicts(findings: list[Finding]) -> str:
    """How many of the paper's claims hold, and which do not."""
    counts = {verdict: [f.claim for f in findings if f.verdict == verdict] for verdict in VERDICTS}
    tested = len(findings) - len(counts["not tested"])
    if not tested:
        return "No claim of the paper is tested here (yet)." if findings else ""
    against = counts["does not hold"]
    named = f": {'; '.join(claim.statement for claim in against)}" if against else ""
    return (
        f"Of the paper's {len(findings)} claims listed below, {tested} are tested here: {len(counts['holds'])} hold, "
        f"{len(counts['undecided'])} are undecided, {len(against)} {'does' if len(against) == 1 else 'do'} not hold"
        f"{named}."
    )


def _best_scores(results: Results) -> list[str]:
    """Per model, the average at the last budget of every method that has one."""
    budget, scores = list(results.experiment.training.budgets)[-1], Scores.of(results)
    sentences = []
    for model, spec in results.experiment.models.items():
        benchmarks = model_benchmarks(results, model)
        base = scores.estimate(model, {(BASE, BASE): 1.0}, benchmarks)
        found = {m: scores.estimate(model, {(m, budget): 1.0}, benchmarks) for m in planned(results, model)}
        there = {method: estimate for method, estimate in found.items() if estimate}
        if not there:
            continue
        listed = ", ".join(f"{method_title(results, m)} {_with_interval(e)}" for m, e in there.items())
        start = f", from {number(base.value)} untrained" if base else ""
        over = f"average of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else _only(results, benchmarks)
        sentences.append(f"{spec.title} within {budget} ({over}, {PROTOCOLS[scores.protocol]}, %){start}: {listed}.")
    return sentences


def _only(results: Results, benchmarks: list[str]) -> str:
    return benchmark_title(results, benchmarks[0])


def _with_interval(estimate: Estimate, sign: bool = False) -> str:
    return f"{number(estimate.value, sign=sign)} {interval(estimate.low, estimate.high, sign=sign)}".strip()


def _selection_bias(results: Results) -> str:
    bias = Scores.of(results).selection_bias()
    if bias is None:
        return ""
    side = ""
    if bias.has_interval:
        side = "flatters" if bias.low > 0 else "understates" if bias.high < 0 else "does not visibly shift"
    meaning = f": choosing the best validation {side} the score here" if side else ""
    return (
        "The paper's protocol, the maximum over validations, is on average "
        f"{_with_interval(bias, sign=True)} points from the same checkpoint sampled anew{meaning}."
    )


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


def _seeds(results: Results) -> str:
    started = results.runs[results.runs["status"] != "not started"]
    if started.empty:
        return ""
    counts = started.groupby(["model", "benchmark", "method"])["seed"].nunique()
    if counts.max() == 1:
        return (
            "Every number is from one training seed: intervals cover another draw of questions and samples, not "
            "another seed, so that small differences between methods are no evidence."
        )
    if counts.min() == 1:
        return (
            f"Numbers are from 1 to {counts.max()} seeds; where a comparison involves a method with one seed, its "
            "interval covers another draw of questions and samples, not another seed."
        )
    return f"Numbers are means over {_range(counts.min(), counts.max())} seeds; intervals cover another training seed."


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- about the runs


def remarks(results: Results) -> list[str]:
    """What a reader should know about these particular runs: early ends, mixed settings, uncommitted code."""
    found = []
    early = _early_ends(results)
    if early:
        found.append(f"These runs stopped at their last allowed step, before the last budget: {_first(early)}.")
    stale = [r.path for r, spec in results.specs.items() if _identity(spec) != results.experiment.run(r).identity()]
    if stale:
        found.append(f"Settings of these runs differ from the experiment's: {_first(stale)}.")
    commits = {str(record.get("commit")) for record in results.provenance.values()}
    if len(commits) > 1:
        found.append(f"The runs are of {len(commits)} different commits.")
    if any(commit.endswith("-dirty") for commit in commits):
        found.append("Some runs were made with uncommitted changes (-dirty).")
    disagreeing = _disagreements(results)
    if disagreeing:
        found.append(f"summary.json disagrees with the validation log: {_first(disagreeing)}.")
    inconsistent = _inconsistent(results)
    if inconsistent:
        found.append(f"avg@k is not the mean of its questions' scores: {_first(inconsistent)}.")
    return found


def _identity(spec: dict) -> dict:
    """A recorded specification as :meth:`RunSpec.identity` leaves it; older records have no execution."""
    execution = Execution().model_dump(mode="json") | spec.get("execution", {})
    spec = spec | {"execution": execution}
    for part, ignored in WITHOUT_EFFECT.items():
        spec[part] = {key: value for key, value in spec[part].items() if key not in ignored}
    return spec


def _first(names: list[str], shown: int = 3) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _early_ends(results: Results) -> list[str]:
    last = max(results.experiment.training.budgets.values())
    runs = results.runs[(results.runs["stopped_by"] == "max_steps") & (results.runs["clock"] < last)]
    return [
        f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.steps:.0f} steps, {r.clock:.1f} s)"
        for r in runs.itertuples()
    ]


def _disagreements(results: Results) -> list[str]:
    """Runs whose summary selected another score than the maximum of their log."""
    merged = Scores.of(results).runs.merge(results.budgets, on=[*RUN_KEY, "budget"])
    apart = (merged["in_training"] - 100 * merged["avg_at_k"]).abs() > 1e-6
    apart |= merged["in_training"].isna() != merged["avg_at_k"].isna()
    return [f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.budget})" for r in merged[apart].itertuples()]


def _inconsistent(results: Results) -> list[str]:
    """Scores that their own per-question scores contradict."""
    return [
        f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed}"
        for log in (results.validations, results.evaluations, results.bases)
        for r in log.itertuples()
        if not math.isclose(r.avg_at_k, r.question_scores.mean(), abs_tol=1e-6)
    ]
