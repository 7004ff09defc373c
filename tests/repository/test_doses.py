"""The registered doses: rank correlations by hand, and the verdicts once more by a program of its own."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict

import doses
import numpy as np
import pandas as pd
import pytest
from paths import ROOT
from scipy.stats import ttest_1samp

from srpo.analysis.gap import SENTENCES
from srpo.analysis.published import results
from srpo.analysis.results import Results

FOLDER = ROOT / "published" / "registered-doses"
LAST = 6.0  # seconds of the training clock
METHODS = {"SRPO - GRPO": ("srpo", "grpo"), "SRPO - SDPO": ("srpo", "sdpo"), "GRPO - SDPO": ("grpo", "sdpo")}


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


# ---------------------------------------------------------------- what is published


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Results:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("unpacked"))
        return results(FOLDER)


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


@pytest.mark.parametrize("says", ["may help", "hurts"])
def test_the_sentence_on_a_gap_says_what_was_measured(read: Results, says: str) -> None:
    sdpo, srpo, pairs = doses.followed(doses.pairs(read), says)
    assert [int(number) for number in re.findall(r"\b\d\d+\b", SENTENCES[says])] == [pairs, sdpo, srpo]
