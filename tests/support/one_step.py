"""A fixed batch of rollouts, taken through a run's phases and, slowly, through plain transformers in float64."""

import copy
import shutil
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from helpers import Sample, first_correct_sibling, slow_objective
from tiny import prepare, tiny_experiment
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM

from srpo.algorithm.method import Method
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.targets import Targets
from srpo.experiment.config import RunSpec, Training
from srpo.ground.layout import Layout
from srpo.policy.in_process import InProcessPolicy
from srpo.policy.interface import Policy
from srpo.questions.prompts import student_prompts, teacher_prompt_ids
from srpo.questions.splits import Question, read_split
from srpo.training.batch import Batch
from srpo.training.step import Step

REWARDS = [0, 1, 1, 0] + [0] * 4 + [0, 0, 1, 0] + [1] * 4  # mixed, all wrong, a single success, all right
RUNS = len(REWARDS)


def build_base(folder: Path) -> Layout:
    """Splits and a random tiny Qwen3; below ``untied`` another with an output head of its own, like Qwen3-8B."""
    layout = prepare(tiny_experiment("srpo"), folder)[1]
    untied = layout.folder / "untied" / "miniature-tiny"
    shutil.copytree(layout.model("miniature-tiny"), untied)
    config = AutoConfig.from_pretrained(untied)
    config.tie_word_embeddings = False
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(untied)
    return layout


@dataclass(frozen=True)
class Prepared:
    """What a step computes before its update."""

    batch: Batch
    old_log_probs: dict[int, Tensor]
    teacher: TeacherLogProbs
    targets: dict[int, Targets]


@dataclass(frozen=True)
class OneStep:
    """A step of a run and what it is taken with."""

    spec: RunSpec
    policy: Policy
    train_questions: list[Question]

    @property
    def step(self) -> Step:
        return Step(self.spec, self.policy, 1)

    @property
    def method(self) -> Method:
        return self.spec.method

    @property
    def training(self) -> Training:
        return self.spec.training

    @property
    def tokenizer(self):
        return self.policy.tokenizer


def build_run(
    base: Layout,
    root: Path,
    name: str,
    mini_batch_questions: int = 4,
    tied: bool = True,
    execution: dict | None = None,
    policy: Callable[[RunSpec, Path], Any] = InProcessPolicy,
    changes: dict | None = None,
    **training,
) -> OneStep:
    """A step of method ``name``, with these changes, with inputs below ``root``; its teacher is a little off."""
    training = {"warmup_steps": 0, "max_reprompt_len": 108, **training}
    experiment = tiny_experiment(name, execution, changes, **training)
    root.mkdir(parents=True, exist_ok=True)
    for part in ("data", "models"):
        if not (root / part).exists():
            (root / part).symlink_to(base.folder / (part if tied or part == "data" else "untied"))
    spec, layout = experiment.run(experiment.runs()[0]), Layout(root)
    method = spec.method.model_copy(update={"mini_batch_questions": mini_batch_questions})
    spec = spec.model_copy(update={"method": method})
    run = OneStep(
        spec, policy(spec, layout.model(spec.id.model)), read_split(layout.split(spec.benchmark.data_set, "train"))
    )
    teacher = run.policy.worker.actor.engine.teacher
    if teacher is not None:
        generator = torch.Generator().manual_seed(11)
        for parameter in teacher.parameters():
            noise = 0.05 * torch.randn(parameter.shape, generator=generator)
            local(parameter).add_(shard_like(noise, parameter))
    return run


def local(parameter: Tensor) -> Tensor:
    parameter = parameter.detach()
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def shard_like(full: Tensor, parameter: Tensor) -> Tensor:
    """This rank's shard of ``full``, where the parameter's is: an off-loaded one is not on its mesh's device."""
    if isinstance(parameter, DTensor):
        full = distribute_tensor(full, parameter.device_mesh, parameter.placements).to_local()
    return full.to(local(parameter).device)


def whole(tensor: Tensor) -> Tensor:
    """A copy of a tensor that may be sharded, in host memory; all ranks must ask for it."""
    if isinstance(tensor, DTensor) and tensor.device_mesh.size() > 1:
        tensor = tensor.full_tensor()
    return local(tensor).cpu().clone()


def record_updates(engine: Any) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """The weights of student and teacher after each update from now on, in lists that grow."""
    students: list[dict[str, Tensor]] = []
    teachers: list[dict[str, Tensor]] = []
    step = engine.optimizer_step

    def recording() -> float:
        norm = step()
        students.append(weights(engine.module))
        teachers.append(weights(engine.teacher))
        return norm

    engine.optimizer_step = recording
    return students, teachers


def weights(module) -> dict[str, Tensor]:
    return {name: whole(parameter) for name, parameter in module.named_parameters()}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def assert_same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Equal but for what AdamW, at a rate of 1e-3, makes of the last bits of gradients near zero."""
    assert largest_difference(one, other) < 1e-4
    assert fmean((one[name] - other[name]).abs().mean().item() for name in one) < 1e-7


class Reference:
    """The same run without verl: float64 models of transformers, AdamW and clipping of torch."""

    def __init__(self, run: OneStep) -> None:
        self.run, self.method = run, run.method
        path = run.policy.worker.actor.engine.model_config.local_path
        self.student = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
        self.teacher = copy.deepcopy(self.student)
        if run.policy.worker.actor.engine.teacher is not None:
            with torch.no_grad():
                for name, weight in weights(run.policy.worker.actor.engine.teacher).items():
                    self.teacher.get_parameter(name).copy_(weight)
        self.optimizer = torch.optim.AdamW(
            self.student.parameters(), lr=self.method.learning_rate, weight_decay=run.training.weight_decay
        )

    def log_probs(self, model, prompt: Tensor | list[int], response: Tensor) -> Tensor:
        """[response, vocabulary] log-distributions that predict a response."""
        ids = torch.cat([torch.as_tensor(prompt), response])[None]
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        return (logits / self.run.training.temperature).log_softmax(-1)

    def teacher_log_probs(self, prompt: Tensor | list[int], response: Tensor) -> Tensor:
        """[response, vocabulary] of the teacher, whatever its kind."""
        return self.log_probs(self.student if self.method.teacher.kind == "live" else self.teacher, prompt, response)

    def move_teacher(self) -> None:
        """After a batch, or after an update if the method says so."""
        share = self.method.teacher_update_rate if self.method.teacher.kind == "ema" else 0.0
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.copy_((1 - share) * slow + share * fast)

    def teacher_prompt(self, rollouts: Rollouts, i: int, sibling: int) -> list[int]:
        question = self.run.train_questions[int(rollouts.question[i])]
        limit = self.run.training.max_reprompt_len
        return teacher_prompt_ids(self.run.tokenizer, question.messages, rollouts.texts[sibling], limit)

    def truth_prompt(self, rollouts: Rollouts, i: int) -> list[int]:
        question = self.run.train_questions[int(rollouts.question[i])]
        shown = f"<answer> {question.ground_truth}</answer>"
        return teacher_prompt_ids(self.run.tokenizer, question.messages, shown, self.run.training.max_reprompt_len)

    def samples(self, rollouts: Rollouts) -> list[Sample]:
        result = []
        with torch.no_grad():
            for i, response in enumerate(rollouts.responses):
                group, reward = int(rollouts.question[i]), rollouts.rewards[i].item()
                old = self.log_probs(self.student, rollouts.prompts[i], response)
                result.append(Sample(group, reward, response.tolist(), rollouts.rollout_log_probs[i].tolist(), old))
            for i, sample in enumerate(result):
                sibling = first_correct_sibling(result, i)
                prompt = None if sibling is None else self.teacher_prompt(rollouts, i, sibling)
                if self.method.name == "grpo_with_anchor":
                    prompt = rollouts.prompts[i]
                if self.method.name == "i_sdpo":
                    alone = all(other.reward == 0 for other in result if other.group == sample.group)
                    prompt = self.truth_prompt(rollouts, i) if alone else None
                if prompt is not None:
                    log_probs = self.teacher_log_probs(prompt, rollouts.responses[i])
                    result[i] = replace(sample, teacher=log_probs)
        return result

    def step(self, rollouts: Rollouts) -> tuple[list, list[dict[str, Tensor]], list[float]]:
        """One batch: losses, gradients before clipping and their norms, update by update."""
        samples, losses, gradients, norms = self.samples(rollouts), [], [], []
        size = self.method.mini_batch_questions * 4
        for first in range(0, RUNS, size):
            rows = range(first, first + size)
            student = {i: self.log_probs(self.student, rollouts.prompts[i], rollouts.responses[i]) for i in rows}
            loss = slow_objective(self.method, samples, student, rows)
            if loss is None:
                continue
            self.optimizer.zero_grad()
            loss.total.backward()
            gradients.append({name: p.grad.clone() for name, p in self.student.named_parameters()})
            norms.append(torch.nn.utils.clip_grad_norm_(self.student.parameters(), self.run.training.clip_grad).item())
            self.optimizer.step()
            if getattr(self.method.teacher, "moves_after", None) == "update":
                self.move_teacher()
            losses.append(loss)
        if losses and getattr(self.method.teacher, "moves_after", None) == "batch":
            self.move_teacher()
        return losses, gradients, norms


_DRAWN: dict[tuple[Path, float, int], Rollouts] = {}
"""By base model, temperature and seed: the method changes no rollout."""


def draw_rollouts(run: OneStep, seed: int = 3) -> Rollouts:
    """Random responses of 1 to 12 tokens with fixed rewards; the rollout engine is a little off the trainer."""
    path = Path(run.policy.worker.actor.engine.model_config.local_path).resolve()
    key = path, run.training.temperature, seed
    if key not in _DRAWN:
        _DRAWN[key] = _draw(run, seed)
    return copy.deepcopy(_DRAWN[key])


def _draw(run: OneStep, seed: int) -> Rollouts:
    generator = torch.Generator().manual_seed(seed)
    lengths = [1 + (5 * i) % 12 for i in range(RUNS)]
    vocabulary = run.policy.worker.actor.engine.model_config.hf_config.vocab_size
    prompts = [
        torch.tensor(student_prompts(run.tokenizer, [run.train_questions[i // 4].messages], 96)[0]) for i in range(RUNS)
    ]
    responses = [torch.randint(3, vocabulary, (length,), generator=generator) for length in lengths]
    model = Reference(run)
    noise = [0.7 * torch.randn(length, generator=generator) for length in lengths]
    with torch.no_grad():
        log_probs = [
            model.log_probs(model.student, prompt, response)[torch.arange(len(response)), response].float()
            for prompt, response in zip(prompts, responses, strict=True)
        ]
    return Rollouts(
        question=torch.arange(4).repeat_interleave(4),
        prompts=prompts,
        responses=responses,
        texts=[f"<answer>{i}</answer>" for i in range(RUNS)],
        rollout_log_probs=[own + n for own, n in zip(log_probs, noise, strict=True)],
        rewards=torch.tensor(REWARDS, dtype=torch.float32),
        in_format=[True] * RUNS,
        truncated=torch.zeros(RUNS, dtype=torch.bool),
    )


def before_update(run: OneStep, rollouts: Rollouts) -> Prepared:
    """What the driver computes between generation and update."""
    batch = run.step.route(run.train_questions[:4], rollouts)
    old_log_probs, teacher = run.step.compute_log_prob(batch), run.step.compute_teacher_log_prob(batch)
    return Prepared(batch, old_log_probs, teacher, run.step.compute_targets(batch, old_log_probs, teacher))


def update(run: OneStep, prepared: Prepared) -> tuple[dict[str, float], list[dict[str, Tensor]]]:
    """The driver's update: its metrics, and the gradients of every optimizer step before clipping."""
    engine, gradients = run.policy.worker.actor.engine, []
    step = type(engine).optimizer_step

    def recording(self):
        gradients.append({name: whole(p.grad) for name, p in self.module.named_parameters()})
        return step(self)

    engine.optimizer_step = types.MethodType(recording, engine)
    metrics = update_with(run, prepared)
    del engine.optimizer_step
    return metrics, gradients


def update_with(run: OneStep, prepared: Prepared) -> dict[str, float]:
    return run.step.update(prepared.batch, prepared.targets)


def kept(run: OneStep, rollouts: Rollouts, name: str) -> dict[int, Tensor]:
    """[response, columns] what the ranks keep, by rollout; all ranks must ask, and one of them has a rollout."""
    parts = [run.policy.worker.kept.of(name)]
    if torch.distributed.get_world_size() > 1:
        parts = [{}] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, run.policy.worker.kept.of(name))
    found = {row: tensor for part in parts for row, tensor in part.items()}
    assert len(found) == sum(map(len, parts))
    lengths = map(len, rollouts.responses)
    return {row: found[row].unflatten(0, (length, -1)) for row, length in enumerate(lengths) if len(found.get(row, []))}


def numbers(run: OneStep, rollouts: Rollouts) -> dict[str, Tensor]:
    """Every number that a step of ``run`` computes from rollouts, by name; top-K tokens in the order of their ids."""
    prepared = before_update(run, rollouts)
    metrics, gradients = update(run, prepared)
    engine = run.policy.worker.actor.engine
    ids, log_q = (kept(run, rollouts, name) for name in ("top_k_ids", "teacher_log_probs"))
    order = {row: own.argsort(1) for row, own in ids.items()}
    by_row = {
        "old_log_prob": prepared.old_log_probs,
        "top_k_ids": {row: own.gather(1, order[row]) for row, own in ids.items()},
        "teacher_log_prob": prepared.teacher.log_probs,
        "teacher_entropy": prepared.teacher.entropy,
        "teacher_log_probs": {row: _ordered(log_q[row], order[row]) for row in order},
    }
    tensors = {f"{kind}/{row}": tensor for kind, rows in by_row.items() for row, tensor in sorted(rows.items())}
    tensors |= {f"gradient/{i}/{name}": g for i, update in enumerate(gradients) for name, g in update.items()}
    tensors |= {f"student/{name}": weight for name, weight in weights(engine.module).items()}
    if engine.teacher is not None:
        tensors |= {f"teacher/{name}": weight for name, weight in weights(engine.teacher).items()}
    return tensors | {f"metric/{name}": torch.tensor(v, dtype=torch.float64) for name, v in metrics.items()}


def _ordered(log_probs: Tensor, order: Tensor) -> Tensor:
    """[response, K + 1] log-probs of ids in order, the tail last."""
    return torch.cat([log_probs[:, :-1].gather(1, order), log_probs[:, -1:]], 1)


def relative_differences(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Norm of the difference over the norm of what is expected, of each number by its name.

    A gradient is measured against all gradients of its update, a loss against the size of the terms that it sums; ids
    count as far off unless they are the same.
    """
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    result: dict[str, float] = {}
    for name, tensor in expected.items():
        kind, other = name.split("/")[0], found[name]
        assert other.shape == tensor.shape, name
        scale = tensor.double().norm()
        if kind == "gradient":
            update = name.split("/")[1]
            scale = torch.stack(
                [t.double().norm() for n, t in expected.items() if n.startswith(f"gradient/{update}/")]
            ).norm()
        if name.startswith("metric/loss/"):
            # terms of size 0.1 to 1 that mostly cancel: a rounding error is one of the terms, not of what is left
            scale = scale.clamp(min=0.1)
        if kind == "top_k_ids":
            result[name] = 0.0 if torch.equal(other, tensor) else 1.0
        else:
            result[name] = ((other.double() - tensor.double()).norm() / scale.clamp(min=1e-12)).item()
    return result
