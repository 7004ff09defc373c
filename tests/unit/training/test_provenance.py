"""One folder, one origin."""

import itertools
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from checkpoint import content, save
from one_line import refused

from srpo.experiment.compose import load_experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import append_event
from srpo.ground.layout import RunFiles
from srpo.ground.repository import CONFIGS
from srpo.training import checkpoints, provenance
from srpo.training.provenance import prepare_run_folder

pytestmark = pytest.mark.fault


TRAINING = {"max_steps": 4, "micro_batch_size": 64}
EXECUTION = {"ranks": 8, "rollout_memory_fraction": 0.6}
MADE = ["finished", "summary.json", "evaluation.json", "samples.jsonl"]


def origin(
    commit="a", packages="2.13", base_model="x", data="d", code="m.py", title="T", budgets=(10, 20), **settings: object
) -> dict:
    """Where a run comes from; ``settings`` are keys of :data:`TRAINING` and :data:`EXECUTION`."""
    training, execution = (part | {k: settings[k] for k in part if k in settings} for part in (TRAINING, EXECUTION))
    training |= {"budget_seconds": {f"{seconds}s": seconds for seconds in budgets}}
    source = {"commit": commit, "packages": {"torch": packages}, "base_model": base_model, "data": {"train": data}}
    source |= {"code": {code: "h"}}
    return {"spec": {"method": {"title": title}, "training": training, "execution": execution}, "provenance": source}


def trained(folder: Path, step: int, clock: float) -> None:
    """A folder with the logs and the checkpoint of a run of ``origin()``."""
    prepare_run_folder(folder, origin())
    save(folder, step)
    for log in RunFiles(folder).logs:
        append_event(log, {"step": step, "clock": clock})
    if clock >= 20:
        for name in MADE:
            (folder / name).touch()


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
    ],
    ids=repr,
)
@pytest.mark.parametrize("clock", [5.0, 20.0], ids=["unfinished", "finished"])
def test_what_leaves_the_result_alone_or_prolongs_it_lets_a_run_go_on(change, clock, tmp_path):
    trained(tmp_path, 3, clock)
    before = content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()
    prepare_run_folder(tmp_path, origin(**change))
    assert (content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()) == before
    finished = clock == 20.0 and not {"max_steps", "budgets"} & change.keys()
    assert (tmp_path / "finished").exists() is finished
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == (origin() if finished else origin(**change))


def test_a_finished_run_is_not_trained_again_for_other_packages(tmp_path):
    trained(tmp_path, 3, 20.0)
    before = content(tmp_path)
    prepare_run_folder(tmp_path, origin(packages="2.14"))
    assert content(tmp_path) == before
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin()
    for change in ({"packages": "2.14"}, {"base_model": "y"}):  # nor is lost if its longer budget comes with others
        with pytest.raises(SrpoError, match=next(iter(change))):
            prepare_run_folder(tmp_path, origin(**change, budgets=(10, 20, 40)))
        assert content(tmp_path) == before


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
    ({"code": "m/__init__.py"}, "code.m.py = h, now None"),
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
            [*MADE, "run.yaml", *(log.name for log in RunFiles(tmp_path).logs)]
        )
        assert yaml.safe_load((old / "run.yaml").read_text()) == origin()
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        (tmp_path / "run.yaml").unlink()


@pytest.mark.parametrize("killed_at", range(8))
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
    assert not [name for name in ("steps.jsonl", "validations.jsonl", *MADE) if (tmp_path / name).exists()]
    aside = {path.name: path for path in sorted(tmp_path.glob("superseded/*/*"))}
    assert {"run.yaml", "steps.jsonl", "validations.jsonl"} <= aside.keys()
    assert yaml.safe_load(aside["run.yaml"].read_text()) == origin()


def test_a_folder_without_a_step_takes_any_origin(tmp_path):
    prepare_run_folder(tmp_path, origin())
    prepare_run_folder(tmp_path, origin(ranks=4))
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(ranks=4)
    assert not (tmp_path / "superseded").exists()


LATER = {"teacher", "second_routing", "first_phase_steps", "success_buffer", "group_weight", "rlsd_lambda", "rlsd_clip"}
"""Keys of a method that runs of 0.2.0 do not have."""


def other_keys(part: str, gone: frozenset[str] | set[str] = frozenset(), **values: object) -> dict:
    """The specification of a run of SRPO with other keys in a part of it."""
    experiment = load_experiment(CONFIGS / "experiments" / "smoke.yaml")
    run = next(run for run in experiment.runs() if run.method == "srpo")
    spec = experiment.run(run).model_dump(mode="json")
    assert gone <= spec[part].keys()
    return spec | {part: {key: value for key, value in spec[part].items() if key not in gone} | values}


OLD, NOW = other_keys("method", gone=LATER), other_keys("method")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        # a key that came later changes nothing at its default: without kinds of teacher, the teacher is an EMA
        (OLD, NOW, None),
        (OLD, other_keys("method", teacher={"kind": "frozen"}), ".kind = ema, now frozen"),
        (OLD, other_keys("method", success_buffer=4), "method.success_buffer = 0, now 4"),
        # one that is gone, at the value that runs had
        (other_keys("method", divergence_clip=None, sibling_choice="first"), NOW, None),
        (other_keys("method", divergence_clip=0.05), NOW, "method.divergence_clip = 0.05"),
        *((other_keys("training", stop_on=value), other_keys("training"), None) for value in (None, "cost")),
        (other_keys("execution", attention="sdpa", remove_padding=False), NOW, None),
        (other_keys("execution", remove_padding=True), NOW, "execution.remove_padding = True"),
        (other_keys("execution", attention="flash_attention_2"), NOW, "execution.attention = flash_attention_2"),
    ],
    ids=["later", "teacher", "buffer", "gone", "clip", "no-stop", "cost", "padding", "packed", "flash"],
)
def test_keys_of_other_versions(before: dict, now: dict, said: str | None, tmp_path: Path) -> None:
    """Snakemake starts a finished run for them; srpo's code is another too, and does not train it again."""
    old, new = origin() | {"spec": before}, origin() | {"spec": now}
    old["provenance"]["source"], new["provenance"]["source"] = "a", "b"
    prepare_run_folder(tmp_path, old)
    append_event(RunFiles(tmp_path).steps, {"step": 2, "clock": 12})
    if said is None:
        RunFiles(tmp_path).finished.touch()
    with refused(said) if said else nullcontext():
        prepare_run_folder(tmp_path, new)
    assert RunFiles(tmp_path).finished.exists() is (said is None)


@pytest.mark.parametrize(
    ("clock", "budgets", "stays"),
    [(20, (10, 20), False), (10, (10, 20), True), (20, (10, 20, 40), True)],
    ids=["finished", "not-finished", "prolonged"],
)
def test_a_finished_run_is_trained_again_if_srpos_own_code_has_changed(
    tmp_path: Path, clock: float, budgets: tuple[int, ...], stays: bool
) -> None:
    trained(tmp_path, 4, clock)
    before, now = origin(), origin(budgets=budgets)
    before["provenance"] |= {"source": "a", "gpu": "H20"}
    now["provenance"]["gpu"] = "H100"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(before))
    for now["provenance"]["source"] in "ba":
        prepare_run_folder(tmp_path, now)
    assert RunFiles(tmp_path).steps.exists() is stays
    written = yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert written["provenance"]["source"] == ("a, b, a" if stays else "a")
    assert written["provenance"]["gpu"] == ("H20, H100" if stays else "H100")
