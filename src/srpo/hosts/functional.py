"""The method for your own training loop: routing, weights, branches and denominator of a mini-batch in one call.

They need torch, and neither verl, Ray, Snakemake nor MLflow. The package exports them: ``srpo.loss``, ``srpo.route``,
``srpo.load_method``, and ``srpo.teacher_messages`` for the teacher's prompt. ``examples/`` shows their use.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import yaml
from torch import Tensor

from srpo.algorithm import routing
from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.branches import logged_branches
from srpo.algorithm.diagnostics import weight_metrics
from srpo.algorithm.distribution import LOWEST, entropy, token_and_top_k_log_probs, top_k_ids
from srpo.algorithm.method import Method, patched
from srpo.algorithm.objective import branch_losses, objective
from srpo.algorithm.targets import NOT_COMPUTED, WorkerTargets
from srpo.algorithm.weighting import dynamic_weights, group_spread, preserve_loss_scale, unscaled_weights
from srpo.ground.repository import method_files

Values: TypeAlias = Tensor | Sequence[Tensor | None]
"""By rollout and token: padded, [rollouts, tokens, ...]; or ragged, one [response, ...] for each rollout."""


def load_method(name: str = "srpo", **changes: Any) -> Method:
    """A method of ``configs/methods``, with the paper's hyperparameters (tables 3 and 7) except for ``changes``.

    A change of a routing table needs only the cases that differ: ``routing={"wrong_with_sibling": "grpo"}``.
    """
    files = method_files()

    def read(wanted: str) -> dict[str, Any]:
        return patched(yaml.safe_load(files[wanted].read_bytes()), read)

    return Method.model_validate(patched({**changes, "extends": name}, read) | {"name": name})


def route(
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[Hashable],
    method: str | Method = "srpo",
    step: int | None = None,
    earlier: Tensor | Sequence[bool] | None = None,
    *,
    correct: Tensor | Sequence[bool] | float | None = None,
) -> routing.Routes:
    """Which branch each rollout takes, and which rollouts the teacher is asked about (section 3.1, table 7).

    Call it before the teacher's pass. The teacher reads the rollouts in ``uses_teacher``, each after the student's
    question enriched (:func:`srpo.questions.prompts.teacher_messages`) with the response of ``shown_sibling``, if that
    is not ``NO_SIBLING`` (-1), or with the right response of the data where ``shown_truth`` is true; or after the
    question alone if neither is shown.

    Args:
        rewards: [rollouts] 1 for a correct rollout and 0 for a wrong one; any finite numbers if ``correct`` is given.
        groups: [rollouts] an id of the question: numbers, or anything hashable, such as verl's ``uid``.
        method: a name of ``configs/methods`` or a :class:`~srpo.algorithm.method.Method`.
        step: the number of the training step, from 1, which a method with a second table needs.
        earlier: [rollouts] whether you have a correct response of an earlier step to show, for a method with a
            ``success_buffer``; None: of none. The teacher is shown it where ``shown_earlier`` is true.
        correct: which rollouts are correct: [rollouts] true and false, or the least reward of a correct one. None:
            those with the reward 1, if all others have 0.

    Raises:
        ValueError: if values are not of the same rollouts, a reward is neither 0 nor 1 and ``correct`` is not given,
            the method has a second table and no step is given, or it shows no ``earlier`` and gets one.
    """
    method = _at(_method(method), step)
    rewards, groups = as_tensors(rewards, groups)
    return _routes(method, _correct(rewards, correct), groups, earlier)


@dataclass(frozen=True)
class Totals:
    """Sums over a mini-batch that a part of it cannot know; the sums of parts add up.

    Attributes:
        tokens: of the rollouts that take a branch: the denominator.
        distilled: how many of these are distilled.
        weight: the sum of their weights before these have the mean 1.
    """

    tokens: int = 0
    distilled: int = 0
    weight: float = 0.0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.tokens + other.tokens, self.distilled + other.distilled, self.weight + other.weight)

    def __radd__(self, other: int) -> Totals:
        return self if other == 0 else NotImplemented  # what sum() begins with

    @property
    def scale(self) -> float:
        """What gives the weights the mean 1."""
        return self.distilled / self.weight if self.weight else 0.0


def totals(
    lengths: Tensor | Sequence[int],
    entropies: Sequence[Tensor | None] | None,
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[Hashable],
    method: str | Method = "srpo",
    step: int | None = None,
    *,
    earlier: Tensor | Sequence[bool] | None = None,
    correct: Tensor | Sequence[bool] | float | None = None,
    rows: Tensor | Sequence[int] | None = None,
) -> Totals:
    """What :func:`loss` has to know of a whole mini-batch if it gets a part of it.

    Args:
        lengths: [rollouts] how many response tokens each rollout of ``rows`` has.
        entropies: for each rollout of ``rows``, [response] the teacher's entropies in nats (:func:`entropy` of its
            logits); only those of distilled rollouts are read. None if ``method.weights_tokens`` is false.
        rewards, groups, method, step, earlier, correct, rows: as in :func:`loss`.
    """
    method = _at(_method(method), step)
    rewards, groups = as_tensors(rewards, groups)
    right = _correct(rewards, correct)
    own = _rows(rows, len(rewards))
    routes = _routes(method, right, groups, earlier).of(own)
    lengths = torch.as_tensor(lengths).cpu()
    distilled = int(lengths[routes.distilled].sum())
    weight = float(distilled)
    if method.weights_tokens:
        spread, weight = group_spread(right, groups)[own], 0.0
        for row in routes.distilled.nonzero().flatten().tolist():
            nats = entropies[row]  # type: ignore[index]  # None without weights only
            # NaN, or a log in place of an entropy, would be a weight of every other token
            if nats is None or nats.shape != (lengths[row],) or not ((nats > -1e-3) & nats.isfinite()).all():
                what = f"entropies: give {int(lengths[row])} finite ones from 0"
                raise ValueError(f"{what}, one for each token of rollout {row}")
            of_group = spread[row].expand(len(nats)).to(nats.device) if method.group_weight == "spread" else None
            weight += unscaled_weights(nats, method.entropy_beta, of_group).sum().item()
    return Totals(int(lengths[~routes.dropped].sum()), distilled, weight)


def loss(
    logits: Values,
    teacher_logits: Values | None,
    response_ids: Values,
    response_mask: Tensor | None,
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[Hashable],
    method: str | Method = "srpo",
    *,
    old_log_probs: Values | None = None,
    rollout_log_probs: Values | None = None,
    step: int | None = None,
    earlier: Tensor | Sequence[bool] | None = None,
    correct: Tensor | Sequence[bool] | float | None = None,
    rows: Tensor | Sequence[int] | None = None,
    of_all: Totals | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The objective of section 3.3 on one whole mini-batch, or on a part of it: minimise it.

    Inside are the routing (3.1), the group advantages and the clipped loss (2.1), the top-K divergence from the
    self-teacher (2.2), the dynamic weights of mean 1 (3.2), and the one denominator: all tokens that take a branch.
    Advantages, weights and denominator are of the rollouts given here. So give all rollouts of a mini-batch in one
    call, with every group whole. Or give the rewards of all rollouts and the other values of ``rows``, a micro-batch,
    with the mini-batch's :func:`totals`: then the sum over micro-batches is the objective, on several processes too.

    What the caller does:

    - the teacher is an exponential moving average of the student: after the last optimizer step of each batch, move it
      by the method's ``teacher_update_rate`` (table 3). docs/method.md says what another ``method.teacher`` asks for;
    - it reads the same response tokens after a prompt that shows a correct sibling, which :func:`route` chooses;
    - logits are those that predict the response tokens, divided by the sampling temperature. Those of a masked
      vocabulary may be -inf.

    Args:
        logits: [rollouts, tokens, vocabulary] of the student, any float dtype, with gradients; log-probs do as well. Or
            ragged: a list with [response, vocabulary] for each rollout; then all other values by token are lists too.
        teacher_logits: of the same tokens under the teacher's prompt; constants. Only rollouts in
            ``route(...).uses_teacher`` are read; the others may be None in a list. None if no rollout uses it.
        response_ids: int64 [rollouts, tokens], the sampled tokens.
        response_mask: [rollouts, tokens], true or 1 for tokens of the response, the end of sequence included. None if
            ragged.
        rewards, groups, method: as in :func:`route`.
        old_log_probs: [rollouts, tokens] log pi_old of the sampled tokens, from the trainer before the first update of
            the batch; None if this is its only update. The top K are the student's at this update.
        rollout_log_probs: likewise from the rollout engine, for the rollout correction; None: no correction.
        step, earlier, correct: as in :func:`route`. Advantages are of the rewards, routing and
            ``group_weight`` of ``correct``. If it is a number that no reward reaches, all rollouts are wrong ones
            without a sibling, without an error: SRPO is GRPO then.
        rows: int64, which rollouts the values by token are of, in their order; None: of all.
        of_all: :func:`totals` of the mini-batch, which ``rows`` are a part of.

    Returns:
        The loss, a float32 scalar with gradients, exactly 0 if no rollout takes a branch; and metrics: ``loss/BRANCH``,
        whose sum over the branches is the loss, ``routing/BRANCH_fraction`` of the rollouts, means over the tokens
        concerned of the clip fraction, the rollout correction, the divergence and the teacher's entropy in nats, and
        the weights' quantiles.

    Raises:
        ValueError: as :func:`route`; if a group has one rollout, values are not of the same rollouts, tokens and
            vocabulary, or not on one device, a rollout that uses the teacher has no logits of the teacher, a sampled
            token has no finite log-prob, or the loss is not finite.
    """
    method = _at(_method(method), step)
    rewards, groups = as_tensors(rewards, groups)
    right = _correct(rewards, correct)
    if (rows is None) != (of_all is None):
        raise ValueError("rows and of_all go together: a part of a mini-batch, and the totals of all of it")
    if of_all is not None and method.preserve_loss_scale:
        raise ValueError(f"method {method.name}: preserve_loss_scale needs the whole mini-batch in one call")
    own = _rows(rows, len(rewards))
    values = (logits, teacher_logits, response_ids, response_mask, old_log_probs, rollout_log_probs)
    _check_alike(len(own), [each for each in values if each is not None])
    routes = _routes(method, right, groups, earlier).of(own)
    if teacher_logits is None and routes.uses_teacher.any():
        raise ValueError(f"method {method.name}: the teacher's logits are missing")
    every = torch.ones(len(own), dtype=torch.bool)
    student = _flat("logits", logits, response_mask, every)
    _check_logits("logits", student)
    ids = _flat("response_ids", response_ids, response_mask, every)
    if response_mask is not None and ((response_mask != 0) & (response_mask != 1)).any():
        raise ValueError("response_mask: give 0 and 1; a weight, or -1 of padding, would count as a whole token")
    of_rows = [len(row) for row in response_ids if row is not None]
    lengths = torch.tensor(of_rows) if response_mask is None else response_mask.bool().sum(1).cpu()

    def by_token(values: Tensor) -> Tensor:
        return values.repeat_interleave(lengths).to(student.device)

    asked, distilled = by_token(routes.uses_teacher), by_token(routes.distilled)
    top = top_k_ids(student, method.distillation_topk, distilled)
    log_prob, student_top = token_and_top_k_log_probs(student, ids, distilled, top)
    places = by_token(torch.arange(len(own)))
    _check_finite("logits", log_prob, places)
    teacher_log_prob = torch.full_like(log_prob, NOT_COMPUTED, requires_grad=False)
    teacher_top, nats = student_top.detach(), student_top.new_zeros(0)
    if teacher_logits is not None and routes.uses_teacher.any():
        with torch.no_grad():
            teacher = _flat("teacher_logits", teacher_logits, response_mask, routes.uses_teacher)
            if teacher.shape[-1] != student.shape[-1]:
                raise ValueError("teacher_logits and logits have other vocabularies")
            _check_logits("teacher_logits", teacher)
            teacher_log_prob[asked], teacher_top = token_and_top_k_log_probs(teacher, ids[asked], distilled[asked], top)
            # of probability 0 a token may be: the divergence is bounded
            _check_finite("teacher_logits", teacher_log_prob[asked].clamp(min=LOWEST), places[asked])
            if len(teacher_top) and teacher_top.equal(student_top):
                raise ValueError("teacher_logits equal logits: give the teacher's, whose prompt shows a solution")
            nats = entropy(teacher[distilled[asked]])

    def sampled_log_probs(name: str, given: Values | None, otherwise: Tensor) -> Tensor:
        if given is None:
            return otherwise
        # without gradients, whatever they were computed with: those of pi_old would cancel those of the ratio
        values = _flat(name, given, response_mask, every).detach().float()
        _check_finite(name, values, places)
        if len(values) > 1 and not values.any():
            raise ValueError(f"{name}: all are 0, as an engine gives that was not asked for them")
        if (above := values > 1e-3).any():
            row, value = int(places[above][0]), values[above][0].item()
            raise ValueError(f"{name}: rollout {row} has {value:g}: a log-prob is at most 0")
        return values

    old = sampled_log_probs("old_log_probs", old_log_probs, log_prob.detach())
    sampled = sampled_log_probs("rollout_log_probs", rollout_log_probs, old)
    trained = by_token(~routes.dropped)
    spread = by_token(group_spread(right, groups)[own])[distilled] if method.group_weight == "spread" else None
    if of_all is None:
        weights = dynamic_weights(nats, method.entropy_beta, spread)
    else:
        unscaled = unscaled_weights(nats, method.entropy_beta, spread)
        _check_part(Totals(int(trained.sum()), int(distilled.sum()), float(unscaled.sum())), of_all)
        weights = (of_all.scale * unscaled).float()
    targets = WorkerTargets(
        old_log_prob=old,
        rollout_log_prob=sampled,
        teacher_log_prob=teacher_log_prob,
        advantage=by_token(group_advantages(rewards, groups)[own]),
        branch=by_token(routes.branch),
        divergence_weight=weights,
        top_k_ids=top,
        teacher_log_probs=teacher_top,
    )
    losses = branch_losses(method, targets, log_prob, student_top)
    if method.preserve_loss_scale:
        weights = preserve_loss_scale(targets.divergence_weight, losses.divergence)
        targets = replace(targets, divergence_weight=weights)
        losses = branch_losses(method, targets, log_prob, student_top)
    denominator = max(1, int(trained.sum()) if of_all is None else of_all.tokens)
    metrics = {f"loss/{name}": (value.detach() / denominator).item() for name, value in losses.by_branch.items()}
    logged = logged_branches(method.branches)
    metrics |= {f"routing/{name}_fraction": routes.takes(name).float().mean().item() for name in logged}
    if trained.any():
        metrics["actor/rollout_is_weight"] = losses.rollout_is_weight[trained].mean().item()
        metrics["rollout_corr/log_prob_rms"] = (old - sampled)[trained].double().square().mean().sqrt().item()
    if losses.policy_tokens > 0:
        metrics["actor/clip_fraction"] = (losses.clipped / losses.policy_tokens).item()
    if len(nats):
        metrics |= weight_metrics(targets.divergence_weight)
        metrics |= {"loss/divergence": losses.divergence.mean().item(), "teacher/entropy": nats.mean().item()}
    return objective(losses, denominator), metrics


def _method(method: str | Method) -> Method:
    return load_method(method) if isinstance(method, str) else method


def _at(method: Method, step: int | None) -> Method:
    if step is None and method.second_routing is not None:
        raise ValueError(f"method {method.name}: it has a second table, so give the number of the step")
    return method.at(step or 1)


def as_tensors(rewards: Tensor | Sequence[float], groups: Tensor | Sequence[Hashable]) -> tuple[Tensor, Tensor]:
    """Routing and advantages need few numbers, and are computed on the CPU.

    Returns:
        Float32 [rollouts] rewards, and int64 [rollouts] the number of each rollout's group.
    """
    numbers = torch.as_tensor(rewards).detach().float().cpu()
    if not isinstance(groups, Tensor) or groups.dtype != torch.int64:
        ids = [
            group.item() if isinstance(group, Tensor) else group for group in groups
        ]  # tensors are equal by identity
        places = {group: number for number, group in enumerate(dict.fromkeys(ids))}
        groups = torch.tensor([places[group] for group in ids])
    if numbers.dim() != 1 or numbers.shape != groups.shape or not numbers.isfinite().all():
        raise ValueError("rewards, groups: give a finite number and an id for each rollout")
    return numbers, groups.cpu()


def _rows(rows: Tensor | Sequence[int] | None, rollouts: int) -> Tensor:
    own = torch.arange(rollouts) if rows is None else torch.as_tensor(rows).cpu()
    if len(own.unique()) < len(own):
        raise ValueError(f"rows = {own.tolist()}: the tokens of a repeated rollout would count twice")
    return own


def _flags(name: str, values: Tensor | Sequence[bool], rollouts: int) -> Tensor:
    found = torch.as_tensor(values).cpu()
    if found.shape != (rollouts,) or not ((found == 0) | (found == 1)).all():
        raise ValueError(f"{name}: give true or false for each of {rollouts} rollouts")
    return found.bool()


def _correct(rewards: Tensor, correct: Tensor | Sequence[bool] | float | None) -> Tensor:
    """[rollouts] c_i."""
    if correct is None:
        if (other := rewards[(rewards != 0) & (rewards != 1)]).numel():
            how = "give `correct`, the correct ones or their least reward, such as 0.5"
            raise ValueError(f"rewards has {other[0].item()!r}: if not 1 and 0, {how}")
        return rewards == 1
    given = torch.as_tensor(correct).cpu()
    if given.dim() == 0 and given.dtype != torch.bool:
        return rewards >= given
    return _flags("correct", given, len(rewards))


def _routes(
    method: Method,
    correct: Tensor,
    groups: Tensor,
    earlier: Tensor | Sequence[bool] | None,
) -> routing.Routes:
    if earlier is not None and not method.success_buffer:
        raise ValueError(f"method {method.name}: success_buffer = 0, so it shows no earlier response; drop `earlier`")
    known = None if earlier is None else _flags("earlier", earlier, len(correct))
    return routing.route(correct, groups, method.routing, known, method.teacher_context)


def _check_finite(name: str, log_probs: Tensor, rows: Tensor) -> None:
    """Check the log-probs of the sampled tokens, which are NaN if any number of their distributions is.

    Args:
        rows: the rollout of each token.
    """
    bad = ~log_probs.detach().isfinite()
    if bad.any():
        raise ValueError(f"{name}: no finite log-prob for a sampled token of rollout {int(rows[bad][0])}")


def _check_logits(name: str, values: Tensor) -> None:
    """Check that the first [tokens, vocabulary] are no probabilities: another softmax would make them almost equal."""
    first = values[:8].detach().float()
    if len(first) and (first >= 0).all() and ((first.sum(-1) - 1).abs() < 0.01).all():
        raise ValueError(f"{name} are probabilities: give logits, or log-probs")


def _check_part(part: Totals, of_all: Totals) -> None:
    """Check that totals can be those of a mini-batch with this part; entropies of two passes may differ a little."""
    fits = part.tokens <= of_all.tokens and part.distilled <= of_all.distilled and part.weight <= 1.01 * of_all.weight
    if not (fits and of_all.weight <= 1.01 * of_all.distilled <= 1.01 * of_all.tokens):
        raise ValueError(f"of_all = {of_all}: these rows alone have {part}; add the totals of all parts")


def _check_alike(rollouts: int, values: Sequence[Values]) -> None:
    """Check that all values are of the same rollouts and tokens."""
    tokens = ({len(each[row]) for each in values if each[row] is not None} for row in range(rollouts))  # type: ignore[arg-type]
    if {*map(len, values)} != {rollouts} or any(len(lengths) > 1 for lengths in tokens):
        raise ValueError(f"give values of the same tokens of each of {rollouts} rollouts")


def _flat(name: str, values: Values, mask: Tensor | None, rollouts: Tensor) -> Tensor:
    """[tokens, ...] of these rollouts, one after another."""
    if isinstance(values, Tensor):
        return values[mask.bool() & rollouts[:, None].to(mask.device)]  # type: ignore[union-attr]  # _check_shapes
    return torch.cat([values[row] for row in rollouts.nonzero().flatten().tolist()])
