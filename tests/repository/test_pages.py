"""The pages' tables of methods and experiments are those of the files of `configs`."""

import pages


def test_tables_from_configuration_are_current() -> None:
    assert pages.main(["--check"]) == 0
    assert "grpo/grpo/sdpo/grpo" in pages.methods()
