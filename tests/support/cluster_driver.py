"""A tiny training run through Ray in a process of its own, which sends itself a signal after an event of its logs.

python cluster_driver.py FOLDER RANKS EVENT SIGNAL
"""

import os
import signal
import sys
from pathlib import Path

from tiny import hash_reward, tiny_experiment

from srpo.ground.layout import Layout
from srpo.training import avg_at_k, loop
from srpo.training import step as step_module
from srpo.training.interruption import Interrupted


def experiment(ranks: int):
    """SRPO for 4 steps of 2 updates, validated and saved after each second; ``ranks = 0``: the in-process driver."""
    execution = {"driver": "ray", "ranks": ranks} if ranks else {}
    if ranks > 1:
        execution |= {"max_tokens_per_rank": 300, "offload_teacher": True}
    return tiny_experiment("srpo", execution, {"mini_batch_questions": 2}, validate_every=2)


if __name__ == "__main__":
    folder, ranks, event = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    number = signal.Signals[sys.argv[4]]
    append, events = loop.append_event, iter(range(1, 100))

    def append_and_signal(path, record):
        append(path, record)
        if next(events) == event:
            # a scheduler's signal reaches every process of the job
            os.killpg(0, number) if number != signal.SIGKILL else os.kill(os.getpid(), number)

    loop.append_event = append_and_signal
    step_module.compute_reward = avg_at_k.compute_reward = hash_reward
    spec = experiment(ranks).run(experiment(ranks).runs()[0])
    try:
        loop.train(spec, Layout(folder))
    except Interrupted:
        sys.exit(os.EX_TEMPFAIL)
