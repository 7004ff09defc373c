"""Files that people write: YAML that is read as it was meant, or refused with one line."""

import os
from pathlib import Path

import pytest
from one_line import refused

from srpo.files import parse_yaml, read_bytes
from srpo.inputs.errors import SrpoError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: {c: 2}\na: 3\n", "x.yaml: not valid YAML: key a is given twice, line 3, column 1"),
        ("b: {c: 2, d: 3, c: 4}", "x.yaml: not valid YAML: key c is given twice, line 1, column 17"),
        ("a: " + "9" * 5000, "x.yaml: not valid YAML: Exceeds the limit (4300 digits)"),
        ("title: 2024-13-45", "x.yaml: not valid YAML: month must be in 1..12"),
        ("[" * 5000, "x.yaml: not valid YAML: nested too deeply"),
        (
            "a: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
            "x.yaml: aliases make it ",
        ),
        ("&a [*a]", "x.yaml: aliases make it larger than 1,000,000 values"),
        ("a: !!timestamp b", "x.yaml: not valid YAML: "),
        ("a: *b", "x.yaml: not valid YAML: found undefined alias"),
        (
            "seeds: [1, 010]",
            "x.yaml: not valid YAML: 010 is 8 in YAML; write the number in full, or quote a text, line",
        ),
        ("budget_seconds: {1h: 1:30}", "x.yaml: not valid YAML: 1:30 is 90 in YAML; write the number in full"),
        ("a: 1:30.5", "x.yaml: not valid YAML: 1:30.5 is 90.5 in YAML; write the number in full"),
        ("? [1]\n: 2", "x.yaml: not valid YAML: while constructing a mapping"),
    ],
    ids=range(13),
)
def test_yaml_that_would_be_read_otherwise_than_it_was_meant_is_refused(text: str, says: str) -> None:
    for content in (text, text.encode()):
        with refused(says):
            parse_yaml(content, "x.yaml")


def test_yaml_that_is_read_as_before() -> None:
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\ntwice: [*base, *base]\n"
    base = {"a": 1, "b": 2}
    assert parse_yaml(text, "x.yaml") == {"base": base, "own": {"a": 1, "b": 3}, "twice": [base, base]}
    assert parse_yaml("", "x.yaml") is None
    assert parse_yaml("[0, 0.5, 1_000, 0x1f, '010', 09, 1:x]", "x.yaml") == [0, 0.5, 1000, 31, "010", "09", "1:x"]


def test_a_device_or_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(SrpoError, match=rf"^{path}: a device or a pipe, not a file$"):
            read_bytes(path)
