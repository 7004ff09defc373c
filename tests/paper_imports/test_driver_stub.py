"""The stub of the driver itself, on any machine with a C compiler."""

from __future__ import annotations

import ctypes
import os
import subprocess

import driver_stub
import pytest

pytestmark = pytest.mark.skipif(
    bool(driver_stub.missing_tools()), reason=f"not installed: {', '.join(driver_stub.missing_tools())}"
)

KERNELS = """
int cuLaunchKernel(void); int cuCtxGetCurrent(void); int cudaMalloc(void); int Py_Initialize(void);
int launch(void) { return cuLaunchKernel() + cuCtxGetCurrent(); }
int allocate(void) { return cudaMalloc(); }
int start(void) { return Py_Initialize(); }
"""


@pytest.fixture
def kernels(tmp_path):
    """A library that links the driver, with symbols of the driver, of the CUDA runtime and of Python."""
    linked = tmp_path / "linked"
    linked.mkdir()
    driver_stub.build(linked, ["cuLaunchKernel", "cuCtxGetCurrent"])
    (tmp_path / "kernels.c").write_text(KERNELS)
    library = tmp_path / "package" / "kernels.abi3.so"
    library.parent.mkdir()
    command = ["cc", "-shared", "-fPIC", "-o", library, tmp_path / "kernels.c", linked / driver_stub.NAME]
    subprocess.run(command, check=True)
    return library


def resolved_in(library, stub):
    return driver_stub.unresolved(library, os.environ | {"LD_LIBRARY_PATH": str(stub.parent)})


def test_it_has_the_functions_asked_for_and_says_that_there_is_no_device(tmp_path):
    stub = ctypes.CDLL(str(driver_stub.build(tmp_path, ["cuMemAlloc_v2", "cuGetErrorString"])))
    assert stub.cuInit(0) == stub.cuMemAlloc_v2(None, 8) == driver_stub.NO_DEVICE
    text = ctypes.c_char_p()
    assert stub.cuGetErrorString(driver_stub.NO_DEVICE, ctypes.byref(text)) == 0
    assert b"stub" in text.value
    assert not hasattr(stub, "cuMemFree_v2")


def test_it_finds_what_libraries_need_of_the_driver(kernels, tmp_path):
    (kernels.parent / "no_kernels.so").write_bytes((tmp_path / "linked" / driver_stub.NAME).read_bytes())
    found = driver_stub.shared_libraries([kernels.parent])
    assert [path.name for path in found] == ["kernels.abi3.so", "no_kernels.so"]
    assert driver_stub.driver_functions(found) == {"cuLaunchKernel", "cuCtxGetCurrent"}


def test_a_function_or_a_library_that_is_missing_is_found(kernels, tmp_path):
    """``cudaMalloc`` stands for a symbol of another torch or CUDA: nobody has it."""
    assert resolved_in(kernels, driver_stub.build(tmp_path, ["cuLaunchKernel", "cuCtxGetCurrent"])) == ["cudaMalloc"]
    assert {*resolved_in(kernels, driver_stub.build(tmp_path, ["cuLaunchKernel"]))} == {"cuCtxGetCurrent", "cudaMalloc"}
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert driver_stub.NAME in resolved_in(kernels, nothing / driver_stub.NAME)


def test_the_runtime_that_a_library_links_is_known(tmp_path):
    for name, linked in (("runtime", []), ("kernels", [tmp_path / "runtime.so"])):
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name}(void) {{ return 0; }}\n")
        soname = ["-Wl,-soname,libcudart.so.13"] if name == "runtime" else ["-Wl,--no-as-needed"]
        subprocess.run(["cc", "-shared", "-fPIC", *soname, "-o", tmp_path / f"{name}.so", source, *linked], check=True)
    assert driver_stub.linked_runtimes(tmp_path / "kernels.so") == {"13"}
    assert driver_stub.linked_runtimes(tmp_path / "runtime.so") == set()
