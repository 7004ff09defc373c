"""SRPO and its relatives in TRL 1.16: a configuration and a trainer, used as TRL's own.

TRL samples, builds the teacher's prompts, keeps the teacher and steps the optimizer, as its SDPO trainer does. Routing,
advantages, weights and loss are this package's, over the whole mini-batch: all processes and all gradient accumulation
steps. docs/verl.md has what TRL cannot do; examples/trl_trainer.py is a whole program.
"""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.distribution import entropy
from srpo.algorithm.method import Method
from srpo.algorithm.teacher import SIBLING_ONLY
from srpo.hosts.functional import Totals, load_method, loss, totals

try:
    with warnings.catch_warnings(action="ignore"):  # that SDPO is experimental in TRL
        from safetensors.torch import load_model, save_model
        from transformers import TrainerCallback
        from trl.experimental.sdpo import SDPOConfig, SDPOTrainer
        from trl.experimental.sdpo.teacher_sync import SyncTeacherModelCallback
except ImportError as error:
    raise ImportError(f"srpo.hosts.trl needs TRL 1.16 ({error}); run: python -m pip install 'srpo[trl]'") from error

HYPERPARAMETERS = {
    "learning_rate": "learning_rate",
    "epsilon": "clip_ratio_low",
    "epsilon_high": "clip_ratio_high",
    "distillation_alpha": "distillation_alpha",
    "distillation_topk": "distillation_topk",
    "distillation_is_clip": "distillation_is_clip",
    "teacher_update_rate": "teacher_update_rate",
}
"""Fields of the configuration that are hyperparameters of the method, by TRL's names."""

TEACHERS = {"ema": "ema", "frozen": "base", "live": "live"}
"""TRL's ``teacher_model_kind`` of a teacher."""

OF_SAMPLES = ("top_p", "top_k", "min_p", "repetition_penalty", "neftune_noise_alpha")
"""Fields of TRL with which samples would not be the policy's."""

GENERATION = {"use_cache", "cache_implementation", "eos_token_id", "pad_token_id", "stop", "stop_token_ids"}
"""What ``generation_kwargs`` may have. With anything else samples may not be the policy's."""

OF_THE_METHOD = {
    "distillation_weight": "a rollout is routed, losses are not mixed",
    "distillation_mode": "the loss is of the top K and the tail",
    "distillation_add_tail": "the loss is of the top K and the tail",
    "include_environment_feedback": "the teacher is shown correct siblings only",
    "use_teacher_server": "the loss needs the teacher's logits",
    "use_successful_as_teacher": "the teacher is shown correct siblings",
    "dont_reprompt_on_self_success": "a rollout's own response is not shown to its teacher",
    "importance_sampling_level": "ratios are of tokens",
    "loss_type": "the denominator is the number of trained tokens of the mini-batch",
    "scale_rewards": "advantages are not divided by a deviation",
    "beta": "there is no KL term",
    **dict.fromkeys(OF_SAMPLES, "samples are those of the policy that is trained"),
    "teacher_model_kind": "the method has its teacher",
    "teacher_sync_steps": "the teacher moves by the method's clock",
    "auto_find_batch_size": "the size of a mini-batch is part of the method",
}
"""Fields of TRL that a user cannot change, and why."""


@dataclass
class SRPOConfig(SDPOConfig):
    """TRL's arguments, with the method's hyperparameters and the paper's optimizer. Sizes and lengths stay TRL's.

    ``method`` is a name or a ``Method``, such as ``srpo.load_method("srpo", entropy_beta=0.5)``. None is the method's
    own value. Without ``success_reward_threshold`` a rollout's reward must be 1 or 0.
    """

    method: str = field(default="srpo", metadata={"help": "A method of srpo: srpo, sdpo, grpo, rlsd, ..."})
    learning_rate: float | None = None
    epsilon: float | None = None
    distillation_alpha: float | None = None
    distillation_is_clip: float | None = None
    teacher_update_rate: float | None = None
    distillation_mode: str = "topk_logits"
    distillation_add_tail: bool = True
    scale_rewards: str = "none"
    weight_decay: float = 0.01
    warmup_steps: float = 10
    lr_scheduler_type: str = "constant_with_warmup"
    success_reward_threshold: float | None = None
    # the teacher's prompt, as srpo.teacher_messages makes it; TRL also strips white space around the solution
    reprompt_template: str = "{prompt}{solution}{feedback}\n\nCorrectly solve the original question."
    solution_template: str = "\nCorrect solution:\n\n{successful_previous_attempt}"
    remove_thinking_from_demonstration: bool = True

    def __post_init__(self) -> None:
        self.scale_rewards = self.scale_rewards or "none"  # False is TRL's other name of it
        for name, reason in OF_THE_METHOD.items():
            if (value := getattr(self, name)) != (default := getattr(type(self), name)):
                raise ValueError(f"{name} = {value!r}: {reason}; leave it at {default!r}")
        own = {ours: v for theirs, ours in HYPERPARAMETERS.items() if (v := getattr(self, theirs)) is not None}
        of: Any = self.method
        if isinstance(of, Method):
            method = Method.model_validate({**of.model_dump(), **own})
            self.method = of.name  # TRL writes the arguments as JSON
        else:
            method = load_method(of, **own)
        _check_trl_can_run(method)
        if others := {*(self.generation_kwargs or {})} - GENERATION:
            raise ValueError(f"generation_kwargs = {sorted(others)}: {OF_THE_METHOD['top_p']}")
        self.num_generations_eval: Any = self.num_generations_eval or self.num_generations
        self._rewards_are_binary = self.success_reward_threshold is None
        least_right: Any = 1.0 if self._rewards_are_binary else self.success_reward_threshold
        # rewards are float32: TRL would find the reward 0.7 less than 0.7, and show no solution
        self.success_reward_threshold = torch.tensor(least_right, dtype=torch.float32).item()
        for theirs, ours in HYPERPARAMETERS.items():
            setattr(self, theirs, getattr(method, ours))
        super().__post_init__()
        if self.steps_per_generation % (per_update := self.gradient_accumulation_steps):
            what = f"steps_per_generation = {self.steps_per_generation}"
            raise ValueError(f"{what}: gradient_accumulation_steps = {per_update} does not divide it")
        self._method = method
        # a method that asks no teacher needs no second weights
        teacher = method.teacher
        self.teacher_model_kind = TEACHERS[teacher.kind] if method.needs_teacher else "live"
        every_batch = getattr(teacher, "moves_after", "batch") == "batch"
        self.teacher_sync_steps = self.updates_per_batch if every_batch else 1

    @property
    def updates_per_batch(self) -> int:
        """Optimizer updates on the rollouts that are generated together."""
        return self.steps_per_generation * self.num_iterations // self.gradient_accumulation_steps


def _check_trl_can_run(method: Method) -> None:
    for what, is_so in {
        "success_buffer": bool(method.success_buffer),
        "teacher_context": method.teacher_context != SIBLING_ONLY,
        "teacher under the student's own prompt": "not_shown" in {BRANCHES[name].sibling for name in method.branches},
        "preserve_loss_scale": method.preserve_loss_scale,
    }.items():
        if is_so:
            raise ValueError(f"method = {method.name!r}: TRL's trainer has no {what}")


def _check_dataset(name: str, data: Any, questions: int) -> None:
    """Check that it has as many questions as TRL takes at a time: of fewer it would train on none."""
    if not hasattr(data, "__len__") or len(data) < questions:
        raise ValueError(f"{name}: give a Dataset of at least {questions} questions, which are generated together")


def _checked(name: str, reward: Callable[..., Any]) -> Callable[..., list[float]]:
    """TRL broadcasts a list of one reward, and takes None and NaN for 0."""

    def call(**inputs: Any) -> list[float]:
        found, count = reward(**inputs), len(inputs["completions"])
        if len(found) != count or any(each is None or not math.isfinite(each) for each in found):
            raise ValueError(f"reward function {name}: give a finite number for each of {count} completions")
        return [float(each) for each in found]

    return call


PAPER = {
    "title": "Unifying Group-Relative and Self-Distillation Policy Optimization via Sample Routing",
    "id": "2604.02288",
    "citation": """\
@article{li2026srpo,
    title   = {Unifying Group-Relative and Self-Distillation Policy Optimization via Sample Routing},
    author  = {Li, Gengsheng and Yang, Tianyu and others},
    journal = {arXiv preprint arXiv:2604.02288},
    year    = {2026}
}""",
}
"""Of the card that TRL writes beside the weights; it would name SDPO's."""

TEACHER_FILE = "teacher.safetensors"
"""The teacher's weights, in a checkpoint's folder."""


class _SaveTeacher(TrainerCallback):
    def __init__(self, teacher: nn.Module) -> None:
        self.teacher = teacher

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            save_model(self.teacher, str(Path(args.output_dir) / f"checkpoint-{state.global_step}" / TEACHER_FILE))


class SRPOTrainer(SDPOTrainer):
    """TRL's SDPO trainer with the loss of ``args.method``. Rewards of several functions are summed, as in TRL.

    A rollout is correct if its reward is at least ``args.success_reward_threshold``. The mean reward is logged as
    ``self_distillation/reward_mean``.
    """

    _tag_names: ClassVar = ["trl", "srpo"]

    def __init__(self, model: Any, reward_funcs: Any = None, args: Any = None, **kwargs: Any) -> None:
        self.method, self._name = args._method, args._method.title
        self._paper = PAPER if self.method.name.startswith("srpo") else {}
        if (data := kwargs.get("train_dataset")) is not None:
            _check_dataset("train_dataset", data, args.generation_batch_size // args.num_generations)
        other = kwargs.get("eval_dataset")
        for data in other.values() if isinstance(other, dict) else [other] if other is not None else []:
            _check_dataset("eval_dataset", data, 1)
            at_once, samples = args.eval_batch_size * args.world_size, args.num_generations_eval
            if at_once % samples:
                what = f"per_device_eval_batch_size = {args.per_device_eval_batch_size}: {at_once} rollouts at a time"
                raise ValueError(f"{what} are not whole groups of {samples} (num_generations_eval)")
        super().__init__(str(model) if isinstance(model, Path) else model, reward_funcs, args, **kwargs)
        own, x = vars(self)["processing_class"], [{"role": "user", "content": "x"}]  # without a template: plain text
        begun = own.apply_chat_template(x, tokenize=False, add_generation_prompt=True) if own.chat_template else ""
        if begun.rstrip().endswith("<think>") and self.method.needs_teacher:
            raise ValueError("chat template: it opens <think>, so TRL would show the teacher a sibling's thoughts")
        if args.n_gpu > 1:  # 1 if the model's layers are on several GPUs
            what = f"{args.n_gpu} GPUs in one process: TRL would mix up groups"
            raise ValueError(f"{what}; start with accelerate launch, or set CUDA_VISIBLE_DEVICES")
        named = zip(self.reward_func_names, vars(self)["reward_funcs"], strict=True)  # TRL has no types
        self.reward_funcs: list[Any] = [f if isinstance(f, nn.Module) else _checked(name, f) for name, f in named]
        self._rewards: dict[bool, Tensor] = {}  # of all processes, by whether the model trains
        self._left = 0  # micro-batches of this update
        self._of_all = Totals()
        self._limit = "max_reprompt_len", "teacher's prompt"  # of the prompts that are tokenized

    def _setup_teacher_model(self) -> None:
        """The teacher is a copy of the model that is given; TRL reads the files of the model's name again."""
        if self._is_sharded or self.args.teacher_model_kind == "live" or getattr(self.model, "peft_config", None):
            super()._setup_teacher_model()
            return
        dtype = next(self.model.parameters()).dtype
        averages = self.args.teacher_model_kind == "ema" and self.args.teacher_update_rate < 1
        if averages and torch.finfo(dtype).bits < 32:
            raise ValueError(f"model is {dtype}: the teacher's average needs float32; load in float32, set bf16=True")
        teacher = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.teacher_model = self.accelerator.prepare_model(teacher, evaluation_mode=True)
        if self.args.teacher_model_kind == "ema":
            self.add_callback(SyncTeacherModelCallback(teacher_model=self.teacher_model, accelerator=self.accelerator))
        self.add_callback(_SaveTeacher(self.accelerator.unwrap_model(self.teacher_model)))

    @property
    def _is_sharded(self) -> bool:
        return self.is_deepspeed_enabled or self.is_fsdp_enabled

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """TRL's, with the teacher of the checkpoint.

        Raises:
            ValueError: if the checkpoint has no teacher and the method needs its own.
        """
        lost = self.args.teacher_model_kind == "ema" if self.teacher_model is self.model else self._is_sharded
        if resume_from_checkpoint and lost:
            raise ValueError("resume_from_checkpoint: TRL saves no teacher with PEFT, DeepSpeed or FSDP; start anew")
        self._step, self._left = 0, 0  # an earlier call may have been interrupted
        self._buffered_inputs: Any = None
        return super().train(resume_from_checkpoint, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.teacher_model is not self.model:
            load_model(self.accelerator.unwrap_model(self.teacher_model), Path(resume_from_checkpoint) / TEACHER_FILE)

    def _tokenize_prompts(self, prompts: list[Any]) -> list[list[int]]:
        self._limit = "max_prompt_length", "prompt"
        found = super()._tokenize_prompts(prompts)
        self._limit = "max_reprompt_len", "teacher's prompt"
        return found

    def _tokenize_prompts_untruncated(self, prompts: list[Any]) -> list[list[int]]:
        found = super()._tokenize_prompts_untruncated(prompts)
        (name, what), longest = self._limit, max(map(len, found), default=0)
        if (most := getattr(self.args, name)) is not None and longest > most:
            warnings.warn(f"{name} = {most}: a {what} has {longest} tokens, and TRL cuts its beginning", stacklevel=2)
        return found

    def _generate_transformers(self, prompt_ids: list[list[int]]) -> Any:
        """The model's own settings, such as ``min_p``, would fill those that TRL leaves open."""
        model = self.accelerator.unwrap_model(self.model)
        model = getattr(model, "get_base_model", lambda: model)()
        own, model.generation_config = model.generation_config, self.generation_config
        try:
            return super()._generate_transformers(prompt_ids)
        finally:
            model.generation_config = own

    def _record_reward_diagnostics(self, mode: str, rewards: Tensor, by_function: Tensor, deviations: Tensor) -> None:
        """TRL takes the deviation of each group to be 1, where advantages are not divided by it."""
        groups = rewards.view(len(deviations), -1)
        super()._record_reward_diagnostics(mode, rewards, by_function, groups.std(1, correction=groups.shape[1] > 1))

    def _prepare_training_batch(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._prepare_training_batch(inputs)
        size = len(batch["rewards"])
        rewards = self._rewards[self.model.training] = self.accelerator.gather(batch["rewards"])
        other = rewards[(rewards != 0) & (rewards != 1)]
        if self.args._rewards_are_binary and len(other):
            what = f"a rollout's reward is {other[0].item():g}, not 1 or 0"
            raise ValueError(f"{what}: set success_reward_threshold to the least reward of a correct rollout")
        # the place of each rollout among those of all processes; a group's are adjacent
        batch["rows"] = torch.arange(size, device=batch["rewards"].device) + size * self.accelerator.process_index
        return batch

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training:
            self._of_all = self._totals([inputs])
        elif not self._left:  # an update begins
            first, count, buffered = self._step, self.current_gradient_accumulation_steps, self._buffered_inputs
            self._of_all = self._totals([buffered[(first + i) % len(buffered)] for i in range(count)])
            self._left = count
        return inputs

    def _batch(self) -> dict[str, Any]:
        """What routing needs of all rollouts that were generated together."""
        samples = self.num_generations if self.model.training else self.num_generations_eval
        rewards = self._rewards[self.model.training]
        return {
            "rewards": rewards,
            "groups": torch.arange(len(rewards)) // samples,
            "method": self.method,
            "step": self.state.global_step // self.args.updates_per_batch + 1,
            "correct": self.args.success_reward_threshold,
        }

    @torch.no_grad()
    def _totals(self, parts: list[dict[str, Any]]) -> Totals:
        """Of the mini-batch: the micro-batches of all processes. Weights ask the teacher once more, before the loss."""
        own = Totals()
        for part in parts:
            lengths = part["completion_mask"].sum(1)
            entropies = None
            if self.method.weights_tokens:
                valid = part["completion_mask"].bool()
                logits = self._teacher_logits(part)
                entropies = [entropy(row[mask]) for row, mask in zip(logits, valid, strict=True)]
            own += totals(lengths, entropies, **self._batch(), rows=part["rows"])
        values = torch.tensor([own.tokens, own.distilled, own.weight], dtype=torch.float64)
        tokens, distilled, weight = self.accelerator.reduce(values.to(self.accelerator.device)).tolist()
        return Totals(int(tokens), int(distilled), weight)

    @torch.no_grad()
    def _teacher_logits(self, part: dict[str, Any]) -> Tensor:
        """Without dropout, which the adapter of TRL's teacher has."""
        inputs, mask, trains = part["teacher_input_ids"], part["teacher_attention_mask"], self.teacher_model.training
        with self._get_teacher_context_for_self_distillation():
            self.teacher_model.eval()
            logits = self._forward_logits(self.teacher_model, inputs, mask, part["completion_ids"].shape[1])
            self.teacher_model.train(trains)
        return logits

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """Section 3.3 on a micro-batch: the sum of all of a mini-batch's is the objective."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        value, metrics = loss(
            self._forward_logits(model, ids, mask, inputs["completion_ids"].shape[1]),
            self._teacher_logits(inputs) if self.method.needs_teacher else None,
            inputs["completion_ids"],
            inputs["completion_mask"],
            **self._batch(),
            old_log_probs=inputs.get("old_per_token_logps"),
            rows=inputs["rows"],
            of_all=self._of_all,
        )
        if model.training:
            self._left -= 1
        for name, number in metrics.items():
            if name == "loss/divergence" or not name.startswith("loss/"):  # TRL logs means, these are shares of a sum
                self._metrics["train" if model.training else "eval"][name].append(number)
        return value * self.accelerator.num_processes  # gradients are averaged over processes
