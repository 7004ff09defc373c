"""Imports of what is large."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the garbage collector away while torch, verl or transformers are imported.

    They make a million objects that stay: looking through them again and again for garbage takes a seventh of the
    time, and what stays need not be looked at later either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
