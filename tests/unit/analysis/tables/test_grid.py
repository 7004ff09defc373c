"""Tables of cells: wide ones are cut into parts that fit."""

from __future__ import annotations

from dataclasses import replace

from srpo.analysis.tables.grid import Cell, Grid, Row


def test_wide_grids_are_cut_between_groups_and_keep_every_cell():
    columns = [("", "Seeds"), *((f"group {g}", str(b)) for g in range(4) for b in range(3))]
    base = Row("Base", [Cell(""), *(Cell(f"base {g}", span=3) for g in range(4))])
    row = Row("A", [Cell(str(place)) for place in range(13)])
    grid = Grid("Method", columns, [Row("Model", heading=True), base, row])
    first, second = grid.parts(most=9)
    assert [label for _, label in first.columns] == ["Seeds", "0", "1", "2", "0", "1", "2"]
    assert second.groups == [("group 2", 3), ("group 3", 3)]
    assert [[cell.text for cell in part.rows[2].cells] for part in (first, second)] == [
        [str(place) for place in range(7)],
        [str(place) for place in range(7, 13)],
    ]
    assert [cell.text for cell in second.rows[1].cells] == ["base 2", "base 3"]
    assert grid.parts(most=13) == [grid]
    text = replace(grid, numeric=False)
    assert text.parts(most=2) == [text]
