"""The sentences of the summary, and remarks on the runs. Every sentence is computed."""

from __future__ import annotations

import math

from srpo.analysis.report.claims import VERDICTS, Finding, missing_runs
from srpo.analysis.results.contrasts import Estimate
from srpo.analysis.results.load import RUN_KEY, Results
from srpo.analysis.results.matrix import BASE, model_benchmarks, planned
from srpo.analysis.results.power import power_sentences, sample_noise
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.tables.grid import interval, number
from srpo.config import NOT_PART_OF_IDENTITY, Execution
from srpo.text import plural


def headlines(results: Results, findings: list[Finding]) -> list[str]:
    """What was run, which claims hold, and how certain this is."""
    sentences = [
        _verdicts([finding for finding in findings if not finding.claim.ours]),
        *_best_scores(results),
        _selection_bias(results),
        _question_bias(results),
        _progress(results),
        _seeds(results),
        clock_sentence(results),
        power_sentence(results),
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
    said = [
        _verb(len(counts["holds"]), "hold", "holds"),
        *([_verb(n, "are suggestive", "is suggestive")] if (n := len(counts["suggestive"])) else []),
        _verb(len(counts["undecided"]), "are undecided", "is undecided"),
        _verb(len(against), "do not hold", "does not hold"),
    ]
    start = "Interim: of" if any(finding.interim for finding in findings) else "Of"
    primary = [finding for finding in findings if finding.claim.primary and finding.verdict != "not tested"]
    holding = sum(finding.verdict == "holds" for finding in primary)
    among = f" Of the {len(primary)} primary claims, {_verb(holding, 'hold', 'holds')}." if len(primary) > 1 else ""
    return (
        f"{start} the paper's {plural(len(findings), 'claim')} listed below, {_verb(tested, 'are', 'is')} tested here: "
        f"{', '.join(said)}{named}.{among}"
    )


def _verb(count: int, several: str, one: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _best_scores(results: Results) -> list[str]:
    """For each model, the average of every method at the last budget."""
    budget, scores = list(results.experiment.training.budget_seconds)[-1], Scores.of(results)
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
    bias = Scores.of(results).bias("selection_bias")
    if bias is None:
        return ""
    side = ""
    if bias.has_interval:
        side = "raises" if bias.low > 0 else "lowers" if bias.high < 0 else "does not visibly change"
    meaning = f": choosing the best validation {side} the score here" if side else ""
    return (
        "The paper's protocol, the maximum over validations, differs on average by "
        f"{_with_interval(bias, sign=True)} points from the same checkpoint, resampled{meaning}."
    )


def _question_bias(results: Results) -> str:
    bias = Scores.of(results).bias("question_bias")
    if bias is None:
        return ""
    return (
        "A checkpoint that is selected on the reported questions has a bias that new samples do not remove: the "
        f"resampled score differs on average by {_with_interval(bias, sign=True)} points from the cross-fitted one, "
        "for which half of the test questions select and the other half measure."
    )


def _progress(results: Results) -> str:
    status = results.runs["status"].value_counts()
    total, bases = len(results.runs), len(results.experiment.bases())
    rest = [f"{status[s]} {s}" for s in ("in progress", "not started") if status.get(s)]
    tail = f" ({', '.join(rest)})" if rest else ""
    return (
        f"{status.get('finished', 0)} of {total} training runs are finished{tail}; "
        f"{results.evaluations[RUN_KEY].drop_duplicates().shape[0]} of them are evaluated, as are "
        f"{len(results.bases)} of {bases} base models."
    )


def _seeds(results: Results) -> str:
    started = results.runs[results.runs["status"] != "not started"]
    if started.empty:
        return ""
    counts = started.groupby(["model", "benchmark", "method"])["seed"].nunique()
    if counts.max() == 1:
        covered = (
            "Every number comes from one training seed: intervals cover other questions and samples, not other "
            "training runs. With one seed no claim holds; a claim can be suggestive."
        )
    elif counts.min() == 1:
        covered = (
            f"Numbers come from 1 to {counts.max()} seeds. If a method has one seed, its interval is widened by the "
            "spread between the seeds of the methods with several, and no claim about it holds; a claim can be "
            "suggestive."
        )
    else:
        covered = (
            f"Numbers are means over {_range(counts.min(), counts.max())} seeds; intervals cover other training runs "
            "and other test questions."
        )
    return f"{covered} All runs of a model start from the same weights: no interval covers another base model."


_CLOCKS = {
    "wall": "measured time: a faster machine takes more steps within it",
    "modelled": "FLOPs at nominal rates: it does not depend on the machine",
    "calibrated": "a number of steps: each counts what it took in the paper (figure 4b), on whatever machine",
}


def clock_sentence(results: Results) -> str:
    """Which training clock counted the budgets, and what that means."""
    kind = results.experiment.training.clock.kind
    return f"The training clock is {kind}. A budget is {_CLOCKS[kind]}."


def interim(results: Results) -> str:
    """How many planned runs are missing; empty when all are finished."""
    missing = missing_runs(results)
    if not missing:
        return ""
    return f"{missing} of {plural(len(results.runs), 'planned run')} {'is' if missing == 1 else 'are'} not finished"


def power_sentence(results: Results) -> str:
    """Which differences the planned seeds can detect, with the measured run SD if there is one."""
    experiment, scores = results.experiment, Scores.of(results)
    budget = list(experiment.training.budget_seconds)[-1]
    titles = {name: method_title(results, name) for name in experiment.methods}
    sentences = []
    for model, spec in experiment.models.items():
        runs = [run for run in experiment.runs() if run.model == model]
        measured = scores.run_spread(model, budget)
        questions = scores.questions(model)
        if not runs or not questions:
            continue
        noise = sample_noise(questions, experiment.evaluation.rollouts)
        sentences += [f"{spec.title}."] * (len(experiment.models) > 1)
        sentences += power_sentences(runs, titles, noise, measured.sd if measured else None)
    return " ".join(sentences)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- about the runs


def remarks(results: Results) -> list[str]:
    """Remarks on these runs: early ends, different settings, uncommitted code."""
    found = []
    if mixed := Scores.of(results).incomparable:
        named = "; ".join(f"{benchmark_title(results, name)} ({what})" for name, what in mixed.items())
        found.append(f"Runs have different test questions and are not compared on: {named}.")
    early = _early_ends(results)
    if early:
        found.append(f"These runs stopped at their last allowed step, before the last budget: {_first(early)}.")
    stale = [r.path for r, spec in results.specs.items() if _identity(spec) != results.experiment.run(r).identity()]
    if stale:
        found.append(f"Settings of these runs differ from the experiment's: {_first(stale)}.")
    commits = {str(record.get("commit")) for record in results.provenance.values()}
    if len(commits) > 1:
        found.append(f"The runs were made with {len(commits)} different commits.")
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
    """A recorded specification reduced as by :meth:`RunSpec.identity`; older records have no execution."""
    execution = Execution().model_dump(mode="json") | spec.get("execution", {})
    spec = spec | {"execution": execution}
    for part, ignored in NOT_PART_OF_IDENTITY.items():
        spec[part] = {key: value for key, value in spec[part].items() if key not in ignored}
    return spec


def _first(names: list[str], shown: int = 3) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _early_ends(results: Results) -> list[str]:
    last = max(results.experiment.training.budget_seconds.values())
    runs = results.runs[(results.runs["stopped_by"] == "max_steps") & (results.runs["clock"] < last)]
    return [
        f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.steps:.0f} steps, {r.clock:.1f} s)"
        for r in runs.itertuples()
    ]


def _disagreements(results: Results) -> list[str]:
    """Runs whose summary has another score than the maximum of their log."""
    merged = Scores.of(results).runs.merge(results.budgets, on=[*RUN_KEY, "budget"])
    apart = (merged["in_training"] - 100 * merged["avg_at_k"]).abs() > 1e-6
    apart |= merged["in_training"].isna() != merged["avg_at_k"].isna()
    return [f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.budget})" for r in merged[apart].itertuples()]


def _inconsistent(results: Results) -> list[str]:
    """Runs whose avg@k is not the mean of the per-question scores."""
    return [
        f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed}"
        for log in (results.validations, results.evaluations, results.bases)
        for r in log.itertuples()
        if not math.isclose(r.avg_at_k, r.question_scores.mean(), abs_tol=1e-6)
    ]
