"""A run that is killed (SIGKILL) and started again ends with the bytes of one that never was."""

import functools
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
import resume_driver
from paths import SUPPORT
from run_content import assert_same, content
from tiny import prepare

from srpo.ground.layout import Layout

pytestmark = pytest.mark.fault

KILLED = -9


@pytest.fixture(scope="module")
def processes():
    """Processes forked from a server that has imported torch and verl once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "resume_driver", "srpo.policy.in_process"])
    with pytest.MonkeyPatch.context() as patch:
        # Python 3.11's server has no other way to find it
        patch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Layout:
    return prepare(resume_driver.experiment("srpo"), tmp_path_factory.mktemp("resume"))[1]


@pytest.fixture(scope="module")
def start(processes, base, tmp_path_factory):
    """Start a process of a method's run in a folder of its own or in one where it was killed before."""

    def start(name: str, folder: Path | None = None, crash: str | None = None):
        if folder is None:
            folder = tmp_path_factory.mktemp(name)
            for part in ("data", "models"):
                (folder / part).symlink_to(base.folder / part)
        process = processes.Process(target=resume_driver.train, args=(name, folder, crash))
        process.start()
        return folder, process

    return start


@pytest.fixture(scope="module")
def finish(start):
    """Run to the end; return the run's folder."""

    def finish(name: str, folder: Path | None = None) -> Path:
        folder, process = start(name, folder)
        process.join(120)
        assert process.exitcode == 0
        return run_folder(name, folder)

    return finish


@pytest.fixture(scope="module")
def uninterrupted(finish):
    """What a method's run leaves behind that is never killed."""
    return functools.cache(lambda name: content(finish(name)))


def run_folder(name: str, folder: Path) -> Path:
    return Layout(folder).run(resume_driver.experiment(name).runs()[0])


def test_an_uninterrupted_run_is_deterministic_and_keeps_what_is_needed(uninterrupted, finish):
    expected = uninterrupted("srpo")
    assert_same(content(finish("srpo")), expected)
    steps = [json.loads(line) for line in expected["steps.jsonl"]]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert len({step["metrics"]["loss/total"] for step in steps}) == 6
    assert [name for name in expected if re.fullmatch("(checkpoints|weights)/[^/]+", name)] == [
        *("checkpoints/step4", "checkpoints/step6", "weights/step4", "weights/step6")
    ]
    groups = [json.loads(line) for line in expected["groups.jsonl"].splitlines()]
    assert [group["step"] for group in groups] == [2, 4, 6]
    assert "checkpoints/step4/state.json" not in expected  # the weights of a budget's best checkpoint only


@pytest.mark.parametrize(
    ("name", "crashes"),
    [
        # events: step 1, step 2, group 2, validation 2, step 3, ...; a checkpoint at step 2 and each step from there
        ("srpo", ["half_event 3", "half_event 4", "after_event 5", "half_event 2", "after_event 2"]),
        ("grpo", ["after_event 6"]),
        # files of a checkpoint: model, optimizer, extra, teacher
        ("srpo", ["half_file 2", "before_state 1", "half_file 8", "before_rename 1"]),
        ("srpo", ["before_prune 3", "in_prune 1", "in_rmtree 1", "in_prune 2", "before_end 1", "before_end 2"]),
    ],
)
def test_killed_at_the_worst_moments(name, crashes, start, finish, uninterrupted):
    folder = None
    for crash in crashes:
        folder, process = start(name, folder, crash)
        process.join(120)
        assert process.exitcode == KILLED, f"{crash}: was not reached"
        assert not (run_folder(name, folder) / "summary.json").exists()
    assert_same(content(finish(name, folder)), uninterrupted(name))


def test_killed_again_and_again_at_any_moment(start, finish, uninterrupted):
    draw, folder = random.Random(), None
    for _ in range(3):
        folder, process = start("srpo", folder)
        log = run_folder("srpo", folder) / "steps.jsonl"
        before = log.stat().st_mtime_ns if log.exists() else 0
        while process.is_alive() and (not log.exists() or log.stat().st_mtime_ns == before):
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.8))
        process.kill()
        process.join()
        assert process.exitcode in (KILLED, 0)
    assert_same(content(finish("srpo", folder)), uninterrupted("srpo"))


def namespaces() -> bool:
    """Whether a process may mount a disk that only it sees."""
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


DISKS = {"full-log-2": 0, "full-checkpoint-1": 0, "full-checkpoint-3": 3, "full-summary-1": 6, "read-only-log-6": 3}
"""What happens to a run's disk, at which call of which writer; and the step that was saved before."""


@pytest.fixture(scope="module")
def disks(tmp_path_factory) -> Path:
    """The folder in which one process has made a run of each case."""
    if not namespaces():
        pytest.skip("unshare --map-root-user --mount is not allowed here")
    folder = tmp_path_factory.mktemp("disks")
    driver = [sys.executable, SUPPORT / "disk_driver.py", folder, *DISKS]
    done = subprocess.run(["unshare", "--map-root-user", "--mount", *driver], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("case", "saved"), DISKS.items())
def test_a_disk_that_takes_no_more(case, saved, disks, uninterrupted):
    """What was there is intact, one line says so, and with room again the run ends as if nothing had been."""
    step, said = (disks / case / "said").read_text().split("\n")  # on one line
    reason = "Read-only file system" if "read-only" in case else "No space left on device|with 0.0 GiB free"
    assert int(step) == saved
    assert re.search(rf"cannot be written.*({reason}).*what was there before is intact", said)
    assert_same(content(run_folder("srpo", disks / case / "results")), uninterrupted("srpo"))
