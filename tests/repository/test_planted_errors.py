"""The planted errors still apply to the code (``make planted-errors`` finds them)."""

import planted_errors
import pytest
from paths import ROOT

ERRORS = planted_errors.errors()


@pytest.mark.parametrize("planted", ERRORS, ids=[each.error for each in ERRORS])
def test_it_applies_and_is_python(planted) -> None:
    text = (ROOT / "src" / "srpo" / planted.file).read_text(encoding="utf-8")
    compile(planted.planted(text), planted.file, "exec")
    for test in planted.tests:
        file, _, name = test.partition("::")
        tests = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not name or f"def {name.partition('[')[0]}(" in tests
