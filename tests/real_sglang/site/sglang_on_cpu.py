"""SGLang 0.5.12 on a machine without GPU: stand-ins for its CUDA packages, and the few changes that a CPU needs.

What stays SGLang's own: argument parser, HTTP server, tokenizer manager, scheduler, memory pools, overlap loop, model,
sampler, weight updates, and the processes of all that. What is replaced:

- packages that are imported but never reached on a CPU (``STAND_INS``), and Triton, for which SGLang has a stand-in;
- the memory saver, which frees GPU memory while a server sleeps: calls are noted in the file that SRPO_MEMORY_SAVER
  names, nothing is freed;
- in deterministic mode: the attention back ends that are allowed, the batch-invariant Triton kernels (on a CPU
  log-probs agree to 1e-5 with and without them), the Triton hash behind the seeds (rewritten below), torch.compile;
- the start method of processes: fork, because spawn imports torch and SGLang again in each, for 10 s;
- tensors that travel between processes: as files of shared memory, because a CPU tensor has no CUDA handle.

SRPO_SLOW_SCHEDULER has the seconds that a scheduler pauses after it has sent the last responses of a batch, as one does
that waits for a core.
"""

import contextlib
import importlib.machinery
import importlib.util
import multiprocessing
import os
import sys
import time
import types
from pathlib import Path

STAND_INS = ("flashinfer", "sgl_kernel", "soundfile", "torch_memory_saver", "torchvision")
WORD = 0xFFFFFFFF
POOL = 20_000
"""Tokens of a server's memory pool: SGLang's own choice is a share of the machine's memory."""


def install() -> None:
    """Prepare this process for the import of sglang; imports nothing large itself."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    multiprocessing.set_start_method = lambda *args, **kwargs: None
    sys.meta_path.insert(0, _Changes())
    sys.meta_path.append(_StandIns())


# ---------------------------------------------------------------- packages


class _AnyName(type):
    """Classes that have every public attribute: SGLang reads members of enumerations at import."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class _StandIn(types.ModuleType):
    """A package in which every public name is a class that cannot be used."""

    __path__: tuple = ()
    __version__ = "0"

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args, **kwargs):
            raise RuntimeError(f"{self.__name__}.{name}: not on a CPU")

        setattr(self, name, _AnyName(name, (), {"__init__": refuse}))
        return self.__dict__[name]


class _StandIns:
    """Finds the stand-ins where the real package is not installed."""

    def find_spec(self, name: str, path=None, target=None):
        if name.partition(".")[0] in STAND_INS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module) -> None:
        if module.__name__ == "torch_memory_saver":
            module.torch_memory_saver = _MemorySaver()
            module.configure_subprocess = contextlib.nullcontext


class _MemorySaver:
    def region(self, *args, **kwargs):
        return contextlib.nullcontext()

    cuda_graph = disable = region

    def pause(self, tag: str = "all") -> None:
        self._note("pause", tag)

    def resume(self, tag: str = "all") -> None:
        self._note("resume", tag)

    def _note(self, *words: str) -> None:
        if "SRPO_MEMORY_SAVER" in os.environ:
            with open(os.environ["SRPO_MEMORY_SAVER"], "a") as file:
                file.write(" ".join(words) + "\n")


# ---------------------------------------------------------------- changes


def _before_sglang(spec) -> None:
    if importlib.util.find_spec("triton") is not None:
        return
    # both remember that there is no Triton, as long as there is none
    import torch._inductor.runtime.triton_compat
    import torch.utils._triton

    torch.utils._triton.has_triton_package()
    stub = importlib.util.spec_from_file_location("_triton_stub", Path(spec.origin).with_name("_triton_stub.py"))
    module = importlib.util.module_from_spec(stub)
    stub.loader.exec_module(module)
    module.install()


def _after_server_args(module) -> None:
    module.DETERMINISTIC_ATTENTION_BACKEND_CHOICES.append("torch_native")
    handle = module.ServerArgs._handle_cpu_backends

    def attend_without_flashinfer(self):
        if self.device == "cpu":
            self.attention_backend, self.max_total_tokens = "torch_native", POOL
        handle(self)

    module.ServerArgs._handle_cpu_backends = attend_without_flashinfer


def _after_batch_invariant_ops(module) -> None:
    module.enable_batch_invariant_mode = lambda *args, **kwargs: None


def _after_sampler(module) -> None:
    module.murmur_hash32 = murmur_hash32
    sample = module.multinomial_with_seed
    module.multinomial_with_seed = getattr(sample, "_torchdynamo_orig_callable", sample)


def _after_patch_torch(module) -> None:
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_system")
    module.monkey_patch_torch_reductions = lambda: None


def _after_scheduler(module) -> None:
    seconds = float(os.environ.get("SRPO_SLOW_SCHEDULER", 0))
    process = module.Scheduler.process_batch_result

    def process_and_pause(self, batch, *args, **kwargs):
        process(self, batch, *args, **kwargs)
        if all(request.finished() for request in batch.reqs):
            time.sleep(seconds)

    if seconds:
        module.Scheduler.process_batch_result = process_and_pause


def murmur_hash32(seed, positions, col_indices):
    """SGLang's ``murmur_hash32`` (``srt/layers/utils/hash.py``): MurmurHash3 of seed, position and column.

    Args:
        seed: uint64 [rows].
        positions: integers [rows].
        col_indices: integers [columns].

    Returns:
        uint32 [rows, columns].
    """
    import torch

    def rotate(x, bits):
        return (x << bits | x >> 32 - bits) & WORD

    def add(state, block):
        block = rotate((block & WORD) * 0xCC9E2D51 & WORD, 15)
        state = state ^ (block * 0x1B873593 & WORD)
        return rotate(state, 13) * 5 + 0xE6546B64 & WORD

    seed = seed.view(torch.int64)[:, None]
    state = add(torch.zeros_like(seed), seed)
    for block in (seed >> 32, positions.long()[:, None], col_indices.long()[None]):
        state = add(state, block)
    state = state ^ 16  # bytes
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> bits) * factor & WORD
    return (state ^ state >> 16).to(torch.uint32)


BEFORE = {"sglang": _before_sglang}
AFTER = {
    "sglang.srt.server_args": _after_server_args,
    "sglang.srt.batch_invariant_ops": _after_batch_invariant_ops,
    "sglang.srt.layers.sampler": _after_sampler,
    "sglang.srt.managers.scheduler": _after_scheduler,
    "sglang.srt.utils.patch_torch": _after_patch_torch,
}


class _Changes:
    """Runs a change before or after a module of SGLang's is imported."""

    def find_spec(self, name: str, path=None, target=None):
        if name not in BEFORE and name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute, change = spec.loader.exec_module, AFTER.get(name)

        def exec_module(module) -> None:
            if name in BEFORE:
                BEFORE[name](spec)
            execute(module)
            if change:
                change(module)

        spec.loader.exec_module = exec_module
        return spec
