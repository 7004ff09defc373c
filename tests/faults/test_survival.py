"""Runs that are stopped, moved, prolonged, spoilt or starved: what is kept, what is said, and the same results."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import snakemake_command
import torch
from run_content import assert_same, content
from tiny import hash_reward, prepare, tiny_experiment

from srpo import cli
from srpo.experiment.compose import resolved_text
from srpo.experiment.config import CalibratedClock
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events
from srpo.ground.layout import WEIGHTS
from srpo.policy.in_process import InProcessPolicy
from srpo.rollout.interface import ServersFailed
from srpo.training import avg_at_k, checkpoints, interruption, loop
from srpo.training.interruption import Interrupted, Interruption, job_end

pytestmark = pytest.mark.fault

STEPS = 4


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    monkeypatch.setattr(avg_at_k, "compute_reward", hash_reward)


def experiment(**training):
    return tiny_experiment("srpo", **{"max_steps": STEPS, "validate_every": 2, **training})


@pytest.fixture
def prepared(tmp_path):
    return prepare(experiment(), tmp_path / "found")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the run leaves behind when nothing happens to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srpo.training.step.compute_reward", hash_reward)
        patch.setattr(avg_at_k, "compute_reward", hash_reward)
        spec, layout = prepare(experiment(), tmp_path_factory.mktemp("expected"))
        loop.train(spec, layout)
    return content(layout.run(spec.id))


# ---------------------------------------------------------------- signals and deadlines


def at_call(patch, owner, name: str, count: int, action) -> None:
    """Do ``action`` before the count-th call of ``owner.name``."""
    original, calls = getattr(owner, name), iter(range(1, 1000))

    def wrapped(*args, **kwargs):
        if next(calls) == count:
            action()
        return original(*args, **kwargs)

    patch.setattr(owner, name, wrapped)


def stop_at_third_update(spec, layout) -> None:
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, InProcessPolicy, "update_actor", 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Interrupted):
            loop.train(spec, layout)


MOMENTS = {
    "generation": (signal.SIGTERM, InProcessPolicy, "sampling", 3),  # of step 3: the second was the validation's
    "update": (signal.SIGUSR1, InProcessPolicy, "update_actor", 2),
    "validation": (signal.SIGINT, loop, "evaluate_questions", 1),
    "checkpoint": (signal.SIGTERM, checkpoints, "save", 1),
    "last step": (signal.SIGUSR1, InProcessPolicy, "update_actor", 4),
    "last validation": (signal.SIGTERM, loop, "evaluate_questions", 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_a_run_with_a_checkpoint_from_which_it_goes_on(moment, prepared, expected, monkeypatch):
    (number, *call), (spec, layout) = MOMENTS[moment], prepared
    handlers = [signal.getsignal(n) for n in interruption.SIGNALS]
    with monkeypatch.context() as patch:
        at_call(patch, *call, lambda: os.kill(os.getpid(), number))
        if moment == "last validation":  # nothing is left to stop
            loop.train(spec, layout)
        else:
            with pytest.raises(Interrupted, match=f"{number.name} received; stopped after step"):
                loop.train(spec, layout)
            assert not (layout.run(spec.id) / "summary.json").exists()
            _, state = checkpoints.newest(layout.run(spec.id))
            assert state["step"] == len(list(read_events(layout.run(spec.id) / "steps.jsonl")))
    assert [signal.getsignal(n) for n in interruption.SIGNALS] == handlers
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


def test_a_second_ctrl_c_ends_at_once(prepared, expected, monkeypatch):
    spec, layout = prepared

    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        at_call(patch, InProcessPolicy, "update_actor", 3, twice)
        with pytest.raises(KeyboardInterrupt):
            loop.train(spec, layout)
    assert len(list(read_events(layout.run(spec.id) / "steps.jsonl"))) == 2
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


def test_a_run_passes_through_jobs_that_are_too_short_for_it(prepared, expected, monkeypatch):
    spec, layout = prepared
    monkeypatch.setattr(interruption, "MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(interruption, "SAFETY_FACTOR", 0.0)
    segments = 0
    while not (layout.run(spec.id) / "summary.json").exists():
        now = iter(range(1000))  # each look at the clock is a second later
        monkeypatch.setattr(loop, "Interruption", lambda stop_at, now=now: Interruption(stop_at, lambda: next(now)))
        try:
            loop.train(spec, layout, stop_at=1.5)
        except Interrupted:
            segments += 1
        assert segments < 20
    assert segments >= 2
    assert_same(content(layout.run(spec.id)), expected)


def test_what_will_not_be_over_in_time_is_not_begun():
    clock = Interruption(stop_at=1000.0, now=lambda: 900.0)
    assert clock.reason(59.9) is None  # 1.5 x 59.9 + 10 < 100
    assert clock.reason(60.1) == "the job ends in 100 s"
    assert Interruption(stop_at=1000.0, now=lambda: 2000.0).reason() == "the job ends in 0 s"
    assert Interruption().reason(1e9) is None


@pytest.mark.parametrize(("value", "end"), [("1790000000", 1790000000.0), ("", None), ("NONE", None)])
def test_the_end_of_a_slurm_job(value, end):
    assert job_end({"SLURM_JOB_END_TIME": value}) == end
    assert job_end({}) is None


def test_a_run_that_stops_early_has_an_exit_status_of_its_own(monkeypatch, capsys):
    def stop(*_):
        raise Interrupted("a/b/c: SIGTERM received; stopped after step 7")

    monkeypatch.setattr(cli, "_job", stop)
    status = cli.main(["train", "results/x/runs/m/b/grpo/seed1/summary.json"])
    assert status == os.EX_TEMPFAIL == 75


# ---------------------------------------------------------------- killed


@pytest.mark.slow
def test_snakemake_and_a_run_that_are_killed_in_turn_end_with_the_same_bytes(tmp_path, monkeypatch):
    """Snakemake dies with all that it has started, as when a machine fails; the data and the model are there."""
    spec, layout = prepare(experiment(max_steps=8), tmp_path / "results")
    layout.experiment.write_text(resolved_text(experiment(max_steps=8)))
    files = layout.run_files(spec.id)

    def workflow():
        arguments = (files.summary.relative_to(tmp_path), "--configfile", layout.experiment)
        return snakemake_command.start(tmp_path, *arguments, "--cores", 1, "--nolock", stderr=subprocess.DEVNULL)

    def run():
        return subprocess.Popen([sys.executable, "-m", "srpo.cli", "train", files.summary], start_new_session=True)

    def left():
        """Logs, results, weights. Checkpoints depend on the time that they take, titles in run.yaml on who starts."""
        found = content(files.folder).items()
        others = ("attempts.jsonl", "checkpoints", "run.yaml", "weights/.snakemake_timestamp")
        return {name: value for name, value in found if not name.startswith(others)}

    monkeypatch.undo()  # the reward of the processes
    loop.train(spec, layout)
    expected = left()
    shutil.rmtree(files.folder)
    for number, begin in enumerate([workflow, run], 1):
        before, process = time.time(), begin()
        while not (
            files.steps.exists() and files.steps.stat().st_mtime > before and len([*read_events(files.steps)]) >= number
        ):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not files.summary.exists()
    assert workflow().wait() == 0
    assert_same(left(), expected)


# ---------------------------------------------------------------- moved, prolonged, damaged


def test_a_run_goes_on_where_its_results_were_moved_to(prepared, expected, tmp_path):
    spec, layout = prepared
    stop_at_third_update(spec, layout)
    moved = tmp_path / "elsewhere" / "results"
    moved.parent.mkdir()
    shutil.move(layout.folder, moved)
    loop.train(spec, type(layout)(moved))
    assert_same(content(type(layout)(moved).run(spec.id)), expected)


def test_a_clock_that_jumps_changes_nothing(prepared, expected, monkeypatch):
    spec, layout = prepared
    now, jumps = time.time, itertools.cycle([0.0, -3.2e7, 3600.0, 3.2e7, -5.0])
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


def test_a_calibrated_run_takes_as_many_steps_as_the_paper_in_its_budget(tmp_path):
    clock = {"kind": "calibrated"}
    spec, layout = prepare(experiment(clock=clock, budget_seconds={"1h": 230.0}, max_steps=None), tmp_path)
    loop.train(spec, layout)
    steps = list(read_events(layout.run(spec.id) / "steps.jsonl"))
    paper = CalibratedClock(**clock).step_seconds[spec.method.name][1.0]
    assert [event["clock"] for event in steps] == pytest.approx([paper, 2 * paper, 3 * paper])
    assert 2 * paper < 230 < 3 * paper
    for event in steps:
        assert sum(event["phase_seconds"].values()) == pytest.approx(event["wall_seconds"])
    summary = json.loads((layout.run(spec.id) / "summary.json").read_text())
    assert (summary["stopped_by"], summary["budgets"]["1h"]["step"]) == ("budget", 2)


def test_a_second_process_on_a_run_stops_and_leaves_the_first_alone(prepared, expected, monkeypatch):
    spec, layout = prepared

    def second() -> None:
        if not (child := os.fork()):
            loop.exclusive_access = partial(loop.exclusive_access, patience=0.1)
            try:
                loop.train(spec, layout)
            except SrpoError as error:
                os._exit(3 if "another process is writing here; wait for it or end it" in str(error) else 4)
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

    at_call(monkeypatch, InProcessPolicy, "update_actor", 3, second)
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


@pytest.mark.parametrize("steps", [2, 3], ids=["which ended at a validation", "which ended between validations"])
def test_a_longer_run_continues_a_finished_one_and_gives_the_same_bytes(steps, tmp_path, expected):
    spec, layout = prepare(experiment(max_steps=steps), tmp_path)
    loop.train(spec, layout)
    saved, _ = checkpoints.newest(layout.run(spec.id))
    assert saved.name == f"step{steps}"
    began = os.stat(layout.run(spec.id) / "steps.jsonl").st_size
    longer = experiment().run(spec.id)
    loop.train(longer, layout)
    log = (layout.run(spec.id) / "steps.jsonl").read_bytes()
    assert len(log) > began
    assert_same(content(layout.run(spec.id)), expected)


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(prepared, expected, monkeypatch, caplog):
    spec, layout = prepared
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", float("inf"))
    stop_at_third_update(spec, layout)
    found = checkpoints.resumable(layout.run(spec.id))
    assert [state["step"] for _, state in found] == [3, 2]
    (model,) = found[0][0].glob("model_*.pt")
    spoilt = bytearray(model.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1  # the size is right
    model.write_bytes(spoilt)
    loop.train(spec, layout)
    assert "step3: damaged, trying the one before" in caplog.text
    assert_same(content(layout.run(spec.id)), expected)


@pytest.mark.parametrize("scores", [{2: 0.5, 3: 0.9, 4: 0.1}, {2: 0.9, 3: 0.1, 4: 0.5}])
def test_what_a_prolonged_run_selects_is_there(scores, tmp_path, monkeypatch):
    given_scores(monkeypatch, scores)
    spec, layout = prepare(experiment(max_steps=3), tmp_path)
    loop.train(spec, layout)
    loop.train(experiment().run(spec.id), layout)
    assert_selected_weights_exist(layout.run(spec.id))


def test_an_alarm_is_in_the_log_of_a_run_that_goes_on_and_of_one_that_was_prolonged(tmp_path, monkeypatch):
    given_scores(monkeypatch, {2: 0.9, 4: 0.5, 5: 0.1, 6: 0.4})
    longest = {"max_steps": 7}
    spec, layout = prepare(experiment(**longest), tmp_path / "whole")
    loop.train(spec, layout)
    whole, files = content(layout.run(spec.id)), layout.run_files(spec.id)
    signals = [(event["step"], event["rule"], event["level"]) for event in read_events(files.watch)]
    assert signals == [(6, "validation", "alarm")]  # more than ten points under the best twice in a row
    assert json.loads(files.summary.read_text())["steps"] == 7
    metrics = {"student/entropy", "response_length/mean", "routing/mini_batches_without_distillation"}
    assert all(metrics <= event["metrics"].keys() for event in read_events(files.steps))  # what the watch reads

    spec, layout = prepare(experiment(max_steps=5), tmp_path / "prolonged")
    loop.train(spec, layout)
    assert next(read_events(layout.run_files(spec.id).watch))["step"] == 5  # a validation that longer runs do not make
    loop.train(experiment(**longest).run(spec.id), layout)
    assert_same(content(layout.run(spec.id)), whole)


def test_a_run_without_room_for_a_checkpoint_begins_only_if_it_needs_none(prepared, expected, monkeypatch):
    spec, layout = prepared
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda path: SimpleNamespace(free=9))
    with pytest.raises(SrpoError, match="make room and start again"):
        loop.train(spec, layout)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "check_room", lambda *args: None)
        loop.train(spec, layout)
    layout.run_files(spec.id).finished.unlink()  # killed after its last checkpoint
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


def test_what_is_selected_after_going_back_to_an_older_checkpoint_is_there(tmp_path, monkeypatch):
    """Sampling on GPUs does not repeat itself: the step that displaced another may do worse when it is redone."""
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", float("inf"))
    spec, layout = prepare(experiment(max_steps=5, validate_every=1), tmp_path)
    with monkeypatch.context() as patch:
        given_scores(patch, {1: 0.5, 4: 0.9})
        at_call(patch, InProcessPolicy, "sampling", 9, crash)  # of step 5
        with pytest.raises(RuntimeError):
            loop.train(spec, layout)
    whole = checkpoints.resumable(layout.run(spec.id))
    assert [state["step"] for _, state in whole] == [4, 3]
    os.truncate(next(whole[0][0].glob("model_*.pt")), 9)
    given_scores(monkeypatch, {})
    loop.train(spec, layout)
    assert json.loads((layout.run(spec.id) / "summary.json").read_text())["budgets"]["1h"]["step"] == 1
    assert_selected_weights_exist(layout.run(spec.id))


def test_a_selected_step_writes_weights_alone_unless_a_complete_checkpoint_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 0.0)  # complete: the first, and the last step's
    given_scores(monkeypatch, {2: 0.1, 4: 0.9})
    spec, layout = prepare(experiment(max_steps=6), tmp_path / "whole")
    loop.train(spec, layout)
    expected = content(layout.run(spec.id))

    spec, layout = prepare(experiment(max_steps=6), tmp_path / "crashed")
    with monkeypatch.context() as patch:
        at_call(patch, InProcessPolicy, "update_actor", 5, crash)
        with pytest.raises(RuntimeError):
            loop.train(spec, layout)
    run = layout.run(spec.id)
    assert [state["step"] for _, state in checkpoints.resumable(run)] == [2]
    assert [path.name for path in (run / "checkpoints/step4").iterdir()] == [WEIGHTS]
    loop.train(spec, layout)
    assert_same(content(run), expected)
    assert_selected_weights_exist(run)
    assert [path.name for path in (run / "checkpoints/step4").iterdir()] == [WEIGHTS]


def crash() -> None:
    raise RuntimeError


def given_scores(patch, scores: dict[int, float]) -> None:
    """Replace the avg@k of the validations after some steps; 0 after all others."""

    def evaluate(*args):
        result = avg_at_k.evaluate_questions(*args)
        return replace(result, question_scores=[scores.get(args[-1][-1], 0.0)] * len(result.question_scores))

    patch.setattr(loop, "evaluate_questions", evaluate)


def assert_selected_weights_exist(run) -> None:
    budgets = json.loads((run / "summary.json").read_text())["budgets"]
    for found in filter(None, budgets.values()):
        assert (run / found["checkpoint"] / "model.safetensors").is_file()


def test_a_checkpoint_cannot_run_code(prepared, tmp_path, monkeypatch):
    spec, layout = prepared
    policy = InProcessPolicy(spec, layout.model(spec.id.model))
    policy.save_checkpoint(tmp_path / "checkpoint", 1)
    policy.load_checkpoint(tmp_path / "checkpoint")

    class Trojan:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    for path in sorted((tmp_path / "checkpoint").glob("*.pt")):
        honest = path.read_bytes()
        torch.save({"trojan": Trojan()}, path)
        with pytest.raises(Exception, match="Weights only load failed"):
            policy.load_checkpoint(tmp_path / "checkpoint")
        path.write_bytes(honest)
    assert not (tmp_path / "owned").exists()


def test_a_log_that_lacks_steps_of_the_checkpoint_is_not_silently_accepted(prepared, monkeypatch):
    spec, layout = prepared
    loop.train(spec, layout)
    log = layout.run(spec.id) / "steps.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[1:]))
    layout.run_files(spec.id).finished.unlink()
    with pytest.raises(SrpoError, match=r"steps.jsonl: holds 3 of the checkpoint's 4 steps; restore it"):
        loop.train(spec, layout)


# ---------------------------------------------------------------- rollout servers


SAMPLINGS = {"first step": (1, 0), "second step": (2, 1), "validation": (3, 2)}
"""Number of the sampling that fails, and steps before it."""


def failing_servers(patch, calls: set[int], can_checkpoint: bool, also=lambda: None) -> list[int]:
    """Let some samplings fail after the engine was asked; the list grows by one for each sampling."""
    original, made = InProcessPolicy.sampling, []

    @contextmanager
    def sampling(self):
        with original(self) as engine:
            made.append(len(made) + 1)
            if made[-1] not in calls:
                yield engine
                return
            also()
            yield Failing(engine, can_checkpoint)

    class Failing:
        def __init__(self, engine, can_checkpoint) -> None:
            self.engine, self.can_checkpoint = engine, can_checkpoint

        def generate(self, *args):
            self.engine.generate(*args)
            raise ServersFailed("generating: ActorDiedError: killed", self.can_checkpoint)

    patch.setattr(InProcessPolicy, "sampling", sampling)
    return made


@pytest.mark.parametrize(
    ("moment", "whole"), [("first step", True), ("second step", False), ("validation", True), ("validation", False)]
)
def test_a_run_goes_on_with_new_servers_and_gives_the_same_bytes(
    moment, whole, prepared, expected, monkeypatch, caplog
):
    spec, layout = prepared
    number, step = SAMPLINGS[moment]
    made = failing_servers(monkeypatch, {number}, whole)
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)
    assert f"rollout servers failed after step {step}, starting new ones (generating: ActorDied" in caplog.text
    # four steps, two validations and the sampling that failed; a policy that is lost takes its steps with it
    assert len(made) == 7 + (0 if whole else step)


def test_servers_that_fail_again_and_again_end_the_run_in_one_line(prepared, expected, monkeypatch):
    spec, layout = prepared
    with monkeypatch.context() as patch:
        made = failing_servers(patch, set(range(4, 99)), True)
        with pytest.raises(SrpoError, match=r"servers failed 4 times after step 2; last: generating: Actor") as error:
            loop.train(spec, layout)
    assert "\n" not in str(error.value)
    assert len(made) == 3 + 1 + loop.MAX_RESTARTS
    loop.train(spec, layout)
    assert_same(content(layout.run(spec.id)), expected)


# ---------------------------------------------------------------- numbers and memory


def spoil(policy: InProcessPolicy, steps: set[int]) -> None:
    """Make the gradients of some steps NaN."""
    engine, update, calls = policy.worker.actor.engine, policy.worker.actor.engine.optimizer_step, iter(range(1, 99))

    def stepping():
        if next(calls) in steps:
            next(engine.module.parameters()).grad.fill_(float("nan"))
        return update()

    engine.optimizer_step = stepping


@pytest.mark.parametrize(("spoilt", "gives_up"), [({2}, False), ({1, 2, 4}, False), ({2, 3, 4}, True)])
def test_steps_without_finite_gradients_are_skipped_counted_and_in_a_row_too_many(
    spoilt, gives_up, prepared, monkeypatch
):
    spec, layout = prepared
    original = InProcessPolicy.__init__

    def init(self, *args):
        original(self, *args)
        spoil(self, spoilt)

    monkeypatch.setattr(InProcessPolicy, "__init__", init)
    run = layout.run(spec.id)
    if gives_up:
        with pytest.raises(SrpoError, match=r"the gradients of 3 steps in a row were not finite; .*step4.json"):
            loop.train(spec, layout)
        evidence = json.loads((run / "evidence" / "step4.json").read_text())
        assert evidence["metrics"]["actor/grad_norm"] == "nan"
        assert len(evidence["rollouts"]) == 16
        assert {"response", "reward", "log_prob"} == evidence["rollouts"][0].keys()
    else:
        loop.train(spec, layout)
    metrics = [event["metrics"] for event in read_events(run / "steps.jsonl")]
    skipped = [step in spoilt for step in range(1, 4 if gives_up else 5)]
    assert [step["actor/skipped_updates"] for step in metrics] == list(map(int, skipped))
    assert ["actor/grad_norm" not in step for step in metrics] == skipped  # JSON has no NaN
