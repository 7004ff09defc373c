"""Step seconds from data sheets: near the paper's where the paper measured, and larger where there is more to do."""

import gzip
import json
import math
from statistics import fmean, median

import pandas as pd
import pytest
from paths import ROOT

from srpo.experiment import memory
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.plan import gpus, plan
from srpo.plan.gpus import GPUS, Assumed, card_seconds

SMALL = [("one-gpu", "a10g"), ("one-gpu-48gb", "l40s"), ("one-node-small", "l40s"), ("one-node-small", "h100")]

H100 = pd.read_csv(ROOT / "bench" / "h100" / "updates.csv")

PAPER_SECONDS = {"grpo": 91.5, "sdpo": 83.7, "srpo": 75.8}
"""Figure 4b: Qwen3-8B on 8 H20, mean seconds a step up to 10 hours."""


def seconds(
    name="paper", gpu="h20", model="qwen3-8b", method="srpo", training=(), execution=(), **assumed
) -> tuple[float, float]:
    experiment = load_experiment(experiment_file(name))
    return card_seconds(
        GPUS[gpu],
        memory.shape_of(experiment.models[model]),
        experiment.training.model_copy(update=dict(training)),
        experiment.execution.model_copy(update=dict(execution)),
        experiment.methods[method],
        Assumed(**assumed),
    )


@pytest.mark.parametrize(("method", "measured"), PAPER_SECONDS.items())
def test_the_papers_seconds_are_met_within_a_sixth(method: str, measured: float) -> None:
    assert sum(seconds(method=method)) == pytest.approx(measured, rel=1 / 6)


def test_prompts_are_as_long_as_measured() -> None:
    """Mean over the benchmarks of the medians that Qwen3's own tokenizer gave: train, of tool use test."""
    medians = {"chemistry": 266, "physics": 267, "biology": 284, "materials": 415, "tooluse": 660.5}
    assert math.ceil(fmean(medians.values())) == gpus.USUAL.prompt  # 378.5


def test_responses_are_so_long_that_the_papers_card_meets_figure_4b() -> None:
    """The one length that is fitted: with it the mean ratio over the three methods is 1."""
    ratios = [sum(seconds(method=method)) / measured for method, measured in PAPER_SECONDS.items()]
    assert fmean(ratios) == pytest.approx(1, abs=0.002)


def test_shorter_responses_and_slower_training() -> None:
    """Generation of a small model follows the longest response, its tokens one after the other; the rest the mean."""
    base = seconds("paper", "h100", "qwen3-4b")
    assert base[0] == pytest.approx(4096 * 0.006)
    assert seconds("paper", "h100", "qwen3-4b", longest=2048) == (pytest.approx(base[0] / 2), base[1])
    experiment = load_experiment(experiment_file("paper"))
    settings = experiment.training, experiment.execution, experiment.methods["srpo"]
    shape = memory.shape_of(experiment.models["qwen3-4b"])
    slow = card_seconds(GPUS["h100"], shape, *settings, Assumed(training=0.35))
    assert slow == (base[0], pytest.approx(6 + (base[1] - 6) / 0.35))


def test_shares_and_memory_are_those_of_the_h100() -> None:
    shared = H100[H100["rows"] == "shared prompts"]["share_of_peak"]
    assert sorted(shared.round(2)) == [gpus.SLOW_SHARE, gpus.USUAL_SHARE, gpus.FAST_SHARE]
    too_much = H100["planned_gb"] / H100["peak_gb"] - 1  # what the plan's text says
    assert too_much.min() == pytest.approx(0.15, abs=0.01)
    assert too_much.max() == pytest.approx(0.30, abs=0.01)


def test_the_pages_have_the_numbers_of_the_h100s_files() -> None:
    folder, readme = ROOT / "bench" / "h100", (ROOT / "README.md").read_text()
    results, gpus_page = (" ".join((ROOT / "docs" / name).read_text().split()) for name in ("results.md", "gpus.md"))
    untrained = json.loads((folder / "untrained-evaluation.json").read_text())["budgets"]["base"]["avg_at_k"]
    trained = json.loads((folder / "validations.jsonl").read_text().splitlines()[-1])["avg_at_k"]
    assert f"from {100 * untrained:.1f} to {100 * trained:.1f} % right" in readme
    assert f"rose from {100 * untrained:.1f} % to {100 * trained:.1f} %" in gpus_page
    steps = [json.loads(line) for line in gzip.decompress((folder / "steps.jsonl.gz").read_bytes()).splitlines()]
    assert f"{median(step['step_seconds'] for step in steps):.1f} s per step (median)" in gpus_page
    assert f"In step 39, {100 * steps[-1]['metrics']['response_length/truncated_fraction']:.0f} % of" in gpus_page
    for row in H100[H100["rows"] == "shared prompts"].itertuples():
        assert f"| {row.tflops:.0f} | {100 * row.share_of_peak:.0f} % | {row.peak_gb} | {row.planned_gb} |" in gpus_page
    large = H100[H100["model"] == "qwen3-8b"].set_index("rows").filter(like="_seconds").sum(axis=1)
    packed, shared = large[["packed", "shared prompts"]]
    assert f"took {packed:.2f} s, with shared prompts {shared:.2f} s." in (folder / "README.md").read_text()
    assert f"at most {pd.read_csv(ROOT / 'bench' / 'coverage.csv')['false_family'].max()} % of experiments" in results


def test_the_one_published_figure_of_another_card() -> None:
    """SDPO of Qwen3-4B on 8 H200 took 45 to 72 s a step with its validations (jungseongryong/NEW)."""
    matrix = [{"models": ["qwen3-4b"], "benchmarks": ["sdpo/chemistry", "sdpo/tooluse"], "methods": ["sdpo"]}]
    experiment = load_experiment({"name": "h200", "title": "H200", "extends": "paper", "matrix": matrix})
    found = []
    for run in plan.make_plan(experiment, gpu="h200").runs:
        parts = ("generation", "log-probs, teacher, update", "validation")
        found.append(sum(run.seconds[part] for part in parts) / run.steps["10h"])
    assert all(45 < each < 72 for each in found)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"training": {"questions_per_batch": 64}}, (True, True)),
        ({"training": {"max_response_length": 2048}}, (False, False)),
        ({"model": "qwen3-4b"}, (False, False)),
        ({"method": "sdpo"}, (None, True)),
        ({"execution": {"gradient_checkpointing": False}}, (None, False)),
        ({"execution": {"ranks": 4}}, (True, True)),
        ({"gpu": "h100"}, (True, False)),  # faster arithmetic, slower memory
    ],
)
def test_what_makes_a_step_longer_or_shorter(more: dict, part: tuple) -> None:
    """True: longer; False: not longer; None: the same, of generation and of the rest."""
    for before, after, longer in zip(seconds(), seconds(**more), part, strict=True):
        assert after == before if longer is None else (after > before) == longer


def test_a_small_model_cannot_generate_faster_than_a_token_takes() -> None:
    generation, _ = seconds("one-gpu", "h200", "qwen3-0.6b", training={"questions_per_batch": 1}.items())
    assert generation == pytest.approx(1024 * 0.006)


def page_row(name: str, card: str) -> str:
    """What docs/gpus.md says of an experiment on a card."""
    experiment = load_experiment(experiment_file(name))
    training, execution, gpu = experiment.training, experiment.execution, GPUS[card]
    ((model, definition),) = experiment.models.items()
    shape = memory.shape_of(definition)
    update = sum(memory.update_memory(shape, execution, training).values())
    generation = sum(memory.rollout_memory(shape, execution, gpu.memory).values())
    assert max(update, generation) < gpu.memory
    step = sum(seconds(name, card, model))
    steps = int(max(training.budget_seconds.values()) // step)
    title = f"{execution.ranks} x {card}, {gpu.memory / 1e9:.0f} GB"
    return f"| `{name}` | {title} | {update / 1e9:.1f} | {generation / 1e9:.1f} | {step:.0f} | {steps} |"


@pytest.mark.parametrize(("name", "card"), SMALL)
def test_small_experiments_fit_and_the_page_has_their_numbers(name: str, card: str) -> None:
    assert page_row(name, card) in (ROOT / "docs" / "gpus.md").read_text()
