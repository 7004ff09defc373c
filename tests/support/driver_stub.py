"""A stub of the CUDA driver, so that libraries which link it can be loaded on a machine without a GPU.

``libcuda.so.1`` comes with the driver, not with a wheel. Each function of the stub says that there is no device.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

NAME = "libcuda.so.1"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""

TOOLS = ("cc", "nm", "readelf", "ldd")
_FUNCTION = re.compile(r"cu[A-Z]\w+")  # the driver's; cudaMalloc is the runtime's, cublasCreate a library's
_TEXTS = ("cuGetErrorName", "cuGetErrorString")
"""They answer with a text through their second argument."""


def missing_tools() -> list[str]:
    """What is needed to build and to check the stub and is not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def shared_libraries(folders: Iterable[Path]) -> list[Path]:
    """The shared libraries below folders, sorted."""
    return sorted({path for folder in folders for path in folder.rglob("*.so*") if path.is_file()})


def driver_functions(libraries: Iterable[Path]) -> set[str]:
    """The driver's functions that libraries which link it need."""
    linking = [path for path in libraries if f"[{NAME}]" in _output("readelf", "-d", path)]
    undefined = (_output("nm", "-D", "--undefined-only", path).split() for path in linking)
    return {name for names in undefined for name in names if _FUNCTION.fullmatch(name)}


def linked_runtimes(library: Path) -> set[str]:
    """The major versions of the CUDA runtime that a library links: one, or none."""
    return set(re.findall(r"\(NEEDED\).*\[libcudart\.so\.(\d+)\]", _output("readelf", "-d", library)))


def build(folder: Path, functions: Iterable[str]) -> Path:
    """Compile a stub with these functions into a folder.

    Returns:
        The library, ``folder/libcuda.so.1``.
    """
    lines = []
    for name in sorted({*functions, "cuInit"}):
        arguments = "int error, const char **text" if name in _TEXTS else "void"
        answer = '*text = "no device: a stub of the driver"; ' if name in _TEXTS else ""
        lines.append(f"int {name}({arguments}) {{ {answer}return {0 if answer else NO_DEVICE}; }}")
    source, library = folder / "stub.c", folder / NAME
    source.write_text("\n".join(lines) + "\n")
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{NAME}", "-o", library, source]
    subprocess.run(command, check=True, capture_output=True)
    return library


def unresolved(library: Path, environment: Mapping[str, str]) -> list[str]:
    """What a library needs and nobody has, by ``ldd -r``: libraries, and symbols but Python's.

    Python's symbols are those of the interpreter that loads an extension module, which ``ldd`` does not know.
    """
    found = subprocess.run(["ldd", "-r", library], env=dict(environment), capture_output=True, text=True)
    lines = (found.stdout + found.stderr).splitlines()
    libraries = [line.split()[0] for line in lines if "not found" in line]
    symbols = [match[1] for line in lines if (match := re.match(r"undefined symbol: (\S+)", line.strip()))]
    return libraries + [name for name in symbols if not re.match(r"_?Py", name)]


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
