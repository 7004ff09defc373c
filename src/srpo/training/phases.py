"""A training step, phase by phase: what is asked of the policy and what is made of the answers.

:meth:`Step.take` reads top to bottom, one method per phase; the mathematics between the policy's passes is in
``training/step.py`` and ``algorithm/``.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from srpo.algorithm.diagnostics import copying_metrics, loss_cells, response_parts
from srpo.algorithm.routing import Routes, route
from srpo.benchmarks.prompts import student_prompts, teacher_prompt_ids
from srpo.benchmarks.rewards import compute_reward
from srpo.benchmarks.splits import Question
from srpo.config import RunSpec
from srpo.policy.batches import Entries, RowLayout, lay_out, rows_of, sequence_batch
from srpo.policy.outputs import gradient_norm, update_metrics
from srpo.rollout.engine import RolloutEngine, SamplingParams
from srpo.seeds import derive_seed
from srpo.training.clock import ModelCost, Phases
from srpo.training.step import (
    Rollouts,
    StudentScores,
    Targets,
    TeacherScores,
    mini_batches,
    rollout_metrics,
    target_metrics,
    targets,
)

_FALSE = torch.zeros(1, dtype=torch.bool)
_ZERO = torch.zeros(1)
_NOTHING = torch.zeros(0)
_NO_IDS = torch.zeros(0, dtype=torch.int64)


class Policy(Protocol):
    """The student and its self-teacher, wherever they are computed.

    Attributes:
        tokenizer: the model's.
        cost: what a forward pass costs.
    """

    tokenizer: Any
    cost: ModelCost

    def sampling(self) -> AbstractContextManager[RolloutEngine]:
        """A rollout engine with the present weights, for the duration of the context."""
        ...

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass before the update (``pass_name`` "old_log_prob" of the engine)."""
        ...

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass (``pass_name`` "teacher")."""
        ...

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """One optimiser step per mini-batch, each followed by the teacher's."""
        ...

    def compute_gradient_norm(self, batch: TensorDict) -> TensorDict:
        """The gradient norm that an update with one mini-batch would have; nothing is updated."""
        ...

    def save_checkpoint(self, folder: Path, step: int) -> None:
        """Write weights, optimiser, schedule and teacher below ``folder``."""
        ...

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what :meth:`save_checkpoint` wrote."""
        ...


@dataclass(frozen=True)
class Taken:
    """What a step did.

    Attributes:
        rollouts, routes: its rollouts and where they went.
        metrics: its numbers, by name.
        updates: how many mini-batches were updates.
    """

    rollouts: Rollouts
    routes: Routes
    metrics: dict[str, float]
    updates: int


class Step:
    """Step ``number`` of a run; what its phases cost is in ``phases``."""

    def __init__(self, spec: RunSpec, policy: Policy, number: int) -> None:
        self.spec, self.training, self.method = spec, spec.training, spec.method
        self.policy, self.tokenizer, self.cost = policy, policy.tokenizer, policy.cost
        self.number = number
        self.phases = Phases()
        self.top_k = self.method.top_k if self.method.routing.needs_teacher else 0

    def take(self, questions: list[Question]) -> Taken:
        """Generate, reward, route, score, teach, update."""
        rollouts = self.generate(questions)
        routes = route(rollouts.rewards, rollouts.question, self.method.routing)
        metrics = rollout_metrics(rollouts, routes)
        batches = mini_batches(rollouts, routes, self.method.mini_batch_questions)
        if batches:
            student = self.score(rollouts, routes, batches)
            teacher = self.teach(questions, rollouts, routes, student)
            constants = targets(self.method, rollouts, routes, batches, student, teacher)
            metrics |= target_metrics(self.method, constants, student, teacher)
            shown = {row: int(routes.teacher[row]) for row in routes.sdpo.nonzero().flatten().tolist()}
            parts = self.parts(rollouts, shown)
            favourites = {row: student.favourites(row) for row in shown}
            metrics |= copying_metrics(rollouts.responses, parts, shown, favourites, teacher.favourites)
            entries = self.update_entries(routes, constants, student, teacher, parts)
            if self.number % self.training.branch_gradients_every == 0:
                metrics |= self.branch_gradients(rollouts, routes, batches[0], constants.mask, entries)
            metrics |= self.update(rollouts, batches, constants.mask, entries)
        return Taken(rollouts, routes, metrics, len(batches))

    # ------------------------------------------------------------ phases

    def generate(self, questions: list[Question]) -> Rollouts:
        """Sample a group of rollouts for each question and reward them."""
        samples = self.training.rollouts_per_question
        with self.phases.measure("generate"):
            asked = [question.messages for question in questions]
            prompts = student_prompts(self.tokenizer, asked, self.training.max_prompt_length)
            seeds = [
                [derive_seed("rollout", self.spec.id.seed, self.number, question.index, j) for j in range(samples)]
                for question in questions
            ]
            params = SamplingParams(self.training.temperature, self.training.max_response_length)
            with self.policy.sampling() as engine:
                completions = [c for group in engine.generate(prompts, params, seeds) for c in group]
        with self.phases.measure("reward"):
            texts = self.tokenizer.batch_decode([c.token_ids for c in completions], skip_special_tokens=True)
            rewards = [
                compute_reward(questions[i // samples].reward, text, questions[i // samples].ground_truth)
                for i, text in enumerate(texts)
            ]
        lengths = [len(c.token_ids) for c in completions]
        prompt_tensors = [torch.tensor(ids) for ids in prompts]
        prompt_lengths = [len(prompts[i // samples]) for i in range(len(completions))]
        self.phases.count(
            "generate",
            tokens=sum(lengths),
            dense_flops=self.cost.forward_flops(map(len, prompts)),
            decode_flops=self.cost.decode_flops(prompt_lengths, lengths),
        )
        return Rollouts(
            question=torch.arange(len(questions)).repeat_interleave(samples),
            prompts=[prompt_tensors[i // samples] for i in range(len(completions))],
            responses=[torch.tensor(c.token_ids) for c in completions],
            texts=texts,
            rollout_log_probs=[torch.tensor(c.log_probs) for c in completions],
            rewards=torch.tensor(rewards, dtype=torch.float32),
            truncated=torch.tensor([c.finish_reason == "length" for c in completions]),
        )

    def score(self, rollouts: Rollouts, routes: Routes, batches: list[list[int]]) -> StudentScores:
        """Old log-probs of every kept rollout, and the student's top-K where the teacher will be asked."""
        rows = [row for batch in batches for row in batch]
        taught = [flag.expand(len(response)) for flag, response in zip(routes.taught, rollouts.responses, strict=True)]
        entries = {"taught": (taught, _FALSE)}
        wanted = ["top_k_ids", "top_k_mass"]
        if self.method.weights_keep == "loss":
            wanted.append("buckets")
        with self.phases.measure("log_prob"):
            layout, batch = self._batch(
                "old_log_prob", rows, rollouts.prompts, rollouts.responses, entries, return_buckets="buckets" in wanted
            )
            output = self.policy.compute_log_prob(batch)
        self._count_dense("log_prob", rows, rollouts.prompts, rollouts.responses)
        is_taught = routes.taught.tolist()
        of_taught = {
            key: {row: t for row, t in rows_of(layout, output[key]).items() if is_taught[row]} for key in wanted
        }
        return StudentScores(log_probs=rows_of(layout, output["log_probs"]), **of_taught)

    def teach(
        self, questions: list[Question], rollouts: Rollouts, routes: Routes, student: StudentScores
    ) -> TeacherScores:
        """Re-score taught rollouts under the enriched prompt with the teacher's weights."""
        rows = sorted(student.top_k_ids)
        if not rows:
            return TeacherScores({}, {}, {})
        with self.phases.measure("teacher"):
            prompts: list[Tensor | None] = [None] * len(rollouts)
            for row in rows:
                prompts[row] = torch.tensor(
                    teacher_prompt_ids(
                        self.tokenizer,
                        questions[rollouts.question[row]].messages,
                        rollouts.texts[routes.teacher[row]],
                        self.training.max_teacher_prompt_length,
                    )
                )
            ids = [student.top_k_ids.get(row) for row in range(len(rollouts))]
            filler = torch.arange(len(ids[rows[0]]) // len(rollouts.responses[rows[0]]))
            layout, batch = self._batch("teacher", rows, prompts, rollouts.responses, {"top_k_ids": (ids, filler)})
            output = self.policy.compute_teacher_log_prob(batch)
        self._count_dense("teacher", rows, prompts, rollouts.responses)
        names = ("log_probs", "entropy", "buckets", "favourites")
        return TeacherScores(**{name: rows_of(layout, output[name]) for name in names})

    def parts(self, rollouts: Rollouts, shown: dict[int, int]) -> dict[int, Tensor]:
        """Which part of the response each token of distilled rollouts, and of those shown for them, belongs to."""
        rows = sorted({*shown, *shown.values()})
        return response_parts(self.tokenizer, {row: rollouts.responses[row] for row in rows})

    def update_entries(
        self,
        routes: Routes,
        constants: Targets,
        student: StudentScores,
        teacher: TeacherScores,
        parts: dict[int, Tensor],
    ) -> Entries:
        """What an update needs of each rollout beside its tokens."""
        distilled = routes.sdpo.tolist()
        everyone = range(len(distilled))
        return {
            "old_log_probs": ([student.log_probs.get(row) for row in everyone], _ZERO),
            "rollout_is_weight": (constants.rollout_is_weight, _ZERO),
            "advantages": (constants.advantages, _ZERO),
            "in_policy_branch": (constants.in_policy_branch, _FALSE),
            "in_distillation_branch": (constants.in_distillation_branch, _FALSE),
            "divergence_weight": (constants.divergence_weight, _NOTHING),
            "top_k_ids": ([student.top_k_ids[row] if distilled[row] else _NO_IDS for row in everyone], _NO_IDS),
            "teacher_buckets": ([teacher.buckets[row] if distilled[row] else _NOTHING for row in everyone], _NOTHING),
            "loss_cell": ([loss_cells(parts[row]) if distilled[row] else _NO_IDS for row in everyone], _NO_IDS),
        }

    def update(
        self, rollouts: Rollouts, batches: list[list[int]], mask: list[Tensor], entries: Entries
    ) -> dict[str, float]:
        """One optimiser step per mini-batch."""
        with self.phases.measure("update"):
            output = self.policy.update_actor(self._update_batch(rollouts, batches, mask, entries))
        rows = [row for batch in batches for row in batch]
        self._count_dense("update", rows, rollouts.prompts, rollouts.responses, times=3)
        return update_metrics(output)

    def branch_gradients(
        self, rollouts: Rollouts, routes: Routes, rows: list[int], mask: list[Tensor], entries: Entries
    ) -> dict[str, float]:
        """The gradient norm of each branch's part of the loss on a mini-batch that has both; not on the clock."""
        distilled = routes.sdpo.tolist()
        branches = {
            "grad_norm/policy": [row for row in rows if not distilled[row]],
            "grad_norm/distillation": [row for row in rows if distilled[row]],
        }
        if not all(branches.values()):
            return {}
        self.phases.current = "branch gradients"
        metrics = {}
        tokens = sum(len(rollouts.responses[row]) for row in rows)
        for name, own in branches.items():
            output = self.policy.compute_gradient_norm(self._update_batch(rollouts, [own], mask, entries))
            # divided by its own tokens, where the loss divides by the mini-batch's
            share = sum(len(rollouts.responses[row]) for row in own) / tokens
            metrics[name] = share * gradient_norm(output)
        return metrics

    def _update_batch(
        self, rollouts: Rollouts, batches: list[list[int]], mask: list[Tensor], entries: Entries
    ) -> TensorDict:
        return sequence_batch(
            self._lay_out(batches, rollouts.prompts, rollouts.responses),
            rollouts.prompts,
            rollouts.responses,
            mask,
            entries,
            pass_name="update",
            temperature=self.training.temperature,
        )

    # ------------------------------------------------------------ batches

    def _batch(
        self,
        pass_name: str,
        rows: list[int],
        prompts: list[Tensor],
        responses: list[Tensor],
        entries: Entries,
        **options: bool,
    ) -> tuple[RowLayout, TensorDict]:
        """A forward-only batch of one of the engine's passes."""
        layout = self._lay_out([rows], prompts, responses)
        mask = [torch.ones(len(response), dtype=torch.bool) for response in responses]
        batch = sequence_batch(
            layout,
            prompts,
            responses,
            mask,
            entries,
            pass_name=pass_name,
            temperature=self.training.temperature,
            top_k=self.top_k,
            compute_loss=False,
            **options,
        )
        return layout, batch

    def _lay_out(self, batches: list[list[int]], prompts: list[Tensor], responses: list[Tensor]) -> RowLayout:
        # a rollout without a prompt is in no batch
        lengths = [0 if p is None else len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
        execution = self.spec.execution
        return lay_out(batches, lengths, self.training.micro_batch_size, execution.ranks, execution.max_tokens_per_rank)

    def _count_dense(
        self, phase: str, rows: list[int], prompts: list[Tensor], responses: list[Tensor], times: int = 1
    ) -> None:
        lengths = [len(prompts[row]) + len(responses[row]) for row in rows]
        self.phases.count(phase, tokens=sum(lengths), dense_flops=times * self.cost.forward_flops(lengths))
