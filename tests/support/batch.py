"""A batch of sixteen rollouts of four questions, with made-up log-probs and the targets that follow."""

import torch
from helpers import load_method
from torch import Tensor

from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import Routes, route
from srpo.algorithm.targets import Targets, make_targets, mini_batches

REWARDS = [0.0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1]
LENGTHS = [1, 3, 2, 4] * 4


def rollouts_of(rewards: list[float], per_question: int, lengths: list[int] | None = None) -> Rollouts:
    lengths = lengths or [2] * len(rewards)
    return Rollouts(
        question=torch.arange(len(rewards) // per_question).repeat_interleave(per_question),
        prompts=[torch.zeros(3, dtype=torch.int64)] * len(rewards),
        responses=[torch.zeros(n, dtype=torch.int64) for n in lengths],
        texts=[""] * len(rewards),
        rollout_log_probs=[torch.full((n,), -1.0) for n in lengths],
        rewards=torch.tensor(rewards, dtype=torch.float32),
        in_format=[None] * len(rewards),
        truncated=torch.tensor([i % 4 == 3 for i in range(len(rewards))]),
    )


def log_probs_of(routes: Routes, trained: list[int]) -> tuple[dict[int, Tensor], TeacherLogProbs]:
    """Those of the student before the update, and those of the teacher."""
    generator = torch.Generator().manual_seed(1)
    old = {i: -2 * torch.rand(n, generator=generator) for i, n in enumerate(LENGTHS)}
    rows = routes.uses_teacher.nonzero().flatten().tolist()
    teacher = TeacherLogProbs(
        log_probs={i: -2 * torch.rand(LENGTHS[i], generator=generator) for i in rows},
        entropy={i: 3 * torch.rand(LENGTHS[i], generator=generator) for i in rows},
        divergence={i: torch.rand(LENGTHS[i], generator=generator) for i in rows},
    )
    return {i: old[i] for i in trained}, teacher


def targets_of(name: str, mini_batch_questions: int) -> tuple[dict[int, Targets], Routes, dict, TeacherLogProbs]:
    method = load_method(name)
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    routes = route(rollouts.correct, rollouts.question, method.routing)
    batches = mini_batches(rollouts, routes, mini_batch_questions)
    old, teacher = log_probs_of(routes, [i for batch in batches for i in batch])
    return make_targets(method, rollouts, routes, batches, old, teacher), routes, old, teacher
