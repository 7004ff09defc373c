"""``bench/first_gpu.py`` on a CPU, every part in its small form, and what ``make gpu-pack`` carries."""

from __future__ import annotations

import json
import os
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
from srpo.experiment.config import TransformerShape
from srpo.experiment.flops import model_cost
from srpo.ground.files import read_json
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import Question, read_split, write_split

first = SimpleNamespace(**runpy.run_path(str(ROOT / "bench" / "first_gpu.py")))
SMALL = first.Options(small=True)


def test_versions() -> None:
    found = first.versions(SMALL)
    assert found["torch"] == torch.__version__
    assert found["sglang"] is None
    assert found["product_tflops"] > 0


def test_the_tests_of_a_gpu_are_counted() -> None:
    found = first.tests(SMALL)
    assert (found["passed"], found["failed"]) == (1, {})
    assert any(name.startswith("test_no_token_is_no_problem") for name in found["test_seconds"])


@pytest.fixture(scope="module")
def updates() -> dict[bool, dict]:
    """An update of the same model with packed rows and with shared prompts."""
    return {packed: first.update(SMALL, "qwen3-8b", layers=8, packed=packed) for packed in (False, True)}


def test_an_update_has_the_flops_of_its_tokens(updates) -> None:
    packed = updates[True]
    cost = model_cost(TransformerShape(**packed["shape"]))
    words = first.SMALL_WORDS
    responses = torch.linspace(words["shortest"], words["longest"], first.SAMPLES).long().tolist() * first.QUESTIONS
    (best,) = [
        step
        for step in packed["steps"][1:]
        if sum(step["flops"].values()) / sum(step["seconds"].values()) == pytest.approx(1e12 * packed["tflops"])
    ]
    prompt = (best["tokens"]["update"] - sum(responses)) / len(responses)
    assert prompt == int(prompt) > words["prompt"]
    assert best["flops"]["update"] == 4 * cost.forward_flops(int(prompt) + response for response in responses)
    half = best["tokens"]["log_prob"] / best["tokens"]["update"]
    assert 0.4 < half < 0.6  # every other rollout is wrong and has a right sibling
    assert best["tokens"]["teacher"] > best["tokens"]["log_prob"]  # a solution is shown


def test_shared_prompts_save_tokens_and_change_no_gradient(updates) -> None:
    shared, packed = updates[False], updates[True]
    assert shared["steps"][0]["tokens"]["update"] < 0.7 * packed["steps"][0]["tokens"]["update"]
    assert shared["steps"][0]["grad_norm"] == pytest.approx(packed["steps"][0]["grad_norm"], rel=0.05)
    assert packed["planned_gb"] > shared["planned_gb"] > 4 * memory.FLOAT32 * shared["parameters"] / 1e9


def test_the_optimizer_is_timed_in_both_forms() -> None:
    found = first.update(SMALL, "qwen3-1.7b", adamw=True)
    assert {kind for kind, seconds in found["adamw_seconds"].items() if seconds > 0} == {"fused", "foreach"}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("inputs", [None, Path("inputs")])
@pytest.mark.parametrize("method", ["grpo", "srpo"])
def test_the_run_that_is_trained(method: str, inputs: Path | None, small: bool) -> None:
    spec = first._training_spec(first.Options(inputs, small), method)
    assert spec.id.method == spec.method.name == method
    assert spec.id.model == ("smollm2-135m-format" if inputs else "miniature-large")
    assert spec.training.questions_per_batch == (2 if small else 8 if inputs else 4)
    assert small or spec.method.mini_batch_questions in (2, 4, 8)


@pytest.mark.parametrize("method", ["grpo", "srpo"])
def test_training(method: str, any_processor) -> None:
    found = first.train(SMALL, method=method)
    assert len(found["phase_seconds"]) == len(found["reward/mean"]) == 2
    assert len(found["validations"]) == 2
    assert found["actor/rollout_is_weight"] == pytest.approx([1, 1], abs=0.1)
    assert all(0 < rms < 0.2 for rms in found["rollout_corr/log_prob_rms"])


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
    assert (tmp_path / "project" / "tests" / "integration" / "test_gpu.py").exists()


def test_what_is_packed_of_smollm2(tmp_path: Path) -> None:
    """Weights in bfloat16, and questions whose reward needs no package."""
    results, inputs = tmp_path / "results", tmp_path / "inputs"
    assert not pack.copy_inputs(results, inputs)
    (results / pack.WEIGHTS).mkdir(parents=True)
    (results / pack.WEIGHTS / "config.json").write_text("{}")
    weights = {"one": torch.randn(5, 3)}
    save_file(weights, results / pack.WEIGHTS / "model.safetensors")
    messages = [{"role": "user", "content": "Reverse: a, b"}]
    question = Question(0, messages, json.dumps({"answer": "b, a"}), "reasoning_gym", "words")
    for split in ("train", "test"):
        write_split(results / pack.DATA / f"{split}.parquet", [question], split)
    assert pack.copy_inputs(results, inputs)
    assert torch.equal(load_file(inputs / pack.WEIGHTS / "model.safetensors")["one"], weights["one"].bfloat16())
    assert (inputs / pack.WEIGHTS / "config.json").exists()
    for split in ("train", "test"):
        (packed,) = read_split(inputs / pack.DATA / f"{split}.parquet")
        assert packed.messages == messages
        for answer, right in (("b, a", 1), ("a, b", 0)):
            assert compute_reward(packed.reward, f"<answer>{answer}</answer>", packed.ground_truth) == right


def test_pieces_make_the_folder_again(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    content = os.urandom(2 * 2**20 + 5)
    (folder / "file").write_bytes(content)
    pieces = pack.cut(folder, mebibytes=1)
    assert len(pieces) == 3
    assert max(piece.stat().st_size for piece in pieces) <= 2**20
    (tmp_path / "there").mkdir()
    subprocess.run(f"cat {folder}.tar.gz.* | tar -xzC {tmp_path}/there", shell=True, check=True)
    assert (tmp_path / "there" / "pack" / "file").read_bytes() == content


def test_packages_are_those_of_the_lock() -> None:
    lock = {line.split("==")[0] for line in (ROOT / "envs" / "paper.txt").read_text().splitlines()}
    assert set(pack.PACKAGES.split()) <= lock
    assert not {"torch", "transformers", "sglang", "numpy"} & set(pack.PACKAGES.split())
