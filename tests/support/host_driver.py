"""What the CPU computes in float32, in a process of its own: verl has one device a process.

python host_driver.py FOLDER METHOD...

FOLDER holds splits and models (``base``). Writes, for each method, ``FOLDER/<method>.pt`` with rollouts, what the
driver computes of them before the update, and every number of the step. ``FOLDER/<method>-far.pt`` is the same with
bounds of the ratio that no token reaches, for passes in bfloat16: there a token near its bound may be clipped or not.
"""

import sys
from pathlib import Path

import torch
from one_step import before_update, build_run, draw_rollouts, numbers

from srpo.ground.layout import Layout

FAR = {"clip_ratio_low": 0.99, "clip_ratio_high": 9.0, "clip_ratio_c": 100.0}


def main(folder: Path, methods: list[str]) -> None:
    for name, changes, file in [(m, {}, m) for m in methods] + [(m, FAR, f"{m}-far") for m in methods]:
        run = build_run(Layout(folder / "base"), folder / file, name, 2, changes=changes)
        rollouts = draw_rollouts(run)
        result = {"rollouts": rollouts, "prepared": before_update(run, rollouts), "kept": run.policy.worker.kept}
        result["numbers"] = numbers(run, rollouts)
        torch.save(result, folder / f"{file}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
