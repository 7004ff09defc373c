"""What only a GPU can show, in parts of minutes, without network: one JSON, and all that a part wrote.

    python bench/first_gpu.py [--output first-gpu.json] [--minutes 9.5] [--small] [PART ...]

Each part is a process of its own with a time limit, and the file is written after each: a part that fails or is killed
leaves its error, its log and its results beside the file, and the others go on. Parts of the workflow go on where an
earlier call ended; they need what ``make gpu-pack`` packs, or ``make gpu-demo`` installs. ``--small`` is for CPUs: tiny
shapes, and a dry run of the workflow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml

import srpo.policy  # noqa: F401  before any import of verl, which picks its platform then
from srpo.algorithm.rollouts import Rollouts
from srpo.algorithm.teacher import Live
from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import LocalModel, RunSpec
from srpo.ground.files import read_events, read_json, write_json
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS, ROOT
from srpo.questions.prompts import student_prompts
from srpo.questions.splits import Question

PACKAGES = ("torch", "transformers", "verl", "tensordict", "ray", "numpy", "triton", "sglang")

QUESTIONS, SAMPLES = 4, 8
WORDS = {"prompt": 360, "shortest": 180, "longest": 2000}
"""Words, each a token, of a question and of the responses to it: with the frame of a chat the plan's mean lengths."""

SMALL_WORDS = {"prompt": 20, "shortest": 4, "longest": 18}
SMALL_SHAPE = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 5000},
}

LOGGED = (
    *("reward/mean", "response_length/mean", "response_length/truncated_fraction", "actor/grad_norm"),
    *("actor/rollout_is_weight", "rollout_corr/log_prob_rms"),
    *("perf/device_memory_gb", "perf/device_memory_reserved_gb", "perf/device_memory_free_gb"),
)

Result = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What parts are given.

    Attributes:
        results: where the workflow works.
        small: whether shapes are tiny.
        experiment: what the workflow makes.
    """

    results: Path = Path("results") / "first-gpu"
    small: bool = False
    experiment: Path = CONFIGS / "experiments" / "gpu-spelling.yaml"


# ---------------------------------------------------------------- versions and tests


def versions(options: Options) -> Result:
    """Driver, card and packages, and the rate of large bfloat16 products."""
    found: Result = {"python": sys.version.split()[0], "cuda": torch.version.cuda, "cores": os.cpu_count()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used,clocks.sm", "--format=csv"]
        found["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.splitlines()
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"card": properties.name, "memory_gb": properties.total_memory / 1e9}
    return found | {"product_tflops": _product_rate(256 if options.small else 8192) / 1e12}


def _product_rate(size: int, products: int = 20) -> float:
    """FLOP/s of products of random bfloat16 matrices."""
    left, right = (torch.randn(size, size, device=device()).bfloat16() for _ in range(2))
    seconds = _seconds_of(lambda: left @ right, products)
    return 2 * size**3 / seconds


class _Reports:
    """Counts pytest's outcomes, and prints a failure at once: a part that is killed has left it."""

    def __init__(self) -> None:
        self.passed, self.skipped, self.failed, self.seconds = 0, 0, dict[str, str](), dict[str, float]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("::")[2]
        self.passed += report.when == "call" and report.passed
        self.skipped += report.skipped
        self.seconds[name] = self.seconds.get(name, 0) + report.duration
        if report.failed:
            self.failed[name] = report.longreprtext[-2000:]
            print(report.longreprtext, flush=True)


def tests(options: Options) -> Result:
    """``pytest -m gpu``; the small form is one of its tests on the CPU."""
    import pytest

    chosen = ["-k", "test_no_token_is_no_problem"] if options.small else ["-m", "gpu"]
    found = _Reports()
    files = [f"--rootdir={ROOT}", str(ROOT / "tests" / "integration" / "test_gpu.py")]
    pytest.main(["-p", "no:cacheprovider", "-v", "--tb=short", *chosen, *files], [found])
    return {"passed": found.passed, "skipped": found.skipped, "failed": found.failed, "test_seconds": found.seconds}


# ---------------------------------------------------------------- an update of a large model


def update(options: Options, name: str, layers: int | None = None, profiled: bool = False) -> Result:
    """Three steps of SRPO but generation, of a model of random weights, in the paper's micro-batches.

    Args:
        name: of a model in ``configs/models``, whose shape is taken.
        layers: how many; None for all. A model that is cut has a live teacher, because one GPU has no room for the
            weights of another.
        profiled: whether to add the seconds of a fourth step's dearest kernels.
    """
    from srpo.policy.in_process import InProcessPolicy

    with tempfile.TemporaryDirectory() as folder:
        spec = _update_spec(Path(folder), name, layers, options.small)
        policy = InProcessPolicy(spec, Path(folder))
        shape = memory.shape_of(spec.model)
    questions, rollouts = _drawn_rollouts(spec, policy.tokenizer, SMALL_WORDS if options.small else WORDS)
    steps = [_timed_step(spec, policy, number, questions, rollouts) for number in (1, 2, 3)]
    best = min(steps[1:], key=lambda step: sum(step["seconds"].values()))
    planned = memory.update_memory(shape, spec.execution, spec.training, spec.method.teacher_has_weights)
    result = {
        "model": name,
        "shape": shape.model_dump(),
        "parameters": memory.parameters(shape),
        "micro_batch_tokens": spec.execution.max_tokens_per_rank,
        "steps": steps,
        "tflops": sum(best["flops"].values()) / sum(best["seconds"].values()) / 1e12,
        "planned_gb": (sum(planned.values()) - memory.DEVICE_RUNTIME) / 1e9,
    }
    if torch.cuda.is_available():
        result["peak_gb"] = max(step["peak_gb"] for step in steps)
    if profiled:
        result["kernel_seconds"] = _kernel_seconds(lambda: _timed_step(spec, policy, 4, questions, rollouts))
    return result


def _kernel_seconds(function: Callable[[], object], most: int = 20) -> dict[str, float]:
    """The dearest kernels of a call."""
    with torch.profiler.profile() as profiler:
        function()
        _synchronize()
    kind = f"self_{'device' if torch.cuda.is_available() else 'cpu'}_time_total"
    seconds = {event.key: getattr(event, kind) / 1e6 for event in profiler.key_averages()}
    return dict(sorted(seconds.items(), key=lambda item: -item[1])[:most])


def _update_spec(folder: Path, name: str, layers: int | None, small: bool) -> RunSpec:
    """The paper's SRPO with one update of few questions on one rank; its model of random weights is in ``folder``."""
    raw = _raw_experiment("paper") | {
        "comparable_with_paper": False,
        "matrix": [{"models": [name], "benchmarks": ["sdpo/chemistry"], "methods": ["srpo"]}],
        "overrides": {"srpo": {"mini_batch_questions": QUESTIONS}},
    }
    raw["training"] |= {"questions_per_batch": QUESTIONS}
    raw["execution"] = {
        **{"precision": "bfloat16", "gradient_checkpointing": True},
        "max_tokens_per_rank": 400 if small else raw["execution"]["max_tokens_per_rank"],
    }
    if small:
        raw["training"] |= {"max_prompt_length": 96, "max_response_length": 24, "max_reprompt_len": 160}
    experiment = load_experiment(raw)
    spec = experiment.run(experiment.runs()[0])
    shape = memory.shape_of(spec.model)
    sizes = shape.model_dump() | ({"num_hidden_layers": layers} if layers else {}) | (SMALL_SHAPE if small else {})
    _draw_model(folder, sizes)
    changes: Result = {"model": LocalModel(kind="local", name="drawn", title="Drawn", path=folder)}
    if layers:
        changes["method"] = spec.method.model_copy(update={"teacher": Live(kind="live")})
    return spec.model_copy(update=changes)


def _draw_model(folder: Path, sizes: Result) -> None:
    """Random weights, and a tokenizer that has a token for each word ``w<number>``."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    from srpo.starts.make_tokenizer import CHAT_TEMPLATE

    config = AutoConfig.for_model(**sizes, max_position_embeddings=2**15, eos_token_id=1, pad_token_id=2)
    torch.manual_seed(0)
    with torch.device(device()):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    special = {"unk_token": "<unk>", "eos_token": "<end>", "pad_token": "<pad>"}
    words = [*special.values(), *(f"w{i}" for i in range(len(special), sizes["vocab_size"]))]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT_TEMPLATE, **special).save_pretrained(folder)


def _drawn_rollouts(spec: RunSpec, tokenizer: Any, words: dict[str, int]) -> tuple[list[Question], Rollouts]:
    """Groups of random responses, from the shortest to the longest in equal steps; every other one is right."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(words["shortest"], words["longest"], SAMPLES).long().tolist() * QUESTIONS

    def text(length: int) -> str:
        return " ".join(f"w{i}" for i in torch.randint(3, 4000, (length,), generator=generator).tolist())

    questions = [
        Question(i, [{"role": "user", "content": text(words["prompt"])}], "", "", "drawn") for i in range(QUESTIONS)
    ]
    asked = [question.messages for question in questions]
    prompts = map(torch.tensor, student_prompts(tokenizer, asked, spec.training.max_prompt_length))
    texts = [text(length) for length in lengths]
    return questions, Rollouts(
        question=torch.arange(QUESTIONS).repeat_interleave(SAMPLES),
        prompts=[prompt for prompt in prompts for _ in range(SAMPLES)],
        responses=[torch.tensor(tokenizer(each, add_special_tokens=False)["input_ids"]) for each in texts],
        texts=texts,
        rollout_log_probs=[torch.full((length,), -12.0) for length in lengths],
        rewards=torch.tensor([0.0, 1.0]).repeat(QUESTIONS * SAMPLES // 2),
        in_format=[True] * len(texts),
        truncated=torch.zeros(len(texts), dtype=torch.bool),
    )


def _timed_step(spec: RunSpec, policy: Any, number: int, questions: list[Question], rollouts: Rollouts) -> Result:
    """Seconds, FLOPs (recomputed activations counted) and tokens of each pass; the step's peak memory."""
    from srpo.training.step import Step

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    step = Step(spec, policy, number)
    batch = step.route(questions, rollouts)
    old_log_probs = step.compute_log_prob(batch)
    teacher = step.compute_teacher_log_prob(batch)
    metrics = step.update(batch, step.compute_targets(batch, old_log_probs, teacher))
    passes = ("log_prob", "teacher", "update")
    again = {"update": 4 / 3 if spec.execution.gradient_checkpointing else 1}
    return {
        "seconds": {phase: step.phases.wall[phase] for phase in passes},
        "flops": {phase: again.get(phase, 1) * step.phases.dense_flops(phase) for phase in passes},
        "tokens": dict(step.phases.tokens),
        "grad_norm": metrics["actor/grad_norm"],
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None,
    }


# ---------------------------------------------------------------- the workflow


def workflow(
    options: Options, made: str = "", method: str | None = None, seeds: int = 1, runs_at_a_time: int = 1
) -> Result:
    """Make a file of the experiment with Snakemake, as far as the time goes.

    Args:
        made: below the experiment's results, or below the run's of a ``method`` with the first seed; otherwise
            the runs of all methods and seeds.
        runs_at_a_time: on one card.
    """
    raw = yaml.safe_load(options.experiment.read_text()) | {"name": "first-gpu"}
    raw["matrix"] = [block | {"seeds": [*range(1, seeds + 1)]} for block in raw["matrix"]]
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / "experiment.yaml"
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    runs = [run for run in load_experiment(file).runs() if method in (None, run.method)]
    targets = [f"runs/{run.path}/{made or 'summary.json'}" for run in runs] if method or not made else [made]
    command = [sys.executable, "-m", "snakemake", *(f"results/first-gpu/{target}" for target in targets)]
    # a call that was killed has left its lock
    command += ["--snakefile", ROOT / "Snakefile", "--directory", options.results, "--cores", "all", "--nolock"]
    command += ["--resources", f"gpu={runs_at_a_time}", *(["--dry-run"] if options.small else []), "--configfile", file]
    # a GPU that is named is not held, so that runs may share it
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": "0"} if runs_at_a_time > 1 else {})
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with _stacks(options.results / "stacks.txt"):
        status = subprocess.run(map(str, command), cwd=ROOT, env=environment | {"PATH": path}).returncode
    found: Result = {"status": status}
    for run in runs:
        files = Layout(options.results / "results" / "first-gpu").run_files(run)
        events = [*read_events(files.steps)]
        found[run.path] = {
            "phase_seconds": [event["phase_seconds"] for event in events],
            "host_memory_gb": [event["host_memory_gb"] for event in events],
            **{key: [event["metrics"].get(key) for event in events] for key in LOGGED},
            "validations": [event["avg_at_k"] for event in read_events(files.validations)],
        }
    return found


@contextmanager
def _stacks(file: Path, seconds: float = 200, pause: float = 4) -> Iterator[None]:
    """Write what servers and workers do in the first minutes, if py-spy is there: a first ``generate`` takes 20 s."""
    over = threading.Event()

    def watch() -> None:
        end = time.monotonic() + seconds
        while not over.wait(pause) and time.monotonic() < end:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess), file.open("a") as output:
                    if process.name().startswith(("sglang::", "ray::")):
                        print(time.time(), process.name(), file=output, flush=True)
                        subprocess.run(["py-spy", "dump", "--pid", str(process.pid)], stdout=output, stderr=output)

    if shutil.which("py-spy"):
        threading.Thread(target=watch, daemon=True).start()
    yield
    over.set()


# ---------------------------------------------------------------- what parts share


def device() -> str:
    """Where products are computed."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _seconds_of(function: Callable[[], object], times: int) -> float:
    """Mean of several calls, after one that does not count."""
    start = 0.0
    for i in range(times + 1):
        if i == 1:
            _synchronize()
            start = time.perf_counter()
        function()
    _synchronize()
    return (time.perf_counter() - start) / times


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _raw_experiment(name: str) -> Result:
    return yaml.safe_load((CONFIGS / "experiments" / f"{name}.yaml").read_text())


# ---------------------------------------------------------------- the parts, one after the other

PARTS: dict[str, tuple[Callable[..., Result], int]] = {
    "versions": (versions, 30),
    "tests": (tests, 180),
    "train srpo": (partial(workflow, method="srpo"), 270),
    "update qwen3-8b, 8 layers": (partial(update, name="qwen3-8b", layers=8, profiled=True), 90),
    "train grpo": (partial(workflow, method="grpo"), 270),
    "train sdpo": (partial(workflow, method="sdpo"), 270),
    "evaluate srpo": (partial(workflow, made="evaluation.json", method="srpo"), 130),
    "report": (partial(workflow, made="report.html"), 400),
    "seeds": (partial(workflow, seeds=3, runs_at_a_time=2), 570),
    "update qwen3-1.7b": (partial(update, name="qwen3-1.7b"), 75),
    "update qwen3-4b, 8 layers": (partial(update, name="qwen3-4b", layers=8), 60),
}
"""By name, what a part does and the seconds that it may take; the most wanted first. A report needs the gap, too."""

STOP_SECONDS = 25
"""How long a part that is told to stop may take: a trainer finishes its step and writes a checkpoint."""


def run_part(command: Sequence[str | Path], seconds: float, log: Path) -> Result:
    """Run a part's command, which writes its result to the path that follows it.

    Args:
        seconds: after these it is killed, with all that it started.
        log: where its output goes.

    Returns:
        ``seconds``, and either ``result`` or ``error``.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        path = Path(folder) / "result.json"
        process = subprocess.Popen([*command, path], stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            error = f"exit status {process.wait(max(seconds, 1))}"
        except subprocess.TimeoutExpired:
            error = f"killed after {seconds:.0f} s"
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = read_json(path) if path.exists() else {"error": f"{error}: {log.read_text()[-4000:]}"}
    return {"seconds": round(time.perf_counter() - start, 1), **found}


def compute(name: str, options: Options, path: Path) -> None:
    """Compute a part in this process and write its result, or its error."""
    try:
        found: Result = {"result": PARTS[name][0](options)}
    except BaseException as error:
        traceback.print_exc()
        found = {"error": "".join(traceback.format_exception(error, limit=-4))}
    write_json(path, found)


def main() -> None:
    """Run the parts and write what they found, after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all; {'; '.join(PARTS)}")
    parser.add_argument("--output", type=Path, default=Path("first-gpu.json"))
    parser.add_argument("--results", type=Path, default=Options.results, help="where the workflow works")
    parser.add_argument("--experiment", type=Path, default=Options.experiment, help="another, to rehearse on a CPU")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all parts")
    parser.add_argument("--small", action="store_true", help="tiny shapes, for a CPU")
    parser.add_argument("--compute", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"unknown part {', '.join(unknown)}; there is {'; '.join(PARTS)}")
    if given.compute:
        compute(given.parts[0], Options(given.results.absolute(), given.small, given.experiment), given.compute)
        return
    passed_on = ["--results", given.results, "--experiment", given.experiment, *(["--small"] if given.small else [])]
    end = time.monotonic() + 60 * given.minutes
    report: Result = {"card": torch.cuda.get_device_name() if torch.cuda.is_available() else None, "parts": {}}
    logs = given.output.with_suffix(".logs")
    logs.mkdir(parents=True, exist_ok=True)
    for name in given.parts or PARTS:
        left = end - time.monotonic()
        command = [sys.executable, __file__, name, *passed_on, "--compute"]
        log = logs / f"{name.replace(' ', '-').replace(',', '')}.txt"
        limit = PARTS[name][1] * (5 if given.small else 1)  # a busy CPU is slow
        found = run_part(command, min(limit, left), log) if left > 5 else {"error": "no time was left"}
        if given.results.exists():  # all but the weights
            large = shutil.ignore_patterns("models", "weights", "checkpoints", ".snakemake")
            shutil.copytree(given.results, logs / "workflow", ignore=large, dirs_exist_ok=True)
        report["parts"][name] = found
        write_json(given.output, report)
        shutil.make_archive(str(logs), "gztar", logs)  # one file to carry home
        print(f"{name}: {found.get('seconds', 0)} s; {_line(found)}", flush=True)


def _line(found: Result) -> str:
    """A part's outcome in a line."""
    if "error" in found:
        return f"FAILED: {found['error'].strip().splitlines()[-1]}"
    numbers = {key: value for key, value in found["result"].items() if isinstance(value, int | float | str)}
    return ", ".join(f"{key} {f'{value:.4g}' if isinstance(value, float) else value}" for key, value in numbers.items())


if __name__ == "__main__":
    main()
