"""The pages' tables of methods and experiments are those of the files of `configs`."""

import pages


def test_tables_from_configuration_are_current() -> None:
    assert pages.main(["--check"]) == 0
    assert "grpo / grpo / sdpo / grpo" in pages.methods()


def test_a_clause_ends_outside_of_brackets() -> None:
    assert pages.first_clause("Rewards (paper, appendix; code). More.", ".;") == "Rewards (paper, appendix; code)."
    assert pages.first_clause("No end (here", ".;") == "No end (here"
    for row in (line for table in (pages.methods, pages.packages, pages.experiments) for line in table().splitlines()):
        assert row.count("(") == row.count(")"), row
