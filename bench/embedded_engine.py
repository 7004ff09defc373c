"""Measures the embedded engine and transformers' generate on the same random weights.

    python bench/embedded_engine.py [--questions 32] [--samples 8] [--tokens 56]

The two draw different random numbers and give different responses. The rate is sampled tokens per second.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3ForCausalLM

from srpo.rollout.embedded import EmbeddedEngine
from srpo.rollout.interface import SamplingParams

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from random_qwen3 import random_qwen3

PAD, EOS, VOCAB = 0, 1, 370


def main() -> None:
    """Print one line for each way of sampling."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=56, help="most tokens of a response")
    parser.add_argument("--repeats", type=int, default=5, help="the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)

    # With this range few tokens are likely, as in a trained model, and few responses end early, which favours
    # transformers.
    model = random_qwen3(VOCAB, initializer_range=0.4, eos_token_id=EOS, pad_token_id=PAD).eval()
    engine = EmbeddedEngine(model.config, EOS, PAD)
    engine.update_weights(model.state_dict().items())
    draw = random.Random(0)
    prompts = [[draw.randrange(2, VOCAB) for _ in range(draw.randrange(30, 51))] for _ in range(options.questions)]
    seeds = [[1000 * i + j for j in range(options.samples)] for i in range(options.questions)]

    print(f"{options.questions} questions x {options.samples} samples, up to {options.tokens} tokens, one thread")
    for temperature, top_p in ((1.0, 1.0), (0.6, 0.95)):
        params = SamplingParams(temperature, options.tokens, top_p)

        def ours(params: SamplingParams = params) -> int:
            return sum(len(c.token_ids) for group in engine.generate(prompts, params, seeds) for c in group)

        def theirs(params: SamplingParams = params) -> int:
            return _generate(model, prompts, params, options.samples)

        rates = [_rate(sample, options.repeats) for sample in (ours, theirs)]
        print(
            f"temperature {temperature}, top_p {top_p}: engine {rates[0]:7,.0f} tokens/s, "
            f"transformers {rates[1]:7,.0f} tokens/s, ratio {rates[0] / rates[1]:.1f}"
        )


def _generate(model: Qwen3ForCausalLM, prompts: list[list[int]], params: SamplingParams, samples: int) -> int:
    """Sample with transformers and count the tokens up to each response's end."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    config = GenerationConfig(
        do_sample=True,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=0,
        num_return_sequences=samples,
        max_new_tokens=params.max_new_tokens,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    out = model.generate(ids, attention_mask=(ids != PAD).long(), generation_config=config)[:, longest:]
    before_end = (out == EOS).cumsum(-1) - (out == EOS).long() == 0
    return int(before_end.sum())


def _rate(sample: Callable[[], int], repeats: int) -> float:
    sample()
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        best = max(best, sample() / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    main()
