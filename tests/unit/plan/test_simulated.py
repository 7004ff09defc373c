"""What seeds find, simulated, held against the report's own verdicts."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from board import reproductions
from scipy import stats

from srpo.analysis.results.contrasts import Arm, contrast
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.plan import text as plan_text
from srpo.plan.plan import make_plan
from srpo.plan.simulated import DRAWS, PUBLISHED_RUN_SDS, Setting


def scores(rng, setting: Setting, lead: float, binomial: bool) -> list[list[Arm]]:
    """Scores of two methods in percent; binomial ones of base probabilities that are often near 0 and 1."""
    strata = []
    for count in setting.questions:
        arms, base = [], 100 * rng.beta(0.8, 0.4, count)
        difference = lead + setting.question_sd * rng.standard_normal(count)
        for sign in (1, -1):
            runs = setting.run_sd * rng.standard_normal((setting.seeds, 1))
            mean = np.broadcast_to(base + sign * difference / 2 + runs, (setting.seeds, count))
            if binomial:
                values = 100 * rng.binomial(setting.samples, np.clip(mean / 100, 0, 1)) / setting.samples
            else:
                values = mean + 50 / math.sqrt(setting.samples) * rng.standard_normal(mean.shape)
            arms.append(Arm(sign * values))
        strata.append(arms)
    return strata


def found(setting: Setting, lead: float, binomial: bool, draws: int) -> float:
    """How often the report's interval lies above 0."""
    rng = np.random.default_rng(1)
    return fmean(contrast(scores(rng, setting, lead, binomial)).low > 0 for _ in range(draws))


@pytest.mark.parametrize(
    ("setting", "lead"),
    [
        (Setting((210, 50), 16, 3, 3.4, 20.0), 7.4),
        (Setting((210, 50), 16, 2, 2.0, 10.0), 7.4),
        (Setting((50,), 16, 5, 3.4, 20.0), 10.3),
        (Setting((210, 94, 50), 4, 4, 2.0, 10.0), 3.0),
        (Setting((50,), 16, 3, 2.0, 20.0), 0.0),
    ],
)
def test_the_power_is_that_of_the_reports_verdicts(setting: Setting, lead: float) -> None:
    draws, power = 300, setting.power(lead)
    error = math.sqrt(power * (1 - power) * (1 / draws + 1 / DRAWS))
    assert found(setting, lead, binomial=False, draws=draws) == pytest.approx(power, abs=3 * error + 0.005)


def test_with_real_samples_the_power_is_no_less() -> None:
    """Of samples the upper bound of noise is assumed, and a difference ends at 0 and 100 %."""
    setting = Setting((210, 50), 16, 3, 2.0, 10.0)
    power = setting.power(5.0)
    assert power - 0.05 < found(setting, 5.0, binomial=True, draws=300) < power + 0.2


def test_what_a_setting_resolves_and_finds() -> None:
    """Without runs and samples an interval is Student's t over questions."""
    setting = Setting((50,), 10**9, 2, 1e-9, 20.0)
    error, edge = 20 / math.sqrt(50), stats.t.ppf(0.975, 49)
    assert setting.resolves == pytest.approx(edge * error, rel=0.02)
    assert setting.power(8.0) == pytest.approx(stats.nct.sf(edge, 49, 8.0 / error), abs=0.04)
    assert setting.power(setting.finds) == pytest.approx(0.8, abs=0.001)


def test_the_standard_deviations_of_others_are_those_of_the_file() -> None:
    rows = reproductions()
    tasd = rows[(rows["source"] == "TASD") & (rows["when"] == "best") & rows["run"].str.startswith("seed")]
    pairs = tasd.groupby(["method", "benchmark"])["score"]
    assert {*pairs.size()} == {2}
    pooled = math.sqrt(fmean(pairs.var()))
    sdcl = rows[
        (rows["source"] == "SDCL") & (rows["method"] == "srpo") & (rows["benchmark"] == "chemistry")
        & (rows["when"] == "best") & (rows["paper_method"] == "yes")
    ]["score"]  # fmt: skip
    assert {"TASD": round(pooled, 1), "SDCL": round(sdcl.std(), 1)} == PUBLISHED_RUN_SDS


def test_the_plan_of_an_experiment_on_gpus_says_what_its_seeds_find() -> None:
    arms = load_experiment(experiment_file("paper-arms"))
    questions = tuple(benchmark.questions("test") for benchmark in arms.benchmarks.values())
    least, most = (Setting(questions, arms.evaluation.rollouts, 3, *pair) for pair in ((2.0, 10.0), (3.4, 20.0)))
    text = plan_text.render(make_plan(arms, gpu="h100"))
    resolved = f"3 seeds resolve ±{least.resolves:.1f} to {most.resolves:.1f} points between two methods"
    assert f"{resolved}, and find a true difference of {least.finds:.1f} to {most.finds:.1f} points" in text
    assert "2.3 (TASD) and 3.4 (SDCL)" in text
    (block,) = arms.matrix
    one = arms.model_copy(update={"matrix": [block.model_copy(update={"seeds": [1]})]})
    said = plan_text.render(make_plan(one, gpu="h100"))
    assert "one seed resolves nothing; 2 seeds resolve ±" in said
