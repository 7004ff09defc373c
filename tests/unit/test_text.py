"""Untrusted text is made safe to show."""

from __future__ import annotations

import re

from srpo.text import printable, shortened


def test_printable_shortens_and_spells_out():
    assert printable("a\u202eb\x07\n\tc") == "a\\u202eb\\u0007\n\tc"
    short = printable("a" * 1000 + "z" * 1000)
    assert len(short) == 1500
    assert re.fullmatch("a+ … .2000 characters in all. … z+", short)


def test_long_texts_keep_their_beginning_and_end():
    text = "".join(chr(ord("a") + i % 26) for i in range(5000))
    short = shortened(text, 1000)
    assert len(short) == 1000
    head, gap, tail = short.partition(" … (5000 characters in all) … ")
    assert gap
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - len(tail)) <= 1
    assert shortened(text, 5000) == text
    assert len(shortened(text, 40)) == 40
