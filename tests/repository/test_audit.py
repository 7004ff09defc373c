"""The audit of published runs: a number that differs is found, measured seconds and new metrics are not compared."""

from pathlib import Path

from audit import difference
from synthetic import tiny_of, write_results

from srpo.ground.layout import Layout


def test_a_number_that_differs_is_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_results(tmp_path / name, tiny_of(seeds=[1]))
    published, again = (Layout(tmp_path / name).run_files(tiny_of().runs()[0]) for name in ("a", "b"))
    text = again.steps.read_text()
    again.steps.write_text(text.replace('"wall_seconds": ', '"wall_seconds": 1').replace("loss/total", "loss/new"))
    assert difference(published, again) == ""
    again.steps.write_text(text.replace('"reward/mean": 0', '"reward/mean": 1'))
    assert difference(published, again).endswith("steps.jsonl, step 1: reward/mean")
    again.steps.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert "steps.jsonl has 24 lines" in difference(published, again)
