"""Top-K ids and distributions stay on the worker: kept by one pass, found by the next, and never seen by the driver."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from one_step import before_update, build_run, draw_rollouts, update_with
from tensordict import TensorDict
from torch import Tensor

from srpo.algorithm.targets import Targets
from srpo.policy.batches import jagged, kept_entry, sequence_batch
from srpo.policy.placement import RowOrder
from srpo.policy.worker import KEPT, KeptLogProbs

LENGTHS = {0: 2, 1: 3, 2: 1, 3: 2}
"""Response tokens of four rollouts; nothing of rollout 3 is ever kept."""

COLUMNS = 5


def batch_of(rows: list[tuple[int, ...] | None], step: int = 1) -> TensorDict:
    """A batch as the driver sends it, of these bundles; None is a filler."""
    order = RowOrder(rows, len(rows), len(rows))
    prompts = dict.fromkeys(LENGTHS, torch.tensor([7, 8]))
    responses = [torch.arange(length) for length in LENGTHS.values()]
    return sequence_batch(order, prompts, responses, kept_entry(LENGTHS, {0, 1, 2}), step=step)


def numbers_of(rollout: int) -> Tensor:
    return 100 * rollout + torch.arange(COLUMNS * LENGTHS[rollout])


def output_of(rows: list[tuple[int, ...] | None], of_filler: Tensor) -> TensorDict:
    """A pass's output: ids wherever they are kept, and log-probs everywhere."""
    ids = [
        torch.cat([numbers_of(rollout) for rollout in row if rollout != 3] or [of_filler[:0]]) if row else of_filler
        for row in rows
    ]
    return TensorDict({"top_k_ids": jagged(ids), "log_probs": jagged(ids)}, batch_size=len(rows))


@pytest.mark.parametrize("of_filler", [torch.arange(0), torch.arange(COLUMNS)], ids=["nothing", "its own"])
def test_a_later_pass_finds_what_an_earlier_one_kept_whatever_the_rows(of_filler):
    kept, rows = KeptLogProbs(), [None, (0, 3, 2), (1,)]
    output = output_of(rows, of_filler)
    kept.keep(batch_of(rows), output)
    assert [*output.keys()] == ["log_probs"]
    later = [(3,), (1, 2), None, (0,)]
    batch = batch_of(later)
    kept.add(batch, "top_k_ids")
    found = [row.tolist() for row in batch["top_k_ids"].unbind()]
    assert found == [[], torch.cat([numbers_of(1), numbers_of(2)]).tolist(), [], numbers_of(0).tolist()]
    kept.add(batch, "top_k_ids", fillers=True)
    assert batch["top_k_ids"].unbind()[2].tolist() == [*range(COLUMNS)]
    kept.add(batch_of([None, (3,)]), "teacher_log_probs")  # nothing of the kind was kept, and nothing is asked for


def test_fillers_alone_have_an_id_for_the_teacher():
    batch = batch_of([None, (3,)])
    KeptLogProbs().add(batch, "top_k_ids", fillers=True)
    assert [row.tolist() for row in batch["top_k_ids"].unbind()] == [[0], [0]]


def test_what_this_rank_has_not_kept_is_an_error_and_not_silence():
    kept, rows = KeptLogProbs(), [(0,), (1,)]
    kept.keep(batch_of(rows), output_of(rows, torch.arange(0)))
    with pytest.raises(KeyError):
        kept.add(batch_of([(2,), (1,)]), "top_k_ids")
    with pytest.raises(KeyError):
        kept.add(batch_of(rows), "teacher_log_probs")


def test_a_step_finds_nothing_of_another():
    kept, rows = KeptLogProbs(), [(0,), (1,)]
    kept.keep(batch_of(rows), output_of(rows, torch.arange(0)))
    with pytest.raises(KeyError):
        kept.add(batch_of(rows, step=2), "top_k_ids")
    assert kept.of("top_k_ids") == {}


# ---------------------------------------------------------------- a step of training


@pytest.mark.parametrize("questions", [2, 4])
@pytest.mark.parametrize("kept_vocabulary", [4096, 0], ids=["whole-distributions", "top-k-first"])
@pytest.mark.parametrize("name", ["grpo", "srpo", "srpo_equal_loss_scale", "rlsd"])
def test_the_driver_sees_a_few_numbers_a_token(name, kept_vocabulary, questions, base, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("srpo.training.step.KEPT_VOCABULARY", kept_vocabulary)
    run = build_run(base, tmp_path / "run", name, questions)
    seen: list[str] = []
    most = {"targets": len(fields(Targets))}  # one number per field

    def watched(call):
        def watching(batch: TensorDict) -> TensorDict:
            tokens = batch["input_ids"].offsets().diff()
            for part in (batch, output := call(batch.copy())):
                tensors = {
                    entry: value for entry, value in part.items() if isinstance(value, Tensor) and value.is_nested
                }
                for entry, value in tensors.items():
                    assert (value.offsets().diff() <= tokens * most.get(entry, 1)).all()
                assert not tensors.keys() & KEPT.keys()
            seen.append(batch["pass_name"])
            return output

        return watching

    for call in ("compute_log_prob", "compute_teacher_log_prob", "update_actor"):
        monkeypatch.setattr(run.policy, call, watched(getattr(run.policy, call)))
    rollouts = draw_rollouts(run)
    update_with(run, before_update(run, rollouts))
    assert seen[-1] == "update"
    assert ("teacher" in seen) is run.method.routing.needs_teacher
