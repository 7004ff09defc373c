"""The in-process driver: verl's worker, engine, loss hook and checkpoints in one process, without Ray.

Reads top to bottom: :func:`train` is a run, :meth:`_Run.take_step` a step, one method per phase.
"""

import logging
import math
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from tqdm import tqdm

from srpo.algorithm.routing import Routes, route
from srpo.benchmarks.prompts import student_prompt_ids, teacher_prompt_ids
from srpo.benchmarks.rewards import compute_reward
from srpo.benchmarks.splits import Question, read_split
from srpo.config import RunSpec
from srpo.evaluation.avg_at_k import evaluate_questions
from srpo.files import append_event, only_writer, write_json
from srpo.layout import Layout
from srpo.policy.batches import RowLayout, lay_out, rows_of, sequence_batch
from srpo.policy.local import model_cost, start_worker, update_metrics
from srpo.rollout.decoder import EmbeddedDecoder
from srpo.rollout.engine import SamplingParams
from srpo.seeds import derive_seed
from srpo.tracking import LiveMirror
from srpo.training import checkpoints
from srpo.training.clock import Phases, best_of_budgets
from srpo.training.provenance import provenance
from srpo.training.step import (
    Rollouts,
    Targets,
    TeacherScores,
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


@dataclass(frozen=True)
class _TopK:
    """The student's K most likely tokens at each position of taught rollouts, by rollout.

    Attributes:
        ids: [response * K] int64, flattened.
        mass: [response] their probability.
    """

    ids: dict[int, Tensor]
    mass: dict[int, Tensor]


def train(spec: RunSpec, layout: Layout) -> None:
    """Train a run until its last budget, from its newest checkpoint if there is one, and write its summary.

    Raises:
        SrpoError: if another process trains the run.
    """
    with only_writer(layout.run(spec.id)):
        _train(spec, layout)


def _train(spec: RunSpec, layout: Layout) -> None:
    run = _Run(spec, layout)
    run.resume()
    mirror = LiveMirror(layout.folder, layout.run(spec.id))
    with tqdm(total=round(run.horizon, 2), unit="s", desc=spec.id.path, disable=None) as progress:
        progress.update(run.clock)
        while not run.finished:
            before = run.clock
            run.take_step()
            progress.update(min(run.clock, run.horizon) - before)
            if run.finished or run.step % spec.training.validate_every == 0:
                run.validate()
                run.save()
            mirror.step()
    run.summarise()
    mirror.sync()


class _Run:
    """A training run and its state."""

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self.spec, self.training, self.method = spec, spec.training, spec.method
        self.folder = layout.run(spec.id)
        data = {split: layout.split(spec.id.benchmark, split) for split in ("train", "test")}
        self.train_questions, self.test_questions = read_split(data["train"]), read_split(data["test"])
        self.horizon = max(self.training.budgets.values())
        self.step, self.clock, self.wall_seconds = 0, 0.0, 0.0
        self.validations: list[dict[str, Any]] = []
        self.worker = start_worker(spec, layout.model(spec.id.model))
        engine = self.worker.actor.engine
        self.tokenizer = engine.model_config.tokenizer
        self.top_k = self.method.top_k if self.method.routing.needs_teacher else 0
        self.cost = model_cost(engine)
        self.rollout = EmbeddedDecoder(
            engine.model_config.hf_config, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id
        )
        origin = provenance(data, layout.model(spec.id.model))
        checkpoints.claim_folder(self.folder, {"spec": spec.model_dump(mode="json"), "provenance": origin})

    @property
    def finished(self) -> bool:
        """Whether the last budget is spent or the step limit reached."""
        return self.clock >= self.horizon or self.step == self.training.max_steps

    # ------------------------------------------------------------ a step

    def take_step(self) -> None:
        """Generate, reward, route, score, teach, update; append one event to the step log."""
        self.step += 1
        self.phases = Phases()
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
            old_log_probs, top_k = self._score(rollouts, routes, batches)
            teacher = self._teach(questions, rollouts, routes, top_k)
            constants = targets(self.method, rollouts, routes, batches, old_log_probs, teacher)
            metrics |= target_metrics(constants, teacher)
            metrics |= self._update(rollouts, routes, batches, constants, old_log_probs, top_k, teacher)
        self._log_step(metrics)

    def _generate(self, questions: list[Question]) -> Rollouts:
        samples = self.training.rollouts_per_question
        with self.phases.measure("generate"):
            self.rollout.update_weights(self.worker.actor.engine.get_per_tensor_param()[0])
            prompts = [
                student_prompt_ids(self.tokenizer, question.messages, self.training.max_prompt_length)
                for question in questions
            ]
            seeds = [
                [derive_seed("rollout", self.spec.id.seed, self.step, question.index, j) for j in range(samples)]
                for question in questions
            ]
            params = SamplingParams(self.training.temperature, self.training.max_response_length)
            completions = [c for group in self.rollout.generate(prompts, params, seeds) for c in group]
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

    def _score(self, rollouts: Rollouts, routes: Routes, batches: list[list[int]]) -> tuple[dict[int, Tensor], _TopK]:
        """Old log-probs of every kept rollout, and the student's top-K ids where the teacher will be asked."""
        rows = [row for batch in batches for row in batch]
        taught = [flag.expand(len(response)) for flag, response in zip(routes.taught, rollouts.responses, strict=True)]
        with self.phases.measure("log_prob"):
            layout, batch = self._batch(
                "old_log_prob", rows, rollouts.prompts, rollouts.responses, {"taught": (taught, _FALSE)}
            )
            output = self.worker.compute_log_prob(batch)
        self._count_dense("log_prob", rows, rollouts.prompts, rollouts.responses)
        is_taught = routes.taught.tolist()
        ids, mass = (
            {row: t for row, t in rows_of(layout, output[key]).items() if is_taught[row]}
            for key in ("top_k_ids", "top_k_mass")
        )
        return rows_of(layout, output["log_probs"]), _TopK(ids, mass)

    def _teach(self, questions: list[Question], rollouts: Rollouts, routes: Routes, top_k: _TopK) -> TeacherScores:
        """Re-score taught rollouts under the enriched prompt with the teacher's weights."""
        rows = sorted(top_k.ids)
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
            ids = [top_k.ids.get(row) for row in range(len(rollouts))]
            filler = torch.arange(len(top_k.ids[rows[0]]) // len(rollouts.responses[rows[0]]))
            layout, batch = self._batch("teacher", rows, prompts, rollouts.responses, {"top_k_ids": (ids, filler)})
            output = self.worker.compute_teacher_log_prob(batch)
        self._count_dense("teacher", rows, prompts, rollouts.responses)
        return TeacherScores(*(rows_of(layout, output[key]) for key in ("log_probs", "entropy", "buckets")))

    def _update(
        self,
        rollouts: Rollouts,
        routes: Routes,
        batches: list[list[int]],
        constants: Targets,
        old_log_probs: dict[int, Tensor],
        top_k: _TopK,
        teacher: TeacherScores,
    ) -> dict[str, float]:
        """One optimiser step per mini-batch."""
        distilled, everyone = routes.sdpo.tolist(), range(len(rollouts))
        ids = [top_k.ids[row] if distilled[row] else _NO_IDS for row in everyone]
        buckets = [teacher.buckets[row] if distilled[row] else _NOTHING for row in everyone]
        entries = {
            "old_log_probs": ([old_log_probs.get(row) for row in everyone], _ZERO),
            "rollout_is_weight": (constants.rollout_is_weight, _ZERO),
            "advantages": (constants.advantages, _ZERO),
            "in_policy_branch": (constants.in_policy_branch, _FALSE),
            "in_distillation_branch": (constants.in_distillation_branch, _FALSE),
            "divergence_weight": (constants.divergence_weight, _NOTHING),
            "top_k_ids": (ids, _NO_IDS),
            "teacher_buckets": (buckets, _NOTHING),
        }
        with self.phases.measure("update"):
            lengths = _lengths(rollouts.prompts, rollouts.responses)
            layout = lay_out(batches, lengths, self.training.micro_batch_size)
            batch = sequence_batch(
                layout,
                rollouts.prompts,
                rollouts.responses,
                constants.mask,
                entries,
                pass_name="update",
                temperature=self.training.temperature,
            )
            metrics = update_metrics(self.worker.update_actor(batch))
        rows = [row for batch in batches for row in batch]
        self._count_dense("update", rows, rollouts.prompts, rollouts.responses, times=3)
        if top_k.mass:
            metrics["student/top_k_mass"] = torch.cat(list(top_k.mass.values())).mean().item()
        return metrics

    def _batch(
        self,
        pass_name: str,
        rows: list[int],
        prompts: list[Tensor],
        responses: list[Tensor],
        entries: dict[str, tuple[list[Tensor], Tensor]],
    ) -> tuple[RowLayout, TensorDict]:
        """A forward-only batch of one of the engine's passes."""
        layout = lay_out([rows], _lengths(prompts, responses), self.training.micro_batch_size)
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
        )
        return layout, batch

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
        self.rollout.update_weights(self.worker.actor.engine.get_per_tensor_param()[0])
        result = evaluate_questions(
            self.rollout,
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
        """Checkpoint, then delete the checkpoints that nothing needs any more."""
        state = {"step": self.step, "clock": self.clock, "wall_seconds": self.wall_seconds}
        checkpoints.save(
            self.folder,
            self.step,
            state,
            lambda folder: self.worker.save_checkpoint(str(folder), global_step=self.step),
        )
        self._prune()

    def _prune(self) -> None:
        best = best_of_budgets(self.validations, self.training.budgets).values()
        checkpoints.prune(self.folder, self.step, {validation["step"] for validation in best if validation})

    def resume(self) -> None:
        """Go back to the newest checkpoint; without one, start over with empty logs."""
        found = checkpoints.newest(self.folder)
        if found:
            folder, state = found
            self.worker.load_checkpoint(str(folder))
            self.step, self.clock, self.wall_seconds = state["step"], state["clock"], state["wall_seconds"]
            logging.getLogger(__name__).info("resuming %s after step %d", self.spec.id.path, self.step)
        checkpoints.rewind_log(self.folder / "steps.jsonl", self.step)
        self.validations = checkpoints.rewind_log(self.folder / "validations.jsonl", self.step)
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


def _lengths(prompts: list[Tensor | None], responses: list[Tensor]) -> list[int]:
    """Tokens of prompt and response; 0 for a rollout without a prompt, which is not in the batch."""
    return [0 if p is None else len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
