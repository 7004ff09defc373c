"""`srpo plan --decide`: matrices for a budget, held against the plan and the power of the experiments they become."""

from __future__ import annotations

import math
import re
from statistics import fmean

import pytest
import yaml
from paths import ROOT
from scipy import stats

from srpo import cli
from srpo.analysis.results.power import assumed, power, sample_noise
from srpo.analysis.results.reproductions import reproductions
from srpo.errors import SrpoError
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.plan import decide, plan
from srpo.plan import text as plan_text
from srpo.plan.decide_text import decision, matrix_yaml

CALIBRATED = load_experiment(experiment_file("paper-calibrated"))
CLAIM = ("srpo", "grpo_at_srpo_settings")


@pytest.fixture(scope="module")
def two():
    return decide.contrasted(CALIBRATED, CLAIM)


@pytest.fixture(scope="module")
def planned(two):
    return plan.make_plan(two, gpu="h100")


def pasted(design: decide.Design):
    """The experiment that a proposal becomes in a user's file."""
    raw = {"name": "mine", "title": "Mine", "extends": "paper-calibrated"}
    return load_experiment(raw | yaml.safe_load(matrix_yaml(design.block)))


@pytest.mark.parametrize("hours", [300, 700, 2000])
def test_a_matrix_takes_what_its_plan_says_and_no_more_fits(two, planned, hours: float) -> None:
    for options in decide.designs(two, planned, hours).values():
        for each in options:
            price = plan.make_plan(pasted(each), gpu="h100").device_hours
            assert price == pytest.approx(each.gpu_hours)
            assert price <= hours
            seeds = [*each.block.seeds, len(each.block.seeds) + 1]
            more = pasted(
                decide.Design(each.block.model_copy(update={"seeds": seeds}), 0, None, each.expected, each.cautious)
            )
            assert plan.make_plan(more, gpu="h100").device_hours > hours


def test_what_a_matrix_resolves_is_what_its_plan_says(two, planned) -> None:
    for options in decide.designs(two, planned, 2000).values():
        for each in options:
            said = plan_text.render(plan.make_plan(pasted(each), gpu="h100"))
            seeds = len(each.block.seeds)
            assert f": {seeds} seeds would resolve ±{each.expected.resolves:.1f} points" in said


def test_resolution_and_power_by_hand(two, planned) -> None:
    """Two benchmarks, three seeds: the difference of two means over six runs each."""
    (best, *_) = decide.designs(two, planned, 700)["qwen3-4b"]
    assert best.block.benchmarks == ["sdpo/chemistry", "sdpo/biology"]
    assert best.block.seeds == [1, 2, 3]
    noise = 100**2 * 0.25 / (fmean([210, 50]) * 16)
    dof = 4 * (3 - 1)
    edge = stats.t.ppf(0.975, dof)
    for sd, outcome in ((2.0, best.expected), (3.4, best.cautious)):
        error = math.sqrt(2 * (sd**2 + noise) / 6)
        assert outcome.resolves == pytest.approx(edge * error)
        assert outcome.chance == pytest.approx(stats.nct.sf(edge, dof, best.lead / error))
        assert stats.nct.sf(edge, dof, outcome.finds / error) == pytest.approx(0.8)
    assert best.lead == pytest.approx(((82.7 - 78.3) + (65.8 - 55.5)) / 2)  # table 1, 10 hours


def test_the_widest_matrix_with_enough_power_is_proposed(two, planned) -> None:
    options = decide.designs(two, planned, 1000)["qwen3-4b"]
    assert sorted(len(each.block.benchmarks) for each in options) == [1, 2, 3, 4]
    enough = [each for each in options if each.cautious.chance >= 0.8]
    assert 1 < len(enough) < len(options)
    assert options[0] == max(enough, key=lambda each: len(each.block.benchmarks))
    rest = [each.cautious.chance for each in options[len(enough) :]]
    assert rest == sorted(rest, reverse=True)
    assert max(rest) < 0.8


def test_no_set_of_as_many_benchmarks_is_better(two, planned) -> None:
    """By brute force: with two benchmarks and 700 hours."""
    prices = {}
    for name in two.benchmarks:
        block = two.matrix[0].model_copy(update={"models": ["qwen3-4b"], "benchmarks": [f"sdpo/{name}"]})
        alone = plan.make_plan(two.model_copy(update={"matrix": [block]}), gpu="h100")
        prices[name] = 8 * alone.base_seconds[0] / 3600, 8 * sum(run.total_seconds for run in alone.runs) / 3600
    best = next(d for d in decide.designs(two, planned, 700)["qwen3-4b"] if len(d.block.benchmarks) == 2)
    affordable = 0
    for first in prices:
        for second in prices:
            once, seed = (prices[first][i] + prices[second][i] for i in (0, 1))
            if first < second and once + 2 * seed <= 700:
                names = [f"sdpo/{first}", f"sdpo/{second}"]
                seeds = [*range(1, int((700 - once) / seed) + 1)]
                block = best.block.model_copy(update={"benchmarks": names, "seeds": seeds})
                other = decide._design(two, block, 0, decide._published(two))
                assert other.worth <= best.worth
                affordable += 1
    assert affordable > 2


def test_without_published_scores_the_smallest_difference_counts() -> None:
    frozen = decide.contrasted(CALIBRATED, ("srpo", "srpo_frozen_teacher"))
    options = decide.designs(frozen, plan.make_plan(frozen, gpu="h100"), 1000)["qwen3-8b"]
    assert {each.lead for each in options} == {None}
    finds = [each.cautious.finds for each in options]
    assert finds == sorted(finds)
    text = decision(CALIBRATED, "srpo > srpo_frozen_teacher", 1000, gpu="h100")
    assert "unknown" in text
    assert "The paper has no scores of both methods." in text


def test_what_is_printed_can_be_pasted() -> None:
    text = decision(CALIBRATED, "srpo > grpo", 700, gpu="h100")
    blocks = re.findall(r"^matrix:\n(?:  .*\n)+", text, re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        raw = {"name": "mine", "title": "Mine", "extends": "paper-calibrated"}
        assert len(load_experiment(raw | yaml.safe_load(block)).models) == 1
    settings = "learning_rate (5e-06 and 1e-06), mini_batch_questions (32 and 8) and steps (474 and 393)"
    assert f"srpo and grpo differ in {settings}, too" in text
    assert "2.0 points are assumed" in text
    assert "2.3 (TASD) and 3.4 (SDCL)" in text
    assert "card: h100, 80 GB" in text.splitlines()[0]


@pytest.mark.parametrize(("hours", "few"), [(300, {"qwen3-4b", "qwen3-8b"}), (700, {"qwen3-8b"}), (2700, set())])
def test_a_proposal_says_if_the_hours_are_too_few(two, planned, hours: float, few: set[str]) -> None:
    """Less than 80 % power at the larger SD, e.g. 44 % for Qwen3-8B in 700 hours."""
    text = decision(CALIBRATED, " > ".join(CLAIM), hours, gpu="h100")
    said = dict(re.findall(r"^Proposed with ([\w-]+), .*larger SD\)(.*):$", text, re.MULTILINE))
    for model, (best, *_) in decide.designs(two, planned, hours).items():
        missed = 10 * (1 - best.cautious.chance)
        sentence = f"at the larger SD it misses the paper's lead in about {missed:.0f} of 10 cases"
        assert said[model] == (f". These hours are too few: {sentence}" if model in few else "")


def test_no_hours_find_a_lead_that_the_paper_does_not_have() -> None:
    text = decision(CALIBRATED, "grpo > srpo", 700, gpu="h100")
    assert text.count("at the larger SD). The paper has no such lead:\n") == 2
    assert "too few" not in text


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
    assert {"TASD": round(pooled, 1), "SDCL": round(sdcl.std(), 1)} == decide.PUBLISHED_RUN_SDS


def test_methods_of_the_experiment_keep_its_settings() -> None:
    small = load_experiment(experiment_file("one-gpu"))
    two = decide.contrasted(small, ("srpo", "grpo"))
    assert two.methods == small.methods  # with the overrides of one-gpu
    assert [(run.benchmark, run.method) for run in two.runs()] == [
        (benchmark, method) for benchmark in ("spell_backward", "physics") for method in ("srpo", "grpo")
    ]
    ablation = decide.contrasted(small, ("srpo", "srpo_without_weighting")).methods["srpo_without_weighting"]
    assert ablation.mini_batch_questions == small.methods["srpo"].mini_batch_questions  # it extends srpo


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decide", "srpo > grpo"], "--decide and --gpu-hours belong together"),
        (["--gpu-hours", "500"], "--decide and --gpu-hours belong together"),
        (["--decide", "srpo, grpo", "--gpu-hours", "500"], "--decide 'srpo, grpo': give two methods"),
        (["--decide", "srpo > srpo", "--gpu-hours", "500"], "--decide 'srpo > srpo': give two methods"),
        (["--decide", "srpo > ppo", "--gpu-hours", "500"], "--decide: unknown method 'ppo'; there is advantage_mix, "),
        (["--decide", "srpo > grpo", "--gpu-hours", "0"], "--gpu-hours 0: above 0"),
        (["--decide", "srpo > grpo", "--gpu-hours", "nan"], "--gpu-hours nan: above 0"),
        (["--decide", "srpo > grpo", "--gpu-hours", "100"], "--gpu-hours 100: two seeds of both methods take "),
        (["--decide", "srpo > grpo", "--gpu-hours", "100", "--gpu", "gtx480"], "--gpu gtx480: unknown"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "paper-calibrated", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"srpo: error: {message}")
    assert printed.err.count("\n") == 1


def test_an_experiment_on_cores_is_refused() -> None:
    with pytest.raises(SrpoError, match=r"^--decide: embedded computes on cores; give an experiment on GPUs"):
        decision(load_experiment(experiment_file("embedded")), "srpo > grpo", 100)


def test_paper_decisive_is_the_proposal_of_the_page(two, planned) -> None:
    """The page's example proposes the matrix of the experiment, whose methods take SRPO's steps."""
    decisive = load_experiment(experiment_file("paper-decisive"))
    (best, *_) = decide.designs(two, planned, 700)["qwen3-4b"]
    assert decisive.matrix == [best.block]
    controls = load_experiment(experiment_file("paper-controls"))
    assert decisive.training == controls.training
    assert decisive.execution == controls.execution
    made = plan.make_plan(decisive, gpu="h100")
    assert {tuple(run.steps.values()) for run in made.runs} == {(43, 229, 474)}


def test_what_500_hours_buy_is_as_the_page_says() -> None:
    page = " ".join((ROOT / "docs" / "paper-scale.md").read_text().split())
    command = 'srpo plan paper-decisive --gpu h100 --decide "srpo > grpo_at_srpo_settings" --gpu-hours 500\n'
    assert command in (ROOT / "README.md").read_text()
    decisive = decide.contrasted(load_experiment(experiment_file("paper-decisive")), CLAIM)
    options = decide.designs(decisive, plan.make_plan(decisive, gpu="h100"), 500)["qwen3-4b"]
    assert [each.block.benchmarks for each in options] == [["sdpo/biology"], ["sdpo/chemistry", "sdpo/biology"]]
    assert [len(each.block.seeds) for each in options] == [5, 2]
    one, two = options
    assert f"with a power of {one.cautious.chance:.0%}, the other with {two.cautious.chance:.0%};" in page
    assert f"| {one.gpu_hours:.0f} | `paper-decisive` with `benchmarks: [sdpo/biology]` and five seeds |" in page
    resolved = f"five seeds resolve {one.expected.resolves:.1f} points"
    assert f"{resolved}; the published lead there is {one.lead:.1f} |" in page
    assert f"| {two.gpu_hours:.0f} | `paper-decisive` with `seeds: [1, 2]` |" in page
    assert f"but two resolve {two.expected.resolves:.1f} points |" in page

    verpo = reproductions().query("source == 'VERPO' and model == 'Qwen3-4B'")
    scores = verpo.set_index(["method", "benchmark"])["score"].astype(float)
    ahead = {name: scores["srpo", name] - scores["grpo", name] for name in ("chemistry", "biology")}
    leads = [ahead["biology"], fmean(ahead.values())]
    questions = [decisive.benchmarks["biology"].questions("test"), fmean([210, 50])]
    chances = [
        power(assumed(3.4, len(each.block.benchmarks), sample_noise(count, 16)), lead, len(each.block.seeds))
        for each, count, lead in zip(options, questions, leads, strict=True)
    ]
    assert "{:.1f} and {:.1f} points, it is {:.0%} and {:.0%}.".format(*leads, *chances) in page
    once = plan.make_plan(decisive, gpu="h100").device_hours  # a seed and the untrained models
    three = plan.make_plan(load_experiment(experiment_file("paper-decisive")), gpu="h100").device_hours
    assert f"So if {(three - once) / 2:.0f} more hours may follow" in page
