"""verl's FSDP engine with a self-teacher and response-only model outputs.

verl's engine computes logits of every position of prompt and response and returns one number per token. This one
computes them only where response tokens are predicted. It also returns the student's top-K ids (old log-prob pass, or
the update if the batch has one update), the teacher's distribution on them or on the whole vocabulary (teacher pass),
and the student's distribution with gradients (update). The ``pass_name`` entry of a batch selects the pass
(:data:`PASSES`). Sequences are packed, never padded, and share prompts.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, GenerationConfig, PretrainedConfig
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_torch_device
from verl.utils.fsdp_utils import load_fsdp_model_to_gpu, offload_fsdp_model_to_cpu
from verl.utils.torch_dtypes import PrecisionType
from verl.utils.transformers_compat import drop_tied_target_keys
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from srpo.algorithm.distribution import entropy, token_and_top_k_log_probs, token_log_probs, top_k_ids
from srpo.algorithm.routing import has_loss
from srpo.algorithm.teacher import Ema, Teacher
from srpo.ground.layout import WEIGHTS
from srpo.policy.batches import unpack_targets
from srpo.policy.shared_prompts import PackedRows
from srpo.policy.verl_private import build_sharded_copy


def write_weights(folder: Path, tensors: dict[str, Tensor], config: PretrainedConfig) -> None:
    """Write weights as they are, with the model's configuration, as verl's checkpoint manager does (``hf_model``).

    The configuration names the precision of the weights, and not the attention of the training, which transformers
    may not have: the checkpoint loads without options.

    Args:
        folder: may hold ``generation_config.json``, which is kept.
        tensors: by the model's parameter names, on the CPU; of tied ones the second is removed.
    """
    config = deepcopy(config)
    vars(config).pop("attn_implementation", None)  # verl sets it beside transformers' own, which is not saved
    dtype = next(iter(tensors.values())).dtype
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.to_empty(device="cpu")  # memory that is never touched
    if (folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    drop_tied_target_keys(tensors, model, config)
    model.save_pretrained(folder, state_dict=tensors)


class SelfTeacherEngine(FSDPEngineWithLMHead):
    """The student, its optimizer and the ``teacher``'s weights; None if it has none of its own, as a live one."""

    module: Any
    teacher: Any = None
    offload_teacher = False
    _student_moved = False

    # ------------------------------------------------------------ the teacher

    def attach_teacher(self, kind: Teacher, rate: float, offload: bool = False) -> None:
        """Build the weights of the self-teacher as a copy of the student, with the student's mesh and sharding.

        Args:
            kind: a live one has only the student's weights, so nothing is built.
            rate: ``teacher_update_rate``.
            offload: keep the teacher's shards in host memory between its passes.
        """
        if not kind.has_weights:
            return
        self._kind, self._rate, self.offload_teacher = kind, rate, offload
        self.teacher = build_sharded_copy(self).eval()
        self._move_teacher(1.0)
        if offload:
            _offload(self.teacher)

    @torch.no_grad()
    def _move_teacher(self, share: float) -> None:
        for slow, fast in zip(self.teacher.parameters(), self.module.parameters(), strict=True):
            theirs, ours = _local(slow), _local(fast)
            # on the student's device: one core of the host takes seconds
            theirs.copy_(theirs.to(ours.device).lerp_(ours.to(theirs.dtype), share))

    def optimizer_step(self) -> float:
        """verl's step, which skips non-finite gradients; then the teacher's, if it follows each update."""
        grad_norm = super().optimizer_step()
        if math.isfinite(grad_norm):
            self._student_moved = True
            self._follow("update")
        return grad_norm

    def end_batch(self) -> None:
        """Move the teacher if it follows each batch; not if all updates of the batch were skipped."""
        if self._student_moved:
            self._follow("batch")
        self._student_moved = False

    def _follow(self, after: str) -> None:
        if self.teacher is not None and isinstance(self._kind, Ema) and self._kind.moves_after == after:
            self._move_teacher(self._rate)

    @contextmanager
    def teacher_in_place(self) -> Iterator[None]:
        """Within this context the engine's forward passes go through the teacher; a live one is the student."""
        if self.teacher is None:
            yield
            return
        if self.offload_teacher:
            load_fsdp_model_to_gpu(self.teacher)
        student = self.module
        self.module = self.teacher
        try:
            yield
        finally:
            self.module = student
            _reshard(self.teacher)
            if self.offload_teacher:
                _offload(self.teacher)

    # ------------------------------------------------------------ checkpoints

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """verl's checkpoint, this rank's shard of the teacher, and the weights to evaluate."""
        super().save_checkpoint(local_path, *args, **kwargs)
        self._write_weights(Path(local_path) / WEIGHTS)
        if self.teacher is not None:
            shard = {name: _local(tensor) for name, tensor in self.teacher.named_parameters()}
            torch.save(shard, self._teacher_path(local_path))

    def save_weights(self, local_path: str) -> None:
        """What evaluation needs: the student in Hugging Face format, below ``local_path/huggingface``."""
        manager = self.checkpoint_manager
        contents, manager.checkpoint_save_contents = manager.checkpoint_save_contents, []
        try:
            super().save_checkpoint(local_path)  # without contents: its configuration and tokenizer
        finally:
            manager.checkpoint_save_contents = contents
        self._write_weights(Path(local_path) / WEIGHTS)

    def _write_weights(self, folder: Path) -> None:
        """Write the weights in the precision that they are computed with; rollout servers hold the same numbers.

        verl itself would write them in float32.
        """
        dtype = PrecisionType.to_dtype(self.engine_config.mixed_precision["param_dtype"])
        tensors = {}
        for name, tensor in self.get_per_tensor_param()[0]:  # all ranks gather each
            if self.rank == 0:
                tensors[name] = tensor.detach().to("cpu", dtype)
        if self.rank == 0:
            write_weights(folder, tensors, self.module.config)
        torch.distributed.barrier()

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """Restore verl's checkpoint and the teacher's shard; no code in a file is run."""
        with _weights_only():
            super().load_checkpoint(local_path, *args, **kwargs)
        if self.teacher is not None:
            # on the CPU: the device has no memory for a second copy
            shard = torch.load(self._teacher_path(local_path), map_location="cpu", weights_only=True)
            with torch.no_grad():
                for name, tensor in self.teacher.named_parameters():
                    _local(tensor).copy_(shard[name])

    def _teacher_path(self, local_path: str) -> str:
        world_size = torch.distributed.get_world_size()
        return os.path.join(local_path, f"{self._kind.kind}_teacher_world_size_{world_size}_rank_{self.rank}.pt")

    # ------------------------------------------------------------ model inputs and outputs

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict, dict]:
        """Inputs without padding, for rows of several responses; the attention tells the rows apart.

        The language-model head is restricted to positions that predict a response token.
        """
        if self.use_ulysses_sp:
            raise NotImplementedError("ulysses_sequence_parallel_size > 1 is not supported by the SRPO engine")
        rows = PackedRows.of(
            micro_batch["prompt_lengths"],
            micro_batch["response_lengths"].offsets().diff(),
            micro_batch["response_lengths"].values(),
        )
        inputs = {
            "input_ids": micro_batch["input_ids"].values()[None],
            "position_ids": rows.positions[None],
            "attention_mask": None,
            "packed_rows": rows,
            "logits_to_keep": rows.predicting,
        }
        return inputs, {"temperature_is_one": micro_batch["temperature"] == 1}

    def prepare_model_outputs(
        self, output: Any, output_args: dict, micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict:
        """The outputs of the pass that the micro-batch names (:data:`PASSES`)."""
        logits = output.logits
        if isinstance(logits, DTensor):
            logits = logits.full_tensor()
        logits = logits[0]  # of packed sequences
        if not output_args["temperature_is_one"]:
            logits = logits / tu.get_non_tensor_data(micro_batch, "temperature", default=1.0)
        return PASSES[tu.get_non_tensor_data(micro_batch, "pass_name", default="update")](logits, micro_batch)


# ------------------------------------------------------------ the outputs of each pass


def old_log_prob_outputs(logits: Tensor, micro_batch: TensorDict) -> dict[str, Tensor]:
    """The student before the update: log pi_old and, of rollouts of the teacher, the top-K ids."""
    responses, lengths = _responses(micro_batch)
    rows = micro_batch["uses_teacher"].values()
    ids = top_k_ids(logits, _top_k(micro_batch), rows)
    of_tokens, log_probs = token_and_top_k_log_probs(logits, responses, rows, ids)
    lengths_of_rows = _lengths_where(rows, lengths)
    outputs = {
        "log_probs": _jagged(of_tokens, lengths),
        "top_k_ids": _jagged(ids.flatten(), lengths_of_rows * ids.shape[1]),
    }
    if tu.get_non_tensor_data(micro_batch, "keep_student_log_probs", default=False):
        outputs["student_log_probs"] = _jagged(log_probs.flatten(), lengths_of_rows * log_probs.shape[1])
    return outputs


def teacher_outputs(logits: Tensor, micro_batch: TensorDict) -> dict[str, Tensor]:
    """The teacher: the fields of ``TeacherLogProbs``, and its distributions on the student's top K or whole."""
    responses, lengths = _responses(micro_batch)
    outputs = {}
    if "top_k_ids" in micro_batch:
        ids = micro_batch["top_k_ids"].values().unflatten(0, (len(responses), -1))
        everywhere = torch.ones_like(responses, dtype=torch.bool)
        of_tokens, log_probs = token_and_top_k_log_probs(logits, responses, everywhere, ids)
        entropies = entropy(logits)
    else:
        log_probs = logits.float().log_softmax(-1)
        of_tokens = log_probs.gather(1, responses[:, None])[:, 0]
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        outputs["top_k_ids"] = _jagged(responses[:0], 0 * lengths)  # none: the update selects them
    return outputs | {
        "log_probs": _jagged(of_tokens, lengths),
        "entropy": _jagged(entropies, lengths),
        "teacher_log_probs": _jagged(log_probs.flatten(), lengths * log_probs.shape[1]),
    }


def update_outputs(logits: Tensor, micro_batch: TensorDict) -> dict[str, Tensor]:
    """The student in the update, with gradients: what :func:`srpo.policy.worker.srpo_loss` reads, not jagged."""
    (responses, _), targets = _responses(micro_batch), unpack_targets(micro_batch)
    if not len(targets.divergence_weight):
        return {"log_probs": token_log_probs(logits, responses)}
    rows, ids = has_loss(targets.branch, "distillation"), targets.top_k_ids
    if not ids.shape[1]:  # no pass before the update has selected the student's top K
        ids = top_k_ids(logits, _top_k(micro_batch), rows)
    of_tokens, log_probs = token_and_top_k_log_probs(logits, responses, rows, ids)
    return {"log_probs": of_tokens, "student_log_probs": log_probs, "top_k_ids": ids}


PASSES = {"old_log_prob": old_log_prob_outputs, "teacher": teacher_outputs, "update": update_outputs}
"""By the ``pass_name`` of a batch: its jagged outputs from logits [response tokens, vocabulary] and micro-batch;
the worker keeps some (``worker.KEPT``)."""


def _responses(micro_batch: TensorDict) -> tuple[Tensor, Tensor]:
    """Token ids of all responses, and how many each row has."""
    rows, prompts = micro_batch["input_ids"], micro_batch["prompt_lengths"]
    lengths = rows.offsets().diff()
    starts = torch.repeat_interleave(rows.offsets()[:-1] + prompts, lengths)
    is_response = torch.arange(len(starts), device=starts.device) >= starts
    return rows.values()[is_response], lengths - prompts


def _top_k(micro_batch: TensorDict) -> int:
    return tu.get_non_tensor_data(micro_batch, "top_k", default=0)


@contextmanager
def _weights_only() -> Iterator[None]:
    """verl loads with ``weights_only=False``; an environment variable of torch overrides it."""
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        # the classes in NumPy's random state, which verl saves
        with torch.serialization.safe_globals([_reconstruct, np.ndarray, np.dtype, np.dtypes.UInt32DType]):
            yield
    finally:
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before


def _reshard(module: torch.nn.Module) -> None:
    """Reshard the weights, which a forward pass without backward leaves gathered: the teacher moves by shards."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def _offload(module: torch.nn.Module) -> None:
    """verl's copy to host memory is asynchronous, but the teacher's update and checkpoints read it there."""
    offload_fsdp_model_to_cpu(module)
    get_torch_device().synchronize()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _lengths_where(mask: Tensor, lengths: Tensor) -> Tensor:
    """Per row, how many of its tokens the flat ``mask`` selects."""
    row = torch.repeat_interleave(torch.arange(len(lengths), device=mask.device), lengths)
    return torch.zeros_like(lengths).index_add_(0, row, mask.to(lengths.dtype))


def _jagged(values: Tensor, lengths: Tensor) -> Tensor:
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return torch.nested.nested_tensor_from_jagged(values, offsets)


EngineRegistry.register(
    model_type="language_model", backend=["fsdp", "fsdp2"], device=["cpu", "cuda"], vendor=["cpu", "nvidia"]
)(SelfTeacherEngine)
