"""Checkpoints: complete or absent, damaged or not, pruned."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkpoint import WHOLE, content, save

from srpo.ground.errors import SrpoError
from srpo.training import checkpoints, loop

pytestmark = pytest.mark.fault


def test_the_newest_checkpoint_is_by_number(tmp_path):
    assert checkpoints.newest(tmp_path) is None
    for step in (5, 10, 100, 15):
        save(tmp_path, step)
    assert checkpoints.newest(tmp_path) == (tmp_path / "checkpoints" / "step100", {"step": 100})


def test_a_checkpoint_whose_writing_fails_does_not_exist(tmp_path):
    save(tmp_path, 5)

    def fail(path: Path) -> None:
        (path / "optimizer.pt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(tmp_path, 10, {"step": 10}, fail)
    assert checkpoints.newest(tmp_path)[1] == {"step": 5}
    save(tmp_path, 10)
    assert content(tmp_path) == {"step10": WHOLE, "step5": WHOLE}


def test_pruning_keeps_the_latest_two_whole_and_the_best_weights(tmp_path):
    for step in (5, 10, 15, 20):
        save(tmp_path, step)
    (tmp_path / "checkpoints/.step17.partial/huggingface").mkdir(parents=True)
    checkpoints.prune(tmp_path, {5, 20})
    assert content(tmp_path) == {"step15": WHOLE, "step20": WHOLE, "step5": ["huggingface"]}
    checkpoints.prune(tmp_path, {15}, complete=1)
    assert content(tmp_path) == {"step15": ["huggingface"], "step20": WHOLE}
    assert [state for _, state in checkpoints.resumable(tmp_path)] == [{"step": 20}]


def test_weights_alone_are_evaluated_and_never_resumed_from(tmp_path):
    def write(path: Path) -> None:
        (path / "huggingface").mkdir()
        (path / "huggingface" / "model.safetensors").write_text("weights")

    save(tmp_path, 5)
    checkpoints.save(tmp_path, 10, None, write)
    assert content(tmp_path) == {"step10": ["huggingface"], "step5": WHOLE}
    assert checkpoints.newest(tmp_path)[1] == {"step": 5}
    checkpoints.prune(tmp_path, {10})
    assert content(tmp_path) == {"step10": ["huggingface"], "step5": WHOLE}
    save(tmp_path, 10)  # a stop, which needs all of it
    assert content(tmp_path) == {"step10": WHOLE, "step5": WHOLE}


def test_a_saved_step_may_be_saved_again(tmp_path):
    save(tmp_path, 5)
    checkpoints.save(tmp_path, 5, {"step": 5, "again": True}, lambda path: None)
    assert content(tmp_path) == {"step5": ["sizes.json", "state.json"]}


def test_a_full_disk_leaves_the_checkpoint_before_as_it_was(tmp_path):
    save(tmp_path, 5)
    before = content(tmp_path)

    def fill(path: Path) -> None:
        (path / "optimizer.pt").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SrpoError, match=r"step10: cannot be written, with .* GiB free .*No space left"):
        checkpoints.save(tmp_path, 10, {"step": 10}, fill)
    assert content(tmp_path) == before


def test_a_checkpoint_is_on_the_disk_before_its_name_and_before_another_is_deleted(tmp_path, monkeypatch):
    """A machine that crashes keeps what was flushed."""
    flushed, names = [], []
    monkeypatch.setattr(checkpoints, "flush_to_disk", lambda path: flushed.append(path.name))
    replace = os.replace
    monkeypatch.setattr(checkpoints.os, "replace", lambda *a: names.append((a[1].name, list(flushed))) or replace(*a))
    save(tmp_path, 5)
    before = dict(names)["step5"]
    assert {"optimizer.pt", "huggingface", "model.safetensors", ".step5.partial"} == set(before)
    assert before[-1] == ".step5.partial"
    assert flushed[len(before) :] == ["checkpoints"]


def test_a_truncated_checkpoint_is_passed_over_and_said(tmp_path, caplog):
    for step in (5, 10):
        save(tmp_path, step)
    os.truncate(tmp_path / "checkpoints/step10/optimizer.pt", 3)
    loaded = []
    assert checkpoints.load_newest(tmp_path, loaded.append) == {"step": 5}
    assert loaded == [tmp_path / "checkpoints" / "step5"]
    assert "step10: damaged, trying the one before (optimizer.pt has 3 bytes, " in caplog.text
    assert content(tmp_path) == {"step5": WHOLE}


def test_what_fails_to_load_for_another_reason_is_no_damage(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)

    def load(folder: Path) -> None:
        raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        checkpoints.load_newest(tmp_path, load)
    assert content(tmp_path) == {"step10": WHOLE, "step5": WHOLE}


@pytest.mark.parametrize("name", [checkpoints.STATE, checkpoints.SIZES])
def test_a_state_that_a_crash_left_empty_is_damage(name, tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
    (tmp_path / "checkpoints/step10" / name).write_text("")
    training = SimpleNamespace(budget_seconds={"1h": 1.0}, max_steps=7)
    assert not loop._is_over(SimpleNamespace(training=training), tmp_path)
    assert checkpoints.load_newest(tmp_path, lambda folder: None) == {"step": 5}


def test_a_run_never_starts_over_because_its_checkpoints_are_damaged(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
        (tmp_path / f"checkpoints/step{step}/huggingface/model.safetensors").unlink()
    with pytest.raises(SrpoError, match=r"checkpoints: every checkpoint is damaged; delete this folder to start over"):
        checkpoints.load_newest(tmp_path, lambda folder: None)
    assert sorted(content(tmp_path)) == ["step10", "step5"]
