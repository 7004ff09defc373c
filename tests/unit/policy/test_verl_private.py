"""verl's private names: pinned to one version, in one module, and there."""

import ast
import inspect
from fractions import Fraction
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.fs import local_mkdir_safe
from verl.workers.rollout import base

import srpo
from srpo.policy import verl_private, worker

PACKAGE = Path(srpo.__file__).parent
SOURCES = sorted(path for part in ("policy", "training", "algorithm") for path in (PACKAGE / part).glob("*.py"))


def private_attributes(path: Path) -> set[str]:
    """Private names that a module takes from objects of others, or from a base class that is not its own."""
    tree = ast.parse(path.read_text())
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    own = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.target.id for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and hasattr(node.target, "id")}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    return {name for name in used if name.startswith("_") and not name.startswith("__")} - own


@pytest.mark.parametrize("found", ["0.9.0", "0.9.2", "0.10.0", "0.9.1.dev0"])
def test_another_version_is_refused_before_anything_is_built(found, monkeypatch):
    verl_private.check_version()
    monkeypatch.setattr(verl_private, "version", lambda name: found)
    with pytest.raises(RuntimeError, match=rf"verl 0\.9\.1, found {found}"):
        worker.SRPOWorker(config=None, role="actor")


def test_only_one_module_uses_private_names_of_others():
    users = {path.name: names for path in SOURCES if (names := private_attributes(path))}
    assert users == {"verl_private.py": {"_build_module", "_build_fsdp_module", "_ROLLOUT_REGISTRY"}}


def test_the_defaults_are_what_hydra_composes():
    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose("ppo_trainer")
    defaults = verl_private.load_defaults()
    assert defaults == composed
    with pytest.raises(AttributeError):  # as Hydra's, without keys that verl does not have
        defaults.actor_rollout_ref.actor.ppo_minibatch_size = 1


def test_verl_leaves_no_lock_file_of_a_checkpoint(tmp_path, monkeypatch):
    elsewhere, folder = tmp_path / "temporary", tmp_path / "a" / "checkpoint"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    fsdp_checkpoint_manager.local_mkdir_safe = local_mkdir_safe
    assert fsdp_checkpoint_manager.local_mkdir_safe(str(tmp_path / "verl"))
    assert len(list(elsewhere.iterdir())) == 1  # as verl does it
    verl_private.make_folders_without_locks()
    assert fsdp_checkpoint_manager.local_mkdir_safe(str(folder)) == str(folder)
    assert fsdp_checkpoint_manager.local_mkdir_safe(str(folder)) == str(folder)
    assert folder.is_dir()
    assert len(list(elsewhere.iterdir())) == 1


def test_the_trainer_still_has_what_is_left_out_of_it():
    class Worker: ...

    trainer = verl_private.workers_only(PPOTrainerSync, Worker)
    replaced = {name for name in vars(trainer) if name.startswith("_") and not name.startswith("__")} - {"_abc_impl"}
    assert replaced == {"_build_replay_buffer", "_init_dataloader", "_load_checkpoint", "_init_resource_pool_mgr"}
    for name in replaced:
        assert list(inspect.signature(getattr(PPOTrainerSync, name)).parameters) == ["self"]
    assert {"_setup", "init", "on_init_end", "get_llm_client"} <= set(dir(PPOTrainerSync))


def test_rollout_adapters_are_still_found_by_name_and_mode():
    verl_private.register_rollout_adapter("probe", "fractions.Fraction")
    try:
        assert base.get_rollout_class("probe") is Fraction
    finally:
        del base._ROLLOUT_REGISTRY["probe", "async"]
