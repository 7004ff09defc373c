"""The tables of names in docs/verl.md, against the configuration that a run composes for verl."""

import re
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from paths import ROOT

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import RunSpec
from srpo.ground.repository import CONFIGS
from srpo.policy.verl_config import compose_verl_config

PAGE = (ROOT / "docs" / "verl.md").read_text()
PREFIXES = {"a.": "actor_rollout_ref.actor.", "r.": "actor_rollout_ref.rollout."}


def rows(marker: str) -> dict[str, str]:
    """Our key and verl's, of the table below a comment of the page."""
    table = PAGE.split(f"<!-- {marker} -->")[1].strip().split("\n\n")[0]
    found = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", table, re.MULTILINE)
    assert len(found) == len(table.splitlines()) - 2
    return {here: PREFIXES.get(key[:2], key[:2]) + key[2:] for here, key in found}


PASSED, READ_HERE = rows("passed"), rows("read here")


def changed(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return {"sglang": "embedded"}[value] if isinstance(value, str) else 2 * value


def value_of(spec: RunSpec, key: str) -> object:
    """A key's value in the part of a run that has it."""
    (value,) = (getattr(part, key) for part in (spec.method, spec.training, spec.execution) if hasattr(part, key))
    return value


@pytest.fixture(scope="module")
def specs() -> tuple[RunSpec, RunSpec]:
    """A run of the paper, and one in which every key of the first table has another value."""
    experiment = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    spec = experiment.run(next(run for run in experiment.runs() if run.method == "srpo"))
    parts = {
        name: part.model_copy(update={key: changed(getattr(part, key)) for key in PASSED if hasattr(part, key)})
        for name, part in (("method", spec.method), ("training", spec.training), ("execution", spec.execution))
    }
    return spec, spec.model_copy(update=parts)


@pytest.fixture(scope="module")
def configs(specs: tuple[RunSpec, RunSpec]) -> list[DictConfig]:
    return [compose_verl_config(spec, Path("model")) for spec in specs]


@pytest.mark.parametrize("here", PASSED)
def test_key_is_passed_to_verl(here: str, specs: tuple[RunSpec, RunSpec], configs: list[DictConfig]) -> None:
    values = [value_of(spec, here) for spec in specs]
    assert values[0] != values[1]
    assert [OmegaConf.select(config, PASSED[here]) for config in configs] == values


@pytest.mark.parametrize("here", READ_HERE)
def test_key_exists_in_verl_and_is_not_set(
    here: str, specs: tuple[RunSpec, RunSpec], configs: list[DictConfig]
) -> None:
    """The same whatever the run: verl's default."""
    value_of(specs[0], here)
    missing = object()
    found = [OmegaConf.select(config, READ_HERE[here], default=missing) for config in configs]
    assert found[0] is not missing
    assert found[0] == found[1]
