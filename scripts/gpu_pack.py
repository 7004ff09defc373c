"""Packs what ``bench/first_gpu.py`` needs on a machine with one H100, torch and no network, SGLang included.

    make gpu-pack GPU_PYTHON=3.12 LEAVE_OUT="pandas pyarrow"

The folder has the project, the packages of ``envs/paper.txt`` without what a torch image has and what these runs never
load, flashinfer's kernels, compiled here, and SmolLM2-135M's splits and weights in bfloat16, as ``gpu-spelling`` starts
with them. Beside it lies the same in pieces of at most 32 MiB, to carry one at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import yaml
from safetensors.torch import load_file, save_file

from srpo.ground.files import write_events
from srpo.ground.repository import ROOT
from srpo.questions.splits import read_split

PROJECT = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src", "configs", "tests", "bench")
PROJECT += ("Snakefile", "rules", "profiles/default", "reports", "envs")

NOT_PACKED = """
torch torchvision torchaudio torchcodec triton nvidia-c* nvidia-n* cuda-core cuda-tile cuda-toolkit
flashinfer-cubin tilelang tokenspeed-* z3-solver modelscope* timm wandb tensorboard*
mlflow* databricks-sdk docker flask* graphene graphql-* gunicorn huey skops scikit-learn
snakemake-executor-plugin-*
"""
"""A torch image has the first line, no run imports the second, and the others show runs or submit them."""

NOT_LOADED = (
    *("ray/jars", "ray/dashboard/client", "ray/serve", "ray/rllib", "ray/tune", "ray/train"),
    # of its kernels for all cards, an H100's
    *("sgl_kernel/[!s]*.so", "sgl_kernel/sm100", "sgl_kernel/s[!m]*.so", "lib/*mscclpp*"),
    *("flashinfer/data/cccl", "flashinfer/data/cutlass", "torchao/_C_cutlass*", "xgrammar/lib", "deep_gemm"),
    *("mistral_common/data", "jedi/third_party", "pyarrow/include", "pyarrow/tests", "*/tests"),
)
"""Files of packages that no run loads: most of their bytes."""

TOOLKIT = ("nvcc", "crt", "cccl", "runtime")
COMPILER = ("flashinfer-python", "apache-tvm-ffi", "ninja", "einops", "nvidia-ml-py", "nvidia-curand")

WEIGHTS, DATA = Path("models") / "smollm2-135m-spelling", Path("data") / "spell_short_backward"
MODEL_FILE = Path("configs") / "models" / f"{WEIGHTS.name}.yaml"
BENCHMARK_FILE = Path("configs") / "benchmarks" / "reasoning-gym" / f"{DATA.name}.yaml"
PIECE = 32
"""MiB of a piece, at most."""

SCRIPT = """\
#!/bin/sh
# python3 must have torch. sh run.sh tests report: some parts; sh run.sh --small: on a CPU. $OUT: where results go.
cd "$(dirname "$0")/project"
export PYTHONPATH="$PWD/src:$PWD/../site${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export PATH="$PWD/../bin:$PWD/../site/bin:$PATH" FLASHINFER_WORKSPACE_BASE="$PWD/.."
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec python3 bench/first_gpu.py --results ../results --output "${OUT:-..}/first-gpu.json" "$@"
"""


def main() -> None:
    """Make the folder and its pieces, and say how to carry them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results/gpu-pack"))
    parser.add_argument("--python", default="3.12", help="of the other machine")
    parser.add_argument("--leave-out", nargs="*", default=[], help="packages that the other machine has")
    parser.add_argument("--inputs", type=Path, default=Path("results/gpu-spelling"), help="results with SmolLM2-135M")
    given = parser.parse_args()
    folder = given.folder
    for name in ("project", "site", "inputs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    copy_project(folder / "project")
    install(folder / "site", given.python, [*NOT_PACKED.split(), *given.leave_out])
    compile_kernels(folder.with_name("gpu-kernels"), folder / "site" / "flashinfer" / "data" / "aot")
    copy_inputs(given.inputs, folder)
    write_program(folder / "run.sh", SCRIPT)
    write_program(folder / "bin" / "srpo", '#!/bin/sh\nexec python3 -m srpo "$@"\n')
    pieces = cut(folder)
    size = sum(piece.stat().st_size for piece in pieces) / 2**20
    print(
        f"gpu-pack: {folder}, and {size:.0f} MiB in {len(pieces)} pieces {pieces[0]} ...\n"
        f"there: cat {folder.name}.tar.xz.* | tar xJ && sh {folder.name}/run.sh"
    )


def write_program(file: Path, text: str) -> None:
    """A file that can be run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def copy_project(folder: Path) -> None:
    """The files of the repository that the script and the tests of a GPU need."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", *PROJECT], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def locked() -> dict[str, str]:
    """The versions of ``envs/paper.txt``."""
    lines = (ROOT / "envs" / "paper.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def install(folder: Path, python: str, leave_out: list[str]) -> None:
    """The packages for another Python, without the files that no run loads and without debug symbols."""
    names = [name for name in locked() if not any(fnmatch(name, pattern) for pattern in leave_out)]
    target(folder, names, "--python-version", python, "--python-platform", "x86_64-manylinux_2_34")
    for path in (path for pattern in NOT_LOADED for path in folder.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # not what auditwheel put into NAME.libs: these would no longer load
    libraries = [path for path in folder.rglob("*.so*") if path.is_file() and path.parent.suffix != ".libs"]
    subprocess.run(["strip", "--strip-debug", *libraries], stderr=subprocess.DEVNULL)  # some are not to be stripped


def target(folder: Path, names: list[str], *options: str) -> None:
    """Packages of the lock in a folder, without what they require; two have no wheel.

    They are copies: links would be this environment's files, too, which ``strip`` would change while they are loaded.
    """
    source = ["antlr4-python3-runtime", "connection-pool"]
    options += ("--no-deps", "--only-binary", ":all:", *(part for name in source for part in ("--no-binary", name)))
    pinned = [f"{name}=={locked()[name]}" if name in locked() else name for name in names]
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--link-mode", "copy", "--target", folder]
    subprocess.run([*command, *options, *pinned], check=True)


def compile_kernels(work: Path, folder: Path) -> None:
    """flashinfer's kernels, with a compiler from packages; those of an earlier call stay in ``work``."""
    cuda = re.match(r"\d+\.\d+", locked()["nvidia-cuda-nvrtc"])
    assert cuda
    toolkit = [f"nvidia-cuda-{name}=={cuda[0]}.*" for name in TOOLKIT] + [f"nvidia-nvvm=={cuda[0]}.*"]
    if not (work / "tools").exists():
        target(work / "tools", [*COMPILER, *toolkit])
    home = work / "tools" / "nvidia" / f"cu{cuda[0].partition('.')[0]}"
    environment = os.environ | {
        "CUDA_HOME": str(home.absolute()),
        "PATH": f"{(work / 'tools' / 'bin').absolute()}:{os.environ['PATH']}",
        "PYTHONPATH": str((work / "tools").absolute()),
        "FLASHINFER_WORKSPACE_BASE": str(work.absolute()),
        "LIBRARY_PATH": str((home / "lib").absolute()),
        "CPATH": str((home / "include").absolute()),
        "MAX_JOBS": str(os.cpu_count()),
    }
    script = ROOT / "scripts" / "gpu_kernels.py"
    subprocess.run([sys.executable, script, work / "kernels"], env=environment, check=True)
    shutil.copytree(work / "kernels", folder, dirs_exist_ok=True)


def copy_inputs(results: Path, folder: Path) -> None:
    """SmolLM2's questions and its weights in bfloat16, and the two files of the project that name them.

    The task's scorer would need reasoning-gym and what it imports. A word spelled backward is one right answer.
    """
    inputs, project = folder / "inputs", folder / "project"
    for split in ("train", "test"):
        questions = [
            {"prompt": question.messages[-1]["content"], "answer": json.loads(question.ground_truth)["answer"]}
            for question in read_split(results / DATA / f"{split}.parquet")
        ]
        write_events(inputs / f"{split}.jsonl", questions)
    shutil.copytree(results / WEIGHTS, inputs / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    weights = {name: tensor.bfloat16() for name, tensor in load_file(results / WEIGHTS / "model.safetensors").items()}
    save_file(weights, inputs / "model" / "model.safetensors", {"format": "pt"})
    model = {"kind": "local", "title": "SmolLM2-135M, spelling, bfloat16", "path": "../inputs/model"}  # from results
    files = {f"{split}_file": f"../../../../inputs/{split}.jsonl" for split in ("train", "test")}
    benchmark = {"kind": "files", "title": "Spell short words backward", "reward": "answer_match", **files}
    for file, content in ((MODEL_FILE, model), (BENCHMARK_FILE, benchmark)):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(yaml.safe_dump(content, sort_keys=False))


def cut(folder: Path, mebibytes: int = PIECE) -> list[Path]:
    """The folder as one compressed archive in pieces, beside it."""
    for old in folder.parent.glob(f"{folder.name}.tar.xz.*"):
        old.unlink()
    archive = subprocess.Popen(
        ["tar", "-C", folder.parent, "-c", "--use-compress-program=xz -T0", folder.name], stdout=subprocess.PIPE
    )
    prefix = f"{folder}.tar.xz."
    subprocess.run(["split", "-d", "-b", f"{mebibytes}M", "-", prefix], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"gpu-pack: tar ended with status {archive.returncode}")
    return sorted(folder.parent.glob(f"{folder.name}.tar.xz.*"))


if __name__ == "__main__":
    main()
