"""The training loop of a run, for both drivers: one process or a Ray cluster.

:meth:`Run.train` is the loop; a step's phases are in ``training/step.py``. :func:`train` is what the command calls.
"""

import logging
import math
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from srpo.algorithm.rollouts import Rollouts
from srpo.experiment import memory
from srpo.experiment.config import RunSpec, limit_reached
from srpo.ground.errors import SrpoError
from srpo.ground.files import (
    append_event,
    exclusive_access,
    flush_to_disk,
    read_json,
    rewind,
    write_events,
    write_json,
)
from srpo.ground.gpus import hold_gpus
from srpo.ground.imports import gc_paused
from srpo.ground.layout import WEIGHTS, Layout, RunFiles
from srpo.ground.machine import host_memory_gb
from srpo.policy.interface import Policy
from srpo.questions.splits import read_split
from srpo.rollout.interface import MAX_RESTARTS, ServersFailed
from srpo.training import checkpoints
from srpo.training.avg_at_k import evaluate_questions
from srpo.training.batch import Batch
from srpo.training.checkpoints import CHECKPOINT_SHARE
from srpo.training.clock import PhaseTimer, best_of_budgets, seconds_of_step
from srpo.training.interruption import Interrupted, Interruption
from srpo.training.lengths import check_lengths, check_teacher
from srpo.training.metrics import group_record
from srpo.training.provenance import origin_of, prepare_run_folder
from srpo.training.questions import questions_of_step
from srpo.training.step import Step
from srpo.training.success_buffer import SuccessBuffer
from srpo.training.watch import Signal, Watch, watched

MAX_SKIPPED_STEPS = 3
"""A run stops after this many steps in a row without a finite gradient."""

logger = logging.getLogger(__name__)


class Run:
    """A training run and its state."""

    def __init__(self, spec: RunSpec, layout: Layout, policy: Policy) -> None:
        self.spec, self.training, self.policy = spec, spec.training, policy
        self.files = layout.run_files(spec.id)
        self.folder = self.files.folder
        self.train_questions, self.test_questions = (
            read_split(layout.split(spec.benchmark.data_set, split)) for split in ("train", "test")
        )
        longest = check_lengths(policy.tokenizer, self.train_questions, "train", spec.training)
        check_lengths(policy.tokenizer, self.test_questions, "test", spec.training)
        if spec.method.shows_solutions:
            given = longest, spec.training, policy.positions, spec.method.teacher_context, self.train_questions
            check_teacher(policy.tokenizer, *given)
        self.horizon = max(self.training.budget_seconds.values())
        self.step, self.clock, self.wall_seconds, self.memory_gb = 0, 0.0, 0.0, 0.0
        self.validations: list[dict[str, Any]] = []
        self.watch = Watch(self.training.warmup_steps)
        self.saved_step, self.saved_at = 0, time.perf_counter()
        self.skipped_steps = 0
        self.buffer = SuccessBuffer(spec.method.success_buffer)
        self.seconds_of = {"step": 0.0, "validation": 0.0, "checkpoint": 0.0}  # measured, the last ones

    def train(self, interruption: Interruption) -> None:
        """Take steps from the newest checkpoint to the last budget; validate and save when it is due."""
        self.resume()
        self.policy.warm_up()
        with tqdm(total=round(self.horizon, 2), unit="s", desc=self.spec.id.path, disable=None) as progress:
            while True:
                progress.update(min(self.clock, self.horizon) - progress.n)
                if self.validation_is_due:
                    self._stop_if_needed(interruption, "validation")
                    self.validate()
                if self.finished or self.checkpoint_is_due:
                    self.save()
                elif self.selects_this_step:
                    self.save_weights()
                if self.finished:
                    break
                self._stop_if_needed(interruption, "step")
                self.take_step()
        write_json(self.files.finished, self.summary())

    @property
    def finished(self) -> bool:
        """Whether the last budget is spent or the step limit reached."""
        return self.stopped_by is not None

    @property
    def stopped_by(self) -> str | None:
        return limit_reached(self.training, self.clock, self.step)

    @property
    def validation_is_due(self) -> bool:
        """Whether the current step needs a validation that has not been made yet."""
        on_time = self.training.validates(self.step, self.clock)
        return (on_time or self.finished) and (not self.validations or self.validations[-1]["step"] != self.step)

    @property
    def selects_this_step(self) -> bool:
        """Whether this step has the best validation of a budget, so that its weights will be evaluated."""
        return self.step in self._selected(self.validations)

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether enough time has passed since the last complete one (:data:`CHECKPOINT_SHARE`)."""
        cost = self.seconds_of["checkpoint"]
        if cost == 0:  # none has been made
            return self.training.validates(self.step, self.clock)
        return (time.perf_counter() - self.saved_at) * CHECKPOINT_SHARE > cost

    def _stop_if_needed(self, interruption: Interruption, part: str) -> None:
        """Save and stop if the next part may not finish in time."""
        # before the first checkpoint, assume that one takes as long as a step
        seconds = self.seconds_of[part] + (self.seconds_of["checkpoint"] or self.seconds_of["step"])
        if reason := interruption.reason(seconds):
            self.save()
            raise Interrupted(f"{self.spec.id.path}: {reason}; stopped after step {self.step}, start it again to go on")

    # ------------------------------------------------------------ a step

    def take_step(self) -> None:
        number = self.step + 1
        of, per_batch = self.train_questions, self.training.questions_per_batch
        questions = [of[i] for i in questions_of_step(number, len(of), per_batch, self.spec.id.seed)]
        with self._timed("step"):
            step = Step(self.spec, self.policy, number, self.buffer.known)
            try:
                batch, metrics = step.take(questions)
            except torch.OutOfMemoryError as error:
                raise SrpoError(f"step {number}, {step.phases.current}: {out_of_memory_remedy(self.spec)}") from error
            self.step = number
            self.buffer.add_step(number, batch.questions, batch.rollouts)
            if batch.mini_batches:
                self._check_updates(batch, metrics)
            self._log_step(step.phases, metrics)
            if number % self.training.validate_every == 0:
                append_event(self.files.groups, group_record(number, batch))

    def _check_updates(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """verl skips an update whose gradients are not finite; give up when it skips everything."""
        all_skipped = metrics["actor/skipped_updates"] == len(batch.mini_batches)
        self.skipped_steps = self.skipped_steps + 1 if all_skipped else 0
        if self.skipped_steps >= MAX_SKIPPED_STEPS:
            evidence = self.files.evidence(self.step)
            write_evidence(evidence, batch.rollouts, metrics)
            raise SrpoError(
                f"step {self.step}: the gradients of {self.skipped_steps} steps in a row were not finite; "
                f"the last one's numbers and rollouts are in {evidence}"
            )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds_of[what] = time.perf_counter() - start

    def _log_step(self, phases: PhaseTimer, metrics: Mapping[str, float]) -> None:
        phase_seconds = phases.seconds(self.training.clock)
        seconds = seconds_of_step(self.training.clock, self.spec.method, self.step, phase_seconds)
        self.clock += seconds
        self.wall_seconds += sum(phases.wall.values())
        memory_gb = host_memory_gb()
        self.memory_gb = max(self.memory_gb, memory_gb)
        event = {
            "step": self.step,
            "clock": self.clock,
            "step_seconds": seconds,
            "wall_seconds": sum(phases.wall.values()),
            "host_memory_gb": round(memory_gb, 3),
            "phase_seconds": phase_seconds,
            "phase_tokens": phases.tokens,
            # a value is not finite if verl skipped the update because of its gradients
            "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        }
        append_event(self.files.steps, event)
        self._log_signals(self.watch.add_step(event))

    def _log_signals(self, signals: list[Signal]) -> None:
        for signal in signals:
            logger.warning("%s: %s", self.spec.id.path, signal)
            append_event(self.files.watch, signal.event())

    # ------------------------------------------------------------ between steps

    def validate(self) -> None:
        """Sample the test split and append one event to the validation log."""
        with self._timed("validation"), self.policy.sampling() as engine:
            result = evaluate_questions(
                engine,
                self.policy.tokenizer,
                self.test_questions,
                self.training.validation,
                self.training.max_prompt_length,
                self.training.max_response_length,
                ("validation", self.spec.id.seed, self.step),
            )
        counts = {"k": result.k, "questions": len(result.question_scores)}
        event = {"step": self.step, "clock": self.clock, **counts, **result.scores()}
        self.validations.append(event)
        append_event(self.files.validations, event)
        self._log_signals(self.watch.add_validation(event))

    def save_weights(self) -> None:
        """Write what evaluation needs of a step that a budget selects, unless its checkpoint is complete; prune."""
        if self.step != self.saved_step:
            checkpoints.save(self.folder, self.step, None, self.policy.save_weights)
        self._prune()

    def save(self) -> None:
        """Checkpoint the step unless it has been saved, then delete the checkpoints that are no longer needed."""
        if self.step != self.saved_step:
            state = {
                "step": self.step,
                "clock": self.clock,
                "wall_seconds": self.wall_seconds,
                "seconds_of": self.seconds_of,
            }
            with self._timed("checkpoint"):
                for log in self.files.logs:  # after a crash, the log must have the checkpoint's steps
                    if log.exists():
                        flush_to_disk(log)
                checkpoints.save(self.folder, self.step, state, self._write_checkpoint)
            self.saved_step, self.saved_at = self.step, time.perf_counter()
        self._prune()

    def _write_checkpoint(self, folder: Path) -> None:
        self.policy.save_checkpoint(folder, self.step)
        self.buffer.save(folder)

    def _load_checkpoint(self, folder: Path) -> None:
        self.policy.load_checkpoint(folder)
        self.buffer.load(folder)

    def save_if_possible(self) -> None:
        """Checkpoint the step after rollout servers failed. If workers failed too, an older checkpoint is enough."""
        try:  # sampling does not change the weights: they are those after the last step
            self.save()
        except Exception as failure:
            logger.warning("%s: step %d could not be saved: %s", self.spec.id.path, self.step, failure)

    def _prune(self) -> None:
        """Keep the newest complete checkpoints, and the weights that a budget selects now or could select on resuming.

        Resuming truncates the validations at the checkpoint's step, and may drop those that were not on time.
        """
        complete, selected = 1 if self.finished else 2, self._selected(self.validations)
        for _, state in checkpoints.resumable(self.folder)[:complete]:
            past = [validation for validation in self.validations if validation["step"] <= state.get("step", 0)]
            on_time = [v for v in past if self.training.validates(v["step"], v["clock"])]
            selected |= self._selected(past) | self._selected(on_time)
        checkpoints.prune(self.folder, selected, complete)

    def _selected(self, validations: list[dict[str, Any]]) -> set[int]:
        """The steps that the budgets select if these are the run's validations."""
        best = best_of_budgets(validations, self.training.budget_seconds).values()
        return {validation["step"] for validation in best if validation}

    def resume(self) -> None:
        """Load the newest complete checkpoint; without one, start with empty logs."""
        if state := checkpoints.load_newest(self.folder, self._load_checkpoint):
            self.step, self.clock, self.wall_seconds = state["step"], state["clock"], state["wall_seconds"]
            self.saved_step, self.seconds_of = self.step, state["seconds_of"]
            logger.info("resuming %s after step %d", self.spec.id.path, self.step)
        steps = rewind(self.files.steps, self.step)
        if len(steps) != self.step:
            raise SrpoError(
                f"{self.files.steps}: holds {len(steps)} of the checkpoint's {self.step} steps; "
                "restore it, or delete the folder to start over"
            )
        rewind(self.files.groups, self.step)
        self.validations = rewind(self.files.validations, self.step)
        on_time = [v for v in self.validations if self.training.validates(v["step"], v["clock"])]
        if on_time != self.validations and not self.finished:
            # the run had ended and now goes on: its last validation does not occur in the longer one
            write_events(self.files.validations, on_time)
            self.validations = on_time
        self.memory_gb = max((step.get("host_memory_gb", 0.0) for step in steps), default=0.0)
        self.watch = watched(steps, self.validations, self.training.warmup_steps)
        if self.watch.signals or self.files.watch.exists():
            write_events(self.files.watch, [signal.event() for signal in self.watch.signals])
        self._prune()  # the run may have been killed before it pruned

    def summary(self) -> dict[str, Any]:
        """The selected validation of each budget and the cost of the run."""
        budgets = self.training.budget_seconds
        best = best_of_budgets(self.validations, budgets)
        if self.stopped_by == "max_steps":  # the planned end of the last budget, not of one before
            reached = {label for label, seconds in budgets.items() if seconds <= self.clock} | {[*budgets][-1]}
            best = {label: validation if label in reached else None for label, validation in best.items()}
        return {
            "run": self.spec.id.model_dump(),
            "steps": self.step,
            "clock": self.clock,
            "wall_seconds": self.wall_seconds,
            **{f"{part}_seconds": self.seconds_of[part] for part in ("validation", "checkpoint")},  # the last ones
            "peak_memory_gb": max(self.memory_gb, 1024e-9 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
            "stopped_by": self.stopped_by,
            "budgets": {
                label: validation
                and {
                    "seconds": budgets[label],
                    "step": validation["step"],
                    "clock": validation["clock"],
                    "avg_at_k": validation["avg_at_k"],
                    "checkpoint": str(self.files.selected(validation["step"]).relative_to(self.folder)),
                }
                for label, validation in best.items()
            },
        }


def selected_checkpoints(files: RunFiles) -> dict[int, Path]:
    """Of a finished run, the weights of each step that a budget selects."""
    found = read_json(files.finished)["budgets"].values()
    return {budget["step"]: files.checkpoint(budget["step"]) / WEIGHTS for budget in found if budget}


def hand_over(files: RunFiles) -> None:
    """Write what a finished run declares: links to the weights that its budgets select, and ``summary.json``."""
    shutil.rmtree(files.weights, ignore_errors=True)
    files.weights.mkdir()
    for step, weights in selected_checkpoints(files).items():
        shutil.copytree(weights, files.selected(step), copy_function=os.link)
    write_json(files.summary, read_json(files.finished))


def write_evidence(path: Path, rollouts: Rollouts, metrics: Mapping[str, float]) -> None:
    """Write the metrics of a step whose gradients were not finite, and its rollouts."""
    samples = zip(rollouts.texts, rollouts.rewards.tolist(), rollouts.rollout_log_probs, strict=True)
    write_json(
        path,
        {
            "metrics": {name: repr(value) for name, value in metrics.items()},
            "rollouts": [
                {"response": text, "reward": reward, "log_prob": repr(log_probs.sum().item())}
                for text, reward, log_probs in samples
            ],
        },
    )


def out_of_memory_remedy(spec: RunSpec) -> str:
    """Which settings to lower."""
    lower = f"training.micro_batch_size (now {spec.training.micro_batch_size})"
    if limit := spec.execution.max_tokens_per_rank:
        lower = f"execution.max_tokens_per_rank (now {limit})"
    return (
        f"out of device memory; lower {lower} or execution.rollout_memory_fraction, or set "
        "execution.gradient_checkpointing or offload_teacher: the run goes on from its checkpoint with any of them"
    )


def train(spec: RunSpec, layout: Layout, stop_at: float | None = None, code: dict[str, str] | None = None) -> None:
    """Train a run until its last budget, from its newest checkpoint if there is one, and write its summary.

    Args:
        code: hashes of one's own code that the run names.
        stop_at: seconds since the epoch by which to stop with a checkpoint, if the run is not done before.
    """
    name, folder = spec.id.path, layout.run(spec.id)
    if spec.execution.driver == "ray":
        hold_gpus(spec.execution.ranks)
    interruption = Interruption(stop_at)
    with exclusive_access(folder), interruption.listening():
        model, files = layout.model(spec.model.name), layout.run_files(spec.id)
        prepare_run_folder(folder, origin_of(spec, layout, code))
        if files.finished.exists() and all(map(Path.exists, selected_checkpoints(files).values())):
            logger.warning("%s: trained before; delete its folder to train it again", name)
            hand_over(files)
            return
        checkpoints.delete_abandoned(folder)
        if not _is_over(spec, folder):
            checkpoints.check_room(folder, checkpoint_bytes(spec, model))
        furthest, restarts = 0, 0
        while True:
            with _start_policy(spec, model) as policy:
                run = Run(spec, layout, policy)
                try:
                    run.train(interruption)
                    break
                except ServersFailed as error:
                    failure = str(error)
                    if error.can_checkpoint:
                        run.save_if_possible()
            restarts = 1 if run.step > furthest else restarts + 1
            furthest = max(furthest, run.step)
            if restarts > MAX_RESTARTS:
                raise SrpoError(
                    f"{name}: rollout servers failed {restarts} times after step {run.step}; last: {failure}"
                )
            logger.warning("%s: rollout servers failed after step %d, starting new ones (%s)", name, run.step, failure)
            if stop := interruption.reason():
                raise Interrupted(f"{name}: {stop}; stopped, start it again to go on from its newest checkpoint")
        hand_over(files)


def _is_over(spec: RunSpec, folder: Path) -> bool:
    """Whether the run has ended with its newest checkpoint, so that it will write no other."""
    _, state = checkpoints.newest(folder) or (None, {})
    state = {"clock": 0.0, "step": 0} | state  # of a damaged one
    return limit_reached(spec.training, state["clock"], state["step"]) is not None


def checkpoint_bytes(spec: RunSpec, model: Path) -> float:
    """Size of a run's complete checkpoint; 0 if its model's shape cannot be read."""
    try:
        shape = memory.shape_in(model)
    except SrpoError:
        return 0
    return memory.checkpoint_bytes(shape, spec.execution, spec.method.teacher_has_weights).total


def _start_policy(spec: RunSpec, model: Path) -> AbstractContextManager[Policy]:
    start: Callable[[RunSpec, Path], AbstractContextManager[Policy]]
    # Ray is slow to import and not needed in one process
    with gc_paused():
        if spec.execution.driver == "ray":
            from srpo.policy import ray_driver

            start = ray_driver.start
        else:
            from srpo.policy import in_process

            start = in_process.start
    return start(spec, model)
