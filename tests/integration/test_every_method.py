"""Every method file trains: two steps of a tiny run, a step of each phase if there are two.

Left out are methods whose updates tests/unit/policy/test_policy.py compares with a slow program.
"""

import math

import pytest
import yaml
from helpers import CONTEXTS, METHODS, TEACHERS
from tiny import hash_reward
from tiny_runs import trained

from srpo.ground.repository import method_files
from srpo.hosts.functional import load_method

FILES = [file for name, file in method_files().items() if name not in (*METHODS, *TEACHERS, *CONTEXTS)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_method_file_trains_two_steps(file, tmp_path, monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    changes = {"first_phase_steps": 1} if "second_routing" in yaml.safe_load(file.read_text()) else {}
    events, _ = trained(tmp_path, file.stem, changes, steps=(2,))
    method = load_method(file.stem, **changes)
    assert [event["step"] for event in events] == [1, 2]
    for event in events:
        metrics, routing = event["metrics"], method.at(event["step"]).routing
        assert metrics["actor/grad_norm"] > 0
        assert metrics["actor/skipped_updates"] == 0
        assert math.fsum(metrics.get(f"routing/{name}_fraction", 0) for name in {*routing.branches}) == pytest.approx(1)
        assert ("teacher/entropy" in metrics) == routing.needs_teacher
        assert ("teacher" in event["phase_tokens"]) == routing.needs_teacher
        parts = [metrics[f"loss/{name}"] for name in {*method.branches} - {"dropped"}]
        assert metrics["loss/total"] == pytest.approx(math.fsum(parts))
