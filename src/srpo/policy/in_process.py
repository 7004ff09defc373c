"""The policy in this process: verl's worker with one rank and the embedded engine; no Ray, no ports."""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from srpo.experiment.config import RunSpec, TransformerShape
from srpo.experiment.flops import model_cost
from srpo.ground.machine import keep_freed_memory
from srpo.policy.interface import Policy
from srpo.policy.verl_config import compose_verl_config
from srpo.policy.worker import SRPOWorker
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.embedded import EmbeddedEngine

_ONE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


class InProcessPolicy(Policy):
    """A run's policy; one torch thread, as runs share a machine's cores."""

    def __init__(self, spec: RunSpec, model: Path) -> None:
        os.environ.update(_ONE_RANK)
        torch.set_num_threads(1)
        keep_freed_memory()
        torch.manual_seed(spec.id.seed)
        config = compose_verl_config(spec, model)
        with _quiet():
            self.worker = SRPOWorker(config=config.actor_rollout_ref, role="actor")
            self.worker.init_model()
        model_config = self.worker.actor.engine.model_config
        self.tokenizer = model_config.tokenizer
        self.cost = model_cost(TransformerShape.model_validate(model_config.hf_config, from_attributes=True))
        self.positions = model_config.hf_config.max_position_embeddings
        ends = end_tokens(model, self.tokenizer), self.tokenizer.pad_token_id
        self._engine = EmbeddedEngine(model_config.hf_config, *ends, spec.execution.precision)

    @contextmanager
    def sampling(self) -> Iterator[EmbeddedEngine]:
        self._engine.update_weights(self.worker.actor.engine.get_per_tensor_param()[0])
        yield self._engine


@contextmanager
def start(spec: RunSpec, model: Path) -> Iterator[InProcessPolicy]:
    """Build a run's policy on its base model."""
    yield InProcessPolicy(spec, model)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep verl's many messages out of the run's log."""
    logging.getLogger("torch.fx").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
