"""Sample-Routed Policy Optimization (arXiv 2604.02288) as a reproducible workflow, and as functions for your own loop.

The functions are imported when they are first used, so that ``import srpo`` loads no torch. ``results`` is
:func:`srpo.analysis.published.results`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srpo.hosts.functional import entropy, load_method, loss, route, totals
    from srpo.questions.prompts import teacher_messages

__version__ = "0.3.0"

__all__ = ["entropy", "load_method", "loss", "results", "route", "teacher_messages", "totals"]


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from warnings import catch_warnings, filterwarnings

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    elsewhere = {"teacher_messages": "questions.prompts", "results": "analysis.published"}
    module = elsewhere.get(name, "hosts.functional")
    with catch_warnings():
        filterwarnings("ignore", "Failed to initialize NumPy")  # of torch alone, without NumPy: nothing here needs it
        globals()[name] = function = getattr(import_module(f"{__name__}.{module}"), name)
    return function
