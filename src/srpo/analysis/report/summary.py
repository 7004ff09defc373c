"""The sentences of the summary, and remarks on the runs. Every sentence is computed."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from srpo.analysis.report.power_text import assumed_sentences, measured_sentences
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.load import RUN_KEY, Results, records
from srpo.analysis.results.matrix import is_paired, repeated_runs
from srpo.analysis.results.power import sample_noise
from srpo.analysis.results.registered import registration_of
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import benchmark_title, is_toy, method_title
from srpo.analysis.results.verdicts import UNTESTED, VERDICTS, Finding, Verdict, missing_runs
from srpo.analysis.tables.grid import interval, number
from srpo.experiment.config import BUDGET_IS, filled_in, identity_of
from srpo.layout import RUN_PATH
from srpo.text import joined, plural, span

LONGEST = 240
"""Characters of a sentence: two lines of the page on a wide screen."""

_HOUR = 3600.0


def what_was_run(results: Results) -> str:
    """Models, benchmarks, methods, seeds and clock, in one line."""
    experiment = results.experiment
    seeds = list(_planned_seeds(results).values())
    methods = dict.fromkeys(method_title(results, run.method) for run in experiment.runs())
    seconds, clock = max(experiment.training.budget_seconds.values()), experiment.training.clock.kind
    length = f"{seconds / _HOUR:g} h" if seconds > 2 * _HOUR else f"{seconds:g} s"
    parts = [
        f"{_models(results)} on {_benchmarks(results)}",
        _few(list(methods), "method") if methods else "",
        f"{span(min(seeds), max(seeds))} {'seed' if max(seeds) == 1 else 'seeds'}" if seeds else "",
        f"{length} of {clock} clock",
    ]
    return " · ".join(filter(None, parts))


def _models(results: Results) -> str:
    models = results.experiment.models
    if not is_toy(results):
        return _few([model.title for model in models.values()], "model")
    sizes = sorted({base["parameters"] for base in results.models.values() if base.get("parameters")})
    said = f" of {' or '.join(f'{size / 1e6:.2f}' for size in sizes)} M parameters" if sizes else ""
    return f"{'A toy model' if len(models) == 1 else f'{len(models)} toy models'}{said}"


def _benchmarks(results: Results) -> str:
    benchmarks = [results.experiment.benchmarks[name] for name in _trained_on(results)]
    if all(benchmark.kind == "miniature" for benchmark in benchmarks):
        return f"{plural(len(benchmarks), 'benchmark')} of invented questions"
    return _few([benchmark.title for benchmark in benchmarks], "benchmark")


def _trained_on(results: Results) -> list[str]:
    """The benchmarks with training runs, or all of an experiment without any."""
    return list(dict.fromkeys(run.benchmark for run in results.experiment.runs())) or list(
        results.experiment.benchmarks
    )


def _few(titles: list[str], noun: str) -> str:
    """The titles, or their number if they are many."""
    return joined(titles) if len(", ".join(titles)) <= 50 else plural(len(titles), noun)


def _planned_seeds(results: Results) -> Counter[tuple[str, str, str]]:
    return Counter((run.model, run.benchmark, run.method) for run in results.experiment.runs())


# ---------------------------------------------------------------- the answer


def answers(results: Results, findings: list[Finding]) -> list[str]:
    """Which primary claims hold, what does not, the answers to our questions if any is tested, and for what this is."""
    papers = [finding for finding in findings if not (finding.claim.ours or finding.claim.check)]
    reached = [finding for finding in papers if finding.verdict != "not tested"]
    primary = [finding for finding in reached if finding.claim.primary]
    questions = [finding for finding in findings if finding.asked]
    if not primary:
        return ["No primary claim is tested here (yet).", *_of_questions(questions)]
    others = [finding for finding in reached if not finding.claim.primary]
    first = [_holding(primary, plural(len(primary), "primary claim")), _rest(primary, others)]
    return [*first, *_of_questions(questions), _target(results), *registered(results)]


def registered(results: Results) -> list[str]:
    """When the analysis of this experiment was registered, the checksum of its file, and what departs from it."""
    registration = registration_of(results.experiment)
    if registration is None:
        return []
    content = registration.content
    claims = plural(len(content.claims), "primary claim")
    said = (
        f"The {claims}, the score that decides, budgets, clock and base models were registered on {content.date}, "
        f"before the first run: configs/registered.yaml, analysis of {content.commit[:12]}, "
        f"SHA-256 {registration.sha256}."
    )
    departures = content.departures(results.experiment)
    return [said] + ([f"Other than registered: {'; '.join(departures)}."] if departures else [])


def _of_questions(questions: list[Finding]) -> list[str]:
    """Which of our questions hold, and what the others do; nothing without one that is tested."""
    if not questions:
        return []
    rest = "; ".join(_without(questions))
    said = _holding(questions, f"our {plural(len(questions), 'question')}")
    return [said, f"Of the others {rest}."] if rest else [said]


def _holding(family: list[Finding], counted: str) -> str:
    holding = [finding.claim.statement for finding in family if finding.verdict == "holds"]
    start = "Interim: of" if any(finding.interim for finding in family) else "Of"
    count = _verb(len(holding), "hold", "holds")
    said = f"{start} {counted}, {count} here"
    return f"{said}: {_listed(holding, LONGEST - len(said))}." if holding else f"{said}."


def _without(family: list[Finding]) -> list[str]:
    """The verdicts other than *holds*, with their number; claims that do not hold are named."""
    parts = []
    for verdict in (verdict for verdict in VERDICTS if verdict != "holds"):
        found = [finding.claim.statement for finding in family if finding.verdict == verdict]
        named = f" ({_listed(found, LONGEST // 2)})" if verdict == "does not hold" else ""
        parts += [f"{_counted(verdict, len(found))}{named}"] if found else []
    return parts


def _rest(primary: list[Finding], others: list[Finding]) -> str:
    """The other verdicts on the primary claims, and the number of the other claims with the decisive ones."""
    parts = _without(primary)
    against = [finding.claim.statement for finding in others if finding.verdict == "does not hold"]
    if others:
        counts = Counter(finding.verdict for finding in others)
        # last what the names that follow are about
        shown: list[Verdict] = [verdict for verdict in VERDICTS if counts[verdict] and verdict != "does not hold"]
        shown.append("does not hold")
        said = joined([_counted(verdict, counts[verdict]) for verdict in shown])
        parts.append(f"of {plural(len(others), 'other claim')} {said}")
    if not parts:
        return "No other claim of the paper is tested here."
    said = "; ".join(parts)
    named = f": {_listed(against, LONGEST - len(said))}" if against else ""
    return f"{said[:1].upper()}{said[1:]}{named}."


def _counted(verdict: str, count: int) -> str:
    """``2 do not hold``, ``1 has one seed``, ``3 are undecided``."""
    verbs = {"holds": ("hold", "holds"), "does not hold": ("do not hold", "does not hold")}
    verbs["one seed"] = ("have one seed", "has one seed")
    return _verb(count, *verbs.get(verdict, (f"are {verdict}", f"is {verdict}")))


def _target(results: Results) -> str:
    """What the verdicts are about, and what intervals cover."""
    models, benchmarks = list(results.experiment.models), _trained_on(results)
    base_models = {model: len(results.experiment.base_models(model)) for model in models}
    drawn = min(base_models.values()) > 1
    if len(models) == 1:
        count = f"{base_models[models[0]]} base models" if drawn else "one base model"
        about = f"{count} ({results.experiment.models[models[0]].title})"
    else:
        about = f"each of {len(models)} {'models, with several base models each,' if drawn else 'base models'}"
    several = len(benchmarks) > 1
    where = f"the average of {len(benchmarks)} benchmarks" if several else benchmark_title(results, benchmarks[0])
    if drawn:
        covered = "other base models, training runs and test questions"
    elif max(_planned_seeds(results).values()) > 1:
        covered = "other training runs and test questions, not other base models"
    else:
        covered = "other test questions, not other runs or other base models"
    return f"This is about {about} and {where}; intervals cover {covered}."


def _checks(findings: list[Finding]) -> str:
    """One line for what any method that learns fulfils."""
    checks = [finding for finding in findings if finding.claim.check]
    tested = [finding for finding in checks if finding.verdict not in (*UNTESTED, "one seed")]
    failed = [finding.claim.statement for finding in tested if finding.verdict != "holds"]
    if not tested:
        return ""
    named = f"; not shown: {'; '.join(failed)}" if failed else ""
    passed = _verb(len(tested) - len(failed), "pass", "passes")
    return f"Of {plural(len(tested), 'check')} that any learning method fulfils, {passed}{named}."


def _listed(statements: list[str], longest: int) -> str:
    """As many statements as fit, and the number of the others."""
    shown = len(statements)
    while shown > 1 and len("; ".join(statements[:shown])) > longest:
        shown -= 1
    rest = len(statements) - shown
    return "; ".join(statements[:shown]) + (f"; and {rest} more" if rest else "")


def _verb(count: int, several: str, one: str) -> str:
    return f"{count} {one if count == 1 else several}"


def background(results: Results, findings: list[Finding]) -> list[str]:
    """The checks, how far the experiment is, and what its scores and intervals cover."""
    sentences = [
        _checks(findings),
        _progress(results),
        _seeds(results),
        clock_sentence(results),
        _selection_bias(results),
        _question_bias(results),
        power_sentence(results, findings),
    ]
    return [sentence for sentence in sentences if sentence]


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
        "A checkpoint that is selected on the reported questions has a bias that new samples do not remove. The "
        f"resampled score differs on average by {_with_interval(bias, sign=True)} points from the cross-fitted one, "
        "for which half of the test questions select and the other half measure."
    )


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


def clock_sentence(results: Results) -> str:
    """Which training clock counted the budgets, and what that means."""
    kind = results.experiment.training.clock.kind
    return f"The training clock is {kind}. A budget is {BUDGET_IS[kind]}."


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


def remarks(results: Results) -> list[str]:
    """Remarks on these runs: early ends, different settings, uncommitted code."""
    found = []
    if mixed := Scores.of(results).incomparable:
        named = "; ".join(f"{benchmark_title(results, name)} ({what})" for name, what in mixed.items())
        found.append(f"Runs have different test questions and are not compared on: {named}.")
    if repeated := repeated_runs(results):
        keys = (dict(zip(RUN_KEY, key, strict=True)) for key in repeated)
        same = [f"{_place(key)} (as seed {seed})" for key, seed in zip(keys, repeated.values(), strict=True)]
        found.append(f"These runs have the same logs as another seed and count as one run with it: {_first(same)}.")
    if early := _early_ends(results, "max_steps"):
        found.append(f"These runs stopped at their last allowed step, before the last budget: {_first(early)}.")
    if early := _early_ends(results, "alarm"):
        found.append(
            "These runs ended at an alarm of the watch for falls (training.stop_on), before the last budget. Their "
            f"scores are those until then: {_first(early)}."
        )
    now = {run: results.experiment.run(run).model_dump(mode="json") for run in results.specs}
    stale = [run.path for run, spec in results.specs.items() if identity_of(filled_in(spec)) != identity_of(now[run])]
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


def _first(names: list[str], shown: int = 3) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _place(run: dict[str, Any]) -> str:
    """The place of a frame's run below ``runs``."""
    return RUN_PATH.format(**run)


def _early_ends(results: Results, stopped_by: str) -> list[str]:
    last = max(results.experiment.training.budget_seconds.values())
    runs = results.runs[(results.runs["stopped_by"] == stopped_by) & (results.runs["clock"] < last)]
    return [f"{_place(r)} ({r['steps']:.0f} steps, {r['clock']:.1f} s)" for r in records(runs)]


def _disagreements(results: Results) -> list[str]:
    """Runs whose summary has another score than the maximum of their log."""
    merged = Scores.of(results).runs.merge(results.budgets, on=[*RUN_KEY, "budget"])
    apart = (merged["in_training"] - 100 * merged["avg_at_k"]).abs() > 1e-6
    apart |= merged["in_training"].isna() != merged["avg_at_k"].isna()
    return [f"{_place(r)} ({r['budget']})" for r in records(merged[apart])]


def _inconsistent(results: Results) -> list[str]:
    """Runs whose avg@k is not the mean of the per-question scores."""
    return [
        _place(r)
        for log in (results.validations, results.evaluations, results.bases)
        for r in records(log)
        if not math.isclose(r["avg_at_k"], r["question_scores"].mean(), abs_tol=1e-6)
    ]
