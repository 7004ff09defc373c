"""The report: one page that renders whatever is there, and that model text cannot break out of."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from dataclasses import replace
from html import unescape
from urllib.parse import unquote

import pandas as pd
import pytest
from report_cases import EXPERIMENT, MODEL, make, parsed, report, results_of, verdicts
from synthetic import paper_experiment, tiny_experiment, tiny_of, write_results

from srpo.analysis.figures.curves import FEW_RUNS, curves_with_alarms
from srpo.analysis.figures.drawing import draw_scores
from srpo.analysis.figures.registry import FIGURES, write_figures
from srpo.analysis.outline import figures_of
from srpo.analysis.report.page import _curves, render, write_report
from srpo.analysis.results.claims import load_claims
from srpo.analysis.results.load import RUN_KEY, load_results
from srpo.analysis.tables.registry import build_tables, write_tables
from srpo.analysis.tables.table import write_table
from srpo.experiment.compose import load_experiment

SHOWN = figures_of(EXPERIMENT)


ABSENT = {"our_differences"}  # EXPERIMENT has none of their methods


def test_figures_and_report_twice_give_the_same_bytes(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    written = {}
    for attempt in ("a", "b"):
        results = load_results(tmp_path)
        paths = write_figures(results, tmp_path / attempt)
        write_report(results, tmp_path / f"{attempt}.html", figures_dir=tmp_path / attempt)
        written[attempt] = [path.read_bytes() for path in paths], (tmp_path / f"{attempt}.html").read_bytes()
        kinds = ("png", "svg", "csv", "rst")
        assert {path.name for path in paths} == {f"{name}.{kind}" for name in SHOWN for kind in kinds}
    assert written["a"] == written["b"]
    images = [attributes for tag, attributes in parsed(written["a"][1].decode()) if tag == "img"]
    assert len(images) == len(SHOWN) - len(ABSENT)
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)


def test_the_page_asks_for_nothing_and_runs_one_script_named_by_its_hash(tmp_path):
    page = make(tmp_path)
    tags = parsed(page)
    assert [tag for tag, _ in tags].count("script") == 1
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    code = re.sub(r"/\*!.*?\*/", "", script, flags=re.S)  # uPlot names its home in a comment
    assert not re.search(r"fetch|XMLHttp|import|innerHTML|eval|http", code)
    for tag, attributes in tags:
        assert tag not in ("link", "iframe", "object", "embed")
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:text/csv;charset=utf-8,"))
        assert not any(name.startswith("on") for name in attributes)
        if "src" in attributes:
            assert attributes["src"].startswith("data:")
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    "attack",
    [
        "</pre><script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "{{ 7 * 7 }}{% raw %}",
        "\x1b[2J\x00\u202e\ud800 end",
    ],
)
def test_model_text_stays_text(tmp_path, attack):
    page = make(tmp_path, response=attack)
    tags = parsed(page)
    assert [tag for tag, _ in tags].count("script") == page.count("<script") == 1
    assert not [tag for tag, attributes in tags if "onerror" in attributes]
    assert not re.search("[\x00-\x08\x1b\u202e]", page)
    assert "49" not in re.findall(r"<pre>(.*?)</pre>", page)


@pytest.mark.parametrize(
    "options",
    [
        {"keep": lambda run: False, "evaluate": False},
        {"keep": lambda run: run.method == "srpo" and run.benchmark == "physics"},
        {"evaluate": False},
        {"stop_at": 1.0},
        {"stop_at": 12.0, "evaluate": False},
    ],
    ids=["nothing", "one run", "no evaluation", "just started", "half way"],
)
def test_partial_results_render(tmp_path, options):
    page = make(tmp_path, **options)
    parsed(page)
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", "", page, flags=re.S)
    assert not re.search(r"\b(nan|NaN|None|NaT|inf)\b", text)
    write_tables(load_results(tmp_path), tmp_path / "tables")


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"clock": {"kind": "modelled"}, "budget_seconds": {"only": 10}}},
        {"matrix": [{**tiny_experiment()["matrix"][0], "methods": ["sdpo"], "benchmarks": ["miniature/physics"]}]},
        {"matrix": [{**tiny_experiment()["matrix"][0], "methods": ["sdpo", "sdpo_failed_only", "sdpo_correct_only"]}]},
    ],
    ids=["one budget", "one method", "figure 1b"],
)
def test_small_experiments_render(tmp_path, changes):
    experiment = load_experiment(tiny_experiment(**changes))
    page = make(tmp_path, experiment)
    parsed(page)
    results = load_results(tmp_path)
    write_tables(results, tmp_path / "tables")
    write_figures(results, tmp_path / "figures")
    assert "nan" not in (tmp_path / "tables/table1.md").read_text()


def test_runs_of_another_test_split_are_left_out_not_compared(tmp_path):
    """As while an experiment whose questions changed is retrained."""
    write_results(tmp_path, EXPERIMENT)
    for name in ("validations.jsonl", "evaluation.json"):
        path = tmp_path / "runs/miniature-small/physics/srpo/seed1" / name
        path.write_text(re.sub(r'"question_scores": \[[^]]*\]', '"question_scores": [0.5, 1.0]', path.read_text()))
    results = load_results(tmp_path)
    frame = build_tables(results)["differences"].frame.query("method == 'grpo' and budget == '10h'")
    assert list(frame.set_index("benchmark")["difference"].isna()) == [False, True, False]
    assert list(frame["benchmarks"]) == [1, 0, 1]
    assert "avg@k is not the mean of its questions" in report(tmp_path)


def test_an_empty_folder_renders_with_figures_that_say_so(tmp_path):
    results = load_results(tmp_path, EXPERIMENT)
    paths = write_figures(results, tmp_path / "figures")
    assert all(path.stat().st_size for path in paths)
    page = report(tmp_path)
    assert "0 of 6 training runs are finished" in page
    assert page.count(": No data (yet).") == len(SHOWN) - 1  # our questions are shown if one is tested
    assert set(verdicts(tmp_path).values()) == {"not tested"}
    assert "No primary claim is tested here: not measured yet; not run with grpo_at_srpo_settings." in page


def test_base_models_alone_render(tmp_path):
    block = {"models": ["miniature-small"], "benchmarks": ["miniature/physics"]}
    experiment = load_experiment(tiny_experiment(matrix=[block]))
    page = make(tmp_path, experiment)
    assert "1 of 1 base models" in page
    write_tables(load_results(tmp_path), tmp_path / "tables")
    assert set(verdicts(tmp_path, experiment).values()) == {"not tested"}


def test_published_numbers_only_where_comparable(tmp_path):
    assert "not comparable with the paper" in make(tmp_path / "miniature")
    assert "Published" not in (tmp_path / "miniature/report.html").read_text()
    page = make(tmp_path / "paper", paper_experiment())
    assert "Published" in page
    assert "78.4" in page
    assert "not comparable with the paper" not in page


def test_links_lead_somewhere_and_ids_are_unique(tmp_path):
    tags = parsed(make(tmp_path))
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for _, attributes in tags if attributes.get("href", "").startswith("#")}
    assert targets <= set(ids)


def test_embedded_data_is_what_the_figure_was_drawn_from(tmp_path):
    results = results_of(tmp_path)
    write_figures(results, tmp_path / "figures")
    tags = parsed(report(tmp_path))
    links = {a["download"]: a["href"] for _, a in tags if "download" in a}
    for name in set(SHOWN) - ABSENT - {"step_seconds"}:
        embedded = unquote(links[f"{name}.csv"].split(",", 1)[1])
        assert embedded.encode() == (tmp_path / f"figures/{name}.csv").read_bytes()
    drawn = pd.read_csv(tmp_path / "figures/learning_curves.csv")
    logged = results.validations
    # one run per line: a point for each validation, and one at the end of the run or of the last budget
    within = logged[logged["clock"] < max(EXPERIMENT.training.budget_seconds.values())]
    for line, points in drawn.groupby(["model", "benchmark", "method"]):
        log = within.set_index(["model", "benchmark", "method"]).loc[line]
        assert list(points["value"][:-1]) == pytest.approx(list(100 * log["avg_at_k"]), abs=1e-3)
        assert points["value"].iloc[-1] == points["value"].iloc[-2]


def test_the_curves_on_the_screen_are_those_of_the_drawn_figure(tmp_path):
    """Lines, bands, crosses, the untrained model and the budgets."""
    seeds = [*range(1, FEW_RUNS + 2)]
    write_results(tmp_path, tiny_of(methods=["grpo", "sdpo"], benchmarks=["miniature/physics"], seeds=seeds))
    results = load_results(tmp_path)
    first = results.validations.iloc[0]
    alarm = first[[*RUN_KEY, "step", "clock"]].to_dict() | {
        "rule": "length",
        "level": "alarm",
        "value": 1,
        "reference": 1,
    }
    results = replace(results, signals=pd.DataFrame([alarm]))
    frame = curves_with_alarms(results, ["grpo", "sdpo"])
    (tmp_path / "learning_curves.png").write_bytes(bytes(16) + struct.pack(">I", 900))
    (plot,) = [a for _, a in parsed(render(results, tmp_path)) if "data-curves" in a]
    shown = json.loads(plot["data-curves"])
    (panel,) = shown["panels"]
    assert panel["base"] == pytest.approx(100 * results.bases["avg_at_k"].mean(), abs=0.01)
    for line, method in zip(panel["lines"], ("grpo", "sdpo"), strict=True):
        points = frame[(frame["method"] == method) & (frame["series"] == "")]
        for key, column, digit in (
            ("x", "clock", 1e-3),
            ("y", "value", 0.01),
            ("low", "low", 0.1),
            ("high", "high", 0.1),
        ):
            assert line[key] == pytest.approx([*points[column]], abs=digit, nan_ok=True)
    (cross,) = panel["lines"][0]["alarms"]
    assert cross == pytest.approx([first["clock"], 100 * first["avg_at_k"]], abs=0.1)
    figure = draw_scores("Scores", results, frame)
    assert shown["end"] == figure.axes[0].get_xlim()[1]
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text()] == [
        name for name, _ in shown["budgets"]
    ]
    few = results_of(tmp_path / "few", tiny_of(methods=["grpo"], seeds=seeds[:-1]))
    assert "low" not in _curves(curves_with_alarms(few, ["grpo"]), few)


SENTENCES = re.compile(r"(?<=[.!?:;]) (?=[A-Z])")


def test_no_sentence_is_longer_than_two_lines_of_a_wide_screen(tmp_path):
    """About 130 letters fit into a line; notes of tables have a smaller font and are not counted."""
    page = make(tmp_path)
    texts = re.findall(r"<(p|li|dd|figcaption)(?: class=\"(?!note)[^\"]*\")?>(.*?)</\1>", page, flags=re.S)
    assert len(texts) > 25
    for _, text in texts:
        plain = " ".join(unescape(re.sub("<[^>]*>", "", text)).split())
        assert max(map(len, SENTENCES.split(plain))) <= 260, plain


def test_a_figure_of_zeros_is_a_sentence(tmp_path):
    results = results_of(tmp_path)
    results = replace(results, steps=results.steps.assign(**{"teacher/entropy": 0.0}))
    write_figures(results, tmp_path / "figures")
    page = render(results, tmp_path / "figures")
    assert "Uncertainty of the self-teacher (the paper&#39;s figure 1c): every value is 0.</p>" in page
    assert not [a["alt"] for tag, a in parsed(page) if tag == "img" and a["alt"].startswith("Uncertainty")]


def test_the_page_says_which_budget_a_name_in_a_csv_file_is(tmp_path):
    page = make(tmp_path)
    said = ", in which 1h is budget 1, 5h is budget 2, 10h is budget 3</p>"
    names = [name for name, table in build_tables(load_results(tmp_path)).items() if "budget" in table.frame]
    assert "table1" in names
    for name in names:
        assert (f"{name}.csv</a>{said}" in page) is (f'id="table-{name}"' in page)
    only = {"training": {"clock": {"kind": "modelled"}, "budget_seconds": {"only": 10}}}
    assert ", in which" not in make(tmp_path / "only", load_experiment(tiny_experiment(**only)))


def test_numbers_of_tables_have_minus_signs_and_model_text_is_kept(tmp_path):
    page = make(tmp_path, response="-3 and -4")
    assert "−" in page.split('id="table-differences"')[1].split("</table>")[0]
    cells = re.findall(r"<(?:td|small)[^>]*>([^<]*)", page)
    assert not [text for text in cells if re.search(r"(^|\[|, )-\d", text) and "-3 and -4" not in text]
    assert "-3 and -4" in page


def test_table_1_opens_with_the_score_that_decides(tmp_path):
    checked = [a["id"] for tag, a in parsed(make(tmp_path)) if tag == "input" and "checked" in a]
    assert "table1-3" in checked
    assert build_tables(load_results(tmp_path))["table1"].grids[2].title.startswith("Cross-fitted")


def test_each_block_begins_with_its_figure_and_differences_precede_scores(tmp_path):
    page = make(tmp_path)
    for block, figure in (("mechanism", "routing"), ("time", "step_seconds")):
        start = page.index(f'<section id="{block}">')
        assert page.index(f'id="figure-{figure}"') < page.index("<table", start)
        assert start < page.index(f'id="figure-{figure}"')
    assert page.index('id="table-differences"') < page.index('id="table-table1"')
    first = page.split('<details class="section">')[0]
    assert [name for name in SHOWN if f'id="figure-{name}"' in first] == ["primary_differences", "learning_curves"]
    assert "<table" not in first


def test_titles_and_commands_are_not_repeated(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    write_figures(load_results(tmp_path), tmp_path / "figures")
    page = report(tmp_path)
    assert page.count("srpo report results/tiny</pre>") == 1
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, flags=re.S)
    titles = tuple(f"{spec.title}{end}" for spec in FIGURES.values() for end in (".", "</b>"))
    assert captions
    assert not [caption for caption in captions if caption.removeprefix("<b>").startswith(titles)]  # the picture has it


def test_a_control_that_the_methods_do_not_need_is_the_other_claim(tmp_path):
    """At equal settings a claim about the control is one about the methods: it is named, and counted once."""
    same = {"learning_rate": 1e-4, "mini_batch_questions": 2}
    methods = {name: method.model_copy(update=same) for name, method in EXPERIMENT.methods.items()}
    sentence = 'GRPO and SRPO have the same learning rate and updates per batch here: this is "SRPO ends above GRPO"'
    for name, experiment in (("differ", EXPERIMENT), ("equal", EXPERIMENT.model_copy(update={"methods": methods}))):
        page = unescape(make(tmp_path / name, experiment))
        row = page.split('id="claim-srpo_over_grpo_at_its_settings"')[1].split("</tr>")[0]
        equal = name == "equal"
        assert ("same claim" in row) is (sentence.replace("GRPO and SRPO", "SRPO and GRPO") in row) is equal
        assert ("not run with grpo_at_srpo_settings" in row) is not equal
        counts = page.split("<h2>Primary claims and scores</h2>")[1].split("</summary>")[0]
        assert ("same claim: 3" in counts) is equal
        shown = page.split('<section id="scores">')[1].split("</table>")[0].count('id="claim-')
        assert sum(map(int, re.findall(r": (\d+)</span>", counts))) == shown
        assert verdicts(tmp_path / name)["srpo_over_grpo_at_its_settings"] == "not tested"


def test_a_model_has_one_name_for_readers(tmp_path):
    """Its title; a base model's is the title with its number. The names of files stay in the CSV files."""
    model = EXPERIMENT.models[MODEL].model_copy(update={"draws": "per_seed", "title": "Small"})
    experiment = EXPERIMENT.model_copy(update={"models": {MODEL: model}})
    text = re.sub(r"<(script|style)>.*?</\1>|<[^>]+>", "\n", make(tmp_path, experiment), flags=re.S)
    assert not re.findall(rf".*{MODEL}.*", text)
    assert "Small, base model 1" in text
    assert re.search(r"Small · \w+ · SRPO · seed 1, training step", text)


def test_bold_is_the_highest_of_a_column_and_colour_the_side_of_a_difference(tmp_path):
    tables = build_tables(results_of(tmp_path))
    frame = tables["differences"].frame
    scores = [cell for grid in tables["table1"].grids for row in grid.rows for cell in row.cells]
    differences = [cell for grid in tables["differences"].grids for row in grid.rows for cell in row.cells]
    assert any(cell.best for cell in scores)
    assert not any(cell.side for cell in scores)
    assert not any(cell.best for cell in differences)
    for low, high, cell in zip(*(frame[f"difference_{end}"] for end in ("low", "high")), differences, strict=True):
        assert cell.side == (low > 0) - (high < 0)
    assert "Bold: the highest number" in (write_table(tables["table1"], tmp_path)[1]).read_text()
    assert "Bold" not in (write_table(tables["differences"], tmp_path)[1]).read_text()


def test_each_claim_stands_in_the_section_of_its_block(tmp_path):
    page = make(tmp_path)
    ids = {"primary": "scores", "mechanism": "mechanism", "time": "time"}
    for needs_other_methods in ("questions", "ablations"):
        assert f'<section id="{needs_other_methods}">' not in page
    parts = {
        block: page.split(f'<section id="{name}">')[1].split("</section>\n</details>")[0] for block, name in ids.items()
    }
    for claim in load_claims():
        where = [block for block, part in parts.items() if f'id="claim-{claim.id}"' in part]
        assert where == ([] if claim.ours or claim.block not in ids else [claim.block])
