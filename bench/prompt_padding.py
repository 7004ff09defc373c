"""Counts what the attention over shared prompts computes beyond what is needed, in the micro-batches of a step.

    python bench/prompt_padding.py one-node-small --mirror DIR

The experiment gives questions per batch, rollouts, ranks and tokens of a micro-batch. Prompts are the published train
questions with Qwen3's tokenizer, which ``make rehearsal-qwen3`` fetches. Responses are drawn: 250 to 450 tokens, as
published runs have them, or with a tail that we assume: one in twenty has up to 2,048. No model runs: rows are placed,
cut into micro-batches by verl, and packed as for a student's pass, in one group and in groups of similar length.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from statistics import median

import torch
from tensordict import TensorDict
from verl.utils.seqlen_balancing import rearrange_micro_batches

from srpo.benchmarks.prompts import prompt_lengths
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, MiniatureModel
from srpo.files import default_cache
from srpo.models.resolve import resolve_tokenizer
from srpo.models.tokenizer import open_tokenizer
from srpo.policy import shared_prompts
from srpo.policy.batches import jagged
from srpo.policy.placement import Placement, Prompts
from srpo.repository import CONFIGS
from srpo.sources.build import build_split

ONE_GROUP = 2**62


def main() -> None:
    """Print a line for each benchmark, kind of response and threshold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", nargs="?", default="one-node-small")
    parser.add_argument("--mirror", type=Path, help="the folder of a copy of the data's repository")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    experiment = load_experiment(CONFIGS / "experiments" / f"{options.experiment}.yaml")
    real = load_experiment(CONFIGS / "experiments" / "rehearsal-qwen3.yaml")
    model = real.models["rehearsal-qwen3"]
    assert isinstance(model, MiniatureModel)
    assert model.tokenizer is not None
    thresholds = ONE_GROUP, shared_prompts.WORTH_A_GROUP
    tokenizer = open_tokenizer(resolve_tokenizer(model.tokenizer, "rehearsal-qwen3"))
    print(
        "benchmark  responses   groups, most   padded by packed tokens: median, most   computed by needed pairs: same"
    )
    for name in ("chemistry", "physics", "biology", "materials"):
        questions = build_split(real.benchmarks[name], "train", options.mirror, default_cache())
        prompts = prompt_lengths(tokenizer, [question.messages for question in questions])
        for kind in ("250-450", "tail"):
            for worth in thresholds:
                shared_prompts.WORTH_A_GROUP = worth
                found = [
                    counts
                    for step in range(options.steps)
                    for counts in _step(experiment, prompts, kind, random.Random(step))
                ]
                tokens, pairs, groups = zip(*found, strict=True)
                print(
                    f"{name:10} {kind:10} {max(groups):13} {median(tokens):20.2f} {max(tokens):16.2f} "
                    f"{median(pairs):20.2f} {max(pairs):16.2f}"
                )


def _step(experiment: Experiment, prompts: list[int], kind: str, rng: random.Random) -> list[tuple[float, float, int]]:
    """Of each micro-batch of a step of one update: padded by packed tokens, computed by needed pairs, groups."""
    training, execution = experiment.training, experiment.execution
    chosen = rng.sample(prompts, training.questions_per_batch)
    samples = training.rollouts_per_question
    rollouts = range(len(chosen) * samples)
    # a prompt's content tells it from another of the same length
    ids = {r: torch.tensor([r // samples] * chosen[r // samples]) for r in rollouts}
    lengths = [rng.randint(250, 450) for _ in rollouts]
    if kind == "tail":
        lengths = [rng.randint(450, 2048) if rng.random() < 0.05 else length for length in lengths]
    lengths = [min(length, training.max_response_length) for length in lengths]
    placement = Placement([list(rollouts)], ids, lengths, {*rollouts}, training.micro_batch_size, execution)
    order = placement.order([list(rollouts)], ids)
    per_rank = len(order.rows) // execution.ranks
    result = []
    for first in range(0, len(order.rows), per_rank):
        own = [bundle for bundle in order.rows[first : first + per_rank] if bundle]
        rows = [torch.zeros(len(ids[b[0]]) + sum(lengths[r] for r in b)) for b in own]
        _, parts = rearrange_micro_batches(TensorDict({"input_ids": jagged(rows)}, len(own)), order.max_tokens)
        result += [_counts([own[i] for i in part], ids, lengths) for part in parts]
    return result


def _counts(bundles: list[tuple[int, ...]], ids: Prompts, lengths: list[int]) -> tuple[float, float, int]:
    prompts = [len(ids[bundle[0]]) for bundle in bundles]
    responses = [lengths[r] for bundle in bundles for r in bundle]
    rows = shared_prompts.PackedRows.of(
        torch.tensor(prompts), torch.tensor([len(bundle) for bundle in bundles]), torch.tensor(responses)
    )
    padded = sum(tokens.numel() for tokens in (*rows.prompts, *(group.tokens for group in rows.responses)))
    computed = sum(tokens.numel() * tokens.shape[1] for tokens in rows.prompts)
    computed += sum(group.visible.numel() for group in rows.responses)
    own = [(len(ids[bundle[0]]), lengths[r]) for bundle in bundles for r in bundle]
    needed = sum(p * p for p in prompts) + sum(r * (p + r) for p, r in own)
    return padded / len(rows.positions), computed / needed, len(rows.responses)


if __name__ == "__main__":
    main()
