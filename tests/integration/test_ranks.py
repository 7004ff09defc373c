"""Two ranks under FSDP2, without Ray, give the numbers of one: denominators, weights and metrics span ranks.

With gloo on CPUs; with NCCL where there are two GPUs.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from helpers import TEACHERS
from one_step import build_base, build_run, draw_rollouts, numbers, relative_differences
from paths import SUPPORT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two ranks need two GPUs or none"),
]

TWO = {"driver": "ray", "ranks": 2}
CASES = [
    ["grpo", {"execution": TWO, "micro_batch_size": 3}],
    ["srpo", {"execution": TWO, "micro_batch_size": 3}],
    ["srpo", {"execution": {**TWO, "max_tokens_per_rank": 120, "offload_teacher": True}}],
    ["sdpo", {"execution": {**TWO, "max_tokens_per_rank": 120}, "tied": False}],
    ["advantage_mix", {"execution": {**TWO, "gradient_checkpointing": True}}],
]
NAMES = ["grpo", "srpo", "srpo-tokens-offload", "sdpo-tokens-untied", "advantage_mix-checkpointing"]
OTHERS = ["grpo_with_anchor", "rlsd", "sc_sdpo", "sdpo_failed_only", "srpo_equal_loss_scale", *TEACHERS]
"""One of each branch, weight and teacher: the other methods differ in numbers, prompts or the order of phases."""
CASES += [[name, {"execution": TWO, "micro_batch_size": 3}] for name in OTHERS]
NAMES += OTHERS
for _, options in CASES:
    options["mini_batch_questions"] = 2


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> tuple[list[dict], list[dict]]:
    """For each case what one rank and what two compute from the same rollouts."""
    folder = tmp_path_factory.mktemp("ranks")
    base = build_base(folder / "drawn")
    (folder / "base").symlink_to(base.folder)
    runs = [
        build_run(base, folder / f"one-{i}", name, **{**options, "execution": {}})
        for i, (name, options) in enumerate(CASES)
    ]
    rollouts = draw_rollouts(runs[0])
    torch.save(rollouts, folder / "rollouts.pt")
    (folder / "cases.json").write_text(json.dumps(CASES))
    if (crash := run_ranks(folder, 2)) is not None:
        # Seen once, in CI, and not again in nine runs: a crash in native code. A second start computes all cases anew.
        warnings.warn(crash, stacklevel=1)
        (folder / "store").unlink()
        assert run_ranks(folder, 2) is None, "both starts of the ranks crashed"
    return [numbers(run, rollouts) for run in runs], [torch.load(folder / f"{i}.pt") for i in range(len(CASES))]


def run_ranks(folder: Path, count: int) -> str | None:
    """Start the ranks and wait for them; none outlives this call. The logs, if a segmentation fault ended one."""
    driver = SUPPORT / "rank_driver.py"
    logs = [folder / f"rank{rank}.log" for rank in range(count)]
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank, log in enumerate(logs):
            command = [sys.executable, driver, folder, str(rank), str(count)]
            # as in a cluster, a rank sees its own GPU alone
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(rank)}
            ranks.append(subprocess.Popen(command, env=environment, stderr=stack.enter_context(log.open("w"))))
            stack.callback(ranks[-1].wait)
            stack.callback(ranks[-1].kill)
        while None in (codes := [process.poll() for process in ranks]) and not any(codes):
            time.sleep(0.1)  # the driver stops by itself if it hangs
        if any(codes):  # the other rank has lost its peer
            time.sleep(5)
        said = "\n".join(
            f"{log.name}, exit status {code}:\n{log.read_text()}" for log, code in zip(logs, codes, strict=True)
        )
        if -signal.SIGSEGV in codes:
            return said
        assert not any(codes), said
    return None


def test_two_ranks_compute_what_one_does(computed):
    """One test, since each worker of pytest would compute all cases."""
    for case, alone, together in zip(NAMES, *computed, strict=True):
        for kind, difference in relative_differences(together, alone).items():
            assert difference < (1e-4 if torch.cuda.is_available() else 1e-5), (case, kind)
