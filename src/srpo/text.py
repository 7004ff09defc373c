"""Shortens untrusted text and makes it safe to show."""

from __future__ import annotations

import unicodedata
from typing import Any


def shortened(text: str, longest: int) -> str:
    """Cut the middle out of a text that is longer than ``longest`` characters; the end, with the answer, is kept.

    The length of the whole text is written in the gap.
    """
    if len(text) <= longest:
        return text
    gap = f" … ({len(text)} characters in all) … "
    kept = max(0, longest - len(gap))
    return text[: kept - kept // 2] + gap + text[len(text) - kept // 2 :]


def printable(text: Any, longest: int = 1500) -> str:
    """Untrusted text that is safe to show: control characters are replaced by their code, then it is :func:`shortened`.

    Control, surrogate and direction-changing characters could hide or reorder the text around them. Markup is not
    escaped here, because HTML, LaTeX and Markdown escape differently.
    """
    shown = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in str(text))
    return shortened(shown, longest)
