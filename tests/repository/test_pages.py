"""The pages' tables of methods and experiments are those of the files of `configs`."""

import pages
import paper_scale


def test_tables_from_configuration_are_current() -> None:
    assert pages.main(["--check"]) == paper_scale.main(["--check"]) == 0
