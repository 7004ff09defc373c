"""The programs of ``examples/`` do what they say, on a CPU in seconds."""

from __future__ import annotations

import json
import runpy

from paths import ROOT


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_plain_loop_learns() -> None:
    rewards = runpy.run_path(str(ROOT / "examples" / "plain_loop.py"))["main"]()
    assert mean(rewards[:5]) < 0.1
    assert mean(rewards[-5:]) > 0.2


def test_the_notebook_runs_and_draws() -> None:
    """Its cells of code in order, without a kernel. Not run: the cell that installs, which needs the network."""
    import matplotlib

    matplotlib.use("agg")
    notebook = json.loads((ROOT / "examples" / "plain_loop.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    installs, *rest = cells
    assert installs["metadata"]["tags"] == ["install"]
    names: dict = {}
    for cell in rest:
        exec("".join(cell["source"]), names)
    for method in ("sdpo", "srpo"):
        rewards, distilled = zip(*names["histories"][method], strict=True)
        assert mean(rewards[:5]) < 0.1
        assert mean(rewards[-5:]) > 0.2
        assert max(distilled) > 0.2
    assert not any(distilled for _, distilled in names["histories"]["grpo"])
    assert [len(axes.lines) for axes in names["figure"].axes] == [3, 3]
    names["plt"].close("all")
