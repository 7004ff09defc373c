"""The training loop of a run, whatever computes its policy: one process or a Ray cluster.

Reads top to bottom: :func:`train` is a run, :meth:`_Run.take_step` a step, one method per phase.
"""

import logging
import math
import resource
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor
from tqdm import tqdm

from srpo.algorithm.routing import Routes, route
from srpo.benchmarks.prompts import student_prompt_ids, teacher_prompt_ids
from srpo.benchmarks.rewards import compute_reward
from srpo.benchmarks.splits import Question, read_split
from srpo.config import RunSpec
from srpo.errors import SrpoError
from srpo.evaluation.avg_at_k import evaluate_questions
from srpo.files import append_event, flush_to_disk, only_writer, write_json
from srpo.layout import Layout
from srpo.policy.batches import Entries, RowLayout, lay_out, rows_of, sequence_batch
from srpo.policy.outputs import gradient_norm, update_metrics
from srpo.rollout.engine import RolloutEngine, SamplingParams, ServersFailed
from srpo.seeds import derive_seed
from srpo.tracking import LiveMirror
from srpo.training import checkpoints
from srpo.training.clock import ModelCost, Phases, best_of_budgets
from srpo.training.diagnostics import copying_metrics, loss_cells, response_parts
from srpo.training.interruption import Interrupted, Interruption
from srpo.training.provenance import FINISHED, LOGS, claim_folder, provenance
from srpo.training.step import (
    Rollouts,
    StudentScores,
    Targets,
    TeacherScores,
    group_record,
    mini_batches,
    questions_of_step,
    rollout_metrics,
    target_metrics,
    targets,
)

_FALSE = torch.zeros(1, dtype=torch.bool)
_ZERO = torch.zeros(1)
_NOTHING = torch.zeros(0)
_NO_IDS = torch.zeros(0, dtype=torch.int64)


CHECKPOINT_SHARE = 0.05
"""Of the time between two checkpoints that the second may take, those of selected steps aside."""

MAX_SKIPPED_STEPS = 3
"""Steps in a row without a finite gradient after which a run gives up."""

MAX_RESTARTS = 3
"""How often rollout servers that failed are started again without a step between."""

logger = logging.getLogger(__name__)


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


def train(spec: RunSpec, layout: Layout, stop_at: float | None = None) -> None:
    """Train a run until its last budget, from its newest checkpoint if there is one, and write its summary.

    Args:
        spec: the run.
        layout: where its data, base model and results are.
        stop_at: seconds since the epoch by which to stop with a checkpoint, if the run is not done before.

    Raises:
        Interrupted: if it stopped early, with a checkpoint: on a signal or at ``stop_at``.
        SrpoError: if another process trains the run, its folder holds a run of another origin, no checkpoint can be
            loaded or written, memory runs out, no update of several steps in a row was finite, or rollout servers
            failed again and again.
    """
    interruption = Interruption(stop_at)
    with only_writer(layout.run(spec.id)), interruption.listening():
        data = {split: layout.split(spec.id.benchmark, split) for split in ("train", "test")}
        model = layout.model(spec.id.model)
        claim_folder(layout.run(spec.id), {"spec": spec.model_dump(mode="json"), "provenance": provenance(data, model)})
        furthest, restarts = 0, 0
        while failure := _train_until_servers_fail(spec, layout, interruption):
            step, reason = failure
            furthest, restarts = max(furthest, step), 1 if step > furthest else restarts + 1
            name = spec.id.path
            if restarts > MAX_RESTARTS:
                raise SrpoError(f"{name}: rollout servers failed {restarts} times after step {step}; last: {reason}")
            logger.warning("%s: rollout servers failed after step %d, starting new ones (%s)", name, step, reason)
            if reason := interruption.reason():
                raise Interrupted(f"{name}: {reason}; stopped after step {step}, start it again to go on")


def _train_until_servers_fail(spec: RunSpec, layout: Layout, interruption: Interruption) -> tuple[int, str] | None:
    """Train to the end with one policy, or until its servers fail: after which step and why."""
    with _start_policy(spec, layout.model(spec.id.model)) as policy:
        run = _Run(spec, layout, policy)
        try:
            _train(run, layout, interruption)
        except ServersFailed as error:
            if error.policy_is_whole:  # sampling changes no weights: they are those after the last step
                run.save()
            return run.step, str(error)
    return None


def _start_policy(spec: RunSpec, model: Path) -> AbstractContextManager[Policy]:
    # Ray is slow to import and not needed in one process
    if spec.execution.driver == "ray":
        from srpo.policy import cluster as driver
    else:
        from srpo.policy import local as driver
    return driver.start(spec, model)


def _train(run: "_Run", layout: Layout, interruption: Interruption) -> None:
    run.resume()
    mirror = LiveMirror(layout.folder, run.folder)

    def stop_if_needed(*parts: str) -> None:
        """Rather checkpoint than begin what may not come to its end."""
        # a first checkpoint is taken to cost what a step does
        seconds = sum(run.seconds_of[part] for part in parts) + (run.seconds_of["checkpoint"] or run.seconds_of["step"])
        if reason := interruption.reason(seconds):
            run.save()
            mirror.sync()
            raise Interrupted(f"{run.spec.id.path}: {reason}; stopped after step {run.step}, start it again to go on")

    with tqdm(total=round(run.horizon, 2), unit="s", desc=run.spec.id.path, disable=None) as progress:
        while True:
            progress.update(min(run.clock, run.horizon) - progress.n)
            if run.validation_is_due:
                stop_if_needed("validation")
                run.validate()
            if run.finished or run.selects_this_step or run.checkpoint_is_due:
                run.save()
            mirror.step()
            if run.finished:
                break
            stop_if_needed("step")
            run.take_step()
    run.summarise()
    (run.folder / FINISHED).touch()
    mirror.sync()


class _Run:
    """A training run and its state."""

    def __init__(self, spec: RunSpec, layout: Layout, policy: Policy) -> None:
        self.spec, self.training, self.method = spec, spec.training, spec.method
        self.policy = policy
        self.tokenizer, self.cost = policy.tokenizer, policy.cost
        self.folder = layout.run(spec.id)
        self.train_questions = read_split(layout.split(spec.id.benchmark, "train"))
        self.test_questions = read_split(layout.split(spec.id.benchmark, "test"))
        for question in (*self.train_questions, *self.test_questions):
            self._prompt_ids(question)  # one that is too long is found before anything is spent
        self.horizon = max(self.training.budgets.values())
        self.step, self.clock, self.wall_seconds = 0, 0.0, 0.0
        self.validations: list[dict[str, Any]] = []
        self.saved_step, self.saved_at = 0, time.perf_counter()
        self.skipped_steps = 0
        self.seconds_of = {"step": 0.0, "validation": 0.0, "checkpoint": 0.0}  # measured, the last ones
        self.top_k = self.method.top_k if self.method.routing.needs_teacher else 0

    @property
    def finished(self) -> bool:
        """Whether the last budget is spent or the step limit reached."""
        return self.clock >= self.horizon or self.step == self.training.max_steps

    @property
    def validation_is_due(self) -> bool:
        """Whether the steps taken so far end in a validation that has not been made."""
        on_time = self.step > 0 and self.step % self.training.validate_every == 0
        return (on_time or self.finished) and (not self.validations or self.validations[-1]["step"] != self.step)

    @property
    def selects_this_step(self) -> bool:
        """Whether a budget's best validation is of this step: its weights will be evaluated."""
        best = best_of_budgets(self.validations, self.training.budgets).values()
        return any(validation and validation["step"] == self.step for validation in best)

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether the work since the last checkpoint is worth another one."""
        cost = self.seconds_of["checkpoint"]
        if cost == 0:  # none has been made
            return self.step > 0 and self.step % self.training.validate_every == 0
        return (time.perf_counter() - self.saved_at) * CHECKPOINT_SHARE > cost

    # ------------------------------------------------------------ a step

    def take_step(self) -> None:
        """Generate, reward, route, score, teach, update; append one event to the step log."""
        with self._costing("step"):
            self.step += 1
            self.phases = Phases()
            try:
                self._take_step()
            except ServersFailed:
                self.step -= 1  # rollouts come first: nothing of the step has happened
                raise
            except torch.OutOfMemoryError as error:
                raise SrpoError(f"step {self.step}, {self.phases.current}: {self._remedy()}") from error

    def _take_step(self) -> None:
        questions = [
            self.train_questions[i]
            for i in questions_of_step(
                self.step, len(self.train_questions), self.training.questions_per_batch, self.spec.id.seed
            )
        ]
        rollouts = self._generate(questions)
        routes = route(rollouts.rewards, rollouts.question, self.method.routing)
        metrics = rollout_metrics(rollouts, routes)
        batches = mini_batches(rollouts, routes, self.method.mini_batch_questions)
        if batches:
            student = self._score(rollouts, routes, batches)
            teacher = self._teach(questions, rollouts, routes, student)
            constants = targets(self.method, rollouts, routes, batches, student, teacher)
            metrics |= target_metrics(self.method, constants, student, teacher)
            shown = {row: int(routes.teacher[row]) for row in routes.sdpo.nonzero().flatten().tolist()}
            in_question = sorted({*shown, *shown.values()})
            parts = response_parts(self.tokenizer, {row: rollouts.responses[row] for row in in_question})
            metrics |= copying_metrics(rollouts.responses, parts, shown, student.top_k_ids, teacher.buckets)
            entries = self._update_entries(routes, constants, student, teacher, parts)
            if self.step % self.training.branch_gradients_every == 0:
                metrics |= self._branch_gradients(rollouts, routes, batches[0], constants.mask, entries)
            metrics |= self._update(rollouts, batches, constants.mask, entries)
            self._check_updates(metrics, len(batches), rollouts)
        self._log_step(metrics)
        if self.step % self.training.validate_every == 0:
            append_event(self.folder / "groups.jsonl", group_record(self.step, questions, rollouts, routes))

    def _prompt_ids(self, question: Question) -> list[int]:
        return student_prompt_ids(self.tokenizer, question.messages, self.training.max_prompt_length)

    def _generate(self, questions: list[Question]) -> Rollouts:
        samples = self.training.rollouts_per_question
        with self.phases.measure("generate"):
            prompts = [self._prompt_ids(question) for question in questions]
            seeds = [
                [derive_seed("rollout", self.spec.id.seed, self.step, question.index, j) for j in range(samples)]
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

    def _score(self, rollouts: Rollouts, routes: Routes, batches: list[list[int]]) -> StudentScores:
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
        return StudentScores(log_probs=rows_of(layout, output["log_probs"]), **{"buckets": {}, **of_taught})

    def _teach(
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
        return TeacherScores(*(rows_of(layout, output[key]) for key in ("log_probs", "entropy", "buckets")))

    def _update_entries(
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

    def _update(
        self, rollouts: Rollouts, batches: list[list[int]], mask: list[Tensor], entries: Entries
    ) -> dict[str, float]:
        """One optimiser step per mini-batch."""
        with self.phases.measure("update"):
            output = self.policy.update_actor(self._update_batch(rollouts, batches, mask, entries))
        rows = [row for batch in batches for row in batch]
        self._count_dense("update", rows, rollouts.prompts, rollouts.responses, times=3)
        return update_metrics(output)

    def _branch_gradients(
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

    def _check_updates(self, metrics: dict[str, float], updates: int, rollouts: Rollouts) -> None:
        """verl skips an update whose gradients are not finite; give up when it skips everything."""
        self.skipped_steps = self.skipped_steps + 1 if metrics["actor/skipped_updates"] == updates else 0
        if self.skipped_steps < MAX_SKIPPED_STEPS:
            return
        evidence = self.folder / "evidence" / f"step{self.step}.json"
        samples = zip(rollouts.texts, rollouts.rewards.tolist(), rollouts.rollout_log_probs, strict=True)
        write_json(
            evidence,
            {
                "metrics": {name: repr(value) for name, value in metrics.items()},
                "rollouts": [
                    {"response": text, "reward": reward, "log_prob": repr(log_probs.sum().item())}
                    for text, reward, log_probs in samples
                ],
            },
        )
        raise SrpoError(
            f"step {self.step}: the gradients of {self.skipped_steps} steps in a row were not finite; "
            f"the last one's numbers and rollouts are in {evidence}"
        )

    def _remedy(self) -> str:
        limit = self.spec.execution.max_tokens_per_rank
        lower = f"execution.max_tokens_per_rank (now {limit})" if limit else "training.micro_batch_size"
        if not limit:
            lower += f" (now {self.training.micro_batch_size})"
        return (
            f"out of device memory; lower {lower} or execution.rollout_memory_fraction, or set "
            "execution.gradient_checkpointing or offload_teacher: the run goes on from its checkpoint with any of them"
        )

    @contextmanager
    def _costing(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds_of[what] = time.perf_counter() - start

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

    def _log_step(self, metrics: dict[str, float]) -> None:
        seconds = self.phases.seconds(self.training.clock)
        self.clock += sum(seconds.values())
        self.wall_seconds += sum(self.phases.wall.values())
        event = {
            "step": self.step,
            "clock": self.clock,
            "step_seconds": sum(seconds.values()),
            "wall_seconds": sum(self.phases.wall.values()),
            "phase_seconds": seconds,
            "phase_tokens": self.phases.tokens,
            # not finite: a number of an update that was skipped for its gradients
            "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        }
        append_event(self.folder / "steps.jsonl", event)

    # ------------------------------------------------------------ between steps

    def validate(self) -> None:
        """Sample the test split and append one event to the validation log."""
        with self._costing("validation"), self.policy.sampling() as engine:
            result = evaluate_questions(
                engine,
                self.tokenizer,
                self.test_questions,
                self.training.validation,
                self.training.max_prompt_length,
                self.training.max_response_length,
                ("validation", self.spec.id.seed, self.step),
            )
        event = {
            "step": self.step,
            "clock": self.clock,
            "avg_at_k": result.avg_at_k,
            "k": result.k,
            "questions": len(result.question_scores),
            "response_length": result.response_length,
            "truncated_fraction": result.truncated_fraction,
            "question_scores": result.question_scores,
        }
        self.validations.append(event)
        append_event(self.folder / "validations.jsonl", event)

    def save(self) -> None:
        """Checkpoint the step unless it is, then delete the checkpoints that nothing needs any more."""
        if self.step != self.saved_step:
            state = {
                "step": self.step,
                "clock": self.clock,
                "wall_seconds": self.wall_seconds,
                "seconds_of": self.seconds_of,
            }
            with self._costing("checkpoint"):
                for log in LOGS:  # a machine that crashes must not keep the checkpoint and lose its steps
                    if (self.folder / log).exists():
                        flush_to_disk(self.folder / log)
                checkpoints.save(
                    self.folder, self.step, state, lambda folder: self.policy.save_checkpoint(folder, self.step)
                )
            self.saved_step, self.saved_at = self.step, time.perf_counter()
        self._prune()

    def _prune(self) -> None:
        whole = 1 if self.finished else 2
        # what each checkpoint that may be resumed from would select: going back to it cuts the log to its step
        steps = [state.get("step", 0) for _, state in checkpoints.resumable(self.folder)[:whole]]
        pasts = [[v for v in self.validations if v["step"] <= step] for step in steps]
        pasts += [[v for v in past if v["step"] % self.training.validate_every == 0] for past in pasts]
        best = [best_of_budgets(past, self.training.budgets).values() for past in (*pasts, self.validations)]
        checkpoints.prune(self.folder, {v["step"] for chosen in best for v in chosen if v}, whole)

    def resume(self) -> None:
        """Go back to the newest whole checkpoint; without one, begin with empty logs.

        Raises:
            SrpoError: if no checkpoint can be loaded, or the log lacks steps that the checkpoint has.
        """
        if state := checkpoints.load_newest(self.folder, self.policy.load_checkpoint):
            self.step, self.clock, self.wall_seconds = state["step"], state["clock"], state["wall_seconds"]
            self.saved_step, self.seconds_of = self.step, state["seconds_of"]
            logger.info("resuming %s after step %d", self.spec.id.path, self.step)
        steps = checkpoints.rewind_log(self.folder / "steps.jsonl", self.step)
        if len(steps) != self.step:
            raise SrpoError(
                f"{self.folder}: steps.jsonl holds {len(steps)} of the checkpoint's {self.step} steps; "
                "restore it, or delete the folder to start over"
            )
        checkpoints.rewind_log(self.folder / "groups.jsonl", self.step)
        self.validations = checkpoints.rewind_log(self.folder / "validations.jsonl", self.step)
        if not self.finished:
            # A run that had ended and got a longer budget: its last validation would not have been.
            every = self.training.validate_every
            on_time = [validation for validation in self.validations if validation["step"] % every == 0]
            if on_time != self.validations:
                checkpoints.write_log(self.folder / "validations.jsonl", on_time)
                self.validations = on_time
        self._prune()  # a kill may have come before it

    def summarise(self) -> None:
        """Write ``summary.json``: what the run achieved within each budget and what it cost."""
        budgets = self.training.budgets
        best = best_of_budgets(self.validations, budgets)
        summary = {
            "run": self.spec.id.model_dump(),
            "steps": self.step,
            "clock": self.clock,
            "wall_seconds": self.wall_seconds,
            "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "stopped_by": "budget" if self.clock >= self.horizon else "max_steps",
            "budgets": {
                label: validation
                and {
                    "seconds": budgets[label],
                    "step": validation["step"],
                    "clock": validation["clock"],
                    "avg_at_k": validation["avg_at_k"],
                    "checkpoint": str(checkpoints.folder_of(Path(), validation["step"])),
                }
                for label, validation in best.items()
            },
        }
        write_json(self.folder / "summary.json", summary)
