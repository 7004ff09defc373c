"""The machine that a program runs on: its processor and GPUs, which number formats are native, memory in use."""

import ctypes
import functools
import logging
import re
import subprocess
import threading
import time
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Options of glibc's ``mallopt``."""

STILL_SECONDS = 5.0
"""A process that does not get to run for so long, and computes nothing meanwhile, was stopped."""


class Standstill:
    """For how long this process was stopped, as by Ctrl-Z or a suspended job: that time is nobody's work."""

    def __init__(self) -> None:
        self._lock, self._seconds, self._beat = threading.Lock(), 0.0, (time.monotonic(), time.process_time())
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def seconds(self) -> float:
        with self._lock:
            (before, worked), self._beat = self._beat, (time.monotonic(), time.process_time())
            still = self._beat[0] - before
            if still > STILL_SECONDS and self._beat[1] - worked < still / 100:
                self._seconds += still
                logging.getLogger(__name__).warning(
                    "the process stood still for %.0f s; the training clock leaves them out", still
                )
            return self._seconds

    def _watch(self) -> None:
        while self.seconds >= 0:
            time.sleep(STILL_SECONDS / 5)


standstill = functools.cache(Standstill)


@functools.cache
def gpus() -> list[tuple[str, float]]:
    """Name and bytes of each GPU, without loading CUDA; none without a driver."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line.rpartition(", ") for line in listed.splitlines()]
    return [(name, 2**20 * float(mib)) for name, _, mib in lines if mib.isdigit()]


def processor() -> str:
    """The processor's name and the vector instructions that torch uses: runs have the same bytes only if both agree."""
    import torch

    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{named[1] if named else 'unnamed'}, {torch.backends.cpu.get_cpu_capability()}"


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, for its next tensors.

    By default glibc gives large blocks back to the system, which clears every page again when the next tensor touches
    it: in a step of a model of 135 M parameters this took a sixth of the time. Other C libraries than
    glibc are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def host_memory_gb() -> float:
    """GB of host memory that this process and all that it started have allocated: workers and rollout servers.

    Of memory that processes share, only what the process with most of it has. Files that they map, such as weights, do
    not count: the system may drop them. Read from counters: to count the pages of a process of 6 GB takes a second.
    """
    import psutil

    process = psutil.Process()
    own, shared = zip(*(_allocated(each.pid) for each in (process, *process.children(recursive=True))), strict=True)
    return (sum(own) + max(shared)) / 1e9


def _allocated(pid: int) -> tuple[int, int]:
    """Bytes of a process that are its own, and that it shares; none if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    resident = dict(re.findall(r"^Rss(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    return 1024 * int(resident.get("Anon", 0)), 1024 * int(resident.get("Shmem", 0))
