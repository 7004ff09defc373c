"""The only touches of verl's private names. ``tests/test_verl_private.py`` fails loudly on another version."""

from importlib.metadata import version

from torch.nn import Module

VERL_VERSION = "0.9.1"


def check_version() -> None:
    """Raise RuntimeError unless the installed verl is the one whose private names are used here."""
    found = version("verl")
    if found != VERL_VERSION:
        raise RuntimeError(f"srpo extends verl {VERL_VERSION}, found {found}: install the pinned environment")


def build_sharded_copy(engine) -> Module:
    """A second copy of the engine's model, loaded from the same weights and sharded over the same mesh."""
    module = engine._build_module()
    module.requires_grad_(False)
    return engine._build_fsdp_module(module)
