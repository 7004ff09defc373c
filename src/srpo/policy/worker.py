"""verl's actor worker with the self-teacher and the SRPO loss."""

import os
from functools import partial

import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils.device import get_device_name
from verl.utils.memory_utils import aggressive_empty_cache
from verl.workers.engine_workers import ActorRolloutRefWorker

from srpo.config import Method
from srpo.policy import engine as _engine  # noqa: F401  registers the engine
from srpo.policy.loss import srpo_loss
from srpo.policy.verl_private import check_version


class SRPOWorker(ActorRolloutRefWorker):
    """One rank of the policy. Its configuration carries the method under ``srpo``."""

    def __init__(self, config, role: str, **kwargs) -> None:
        check_version()
        if get_device_name() == "cpu" and not torch.distributed.is_initialized():
            # verl would ask for "cpu:gloo,cpu:gloo", which torch refuses
            rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            store = torch.distributed.HashStore() if world_size == 1 else None
            torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
        super().__init__(config=config, role=role, **kwargs)
        if "rollout" in role:
            from srpo.policy import servers as _servers  # noqa: F401  registers the embedded engine

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Build the student, its teacher if the method needs one, and install the loss."""
        super().init_model()
        method = Method.model_validate_json(self.config.srpo)
        if method.routing.needs_teacher:
            self.actor.engine.attach_teacher(method.teacher_ema_rate, self.config.offload_teacher)
            aggressive_empty_cache(force_sync=True)  # SGLang sizes its cache by what is free when it starts
        self.actor.set_loss_fn(partial(srpo_loss, method))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_gradient_norm(self, data: TensorDict) -> TensorDict:
        """An update's metrics, among them its gradient norm before clipping, without the update."""
        with self.actor.engine.measuring_gradients():
            return self.update_actor(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_teacher_log_prob(self, data: TensorDict) -> TensorDict:
        """Score responses under the teacher: its log-probs at given ids, tail, entropy and token log-probs."""
        with self.actor.engine.teacher_in_place():
            output = self.actor.infer_batch(data)
        return output.cpu() if output is not None else None
