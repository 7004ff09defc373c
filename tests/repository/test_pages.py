"""What the pages say of configurations, environments and plans is computed from these."""

from __future__ import annotations

import re
from dataclasses import astuple

import board
import pages
import pandas as pd
import paper_scale
import yaml
from paths import ROOT
from scipy.stats import binomtest

from srpo.experiment import memory
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.experiment.config import ModelledClock
from srpo.plan.plan import make_plan

PAGES = {path.name: " ".join(path.read_text().split()) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}


def test_tables_from_configuration_are_current() -> None:
    assert pages.main(["--check"]) == paper_scale.main(["--check"]) == 0


def assert_said(page: str, *sentences: str) -> None:
    assert not [sentence for sentence in sentences if sentence not in PAGES[page]], page


def rate(value: float) -> str:
    """As pages write a rate: 2e-5, 1e10."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+", "e")


def test_sentences_have_the_numbers_of_experiments() -> None:
    names = ("paper", "paper-in-small", "registered", "registered-doses", "ablations", "smoke", "real-cpu")
    paper, small, registered, doses, ablations, smoke, real = (load_experiment(experiment_file(n)) for n in names)
    s, large = (memory.parameters(memory.shape_of(model)) / 1e6 for model in small.models.values())
    budgets = [f"{seconds:g}" for seconds in registered.training.budget_seconds.values()]
    own = load_experiment(ROOT / "examples" / "own-questions" / "experiment.yaml")
    own_needs, real_needs = (memory.process_memory_mb(*e.models.values()) / 1000 for e in (own, real))
    checkpoint = memory.checkpoint_bytes(memory.shape_of(paper.models["qwen3-8b"]), paper.execution, True)
    runs, dose_runs = len(paper.runs()), len(doses.runs())
    assert runs == len(small.runs())
    assert_said(
        "README.md",
        f"{s:.2f} and {large:.2f} M parameters",
        f"trains the paper's {runs} runs with toys",
        f"Each dose has {dose_runs // len(doses.models)} runs: ",
    )
    assert_said(
        "results.md",
        f"{s:.2f} million (Miniature-S) or {large:.2f} million parameters (Miniature-L)",
        f"The budgets are {', '.join(budgets[:-1])} and {budgets[-1]} seconds of the clock",
        f"repeats the paper's {runs} runs with toys",
        f"A validation has {small.training.validation.rollouts} answers per question",
        f"(seeds {doses.runs()[0].seed} to {doses.runs()[-1].seed}) on five benchmarks",
        f"computes {make_plan(doses).device_hours:.1f} core-hours for the {dose_runs} runs",
        f"each out of {dose_runs // len(doses.models) // len(doses.methods)}.",
        f"- `registered`, {len(registered.runs()) // len(registered.methods)} runs of each method:",
        f"- `ablations`, {len(ablations.runs()) // len(ablations.methods)} runs of each",
        f"(seeds {ablations.runs()[0].seed} to {ablations.runs()[-1].seed}), on three benchmarks",
    )
    assert_said(
        "gpus.md",
        f"in {runs} runs of ten hours",
        f"a checkpoint of Qwen3-8B takes {sum(astuple(checkpoint)) / 1e9:.0f} GB",
    )
    assert_said("running.md", f"{2 * real_needs:.0f} GB of memory", f"{100 * (1 - 0.99**8):.0f} % for p = .01")
    assert_said("extending.md", f"{own_needs:.1f} GB of memory")
    assert_said("tutorial.md", f"is {smoke.training.budget_seconds['1h']:g} seconds of")


def test_the_formulas_have_the_papers_settings() -> None:
    methods, clock = load_experiment(experiment_file("paper")).methods, ModelledClock(kind="modelled")
    srpo = methods["srpo"]
    assert_said(
        "method.md",
        f"1 - {srpo.clip_ratio_low}, 1 + {srpo.clip_ratio_high}) A)`, at most `-{srpo.clip_ratio_c:g} A`",
        f"`min(pi_old / pi_rollout, {srpo.rollout_is_threshold:g})`",
        f"`min(pi / pi_old, {srpo.distillation_is_clip:g})`",
        f"alpha {srpo.distillation_alpha} (alpha 0",
        f"the student's {srpo.distillation_topk} most probable tokens",
        f"({srpo.teacher_update_rate}, as in the paper)",
        f"`A_t = {srpo.mix_lambda} A + {1 - srpo.mix_lambda:.1f} (log q",
        f"Beta is {srpo.entropy_beta:g}.",
        f"clip(w_t, {1 - srpo.rlsd_clip}, {1 + srpo.rlsd_clip}))`",
        f"lambda {srpo.rlsd_lambda}. RLSD's",
        f"{rate(clock.decode_flops_per_second)} FLOP/s for decoding, {rate(clock.dense_flops_per_second)} for the rest",
    )


def test_sentences_have_the_numbers_of_searches_simulations_and_locks() -> None:
    toys, real = (yaml.safe_load((ROOT / f"configs/tuned/{name}.yaml").read_text()) for name in ("miniature", "real"))
    best = {method: rate(values["learning_rate"]) for method, values in real["methods"].items()}
    tried = sorted({trial["values"]["mini_batch_questions"] for trial in toys["trials"]})
    (chosen,) = {values["mini_batch_questions"] for values in toys["methods"].values()}
    coverage = pd.read_csv(ROOT / "bench" / "coverage.csv")
    (experiments,), wrong = {*coverage["experiments"]}, coverage["false_family"].max()
    high = binomtest(round(wrong / 100 * experiments), int(experiments)).proportion_ci().high
    assert_said(
        "results.md",
        f"chose {best['grpo']} for GRPO, {best['sdpo']} (the lowest tried) for SDPO and {best['srpo']} (the highest)",
        "tried {} and {} questions per update".format(*tried),
        f"For every method {chosen} questions were best",
        f"simulations of {experiments} experiments",
        f"The 95 % interval of {wrong} % ends at {100 * high:.1f} %",
    )
    locks = "\n".join((ROOT / f"envs/{name}.txt").read_text() for name in ("peers", "paper"))
    locked = dict(re.findall(r"(?m)^(\w+)==(\S+)", locks))
    assert_said("gpus.md", f"SGLang {locked['sglang']}**", f"torch {locked['torch'].removesuffix('.0')} and CUDA")
    assert_said("verl.md", f"TRL {locked['trl'].removesuffix('.0')} (", f"verl {locked['verl']}'s classes")
    verpo = board.reproductions().query("source == 'VERPO' and method in ('grpo', 'srpo')")
    settings = {(rate(row.learning_rate), int(row.updates_per_step)) for row in verpo.itertuples()}
    assert_said(
        "reproductions.md", *("methods have learning rate {} and {} updates per step".format(*s) for s in settings)
    )
