"""Event logs cut back to a step."""

import pytest

from srpo.ground.files import append_event, read_events, rewind

pytestmark = pytest.mark.fault


def test_a_log_is_cut_back_to_a_step_and_goes_on(tmp_path):
    log = tmp_path / "events.jsonl"
    for step in range(1, 6):
        append_event(log, {"step": step, "value": step / 3})
    with log.open("a") as file:
        file.write('{"step": 6, "val')  # killed here
    rest = rewind(log, 4)
    append_event(log, {"step": 5, "value": 9.0})
    assert [event["step"] for event in rest] == [1, 2, 3, 4]
    assert [(e["step"], e["value"]) for e in read_events(log)] == [
        (1, 1 / 3),
        (2, 2 / 3),
        (3, 1.0),
        (4, 4 / 3),
        (5, 9.0),
    ]


def test_rewinding_changes_no_byte_of_the_rest(tmp_path):
    log = tmp_path / "events.jsonl"
    append_event(log, {"step": 1, "value": 0.1 + 0.2, "name": "Ωmega", "tiny": 5e-324})
    before = log.read_bytes()
    rewind(log, 1)
    assert log.read_bytes() == before


def test_without_a_log_there_is_an_empty_one(tmp_path):
    assert rewind(tmp_path / "events.jsonl", 3) == []
    assert list(read_events(tmp_path / "events.jsonl")) == []
