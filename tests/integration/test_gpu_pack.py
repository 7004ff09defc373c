"""``bench/first_gpu.py`` on a CPU, every part in its small form, and what ``make gpu-pack`` carries."""

import json
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gpu_pack as pack
import psutil
import pytest
import torch
from paths import ROOT
from safetensors.torch import load_file, save_file

from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import TransformerShape
from srpo.experiment.flops import model_cost
from srpo.ground.files import read_json
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import Question, write_split
from srpo.starts.data import build_split

first = SimpleNamespace(**runpy.run_path(str(ROOT / "bench" / "first_gpu.py")))
SMALL = first.Options(small=True)


def test_an_update_has_the_flops_of_its_tokens() -> None:
    found = first.update(SMALL, "qwen3-8b", layers=8, profiled=True)
    cost = model_cost(TransformerShape(**found["shape"]))
    words = first.SMALL_WORDS
    responses = torch.linspace(words["shortest"], words["longest"], first.SAMPLES).long().tolist() * first.QUESTIONS
    (best,) = [
        step
        for step in found["steps"][1:]
        if sum(step["flops"].values()) / sum(step["seconds"].values()) == pytest.approx(1e12 * found["tflops"])
    ]
    prompt = (best["tokens"]["update"] - sum(responses)) // first.QUESTIONS  # once for all its responses
    assert best["tokens"]["update"] == first.QUESTIONS * prompt + sum(responses)
    assert prompt > words["prompt"]
    alone = cost.forward_flops(prompt + response for response in responses)
    again = cost.forward_flops([prompt] * (len(responses) - first.QUESTIONS))
    assert best["flops"]["update"] == 4 * (alone - again)
    # every other rollout is wrong and has a right sibling
    assert best["tokens"]["log_prob"] == first.QUESTIONS * prompt + sum(responses[::2])
    assert best["tokens"]["teacher"] > best["tokens"]["log_prob"]  # a solution is shown
    assert len(found["kernel_seconds"]) == 20
    assert found["planned_gb"] > 4 * memory.FLOAT32 * found["parameters"] / 1e9


def test_the_workflow_makes_what_a_part_asks_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A dry run of two parts; runs of three seeds go on with what the part of one seed has trained."""
    for options, jobs in (({"method": "srpo", "made": "evaluation.json"}, 1), ({"seeds": 3, "runs_at_a_time": 2}, 9)):
        found = first.workflow(first.Options(tmp_path, small=True), **options)
        assert found.pop("status") == 0
        assert len(found) == jobs
        assert re.search(rf"^train +{jobs}$", capfd.readouterr().out, re.MULTILINE)


# ---------------------------------------------------------------- one part does not stop the others


def run_part(tmp_path: Path, code: str, seconds: float = 30) -> dict:
    return first.run_part([sys.executable, "-c", code], seconds, tmp_path / "log.txt")


def test_a_part_that_ends_without_a_result_leaves_its_output(tmp_path: Path) -> None:
    found = run_part(tmp_path, "import os; print('what it said', flush=True); os.abort()")
    assert found["error"].startswith("exit status -6: what it said")


def test_a_part_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    found = run_part(tmp_path, code, seconds=2)
    assert found["error"].startswith("killed after 2 s")
    child = int((tmp_path / "log.txt").read_text())
    end = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_an_exception_is_the_result(tmp_path: Path) -> None:
    def fails(options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    first.PARTS["fails"] = fails, 1
    first.compute("fails", SMALL, tmp_path / "result.json")
    assert "OutOfMemoryError: CUDA out of memory" in read_json(tmp_path / "result.json")["error"]


# ---------------------------------------------------------------- the pack


def test_the_packed_project_runs_by_itself(tmp_path: Path) -> None:
    pack.copy_project(tmp_path / "project")
    command = [sys.executable, "bench/first_gpu.py", "--small", "versions", "--output", tmp_path / "first-gpu.json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "project" / "src")}
    subprocess.run(command, cwd=tmp_path / "project", env=environment, check=True)
    found = read_json(tmp_path / "first-gpu.json")
    assert found["card"] == (torch.cuda.get_device_name() if torch.cuda.is_available() else None)
    assert found["parts"]["versions"]["result"]["torch"] == torch.__version__
    assert {"Snakefile", "rules", "tests"} <= {path.name for path in (tmp_path / "project").iterdir()}


def test_what_is_packed_of_smollm2(tmp_path: Path) -> None:
    """Weights in bfloat16, and questions whose reward needs no package, under the names that gpu-spelling has."""
    results, folder = tmp_path / "results", tmp_path / "pack"
    pack.copy_project(folder / "project")
    (results / pack.WEIGHTS).mkdir(parents=True)
    (results / pack.WEIGHTS / "config.json").write_text("{}")
    weights = {"one": torch.randn(5, 3)}
    save_file(weights, results / pack.WEIGHTS / "model.safetensors")
    for split in ("train", "test"):
        answers = [f"<answer>{split[::-1]}{i}</answer>" for i in range(32)]
        questions = [
            Question(
                i, [{"role": "user", "content": f"Spell {answer}"}], json.dumps({"answer": answer[8:-9]}), "own", ""
            )
            for i, answer in enumerate(answers)
        ]
        write_split(results / pack.DATA / f"{split}.parquet", questions, split)
    pack.copy_inputs(results, folder)
    packed = load_file(folder / "inputs" / "model" / "model.safetensors")
    assert torch.equal(packed["one"], weights["one"].bfloat16())
    configs = folder / "project" / "configs"
    experiment = load_experiment(configs / "experiments" / "gpu-spelling.yaml", configs)
    (model,), (benchmark,) = experiment.models.values(), experiment.benchmarks.values()
    assert (folder / "results" / model.path / "config.json").resolve().exists()
    for split in ("train", "test"):
        for question in build_split(benchmark, split):
            response = question.messages[-1]["content"].removeprefix("Spell ")
            assert compute_reward(question.reward, response, question.ground_truth) == 1
            assert compute_reward(question.reward, f"<answer>{split}</answer>", question.ground_truth) < 1


def test_pieces_make_the_folder_again(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    content = os.urandom(2 * 2**20 + 5)
    (folder / "file").write_bytes(content)
    pieces = pack.cut(folder, mebibytes=1)
    assert len(pieces) == 3
    assert max(piece.stat().st_size for piece in pieces) <= 2**20
    (tmp_path / "there").mkdir()
    subprocess.run(f"cat {folder}.tar.xz.* | tar -xJC {tmp_path}/there", shell=True, check=True)
    assert (tmp_path / "there" / "pack" / "file").read_bytes() == content
