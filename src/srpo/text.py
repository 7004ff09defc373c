"""Text from outside, made safe to lay out and short enough to keep or show."""

from __future__ import annotations

import unicodedata
from typing import Any


def shortened(text: str, longest: int) -> str:
    """``text`` of at most ``longest`` characters: its beginning and its end, which holds the answer.

    Between them stands how many characters it has in all.
    """
    if len(text) <= longest:
        return text
    gap = f" … ({len(text)} characters in all) … "
    kept = max(0, longest - len(gap))
    return text[: kept - kept // 2] + gap + text[len(text) - kept // 2 :]


def printable(text: Any, longest: int = 1500) -> str:
    """Untrusted text that is safe to lay out: control characters written out, then :func:`shortened`.

    Control, surrogate and direction-changing characters could hide or reorder what surrounds them. Markup is left
    to whoever writes it: HTML, LaTeX and Markdown escape differently.
    """
    shown = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in str(text))
    return shortened(shown, longest)
