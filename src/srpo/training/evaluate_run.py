"""The evaluate stage: resample the test split with the checkpoints of a run's budgets, or with the base model."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from srpo.experiment.config import Execution, Training
from srpo.experiment.job import READS, Job
from srpo.ground.files import read_json, read_mapping, write_events, write_json
from srpo.ground.gpus import hold_gpus
from srpo.ground.layout import Layout, RunFiles
from srpo.questions.splits import read_split
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.interface import MAX_RESTARTS, RolloutEngine, ServersFailed
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.avg_at_k import EvaluationResult, evaluate_questions
from srpo.training.lengths import check_lengths
from srpo.training.mirror import Mirror
from srpo.training.provenance import check_origin, made_from

T = TypeVar("T")

SAVED_QUESTIONS = 8
"""Number of questions whose samples are written to ``samples.jsonl``."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """Weights in Hugging Face format and the training step that they come from."""

    path: Path
    step: int


def score_budgets(
    checkpoints: Mapping[str, Checkpoint | None], evaluate: Callable[[Path], EvaluationResult]
) -> tuple[dict[str, dict[str, Any] | None], list[dict[str, Any]]]:
    """Evaluate each distinct checkpoint once.

    Args:
        checkpoints: what each budget selected; ``None`` if it selected nothing.
        evaluate: scores the checkpoint in a directory.

    Returns:
        The ``budgets`` of ``evaluation.json``, ``None`` if there is no checkpoint, and the records of
        ``samples.jsonl``; budgets that share a checkpoint share its result.
    """
    evaluate_once = cache(evaluate)
    budgets: dict[str, dict[str, Any] | None] = {}
    samples: list[dict[str, Any]] = []
    for budget, checkpoint in checkpoints.items():
        if checkpoint is None:
            budgets[budget] = None
            continue
        result = evaluate_once(checkpoint.path)
        budgets[budget] = {"step": checkpoint.step, **result.scores()}
        samples += [{"budget": budget, **sample} for sample in result.samples]
    return budgets, samples


def evaluate_checkpoints(job: Job, layout: Layout) -> None:
    """Write ``evaluation.json`` and ``samples.jsonl`` of a finished run: each selected checkpoint is sampled.

    Raises:
        SrpoError: if the run was trained with other settings, data or weights than the job has.
    """
    files = layout.run_files(job.id)
    origin = made_from(job, layout, "evaluate")
    check_origin(files.folder, read_mapping(files.origin), origin | {"spec": job.settings(READS["train"])})
    checkpoints = {
        budget: found and Checkpoint(files.selected(found["step"]), found["step"])
        for budget, found in read_json(files.summary)["budgets"].items()
    }
    _evaluate(job, job.id.model_dump(), checkpoints, layout, files, origin)


def evaluate_base(job: Job, benchmark: str, layout: Layout) -> None:
    """Write ``evaluation.json`` and ``samples.jsonl`` of an untrained model."""
    run = {"model": job.model.name, "benchmark": benchmark, "method": "base", "seed": 0}
    origin = made_from(job, layout, "evaluate_base")
    checkpoints = {"base": Checkpoint(layout.model(job.model.name), step=0)}
    _evaluate(job, run, checkpoints, layout, layout.base_files(job.model.name, benchmark), origin)


def _evaluate(
    job: Job,
    run: dict[str, Any],
    checkpoints: Mapping[str, Checkpoint | None],
    layout: Layout,
    files: RunFiles,
    origin: dict[str, Any],
) -> None:
    start, limits = time.perf_counter(), job.training
    tokenizer = open_tokenizer(layout.model(job.model.name))
    ends = end_tokens(layout.model(job.model.name), tokenizer)
    questions = read_split(layout.split(job.benchmark.data_set, "test"))
    check_lengths(tokenizer, questions, "test", limits)

    def evaluate(path: Path) -> EvaluationResult:
        def sample(engine: RolloutEngine) -> EvaluationResult:
            return evaluate_questions(
                engine,
                tokenizer,
                questions,
                job.evaluation,
                limits.max_prompt_length,
                limits.max_response_length,
                seed_key=("evaluation", *run.values()),
                save=SAVED_QUESTIONS,
            )

        engines = partial(serving, job.execution, limits, path, files.server_log, ends, top_p=job.evaluation.top_p)
        return with_servers(sample, engines)

    budgets, samples = score_budgets(checkpoints, evaluate)
    # The evaluation is written last: if it exists, the samples exist too.
    write_events(files.samples, samples)
    evaluation = {
        "run": run,
        "k": job.evaluation.rollouts,
        "questions": len(questions),
        "budgets": budgets,
        "wall_seconds": time.perf_counter() - start,
        "from": origin,
    }
    write_json(files.evaluation, evaluation)
    Mirror(layout).update(files)


def with_servers(
    sample: Callable[[RolloutEngine], T], engines: Callable[[], AbstractContextManager[RolloutEngine]]
) -> T:
    """Sample with an engine (:func:`serving`). If its server fails, again with a new one."""
    for _ in range(MAX_RESTARTS):
        try:
            with engines() as engine:
                return sample(engine)
        except ServersFailed as error:
            logger.warning("starting a new server (%s)", error)
    with engines() as engine:
        return sample(engine)


@contextmanager
def serving(
    execution: Execution,
    limits: Training,
    checkpoint: Path,
    log: Path,
    ends: frozenset[int],
    *,
    max_prompt_length: int | None = None,
    top_p: float = 1.0,
) -> Iterator[RolloutEngine]:
    """The rollout engine with a checkpoint's weights, on all devices of a run.

    Args:
        ends: the base model's token ids that end a response.
        max_prompt_length: in tokens; default: the student's.
        top_p: of the samples. At 1 SGLang's error in seeded samples cannot be repaired (``nucleus_floor``), so samples
            have no seed then.
    """
    if execution.rollout_engine == "embedded":
        from srpo.rollout.embedded import EmbeddedEngine

        yield EmbeddedEngine.from_pretrained(checkpoint, execution.precision, ends)
        return
    from srpo.rollout.sglang_protocol import ServerOptions
    from srpo.rollout.sglang_server import SGLangServer

    options = ServerOptions(
        context_length=(max_prompt_length or limits.max_prompt_length) + limits.max_response_length,
        tensor_parallel=execution.rollout_tensor_parallel,
        data_parallel=execution.ranks // execution.rollout_tensor_parallel,
        dtype=execution.precision,
        ends=ends,
        deterministic=top_p < 1,
    )
    hold_gpus(execution.ranks)
    with SGLangServer(checkpoint, log, options) as server:
        yield server
