"""The programs of ``examples/`` do what they say, on a CPU in seconds."""

import runpy
from statistics import fmean

from paths import ROOT


def test_plain_loop_learns() -> None:
    rewards = runpy.run_path(str(ROOT / "examples" / "plain_loop.py"))["main"]()
    assert fmean(rewards[:5]) < 0.1
    assert fmean(rewards[-5:]) > 0.2
