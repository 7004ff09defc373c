"""Imports of large packages, and of packages that only some experiments need."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

EXTRAS = {
    "report": (
        *("jinja2", "numpy", "pandas", "pyarrow", "scipy", "seaborn", "tabulate", "typer"),
        *("PIL", "matplotlib"),
    ),
    "workflow": ("jinja2", "mlflow", "snakemake", "tabulate", "typer"),
    "verl": (
        *("cachetools", "fastapi", "httpx", "numpy", "psutil", "pyarrow", "ray", "scipy", "tensordict", "tqdm"),
        *("transfer_queue", "transformers", "typer", "uvicorn", "verl"),
        *("huggingface_hub", "hydra", "omegaconf", "safetensors", "tokenizers"),
    ),
}
"""For each extra in ``pyproject.toml`` the names under which its packages are imported, and after them those that they
require and srpo imports too; the smallest extra first."""

NEEDS = {
    "report": ("report", "split", "statistics", "tune"),
    "workflow": ("attempt", "experiment", "plan", "publish", "rehearse", "status", "track"),
    "verl": ("evaluate", "gap", "model", "train"),
}
"""For each extra the verbs of ``srpo`` for which it is enough."""


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

    It would import both, for models and metrics that nothing here uses. That takes a sixth of a run's start.
    """
    hidden = {"scipy", "sklearn"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    from transformers.utils import is_scipy_available, is_sklearn_available

    is_scipy_available(), is_sklearn_available()  # their answers are kept
    for package in hidden:
        del sys.modules[package]


def is_installed(package: str) -> bool:
    """Whether a package is installed, in whatever version; ``package`` may be pinned (``name==version``)."""
    try:
        version(package.partition("==")[0])
    except PackageNotFoundError:
        return False
    return True


def missing_extra(error: ModuleNotFoundError, verb: str | None = None) -> str | None:
    """The message for a package that is missing, with the install command; None if no extra of srpo has it.

    Args:
        verb: of ``srpo``, for which the package was imported. It chooses among extras that have the package.
    """
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    if not extras:
        return None
    extras = [extra for extra in extras if verb in NEEDS[extra]] or extras
    names = " or ".join(f"'srpo[{extra}]'" for extra in extras)
    return f"package {package} is missing; run: python -m pip install {names}"
