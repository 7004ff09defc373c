"""Imports of large packages, and of packages that only some experiments need."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from srpo.errors import SrpoError


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


def import_optional(module: str, requirements: str) -> ModuleType:
    """Import a package that is in neither environment.

    Args:
        requirements: the file that pins the package and what it needs.

    Raises:
        SrpoError: if it, or something that it needs, is missing, with the command that installs all.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        command = f"python -m pip install --no-deps -r {requirements}"
        raise SrpoError(f"package {module}: cannot be imported ({error}); run: {command}") from error
