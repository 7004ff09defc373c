"""Faster imports of large packages."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector while torch, verl or transformers are imported.

    The imports create a million objects that are never freed. To scan them again and again takes a seventh of the
    time. After the import the collector ignores these objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
