"""The policy in a Ray cluster: verl's trainer starts workers and rollout servers, the project's loop drives them."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import ray
from tensordict import TensorDict
from transformers import AutoConfig
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from srpo.config import Execution, RunSpec
from srpo.errors import SrpoError
from srpo.policy.outputs import model_cost
from srpo.policy.servers import ServerRollout, failing
from srpo.policy.verl_config import check_packages, compose_verl_config
from srpo.policy.verl_private import check_version, workers_only
from srpo.policy.worker import SRPOWorker
from srpo.rollout.sglang_server import stop_token_ids


@register_trainer("srpo")
class SRPOTrainer(workers_only(PPOTrainerSync, SRPOWorker)):
    """A run's policy (:class:`srpo.training.phases.Policy`): one worker a device, rollout servers on the same devices.

    verl's own ``fit`` is not used: ``training/loop.py`` is the one training loop, here as in one process. Batches
    are as large as one step and go to the workers directly.
    """

    def on_init_end(self) -> None:
        """Weights go to the servers when rollouts are asked for, not at start."""
        model = Path(self.config.actor_rollout_ref.model.path)
        self.cost = model_cost(AutoConfig.from_pretrained(model))
        embedded = self.config.actor_rollout_ref.rollout.name == "embedded"
        servers = len(self.llm_server_manager.get_addresses()) if embedded else 0
        self._rollout = ServerRollout(self.get_llm_client(), stop_token_ids(model), servers)

    @contextmanager
    def sampling(self) -> Iterator[ServerRollout]:
        """The rollout servers with the present weights; afterwards they free their devices.

        Raises:
            ServersFailed: if a server has died or does not take the weights.
        """
        # not whole: ranks that gather weights for a server wait for the one whose server is gone
        with failing("sending weights", policy_is_whole=False):
            self.checkpoint_manager.update_weights()
        yield self._rollout
        # not after an error, which ends this policy: servers must not be put to sleep over requests
        with failing("putting servers to sleep", policy_is_whole=True):
            self.checkpoint_manager.sleep_replicas()

    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """The student's pass before the update."""
        return self.actor_rollout_wg.compute_log_prob(batch)

    def compute_teacher_log_prob(self, batch: TensorDict) -> TensorDict:
        """The teacher's pass."""
        return self.actor_rollout_wg.compute_teacher_log_prob(batch)

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """One optimiser step per mini-batch."""
        return self.actor_rollout_wg.update_actor(batch)

    def compute_gradient_norm(self, batch: TensorDict) -> TensorDict:
        """The gradient norm of an update that is not made."""
        return self.actor_rollout_wg.compute_gradient_norm(batch)

    def save_checkpoint(self, folder: Path, step: int) -> None:
        """Write weights, optimiser, schedule and teacher below ``folder``, which all ranks must see."""
        self.actor_rollout_wg.save_checkpoint(str(folder.absolute()), None, step)

    def load_checkpoint(self, folder: Path) -> None:
        """Restore what :meth:`save_checkpoint` wrote."""
        self.actor_rollout_wg.load_checkpoint(str(folder.absolute()))


@contextmanager
def start(spec: RunSpec, model: Path) -> Iterator[SRPOTrainer]:
    """Start a Ray cluster of this run alone, and the run's policy in it; stop both at the end."""
    check_version()
    check_packages(spec.execution)
    check_device_names(spec.execution)
    config = compose_verl_config(spec, model.absolute())
    ranks, on_cpu = spec.execution.ranks, config.trainer.device == "cpu"
    runtime_env = get_ppo_ray_runtime_env(config)
    runtime_env["env_vars"] |= loader_path()
    with _signals_for_this_process_only():
        ray.init(
            address="local",  # never somebody else's cluster, whatever RAY_ADDRESS says
            _node_ip_address="127.0.0.1",  # rollout servers, which ask for no password, bind to it
            include_dashboard=False,
            log_to_driver=not on_cpu,
            # verl's placement asks for both; CPUs are no limit, and where there is no GPU it is a name for a rank
            num_cpus=4 * (ranks + 2),
            num_gpus=ranks if on_cpu else None,
            object_store_memory=2**28 if on_cpu else None,
            runtime_env=runtime_env,
        )
    try:
        found = int(ray.cluster_resources().get("GPU", 0))
        if found != ranks:  # another run's cluster would hand out the others, not knowing which are taken
            raise SrpoError(
                f"execution.ranks = {ranks}: {found} GPUs are visible; let CUDA_VISIBLE_DEVICES name {ranks}"
            )
        trainer = SRPOTrainer(config)
        trainer.init()
        yield trainer
    finally:
        ray.shutdown()


def check_device_names(execution: Execution) -> None:
    """Whether GPUs are named by numbers, where SGLang is to run.

    Raises:
        SrpoError: for UUIDs and names of parts of GPUs.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    by_number = all(part.strip().isdigit() for part in named.split(",") if part.strip())
    if execution.rollout_engine == "sglang" and not by_number:
        raise SrpoError(f"CUDA_VISIBLE_DEVICES = {named}: verl starts SGLang's servers by number, as in 0,1")


def loader_path() -> dict[str, str]:
    """``LD_LIBRARY_PATH`` with the CUDA runtime that torch's wheels bring; nothing where there is none.

    verl has SGLang preload its memory saver, which needs that library and does not say where it lies: without the
    path a scheduler ends before its first line.
    """
    nvidia = find_spec("nvidia")  # a namespace package: one folder a CUDA version
    roots = nvidia.submodule_search_locations or () if nvidia else ()
    folders = sorted({str(path.parent) for root in roots for path in Path(root).glob("*/lib/libcudart.so.*")})
    if not folders:
        return {}
    return {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


@contextmanager
def _signals_for_this_process_only() -> Iterator[None]:
    """Let what is started here ignore the signals that a scheduler sends to a job's every process.

    Workers and servers would die of them in the middle of the step that this process finishes before it stops.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has taken it for itself
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
