"""The page in a real browser: what stands on its first screen, and what a phone shows."""

from __future__ import annotations

import re

import matplotlib as mpl
import pytest
from browser import CHROMIUM, measure, printed_pages
from null_experiment import Null, results_of

from srpo.analysis.figures import style
from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.report.page import render

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

BOXES = """Object.fromEntries(Object.entries({
    run: ".lead", sentences: ".answers-in-short", forest: "#figure-primary_differences img",
    curves: "#figure-learning_curves .plot"
}).map(([name, selector]) => [name, (({left, right, top, bottom}) => ({left, right, top, bottom}))(
    d.querySelector(selector).getBoundingClientRect())]))"""
LINES = """[...d.querySelectorAll(".lead, .answers-in-short li, .legend dd, main > section > p, details p")].map(e => {
    const range = d.createRange(); range.selectNodeContents(e);
    return [e.textContent, new Set([...range.getClientRects()].map(r => Math.round(r.bottom / 8))).size]})"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Five benchmarks, three methods, three seeds, of which one method is ahead: drawn and rendered."""
    root = tmp_path_factory.mktemp("screens")
    results = results_of(root, Null(gain=(("srpo", 6.0),)))
    with mpl.rc_context(style.rc()):
        for name in ("primary_differences", "learning_curves", "routing", "step_seconds"):
            spec = FIGURES[name]
            style.save(spec.draw(spec.title, results, spec.data(results)), root / "figures", name)
    return render(results, root / "figures")


def test_the_first_screen_has_the_run_the_answer_the_forest_and_the_curves(page, tmp_path):
    boxes = measure(page, tmp_path, 1300, 900, BOXES)
    for name, box in boxes.items():
        assert 0 <= box["left"] < box["right"] <= 1300, name
        assert 0 <= box["top"] < box["bottom"] <= 900, name
    assert boxes["sentences"]["bottom"] <= boxes["forest"]["top"] < boxes["curves"]["top"]
    assert boxes["forest"]["right"] - boxes["forest"]["left"] > 700


def test_a_phone_shows_the_answer_first_and_scrolls_figures_not_the_page(page, tmp_path):
    boxes = measure(page, tmp_path, 390, 844, BOXES)
    assert boxes["sentences"]["right"] <= 390
    bars = """[...d.querySelectorAll("#figure-primary_differences .words li")].map(row => [row.textContent.trim(),
        ...["span", "i", "u", "b"].map(name => (({left, right, top}) => [left, right, top])(
            (row.querySelector(name) || row).getBoundingClientRect()))])"""
    title, *rows = measure(page, tmp_path, 390, 844, bars)
    assert title[0] == f"{FIGURES['primary_differences'].title}, points"
    assert boxes["forest"]["right"] == boxes["forest"]["left"]  # instead of the picture, which is wider than the screen
    assert boxes["sentences"]["bottom"] < rows[0][1][2] < 844
    assert len(rows) == 7
    for text, (left, right, _), interval, point, zero in rows:
        value, low, high = map(float, re.findall(r"[+-]?[\d.]+(?=[ ,\]])", text.split(": ")[1].replace("−", "-")))
        scale = (interval[1] - interval[0]) / (high - low)
        assert 0 <= left <= interval[0] < interval[1] <= right + 1 <= 391
        assert (point[0] + point[1]) / 2 - interval[0] == pytest.approx(scale * (value - low), rel=0.08, abs=3)
        assert zero[0] - interval[0] == pytest.approx(-scale * low, rel=0.08, abs=3)  # texts are rounded
    unfold = "d.querySelectorAll('details').forEach(e => { e.open = true; })"
    widths = measure(page, tmp_path, 390, 844, f"({unfold}, [d.documentElement.scrollWidth, d.body.scrollWidth])")
    assert max(widths) <= 390


def test_a_phone_shows_a_number_beside_the_fixed_names_of_every_table(page, tmp_path):
    """The first column is neither wider than half of the screen nor narrower than a word."""
    columns = """(d.querySelectorAll("details").forEach(e => { e.open = true; }),
        [...d.querySelectorAll(".numeric tbody tr:not(.heading) th")].map(e => e.getBoundingClientRect().width)
        .filter(width => width > 0))"""
    widths = measure(page, tmp_path, 390, 844, columns)
    assert len(widths) > 20
    assert 60 < min(widths) <= max(widths) < 195


def test_the_curves_have_one_legend_with_values_whose_names_hide_lines(page, tmp_path):
    """A row a method with its values at the end in every panel; a click hides it, another one shows it."""
    legend = """(() => {
        const rows = [...d.querySelectorAll(".keys tbody tr")], [button] = d.querySelectorAll(".keys button");
        const drawn = () => [...d.querySelectorAll(".plot canvas")].map(canvas => canvas.toDataURL());
        const before = drawn();
        button.click();
        const hidden = button.getAttribute("aria-pressed");
        button.click();
        return {heads: [...d.querySelectorAll(".keys thead th")].map(e => e.textContent), panels: before.length, hidden,
            shown: button.getAttribute("aria-pressed"), others: d.querySelectorAll(".u-legend tr").length,
            right: d.querySelector(".keys table").getBoundingClientRect().right,
            feet: [...d.querySelectorAll(".keys tfoot tr")].map(row => [...row.cells].map(e => e.textContent)),
            rows: rows.map(row => [...row.cells].map(e => e.textContent))};
    })()"""
    found = measure(page, tmp_path, 390, 844, legend)
    assert found["heads"] == ["at the end, %", "Chemistry", "Physics", "Biology", "Materials", "Tool use"]
    assert found["panels"] == 5
    assert found["others"] == 0
    assert [row[0] for row in found["rows"]] == ["GRPO", "SDPO", "SRPO"]
    assert all(0 < float(value) < 100 for _, *values in found["rows"] for value in values)
    assert [row[0] for row in found["feet"]][:1] == ["╌╌ untrained"]
    assert all(0 < float(value) < 100 for value in found["feet"][0][1:])
    assert (found["hidden"], found["shown"]) == ("false", "true")
    assert found["right"] <= 390


def test_a_phone_names_the_column_of_every_cell_of_a_text_table(page, tmp_path):
    bare = """[...d.querySelectorAll(".text:not(.facts) tbody tr:not(.heading) td:not([data-head])")].length"""
    assert measure(page, tmp_path, 390, 844, bare) == 0


def test_everything_else_is_folded_and_found_from_the_contents(page, tmp_path):
    found = measure(
        page,
        tmp_path,
        1300,
        900,
        "({open: d.querySelectorAll('details[open].section').length,"
        " folded: [...d.querySelectorAll('details.section > section')].map(e => e.id),"
        " linked: [...d.querySelectorAll('nav a')].map(e => e.hash.slice(1)),"
        " beside: d.querySelector('nav').getBoundingClientRect().right"
        "  <= d.querySelector('main').getBoundingClientRect().left})",
    )
    assert found["open"] == 0
    assert found["beside"]
    assert {"scores", "mechanism", "time", "checks", "provenance"} <= {*found["folded"]}
    assert found["linked"] == ["summary", *found["folded"]]


def test_no_sentence_of_the_summary_is_longer_than_three_lines(page, tmp_path):
    lines = dict(measure(page, tmp_path, 1300, 900, LINES))
    run = next(text for text in lines if "clock" in text)
    assert lines[run] == 1
    short = re.findall(r'<ul class="answers-in-short">.*?</ul>', page, flags=re.S)[0].count("<li>")
    assert short == 3
    sentences = [text for text in lines if text.strip().startswith(("At its best ", "SRPO's best ", "Of "))]
    assert len(sentences) == 3
    assert all(lines[text] <= 3 for text in sentences)  # beside the card


def test_no_table_is_wider_than_the_paper(page, tmp_path):
    """Letter in landscape is 965 pixels wide between its margins; for a wider table Chromium prints all smaller."""
    printed = page.replace("@media print", "@media screen").replace("<details", "<details open")
    widest = "Math.max(...[...d.querySelectorAll('table, img, pre')].map(e => e.getBoundingClientRect().right))"
    assert 500 < measure(printed, tmp_path, 965, 700, widest) <= 965


def test_on_paper_the_summary_is_one_page_and_folded_sections_are_printed(page, tmp_path):
    first = page[: page.index('<details class="section">')] + "</main></body></html>"
    assert printed_pages(first, tmp_path) == 1
    registered = f"<li>Claims were registered.</li>\n<li>{'Under the other registered clocks. ' * 22}</li></ul>"
    answers, rest = first.split('<ul class="answers-in-short">')[1].split("</ul>", 1)
    longer = first.split(answers)[0] + answers + registered + rest
    assert printed_pages(longer, tmp_path) == 1  # beside the card
    assert printed_pages(page, tmp_path) > 10
