"""Text from outside, made safe to lay out."""

from __future__ import annotations

import unicodedata
from typing import Any


def printable(text: Any, longest: int = 1500) -> str:
    """Untrusted text that is safe to lay out: shortened, and with control characters written out.

    Control, surrogate and direction-changing characters could hide or reorder what surrounds them. Markup is left
    to whoever writes it: HTML, LaTeX and Markdown escape differently.
    """
    text = str(text)
    shown = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in text)
    rest = len(shown) - longest
    return shown if rest <= 0 else f"{shown[:longest]} … ({rest} more characters)"
