"""What is known of the machine: its GPUs, its processor, the memory that a run uses."""

import ctypes
import mmap
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from srpo.ground.machine import host_memory_gb

MEBIBYTE = 2**20

HOLD = """
import mmap, sys
what, path = sys.argv[1:]
if what == "own":
    held = bytearray(200 * 2**20)
else:  # every page is read
    file = open(path, "rb")
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(held[::4096])
print(flush=True)
input()
"""


def grown_by(what: str, file: Path) -> float:
    """GB by which a child that holds memory or maps a file raises the number, until it ends."""
    before = host_memory_gb()
    command = [sys.executable, "-Sc", HOLD, what, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with_child = host_memory_gb()
        child.communicate(b"\n")
    assert abs(host_memory_gb() - before) < 0.05
    return with_child - before


TOUCH = """
import resource, sys
import torch
from srpo.ground.machine import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(20):
    torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many pages the system had to clear for five tensors of 64 MB, one after the other, after twenty others."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_memory_that_is_freed_is_used_again() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", TOUCH, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "plain")
    }
    assert faults["keep"] < 0.1 * faults["plain"]


def test_host_memory_is_what_a_process_and_its_children_allocated(tmp_path: Path) -> None:
    """Not the files that they map."""
    file = tmp_path / "weights"
    file.write_bytes(bytes(200 * MEBIBYTE))
    assert 0.2 < grown_by("own", file) < 0.25
    assert grown_by("file", file) < 0.05


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no shared memory here")
def test_memory_that_processes_share_counts_once() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(200 * MEBIBYTE))
        file.flush()
        assert 0.2 < grown_by("file", Path(file.name)) < 0.25
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as shared:
            assert sum(shared[::4096]) == 0
            assert grown_by("file", Path(file.name)) < 0.05
