"""Files that people write: YAML that is read as it was meant, or refused with one line."""

import pytest
from one_line import refused

from srpo.ground.files import parse_yaml


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: {c: 2}\na: 3\n", "x.yaml: not valid YAML: key a is given twice"),
        ("steps: 010", "x.yaml: not valid YAML: 010: not decimal"),  # 8 of YAML 1.1
        ("budget_seconds: {short: 1:30}", "x.yaml: not valid YAML: 1:30: not decimal"),  # 90
    ],
)
def test_yaml_that_would_be_read_otherwise_than_it_was_meant_is_refused(text: str, says: str) -> None:
    for content in (text, text.encode()):
        with refused(says):
            parse_yaml(content, "x.yaml")
