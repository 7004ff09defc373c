"""GPUs of one machine, without a GPU: cards are names, and processes take them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from srpo.ground.gpus import hold_gpus

HOLD = """
import os, sys
from srpo.ground import gpus
gpus.gpus = lambda: [("a card", 80e9)] * 4
gpus.hold_gpus(int(sys.argv[1]))
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
input()
"""


def holder(count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def seen_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_two_processes_hold_a_card_and_a_killed_process_frees_its_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    holders = []
    for count, cards in ((1, "0"), (2, "1,2"), (1, "3")):
        holders.append(holder(count))
        assert seen_by(holders[-1]) == cards
    waiting = holder(2)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    holders.pop(1).kill()
    assert seen_by(waiting) == "1,2"
    for process in (*holders, waiting):
        process.communicate("\n")


@pytest.mark.parametrize(("assigned", "count"), [("5", 1), ("5,7", 2), ("5", 2), ("", 1)])
def test_what_a_scheduler_assigned_stays(assigned: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", assigned)
    hold_gpus(count)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == assigned
