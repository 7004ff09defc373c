"""Compiles the flashinfer kernels that SGLang takes for a bfloat16 model on an H100; it needs no GPU.

    python scripts/gpu_kernels.py FOLDER [HEAD_DIM]

``make gpu-pack`` runs it, with nvcc from Python packages (``CUDA_HOME``). The kernels lie in ``FOLDER/NAME/NAME.so``:
flashinfer takes them from its own ``data/aot`` without a compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "9.0a"

import torch
from flashinfer.jit import build_jit_specs
from flashinfer.jit.attention import gen_batch_decode_module, gen_batch_prefill_module
from flashinfer.jit.sampling import gen_sampling_module


def main() -> None:
    """One kernel after the other; what is there stays."""
    folder, head = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64
    toolkit = Path(os.environ["CUDA_HOME"]) / "lib"
    if not (toolkit / "libcudart.so").exists():
        (toolkit / "libcudart.so").symlink_to("libcudart.so.13")
    # the driver's library is not in any package, and only its name is linked
    subprocess.run(["cc", "-shared", "-xc", "/dev/null", "-o", toolkit / "libcuda.so"], check=True)
    dtype = torch.bfloat16
    common = {"dtype_q": dtype, "dtype_kv": dtype, "dtype_o": dtype, "dtype_idx": torch.int32}
    common |= {"head_dim_qk": head, "head_dim_vo": head, "pos_encoding_mode": 0}
    common |= {"use_sliding_window": False, "use_logits_soft_cap": False}
    kernels = [
        gen_sampling_module(),
        gen_batch_decode_module(**common),
        *(gen_batch_prefill_module(kind, **common, use_fp16_qk_reduction=False) for kind in ("fa2", "fa3")),
    ]
    for kernel in kernels:
        made = folder / kernel.name / f"{kernel.name}.so"
        if not made.exists():
            build_jit_specs([kernel], verbose=False)
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kernel.jit_library_path, made)
        print(f"{kernel.name}: {made.stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
