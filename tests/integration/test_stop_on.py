"""``training.stop_on: alarm`` in a tiny run: where it stops, what it keeps, and how it goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import pytest
from run_content import assert_same, content
from tiny import hash_reward, prepare, tiny_experiment

from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json
from srpo.ground.layout import Layout, RunFiles
from srpo.training import avg_at_k, checkpoints, loop

SCORES = {2: 0.9, 4: 0.5, 6: 0.4, 8: 0.6, 10: 0.7}
"""avg@k by step: more than ten points under the best twice in a row at step 6."""


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations with these scores."""
    evaluate = loop.evaluate_questions

    def scripted(*args, **kwargs):
        result = evaluate(*args, **kwargs)
        score = SCORES[args[-1][-1]]
        return dataclasses.replace(result, question_scores=[score] * len(result.question_scores))

    monkeypatch.setattr(loop, "evaluate_questions", scripted)
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    monkeypatch.setattr(avg_at_k, "compute_reward", hash_reward)


def trained(folder: Path, **training: object) -> RunFiles:
    """Train a run in ``folder``, which may have a part of it."""
    budgets = {"1h": 1e8, "10h": 1e9}  # beyond all steps
    given = {"validate_every": 2, "max_steps": 10, "budget_seconds": budgets} | training
    experiment = tiny_experiment("sdpo", **given)
    if Layout(folder / "tiny").folder.exists():
        spec, layout = experiment.run(experiment.runs()[0]), Layout(folder / "tiny")
    else:
        spec, layout = prepare(experiment, folder)
    loop.train(spec, layout)
    return layout.run_files(spec.id)


def signals(files: RunFiles) -> list[tuple[int, str, str]]:
    return [(event["step"], event["rule"], event["level"]) for event in read_events(files.watch)]


def test_an_alarm_ends_a_run_only_if_the_user_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole")
    assert read_json(whole.summary)["stopped_by"] == "max_steps"
    assert [budget and budget["step"] for budget in read_json(whole.summary)["budgets"].values()] == [None, 2]
    assert (6, "validation", "alarm") in signals(whole)
    steps = list(read_events(whole.steps))
    assert len(steps) == 10
    _check_metrics(steps)

    dear = trained(tmp_path / "dear", stop_on="cost")  # a fall of the scores makes no step dear
    assert (read_json(dear.summary)["stopped_by"], _lines(dear.steps)) == ("max_steps", _lines(whole.steps))

    stopped = trained(tmp_path / "stopped", stop_on="alarm")
    summary = read_json(stopped.summary)
    assert (summary["stopped_by"], summary["steps"]) == ("alarm", 6)
    assert summary["budgets"]["1h"]["avg_at_k"] == 0.9
    assert [v["step"] for v in read_events(stopped.validations)] == [2, 4, 6]
    assert signals(stopped)[-1] == (6, "validation", "alarm")
    assert stopped.finished.exists()
    folder, state = checkpoints.newest(stopped.folder) or (None, {})
    assert (folder, state["step"]) == (stopped.checkpoint(6), 6)
    checkpoints.check(stopped.checkpoint(6))
    assert (stopped.checkpoint(2) / "huggingface").exists()  # what the budget selects is evaluated

    # the same run again is done at once, on a full disk too
    before = content(stopped.folder)
    with monkeypatch.context() as full:
        full.setattr(checkpoints, "check_room", Mock(side_effect=SrpoError("no room")))
        trained(tmp_path / "stopped", stop_on="alarm")
        assert_same(content(stopped.folder), before)
        with pytest.raises(SrpoError, match="no room"):  # it would go on
            trained(tmp_path / "stopped")

    # and one that was interrupted before the alarm stops where the other did
    again = trained(tmp_path / "interrupted", stop_on="alarm", max_steps=4)
    assert read_json(again.summary)["stopped_by"] == "max_steps"
    trained(tmp_path / "interrupted", stop_on="alarm")
    for log in (stopped.steps, stopped.validations, stopped.watch):
        assert _lines(again.folder / log.name) == _lines(log)

    # without the setting it goes on, and ends as the run that never had it
    trained(tmp_path / "stopped")
    assert read_json(stopped.summary)["stopped_by"] == "max_steps"
    for log in (whole.steps, whole.validations, whole.watch):
        assert _lines(stopped.folder / log.name) == _lines(log)

    # a finished run that gets the setting later keeps what it has
    trained(tmp_path / "whole", stop_on="alarm")
    assert (read_json(whole.summary)["stopped_by"], whole.superseded.exists()) == ("max_steps", False)


def _lines(log: Path) -> list[dict]:
    """The events of a log without measured seconds and memory."""
    measured = {"wall_seconds", "host_memory_gb"}
    return [{key: value for key, value in event.items() if key not in measured} for event in read_events(log)]


def _check_metrics(steps: list[dict]) -> None:
    """What the watch reads is in the log of a real run."""
    for event in steps:
        metrics = event["metrics"]
        assert metrics["student/entropy"] > 0
        assert 0 <= metrics["response/repeated_fraction"] <= 1
        assert metrics["response/format_fraction"] == 0  # a random model
