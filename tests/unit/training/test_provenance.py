"""One folder, one origin."""

from __future__ import annotations

import itertools
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from checkpoint import content, save

from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.files import append_event
from srpo.layout import RunFiles
from srpo.repository import CONFIGS
from srpo.training import checkpoints, provenance
from srpo.training.provenance import prepare_run_folder

pytestmark = pytest.mark.fault


def origin(
    commit="a",
    packages="2.13",
    base_model="x",
    data="d",
    title="T",
    budgets=(10, 20),
    max_steps=4,
    micro_batch_size=64,
    ranks=8,
    rollout_memory_fraction=0.6,
    stop_on=None,
) -> dict:
    return {
        "spec": {
            "method": {"title": title},
            "training": {
                "budget_seconds": {f"{seconds}s": seconds for seconds in budgets},
                "max_steps": max_steps,
                "micro_batch_size": micro_batch_size,
                "stop_on": stop_on,
            },
            "execution": {"ranks": ranks, "rollout_memory_fraction": rollout_memory_fraction},
        },
        "provenance": {
            "commit": commit,
            "packages": {"torch": packages},
            "base_model": base_model,
            "data": {"train": data},
        },
    }


def trained(folder: Path, step: int, clock: float) -> None:
    """A folder with the logs and the checkpoint of a run of ``origin()``."""
    prepare_run_folder(folder, origin())
    save(folder, step)
    for log in RunFiles(folder).logs:
        append_event(log, {"step": step, "clock": clock})
    if clock >= 20:
        (folder / "finished").touch()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"commit": "b"},
        {"title": "Another"},
        {"rollout_memory_fraction": 0.5},
        {"micro_batch_size": 8},
        {"max_steps": 5},
        {"max_steps": None},
        {"budgets": (10, 20, 40)},
        {"stop_on": "alarm"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("clock", [5.0, 20.0], ids=["unfinished", "finished"])
def test_what_leaves_the_result_alone_or_prolongs_it_lets_a_run_go_on(change, clock, tmp_path):
    trained(tmp_path, 3, clock)
    before = content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()
    prepare_run_folder(tmp_path, origin(**change))
    assert (content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()) == before
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(**change)
    prolonged = bool({"max_steps", "budgets", "stop_on"} & change.keys())
    assert (tmp_path / "finished").exists() is (clock == 20.0 and not prolonged)


def test_a_finished_run_is_not_trained_again_for_other_packages(tmp_path):
    trained(tmp_path, 3, 20.0)
    before = content(tmp_path)
    prepare_run_folder(tmp_path, origin(packages="2.14"))
    assert content(tmp_path) == before
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin()


def test_a_prolonged_run_is_an_unfinished_one_again(tmp_path):
    trained(tmp_path, 3, 20.0)
    prepare_run_folder(tmp_path, origin(budgets=(10, 20, 40)))
    with pytest.raises(SrpoError, match="3 steps were trained with other settings"):
        prepare_run_folder(tmp_path, origin(budgets=(10, 20, 40), ranks=4))


def test_steps_without_an_origin_are_not_continued(tmp_path):
    trained(tmp_path, 3, 5.0)
    (tmp_path / "run.yaml").unlink()
    with pytest.raises(SrpoError, match=r"3 steps.* but no run\.yaml"):
        prepare_run_folder(tmp_path, origin())


CHANGES = [
    ({"ranks": 4}, "execution.ranks = 8, now 4"),
    ({"packages": "2.14"}, "packages.torch = 2.13, now 2.14"),
    ({"base_model": "y"}, "base_model = x, now y"),
    ({"data": "e"}, "data.train = d, now e"),
    ({"max_steps": 2}, "training.max_steps = 4, now 2"),
    ({"budgets": (10,)}, "training.budget_seconds.20s = 20, now None"),
    ({"budgets": (10, 15, 20)}, "training.budget_seconds.15s = None, now 15"),
    ({"budgets": (12, 20)}, "training.budget_seconds.10s = 10, now None, training.budget_seconds.12s = None, now 12"),
]


@pytest.mark.parametrize(("change", "named"), CHANGES, ids=[named for _, named in CHANGES])
def test_an_unfinished_run_of_another_origin_is_not_touched(change, named, tmp_path):
    trained(tmp_path, 3, 5.0)
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(SrpoError) as error:
        prepare_run_folder(tmp_path, origin(**change))
    assert f"3 steps were trained with other settings: {named}; restore them, or delete" in str(error.value)
    assert sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()) == before


SET_ASIDE = [(change, named) for change, named in CHANGES if "packages" not in change]


@pytest.mark.parametrize(("change", "named"), SET_ASIDE, ids=[named for _, named in SET_ASIDE])
def test_a_finished_run_of_another_origin_is_set_aside(change, named, tmp_path, caplog):
    for number in (1, 2):
        trained(tmp_path, 3, 20.0)
        prepare_run_folder(tmp_path, origin(**change))
        assert f"changed: {named}" in caplog.text
        assert checkpoints.newest(tmp_path) is None
        assert not (tmp_path / "steps.jsonl").exists()
        old = tmp_path / "superseded" / str(number)
        assert sorted(path.name for path in old.iterdir()) == sorted(
            ["finished", "run.yaml", *(log.name for log in RunFiles(tmp_path).logs)]
        )
        assert yaml.safe_load((old / "run.yaml").read_text()) == origin()
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        (tmp_path / "run.yaml").unlink()


@pytest.mark.parametrize("killed_at", range(5))
def test_what_is_set_aside_survives_a_kill(killed_at, tmp_path, monkeypatch):
    trained(tmp_path, 3, 20.0)
    with monkeypatch.context() as patch:
        calls = itertools.count()

        def kill(function):
            def killed(*args, **kwargs):
                if next(calls) == killed_at:
                    raise KeyboardInterrupt
                return function(*args, **kwargs)

            return killed

        patch.setattr(provenance.shutil, "copy2", kill(shutil.copy2))
        patch.setattr(Path, "rename", kill(Path.rename))
        patch.setattr(provenance, "write_text", kill(provenance.write_text))
        with pytest.raises(KeyboardInterrupt):
            prepare_run_folder(tmp_path, origin(base_model="y"))
    prepare_run_folder(tmp_path, origin(base_model="y"))
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(base_model="y")
    assert not [name for name in ("steps.jsonl", "validations.jsonl", "finished") if (tmp_path / name).exists()]
    aside = {path.name: path for path in sorted(tmp_path.glob("superseded/*/*"))}
    assert {"run.yaml", "steps.jsonl", "validations.jsonl"} <= aside.keys()
    assert yaml.safe_load(aside["run.yaml"].read_text()) == origin()


def test_a_folder_without_a_step_takes_any_origin(tmp_path):
    prepare_run_folder(tmp_path, origin())
    prepare_run_folder(tmp_path, origin(ranks=4))
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(ranks=4)
    assert not (tmp_path / "superseded").exists()


LATER = {
    *("teacher", "second_routing", "first_phase_steps"),
    *("success_buffer", "group_weight", "rlsd_lambda", "rlsd_clip"),
}
"""Keys of a method that runs of 0.2.0 do not have."""


def test_a_key_that_came_later_changes_nothing_at_its_default(tmp_path: Path) -> None:
    """A run of a commit without kinds of teacher is one with an EMA, and not one with a frozen teacher."""
    experiment = load_experiment(CONFIGS / "experiments" / "smoke.yaml")
    run = next(run for run in experiment.runs() if run.method == "srpo")
    spec = experiment.run(run).model_dump(mode="json")
    earlier = spec | {"method": {key: value for key, value in spec["method"].items() if key not in LATER}}
    assert len(spec["method"]) - len(earlier["method"]) == len(LATER)
    frozen = spec | {"method": spec["method"] | {"teacher": {"kind": "frozen"}}}
    prepare_run_folder(tmp_path, origin() | {"spec": earlier})
    append_event(RunFiles(tmp_path).steps, {"step": 2, "clock": 12})
    prepare_run_folder(tmp_path, origin() | {"spec": spec})
    with pytest.raises(SrpoError, match=r"teacher\.kind = ema, now frozen"):
        prepare_run_folder(tmp_path, origin() | {"spec": frozen})
    buffered = spec | {"method": spec["method"] | {"success_buffer": 4}}
    with pytest.raises(SrpoError, match=r"method\.success_buffer = 0, now 4"):
        prepare_run_folder(tmp_path, origin() | {"spec": buffered})


def test_a_key_that_is_gone_changes_nothing_at_the_value_that_runs_had(tmp_path: Path) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "smoke.yaml")
    spec = experiment.run(experiment.runs()[0]).model_dump(mode="json")
    earlier = spec | {"method": spec["method"] | {"divergence_clip": None, "sibling_choice": "first"}}
    clipped = spec | {"method": spec["method"] | {"divergence_clip": 0.05}}
    for number, (before, same) in enumerate(((earlier, True), (clipped, False))):
        folder = tmp_path / str(number)
        prepare_run_folder(folder, origin() | {"spec": before})
        append_event(RunFiles(folder).steps, {"step": 2, "clock": 12})
        with nullcontext() if same else pytest.raises(SrpoError, match=r"method\.divergence_clip = 0\.05"):
            prepare_run_folder(folder, origin() | {"spec": spec})


def test_a_rule_that_drops_groups_is_in_the_identity_of_runs_that_have_it_and_of_no_other(tmp_path: Path) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "smoke.yaml")
    spec = experiment.run(experiment.runs()[0]).model_dump(mode="json")
    assert "filter_groups" not in spec["method"]
    prepare_run_folder(tmp_path, origin() | {"spec": spec})
    append_event(RunFiles(tmp_path).steps, {"step": 2, "clock": 12})
    rule = {"drop": "one_reward", "max_num_gen_batches": 2}
    changed = spec | {"method": spec["method"] | {"filter_groups": rule}}
    with pytest.raises(SrpoError, match=r"method\.filter_groups\.drop = None, now one_reward"):
        prepare_run_folder(tmp_path, origin() | {"spec": changed})
