"""A training step, phase by phase: the calls of the policy, and what the method computes from their results.

:meth:`Step.take` has one method per phase, in order. The mathematics between the policy's passes is in ``algorithm/``.
"""

from collections.abc import Mapping
from itertools import chain

import torch
from tensordict import TensorDict
from torch import Tensor

from srpo.algorithm.method import Method
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import NO_SIBLING, route
from srpo.algorithm.targets import Targets, make_targets, mini_batches
from srpo.experiment.config import RunSpec
from srpo.ground.seeds import derive_seed
from srpo.policy.batches import Entries, kept_entry, pack_targets, rollouts_of, sequence_batch
from srpo.policy.interface import Policy, update_metrics
from srpo.policy.placement import Bundle, Placement, Prompts, RowOrder, bundle_rollouts
from srpo.questions.prompts import response_texts, student_prompts, teacher_prompt_ids
from srpo.questions.rewards import compute_reward, in_format
from srpo.questions.splits import Question, true_solution
from srpo.rollout.interface import SamplingParams
from srpo.training.batch import Batch, Schedule
from srpo.training.clock import PhaseTimer
from srpo.training.metrics import step_metrics, teacher_metrics
from srpo.training.success_buffer import Known, earlier_successes

KEPT_VOCABULARY = 4096
"""Largest vocabulary for which the teacher's whole distributions are kept until the update selects the top K."""


def schedule_of(method: Method, updates: int, vocabulary: int) -> Schedule:
    """The schedule of a batch. One update computes pi_old itself, unless a weight needs pi_old before it."""
    if updates > 1 or method.preserve_loss_scale:
        return Schedule.OLD_FIRST
    return Schedule.TOP_K_FIRST if vocabulary > KEPT_VOCABULARY else Schedule.NOTHING_FIRST


class Step:
    """Step ``number`` of a run; ``phases`` has the cost of its phases.

    Args:
        known: correct responses of earlier steps, for a method that shows them.
    """

    def __init__(self, spec: RunSpec, policy: Policy, number: int, known: Known | None = None) -> None:
        self.spec, self.training, self.method = spec, spec.training, spec.method
        self.routing = spec.method.at(number).routing
        self.policy, self.tokenizer, self.cost = policy, policy.tokenizer, policy.cost
        self.number, self.known = number, known or {}
        self.phases = PhaseTimer()

    def take(self, questions: list[Question]) -> tuple[Batch, dict[str, float]]:
        """Take the step, in the order of docs/verl.md: its batch and its metrics by name."""
        batch = self.route(questions, self.generate(questions))
        metrics = step_metrics(self.method, self.number, batch)
        if batch.mini_batches:
            old_log_probs = self.compute_log_prob(batch)
            teacher = self.compute_teacher_log_prob(batch)
            targets = self.compute_targets(batch, old_log_probs, teacher)
            metrics |= teacher_metrics(targets, teacher) | self.update(batch, targets)
        return batch, metrics

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
            texts = response_texts(self.tokenizer, [c.token_ids for c in completions])
            asked_of = [questions[i // samples] for i in range(len(texts))]
            to_score = [(q.reward, text, q.ground_truth) for q, text in zip(asked_of, texts, strict=True)]
            rewards = [compute_reward(*each) for each in to_score]
        formats = [in_format(questions[i // samples].reward, text) for i, text in enumerate(texts)]  # for the logs
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
            in_format=formats,
            truncated=torch.tensor([c.finish_reason == "length" for c in completions]),
        )

    def route(self, questions: list[Question], rollouts: Rollouts) -> Batch:
        """Choose the branch, the mini-batch and the rank of each rollout."""
        with self.phases.measure("update"):
            earlier = earlier_successes(questions, rollouts, self.known) if self.known else {}
            remembered = torch.tensor([row in earlier for row in range(len(rollouts))])
            context = self.method.teacher_context
            routes = route(rollouts.correct, rollouts.question, self.routing, remembered, context)
            batches = mini_batches(rollouts, routes, self.method.mini_batch_questions)
            lengths = [response.numel() for response in rollouts.responses]
            of_teacher = set(routes.uses_teacher.nonzero().flatten().tolist())
            placement = Placement(
                batches, rollouts.prompts, lengths, of_teacher, self.training.micro_batch_size, self.spec.execution
            )
        schedule = schedule_of(self.method, len(batches), len(self.tokenizer))
        return Batch(questions, rollouts, routes, batches, schedule, placement, earlier)

    def compute_log_prob(self, batch: Batch) -> dict[int, Tensor]:
        """The student's pass that the schedule says; workers keep the top K of the rollouts that use the teacher.

        The result is log pi_old of every rollout that is trained on; empty if the update computes it.
        """
        of_teacher = set(batch.of_teacher)
        rows = {
            Schedule.OLD_FIRST: batch.trained,
            Schedule.TOP_K_FIRST: [row for row in batch.trained if row in of_teacher],
            Schedule.NOTHING_FIRST: [],
        }[batch.schedule]
        if not rows:
            return {}
        prompts, lengths = batch.rollouts.prompts, batch.lengths(rows)
        with self.phases.measure("log_prob"):
            flags = {row: torch.full((length,), row in of_teacher) for row, length in lengths.items()}
            data, order = self._data(
                batch,
                [rows],
                prompts,
                kept_entry(rows, of_teacher) | {"uses_teacher": (flags, torch.zeros(1, dtype=torch.bool))},
                pass_name="old_log_prob",
                compute_loss=False,
                keep_student_log_probs=self.method.preserve_loss_scale,
            )
            log_probs = rollouts_of(order, self.policy.compute_log_prob(data)["log_probs"], lengths)
        self._count("log_prob", batch, [rows], prompts)
        return log_probs if batch.schedule is Schedule.OLD_FIRST else {}

    def compute_teacher_log_prob(self, batch: Batch) -> TeacherLogProbs:
        """The teacher's log-probs of the student's tokens, after a prompt that shows what the method says."""
        rows = batch.of_teacher
        if not rows:
            return TeacherLogProbs()
        names, entries = ["log_probs", "entropy"], kept_entry(rows, rows)
        if self.method.preserve_loss_scale:
            names.append("divergence")
            branches = {row: batch.routes.branch[row : row + 1] for row in rows}
            entries["branch"] = branches, torch.zeros(0, dtype=torch.int64)
        with self.phases.measure("teacher"):
            prompts = self._teacher_prompts(batch)
            data, order = self._data(
                batch,
                [rows],
                prompts,
                entries,
                pass_name="teacher",
                compute_loss=False,
                on_top_k=batch.schedule is not Schedule.NOTHING_FIRST,
            )
            output, lengths = self.policy.compute_teacher_log_prob(data), batch.lengths(rows)
            found = {name: rollouts_of(order, output[name], lengths) for name in names}
        self._count("teacher", batch, [rows], prompts)
        return TeacherLogProbs(**found)

    def _teacher_prompts(self, batch: Batch) -> dict[int, Tensor]:
        """The teacher's prompt of each rollout, the student's own if nothing is shown; a group shares most."""
        rollouts, routes = batch.rollouts, batch.routes
        siblings = routes.shown_sibling.tolist()
        earlier, truth = routes.shown_earlier.tolist(), routes.shown_truth.tolist()
        known: dict[tuple[int, str], Tensor] = {}

        def prompt(row: int) -> Tensor:
            number = int(rollouts.question[row])
            question = batch.questions[number]
            if siblings[row] != NO_SIBLING:
                solution = rollouts.texts[siblings[row]]
            elif earlier[row]:
                solution = batch.earlier[row].text
            elif truth[row]:
                solution = true_solution(question)
            else:
                return rollouts.prompts[row]
            if (shown := (number, solution)) not in known:
                # beyond the model's positions nothing fails, and nothing means anything
                longest = min(self.training.max_reprompt_len, self.policy.positions - self.training.max_response_length)
                known[shown] = torch.tensor(teacher_prompt_ids(self.tokenizer, question.messages, solution, longest))
            return known[shown]

        return {row: prompt(row) for row in batch.of_teacher}

    def compute_targets(
        self, batch: Batch, old_log_probs: Mapping[int, Tensor], teacher: TeacherLogProbs
    ) -> dict[int, Targets]:
        """What the loss reads of each token."""
        with self.phases.measure("update"):
            return make_targets(self.method, batch.rollouts, batch.routes, batch.mini_batches, old_log_probs, teacher)

    def update(self, batch: Batch, targets: Mapping[int, Targets]) -> dict[str, float]:
        """One optimizer step per mini-batch."""
        with self.phases.measure("update"):
            output = self.policy.update_actor(self._update_data(batch, targets))
        self._count("update", batch, batch.mini_batches, batch.rollouts.prompts, times=3)
        return update_metrics(output)

    # ------------------------------------------------------------ batches

    def _update_data(self, batch: Batch, targets: Mapping[int, Targets]) -> TensorDict:
        distilled = [row for row, own in targets.items() if len(own.divergence_weight)]
        entries = kept_entry(targets, distilled) | pack_targets(targets)
        return self._data(batch, batch.mini_batches, batch.rollouts.prompts, entries, pass_name="update")[0]

    def _data(
        self, batch: Batch, batches: list[list[int]], prompts: Prompts, entries: Entries, **options: object
    ) -> tuple[TensorDict, RowOrder[Bundle]]:
        """The batch of a pass over these mini-batches, and the order of its rows, in which the output comes back."""
        order = batch.placement.order(batches, prompts)
        options |= {
            "step": self.number,
            "temperature": self.training.temperature,
            "top_k": self.method.distillation_topk if self.method.needs_teacher else 0,
        }
        return sequence_batch(order, prompts, batch.rollouts.responses, entries, **options), order

    def _count(self, phase: str, batch: Batch, batches: list[list[int]], prompts: Prompts, times: int = 1) -> None:
        """Count tokens and FLOPs of a pass; a shared prompt counts once, however settings of memory cut a batch."""
        tokens, flops = 0, 0.0
        count = len(batch.rollouts)
        for bundle in chain(*bundle_rollouts(batches, prompts, [0] * count, max_rollouts=count)):
            prompt, lengths = prompts[bundle[0]].numel(), list(batch.lengths(bundle).values())
            tokens += prompt + sum(lengths)
            flops += self.cost.forward_flops([prompt]) + self.cost.decode_flops([prompt] * len(lengths), lengths)
        self.phases.count(phase, tokens=tokens, dense_flops=times * flops)
