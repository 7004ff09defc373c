"""Packs what ``bench/first_gpu.py`` needs on a machine without network that has torch and transformers.

    make gpu-pack GPU_PYTHON=3.12 LEAVE_OUT="pandas pyarrow"

The folder has the project, the packages that a usual torch image lacks, at the versions of ``envs/paper.txt``, and,
where ``make real-cpu`` has made them, SmolLM2-135M's splits and weights in bfloat16. Beside it lies the same in pieces
of at most 60 MiB, to carry one at a time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from srpo.ground.repository import ROOT
from srpo.questions.splits import read_split, write_split

PROJECT = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src", "configs", "tests", "bench")

PACKAGES = """
verl tensordict transferqueue ray hydra-core omegaconf antlr4-python3-runtime codetiming datasets accelerate peft
pandas pyarrow dill multiprocess xxhash requests charset-normalizer urllib3 orjson pyvers cloudpickle msgspec msgpack
pyzmq jsonschema jsonschema-specifications referencing rpds-py attrs protobuf python-dateutil six psutil fastapi
starlette uvicorn sniffio anyio opentelemetry-api pillow
pydantic pydantic-core annotated-types typing-inspection typing-extensions jaxtyping wadler-lindig
pytest pluggy iniconfig hypothesis sortedcontainers beartype
"""
"""verl and what it imports; what srpo imports; what its tests import."""

RAYS_SERVERS = (
    "jars",
    "dashboard/client",
    "core/src/ray/raylet",
    "core/src/ray/gcs",
    "serve",
    "rllib",
    "tune",
    "train",
)
"""Folders of Ray that nothing in one process starts: four fifths of its bytes."""

WEIGHTS, DATA = Path("models") / "smollm2-135m-format", Path("data") / "word_reversal"
PIECE = 60
"""MiB of a piece, at most."""

SCRIPT = """\
#!/bin/sh
# python3 must have torch and transformers. sh run.sh --small: on a CPU, in minutes.
cd "$(dirname "$0")"
inputs=; test -d inputs && inputs="--inputs ../inputs"
cd project
export PYTHONPATH="$PWD/src:$PWD/../site${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec python3 bench/first_gpu.py $inputs --output ../first-gpu.json "$@"
"""


def main() -> None:
    """Make the folder and its pieces, and say how to carry them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results/gpu-pack"))
    parser.add_argument("--python", default="3.12", help="of the other machine")
    parser.add_argument("--leave-out", nargs="*", default=[], help="packages that the other machine has")
    parser.add_argument("--real", type=Path, default=Path("results/real-cpu"), help="results with SmolLM2-135M")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    copy_project(given.folder / "project")
    install(given.folder / "site", given.python, given.leave_out)
    if not copy_inputs(given.real, given.folder / "inputs"):
        print(f"gpu-pack: without SmolLM2-135M, a toy is trained instead: {given.real / WEIGHTS} is missing")
    script = given.folder / "run.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    pieces = cut(given.folder)
    size = sum(piece.stat().st_size for piece in pieces) / 2**20
    print(
        f"gpu-pack: {given.folder}, and {size:.0f} MiB in {len(pieces)} pieces {pieces[0]} ...\n"
        f"there: cat {given.folder.name}.tar.gz.* | tar xz && sh {given.folder.name}/run.sh"
    )


def copy_project(folder: Path) -> None:
    """The files of the repository that the script and the tests of a GPU need."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", *PROJECT], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def install(folder: Path, python: str, leave_out: list[str]) -> None:
    """The packages for another Python, without what they require and without Ray's servers."""
    lock = dict(line.split("==") for line in (ROOT / "envs" / "paper.txt").read_text().split() if "==" in line)
    pinned = [f"{name}=={lock[name]}" for name in PACKAGES.split() if name not in leave_out]
    # one of them has no wheel
    options = ["--no-deps", "--only-binary", ":all:", "--no-binary", "antlr4-python3-runtime"]
    options += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_34"]
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", folder, *options, *pinned], check=True
    )
    for name in RAYS_SERVERS:
        path = folder / "ray" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def copy_inputs(results: Path, folder: Path) -> bool:
    """SmolLM2's questions, and its weights in bfloat16; False if they are not there.

    The task's scorer would need reasoning-gym and what it imports. A reversed list has one right answer.
    """
    if not (results / WEIGHTS / "model.safetensors").exists():
        return False
    for split in ("train", "test"):
        questions = [
            replace(question, reward="answer_match", ground_truth=json.loads(question.ground_truth)["answer"])
            for question in read_split(results / DATA / f"{split}.parquet")
        ]
        write_split(folder / DATA / f"{split}.parquet", questions, split)
    shutil.copytree(results / WEIGHTS, folder / WEIGHTS, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = {name: tensor.bfloat16() for name, tensor in load_file(results / WEIGHTS / "model.safetensors").items()}
    save_file(weights, folder / WEIGHTS / "model.safetensors", {"format": "pt"})
    return True


def cut(folder: Path, mebibytes: int = PIECE) -> list[Path]:
    """The folder as one compressed archive in pieces, beside it."""
    for old in folder.parent.glob(f"{folder.name}.tar.gz.*"):
        old.unlink()
    archive = subprocess.Popen(["tar", "-C", folder.parent, "-cz", folder.name], stdout=subprocess.PIPE)
    prefix = f"{folder}.tar.gz."
    subprocess.run(["split", "-d", "-b", f"{mebibytes}M", "-", prefix], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"gpu-pack: tar ended with status {archive.returncode}")
    return sorted(folder.parent.glob(f"{folder.name}.tar.gz.*"))


if __name__ == "__main__":
    main()
