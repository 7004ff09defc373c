"""A batch of sixteen rollouts of four questions, with made-up scores and the constants that follow."""

from __future__ import annotations

import torch
from helpers import load_method

from srpo.algorithm.rollouts import Rollouts, StudentScores, TeacherScores
from srpo.algorithm.routing import route
from srpo.algorithm.targets import make_constants, mini_batches

REWARDS = [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1]
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
        truncated=torch.tensor([i % 4 == 3 for i in range(len(rewards))]),
    )


def scores_of(rollouts: Rollouts, routes, kept) -> tuple[StudentScores, TeacherScores]:
    generator = torch.Generator().manual_seed(1)
    old = {i: -2 * torch.rand(n, generator=generator) for i, n in enumerate(LENGTHS)}
    scored = routes.scored_by_teacher.nonzero().flatten().tolist()
    teacher = TeacherScores(
        log_probs={i: -2 * torch.rand(LENGTHS[i], generator=generator) for i in scored},
        entropy={i: 3 * torch.rand(LENGTHS[i], generator=generator) for i in scored},
        argmax_ids={i: torch.zeros(LENGTHS[i], dtype=torch.int64) for i in scored},
        top_k_mass={i: torch.rand(LENGTHS[i], generator=generator) for i in scored},
        divergence={i: torch.rand(LENGTHS[i], generator=generator) for i in scored},
    )
    student = StudentScores(
        log_probs={i: old[i] for i in kept},
        top_k_mass={i: torch.rand(LENGTHS[i], generator=generator) for i in scored},
        argmax_ids={i: torch.zeros(LENGTHS[i], dtype=torch.int64) for i in scored},
    )
    return student, teacher


def constants_of(name: str, mini_batch_questions: int):
    method = load_method(name)
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    routes = route(rollouts.rewards, rollouts.question, method.routing)
    batches = mini_batches(rollouts, routes, mini_batch_questions)
    student, teacher = scores_of(rollouts, routes, [i for batch in batches for i in batch])
    return make_constants(method, rollouts, routes, batches, student, teacher), routes, student, teacher
