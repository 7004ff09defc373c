"""The programs of ``examples/`` do what they say, on a CPU in seconds."""

import runpy

from paths import ROOT


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_plain_loop_learns() -> None:
    rewards = runpy.run_path(str(ROOT / "examples" / "plain_loop.py"))["main"]()
    assert mean(rewards[:5]) < 0.1
    assert mean(rewards[-5:]) > 0.2
