"""What is allowed in an experiment, and is probably not meant."""

from srpo.analysis.statistics.contrasts import MIN_QUESTIONS
from srpo.experiment.config import Experiment, WallClock
from srpo.ground.text import joined
from srpo.plan.plan import Plan
from srpo.plan.shortages import shortages


def warnings(plan: Plan) -> list[str]:
    """One line for each thing: what does not fit the card, and others."""
    return [*_of_the_card(plan), *_tests(plan.experiment)]


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


def _tests(experiment: Experiment) -> list[str]:
    """Test splits with too few questions for an interval, and one split under several names."""
    few = [name for name, each in experiment.benchmarks.items() if each.questions("test") < MIN_QUESTIONS]
    lines = [f"benchmarks.{n}: fewer than {MIN_QUESTIONS} test questions, so no interval and no verdict" for n in few]
    same = "the same test questions, which their average counts again"
    return [*lines, *(f"benchmarks {joined(names)}: {same}" for names in experiment.same_tests)]
