# The run matrix: the runs, the base models to evaluate, and the names and files that follow from them.

from srpo.analysis.outline import COST_TABLES, figures_of, tables_of
from srpo.ground.layout import RUN_PATH

RUNS = EXPERIMENT.runs()
BASE_MODELS = EXPERIMENT.every_base_model()
BASES = EXPERIMENT.base_evaluations()
DATA_SETS = EXPERIMENT.data_sets()
ANY_RUN = LAYOUT.any_run  # with wildcards
ANY_BASE = LAYOUT.base_files("{model}", "{benchmark}")
GAPS = EXPERIMENT.gaps()
# The workflow and the report page use the same list.
TABLES = tables_of(EXPERIMENT, bool(GAPS))
FIGURES = figures_of(EXPERIMENT)
STATISTICS = [LAYOUT.statistics(data_set) for data_set in DATA_SETS]


wildcard_constraints:
    model="[^/]+",
    benchmark="[^/]+",
    method="[^/]+",
    seed=r"-?\d+",
    split="train|test",
