"""Does a shown sibling help? The gap between self-teacher and student before any training, and what followed in toys.

"A Predictive Law for On-Policy Self-Distillation" (arXiv 2605.30070): the final gain is linear in the teacher's
accuracy minus the student's before training. Over our toys' doses it rises with the gap, at one dose it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import PERCENT, Estimate

if TYPE_CHECKING:  # tables need no torch
    from srpo.training.self_teacher import GapSamples

TITLES = {
    "student": "student, all questions",
    "mixed_groups": "groups with right and wrong rollouts",
    "wrong_with_sibling": "wrong rollouts with a right sibling",
    "distilled": "rollouts that SRPO distils",
    "student_same": "student, questions with a sibling",
    "teacher_sibling": "teacher, sibling shown",
    "gap": "gap: teacher - student",
    "response_copied_sibling": "sibling copied word for word",
}


def gap_estimates(samples: GapSamples) -> dict[str, Estimate]:
    """All numbers, in percent or in points, by their keys in ``TITLES``, with intervals over other questions.

    Teacher and student are compared on the same questions. What needs a question with a correct sibling is absent if
    there is none.
    """
    rollouts = samples.rollouts
    right = rollouts.mean(axis=1)
    mixed = (right > 0) & (right < 1)
    distilled = np.where(right > 0, 1 - right, 0.0)
    found = {"student": _share(right), "mixed_groups": _share(mixed), "distilled": _share(distilled)}
    if (wrong := (1 - right).mean()) > 0:
        # the ratio of two means, made linear: its mean over the questions is the ratio, its spread that of the ratio
        ratio = distilled.mean() / wrong
        found["wrong_with_sibling"] = _share(ratio + (distilled - ratio * (1 - right)) / wrong)
    if not samples.shown:
        return found
    student, teacher = samples.student.mean(axis=1), samples.teacher.mean(axis=1)
    found |= {
        "student_same": _share(student),
        "teacher_sibling": _share(teacher),
        "gap": contrast([[_arm(teacher), _arm(-student)]]),
        "response_copied_sibling": _share(samples.copied.mean(axis=1)),
    }
    return {key: found[key] for key in TITLES if key in found}


def _arm(values: np.ndarray) -> Arm:
    return Arm(100 * np.asarray(values, float)[None], fixed=True)


def _share(values: np.ndarray) -> Estimate:
    return contrast([[_arm(values)]], bounds=PERCENT)


SENTENCES = {
    "better": "The gap is above 0: a shown right sibling makes the untrained model's answers better. Of 94 such "
    "pairs of a toy and a benchmark SDPO ended above the untrained model in 84, and SRPO ended above GRPO in 75. The "
    "toys' pretraining told as much as the gap did, so nothing follows for other models.",
    "worse": "The gap is below 0: a shown right sibling makes the untrained model's answers worse. Of 31 such pairs of "
    "a toy and a benchmark SDPO ended below the untrained model in 25, and SRPO ended below GRPO in 27. All these toys "
    "were pretrained without shown solutions, so nothing follows for other models.",
    "undecided": "Undecided: the interval of the gap has 0 in it, or there is none.",
    "no sibling": "No question has a correct rollout: there is no sibling to show, and GRPO has no advantage either.",
}
"""What a gap says of the untrained model, and what followed in toys, by its :func:`sign`."""


def sign(low: float | None, high: float | None) -> str:
    """What the interval of a gap says, or one without ends: a key of :data:`SENTENCES`."""
    if low is None or high is None:
        return "undecided"
    return "better" if low > 0 else "worse" if high < 0 else "undecided"


def verdict(found: dict[str, Estimate]) -> str:
    """What the gap says, by its interval against 0; and how many groups can be learnt from."""
    if "gap" not in found:
        return SENTENCES["no sibling"]
    start = SENTENCES[sign(found["gap"].low, found["gap"].high)]
    mixed = f"{found['mixed_groups'].value:.0f} % of groups"
    return f"{start} Right and wrong rollouts are together in {mixed}: GRPO and SRPO learn from these alone."


def gap_text(found: dict[str, Estimate], title: str) -> str:
    """The numbers as a small table for a terminal, and what they rest on."""
    lines = [f"{title}, in %", "", f"{'':38}{'':>8}   95 % interval over questions"]
    for key, estimate in found.items():
        sign, ends = "+" if key.startswith("gap") else "", estimate.reason
        if estimate.has_interval:
            ends = f"[{estimate.low:{sign}.1f}, {estimate.high:{sign}.1f}]"
        lines.append(f"{TITLES[key]:38}{estimate.value:{sign or '-'}8.1f}   {ends}")
    return "\n".join(lines)


def as_json(samples: GapSamples, found: dict[str, Estimate]) -> dict[str, Any]:
    """The content of ``gap.json``: estimates with the ends of their intervals, or None, and scores of each question."""

    def end(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    return {
        "questions": len(samples.rollouts),
        "questions_with_sibling": len(samples.shown),
        "samples": samples.rollouts.shape[1],
        "estimates": {
            key: {"value": float(e.value), "low": end(e.low), "high": end(e.high)} for key, e in found.items()
        },
        "question_scores": {
            "student": samples.rollouts.mean(axis=1).tolist(),
            "student_same": samples.student.mean(axis=1).tolist(),
            "teacher_sibling": samples.teacher.mean(axis=1).tolist(),
        },
    }
