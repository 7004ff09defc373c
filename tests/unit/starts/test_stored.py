"""Base models that the repository has: the same bytes everywhere, checked before they are used."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_miniature
from transformers import AutoModelForCausalLM

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import MiniatureModel
from srpo.ground.errors import SrpoError
from srpo.ground.repository import CONFIGS
from srpo.starts import build_model, stored
from srpo.starts.base_models import store_model

MADE = {"commit": "abc", "machine": "a machine"}
DEFAULT = load_experiment(CONFIGS / "experiments" / "paper-in-small.yaml")
SMALL, LARGE = DEFAULT.models["miniature-small"], DEFAULT.models["miniature-large"]


def tiny() -> MiniatureModel:
    """The first base model of a model that is drawn per seed."""
    return tiny_miniature(draws="per_seed").base_model(1)


@pytest.fixture
def stored_tiny(tmp_path, monkeypatch) -> MiniatureModel:
    """A base model that is stored in a folder of the test's own, and knows its hash."""
    monkeypatch.setattr(stored, "STORED", tmp_path / "stored")
    model = tiny()
    return model.model_copy(update={"stored": {1: store_model(model, MADE)}})


def test_a_stored_base_model_is_the_one_that_was_built(stored_tiny, tmp_path):
    build_model(tiny(), tmp_path / "built", {})
    build_model(stored_tiny, tmp_path / "read", {})
    built, read = (load_file(tmp_path / name / "model.safetensors") for name in ("built", "read"))
    assert built.keys() == read.keys()
    assert all(torch.equal(built[name], read[name]) for name in built)
    for name in ("tokenizer.json", "config.json", "generation_config.json"):
        assert (tmp_path / "built" / name).read_bytes() == (tmp_path / "read" / name).read_bytes()
    ids = torch.arange(20)[None]
    logits = [AutoModelForCausalLM.from_pretrained(tmp_path / name)(ids).logits for name in ("built", "read")]
    assert torch.equal(*logits)
    # its description says who made it, and what it has learned
    built, read = (json.loads((tmp_path / name / "base.json").read_text()) for name in ("built", "read"))
    assert read.pop("stored") == MADE
    for description in (built, read):
        del description["warm_start"]["wall_seconds"]
    assert built == read


def test_no_step_of_a_warm_start_is_taken(stored_tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("srpo.starts.base_models._warm_start", lambda *args, **kwargs: pytest.fail("it was trained"))
    build_model(stored_tiny, tmp_path / "read", {})


def test_another_file_is_refused(stored_tiny, tmp_path):
    path = tmp_path / "stored" / "tiny-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(SrpoError, match=r"model tiny-1: stored\.1 = .* not the pinned file"):
        build_model(stored_tiny, tmp_path / "read", {})
    os.remove(path)
    with pytest.raises(SrpoError, match=r"cannot be read \(No such file or directory\)"):
        build_model(stored_tiny, tmp_path / "read", {})
    assert not (tmp_path / "read").exists()


def test_another_recipe_is_refused(stored_tiny, tmp_path):
    other = stored_tiny.model_copy(update={"warm_start": stored_tiny.warm_start.model_copy(update={"steps": 4})})
    with pytest.raises(SrpoError, match="has another architecture or warm start"):
        build_model(other, tmp_path / "read", {})


def test_a_seed_that_is_not_stored_is_built(stored_tiny, tmp_path):
    pinned = tiny().model_copy(update={"name": "tiny", "draws": "per_seed", "stored": stored_tiny.stored})
    build_model(pinned.base_model(2), tmp_path / "built", {})
    assert "stored" not in json.loads((tmp_path / "built" / "base.json").read_text())


def test_the_repository_has_the_base_models_of_smoke_and_of_the_default_experiment():
    assert all({*DEFAULT.base_models(model.name)} <= {*model.stored} for model in (SMALL, LARGE))
    names = {f"{model.name}-{seed}.safetensors" for model in (SMALL, LARGE) for seed in model.stored}
    (tiny,) = load_experiment(CONFIGS / "experiments" / "smoke.yaml").models.values()
    assert {path.name for path in stored.STORED.iterdir()} == names | {"miniature-tiny.safetensors"}
    assert stored.read_metadata(tiny, stored.stored_file(tiny))["warm_start"]["steps"] == tiny.warm_start.steps


@pytest.mark.parametrize("seed", LARGE.stored)
def test_a_stored_base_model_is_as_pinned_and_can_use_a_solution(seed):
    base = LARGE.base_model(seed)
    path = stored.stored_file(base)
    assert path is not None
    metadata = stored.read_metadata(base, path)
    assert len(metadata["made"]["commit"]) == 40
    # without a solution at most two in five are right; four facts have to be taken over without a mistake
    accuracy = metadata["warm_start"]["accuracy"].values()
    assert min(kind["with_solution"] - kind["plain"] for kind in accuracy) > 0.25
    assert sum(kind["with_solution"] for kind in accuracy) / len(accuracy) > 0.6
