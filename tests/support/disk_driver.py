"""Tiny training runs, each on a disk of its own that fills up or becomes read-only under it, and is mended.

unshare --map-root-user --mount python disk_driver.py FOLDER FAULT-WHERE-COUNT...

The disk of a case is mounted at FOLDER/CASE/disk and seen by this process only. Afterwards the run is in
FOLDER/CASE/results, and what was said in FOLDER/CASE/said.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from resume_driver import experiment
from tiny import hash_reward, prepare

from srpo.ground.errors import SrpoError
from srpo.training import avg_at_k, checkpoints, loop
from srpo.training import step as step_module

MEBIBYTES = 24


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True)


def fill(disk: Path) -> None:
    """Leave less than a page."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


def make_room(disk: Path) -> None:
    (disk / "filler").unlink()


def cover(disk: Path) -> None:
    """The same files, read-only: a disk with a file open for writing, the lock, cannot be made so itself."""
    run("mount", "--bind", disk, disk)
    run("mount", "-o", "remount,bind,ro", disk)


def uncover(disk: Path) -> None:
    run("umount", disk)


FAULTS = {"full": (fill, make_room), "read-only": (cover, uncover)}
WHERE = {
    "log": (loop, "append_event"),
    "checkpoint": (checkpoints, "save"),
    "summary": (loop, "write_json"),
}


def main(folder: Path, fault: str, where: str, count: int) -> None:
    disk = folder / "disk"
    disk.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={MEBIBYTES}m", "tmpfs", disk)
    spec, layout = prepare(experiment("srpo"), disk)
    loop.CHECKPOINT_SHARE = float("inf")
    step_module.compute_reward = avg_at_k.compute_reward = hash_reward
    owner, name = WHERE[where]
    spoil, mend = FAULTS[fault]
    original, calls = getattr(owner, name), iter(range(1, 1000))

    def disturbed(*args):
        if next(calls) == count:
            spoil(disk)
        return original(*args)

    setattr(owner, name, disturbed)
    try:
        loop.train(spec, layout)
        said = "nothing"
    except SrpoError as error:
        said = str(error)
    finally:
        setattr(owner, name, original)
    mend(disk)
    saved = checkpoints.newest(layout.run(spec.id))
    (folder / "said").write_text(f"{saved[1]['step'] if saved else 0}\n{said}")
    loop.train(spec, layout)
    shutil.copytree(layout.folder, folder / "results")


if __name__ == "__main__":
    for case in sys.argv[2:]:
        fault, where, count = case.rsplit("-", 2)
        main(Path(sys.argv[1], case), fault, where, int(count))
