"""Text for people; untrusted text is made safe to show."""

import re

import pytest

from srpo.ground.text import duration, minus, printable


def test_a_hyphen_that_begins_a_number_becomes_a_minus():
    assert minus("-7.8 [-11.5, -4.0]; A - B is -8.5 to +2.5") == "−7.8 [−11.5, −4.0]; A - B is −8.5 to +2.5"
    for kept in ("2026-11-25", "Qwen3-8B", "1e-05", "avg@k-th", "SRPO-2"):
        assert minus(kept) == kept


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (69.84, "1.16 minutes"),
        (3599, "60 minutes"),
        (3600, "1 hour"),
        (36_000 * 1.05, "10.5 hours"),
        (4861 * 3600, "4861 hours"),
    ],
)
def test_a_duration_has_the_unit_that_is_easy_to_read(seconds, text):
    assert duration(seconds) == text
    number, unit = text.split()
    assert duration(seconds, "GPU") == f"{number} GPU-{unit}"


def test_printable_shortens_and_spells_out():
    assert printable("a\u202eb\x07\n\tc") == "a\\u202eb\\u0007\n\tc"
    short = printable("a" * 1000 + "z" * 1000)
    assert len(short) == 1500
    assert re.fullmatch("a+ … .2000 characters in all. … z+", short)
