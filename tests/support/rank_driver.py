"""One rank of several that compute a step together, without Ray: python rank_driver.py FOLDER RANK WORLD_SIZE

FOLDER holds splits and models (``base``), rollouts (``rollouts.pt``) and cases, each a method and options of
:func:`one_step.build_run` (``cases.json``). Rank 0 writes the numbers of each case's step to ``FOLDER/<i>.pt``.
"""

import faulthandler
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from one_step import build_run, numbers
from verl.utils import tensordict_utils as tu

from srpo.experiment.config import TransformerShape
from srpo.experiment.flops import model_cost
from srpo.ground.layout import Layout
from srpo.policy.verl_config import compose_verl_config
from srpo.policy.worker import SRPOWorker

HANGS_AFTER = 600  # seconds; all cases take 25 on idle cores. Then the stacks of all threads go to stderr


class RankPolicy:
    """:class:`srpo.policy.interface.Policy` on every rank: each computes its part, all see the whole.

    Parts are cut and joined by what verl's dispatch does in a cluster.
    """

    def __init__(self, spec, model) -> None:
        torch.set_num_threads(1)
        self.worker = SRPOWorker(config=compose_verl_config(spec, model).actor_rollout_ref, role="actor")
        self.worker.init_model()
        model_config = self.worker.actor.engine.model_config
        shape = TransformerShape.model_validate(model_config.hf_config, from_attributes=True)
        self.tokenizer, self.cost = model_config.tokenizer, model_cost(shape)
        self.positions = model_config.hf_config.max_position_embeddings
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def part(self, batch):
        return tu.chunk_tensordict(batch, self.ranks)[self.rank]

    def joined(self, output):
        parts = [None] * self.ranks
        torch.distributed.all_gather_object(parts, output)
        return tu.concat_tensordict(parts)

    def compute_log_prob(self, batch):
        return self.joined(self.worker.compute_log_prob(self.part(batch)))

    def compute_teacher_log_prob(self, batch):
        return self.joined(self.worker.compute_teacher_log_prob(self.part(batch)))

    def update_actor(self, batch):
        return self.worker.update_actor(self.part(batch))


@contextmanager
def process_group(folder: Path, rank: int, world_size: int):
    """Ranks that find each other through a file: no port is opened for it."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # verl wants to see them
    store = torch.distributed.FileStore(str(folder / "store"), world_size)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    yield
    torch.distributed.destroy_process_group()


def assert_sharded(engine, world_size: int) -> None:
    """Each rank holds its share of the weights, and gives up the others' after each layer's forward pass."""
    assert engine.engine_config.reshard_after_forward
    for module in (engine.module, engine.teacher):
        for parameter in module.parameters() if module is not None else ():
            assert parameter.to_local().numel() * world_size == parameter.numel()


def main(folder: Path, rank: int, world_size: int) -> None:
    cases = json.loads((folder / "cases.json").read_text())
    rollouts = torch.load(folder / "rollouts.pt", weights_only=False)
    with process_group(folder, rank, world_size):
        for i, (name, options) in enumerate(cases):
            run = build_run(Layout(folder / "base"), folder / f"{rank}-{i}", name, policy=RankPolicy, **options)
            assert_sharded(run.policy.worker.actor.engine, world_size)
            found = numbers(run, rollouts)
            if rank == 0:
                torch.save(found, folder / f"{i}.pt")


if __name__ == "__main__":
    faulthandler.enable()  # a segmentation fault says where, too
    faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
