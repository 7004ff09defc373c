"""The only module that uses private names of verl. It raises an error on another version of verl."""

import os
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch.nn import Module
from transformers import AutoModelForCausalLM

from srpo.ground.files import read_yaml

VERL_VERSION = "0.9.1"


def check_version() -> None:
    """Raise RuntimeError unless the installed verl is the one whose private names are used here."""
    found = version("verl")
    if found != VERL_VERSION:
        raise RuntimeError(f"srpo extends verl {VERL_VERSION}, found {found}: install the pinned environment")


def make_folders_without_locks() -> None:
    """Make folders of checkpoints as the standard library does.

    verl takes a lock for each, whose file stays in the machine's temporary folder for ever. Its name has a hash that
    differs between processes, so that it locks nothing.
    """
    from verl.utils.checkpoint import fsdp_checkpoint_manager

    def make(path: str) -> str:
        os.makedirs(path, exist_ok=True)
        return path

    fsdp_checkpoint_manager.local_mkdir_safe = make


def load_language_models() -> None:
    """Load every model as a language model: verl imports the settings of all models that see images, to ask."""
    from verl.utils import model

    model.get_hf_auto_model_class = lambda hf_config: AutoModelForCausalLM


def load_defaults() -> DictConfig:
    """verl's ``ppo_trainer`` configuration from verl's own copy in one file: Hydra composes it from thirty, slowly."""
    found = OmegaConf.create(read_yaml(Path(str(files("verl"))) / "trainer/config/_generated_ppo_trainer.yaml"))
    found["model_engine"] = "dp"  # whose file is chosen; not a part of the copy
    OmegaConf.set_struct(found, True)
    return found


def build_sharded_copy(engine: Any) -> Module:
    """A second copy of the engine's model, loaded from the same weights and sharded over the same mesh."""
    module = engine._build_module()
    module.requires_grad_(False)
    return engine._build_fsdp_module(module)


def register_rollout_adapter(name: str, qualified_class: str) -> None:
    """Make ``rollout.name = name`` known to workers; verl has a public call for replicas only."""
    from verl.workers.rollout import base

    base._ROLLOUT_REGISTRY[name, "async"] = qualified_class


def workers_only(trainer: Any, worker: type) -> Any:
    """verl's trainer class without its data, replay buffer and checkpoints: it starts workers and rollout servers."""
    import ray

    class WorkersOnly(trainer):
        def _build_replay_buffer(self) -> None: ...

        def _init_dataloader(self) -> None: ...

        def _load_checkpoint(self) -> None: ...

        role_worker_mapping: dict[Any, Any]

        def _init_resource_pool_mgr(self) -> None:
            super()._init_resource_pool_mgr()
            self.role_worker_mapping = {role: ray.remote(worker) for role in self.role_worker_mapping}

    return WorkersOnly
