"""On one GPU what other tests prove on CPUs: no SGLang, no network. ``pytest -m gpu`` on a GPU machine.

verl has one device in a process. Where there is no GPU, what does not need one runs on the CPU, so that every line
of the checks is exercised; the float32 reference comes from a process that sees no GPU.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import host_driver
import pytest
import torch
from host_driver import FAR
from one_step import before_update, build_base, build_run, local, numbers, relative_differences, update, weights
from paths import SUPPORT
from tiny import prepare, tiny_experiment
from torch import Tensor
from torch.nn.functional import cosine_similarity
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from srpo.algorithm import distribution
from srpo.algorithm.divergence import generalised_jsd
from srpo.ground.files import read_events
from srpo.ground.layout import Layout
from srpo.policy.in_process import InProcessPolicy
from srpo.policy.interface import DEVICE_MEMORY
from srpo.training import loop

BFLOAT16 = {"precision": "bfloat16", "max_tokens_per_rank": 120}

ON_GPU = torch.cuda.is_available()
METHODS = ["grpo", "sdpo", "srpo", "advantage_mix"] if ON_GPU else ["srpo", "advantage_mix"]
"""Without a GPU two exercise the checks: test_policy.py and test_layouts.py compare all of them there."""

OF_DEVICE = {f"metric/{name}" for name in DEVICE_MEMORY}

CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")])
CPU = pytest.param("cpu", marks=pytest.mark.skipif(ON_GPU, reason="verl computes on the GPU in this process"))
on_each_device = pytest.mark.parametrize("device", [CPU, CUDA])


@pytest.fixture(scope="session")
def host(tmp_path_factory) -> tuple[Layout, dict[str, dict]]:
    """The base, and for each method rollouts and float32 numbers of the CPU."""
    folder = tmp_path_factory.mktemp("host")
    base = build_base(folder / "drawn")
    (folder / "base").symlink_to(base.folder)
    if ON_GPU:
        command = [sys.executable, SUPPORT / "host_driver.py", folder, *METHODS]
        subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "VERL_PLATFORM": "cpu"}, check=True)
    else:
        host_driver.main(folder, METHODS)
    files = [*METHODS, *(f"{name}-far" for name in METHODS)]
    return base, {name: torch.load(folder / f"{name}.pt", weights_only=False) for name in files}


def start(host, tmp_path: Path, name: str, device: str, folder: str = "run", **options):
    run = build_run(host[0], tmp_path / folder, name, 2, **options)
    assert local(next(run.policy.worker.actor.engine.module.parameters())).device.type == device
    return run


# ---------------------------------------------------------------- the same numbers


@on_each_device
@pytest.mark.parametrize("execution", [{}, {"max_tokens_per_rank": 120}], ids=["rows", "tokens"])
@pytest.mark.parametrize("name", METHODS)
def test_float32_gives_the_numbers_of_the_host(name, execution, device, host, tmp_path, monkeypatch):
    assert torch.get_float32_matmul_precision() == "highest"  # NVIDIA's containers may set TF32
    reference = host[1][name]
    run = start(host, tmp_path, name, device, execution=execution)
    if device == "cpu":  # with the metrics that only a device has
        monkeypatch.setattr("srpo.policy.worker.get_device_name", lambda: "cuda")
        monkeypatch.setattr("srpo.policy.worker._worst_device_memory", lambda: dict.fromkeys(DEVICE_MEMORY, 1.0))
    found = numbers(run, reference["rollouts"])
    assert found.keys() - reference["numbers"].keys() == OF_DEVICE
    assert all(found.pop(name) > 0 for name in OF_DEVICE)
    # kernels of another device sum in another order; AdamW makes a step of the last bits of gradients near zero
    limits = dict.fromkeys(("gradient", "student", "teacher", "metric"), 1e-4)
    for name, difference in relative_differences(found, reference["numbers"]).items():
        assert difference < limits.get(name.split("/")[0], 2e-5), name


@on_each_device
@pytest.mark.parametrize("name", METHODS)
def test_bfloat16_stays_near_the_float32_of_the_host(name, device, host, tmp_path):
    """Logits of bfloat16 have 8 bits: a log-prob of a token is off by up to a few hundredths, in both directions."""
    reference = host[1][f"{name}-far"]
    run = start(host, tmp_path, name, device, execution=BFLOAT16, changes=FAR)
    found, right = before_update(run, reference["rollouts"]), reference["prepared"]
    assert found.old_log_probs.keys() == right.old_log_probs.keys()
    assert_near(found.old_log_probs, right.old_log_probs, largest=0.15, mean=0.03)
    assert found.teacher.entropy.keys() == right.teacher.entropy.keys()
    if right.teacher.entropy:
        assert_near(found.teacher.log_probs, right.teacher.log_probs, largest=0.15, mean=0.03)
        assert_near(found.teacher.entropy, right.teacher.entropy, largest=0.03, mean=0.01)
    # from the same targets on, in this run's own layout of prompts
    run.policy.worker.kept = reference["kept"]
    metrics, gradients = update(run, replace(right, batch=found.batch))
    assert metrics["actor/clip_fraction"] == 0  # a clipped token comes or goes as a whole
    for i, gradient in enumerate(gradients):
        names = sorted(gradient)
        found = torch.cat([gradient[name].flatten() for name in names])
        wanted = torch.cat([reference["numbers"][f"gradient/{i}/{name}"].flatten() for name in names])
        assert cosine_similarity(found, wanted, dim=0) > 0.995, i
        assert found.norm().item() == pytest.approx(wanted.norm().item(), rel=0.03), i


def assert_near(found: dict[int, Tensor], right: dict[int, Tensor], largest: float, mean: float) -> None:
    difference = torch.cat([found[row] - right[row] for row in right]).abs()
    assert difference.max() < largest, {row: (found[row] - right[row]).abs().max().item() for row in right}
    assert 0 < difference.mean() < mean  # 0 would be float32


# ---------------------------------------------------------------- state


@on_each_device
def test_a_checkpoint_restores_weights_teacher_and_moments(device, host, tmp_path):
    rollouts = host[1]["srpo"]["rollouts"]
    run = start(host, tmp_path, "srpo", device, execution=BFLOAT16)
    numbers(run, rollouts)
    run.policy.save_checkpoint(tmp_path / "checkpoint", 1)
    saved = state_of(run)
    other = start(host, tmp_path, "srpo", device, folder="other", execution={**BFLOAT16, "offload_teacher": True})
    assert any(not torch.equal(tensor, saved[name]) for name, tensor in weights_of(other).items())
    other.policy.load_checkpoint(tmp_path / "checkpoint")
    restored = state_of(other)
    assert restored.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in restored.items())
    # what evaluation reads, on whatever device
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint" / "huggingface", dtype=torch.float32)
    for name, tensor in weights(exported).items():
        assert torch.equal(tensor, saved[f"student/{name}"].bfloat16().float())


def weights_of(run) -> dict[str, Tensor]:
    engine = run.policy.worker.actor.engine
    return {
        f"{kind}/{name}": tensor
        for kind, module in (("student", engine.module), ("teacher", engine.teacher))
        for name, tensor in weights(module).items()
    }


def state_of(run) -> dict[str, Tensor]:
    engine = run.policy.worker.actor.engine
    moments = {
        f"{key}/{name}": local(engine.optimizer.state[parameter][key]).cpu().clone()
        for name, parameter in engine.module.named_parameters()
        for key in ("step", "exp_avg", "exp_avg_sq")
    }
    return weights_of(run) | moments


@on_each_device
def test_an_off_loaded_teacher_is_on_the_device_only_for_its_pass(device, host, tmp_path):
    rollouts = host[1]["srpo"]["rollouts"]
    run = start(host, tmp_path, "srpo", device, execution={"offload_teacher": True})
    teacher = run.policy.worker.actor.engine.teacher
    before_update(run, rollouts)  # a pass that gathers its weights
    size = sum(local(parameter).nbytes for parameter in teacher.parameters())
    before = allocated(device)
    with run.policy.worker.actor.engine.teacher_in_place():
        assert {local(parameter).device.type for parameter in teacher.parameters()} == {device}
        assert allocated(device) - before >= (size if device == "cuda" else 0)
    assert {local(parameter).device.type for parameter in teacher.parameters()} == {"cpu"}
    assert allocated(device) - before < 0.05 * size
    resident = start(host, tmp_path, "srpo", device, folder="other").policy.worker.actor.engine.teacher
    assert {local(parameter).device.type for parameter in resident.parameters()} == {device}


def allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


# ---------------------------------------------------------------- training


@on_each_device
@pytest.mark.skipif(not (ON_GPU or torch.cpu.get_capabilities().get("avx512_bf16")), reason="emulated: too slow")
@pytest.mark.parametrize("name", METHODS[:1] + METHODS[2:3])
def test_reward_rises_in_bfloat16(name, device, tmp_path, monkeypatch):
    """A random model learns to write digits; the teacher goes between device and host."""
    monkeypatch.setattr(
        "srpo.training.step.compute_reward", lambda kind, response, truth: float(sum(map(str.isdigit, response)) > 1)
    )
    execution = {**BFLOAT16, "max_tokens_per_rank": 400, "offload_teacher": True}
    spec, layout = prepare(tiny_experiment(name, execution), tmp_path)
    run = loop.Run(spec, layout, InProcessPolicy(spec, layout.model(spec.id.model)))
    run.resume()
    steps, rise = {"cpu": (100, 0.25), "cuda": (300, 0.4)}[device]
    for _ in range(steps):
        run.take_step()
    metrics = [event["metrics"] for event in read_events(run.folder / "steps.jsonl")]
    rewards = [metric["reward/mean"] for metric in metrics]
    assert sum(rewards[-10:]) / 10 - sum(rewards[:10]) / 10 > rise
    # the trainer's log-prob of a sampled token is the sampler's, up to bfloat16
    assert all(1e-3 < metric["rollout_corr/log_prob_rms"] < 0.07 for metric in metrics)
    assert ("perf/device_memory_gb" in metrics[0]) == (device == "cuda")


# ---------------------------------------------------------------- memory

SIZES = {"cpu": (512, 8192, 2**17), "cuda": (8192, 151_936, distribution.LOGITS_CHUNK)}


@on_each_device
def test_no_float32_copy_of_the_logits_exists(device, monkeypatch):
    tokens, vocabulary, chunk = SIZES[device]
    copy, chunks = 4 * tokens * vocabulary, 8 * 4 * chunk  # a chunk's own temporaries are 6 copies of it
    few = 8 * 4 * 101 * tokens  # what is left of the logits: top K and tail
    student, teacher = parts(tokens, vocabulary, device)
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", chunk)
    assert peak_bytes(device, student) < copy // 2 + chunks + few < copy  # bfloat16 gradient and chunks
    assert peak_bytes(device, teacher) < chunks + few < copy
    student, teacher = parts(tokens // 4, vocabulary, device)
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", 2**62)  # the measure sees what is to be avoided
    assert peak_bytes(device, student) > 3 * copy // 4
    assert peak_bytes(device, teacher) > copy // 4


def parts(tokens: int, vocabulary: int, device: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """What student and teacher compute of bfloat16 logits [tokens, vocabulary], the student with its gradient."""
    # never in float32 as a whole, here neither
    logits, others = (
        torch.empty(tokens, vocabulary, dtype=torch.bfloat16, device=device).normal_(0, 2) for _ in range(2)
    )
    ids, labels = distribution.top_k_ids(logits, 100), torch.randint(vocabulary, (tokens,), device=device)
    log_q = distribution.top_k_with_tail(others, ids)
    logits.requires_grad_()

    def student() -> None:
        generalised_jsd(distribution.top_k_with_tail(logits, ids), log_q, 0.5).sum().backward()
        logits.grad = None

    @torch.no_grad()
    def teacher() -> None:
        distribution.top_k_with_tail(others, ids)
        distribution.entropy(others)
        distribution.token_log_probs(others, labels)

    return student, teacher


def peak_bytes(device: str, function: Callable[[], None]) -> int:
    """The most memory that a call holds at a time beyond what is held before it, temporaries of kernels included."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


class LargestFloat32(TorchDispatchMode):
    """The most rows of any float32 tensor whose last dimension is the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.rows, self.bfloat16_rows = vocabulary, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple | list) else [output]:
            if isinstance(tensor, Tensor) and tensor.dim() and tensor.shape[-1] == self.vocabulary:
                rows = tensor.numel() // self.vocabulary
                if tensor.dtype == torch.float32:
                    self.rows = max(self.rows, rows)
                elif tensor.dtype == torch.bfloat16:
                    self.bfloat16_rows = max(self.bfloat16_rows, rows)
        return output


@on_each_device
@pytest.mark.parametrize("name", METHODS)
def test_no_pass_of_the_engine_makes_a_float32_copy_of_the_logits(name, device, host, tmp_path, monkeypatch):
    """All three passes and backward, of a micro-batch of all rows: only chunks of 8 tokens are ever float32."""
    run = start(host, tmp_path, name, device, execution={"precision": "bfloat16"}, micro_batch_size=64)
    vocabulary = run.policy.worker.actor.engine.model_config.hf_config.vocab_size
    rollouts = host[1][name]["rollouts"]
    for chunk, in_chunks in ((8, True), (10**6, False)):
        monkeypatch.setattr(distribution, "LOGITS_CHUNK", chunk * vocabulary)
        with LargestFloat32(vocabulary) as largest:
            numbers(run, rollouts)
        assert largest.bfloat16_rows > 40
        assert (largest.rows <= 8) == in_chunks


@on_each_device
def test_no_token_is_no_problem(device):
    """Micro-batches without rollouts of the teacher are common."""
    logits = torch.empty(0, 151_936, dtype=torch.bfloat16, device=device, requires_grad=True)
    ids = distribution.top_k_ids(logits, 100)
    assert ids.shape == (0, 100)
    assert distribution.entropy(logits).shape == (0,)
    assert distribution.token_log_probs(logits, ids[:, 0]).shape == (0,)
    distribution.top_k_with_tail(logits, ids).sum().backward()
    assert logits.grad.shape == logits.shape
