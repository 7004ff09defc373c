"""The programs of ``examples/`` do what they say, on a CPU in seconds."""

from __future__ import annotations

import importlib.util
import json
import types
from types import ModuleType

import pytest
import torch
from paths import ROOT

import srpo


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_plain_loop_learns() -> None:
    rewards = example("plain_loop").main()
    assert mean(rewards[:5]) < 0.1
    assert mean(rewards[-5:]) > 0.2


def test_the_notebook_runs_and_draws() -> None:
    """Its cells of code in order, without a kernel. Not run: the cell that installs, which needs the network."""
    import matplotlib

    matplotlib.use("agg")
    notebook = json.loads((ROOT / "examples" / "plain_loop.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    installs, *rest = cells
    assert installs["metadata"]["tags"] == ["install"]
    names: dict = {}
    for cell in rest:
        exec("".join(cell["source"]), names)
    for method in ("sdpo", "srpo"):
        rewards, distilled = zip(*names["histories"][method], strict=True)
        assert mean(rewards[:5]) < 0.1
        assert mean(rewards[-5:]) > 0.2
        assert max(distilled) > 0.2
    assert not any(distilled for _, distilled in names["histories"]["grpo"])
    assert [len(axes.lines) for axes in names["figure"].axes] == [3, 3]
    names["plt"].close("all")


def test_verls_worker_loss_falls() -> None:
    losses = example("verl_policy_loss").main()
    assert losses[-1] < losses[0] - 0.02


def test_the_loss_in_verls_registry_is_ours() -> None:
    """Value and gradient on rollouts of several lengths, some clipped, with truncated corrections of the rollouts."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    module = example("verl_policy_loss")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(11, (8, 5), generator=generator)
    logits, old, teacher = (torch.randn(8, 5, 11, generator=generator) for _ in range(3))
    mask = torch.arange(5) < torch.tensor([5, 3, 1, 4, 2, 5, 5, 1])[:, None]
    rewards, groups = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 0]), torch.arange(8) // 4
    log_old, log_q = (x.log_softmax(-1).gather(-1, ids[..., None])[..., 0] for x in (old, teacher))
    rollout = log_old + torch.randn(8, 5, generator=generator)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, metrics = srpo.loss(
        mine, teacher, ids, mask, rewards, groups, module.METHOD, old_log_probs=log_old, rollout_log_probs=rollout
    )
    config = types.SimpleNamespace(global_batch_info={"batch_num_tokens": mask.sum(), "dp_size": 1})
    found, of_verl = get_policy_loss_fn("srpo_sampled_token")(
        old_log_prob=log_old,
        log_prob=theirs.log_softmax(-1).gather(-1, ids[..., None])[..., 0],
        advantages=module.routed_advantages(rewards, groups, log_old, log_q),
        response_mask=mask,
        config=config,
        rollout_is_weights=(log_old - rollout).exp().clamp(max=module.METHOD.rollout_is_threshold),
    )
    loss.backward()
    found.backward()
    torch.testing.assert_close(found, loss)
    torch.testing.assert_close(theirs.grad, mine.grad)
    assert metrics["routing/mix_fraction"] == 2 / 8
    assert of_verl["actor/pg_clipfrac"] == pytest.approx(metrics["actor/clip_fraction"])
    assert metrics["actor/clip_fraction"] > 0


def test_trl_trainer_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl", reason="needs TRL: python -m pip install --no-deps trl==1.16.0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rewards = example("trl_trainer").main()
    assert mean(rewards[-5:]) > mean(rewards[:5]) + 0.1
