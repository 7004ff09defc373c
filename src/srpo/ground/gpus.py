"""The GPUs of a machine that several runs share: a run holds its own until it ends."""

import itertools
import logging
import os
import random
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from srpo.ground.machine import gpus

_held = ExitStack()


def hold_gpus(count: int) -> None:
    """Let what this process starts see only GPUs that no other process holds; wait until there are enough.

    A lock on a file in the folder for temporary files (``TMPDIR``) holds a GPU; the system frees the lock when the
    process ends, however it ends. Nothing changes if ``CUDA_VISIBLE_DEVICES`` has no more than are wanted: a scheduler
    has assigned them, and may call the GPU of every job 0.
    """
    assigned = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(len(gpus()))] if assigned is None else assigned.split(",")
    if len(names) < count + (assigned is not None):
        return
    for attempt in itertools.count():
        with ExitStack() as locks:
            held: list[str] = []
            for name in names:
                path = Path(tempfile.gettempdir(), f"srpo-gpu-{name}.lock")
                if len(held) < count:
                    with suppress(Timeout):
                        locks.enter_context(FileLock(path, timeout=0, mode=0o666))  # another user's run opens it, too
                        held.append(name)
            if len(held) == count:
                _held.enter_context(locks.pop_all())
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
                return
        if attempt == 0:
            logging.getLogger(__name__).warning("waiting for %d free GPUs; other runs hold the rest", count)
        time.sleep(random.uniform(1, 3))  # two that wait do not try at once again and again
