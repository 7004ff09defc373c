"""Imports of large packages, and of packages that only some experiments need."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version


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


def import_transformers_without_scipy() -> None:
    """Import transformers so that it takes scipy and scikit-learn for missing packages, until this process ends.

    It would import both, for models and metrics that nothing here uses. That takes a seventh of a run's imports.
    """
    sys.modules.update(dict.fromkeys(hidden := {"scipy", "sklearn"} - sys.modules.keys()))  # type: ignore[arg-type]
    from transformers.utils import is_scipy_available, is_sklearn_available

    is_scipy_available(), is_sklearn_available()  # their answers are kept
    for package in hidden:
        del sys.modules[package]


def is_installed(package: str) -> bool:
    """Whether a package is installed, in whatever version."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
