"""Text for people: numbers of things, lists, durations; and untrusted text, made short and safe to show."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any


def plural(count: int, noun: str) -> str:
    """A number of things, ``1 claim`` or ``2 claims``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def joined(names: Sequence[str]) -> str:
    """Names as a sentence lists them, ``GRPO, SDPO and SRPO``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def minus(text: object) -> str:
    """A text with minus signs for the hyphens that begin a number."""
    return re.sub(r"(?<![\w.,)-])-(?=\d)", "−", str(text))


def duration(seconds: float, of: str = "", digits: int = 3) -> str:
    """Seconds in the unit that is easy to read: ``12 seconds``, ``1.2 minutes``, from an hour on ``10.5 hours``.

    Args:
        of: whose time it is, for example ``GPU``: ``4861 GPU-hours``.
        digits: of numbers below 100; larger ones are whole.
    """
    size, unit = (3600, "hour") if seconds >= 3600 else (60, "minute") if seconds >= 60 else (1, "second")
    value = seconds / size
    number = f"{value:.{digits}g}" if value < 100 else f"{value:.0f}"
    return f"{number} {f'{of}-' if of else ''}{unit}{'s' * (number != '1')}"


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
    escaped here, because HTML and Markdown escape differently.
    """
    shown = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in str(text))
    return shortened(shown, longest)
