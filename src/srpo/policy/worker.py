"""verl's actor worker with the self-teacher and the SRPO loss."""

import os
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.flops_counter import get_device_flops
from verl.utils.memory_utils import aggressive_empty_cache
from verl.workers.engine_workers import ActorRolloutRefWorker

from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.method import Method
from srpo.policy import self_teacher_engine as _engine  # noqa: F401  registers the engine
from srpo.policy.batches import jagged_of_parts
from srpo.policy.kept_log_probs import KeptLogProbs, kept_lengths
from srpo.policy.loss import srpo_loss
from srpo.policy.outputs import DEVICE_FLOPS, DEVICE_MEMORY
from srpo.policy.verl_private import check_version, make_folders_without_locks

COLLECTIVE_SECONDS = 1800
"""How long ranks wait for each other: the checkpoint of Qwen3-8B, 147 GB, takes 295 s at 0.5 GB/s."""


class SRPOWorker(ActorRolloutRefWorker):
    """One rank of the policy. Its configuration carries the method under ``srpo``."""

    def __init__(self, config: Any, role: str, **kwargs: Any) -> None:
        check_version()
        make_folders_without_locks()
        if get_device_name() == "cpu" and not torch.distributed.is_initialized():
            # verl would request "cpu:gloo,cpu:gloo", which torch refuses
            rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            store = torch.distributed.HashStore() if world_size == 1 else None
            torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
        initialize_global_process_group_ray(timeout_second=COLLECTIVE_SECONDS)  # before verl does, with 10 minutes
        # With cuDNN 9.19, torch 2.11 prefers it on Hopper and Blackwell. It compiles a graph for each new shape, and
        # nearly every micro-batch of shared prompts has one.
        torch.backends.cuda.enable_cudnn_sdp(False)
        super().__init__(config=config, role=role, **kwargs)
        self.kept = KeptLogProbs()
        if "rollout" in role:
            from srpo.policy import servers as _servers  # noqa: F401  registers the embedded engine

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Build the student, its teacher if the method needs one, and install the loss."""
        super().init_model()
        self._method = method = Method.model_validate_json(self.config.srpo)
        if method.needs_teacher:
            self.actor.engine.attach_teacher(method.teacher, method.teacher_update_rate, self.config.offload_teacher)
            aggressive_empty_cache(force_sync=True)  # SGLang sizes its cache by the memory that is free when it starts
        self.actor.set_loss_fn(partial(srpo_loss, method))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_weights(self, local_path: str) -> None:
        self.actor.engine.save_weights(local_path)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: TensorDict) -> TensorDict:
        """verl's pass; the student's top K stay here."""
        output = super().compute_log_prob(data)
        self.kept.keep(data, output)
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict:
        """verl's update with what is kept; its metrics also have how far the teacher is from the student after it.

        On GPUs they have the memory use (``outputs.DEVICE_MEMORY``) and the FLOP/s of the card too, if verl knows it.
        """
        output = self._update(data)
        self.actor.engine.end_batch()
        # collectives: every rank takes part
        more = {} if get_device_name() == "cpu" else _worst_device_memory() | {DEVICE_FLOPS: get_device_flops("B")}
        if self._method.needs_teacher:
            more["teacher/distance"] = self.actor.engine.teacher_distance()
        if output is not None:
            tu.assign_non_tensor_data(output, "metrics", tu.get(output, "metrics") | more)
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_gradient_norm(self, data: TensorDict) -> TensorDict:
        """An update's metrics, among them its gradient norm before clipping, without the update."""
        with self.actor.engine.measuring_gradients():
            return self._update(data)

    def _update(self, data: TensorDict) -> TensorDict:
        self.kept.add(data, "top_k_ids")
        self.kept.add(data, "teacher_log_probs")
        del data["kept"]
        return super().update_actor(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_teacher_log_prob(self, data: TensorDict) -> TensorDict:
        """The teacher's pass: log-probs of the tokens, entropy and argmax; the teacher's distributions stay here.

        They are on the student's top K if those were kept (the batch's option ``on_top_k``), else whole. If the
        batch has the rollouts' branches, the output has the ``divergence`` between student and teacher.
        """
        if tu.get_non_tensor_data(data, "on_top_k", default=False):
            self.kept.add(data, "top_k_ids", fillers=True)
        with self.actor.engine.teacher_in_place():
            output = self.actor.infer_batch(data)
        self.kept.keep(data, output)
        if "branch" in data:
            output["divergence"] = self._divergences(data)
        return output

    def _divergences(self, data: TensorDict) -> Tensor:
        """Rows of D_t at the start of the batch, by the rollouts' branches; 0 where a branch has no divergence."""
        student, teacher = self.kept.of("student_log_probs"), self.kept.of("teacher_log_probs")
        branches, rows = [*BRANCHES.values()], []
        for lengths, row_branches in zip(kept_lengths(data), data["branch"].unbind(), strict=True):
            parts = []
            for (rollout, length), index in zip(lengths.items(), row_branches.tolist(), strict=True):
                p, q = (log_probs[rollout].unflatten(0, (length, -1)) for log_probs in (student, teacher))
                branch = branches[index]
                distils = branch.loss == "distillation"
                parts.append(branch.divergence_function(self._method, p, q) if distils else torch.zeros(length))
            rows.append(parts)
        return jagged_of_parts(rows)


def _worst_device_memory() -> dict[str, float]:
    """GiB, the worst over ranks. The allocator keeps what an update reserved, so that little is free after it."""
    device = get_torch_device()
    now = [-device.max_memory_allocated(), -device.max_memory_reserved(), device.mem_get_info()[0]]
    worst = torch.tensor(now, dtype=torch.float64, device=get_device_id())
    torch.distributed.all_reduce(worst, torch.distributed.ReduceOp.MIN)
    return dict(zip(DEVICE_MEMORY, (worst.abs() / 2**30).tolist(), strict=True))
