"""All tables of an experiment: tidy CSV for programs, Markdown for people.

The tables in ``tables/`` depend only on scores and the training clock, so with a modelled clock every machine writes
the same bytes. Those that depend on the machine (wall time, memory) are in ``cost/``.
"""

from pathlib import Path

from srpo.analysis.outline import COST_TABLES, by_name, returned, tables_of
from srpo.analysis.results import Results
from srpo.analysis.tables.clock_tables import clocks_table, measured_clocks_table
from srpo.analysis.tables.cost_tables import cost_table
from srpo.analysis.tables.gap_table import before_training_table
from srpo.analysis.tables.question_tables import splits_table
from srpo.analysis.tables.routing_tables import group_table, routing_table
from srpo.analysis.tables.run_tables import budgets_table, collapses_table, watch_table
from srpo.analysis.tables.score_tables import ablation_table, differences_table, ends_table, main_table
from srpo.analysis.tables.settings_table import settings_table
from srpo.analysis.tables.table import Table, write_table
from srpo.analysis.tables.tuning_table import tuning_table
from srpo.analysis.tables.verdict_table import verdicts_table
from srpo.ground.errors import SrpoError

TABLES = by_name(
    "table",
    (
        ("verdicts", verdicts_table),
        ("table1", main_table),
        ("ends", ends_table),
        ("differences", differences_table),
        ("before_training", before_training_table),
        ("table2", ablation_table),
        ("table3", settings_table),
        ("table4", splits_table),
        ("table6", group_table),
        ("table7", routing_table),
        ("budgets", budgets_table),
        ("clocks", clocks_table),
        ("collapses", collapses_table),
        ("watch", watch_table),
        ("tuning", tuning_table),
    ),
)

MEASURED = {"cost": cost_table, "clocks_measured": measured_clocks_table}
"""The tables of measured seconds."""


def build_tables(results: Results) -> dict[str, Table]:
    """The tables of the experiment's report except those of measured seconds, by name (:data:`TABLES`)."""
    names = tables_of(results.experiment, bool(results.gaps))
    if unknown := [name for name in names if name not in TABLES]:
        raise SrpoError(f"reports/outline.yaml: {unknown[0]}: no table of analysis/tables/registry.py")
    made = {name: returned(f"table {name}", TABLES[name](results), Table) for name in names}
    for name, table in made.items():
        if table.name != name:
            raise SrpoError(f"table {name}: its Table has the name {table.name}; give one name, also its files have it")
    return made


def write_tables(results: Results, out_dir: Path) -> list[Path]:
    """Write every table as ``<name>.csv``, ``.md`` and its caption ``.rst``; return the paths.

    The tables of measured seconds go to ``cost/`` beside ``out_dir``.
    """
    out_dir = Path(out_dir)
    written = [path for table in build_tables(results).values() for path in write_table(table, out_dir)]
    costs = [MEASURED[name](results) for name in COST_TABLES]
    return written + [path for table in costs for path in write_table(table, out_dir.parent / "cost")]
