"""Sums tensors over all ranks: checks the sum and measures the rate.

    torchrun --standalone --nproc-per-node 8 bench/all_reduce.py [--megabytes 1024]

Uses NCCL on GPUs and gloo on CPUs. The rate is the bus bandwidth as NCCL's own tests define it,
2 (n - 1) / n x bytes / seconds, which does not depend on the number n of ranks.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import distributed


def main() -> None:
    """Print one line from the first rank; fail on all where a sum is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    values = torch.full((options.megabytes * 2**18,), float(rank + 1), device=device)
    distributed.all_reduce(values)
    if not (values == ranks * (ranks + 1) / 2).all():
        raise SystemExit(f"rank {rank}: the sum over {ranks} ranks is wrong")

    seconds = min(_seconds(values, device) for _ in range(options.repeats))
    if rank == 0:
        rate = 2 * (ranks - 1) / ranks * values.nbytes / seconds
        print(f"{ranks} ranks on {device}: sums are right, {rate / 1e9:.1f} GB/s")
    distributed.destroy_process_group()


def _seconds(values: torch.Tensor, device: str) -> float:
    distributed.barrier()
    start = time.perf_counter()
    distributed.all_reduce(values)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
