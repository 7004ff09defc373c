"""A training step, phase by phase: the calls of the policy, and what the method computes from their results.

:meth:`Step.take` has one method per phase, in order. The mathematics between the policy's passes is in ``algorithm/``.
"""

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from srpo.algorithm.branches import trained_branches
from srpo.algorithm.diagnostics import copied_tokens, copying_cases, copying_metrics, loss_cells
from srpo.algorithm.rollouts import Rollouts, StudentScores, TeacherScores
from srpo.algorithm.routing import NO_SIBLING, Routes, route
from srpo.algorithm.targets import Constants, PendingConstants, make_constants, make_pending_constants, mini_batches
from srpo.benchmarks.prompts import student_prompts, teacher_prompt_ids
from srpo.benchmarks.response_parts import response_parts
from srpo.benchmarks.rewards import compute_reward
from srpo.benchmarks.splits import Question
from srpo.config import RunSpec
from srpo.errors import SrpoError
from srpo.policy.batches import (
    Bundle,
    Entries,
    RowOrder,
    assign_ranks,
    bundle_rollouts,
    kept_entry,
    order_rows,
    pack_constants,
    rollouts_of,
    sequence_batch,
)
from srpo.policy.interface import Policy
from srpo.policy.outputs import gradient_norm, update_metrics
from srpo.rollout.interface import SamplingParams
from srpo.seeds import derive_seed
from srpo.training.clock import PhaseTimer
from srpo.training.metrics import rollout_metrics, target_metrics

Prompts = Sequence[Tensor] | Mapping[int, Tensor]
ConstantsByRollout = Mapping[int, Constants] | Mapping[int, PendingConstants]

KEPT_VOCABULARY = 4096
"""Largest vocabulary for which the teacher's whole distributions are kept until the update selects the top K."""


def questions_of_step(step: int, questions: int, per_batch: int, seed: int) -> list[int]:
    """Indices of a step's questions: a fresh shuffle each epoch, the last incomplete batch dropped.

    It depends only on the step, so a resumed run needs no state of the data.

    Raises:
        SrpoError: if the split is smaller than a batch.
    """
    batches = questions // per_batch
    if batches == 0:
        raise SrpoError(f"training.questions_per_batch = {per_batch}: the train split has only {questions} questions")
    epoch, batch = divmod(step - 1, batches)
    order = list(range(questions))
    random.Random(derive_seed("question order", seed, epoch)).shuffle(order)
    return order[batch * per_batch : (batch + 1) * per_batch]


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    Attributes:
        rollouts, routes: its rollouts and their branches.
        metrics: its metrics by name.
        updates: number of mini-batches with an update.
    """

    rollouts: Rollouts
    routes: Routes
    metrics: dict[str, float]
    updates: int


class Step:
    """Step ``number`` of a run; ``phases`` has the cost of its phases."""

    def __init__(self, spec: RunSpec, policy: Policy, number: int) -> None:
        self.spec, self.training, self.method = spec, spec.training, spec.method
        self.policy, self.tokenizer, self.cost = policy, policy.tokenizer, policy.cost
        self.number = number
        self.phases = PhaseTimer()
        self.top_k = self.method.top_k if self.method.routing.needs_teacher else 0
        self._cases: dict[int, tuple[int, int]] = {}

    def take(self, questions: list[Question]) -> StepResult:
        """Generate, reward, route, score by student and teacher, update; then record the metrics."""
        rollouts = self.generate(questions)
        routes = route(rollouts.rewards, rollouts.question, self.method.routing)
        batches = mini_batches(rollouts, routes, self.method.mini_batch_questions)
        if not batches:
            return StepResult(rollouts, routes, rollout_metrics(rollouts, routes), updates=0)
        student = self.score_by_student(rollouts, routes, batches)
        teacher = self.score_by_teacher(questions, rollouts, routes, batches, student)
        constants = self.constants(rollouts, routes, batches, student, teacher)
        updated = self.update(rollouts, routes, batches, constants)
        return self.record(rollouts, routes, student, teacher, constants, updated, len(batches))

    # ------------------------------------------------------------ phases

    def generate(self, questions: list[Question]) -> Rollouts:
        """Sample a group of rollouts for each question, and reward them."""
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

    def score_by_student(self, rollouts: Rollouts, routes: Routes, batches: list[list[int]]) -> StudentScores:
        """Old log-probs of every rollout that is trained on; where the teacher scores too, workers keep the top K.

        With one update per batch, the update computes both itself. With a large vocabulary the top K is still computed
        here, because the teacher's whole distributions are too large to keep.
        """
        rows = [row for batch in batches for row in batch]
        flags = routes.scored_by_teacher.tolist()
        if self._scored_by_update(batches):
            rows = [row for row in rows if flags[row] and len(self.tokenizer) > KEPT_VOCABULARY]
            if not rows:
                return StudentScores({}, {}, {})
        scored = {row: torch.full((len(response),), flags[row]) for row, response in enumerate(rollouts.responses)}
        of_teacher = [row for row in rows if flags[row]]
        with self.phases.measure("log_prob"):
            found = self._scores(
                "old_log_prob",
                {"log_probs": rows, "top_k_mass": of_teacher, "argmax_ids": of_teacher},
                rollouts.prompts,
                rollouts.responses,
                self._ranks(rollouts, routes, batches),
                kept_entry(rows, of_teacher) | {"scored_by_teacher": (scored, torch.zeros(1, dtype=torch.bool))},
                keep_student_log_probs=self.method.preserve_loss_scale,
            )
        self._count_dense("log_prob", [rows], rollouts.prompts, rollouts.responses)
        return StudentScores(**found)

    def score_by_teacher(
        self,
        questions: list[Question],
        rollouts: Rollouts,
        routes: Routes,
        batches: list[list[int]],
        student: StudentScores,
    ) -> TeacherScores:
        """Score the student's tokens by the teacher, whose prompt shows a correct sibling."""
        rows = routes.scored_by_teacher.nonzero().flatten().tolist()
        if not rows:
            return TeacherScores({}, {}, {})
        with self.phases.measure("teacher"):
            prompts = self._teacher_prompts(questions, rollouts, routes, rows)
            entries, on_top_k = kept_entry(rows, rows), bool(student.top_k_mass)
            names = ["log_probs", "entropy", "argmax_ids", *(["top_k_mass"] if on_top_k else [])]
            if self.method.preserve_loss_scale:
                names.append("divergence")
                branch = {row: routes.branch[row : row + 1] for row in rows}
                entries["branch"] = branch, torch.zeros(0, dtype=torch.int64)
            ranks = self._ranks(rollouts, routes, batches)
            wanted = dict.fromkeys(names, rows)
            found = self._scores("teacher", wanted, prompts, rollouts.responses, ranks, entries, on_top_k=on_top_k)
        self._count_dense("teacher", [rows], prompts, rollouts.responses)
        return TeacherScores(**found)

    def _teacher_prompts(
        self, questions: list[Question], rollouts: Rollouts, routes: Routes, rows: list[int]
    ) -> dict[int, Tensor]:
        """The teacher's prompt of each rollout, the student's own where no sibling is shown; a group shares most."""
        known: dict[tuple[int, int], Tensor] = {}
        siblings = routes.shown_sibling.tolist()
        shown = {row: (int(rollouts.question[row]), siblings[row]) for row in rows if siblings[row] != NO_SIBLING}
        for question, sibling in set(shown.values()):
            ids = teacher_prompt_ids(
                self.tokenizer,
                questions[question].messages,
                rollouts.texts[sibling],
                self.training.max_teacher_prompt_length,
            )
            known[question, sibling] = torch.tensor(ids)
        return {row: known[shown[row]] if row in shown else rollouts.prompts[row] for row in rows}

    def constants(
        self,
        rollouts: Rollouts,
        routes: Routes,
        batches: list[list[int]],
        student: StudentScores,
        teacher: TeacherScores,
    ) -> dict[int, Constants] | dict[int, PendingConstants]:
        """The constants of the loss, as far as they are known, and the cells for the logged shares of the loss."""
        shown = _shown(routes)
        rows = sorted({*shown, *shown.values()})
        parts = response_parts(self.tokenizer, {row: rollouts.responses[row] for row in rows})
        self._cases = copying_cases(rollouts.responses, parts, shown)
        cells = {row: loss_cells(parts[row]) for row in shown}
        copied = copied_tokens(self._cases, {row: len(rollouts.responses[row]) for row in shown})
        with self.phases.measure("update"):  # what comes before is for the logs
            if not self._scored_by_update(batches):
                return make_constants(self.method, rollouts, routes, batches, student, teacher, cells)
            return make_pending_constants(self.method, rollouts, routes, batches, teacher, cells, copied)

    def _scored_by_update(self, batches: list[list[int]]) -> bool:
        """Whether the batch has one update, which then computes pi_old, and no weight needs pi_old before it."""
        return len(batches) == 1 and not self.method.preserve_loss_scale

    def update(
        self, rollouts: Rollouts, routes: Routes, batches: list[list[int]], constants: ConstantsByRollout
    ) -> dict[str, float]:
        """One optimizer step per mini-batch; every so many steps, first measure the gradient of each branch."""
        measured = {}
        if self.number % self.training.branch_gradients_every == 0:
            measured = self.branch_gradients(rollouts, routes, batches, constants)
        with self.phases.measure("update"):
            ranks = self._ranks(rollouts, routes, batches)
            output = self.policy.update_actor(self._update_batch(rollouts, batches, constants, ranks))
        self._count_dense("update", batches, rollouts.prompts, rollouts.responses, times=3)
        return measured | update_metrics(output)

    # ------------------------------------------------------------ diagnostics

    def record(
        self,
        rollouts: Rollouts,
        routes: Routes,
        student: StudentScores,
        teacher: TeacherScores,
        constants: ConstantsByRollout,
        updated: Mapping[str, float],
        updates: int,
    ) -> StepResult:
        """All metrics of a step with updates."""
        metrics = {
            **rollout_metrics(rollouts, routes),
            **target_metrics(self.method, constants, student, teacher),
            **copying_metrics(self._cases, student.argmax_ids, teacher.argmax_ids),
            **updated,
        }
        return StepResult(rollouts, routes, metrics, updates)

    def branch_gradients(
        self, rollouts: Rollouts, routes: Routes, batches: list[list[int]], constants: ConstantsByRollout
    ) -> dict[str, float]:
        """The gradient norm of each branch's part of the loss on the first mini-batch, if it has several branches.

        Not on the clock.
        """
        names, rows = routes.names, batches[0]
        by_branch: dict[str, list[int]] = {}
        for row in rows:
            by_branch.setdefault(names[row], []).append(row)
        if len(by_branch) < 2:
            return {}
        self.phases.current = "branch gradients"
        metrics = {}
        tokens = sum(len(rollouts.responses[row]) for row in rows)
        ranks = self._ranks(rollouts, routes, batches)
        for branch in trained_branches(by_branch):
            own = by_branch[branch.name]
            output = self.policy.compute_gradient_norm(self._update_batch(rollouts, [own], constants, ranks))
            # the batch divides by its own tokens, the loss by those of the mini-batch
            share = sum(len(rollouts.responses[row]) for row in own) / tokens
            metrics[f"grad_norm/{branch.name}"] = share * gradient_norm(output)
        return metrics

    # ------------------------------------------------------------ batches

    def _ranks(self, rollouts: Rollouts, routes: Routes, batches: list[list[int]]) -> dict[int, int]:
        """The rank of each rollout in all passes of the step: what a rank keeps of it is there for the next pass."""
        prompts, responses = rollouts.prompts, rollouts.responses
        by_batch, bundles = _numbered(self._bundles(batches, prompts, responses))
        flags = routes.scored_by_teacher.tolist()
        scored = {place for place, bundle in enumerate(bundles) if any(flags[row] for row in bundle)}
        ranks = assign_ranks(by_batch, _lengths(bundles, prompts, responses), self.spec.execution.ranks, scored)
        return {row: ranks[place] for place, bundle in enumerate(bundles) for row in bundle}

    def _update_batch(
        self,
        rollouts: Rollouts,
        batches: list[list[int]],
        constants: ConstantsByRollout,
        ranks: Mapping[int, int],
    ) -> TensorDict:
        order, bundles = self._order(batches, rollouts.prompts, rollouts.responses, ranks)
        kept = [row for row, own in constants.items() if _has_distributions(own)]
        return sequence_batch(
            order,
            bundles,
            rollouts.prompts,
            rollouts.responses,
            kept_entry(constants, kept) | pack_constants(constants),
            step=self.number,
            pass_name="update",
            temperature=self.training.temperature,
            top_k=self.top_k,
        )

    def _scores(
        self,
        pass_name: str,
        wanted: Mapping[str, Collection[int]],
        prompts: Prompts,
        responses: list[Tensor],
        ranks: Mapping[int, int],
        entries: Entries,
        **options: bool,
    ) -> dict[str, dict[int, Tensor]]:
        """The outputs of a pass without gradients, each by rollout.

        Args:
            wanted: the rollouts of each output; the first output has all rollouts.
        """
        send = {"old_log_prob": self.policy.compute_log_prob, "teacher": self.policy.compute_teacher_log_prob}
        rows = list(next(iter(wanted.values())))
        order, bundles = self._order([rows], prompts, responses, ranks)
        batch = sequence_batch(
            order,
            bundles,
            prompts,
            responses,
            entries,
            step=self.number,
            pass_name=pass_name,
            temperature=self.training.temperature,
            top_k=self.top_k,
            compute_loss=False,
            **options,
        )
        output = send[pass_name](batch)
        return {
            name: rollouts_of(order, bundles, output[name], {row: len(responses[row]) for row in scored})
            for name, scored in wanted.items()
        }

    def _order(
        self, batches: list[list[int]], prompts: Prompts, responses: list[Tensor], ranks: Mapping[int, int]
    ) -> tuple[RowOrder, list[Bundle]]:
        """The order of the rows of a batch, and the rollouts of each row."""
        execution, most = self.spec.execution, self.training.micro_batch_size
        shares = [[row for row in batch if ranks[row] == rank] for batch in batches for rank in range(execution.ranks)]
        by_share, bundles = _numbered(self._bundles(shares, prompts, responses))
        by_batch = [by_share[i : i + execution.ranks] for i in range(0, len(by_share), execution.ranks)]
        rows = max(1, most // max(map(len, bundles)))
        lengths = _lengths(bundles, prompts, responses)
        return order_rows(by_batch, lengths, rows, execution.max_tokens_per_rank), bundles

    def _bundles(self, batches: list[list[int]], prompts: Prompts, responses: list[Tensor]) -> list[list[Bundle]]:
        execution = self.spec.execution
        most = self.training.micro_batch_size if execution.shares_prompts else 1
        lengths = {row: responses[row].numel() for batch in batches for row in batch}
        return bundle_rollouts(batches, prompts, lengths, most, execution.max_tokens_per_rank)

    def _count_dense(
        self, phase: str, batches: list[list[int]], prompts: Prompts, responses: list[Tensor], times: int = 1
    ) -> None:
        """Count tokens and FLOPs of a pass; a shared prompt counts once."""
        tokens, flops = 0, 0.0
        for bundle in (bundle for batch in self._bundles(batches, prompts, responses) for bundle in batch):
            prompt, lengths = prompts[bundle[0]].numel(), [responses[row].numel() for row in bundle]
            tokens += prompt + sum(lengths)
            flops += self.cost.forward_flops([prompt]) + self.cost.decode_flops([prompt] * len(lengths), lengths)
        self.phases.count(phase, tokens=tokens, dense_flops=times * flops)


def _shown(routes: Routes) -> dict[int, int]:
    """By distilled rollout, the sibling that the teacher sees."""
    return {row: int(routes.sibling[row]) for row in routes.distilled.nonzero().flatten().tolist()}


def _has_distributions(constants: Constants | PendingConstants) -> bool:
    """Whether the loss reads the teacher's distributions of a rollout."""
    tokens = constants.teacher_log_prob if isinstance(constants, PendingConstants) else constants.cell
    return len(tokens) > 0


def _numbered(groups: list[list[Bundle]]) -> tuple[list[list[int]], list[Bundle]]:
    """The bundles of all groups in one list, and each group by places in it."""
    places = itertools.count()
    return [[next(places) for _ in group] for group in groups], [*itertools.chain.from_iterable(groups)]


def _lengths(bundles: list[Bundle], prompts: Prompts, responses: list[Tensor]) -> list[int]:
    """Tokens of each bundle, its prompt once."""
    return [prompts[bundle[0]].numel() + sum(responses[row].numel() for row in bundle) for bundle in bundles]
