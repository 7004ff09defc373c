"""A tiny training run in a process of its own, which can be told where to be killed."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import torch
from tiny import hash_reward, tiny_experiment

from srpo.evaluation import avg_at_k
from srpo.layout import Layout
from srpo.training import checkpoints, loop
from srpo.training import step as step_module

STEPS = 6


def experiment(name: str):
    return tiny_experiment(name, max_steps=STEPS, validate_every=2, budget_seconds={"1h": 0.02, "10h": 1e9})


def die(*args, **kwargs) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(name: str, folder: Path, crash: str | None = None) -> None:
    """Train until the end or until ``crash``, the name of a function below and a count, e.g. ``half_event 3``."""
    spec = experiment(name).run(experiment(name).runs()[0])
    loop.CHECKPOINT_SHARE = float("inf")  # a checkpoint after each step, once one has been made
    step_module.compute_reward = avg_at_k.compute_reward = hash_reward
    if crash:
        function, count = crash.split()
        globals()[function](int(count))
    loop.train(spec, Layout(folder))


def nth(count: int, function, instead):
    """``function``, but ``instead`` at its count-th call."""
    calls = iter(range(1, 10**6))
    return lambda *args, **kwargs: (instead if next(calls) == count else function)(*args, **kwargs)


def half_event(count: int) -> None:
    """In the middle of a line of the step or validation log."""

    def write_half(path, event):
        with path.open("a") as log:
            log.write('{"step": 3, "clo')
        die()

    loop.append_event = nth(count, loop.append_event, write_half)


def after_event(count: int) -> None:
    """Right after a line of the step or validation log."""
    append = loop.append_event
    loop.append_event = nth(count, append, lambda *args: die(append(*args)))


def half_file(count: int) -> None:
    """In the middle of a file of verl's checkpoint or the teacher's."""

    def write_half(value, path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        die()

    torch.save = nth(count, torch.save, write_half)


def before_state(count: int) -> None:
    """A checkpoint whose tensors are written, but not its state."""
    checkpoints.write_json = nth(count, checkpoints.write_json, die)


def before_rename(count: int) -> None:
    """A checkpoint that is written whole, under its temporary name."""
    checkpoints.os = type("os", (), {"replace": nth(count, os.replace, die)})  # type: ignore[assignment]


def before_prune(count: int) -> None:
    """A new checkpoint beside old ones that have not been deleted yet."""
    checkpoints.prune = nth(count, checkpoints.prune, die)


def in_prune(count: int) -> None:
    """An old checkpoint that is deleted in part: its state is gone, its tensors are there."""
    unlink = Path.unlink

    def unlink_and_die(path, *args, **kwargs):
        unlink(path, *args, **kwargs)
        die()

    Path.unlink = nth(count, unlink, unlink_and_die)  # type: ignore[method-assign]


def in_rmtree(count: int) -> None:
    """An old checkpoint's folder that is deleted in part."""

    def remove_some(folder, *args, **kwargs):
        shutil.rmtree(Path(folder) / "huggingface", ignore_errors=True)
        die()

    kept = {"disk_usage": shutil.disk_usage}
    module = type("shutil", (), kept | {"rmtree": nth(count, shutil.rmtree, remove_some)})
    checkpoints.shutil = module  # type: ignore[assignment]


def before_summary(count: int) -> None:
    """Everything is done but the summary."""
    loop.write_json = nth(count, loop.write_json, die)
