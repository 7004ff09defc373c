"""Pages are written from files: every number with an interval stands in a block that scripts/published.py fills."""

import hashlib
import re
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from synthetic import tiny_experiment, write_results

import published
from srpo.analysis.load import load_results
from srpo.analysis.published import publish
from srpo.analysis.write import write_figures, write_tables
from srpo.experiment.compose import load_experiment
from srpo.ground.layout import Layout


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script for a repository of its own, with the published experiment ``tiny`` and the page docs/page.md."""
    experiment = load_experiment(tiny_experiment())
    results = tmp_path / "results" / "tiny"
    write_results(results, experiment)
    for run in experiment.runs():
        Layout(results).run_files(run).finished.touch()
    publish(Layout(results), tmp_path / "published" / "tiny")
    write_tables(load_results(results), results / "tables")
    for cached in (published.results_of, published.rows_of):
        cached.cache_clear()
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.touch()
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "PAGES", [page])
    return published


def shown(pages: ModuleType, block: str) -> str:
    """What a block says after the page was filled."""
    (page,) = pages.PAGES
    page.write_text(f"Before.\n\n<!-- srpo {block} -->\n<!-- end -->\n\nAfter.\n")
    assert pages.main(["--check"]) == 1
    assert pages.main([]) == 0
    assert pages.main(["--check"]) == 0
    before, _, rest = page.read_text().partition(f"<!-- srpo {block} -->\n\n")
    said, _, after = rest.partition("\n\n<!-- end -->")
    assert (before, after) == ("Before.\n\n", "\n\nAfter.\n")
    return said


def test_scores_are_those_of_the_tables(pages: ModuleType) -> None:
    tables = pages.ROOT / "results" / "tiny" / "tables"
    table = pd.read_csv(tables / "table1.csv").set_index(["method", "benchmark", "budget"])
    scores = table["cross_fitted"]
    lines = shown(pages, "table1 tiny").splitlines()
    assert lines[0] == "| Method | Average | Chemistry | Physics |"
    row = next(line for line in lines if line.startswith("| SRPO |")).replace("*", "").split(" | ")
    assert float(row[1].split()[0]) == scores["srpo", "average", "10h"]
    assert [float(cell.strip(" |")) for cell in row[2:]] == [scores["srpo", b, "10h"] for b in ("chemistry", "physics")]
    base = next(line for line in lines if line.startswith("| Untrained |")).split(" | ")
    assert float(base[1].split()[0]) == table["resampled"]["base", "average", "base"]

    gaps = pd.read_csv(tables / "differences.csv").set_index(["method", "benchmark", "budget"])
    line = next(line for line in shown(pages, "differences tiny").splitlines() if "SRPO minus GRPO" in line)
    row = gaps.loc["grpo", "average", "10h"]
    expected = f"{row['difference']:+.1f} [{row['difference_low']:+.1f}, {row['difference_high']:+.1f}]"
    assert expected in line.replace("*", "")


def test_an_estimate_is_the_tables(pages: ModuleType) -> None:
    gaps = pd.read_csv(pages.ROOT / "results/tiny/tables/differences.csv").set_index(["method", "benchmark", "budget"])
    value = f"{gaps.loc[('grpo', 'average', '10h'), 'difference']:+.1f} points"
    assert shown(pages, "estimate tiny srpo_over_grpo_last") == value  # one run of each has no interval
    assert f"| SRPO ends above GRPO | one seed | {value.split()[0]} points |" in shown(pages, "verdicts tiny")


def test_a_picture_holds_the_checksum_of_its_numbers(pages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    said, path = shown(pages, "figure tiny learning_curves"), pages.ROOT / "docs" / "tiny-learning_curves.svg"
    assert re.fullmatch(rf"!\[.+\]\({path.name}\).*", said)
    write_figures(load_results(pages.ROOT / "results" / "tiny"), pages.ROOT / "figures")
    csv = (pages.ROOT / "figures" / "learning_curves.csv").read_bytes()
    drawn = path.read_text()
    assert f"<!-- data {hashlib.sha256(csv).hexdigest()} -->" in drawn
    assert "<text" in drawn  # can be searched and copied
    path.write_text(re.sub("<!-- data .* -->", "", drawn))  # as if it were drawn by hand
    assert pages.main(["--check"]) == 1
    assert "docs/tiny-learning_curves.svg: not current" in capsys.readouterr().out
    assert pages.main([]) == 0
    assert pages.main(["--check"]) == 0
