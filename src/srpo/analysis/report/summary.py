"""What the scores and intervals of a report cover, and remarks on its runs. Every sentence is computed."""

import math
from collections.abc import Sequence
from typing import Any

from srpo.analysis.figures.registry import FIGURES, figure_data
from srpo.analysis.report.power_text import assumed_sentences, measured_sentences
from srpo.analysis.results.claims import load_claims
from srpo.analysis.results.load import RUN_KEY, Results, records
from srpo.analysis.results.matrix import BASE, is_paired, repeated_runs
from srpo.analysis.results.power import sample_noise
from srpo.analysis.results.registered import registration_of
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import benchmark_title, method_title, run_title
from srpo.analysis.results.verdicts import UNTESTED, Finding, missing_runs
from srpo.experiment.config import BUDGET_IS, changed, filled_in, listed
from srpo.inputs.mistakes import hint, nearest
from srpo.repository import method_files
from srpo.text import joined, plural, span


def registered(results: Results) -> list[str]:
    """When the analysis of this experiment was registered, and what departs from it."""
    registration = registration_of(results.experiment)
    if registration is None:
        return []
    said = f"Claims and analysis were registered on {registration.date}, before the first run."
    departures = registration.departures(results.experiment)
    return [said] + [f"Other than registered: {'; '.join(departures)}."] * bool(departures)


def _checks(findings: list[Finding]) -> str:
    """One line for what any method that learns fulfils."""
    checks = [finding for finding in findings if finding.claim.check]
    tested = [finding for finding in checks if finding.verdict not in (*UNTESTED, "one seed")]
    failed = [finding.claim.statement for finding in tested if finding.verdict != "holds"]
    if not tested:
        return ""
    named = f"; not shown: {'; '.join(failed)}" if failed else ""
    passed = len(tested) - len(failed)
    verb = "passes" if passed == 1 else "pass"
    return f"Of {plural(len(tested), 'check')} that any learning method fulfils, {passed} {verb}{named}."


def background(results: Results, findings: list[Finding]) -> list[str]:
    """The checks, how far the experiment is, and what its scores and intervals cover."""
    clock = results.experiment.training.clock.kind
    sentences = [
        _checks(findings),
        _progress(results),
        _seeds(results),
        f"The training clock is {clock}. A budget is {BUDGET_IS[clock]}.",
        power_sentence(results, findings),
    ]
    return [sentence for sentence in sentences if sentence]


def _progress(results: Results) -> str:
    status = results.runs["status"].value_counts()
    total, bases = len(results.runs), len(results.experiment.base_evaluations())
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
            "training runs. With one seed no claim is decided."
        )
    elif counts.min() == 1:
        covered = (
            f"Numbers come from 1 to {counts.max()} seeds. If a method has one seed, its interval is widened by the "
            "spread between the seeds of the methods with several, and no claim about it is decided."
        )
    else:
        covered = (
            f"Numbers are means over {span(counts.min(), counts.max())} seeds; intervals cover other training runs "
            "and other test questions."
        )
    if counts.max() > 1 and all(is_paired(results, model) for model in results.experiment.models):
        return f"{covered} Each seed starts all methods from another base model, so intervals also cover base models."
    if counts.max() == 1:
        return f"{covered} No interval covers another base model."
    return f"{covered} All runs of a model start from the same weights: no interval covers another base model."


def interim(results: Results) -> str:
    """How many planned runs are missing; empty when all are finished."""
    missing = missing_runs(results)
    if not missing:
        return ""
    return f"{missing} of {plural(len(results.runs), 'planned run')} {'is' if missing == 1 else 'are'} not finished"


def power_sentence(results: Results, findings: Sequence[Finding] = ()) -> str:
    """Which differences the seeds can detect: of the measured primary claims, or if nothing but runs varied."""
    experiment, scores = results.experiment, Scores.of(results)
    budget = list(experiment.training.budget_seconds)[-1]
    titles = {name: method_title(results, name) for name in experiment.methods}
    sentences = []
    for model, spec in experiment.models.items():
        primary = [o for f in findings if f.claim.primary for o in f.outcomes if o.model == model]
        known = [o.estimate for o in primary if o.estimate is not None and o.estimate.variance is not None]
        runs = [run for run in experiment.runs() if run.model == model]
        measured = scores.run_spread(model, budget)
        questions = scores.questions(model)
        if not runs or not questions:
            continue
        noise = sample_noise(questions, experiment.evaluation.rollouts)
        sentences += [f"{spec.title}."] * (len(experiment.models) > 1)
        assumed = assumed_sentences(runs, titles, noise, measured.sd if measured else None, is_paired(results, model))
        sentences += measured_sentences(known) or assumed
    return " ".join(sentences)


# ---------------------------------------------------------------- about the runs


def misspelt(results: Results) -> list[str]:
    """Methods and metrics of claims and figures that are like what there is, but are not there: they would be absent.

    A method is one of the experiment or of ``configs/methods``; a metric is missing if the runs that should log it do
    not.
    """
    methods = {BASE, *results.experiment.methods, *method_files()}
    needed = {name: FIGURES[name].metrics(results) for name in figure_data(results)}
    metrics = [(f"figure {name}", *each) for name, metrics in needed.items() for each in metrics.items()]
    found = []
    for claim in load_claims():
        terms = (*claim.quantity.terms, *(claim.given.terms if claim.given else ()))
        named = dict.fromkeys(method for _, method, _ in terms)
        found += [(f"claim {claim.id}: method {name}", nearest(name, methods)) for name in named if name not in methods]
        if claim.quantity.metric:
            metrics.append((f"claim {claim.id}", claim.quantity.metric, [*named]))
    for what, metric, of in metrics:
        steps = results.steps[results.steps["method"].isin(of)]
        logged = steps.columns[steps.notna().any()]
        if of and {*of} == {*steps["method"]} and metric not in logged:
            found.append((f"{what}: metric {metric}", nearest(metric, logged)))
    return [f"{what}: unknown{hint(likely)}" for what, likely in found if likely]


_EARLY_ENDS = {
    "max_steps": "These runs stopped at their last allowed step, before the last budget",
    "alarm": "An alarm ended these runs before the last budget (training.stop_on). Their scores are those until then",
}


def remarks(results: Results) -> list[str]:
    """Remarks on these runs: misspelt names, early ends, different settings, uncommitted code."""
    found = misspelt(results)
    if mixed := Scores.of(results).incomparable:
        named = "; ".join(f"{benchmark_title(results, name)} ({what})" for name, what in mixed.items())
        found.append(f"Runs have different test questions and are not compared on: {named}.")
    for names in results.experiment.same_tests:
        titles = joined([benchmark_title(results, name) for name in names])
        found.append(f"The same test questions: {titles}. Their average counts each again; its interval is too narrow.")
    runs = {
        "These runs have the same logs as another seed and count as one run with it": [
            f"{run_title(results, *key)} (as seed {seed})" for key, seed in repeated_runs(results).items()
        ],
        **{what: _early_ends(results, stopped_by) for stopped_by, what in _EARLY_ENDS.items()},
        "Settings of these runs differ from the experiment's, so snakemake trains them again": [
            f"{run_title(results, *run.model_dump().values())} ({listed(differs)})"
            for run, spec in results.specs.items()
            if (differs := changed(filled_in(spec), results.experiment.run(run).model_dump(mode="json")))
        ],
        "summary.json disagrees with the validation log": _disagreements(results),
        "avg@k is not the mean of its questions' scores": _inconsistent(results),
    }
    found += [f"{what}: {_first(names)}." for what, names in runs.items() if names]
    if other := _other_samples(results):
        found.append(
            f"evaluation.rollouts = {results.experiment.evaluation.rollouts}, but these have other numbers: "
            f"{_first(other)}. Delete each evaluation.json: snakemake makes it again."
        )
    commits = {str(record.get("commit")) for record in results.provenance.values()}
    if len(commits) > 1:
        found.append(f"The runs were made with {len(commits)} different commits.")
    if any(commit.endswith("-dirty") for commit in commits):
        found.append("Some runs were made with uncommitted changes (-dirty).")
    return found


def _first(names: list[str], shown: int = 3) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _place(results: Results, run: dict[str, Any]) -> str:
    return run_title(results, *(run[key] for key in RUN_KEY))


def _early_ends(results: Results, stopped_by: str) -> list[str]:
    last = max(results.experiment.training.budget_seconds.values())
    runs = results.runs[(results.runs["stopped_by"] == stopped_by) & (results.runs["clock"] < last)]
    return [f"{_place(results, r)} ({r['steps']:.0f} steps, {r['clock']:.1f} s)" for r in records(runs)]


def _other_samples(results: Results) -> list[str]:
    """Evaluations that do not have as many samples of a question as the experiment says."""
    wanted = results.experiment.evaluation.rollouts
    rows = (*records(results.evaluations), *records(results.bases))
    return [*dict.fromkeys(f"{_place(results, r)} ({r['k']:.0f})" for r in rows if r["k"] != wanted)]


def _disagreements(results: Results) -> list[str]:
    """Runs whose summary has a score that differs from the maximum of their log."""
    merged = Scores.of(results).runs.merge(results.budgets, on=[*RUN_KEY, "budget"])
    apart = (merged["in_training"] - 100 * merged["avg_at_k"]).abs() > 1e-6
    apart |= merged["in_training"].isna() != merged["avg_at_k"].isna()
    return [f"{_place(results, r)} ({results.experiment.budget_title(r['budget'])})" for r in records(merged[apart])]


def _inconsistent(results: Results) -> list[str]:
    """Runs whose avg@k is not the mean of the per-question scores."""
    return [
        _place(results, r)
        for log in (results.validations, results.evaluations, results.bases)
        for r in records(log)
        if not math.isclose(r["avg_at_k"], r["question_scores"].mean(), abs_tol=1e-6)
    ]
