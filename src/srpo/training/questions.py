"""Which questions a step asks, and what it asks instead of groups that its method drops."""

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

from srpo.algorithm.method import FilterGroups
from srpo.algorithm.rollouts import Rollouts, regrouped
from srpo.algorithm.routing import in_dropped_groups
from srpo.ground.errors import SrpoError
from srpo.ground.seeds import derive_seed
from srpo.questions.splits import Question
from srpo.training.metrics import filter_metrics

Draw: TypeAlias = Callable[[int], list[Question]]
"""Draws this number of questions that the step has not asked yet, or those that are left."""


def questions_of_step(step: int, questions: int, per_batch: int, seed: int) -> list[int]:
    """Indices of a step's questions: a fresh shuffle each epoch, the last incomplete batch dropped.

    It depends only on the step, so a resumed run needs no state of the data.
    """
    batches = questions // per_batch
    if batches == 0:
        raise SrpoError(f"training.questions_per_batch = {per_batch}: the train split has only {questions} questions")
    epoch, batch = divmod(step - 1, batches)
    order = list(range(questions))
    random.Random(derive_seed("question order", seed, epoch)).shuffle(order)
    return order[batch * per_batch : (batch + 1) * per_batch]


def question_order(step: int, questions: int, per_batch: int, seed: int) -> Iterator[int]:
    """Indices of all questions in the order in which a step asks them: its own, then the others, shuffled anew.

    A method that drops groups asks more than its own. This too depends only on the step.
    """
    own = questions_of_step(step, questions, per_batch, seed)
    yield from own
    others = sorted({*range(questions)} - {*own})
    random.Random(derive_seed("further questions", seed, step)).shuffle(others)
    yield from others


def sample_groups(
    draw: Draw, generate: Callable[[list[Question]], Rollouts], wanted: int, rule: FilterGroups | None
) -> tuple[list[Question], Rollouts, dict[str, float]]:
    """Generate until there are enough groups that a method keeps, as often as it allows.

    Args:
        rule: which groups are dropped; None: no group, so that one call is enough.

    Returns:
        The questions and rollouts of all groups, kept ones first, so that mini-batches are made of these; metrics
        of a method that drops groups.
    """
    if rule is None:
        questions = draw(wanted)
        return questions, generate(questions), {}
    asked: list[Question] = []
    parts: list[Rollouts] = []
    dropped: list[bool] = []
    missing = wanted
    while missing and len(parts) < rule.max_num_gen_batches and (further := draw(missing)):
        found = generate(further)
        rows = in_dropped_groups(found.correct, found.question, rule.drop)
        dropped += rows.view(len(further), -1)[:, 0].tolist()
        asked, parts = asked + further, [*parts, found]
        missing = wanted - dropped.count(False)
    order = sorted(range(len(asked)), key=dropped.__getitem__)
    metrics = filter_metrics(len(parts), sum(dropped), missing)
    return [asked[group] for group in order], regrouped(parts, order), metrics
