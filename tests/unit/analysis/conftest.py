"""Results that several tests read and none changes."""

import pytest
from report_cases import EXPERIMENT
from synthetic import write_results

from srpo.analysis.load import load_results
from srpo.analysis.write import write_tables


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    write_results(root, EXPERIMENT)
    write_tables(load_results(root), root / "tables")
    return root
