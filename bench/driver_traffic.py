"""Measures what a step sends through Ray's driver, in bytes and seconds: distributions carried, and kept by workers.

    OMP_NUM_THREADS=1 python bench/driver_traffic.py [--tokens 400000] [--ranks 2] [--repeats 3]

The steps are the project's own, with the paper's settings and 32 x 8 rollouts of random lengths that sum to the given
number of tokens; every question has right and wrong rollouts. The workers are processes of a Ray cluster that have no
model: they return numbers of the right shapes at once, so that what is measured is assembling, cutting, sending and
taking apart. ``carried`` takes top-K ids and the teacher's distributions from the workers to the driver and back, as
training did before it kept them on the workers; ``kept`` is what it does. Seconds are the least of the repeats.
"""

import argparse
import time
from collections.abc import Callable

import ray
import torch
from tabulate import tabulate
from tensordict import TensorDict
from torch import Tensor
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils as tu

from srpo.algorithm.rollouts import Rollouts
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import RunSpec, Training
from srpo.experiment.flops import ModelCost, model_cost
from srpo.experiment.memory import shape_of
from srpo.ground.repository import CONFIGS
from srpo.policy import platform as _platform  # noqa: F401  verl was imported before it could find it
from srpo.policy.batches import jagged
from srpo.policy.worker import KeptLogProbs
from srpo.training.batch import Batch
from srpo.training.step import Step

METHODS = ("grpo", "sdpo", "srpo")
PROMPT, TEACHER_PROMPT = 300, 2000
"""Tokens of every prompt."""

VOCABULARY, DISTINCT = 151_936, 10_000
"""Tokens that there are, and those that responses are made of."""

to_ranks = register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))


class RankWithoutModel(Worker):
    """Answers each pass with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("actor", dp_rank=self.rank, is_collect=True)
        self.kept = KeptLogProbs()

    @to_ranks
    def compute_log_prob(self, data: TensorDict) -> TensorDict:
        """As ``SRPOWorker``'s."""
        tokens = (data["input_ids"].offsets().diff() - data["prompt_lengths"]).tolist()
        of_teacher = [int(row.sum()) for row in data["uses_teacher"].unbind()]
        ids = _zeros([tu.get(data, "top_k") * count for count in of_teacher], torch.int64)
        return self._answer(data, {"log_probs": _zeros(tokens), "top_k_ids": ids})

    @to_ranks
    def compute_teacher_log_prob(self, data: TensorDict) -> TensorDict:
        """As ``SRPOWorker``'s."""
        if not tu.get(data, "carried"):
            self.kept.add(data, "top_k_ids", fillers=True)
        tokens = (data["input_ids"].offsets().diff() - data["prompt_lengths"]).tolist()
        outputs = {
            "log_probs": _zeros(tokens),
            "entropy": _zeros(tokens),
            "argmax_ids": _zeros(tokens, torch.int64),
            "teacher_log_probs": _zeros([(tu.get(data, "top_k") + 1) * count for count in tokens]),
        }
        return self._answer(data, outputs)

    @to_ranks
    def update_actor(self, data: TensorDict) -> TensorDict:
        """As ``SRPOWorker``'s."""
        if not tu.get(data, "carried"):
            self.kept.add(data, "top_k_ids")
            self.kept.add(data, "teacher_log_probs")
        return tu.get_tensordict({}, {"metrics": {"grad_norm": [1.0], "lr": [0.0], "loss/sdpo": [0.0]}})

    def _answer(self, data: TensorDict, outputs: dict[str, Tensor]) -> TensorDict:
        output = tu.get_tensordict(outputs, {"metrics": {}})
        if not tu.get(data, "carried"):
            self.kept.keep(data, output)
        return output


def _zeros(lengths: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    return jagged([torch.zeros(length, dtype=dtype) for length in lengths])


class RankPolicy:
    """The ranks as a step sees them, and how many bytes went to them and came back."""

    def __init__(self, ranks: RayWorkerGroup, cost: ModelCost, carried: bool) -> None:
        self.ranks, self.cost, self.carried = ranks, cost, carried
        self.tokenizer = WordTokenizer()
        self.kept = KeptLogProbs()  # the driver's own, where distributions are carried
        self.bytes = 0

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass."""
        return self._send(self.ranks.compute_log_prob, batch)

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass."""
        if self.carried:
            self.kept.add(batch, "top_k_ids", fillers=True)
        return self._send(self.ranks.compute_teacher_log_prob, batch)

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """The update."""
        if self.carried:
            self.kept.add(batch, "top_k_ids")
            self.kept.add(batch, "teacher_log_probs")
        return self._send(self.ranks.update_actor, batch)

    def _send(self, call: Callable[[TensorDict], TensorDict], batch: TensorDict) -> TensorDict:
        tu.assign_non_tensor(batch, carried=self.carried)
        output = call(batch)
        self.bytes += _bytes(batch) + _bytes(output)
        if self.carried:
            self.kept.keep(batch, output)
        return output


def _bytes(data: TensorDict) -> int:
    return sum(part.values().nbytes + part.offsets().nbytes for part in data.values() if isinstance(part, Tensor))


class WordTokenizer:
    """What a step asks of a tokenizer between its passes."""

    all_special_ids = (0,)

    def __len__(self) -> int:
        return VOCABULARY

    def batch_decode(self, ids: Tensor) -> list[str]:
        """A word for each id."""
        return [f" word{token}" for token in ids.flatten().tolist()]


class StepWithoutPrompts(Step):
    """A step whose teacher's prompts need no questions."""

    def _teacher_prompts(self, batch: Batch) -> dict[int, Tensor]:
        return dict.fromkeys(batch.of_teacher, torch.ones(TEACHER_PROMPT, dtype=torch.int64))


def draw_rollouts(training: Training, tokens: int) -> Rollouts:
    """Rollouts of random lengths that sum to ``tokens``; a third of each question's are right."""
    samples = training.rollouts_per_question
    count = training.questions_per_batch * samples
    generator = torch.Generator().manual_seed(1)
    shares = 0.25 + torch.rand(count, generator=generator)
    lengths = (shares / shares.sum() * tokens).long().tolist()
    lengths[0] += tokens - sum(lengths)
    return Rollouts(
        question=torch.arange(training.questions_per_batch).repeat_interleave(samples),
        prompts=[torch.ones(PROMPT, dtype=torch.int64)] * count,
        responses=[torch.randint(1, DISTINCT, (length,), generator=generator) for length in lengths],
        texts=[""] * count,
        rollout_log_probs=[torch.full((length,), -1.0) for length in lengths],
        rewards=(torch.arange(count) % samples < samples // 3).float(),
        in_format=[None] * count,
        truncated=torch.zeros(count, dtype=torch.bool),
    )


def measure(spec: RunSpec, policy: RankPolicy, rollouts: Rollouts, number: int) -> dict[str, float]:
    """Seconds of each part of step ``number`` after its generation, and its megabytes."""
    step, policy.bytes = StepWithoutPrompts(spec, policy, number), 0
    batch = step.route([], rollouts)
    old_log_probs, teacher = step.compute_log_prob(batch), step.compute_teacher_log_prob(batch)
    start = time.perf_counter()
    targets = step.compute_targets(batch, old_log_probs, teacher)
    between = time.perf_counter() - start
    wall = dict(step.phases.wall)
    start = time.perf_counter()
    step.update(batch, targets)
    update = time.perf_counter() - start
    seconds = {"student": wall["log_prob"], "teacher": wall["teacher"], "targets": between, "update": update}
    of_teacher = sum(len(rollouts.responses[row]) for row in teacher.entropy)
    return {"teacher's tokens": of_teacher, "MB": policy.bytes / 1e6, **seconds, "all": sum(seconds.values())}


def main() -> None:
    """Print a table, a line for each method and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    experiment = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    execution = experiment.execution.model_copy(update={"ranks": options.ranks})
    specs = {run.method: experiment.run(run) for run in experiment.runs() if run.method in METHODS}
    rollouts = draw_rollouts(experiment.training, options.tokens)
    ray.init(address="local", include_dashboard=False, num_cpus=2 * options.ranks, object_store_memory=6 * 2**30)
    pool = RayResourcePool([options.ranks], use_gpu=False, max_colocate_count=1)
    ranks = RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(RankWithoutModel)), device_name="cpu")
    lines = []
    for method, spec in specs.items():
        spec = spec.model_copy(update={"execution": execution})
        cost = model_cost(shape_of(spec.model))
        ways = {"carried": RankPolicy(ranks, cost, True), "kept": RankPolicy(ranks, cost, False)}
        found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for number in range(1, options.repeats + 1):
            for way, policy in ways.items():
                found[way].append(measure(spec, policy, rollouts, number))
        for way, repeats in found.items():
            lines.append([method, way, *(min(repeat[key] for repeat in repeats) for key in repeats[0])])
    ray.shutdown()
    columns = ["method", "distributions", "teacher's tokens", "MB", "student, s", "teacher, s", "targets, s"]
    columns += ["update, s", "all, s"]
    print(f"{options.tokens} response tokens, {options.ranks} ranks, the least of {options.repeats} repeats")
    print(tabulate(lines, columns, floatfmt=("", "", ".0f", ".0f", ".2f", ".2f", ".2f", ".2f", ".2f")))


if __name__ == "__main__":
    main()
