"""Titles of methods, benchmarks and budgets for readers."""

from collections.abc import Iterable

from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import AVERAGE, BASE

MISSING = "–"


def method_title(results: Results, name: str) -> str:
    """A method's title, or that of the untrained model."""
    return "Untrained" if name == BASE else results.experiment.methods[name].title


def benchmark_title(results: Results, name: str) -> str:
    return "Average" if name == AVERAGE else results.experiment.benchmarks[name].title


def run_title(results: Results, model: object, benchmark: object, *run: object) -> str:
    """The name of a run for readers, or its beginning: ``Miniature-L · Physics · SRPO · seed 3``."""
    names = [results.experiment.models[str(model)].title, benchmark_title(results, str(benchmark))]
    names += [method_title(results, str(method)) for method in run[:1]] + [f"seed {seed}" for seed in run[1:]]
    return " · ".join(names)


def budgets_listed(results: Results) -> str:
    training = results.experiment.training
    return (
        ", ".join(f"{results.experiment.budget_title(name)} = {s:g} s" for name, s in training.budget_seconds.items())
        + f" of the {training.clock.kind} clock"
    )


def count_range(counts: Iterable[float]) -> str:
    """The smallest and largest count, ``1–3``, or ``1`` if all are the same; zeros are left out."""
    there = sorted({int(count) for count in counts if count})
    return MISSING if not there else str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"
