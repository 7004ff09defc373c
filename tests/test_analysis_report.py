"""The report: one page that renders whatever is there, and that model text cannot break out of."""

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd
import pytest
from synthetic import CURVES, paper_experiment, tiny_experiment, write_results

from srpo import analysis
from srpo.analysis.claims import findings, load_claims
from srpo.analysis.curves import average_curves, validation_curves
from srpo.analysis.drawing import draw_scores
from srpo.analysis.figures import FIGURES
from srpo.analysis.summary import remarks
from srpo.analysis.tables import TABLES
from srpo.analysis.text import printable
from srpo.compose import load_experiment
from srpo.contents import all_sections, figures_of

EXPERIMENT = load_experiment(tiny_experiment())


SHOWN = figures_of(EXPERIMENT)
ABSENT = {"ablation_curves", "sdpo_variants"}  # EXPERIMENT has none of their methods


def make(root, experiment=EXPERIMENT, **options):
    """Fabricate results and report them without figures, which are slow."""
    write_results(root, experiment, **options)
    return report(root, experiment)


def report(root, experiment=EXPERIMENT):
    results = analysis.load_results(root, experiment)
    analysis.write_report(results, root / "report.html")
    return (root / "report.html").read_text()


class Tags(HTMLParser):
    """Collect tags and check that they nest."""

    VOID = frozenset({"meta", "input", "img", "br", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags.seen


def verdicts(root, experiment=EXPERIMENT):
    return {finding.claim.id: finding.verdict for finding in findings(analysis.load_results(root, experiment))}


def test_figures_and_report_twice_give_the_same_bytes(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    written = {}
    for attempt in ("a", "b"):
        results = analysis.load_results(tmp_path)
        paths = analysis.write_figures(results, tmp_path / attempt)
        analysis.write_report(results, tmp_path / f"{attempt}.html", figures_dir=tmp_path / attempt)
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
    assert not re.search(r"fetch|XMLHttp|import|innerHTML|eval|http", script)
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


def test_printable_shortens_and_spells_out():
    assert printable("a\u202eb\x07\n\tc") == "a\\u202eb\\u0007\n\tc"
    assert printable("x" * 2000).endswith("(500 more characters)")


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
    assert not re.search(r"\b(nan|none|nat|inf)\b", text, flags=re.I)
    analysis.write_tables(analysis.load_results(tmp_path), tmp_path / "tables")


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"clock": {"kind": "modelled"}, "budgets": {"only": 10}}},
        {"matrix": [{**tiny_experiment()["matrix"][0], "methods": ["sdpo"], "benchmarks": ["miniature/physics"]}]},
        {"matrix": [{**tiny_experiment()["matrix"][0], "methods": ["sdpo", "sdpo_failed_only", "sdpo_correct_only"]}]},
    ],
    ids=["one budget", "one method", "figure 1b"],
)
def test_small_experiments_render(tmp_path, changes):
    experiment = load_experiment(tiny_experiment(**changes))
    page = make(tmp_path, experiment)
    parsed(page)
    results = analysis.load_results(tmp_path)
    analysis.write_tables(results, tmp_path / "tables")
    analysis.write_figures(results, tmp_path / "figures")
    assert "nan" not in (tmp_path / "tables/table1.md").read_text()


def test_runs_of_another_test_split_are_left_out_not_compared(tmp_path):
    """As while an experiment whose questions changed is trained anew."""
    write_results(tmp_path, EXPERIMENT)
    for name in ("validations.jsonl", "evaluation.json"):
        path = tmp_path / "runs/miniature-small/physics/srpo/seed1" / name
        path.write_text(re.sub(r'"question_scores": \[[^]]*\]', '"question_scores": [0.5, 1.0]', path.read_text()))
    results = analysis.load_results(tmp_path)
    frame = analysis.tables.build_tables(results)["differences"].frame.query("method == 'grpo' and budget == '10h'")
    assert list(frame.set_index("benchmark")["difference"].isna()) == [False, True, False]
    assert list(frame["benchmarks"]) == [1, 0, 1]
    assert "avg@k is not the mean of its questions" in report(tmp_path)


def test_an_empty_folder_renders_with_figures_that_say_so(tmp_path):
    results = analysis.load_results(tmp_path, EXPERIMENT)
    paths = analysis.write_figures(results, tmp_path / "figures")
    assert all(path.stat().st_size for path in paths)
    page = report(tmp_path)
    assert "0 of 6 training runs are finished" in page
    assert page.count(": No data (yet).") == len(SHOWN)
    assert set(verdicts(tmp_path).values()) == {"not tested"}
    assert "No claim of the paper is tested here (yet)." in page


def test_base_models_alone_render(tmp_path):
    block = {"models": ["miniature-small"], "benchmarks": ["miniature/physics"]}
    experiment = load_experiment(tiny_experiment(matrix=[block]))
    page = make(tmp_path, experiment)
    assert "1 of 1 base models" in page
    analysis.write_tables(analysis.load_results(tmp_path), tmp_path / "tables")
    assert set(verdicts(tmp_path, experiment).values()) == {"not tested"}


def test_published_numbers_only_where_comparable(tmp_path):
    assert "not comparable with the paper" in make(tmp_path / "miniature")
    assert "Published" not in (tmp_path / "miniature/report.html").read_text()
    page = make(tmp_path / "paper", paper_experiment())
    assert "Published" in page
    assert "78.4" in page
    assert "not comparable with the paper" not in page


def test_claims_follow_the_logs(tmp_path):
    """The fabricated curves: SDPO falls, its entropy too, SRPO ends on top and routes less and less."""
    longer = {"clock": {"kind": "modelled"}, "budgets": {"1h": 5, "5h": 25, "10h": 50}}
    matrix = [{**tiny_experiment()["matrix"][0], "seeds": [1, 2, 3]}]
    experiment = load_experiment(tiny_experiment(training=longer, matrix=matrix))
    write_results(tmp_path, experiment)
    seen = verdicts(tmp_path, experiment)
    assert seen["sdpo_collapses"] == "holds"
    assert seen["srpo_over_sdpo_last"] == "holds"
    assert seen["teacher_entropy_rises"] == "does not hold"
    assert seen["routed_share_falls"] == "holds"
    assert seen["weighting_late_gain"] == "not tested"
    page = report(tmp_path, experiment)
    assert "SRPO minus SDPO" in page
    assert "Numbers are means over 3 seeds; intervals cover another training seed." in page


def test_our_questions_are_not_taken_for_the_papers_claims(tmp_path):
    """They stand in a table of their own, and the summary's count is the paper's alone."""
    page = make(tmp_path)
    ours = [claim for claim in load_claims() if claim.ours]
    rest = len(load_claims()) - len(ours)
    assert f"Of the paper's {rest} claims listed below" in unescape(page)
    before, after = page.split("<h3>Our questions</h3>")
    for claim in load_claims():
        assert f'id="claim-{claim.id}"' in (after if claim.ours else before)


def test_our_questions_are_answered_where_the_controls_were_run(tmp_path):
    """A control that is SRPO under another name and one that is GRPO: the intervals say so."""
    names = ["srpo", "srpo_without_weighting"]
    matrix = [{**tiny_experiment()["matrix"][0], "methods": names, "seeds": [1, 2, 3]}]
    experiment = load_experiment(tiny_experiment(matrix=matrix))
    controls = {"srpo_equal_loss_scale": "srpo", "grpo_at_srpo_settings": "srpo"}
    methods = experiment.methods | {
        name: experiment.methods[like].model_copy(update={"name": name, "title": name})
        for name, like in controls.items()
    }
    block = experiment.matrix[0].model_copy(update={"methods": list(methods)})
    experiment = experiment.model_copy(update={"methods": methods, "matrix": [block]})
    CURVES.update({"srpo_equal_loss_scale": CURVES["srpo"], "grpo_at_srpo_settings": (0.5, 20.0, 0.0)})
    write_results(tmp_path, experiment)
    seen = verdicts(tmp_path, experiment)
    assert seen["srpo_over_grpo_at_its_settings"] == "holds"
    assert {seen["weighting_at_equal_loss_scale"], seen["scale_explains_no_gain"]} <= {"holds", "undecided"}
    page = report(tmp_path, experiment)
    assert "SRPO minus grpo_at_srpo_settings" in page


def test_no_collapse_is_no_collapse(tmp_path):
    short = {"clock": {"kind": "modelled"}, "budgets": {"1h": 5, "5h": 15, "10h": 27}, "validate_every": 2}
    experiment = load_experiment(tiny_experiment(training=short))
    write_results(tmp_path, experiment)
    assert verdicts(tmp_path, experiment)["sdpo_collapses"] == "does not hold"


def test_every_table_and_figure_has_one_place_and_every_claim_its_evidence():
    tables = [table for section in all_sections() for table in section.tables]
    figures = [figure for section in all_sections() for figure in section.figures]
    assert sorted(tables) == sorted(TABLES)
    assert sorted(figures) == sorted(FIGURES)


def test_links_lead_somewhere_and_ids_are_unique(tmp_path):
    tags = parsed(make(tmp_path))
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for _, attributes in tags if attributes.get("href", "").startswith("#")}
    assert targets <= set(ids)


def test_embedded_data_is_what_the_figure_was_drawn_from(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    results = analysis.load_results(tmp_path)
    analysis.write_figures(results, tmp_path / "figures")
    tags = parsed(report(tmp_path))
    links = {a["download"]: a["href"] for _, a in tags if "download" in a}
    for name in set(SHOWN) - ABSENT - {"step_seconds"}:
        embedded = unquote(links[f"{name}.csv"].split(",", 1)[1])
        assert embedded.encode() == (tmp_path / f"figures/{name}.csv").read_bytes()
    drawn = pd.read_csv(tmp_path / "figures/learning_curves.csv")
    logged = results.validations
    merged = drawn.merge(logged, on=["model", "benchmark", "method", "step"])
    assert len(merged) == len(logged)
    assert (merged["value"] - 100 * merged["avg_at_k"]).abs().max() < 1e-3


def test_remarks_name_runs_of_other_settings_and_early_ends(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    folder = tmp_path / "runs/miniature-small/physics/srpo/seed1"
    record = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(record.replace("weight_decay: 0.01", "weight_decay: 0.5"))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"stopped_by": "max_steps", "clock": 12.0}))
    results = analysis.load_results(tmp_path)
    found = " ".join(remarks(results))
    assert "differ from the experiment's: miniature-small/physics/srpo/seed1." in found
    assert "before the last budget" in found
    assert "disagrees" not in found
    curves = average_curves(results, EXPERIMENT.methods)
    ends = curves.groupby("method")["clock"].max()
    assert 11.5 < ends["srpo"] <= 12
    assert ends["grpo"] == ends["sdpo"] == 20


@pytest.mark.parametrize(
    ("name", "methods", "metrics"),
    [
        ("branch_norms", {"srpo"}, {"GRPO branch": "grad_norm/policy", "SDPO branch": "grad_norm/distillation"}),
        (
            "loss_by_token",
            {"sdpo", "srpo"},
            {
                "reasoning": "distillation_share/reasoning",
                "first answer token": "distillation_share/answer_start",
                "rest of the answer": "distillation_share/answer_rest",
                "format": "distillation_share/format",
            },
        ),
        ("copying", {"sdpo", "srpo"}, {"student": "copying/student", "teacher": "copying/teacher"}),
        ("weights", {"srpo"}, {"largest": "weights/max", "10 % quantile": "weights/p10", "median": "weights/median"}),
        ("rollout_truncated", {"grpo", "sdpo", "srpo"}, {"": "actor/rollout_is_truncated_fraction"}),
    ],
)
def test_diagnostic_figures_show_the_logged_numbers(tmp_path, name, methods, metrics):
    """Every drawn number against the raw log of its run and step: shares as percent, the rest as logged."""
    write_results(tmp_path, EXPERIMENT)
    frame = FIGURES[name].data(analysis.load_results(tmp_path))
    factor = 1 if name in ("branch_norms", "weights") else 100
    assert set(frame["method"]) == methods
    assert set(metrics) <= set(frame["series"])
    for method in methods:
        for series, metric in metrics.items():
            path = tmp_path / f"runs/miniature-small/physics/{method}/seed1/steps.jsonl"
            events = [json.loads(line) for line in path.read_text().splitlines()]
            logged = {e["step"]: factor * e["metrics"][metric] for e in events if metric in e["metrics"]}
            drawn = frame[(frame["method"] == method) & (frame["series"] == series)].query("benchmark == 'physics'")
            assert dict(zip(drawn["step"], drawn["value"], strict=True)) == pytest.approx(logged)
    if name == "branch_norms":
        assert (frame["step"] % 5 == 0).all()


def test_score_axes_end_where_scores_do(tmp_path):
    """Although an interval over two seeds goes far beyond 100 %."""
    two = load_experiment(tiny_experiment(matrix=[EXPERIMENT.matrix[0].model_dump() | {"seeds": [1, 2]}]))
    write_results(tmp_path, two)
    results = analysis.load_results(tmp_path)
    frame = validation_curves(results, two.methods)
    frame = frame.assign(low=frame["value"] - 90, high=frame["value"] + 90)
    figure = draw_scores("Scores", results, frame)
    assert all(-3 <= axes.get_ylim()[0] < axes.get_ylim()[1] <= 103 for axes in figure.axes)
