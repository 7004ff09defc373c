"""Measures time and peak memory of the distillation loss and of the teacher's pass, with and without chunks of tokens.

    python bench/distillation_loss.py [--tokens 256 512] [--vocabulary 151936] [--chunk ELEMENTS] [--device cpu]

The student's part computes the log-probs of the top K tokens and the tail, the Jensen-Shannon divergence, and the
gradient of the logits. The teacher's part computes the same log-probs, the entropy and the log-probs of the sampled
tokens. Memory is what is allocated beyond the bfloat16 logits, in units of one float32 copy of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from srpo.algorithm import distribution
from srpo.algorithm.divergence import generalised_jsd

UNCHUNKED = 2**62


def main() -> None:
    """Print two lines, student and teacher, for each number of tokens."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 8192] if on_gpu else [128, 512])
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--top-k", type=int, default=100)
    chunk = distribution.LOGITS_CHUNK if on_gpu else 2**22
    parser.add_argument("--chunk", type=int, default=chunk, help="elements of a chunk of logits")
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)

    for tokens in options.tokens:
        copy = 4 * tokens * options.vocabulary
        print(f"{tokens} tokens x {options.vocabulary} on {options.device}; a float32 copy has {copy / 2**30:.2f} GiB")
        for name, part in (("student", student_part), ("teacher", teacher_part)):
            function = part(tokens, options.vocabulary, options.top_k, options.device)
            measured = []
            for chunk in (options.chunk, UNCHUNKED):
                with chunks_of(chunk):
                    seconds = min(seconds_of(options.device, function) for _ in range(options.repeats))
                    measured.append((seconds, peak_bytes(options.device, function) / copy))
            (time_a, memory_a), (time_b, memory_b) = measured
            print(
                f"  {name}: in chunks {time_a:7.3f} s, {memory_a:5.2f} copies; whole {time_b:7.3f} s, {memory_b:5.2f}; "
                f"ratios {time_a / time_b:.2f}, {memory_a / memory_b:.2f}"
            )


class chunks_of:
    """Within this context a chunk has so many elements."""

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def __enter__(self) -> None:
        self.before, distribution.LOGITS_CHUNK = distribution.LOGITS_CHUNK, self.elements

    def __exit__(self, *_) -> None:
        distribution.LOGITS_CHUNK = self.before


def student_part(tokens: int, vocabulary: int, top_k: int, device: str) -> Callable[[], None]:
    """Restrict, divergence, gradient of bfloat16 logits [tokens, vocabulary]."""
    logits, ids, _ = _inputs(tokens, vocabulary, top_k, device)
    with torch.no_grad():
        teacher = distribution.top_k_with_tail(_logits(tokens, vocabulary, device, seed=1), ids)
    logits.requires_grad_()

    def run() -> None:
        generalised_jsd(distribution.top_k_with_tail(logits, ids), teacher, 0.5).sum().backward()
        logits.grad = None

    return run


def teacher_part(tokens: int, vocabulary: int, top_k: int, device: str) -> Callable[[], None]:
    """Restrict, entropy and log-probs of bfloat16 logits [tokens, vocabulary], without gradients."""
    logits, ids, labels = _inputs(tokens, vocabulary, top_k, device)

    @torch.no_grad()
    def run() -> None:
        distribution.top_k_with_tail(logits, ids)
        distribution.entropy(logits)
        distribution.token_log_probs(logits, labels)

    return run


def _inputs(tokens: int, vocabulary: int, top_k: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    logits = _logits(tokens, vocabulary, device, seed=0)
    labels = torch.randint(vocabulary, (tokens,), device=device)
    return logits, distribution.top_k_ids(logits, top_k), labels


def _logits(tokens: int, vocabulary: int, device: str, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    # never in float32 as a whole, here neither
    logits = torch.empty(tokens, vocabulary, dtype=torch.bfloat16, device=device)
    return logits.normal_(0, 2, generator=generator)


def seconds_of(device: str, function: Callable[[], None]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_bytes(device: str, function: Callable[[], None]) -> int:
    """The most memory that a call holds at a time beyond what is held before it, temporaries of kernels included."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


if __name__ == "__main__":
    main()
