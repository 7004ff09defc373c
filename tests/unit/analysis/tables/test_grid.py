"""Tables as LaTeX: escaped, and with lines that fit."""

from __future__ import annotations

from report_cases import EXPERIMENT
from synthetic import write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.grid import latex, text_grid
from srpo.analysis.tables.registry import write_tables


def test_latex_is_booktabs_and_escaped(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / "data/physics/statistics.json"
    path.write_text(path.read_text().replace("or smaller?", "50 % & a_b $x$ \\\\input{x}"))
    write_tables(load_results(tmp_path), tmp_path / "tables")
    text = (tmp_path / "tables/table5.tex").read_text()
    assert r"50 \% \& a\_b \$x\$ \textbackslash input\{x\}" in text
    main = (tmp_path / "tables/table1.tex").read_text()
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\multicolumn{3}{c}{Chemistry}", r"\label{tab:table1}"):
        assert part in main
    for path in (tmp_path / "tables").glob("*.tex"):
        body = [line for line in path.read_text().splitlines() if not line.startswith("%")]
        assert "\n".join(body).count(r"\begin{") == "\n".join(body).count(r"\end{")


def test_long_texts_break_their_lines_in_latex():
    rows = [("short", ["x" * 40, "4 " * 50, "1"]), ("other", ["y", "9 " * 200, "2"])]
    text = latex(text_grid("a", ["b", "c", "d"], rows, numeric=False), "caption", "label")
    assert r"\begin{tabular}{llp{0.75\linewidth}l}" in text
    wide = latex(text_grid("a", ["b", "c"], [("x", ["4 " * 50, "9 " * 200])], numeric=False), "caption", "label")
    assert r"\begin{tabular}{lp{0.25\linewidth}p{0.50\linewidth}}" in wide
