"""The policy in a Ray cluster: verl's trainer starts workers and rollout servers, the project's loop drives them."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import ray
from transformers import AutoConfig
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from srpo.experiment.config import RunSpec, TransformerShape
from srpo.experiment.flops import model_cost
from srpo.policy.interface import Policy
from srpo.policy.servers import ServerRollout, server_errors, wait_until_idle
from srpo.policy.verl_config import compose_verl_config
from srpo.policy.verl_private import check_version, workers_only
from srpo.policy.worker import SRPOWorker
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.interface import SamplingParams
from srpo.rollout.sglang_protocol import ENVIRONMENT, vocabulary_size, with_programs


@register_trainer("srpo")
class RayPolicy(Policy, workers_only(PPOTrainerSync, SRPOWorker)):  # type: ignore[misc]  # verl names its base by class
    """A run's policy: a worker per device, rollout servers on the same devices.

    verl's own ``fit`` is not used: ``training/loop.py`` is the only training loop, for both drivers. Batches
    are as large as one step and go to the workers directly.
    """

    def on_init_end(self) -> None:
        """Take the group of workers, compute the model's cost, and connect to the rollout servers."""
        self.worker = self.actor_rollout_wg
        model = Path(self.config.actor_rollout_ref.model.path)
        config = AutoConfig.from_pretrained(model)
        self.cost = model_cost(TransformerShape.model_validate(config, from_attributes=True))
        self.positions = config.max_position_embeddings
        embedded = self.config.actor_rollout_ref.rollout.name == "embedded"
        addresses = self.llm_server_manager.get_addresses()
        servers = len(addresses) if embedded else 0
        self._sglang: list[str] = [] if embedded else addresses
        ends = end_tokens(model, self.tokenizer)
        self._rollout = ServerRollout(self.get_llm_client(), ends, vocabulary_size(model), servers)

    def warm_up(self) -> None:
        """A few requests to each server: at the first SGLang compiles kernels, for 20 to 30 s on an H100."""
        with self.sampling() as engine:
            engine.generate([[0]], SamplingParams(1.0, 2), [[*range(8 * self.config.trainer.n_gpus_per_node)]])

    @contextmanager
    def sampling(self) -> Iterator[ServerRollout]:
        """The rollout servers with the current weights; afterwards they free their device memory.

        Raises:
            ServersFailed: if a server has died or does not take the weights.
        """
        # no checkpoint after this: ranks that gather weights for a server wait for the rank whose server is gone
        with server_errors("sending weights", can_checkpoint=False):
            self.checkpoint_manager.update_weights()
        yield self._rollout
        # not after an error, which ends this policy: servers must not be put to sleep while they have requests
        wait_until_idle(self._sglang)
        with server_errors("putting servers to sleep", can_checkpoint=True):
            self.checkpoint_manager.sleep_replicas()


@contextmanager
def start(spec: RunSpec, model: Path) -> Iterator[RayPolicy]:
    """Start a Ray cluster for this run only, and the run's policy in it; stop both at the end."""
    check_version()
    config = compose_verl_config(spec, model.absolute())
    ranks, on_cpu = spec.execution.ranks, config.trainer.device == "cpu"
    runtime_env = get_ppo_ray_runtime_env(config)
    runtime_env["env_vars"] |= loader_path() | ENVIRONMENT | with_programs(os.environ)
    # Ray's 15 lets a server wait for all others on a busy machine
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _signals_for_this_process_only():
        ray.init(
            address="local",  # a new cluster, even if RAY_ADDRESS names another one
            _node_ip_address="127.0.0.1",  # rollout servers have no password, so they listen on this address only
            include_dashboard=False,
            log_to_driver=not on_cpu,
            # verl's placement requires both; CPUs are no limit, and without GPUs a "GPU" only counts a rank
            num_cpus=4 * (ranks + 2),
            num_gpus=ranks if on_cpu else None,
            object_store_memory=2**28 if on_cpu else None,
            runtime_env=runtime_env,
        )
    try:
        trainer = RayPolicy(config)
        trainer.init()
        yield trainer
    finally:
        ray.shutdown()


def loader_path() -> dict[str, str]:
    """``LD_LIBRARY_PATH`` with the CUDA runtime of torch's wheels; empty if there is none.

    verl makes SGLang preload its memory saver, which needs that library but has no path to it. Without the path a
    scheduler ends before its first log line.
    """
    nvidia = find_spec("nvidia")  # a namespace package: one folder per CUDA version
    roots = nvidia.submodule_search_locations or () if nvidia else ()
    folders = sorted({str(path.parent) for root in roots for path in Path(root).glob("*/lib/libcudart.so.*")})
    if not folders:
        return {}
    return {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


@contextmanager
def _signals_for_this_process_only() -> Iterator[None]:
    """Make child processes ignore the signals that a scheduler sends to every process of a job.

    Otherwise workers and servers would end in the middle of a step that this process finishes before it stops.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has installed its own handler
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
