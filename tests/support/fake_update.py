"""The peak memory of an update on one of 8 ranks, from fake tensors: shapes without numbers, a group without peers.

``python fake_update.py 20480 qwen3-8b:2 qwen3-8b:4`` prints bytes as JSON for 2 and 4 layers of Qwen3-8B and
micro-batches of 20,480 tokens, all of them distilled. Real here: transformers' Qwen3 and its activation checkpointing,
verl's ``apply_fsdp2``, our losses. Replaced: the engine's loading of weights and its jagged book-keeping, whose sizes
depend on data; attention, by what a fused kernel keeps (queries, keys, values, output, one number a head and token);
AdamW's step, by its moments. What CUDA, NCCL and the server take is not in it. ``:4n`` is 4 layers without gradient
reduction between micro-batches.
"""

import gc
import json
import sys
import weakref

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from verl.utils.fsdp_utils import apply_fsdp2

from srpo.algorithm import distribution
from srpo.algorithm.distribution import token_and_top_k_log_probs
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.importance import truncated_ratio
from srpo.experiment.compose import load_experiment
from srpo.experiment.memory import shape_of
from srpo.ground.repository import CONFIGS

RANKS = 8


class _FusedAttention(torch.autograd.Function):
    """What a fused kernel allocates, without it."""

    @staticmethod
    def forward(ctx, query, key, value):
        result = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, result, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return result

    @staticmethod
    def backward(ctx, gradient):
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


def _attention(module, query, key, value, mask, **_):
    """[1, heads, tokens, size] in; [1, tokens, heads, size] out, as transformers asks of an attention."""
    assert mask is None
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return _FusedAttention.apply(query, key, value), None


class StorageTracker(TorchDispatchMode):
    """Bytes of all storages that live, fake ones too, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref] = {}

    def __enter__(self):
        self._resize = resize = torch.UntypedStorage.resize_

        def tracked(storage, size):  # how FSDP2 frees and takes back gathered weights
            result = resize(storage, size)
            self._seen(storage)
            return result

        torch.UntypedStorage.resize_ = tracked
        return super().__enter__()

    def __exit__(self, *error) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            if isinstance(tensor, DTensor):  # what is done to its shard is not seen here
                tensor = tensor._local_tensor
            if isinstance(tensor, torch.Tensor):
                self._seen(tensor.untyped_storage())
        return result

    def _seen(self, storage) -> None:
        key = storage._cdata
        if key not in self._references:
            self._references[key] = weakref.ref(storage, lambda _: self._gone(key))
        self._set(key, storage.nbytes())

    def _gone(self, key: int) -> None:
        self._set(key, 0)
        del self._references[key], self._sizes[key]

    def _set(self, key: int, size: int) -> None:
        self.current += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.current)


def peak_of_an_update(name: str, layers: int, tokens: int, no_sync: bool = False) -> dict[str, int]:
    """Bytes on one rank: weights, moments and teacher, and the peak over the second of two micro-batches."""
    experiment = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    shape = shape_of(experiment.models[name]).model_dump() | {"num_hidden_layers": layers}
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)

    def sharded() -> torch.nn.Module:
        config = Qwen3Config(**shape, attn_implementation="attention_in_memory", use_cache=False)
        module = Qwen3ForCausalLM(config)
        module.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        kwargs = {"mesh": mesh, "mp_policy": policy, "offload_policy": None, "reshard_after_forward": True}
        apply_fsdp2(module, kwargs, {})
        return module

    with FakeTensorMode(), StorageTracker() as tracker:
        student, teacher = sharded().train(), sharded().requires_grad_(False)
        moments = [torch.zeros_like(parameter) for parameter in student.parameters() for _ in range(2)]
        gc.collect()
        held = tracker.peak = tracker.current
        for micro_batch in range(2):
            student.set_requires_gradient_sync(micro_batch == 1 or not no_sync)
            _backward(student, tokens, 100)
        result = {"held": held, "peak": tracker.peak, "after_backward": tracker.current}
        del student, teacher, moments
    gc.collect()
    return result


def _backward(student: torch.nn.Module, tokens: int, top_k: int) -> None:
    """One micro-batch: the engine's forward (``prepare_model_outputs``), the loss of distilled tokens, and backward."""
    ids, positions = torch.zeros(1, tokens, dtype=torch.int64), torch.arange(tokens).unsqueeze(0)
    rows = torch.arange(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = student(input_ids=ids, attention_mask=None, position_ids=positions, logits_to_keep=rows).logits
        logits = logits.flatten(0, 1)[:]
        distilled = torch.ones(tokens, dtype=torch.bool)
        top_k_ids = torch.zeros(tokens, top_k, dtype=torch.int64)
        log_probs, student_log_probs = token_and_top_k_log_probs(logits, ids[0], distilled, top_k_ids)
        del logits
        divergence = generalised_jsd(student_log_probs, torch.zeros(tokens, top_k + 1), 0.5)
        loss = (divergence * truncated_ratio(log_probs, torch.zeros(tokens), 2.0)).sum()
    (loss + 0.0 * log_probs.sum()).backward()


def main(tokens: str, *cases: str) -> None:
    AttentionInterface.register("attention_in_memory", _attention)
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    for case in cases:
        model, layers = case.split(":")
        result = peak_of_an_update(model, int(layers.strip("n")), int(tokens), no_sync=layers.endswith("n"))
        print(json.dumps({"case": case, **result}), flush=True)


if __name__ == "__main__":
    distribution.CPU_LOGITS_CHUNK = distribution.LOGITS_CHUNK  # fake tensors say that they are on a CPU
    main(*sys.argv[1:])
