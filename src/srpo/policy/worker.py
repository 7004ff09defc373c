"""verl's actor worker with the self-teacher and the SRPO loss; and the log-probs that stay with it.

Log-probs are large, 1.2 kB for each token of the teacher's pass at K = 100, and only workers read them. So a step gives
each rollout to one rank for all of its passes (``placement.py``): the pass that computes them keeps them, and a later
pass finds them where they are. A batch names the rollouts in its entry ``kept`` (``batches.kept_entry``).
"""

import os
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.memory_utils import aggressive_empty_cache
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine_workers import ActorRolloutRefWorker

from srpo.algorithm.branches import BRANCHES, DROPPED, index_of
from srpo.algorithm.distribution import top_k_with_tail
from srpo.algorithm.method import Method
from srpo.algorithm.objective import Losses, branch_losses, objective
from srpo.algorithm.targets import WorkerTargets
from srpo.policy import self_teacher_engine as _engine  # noqa: F401  registers the engine
from srpo.policy.batches import NOT_KEPT, jagged_of_parts, split_row, unpack_targets
from srpo.policy.interface import DEVICE_MEMORY
from srpo.policy.verl_private import check_version, load_language_models, make_folders_without_locks

KEPT = {"top_k_ids": torch.int64, "student_log_probs": torch.float32, "teacher_log_probs": torch.float32}
"""Outputs of the engine's passes that stay on the worker, and their types."""


class KeptLogProbs:
    """One rank's log-probs and ids of the rollouts of one step, in host memory."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._kept: dict[str, dict[int, Tensor]] = {}

    def keep(self, data: TensorDict, output: TensorDict) -> None:
        """Take what stays here out of the output of a pass, and forget what an earlier step left."""
        self._forget_other_steps(data)
        for name in [name for name in KEPT if name in output]:
            flat, found = output.pop(name), self._kept.setdefault(name, {})
            rows = flat.values().split(flat.offsets().diff().tolist())
            for lengths, row in zip(kept_lengths(data), rows, strict=True):
                found |= split_row(row, lengths)

    def add(self, data: TensorDict, name: str, fillers: bool = False) -> None:
        """Add what is kept of the batch's rollouts to the batch, as an entry of flat rows.

        Args:
            fillers: give rows without rollouts, which have one token, ids of the teacher's pass.
        """
        self._forget_other_steps(data)
        kept, by_row = self.of(name), kept_lengths(data)
        rows = [[kept[rollout] for rollout in lengths] for lengths in by_row]
        if fillers:
            rollout, length = next((item for lengths in by_row for item in lengths.items()), (None, 1))
            columns = 1 if rollout is None else len(kept[rollout]) // length
            rows = [row or [torch.arange(columns)] for row in rows]
        data[name] = jagged_of_parts(rows, KEPT[name])

    def of(self, name: str) -> dict[int, Tensor]:
        """[tokens * columns] by rollout; empty if nothing is kept."""
        return self._kept.get(name, {})

    def _forget_other_steps(self, data: TensorDict) -> None:
        step = tu.get_non_tensor_data(data, "step", default=None)
        if step != self._step:
            self._step, self._kept = step, {}


def kept_lengths(data: TensorDict) -> list[dict[int, int]]:
    """For each row of a batch: tokens of the response, by rollout, of the rollouts whose log-probs are kept."""
    return [
        {rollout: length for rollout, length in zip(own.tolist(), lengths.tolist(), strict=True) if rollout != NOT_KEPT}
        for own, lengths in zip(data["kept"].unbind(), data["response_lengths"].unbind(), strict=True)
    ]


def srpo_loss(method: Method, model_output: dict, data: TensorDict, dp_group: object = None) -> tuple[Tensor, dict]:
    """Section 3.3's objective on one micro-batch.

    verl counts ``loss_mask`` over the mini-batch and all ranks into ``batch_num_tokens``; the driver sends exactly the
    rollouts that take a branch with a loss, so this count is the objective's denominator. FSDP averages gradients
    over ranks, hence the factor ``dp_size``.

    Returns:
        The loss and sums (not means) over the micro-batch, which add up over micro-batches. verl averages sums over
        ranks, too. So the sums of losses are multiplied by ``dp_size``; all other sums are used as ratios only
        (``interface.update_metrics``).
    """
    targets = unpack_targets(data)
    student = model_output.get("student_log_probs")  # None if the micro-batch has no distilled token
    if student is not None and not targets.top_k_ids.shape[1]:  # the update has selected the top K
        ids = model_output["top_k_ids"]
        targets = replace(targets, top_k_ids=ids, teacher_log_probs=top_k_with_tail(targets.teacher_log_probs, ids))
    losses = branch_losses(method, targets, model_output["log_probs"], student)
    denominator = data["batch_num_tokens"] / data["dp_size"]
    values = {f"loss/{name}": (loss.detach() / denominator).item() for name, loss in losses.by_branch.items()}
    values |= {f"sum/{name}": value.item() for name, value in _sums(targets, losses).items()}
    metrics = {name: Metric(value=value, aggregation=AggregationType.SUM) for name, value in values.items()}
    return objective(losses, denominator), metrics


def _sums(targets: WorkerTargets, losses: Losses) -> dict[str, Tensor]:
    """What the logged means are ratios of; each micro-batch of each rank has all of them, as verl averages them."""
    trained = targets.branch != index_of(DROPPED.name)  # false for filler rows
    mismatch = (losses.old_log_prob - targets.rollout_log_prob)[trained].double()
    return {
        "trained_tokens": trained.sum(),
        "rollout_is_weight": losses.rollout_is_weight[trained].sum(),
        "log_prob_difference_squared": mismatch.square().sum(),
        "policy_tokens": losses.policy_tokens,
        "clipped_tokens": losses.clipped,
        "distilled_tokens": torch.tensor(len(losses.divergence)),
        "divergence": losses.divergence.sum(),
    }


COLLECTIVE_SECONDS = 1800
"""How long ranks wait for each other: the checkpoint of Qwen3-8B, 147 GB, takes 295 s at 0.5 GB/s."""


class SRPOWorker(ActorRolloutRefWorker):
    """One rank of the policy. Its configuration carries the method under ``srpo``."""

    def __init__(self, config: Any, role: str, **kwargs: Any) -> None:
        check_version()
        make_folders_without_locks()
        load_language_models()
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
        """verl's update with what is kept; on GPUs its metrics have the memory use (``interface.DEVICE_MEMORY``)."""
        self.kept.add(data, "top_k_ids")
        self.kept.add(data, "teacher_log_probs")
        del data["kept"]
        output = super().update_actor(data)
        self.actor.engine.end_batch()
        # a collective: every rank takes part
        more = {} if get_device_name() == "cpu" else _worst_device_memory()
        if output is not None:
            tu.assign_non_tensor_data(output, "metrics", tu.get(output, "metrics") | more)
        return output

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_teacher_log_prob(self, data: TensorDict) -> TensorDict:
        """The teacher's pass: log-probs of the tokens, entropy; the teacher's distributions stay here.

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
