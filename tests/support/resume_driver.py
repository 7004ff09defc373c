"""A tiny training run in a process of its own, which can be told where to be killed."""

import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import torch
from tiny import hash_reward, tiny_experiment

from srpo.ground.layout import Layout
from srpo.training import avg_at_k, checkpoints, loop
from srpo.training import step as step_module

STEPS = 6


def experiment(name: str):
    return tiny_experiment(name, max_steps=STEPS, validate_every=2, budget_seconds={"1h": 0.02, "10h": 1e9})


def die(*args, **kwargs) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(method: str, folder: Path, crash: str | None = None) -> None:
    """Train until the end or until ``crash``, one of :data:`CRASHES` and a count, e.g. ``half_event 3``."""
    spec = experiment(method).run(experiment(method).runs()[0])
    loop.CHECKPOINT_SHARE = float("inf")  # a checkpoint after each step, once one has been made
    step_module.compute_reward = avg_at_k.compute_reward = hash_reward
    if crash:
        name, count = crash.split()
        die_at(*CRASHES[name], int(count))
    loop.train(spec, Layout(folder))


def die_at(module, attribute: str, instead, count: int) -> None:
    """Make the count-th call of a module's function another; of ``os.replace``, those of this module alone count."""
    if "." in attribute:
        name, attribute = attribute.split(".")
        own = SimpleNamespace(**vars(getattr(module, name)))
        setattr(module, name, own)
        module = own
    function, calls = getattr(module, attribute), iter(range(1, 10**6))
    setattr(module, attribute, lambda *args, **kwargs: (instead if next(calls) == count else function)(*args, **kwargs))


def half_event(path: Path, event: object) -> None:
    with path.open("a") as log:
        log.write('{"step": 3, "clo')
    die()


def half_file(value: object, path: Path | str, *args, **kwargs) -> None:
    Path(path).write_bytes(b"half")
    die()


def remove_some(folder: Path | str, *args, **kwargs) -> None:
    shutil.rmtree(Path(folder) / "huggingface", ignore_errors=True)
    die()


APPEND, UNLINK = loop.append_event, Path.unlink

CRASHES = {
    # a line of the step or validation log
    "half_event": (loop, "append_event", half_event),
    "after_event": (loop, "append_event", lambda *args: die(APPEND(*args))),
    # verl's checkpoint or the teacher's: a file; all tensors without the state; all of it under its temporary name
    "half_file": (torch, "save", half_file),
    "before_state": (checkpoints, "write_json", die),
    "before_rename": (checkpoints, "os.replace", die),
    # a new checkpoint, and old ones that are there, without their state, or with some of their tensors
    "before_prune": (checkpoints, "prune", die),
    "in_prune": (Path, "unlink", lambda *args, **kwargs: die(UNLINK(*args, **kwargs))),
    "in_rmtree": (checkpoints, "shutil.rmtree", remove_some),
    # everything but the files of a finished run: its first, its last
    "before_end": (loop, "write_json", die),
}
"""Where a run can be killed: whose function, and what is done at its last call."""
