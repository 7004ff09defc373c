"""What pages and folders of published experiments say: in one file, so that each folder is read once."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import doses
import numpy as np
import pandas as pd
import pytest
import specifications
import yaml
from paths import ROOT
from scipy.stats import ttest_1samp

import published
from srpo.analysis.gap import SENTENCES
from srpo.analysis.published import check_checksums
from srpo.analysis.results import Results
from srpo.analysis.statistics.deciding import ALPHA, holm
from srpo.analysis.verdicts import findings

INTERVAL = re.compile(r"\S+(?: \S+){0,3} \[[-+−]?[\d.]+, [-+−]?[\d.]+\](?!\()")
"""An interval and what stands before it."""

TUNED = yaml.safe_load((ROOT / "configs" / "tuned" / "miniature.yaml").read_text())
FOLDER = ROOT / "published" / "registered-doses"
LAST = 6.0  # seconds of the training clock
METHODS = {"SRPO - GRPO": ("srpo", "grpo"), "SRPO - SDPO": ("srpo", "sdpo"), "GRPO - SDPO": ("grpo", "sdpo")}


def typed(text: str) -> list[str]:
    """Intervals that stand in no block, no code and no comment of a page."""
    outside = re.sub(r"(?ms)^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->", "", published.BLOCK.sub("", text))
    return [found[0] for found in INTERVAL.finditer(" ".join(outside.split()))]


# ---------------------------------------------------------------- this repository


def test_pages_say_what_the_files_say() -> None:
    assert published.main(["--check"]) == 0


@pytest.mark.parametrize("page", published.PAGES, ids=lambda page: page.name)
def test_every_interval_has_a_file(page: Path) -> None:
    assert not typed(page.read_text())


def test_an_interval_is_found() -> None:
    assert typed("ends 4.5 points above\nGRPO [2.5, 6.4].") == ["4.5 points above GRPO [2.5, 6.4]"]
    assert not typed("in `4.5 [2.5, 6.4]`, <!-- srpo estimate tiny a -->4.5 [2.5, 6.4]<!-- end --> and [1, 2](link)")


@pytest.mark.parametrize("folder", sorted((ROOT / "published").glob("*/")), ids=lambda folder: folder.name)
def test_published_experiments_are_whole_and_can_be_trained_again(folder: Path) -> None:
    """Their files have their checksums, and their commits are this repository's, without local changes."""
    check_checksums(folder)
    provenance = yaml.safe_load((folder / "provenance.yaml").read_text())
    commits = provenance["commit"]
    for commit in commits if isinstance(commits, list) else [commits]:
        assert re.fullmatch("[0-9a-f]{40}", commit)
    assert provenance["experiment"] == folder.name
    assert {*provenance["sha256"]} == {path.name for path in folder.iterdir()}


# ---------------------------------------------------------------- the doses


def pairs(gaps: list[float], of_doses: list[float], differences: list[float], seeds: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"gap": gaps, "dose": of_doses, "difference": differences, "seed": seeds})


def test_the_gap_tells_what_has_its_order() -> None:
    """The ranks of the gap are those of the difference; of the dose, 1.5 3.5 1.5 3.5 with 1 3 2 4, it is .894."""
    found = doses.told(pairs([-1, 5, 2, 9], [0, 10, 0, 10], [10, 30, 20, 40], [1, 1, 2, 2]), draws=10)
    assert found[:3] == pytest.approx((1, 2 / np.sqrt(5), 1 - 2 / np.sqrt(5)))


def test_all_pairs_of_a_seed_are_drawn_together() -> None:
    """Of two seeds a draw has one twice or both, so the interval's ends are those of one seed alone."""
    one, other = ([1, 2, 3], [0, 10, 60], [1, 2, 3]), ([3, 1, 2], [0, 10, 60], [1, 2, 3])
    found = doses.told(pairs(*(a + b for a, b in zip(one, other, strict=True)), [1, 1, 1, 2, 2, 2]), draws=200)
    assert (found.low, found.high) == pytest.approx((-0.5 - 1, 0))


def test_signs_are_those_of_the_gap_and_of_the_mean_of_a_dose() -> None:
    found = pairs([1, -1, 2, -3], [0, 0, 10, 10], [-2, -1, 5, -1], [1, 2, 1, 2])
    assert doses.signs(found) == (3, 3, 4)


@pytest.fixture(scope="module")
def read() -> Results:
    return published.results_of("registered-doses")


def cross_fitted(scores: np.ndarray, rng: np.random.Generator) -> float:
    """Percent: half of the questions selects a validation, the other half measures it; a mean of 2000 halves."""
    size = scores.shape[1]
    half = rng.random((1000, size)).argsort(axis=1) < size // 2
    chosen_by = np.concatenate([half, ~half]).T
    chosen = (scores @ chosen_by).argmax(axis=0)
    return 100 * float(((scores @ ~chosen_by)[chosen, range(2000)] / (~chosen_by).sum(axis=0)).mean())


def test_the_verdicts_are_those_of_a_program_of_its_own(read: Results) -> None:
    """From the logs: each run's score, the mean over benchmarks of each base model, Student's t of eight, and Holm."""
    logs = defaultdict(list)
    for line in gzip.decompress((FOLDER / "validations.jsonl.gz").read_bytes()).splitlines():
        event = json.loads(line)
        if event["clock"] <= LAST:
            logs[event["model"], event["benchmark"], event["method"], event["seed"]].append(event["question_scores"])
    rng = np.random.default_rng(1)
    scores = pd.Series({run: cross_fitted(np.array(log), rng) for run, log in logs.items()})
    means = scores.groupby(level=[0, 2, 3]).mean()
    assert (scores.groupby(level=[0, 2, 3]).size() == 5).all()
    reported = doses.by_dose(read).set_index(["model", "difference"])
    for model in reported.index.unique("model"):
        differences = {name: means[model][one] - means[model][other] for name, (one, other) in METHODS.items()}
        assert all(len(of) == 8 for of in differences.values())
        p_values = sorted((ttest_1samp(of, 0, alternative="greater").pvalue, name) for name, of in differences.items())
        steps = [p * (3 - place) <= 0.025 for place, (p, _) in enumerate(p_values)]
        holds = {name for place, (_, name) in enumerate(p_values) if all(steps[: place + 1])}
        for name, of in differences.items():
            ours = reported.loc[(model, name)]
            assert ours["value"] == pytest.approx(of.mean(), abs=0.7)
            # the report's interval is that of the widest of three variances
            assert (ours["verdict"] == "holds") <= (name in holds)
            own = ttest_1samp(of, 0).confidence_interval()
            assert (ours["verdict"] == "does not hold") <= (own.high < 0)
            assert ours["high"] - ours["low"] > 0.9 * (own.high - own.low)


def test_all_twelve_claims_together_confirm_what_the_pages_say(read: Results) -> None:
    found = [f for f in findings(read) if f.claim.id in doses.CLAIMS]
    p_values = {(o.model, f.claim.id): f.claim.rule.p_holds(o.estimate) for f in found for o in f.outcomes}
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    confirmed = [key for key, p in adjusted.items() if p <= ALPHA]
    assert (len(adjusted), len(confirmed)) == (12, 6)
    assert [model for model, claim in confirmed if claim == "srpo_over_grpo_last"] == ["miniature-large"]
    holds = [f"{dose:.0f}" for dose, of in doses.by_dose(read).groupby("dose")["verdict"] if (of == "holds").all()]
    assert f"At {' and '.join(holds)} % the order is the paper's" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("says", ["better", "worse"])
def test_the_sentence_on_a_gap_says_what_was_measured(read: Results, says: str) -> None:
    sdpo, srpo, pairs = doses.followed(doses.pairs(read), says)
    assert [int(number) for number in re.findall(r"\b\d\d+\b", SENTENCES[says])] == [pairs, sdpo, srpo]


# ---------------------------------------------------------------- the specification curve


@pytest.fixture(scope="module")
def curve() -> pd.Series:
    frame = specifications.curve({"registered": published.results_of("registered")}, TUNED)
    assert not frame.duplicated(["source", "specification"]).any()
    return frame.set_index(["source", "specification"])


def test_the_deciding_rows_are_the_registered_claims(curve: pd.DataFrame) -> None:
    claims = published.rows_of("registered")
    for budget, claim in enumerate(("srpo_over_grpo_first", "srpo_over_grpo_middle", "srpo_over_grpo_last"), 1):
        estimate = claims[claim]["finding"].outcomes[0].estimate
        row = curve.loc["registered", f"budget {budget}, cross-fitted"]
        assert (row.value, row.low, row.high) == pytest.approx((estimate.value, estimate.low, estimate.high))


def test_trials_are_subtracted_at_equal_settings(curve: pd.DataFrame) -> None:
    scores = {
        t["method"]: t["score"]
        for t in TUNED["trials"]
        if t["values"] == {"learning_rate": 0.0003, "mini_batch_questions": 2}
    }
    row = curve.loc["tuning", "learning rate 0.0003, 4 updates per batch"]
    assert row.value == pytest.approx(scores["srpo"] - scores["grpo"])


def test_the_papers_rows_are_table_1s(curve: pd.DataFrame) -> None:
    assert curve.loc["paper", "Qwen3-8B, 10 h"].value == pytest.approx(77.4 - 74.0)
