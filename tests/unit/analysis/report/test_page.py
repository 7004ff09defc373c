"""The report: one page that renders whatever is there, and that model text cannot break out of."""

import re

import pytest
from report_cases import EXPERIMENT, make, parsed, report, verdicts
from synthetic import paper_experiment, tiny_experiment, write_results

from srpo.analysis.load import load_results
from srpo.analysis.outline import figures_of
from srpo.analysis.report import write_report
from srpo.analysis.write import write_figures, write_tables
from srpo.experiment.compose import load_experiment

SHOWN = figures_of(EXPERIMENT)
ABSENT = {"our_differences"}  # EXPERIMENT has none of their methods


def test_figures_and_report_twice_give_the_same_bytes(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    written = {}
    for attempt in ("a", "b"):
        results = load_results(tmp_path)
        write_figures(results, tmp_path / attempt)
        paths = sorted((tmp_path / attempt).iterdir())
        write_report(results, tmp_path / f"{attempt}.html", figures_dir=tmp_path / attempt)
        written[attempt] = [path.read_bytes() for path in paths], (tmp_path / f"{attempt}.html").read_bytes()
    assert written["a"] == written["b"]
    images = [attributes for tag, attributes in parsed(written["a"][1].decode()) if tag == "img"]
    assert len(images) == len(SHOWN) - len(ABSENT)
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)


ATTACK = (
    '</pre><script>alert(1)</script> <img src=x onerror="alert(1)"> {{ 7 * 7 }}{% raw %} \x1b[2J\x00\u202e\ud800 end'
)


def test_model_text_stays_text_and_the_page_asks_for_nothing(tmp_path):
    page = make(tmp_path, response=ATTACK)
    tags = parsed(page)
    assert {tag for tag, _ in tags}.isdisjoint({"script", "link", "iframe", "object", "embed"})
    assert not [tag for tag, attributes in tags if any(name.startswith("on") for name in attributes)]
    assert not re.search("[\x00-\x08\x1b\u202e]", page)
    texts = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert any("{{ 7 * 7 }}" in text for text in texts)
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    "options",
    [
        {"keep": lambda run: False},
        {"keep": lambda run: run.method == "srpo" and run.benchmark == "physics"},
        {"evaluate": False},
        {"stop_at": 12.0, "evaluate": False},
    ],
    ids=["nothing", "one run", "no evaluation", "half way"],
)
def test_partial_results_render(tmp_path, options):
    page = make(tmp_path, **options)
    parsed(page)
    text = re.sub(r"<style>.*?</style>|<[^>]*>", "", page, flags=re.S)
    assert not re.search(r"\b(nan|NaN|None|NaT|inf)\b", text)
    write_tables(load_results(tmp_path), tmp_path / "tables")


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"clock": {"kind": "modelled"}, "budget_seconds": {"only": 10}}},
        {"matrix": [{**tiny_experiment()["matrix"][0], "methods": ["sdpo"], "benchmarks": ["miniature/physics"]}]},
        {"matrix": [{"models": ["miniature-tiny"], "benchmarks": ["miniature/physics"]}]},
    ],
    ids=["one budget", "one method", "base models alone"],
)
def test_small_experiments_render(tmp_path, changes):
    parsed(make(tmp_path, load_experiment(tiny_experiment(**changes))))
    results = load_results(tmp_path)
    write_tables(results, tmp_path / "tables")
    write_figures(results, tmp_path / "figures")
    assert "nan" not in (tmp_path / "tables/table1.md").read_text()


def test_an_empty_folder_renders_with_figures_that_say_so(tmp_path):
    write_figures(load_results(tmp_path, EXPERIMENT), tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == {*SHOWN}
    page = report(tmp_path)
    assert "Interim: 6 of 6 planned runs not finished." in page
    assert "figure-" not in page
    assert set(verdicts(tmp_path).values()) == {"not tested"}


def test_published_numbers_only_where_comparable(tmp_path):
    assert "not comparable with the paper" in make(tmp_path / "miniature")
    page = make(tmp_path / "paper", paper_experiment())
    assert "78.4" in page
    assert "not comparable with the paper" not in page


def test_ids_are_unique_and_each_claim_stands_once(tmp_path):
    make(tmp_path)
    write_figures(load_results(tmp_path), tmp_path / "figures")
    ids = [attributes["id"] for _, attributes in parsed(report(tmp_path)) if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"claim-srpo_over_grpo_last", "table-table1", "figure-learning_curves"} <= {*ids}
