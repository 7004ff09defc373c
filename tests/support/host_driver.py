"""What the CPU computes in float32, in a process of its own: verl has one device a process.

python host_driver.py FOLDER METHOD...

FOLDER holds splits and models (``base``). Writes, for each method, ``FOLDER/<method>.pt`` with rollouts, what the
driver computes of them before the update, and every number of the step.
"""

import sys
from pathlib import Path

import torch
from one_step import before_update, build_run, draw_rollouts, numbers

from srpo.ground.layout import Layout


def main(folder: Path, methods: list[str]) -> None:
    for name in methods:
        run = build_run(Layout(folder / "base"), folder / name, name, 2)
        rollouts = draw_rollouts(run)
        result = {"rollouts": rollouts, "prepared": before_update(run, rollouts), "kept": run.policy.worker.kept}
        result["numbers"] = numbers(run, rollouts)
        torch.save(result, folder / f"{name}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
