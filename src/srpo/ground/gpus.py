"""The GPUs of a machine that several runs share: a run holds its own until it ends."""

import os
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from srpo.ground.machine import gpu_memory

_held = ExitStack()


def hold_gpus(count: int) -> None:
    """Let what this process starts see only GPUs that no other process holds; wait until there are enough.

    A lock on a file in the folder for temporary files (``TMPDIR``) holds a GPU; the system frees the lock when the
    process ends, however it ends. Nothing changes if ``CUDA_VISIBLE_DEVICES`` has no more than are wanted: a scheduler
    has assigned them, and may call the GPU of every job 0.
    """
    assigned = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(len(gpu_memory()))] if assigned is None else assigned.split(",")
    if len(names) < count + (assigned is not None):
        return
    groups = [names[i : i + count] for i in range(0, len(names) - count + 1, count)]
    while True:
        for group in groups:
            with suppress(Timeout), ExitStack() as locks:
                for name in group:
                    path = Path(tempfile.gettempdir(), f"srpo-gpu-{name}.lock")
                    locks.enter_context(FileLock(path, timeout=0, mode=0o666))  # another user's run opens it, too
                _held.enter_context(locks.pop_all())
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(group)
                return
        time.sleep(2)
