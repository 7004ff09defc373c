"""A CPU platform for verl, which has none. verl imports it through VERL_USE_EXTERNAL_MODULES."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _device_module() -> types.ModuleType:
    """A stand-in for ``torch.cuda``: no memory to report, nothing to synchronise, and "not available"."""
    module: Any = types.ModuleType("srpo_cpu_device")
    module.is_available = lambda: False
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "device_count"):
        setattr(module, name, lambda *args: 0)
    memory = ("empty_cache", "reset_peak_memory_stats")
    for name in (*memory, "synchronize", "set_device", "manual_seed", "manual_seed_all"):
        setattr(module, name, lambda *args: None)
    module.mem_get_info = lambda *args: (0, 0)
    module.current_device = lambda: "cpu"
    module.get_device_name = lambda *args: "cpu"
    module.get_rng_state = torch.get_rng_state
    module.set_rng_state = torch.set_rng_state
    for name in ("Stream", "Event", "stream", "current_stream"):
        setattr(module, name, getattr(torch.cpu, name))
    return module


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    """gloo on the host's cores."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return not torch.cuda.is_available()

    def current_device(self) -> str:
        return "cpu"  # verl passes it to Tensor.to

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "SRPO_VISIBLE_CPUS"

    def ray_resource_name(self) -> str:
        return "GPU"  # a logical resource: ray.init(num_gpus=1) provides it on a machine without GPUs

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...
