"""The whole environment for CUDA GPUs, imported on a machine without a GPU (`make test-paper-imports`).

A build of the kernels for another torch, or a library that the machine lacks (libnuma), shows here within a minute.
"""

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import driver_stub
import pytest

KERNELS = ("sgl_kernel", "torch_memory_saver")
"""Packages of compiled code that no resolver holds against torch."""

IMPORTS = (
    *("sgl_kernel", "flashinfer", "torch_memory_saver"),
    *("sglang.srt.entrypoints.engine", "sglang.srt.entrypoints.http_server"),
    *("sglang.srt.layers.attention.flashinfer_backend", "sglang.srt.model_executor.model_runner"),
    "verl.workers.rollout.sglang_rollout.async_sglang_server",
    "verl.workers.rollout.sglang_rollout.sglang_rollout",
    *("srpo.policy.worker", "srpo.policy.ray_driver", "srpo.rollout.sglang_server"),
)


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _compiled(package: str) -> list[Path]:
    """The package's compiled code: below its folder, or beside it as the memory saver's is.

    The memory saver ships builds for two versions of CUDA; one for another than torch's is never loaded.
    """
    folders = _folders(package)
    beside = [path for folder in folders for path in sorted(folder.parent.glob(f"{package}*.so"))]
    return [path for path in driver_stub.shared_libraries(folders) + beside if not _of_another_cuda(path)]


def _of_another_cuda(library: Path) -> bool:
    import torch

    assert torch.version.cuda
    ours = torch.version.cuda.split(".")[0]
    return any(major != ours for major in driver_stub.linked_runtimes(library))


def _has_driver() -> bool:
    try:
        ctypes.CDLL(driver_stub.NAME)
    except OSError:
        return False
    return True


HAS_DRIVER = _has_driver()
"""Asked before any test: a stub that a test has loaded would pass for the driver."""


def _reason_to_skip() -> str | None:
    if any(not _folders(package) for package in KERNELS):
        return "this Python has no environment for GPUs: make test-paper-imports installs it, 11 GB"
    if HAS_DRIVER:
        return None
    missing = driver_stub.missing_tools()
    return f"no driver here, and for a stub of it {', '.join(missing)} is not installed" if missing else None


pytestmark = pytest.mark.skipif(_reason_to_skip() is not None, reason=_reason_to_skip() or "")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Where the loader finds the driver, or a stub of it, and the libraries that torch has loaded in a server."""
    folders = [folder for package in ("torch", "nvidia") for folder in _folders(package)]
    kernels = [path for package in KERNELS for path in _compiled(package)]
    libraries = [*driver_stub.shared_libraries(folders), *kernels]
    found = sorted({str(path.parent) for path in libraries if path.parent.name == "lib"})
    if not HAS_DRIVER:
        stub = tmp_path_factory.mktemp("driver")
        driver_stub.build(stub, driver_stub.driver_functions(libraries))
        found = [str(stub), *found]
    before = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join([*found, *([before] if before else [])])}


@pytest.mark.parametrize("package", KERNELS)
def test_compiled_code_finds_every_symbol(package, environment):
    libraries = _compiled(package)
    assert libraries, f"{package} has no compiled code"
    missing = {str(path): wanting for path in libraries if (wanting := driver_stub.unresolved(path, environment))}
    assert not missing


@pytest.mark.parametrize("module", IMPORTS)
def test_it_imports(module, environment):
    done = subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_memory_saver_can_be_preloaded(environment):
    """As verl starts SGLang's schedulers, with the path that the project gives to its workers."""
    code = (
        "import os, subprocess\n"
        "from srpo.policy.ray_driver import loader_path\n"
        "from torch_memory_saver.utils import get_binary_path_from_package as find\n"
        "hook = str(find('torch_memory_saver_hook_mode_preload'))\n"
        "path = os.pathsep.join([os.environ['LD_LIBRARY_PATH'].split(os.pathsep)[0], *loader_path().values()])\n"
        "env = os.environ | {'LD_LIBRARY_PATH': path, 'LD_PRELOAD': hook}\n"
        "raise SystemExit(subprocess.run(['true'], env=env).returncode)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
