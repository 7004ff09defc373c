"""The first screen: what was found, in sentences with numbers, and a card of the run. Every sentence is computed."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from srpo.analysis.report.summary import registered
from srpo.analysis.results.clocks import clock_frame
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.load import Results, records
from srpo.analysis.results.matrix import AVERAGE, BASE, main_methods, model_benchmarks, planned
from srpo.analysis.results.registered import registration_of
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.results.verdicts import UNTESTED, VERDICTS, Finding, Outcome
from srpo.analysis.tables.grid import interval, number
from srpo.experiment.compose import load_experiment
from srpo.files import read_yaml
from srpo.inputs.errors import SrpoError
from srpo.layout import Layout
from srpo.repository import CONFIGS, ROOT
from srpo.text import duration, joined, plural, span

LONGEST = 240
"""Characters of a sentence: two lines of the page on a wide screen."""

PUBLISHED = ROOT / "published" / "registered"
"""The result that was registered before its runs."""

_RIVALS = ("grpo", "sdpo")
_LISTED = 6
"""Methods whose scores are listed in a sentence."""
_HOUR = 3600.0


# ---------------------------------------------------------------- what was found


def answers(results: Results, findings: Sequence[Finding]) -> list[str]:
    """Scores, SRPO's lead, what is decided; the answers to our questions, and what was registered, if there is any."""
    several = len(results.experiment.models) > 1
    found: list[str] = []
    for model, spec in results.experiment.models.items():
        said = [_scores(results, model), _leads(results, findings, model)]
        found += [f"{spec.title}: {sentence}" if several else sentence for sentence in said if sentence]
    questions = [finding for finding in findings if finding.asked]
    asked = [_of_questions(questions)] if questions else []
    return [*found, _decided(findings), *_published(results), *asked, *registered(results), *_other_clocks(results)]


def _other_clocks(results: Results) -> list[str]:
    """Differences under the clocks that were registered beside the one that decides, if there are any."""
    if (registration := registration_of(results.experiment)) is None:
        return []
    named, parts = registration.alternatives, []
    frame = pd.concat([clock_frame(results), clock_frame(results, measured=True)])
    frame = frame[frame["clock"].isin(named)].dropna(subset="difference")
    for pair, rows in frame.groupby(["method", "other"], sort=False):
        low, high = (number(end, sign=True) for end in (rows["difference"].min(), rows["difference"].max()))
        unclear = [row["clock"] for row in records(rows) if row["difference_low"] <= 0 <= row["difference_high"]]
        around = f" (interval around 0: {joined(unclear)})" if unclear else ""
        names = " − ".join(method_title(results, str(method)) for method in pair)
        parts.append(f"{names} is {span(low, high)} points{around}")
    said = f"Under the other registered clocks ({joined(named)}), which decide nothing, by the last three validations"
    return [f"{said} {joined(parts)}."] if parts else []


def _scores(results: Results, model: str) -> str:
    """What share of the questions each method has right at its best checkpoint and at the end; the untrained model."""
    scores, plan = Scores.of(results), planned(results, model)
    *_, budget = results.experiment.training.budget_seconds
    methods = [method for method in main_methods(results) if method in plan]
    compared = [method for method in methods if method in (*_RIVALS, "srpo")] or methods
    benchmarks = model_benchmarks(results, model, compared)
    ends: dict[str, float] = {}
    for method in methods:
        if {*benchmarks} <= {*plan[method]} and (end := scores.estimate(model, {(method, budget): 1.0}, benchmarks)):
            ends[method] = end.value
    if not ends:
        return ""
    listed = list(ends) if len(ends) <= _LISTED else [method for method in compared if method in ends]
    first, *rest = listed
    shares = [f"{method_title(results, method)} {ends[method]:.1f} %" for method in rest]
    said = joined([f"{method_title(results, first)} has {ends[first]:.1f} % right", *shares])
    others = [value for method, value in ends.items() if method not in listed]
    if others:
        said += f"; {len(others)} other methods have {span(f'{min(others):.1f}', f'{max(others):.1f}')} %"
    base = scores.estimate(model, {(BASE, BASE): 1.0}, benchmarks)
    untrained = f" (untrained {base.value:.1f} %)" if base else ""
    only = benchmark_title(results, benchmarks[0])
    over = f"on average over {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else f"on {only.lower()}"
    chosen = ", chosen on other questions," if scores.deciding == "cross_fitted" else ","
    return f"At its best checkpoint{chosen} {said}{untrained}, {over}.{_at_the_end(results, model, listed, benchmarks)}"


def _at_the_end(results: Results, model: str, methods: Sequence[str], benchmarks: Sequence[str]) -> str:
    """The means of the last validations, in the order of ``methods``; empty if a run has none."""
    scores, (*_, budget) = Scores.of(results), results.experiment.training.budget_seconds
    ends = [scores.estimate(model, {(method, budget): 1.0}, benchmarks, "end") for method in methods]
    said = [f"{end.value:.1f}" for end in ends if end is not None]
    return f" Mean of their last three validations: {joined(said)} %." if len(said) == len(methods) else ""


def _leads(results: Results, findings: Sequence[Finding], model: str) -> str:
    """How far SRPO's best checkpoint is above its rivals'; without SRPO or them, the last method above the first."""
    plan = [method for method in main_methods(results) if method in planned(results, model)]
    best = "srpo" if "srpo" in plan else plan[-1] if plan else ""
    others = [method for method in plan if method != best]
    rivals = [method for method in others if method in _RIVALS] if best == "srpo" else []
    found = {
        rival: outcome
        for rival in rivals or others[:1]
        if (outcome := _outcome(findings, model, best, rival) or _unclaimed(results, model, best, rival)) is not None
    }
    if not found:
        return ""
    parts: list[str] = []
    for rival, outcome in found.items():
        assert outcome.estimate is not None  # others are left out
        value = outcome.estimate.value
        far = f"{abs(value):.1f}{' points' if not parts else ''} {_side(value)}"
        parts.append(f"{far} {method_title(results, rival)}{_support(results, outcome, bool(parts))}")
    return f"{method_title(results, best)}'s best is {joined(parts)}{_said(results, model, list(found.values()))}."


def _unclaimed(results: Results, model: str, best: str, rival: str) -> Outcome | None:
    """A difference after the last budget that no claim tests; None before both methods have it."""
    *_, budget = results.experiment.training.budget_seconds
    terms = {(best, budget): 1.0, (rival, budget): -1.0}
    benchmarks, scores = model_benchmarks(results, model, [best, rival]), Scores.of(results)
    if not benchmarks or (estimate := scores.estimate(model, terms, benchmarks)) is None:
        return None
    each = {name: found for name in benchmarks if (found := scores.estimate(model, terms, [name])) is not None}
    several = estimate.several_seeds
    return Outcome(model, "not tested", estimate, benchmarks=len(each), on_each=each, several_seeds=several)


def _side(value: float) -> str:
    return "below" if value < 0 else "above"


def _shown_side(estimate: Estimate) -> str:
    """The side of 0 on which an interval is; empty if 0 is in it, or if there is none over runs."""
    if not estimate.several_seeds:
        return ""
    return "above" if estimate.low > 0 else "below" if estimate.high < 0 else ""


def _support(results: Results, outcome: Outcome, again: bool) -> str:
    """The interval of a lead, on how many benchmarks its sign is shown (one is named), where the other one is, and
    whether it is shown for new benchmarks. One run has no interval over runs: then the signs alone count.
    """
    estimate = outcome.estimate
    assert estimate is not None
    ends = f" {interval(estimate.low, estimate.high)}" if estimate.covers_runs else ""
    if outcome.benchmarks < 2:
        return ends
    several = outcome.several_seeds
    sides = {name: _shown_side(each) if several else _side(each.value) for name, each in outcome.on_each.items()}
    same, other = (
        [benchmark_title(results, name).lower() for name, side in sides.items() if side == _side(value)]
        for value in (estimate.value, -estimate.value)
    )
    alone = several and len(same) == 1
    share = f"{same[0]} alone" if alone else f"{len(same)} of {outcome.benchmarks}"
    if not again:
        share = f"{'shown' if several else _side(estimate.value)} on {share}{' benchmarks' * (not alone)}"
    opposite = f"; {_side(-estimate.value)} on {joined(other)}" if other else ""
    beyond = outcome.over_benchmarks if several else None
    general = "; not shown for new benchmarks" * (beyond is not None and beyond.low <= 0 <= beyond.high)
    return f"{ends} ({share}{opposite}{general})"


def _said(results: Results, model: str, outcomes: Sequence[Outcome]) -> str:
    """What the verdicts on one or two leads are."""
    if not all(outcome.several_seeds for outcome in outcomes):
        units = {outcome.estimate.meaning for outcome in outcomes if outcome.estimate and outcome.estimate.has_interval}
        return ": one run each, no interval" if units == {"question"} else ""
    verdicts = [_verdict(outcome) for outcome in outcomes]
    count = len(results.experiment.base_models(model))
    runs = f"{count} base models" if count > 1 else f"{max(o.estimate.count for o in outcomes if o.estimate)} runs each"
    if len({*verdicts}) > 1:
        return f": with {runs} the first is {verdicts[0]}, the second is {verdicts[1]}"
    if len(verdicts) == 1:
        return f": with {runs} this is {verdicts[0]}"
    return f": with {runs} {'neither is decided' if verdicts[0] == 'undecided' else f'both are {verdicts[0]}'}"


def _verdict(outcome: Outcome) -> str:
    """What is known of a lead as it is said: a lead below 0 is shown if the claim of one above 0 is refuted."""
    estimate = outcome.estimate
    assert estimate is not None
    if outcome.verdict in ("holds", "does not hold"):
        return "shown" if (outcome.verdict == "holds") is (estimate.value > 0) else "refuted"
    if estimate.low > 0 or estimate.high < 0:
        return {"undecided": "undecided after correction", "suggestive": "suggestive, not shown after correction"}.get(
            outcome.verdict, outcome.verdict
        )
    return outcome.verdict


def _outcome(findings: Sequence[Finding], model: str, best: str, rival: str) -> Outcome | None:
    """The outcome of the claim that ``best`` ends above ``rival``; None if there is no number."""
    terms = [(1.0, best, "last"), (-1.0, rival, "last")]
    claims = (finding.claim for finding in findings)
    scores = (c for c in claims if c.quantity.kind == "score" and c.quantity.score in (None, "cross_fitted"))
    claim = next((claim for claim in scores if claim.quantity.terms == terms), None)
    of_model = [(f.claim, o) for f in findings for o in f.outcomes if o.model == model]
    statements = {claim.statement, *(o.same_as for c, o in of_model if c is claim)} if claim else set()
    return next((o for c, o in of_model if c.statement in statements and o.estimate is not None), None)


def _published(results: Results, folder: Path = PUBLISHED) -> list[str]:
    """Each lead here and in the published result; nothing if that is of another model, or this one."""
    files = [folder / "differences.csv", folder / "provenance.yaml"]
    if results.experiment.name == folder.name or not all(file.is_file() for file in files):
        return []
    frame = pd.read_csv(files[0])
    last = frame[(frame["budget"] == frame["budget"].iloc[-1]) & frame["model"].isin(results.experiment.models)]
    rows = {(row["benchmark"], row["method"]): row for row in records(last)}
    own, rivals = _trained_on(results), [rival for rival in _RIVALS if rival in results.experiment.methods]
    all_of_them = {AVERAGE, *own} >= {*last["benchmark"]}
    parts: list[str] = []
    for benchmark in [AVERAGE] if all_of_them else own:
        ends = [rows[benchmark, rival] for rival in rivals if (benchmark, rival) in rows]
        said = [
            f"{_lead(results, row['model'], row['method'], own if benchmark == AVERAGE else [benchmark])}"
            f"({number(row['difference'], sign=True)} "
            f"{interval(row['difference_low'], row['difference_high'], sign=True)}) "
            f"over {method_title(results, row['method'])}"
            for row in ends
        ]
        where = "on average" if benchmark == AVERAGE else f"on {benchmark_title(results, benchmark).lower()}"
        parts += [f"{where} {joined(said)}"] if said else []
    runs = read_yaml(files[1])["runs"]
    start = f"SRPO's lead in points here, and in brackets that of our published experiment ({folder.name}, {runs} runs)"
    return [f"{start}: {'; '.join(parts)}."] if parts else []


def _lead(results: Results, model: str, rival: str, benchmarks: Sequence[str]) -> str:
    """SRPO minus ``rival`` after the last budget, with a blank behind it; empty before the runs have ended."""
    *_, budget = results.experiment.training.budget_seconds
    estimate = Scores.of(results).estimate(model, {("srpo", budget): 1.0, (rival, budget): -1.0}, benchmarks)
    return f"{number(estimate.value, sign=True)} " if estimate else ""


def _decided(findings: Sequence[Finding]) -> str:
    """How many of the primary claims, and of the paper's others, have which verdict."""
    papers = [f for f in findings if not (f.claim.ours or f.claim.check) and f.verdict != "not tested"]
    primary = [finding for finding in papers if finding.claim.primary]
    others = [finding for finding in papers if not finding.claim.primary]
    if not primary:
        outcomes = [o for f in findings if f.claim.kind == "primary" and not f.same for o in f.outcomes]
        reasons = listed(list(dict.fromkeys(outcome.reason for outcome in outcomes)), LONGEST)
        return f"No primary claim is tested here: {reasons}."
    verdicts = {finding.verdict for finding in primary}
    if "one seed" in verdicts and verdicts <= {"one seed", *UNTESTED}:
        return f"One run each: nothing is decided, of {plural(len(primary), 'primary claim')}."
    start = "Interim: of" if any(finding.interim for finding in primary) else "Of"
    models = len(primary[0].outcomes)
    about = f", each about all {models} models," if models > 1 else ""
    said = f"{start} {plural(len(primary), 'primary claim')}{about} {_counts(primary, named=True)}"
    return f"{said}; of {plural(len(others), 'other')} {_counts(others)}." if others else f"{said}."


def _counts(family: Sequence[Finding], named: bool = False) -> str:
    """``3 hold, 1 is suggestive and 1 does not hold``; with ``named`` a single one that does not hold by its name."""
    counts = Counter(finding.verdict for finding in family)
    said = []
    for verdict in VERDICTS:
        of_it = [finding.claim.statement for finding in family if finding.verdict == verdict]
        if of_it:
            name = f" ({of_it[0]})" if named and verdict == "does not hold" and len(of_it) == 1 else ""
            said.append(_counted(verdict, len(of_it)) + name)
    return joined([*([] if counts["holds"] else ["none holds"]), *said])


def _counted(verdict: str, count: int) -> str:
    """``2 do not hold``, ``1 has one seed``, ``3 are undecided``."""
    verbs = {"holds": ("hold", "holds"), "does not hold": ("do not hold", "does not hold")}
    verbs["one seed"] = ("have one seed", "has one seed")
    several, one = verbs.get(verdict, (f"are {verdict}", f"is {verdict}"))
    return f"{count} {one if count == 1 else several}"


def _of_questions(questions: Sequence[Finding]) -> str:
    """Which of our questions hold, by name, and what the others do."""
    if len(questions) == 1:
        return f"Our question: {questions[0].claim.statement}; {questions[0].verdict}."
    holding = [finding.claim.statement for finding in questions if finding.verdict == "holds"]
    start = "Interim: of" if any(finding.interim for finding in questions) else "Of"
    said = f"{start} our {plural(len(questions), 'question')} {_counts(questions, named=True)}"
    return f"{said}. Shown: {listed(holding, LONGEST - len(said))}." if holding else f"{said}."


def listed(statements: Sequence[str], longest: int) -> str:
    """As many statements as fit into ``longest`` characters, and the number of the others."""
    shown = len(statements)
    while shown > 1 and len("; ".join(statements[:shown])) > longest:
        shown -= 1
    rest = len(statements) - shown
    return "; ".join(statements[:shown]) + (f"; and {rest} more" if rest else "")


# ---------------------------------------------------------------- what was run


def card(results: Results) -> list[tuple[str, str]]:
    """Date, code, machine, time, model, questions and command, a line for each that is known."""
    origins = list(results.provenance.values())
    runs = results.runs[results.runs["wall_seconds"].notna()]
    training = f"{plural(len(runs), 'run')}, {duration(runs['wall_seconds'].sum())} of wall time" if len(runs) else ""
    made = {version: [r for r in origins if r.get("srpo") == version] for version in (r.get("srpo") for r in origins)}
    commits = {version: distinct(_short(str(record.get("commit"))) for record in of) for version, of in made.items()}
    facts = [
        ("date", results.trained),
        ("code", distinct(f"srpo {version}, commit {of}" for version, of in commits.items())),
        ("processor", distinct(record.get("processor") for record in origins)),
        ("cores", distinct(record.get("cores") for record in origins)),
        ("training", training),
        ("model", _base_models(results)),
        ("questions", _questions(results)),
        ("command", command(results)),
    ]
    return [(name, value) for name, value in facts if value]


def command(results: Results) -> str:
    """The command that trains the runs again: with the shipped file if it says the same, or else the stored one."""
    name, but_models = results.experiment.name, {"models"}  # more base models may be stored today
    try:
        today = load_experiment(CONFIGS / "experiments" / f"{name}.yaml").model_dump(exclude=but_models)
        shipped = today == results.experiment.model_dump(exclude=but_models)
    except SrpoError:
        shipped = False
    file = f"configs/experiments/{name}.yaml" if shipped else f"{stored(results)}/experiment.yaml"
    return f"snakemake --configfile {file}"


def stored(results: Results) -> str:
    """The folder of the logs, seen from a clone: that of a published experiment, or else of the runs."""
    published = Layout(results.root).provenance.is_file()
    return f"{'published' if published else 'results'}/{results.experiment.name}"


def what_was_run(results: Results) -> str:
    """Models, benchmarks, methods, seeds and clock, in one line."""
    experiment = results.experiment
    runs = experiment.runs()
    seeds = [*Counter((run.model, run.benchmark, run.method) for run in runs).values()]
    methods = dict.fromkeys(method_title(results, run.method) for run in runs)
    seconds, clock = max(experiment.training.budget_seconds.values()), experiment.training.clock.kind
    length = f"{seconds / _HOUR:g} h of" if seconds > 2 * _HOUR else f"{seconds:g} s of"
    length, ends = f"{length} {clock} clock", {*results.runs["stopped_by"].dropna()}
    if (last := experiment.training.max_steps) is not None:
        length = plural(last, "step") if ends == {"max_steps"} else f"at most {plural(last, 'step')} or {length}"
    parts = [
        f"{_models(results)} on {_benchmarks(results)}",
        _few(list(methods), "method") if methods else "",
        f"{span(min(seeds), max(seeds))} {'seed' if max(seeds) == 1 else 'seeds'}" if seeds else "",
        length,
    ]
    return " · ".join(filter(None, parts))


def _models(results: Results, longest: int = 50) -> str:
    titles = [model.title for model in results.experiment.models.values()]
    named = _few(titles, "model", longest)
    if not results.experiment.is_toy:
        return named
    sizes = sorted({base["parameters"] for base in results.models.values() if base.get("parameters")})
    said = f" of {' or '.join(f'{size / 1e6:.2f}' for size in sizes)} M parameters" if sizes else ""
    return f"{named} ({'a toy' if len(titles) == 1 else 'toys'}{said})"


def _base_models(results: Results) -> str:
    bases, models = len(results.experiment.every_base_model()), len(results.experiment.models)
    several = f"; {bases} base models, one for each {'seed' if models == 1 else 'model and seed'}" * (bases > models)
    return _models(results, longest=LONGEST) + several


def _benchmarks(results: Results) -> str:
    benchmarks = [results.experiment.benchmarks[name] for name in _trained_on(results)]
    if all(benchmark.kind == "miniature" for benchmark in benchmarks):
        return f"{plural(len(benchmarks), 'benchmark')} of invented questions"
    return _few([benchmark.title for benchmark in benchmarks], "benchmark")


def _questions(results: Results) -> str:
    rows = [results.statistics.get(name, {}).get("rows", {}) for name in _trained_on(results)]
    counts = {split: sorted(row[split] for row in rows if split in row) for split in ("train", "test")}
    if not all(counts.values()):
        return _benchmarks(results)
    said = {split: span(found[0], found[-1]) for split, found in counts.items()}
    return f"{_benchmarks(results)}, {'each ' * (len(rows) > 1)}{said['train']} to train and {said['test']} to test"


def _trained_on(results: Results) -> list[str]:
    trained = dict.fromkeys(run.benchmark for run in results.experiment.runs())
    return list(trained) or list(results.experiment.benchmarks)


def _few(titles: Sequence[str], noun: str, longest: int = 50) -> str:
    return joined(titles) if len(", ".join(titles)) <= longest else plural(len(titles), noun)


def _short(commit: str) -> str:
    return commit.replace("-dirty", "")[:7] + ("-dirty" if commit.endswith("-dirty") else "")


def distinct(values: Iterable[object]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value is not None))
