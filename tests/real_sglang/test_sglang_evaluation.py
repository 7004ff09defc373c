"""Evaluation's adapter and SGLang itself on a CPU: samples, and the faults that the double plays for the fast tests."""

import signal
import time
from dataclasses import replace

import httpx
import psutil
import pytest
import torch

from srpo.ground.errors import SrpoError
from srpo.ground.seeds import derive_seed
from srpo.rollout.interface import SamplingParams
from srpo.rollout.sglang_protocol import generate_request, nucleus_floor

STOP, VOCABULARY = 1, 250
PROMPTS = [[5], [7, 8, 9], [5, 6], [11, 12]]
SEEDS = [[derive_seed("test", i, j) for j in range(6)] for i in range(4)]
PARAMS = SamplingParams(temperature=0.7, max_new_tokens=24, top_p=0.9)


@pytest.fixture(scope="module")
def server(serve):
    """A running server."""
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def expected(server):
    return server.generate(PROMPTS, PARAMS, SEEDS)


def tokens(groups):
    return [[completion.token_ids for completion in group] for group in groups]


def schedulers(server):
    family = psutil.Process(server.server.process.pid).children(recursive=True)
    return [process for process in family if "sglang::schedul" in process.name()]


def post(server, prompt, params, seed=1):
    body = generate_request(prompt, params, seed)
    return httpx.post(f"{server.server.url}/generate", json=body, trust_env=False, timeout=60)


def log_probs(model, prompt, response):
    """Log-probs of the whole vocabulary at each position of the response, at the temperature."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return (logits / PARAMS.temperature).log_softmax(-1)


# ---------------------------------------------------------------- samples


def test_log_probs_are_those_of_transformers(model, expected):
    for prompt, group in zip(PROMPTS, expected, strict=True):
        for completion in group:
            ids = torch.tensor(completion.token_ids)[:, None]
            reference = log_probs(model, prompt, completion.token_ids).gather(1, ids)[:, 0]
            torch.testing.assert_close(torch.tensor(completion.log_probs), reference, atol=1e-4, rtol=0)


def test_no_token_is_outside_the_nucleus(model, expected):
    """Of the tokens likelier than the one that was taken the mass is below top-p."""
    for prompt, group in zip(PROMPTS, expected, strict=True):
        for completion in group:
            probs = log_probs(model, prompt, completion.token_ids).exp()
            taken = probs.gather(1, torch.tensor(completion.token_ids)[:, None])
            assert torch.where(probs > taken, probs, 0).sum(1).max() < PARAMS.top_p + 1e-4


def test_a_response_ends_with_the_stop_token_or_at_the_limit(expected):
    completions = [completion for group in expected for completion in group]
    for completion in completions:
        assert STOP not in completion.token_ids[:-1]
        if completion.finish_reason == "stop":
            assert completion.token_ids[-1] == STOP
        else:
            assert len(completion.token_ids) == PARAMS.max_new_tokens
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}


def test_a_sample_depends_on_its_prompt_and_seed_only(server, expected, monkeypatch):
    long = [tuple(ids) for group in tokens(expected) for ids in group if len(ids) > 3]
    assert len(set(long)) == len(long) > 6
    monkeypatch.setattr(server, "options", replace(server.options, concurrency=3))
    assert tokens(server.generate(PROMPTS, PARAMS, SEEDS)) == tokens(expected)
    assert tokens(server.generate(PROMPTS[2:3], PARAMS, [SEEDS[2][::-1]])) == [tokens(expected)[2][::-1]]


def seed_of_infinite_noise(position: int, column: int) -> int:
    """A seed of which MurmurHash3 of (seed, position, column) is 2**32 - 1: the hash computed backwards."""
    word = 0xFFFFFFFF

    def rotate(x, bits):
        return (x << bits | x >> 32 - bits) & word

    def unshift(x, bits):
        found = x
        for _ in range(32 // bits):
            found = x ^ found >> bits
        return found

    def divide(x, factor):
        return x * pow(factor, -1, 2**32) & word

    def scramble(block):
        return rotate(block * 0xCC9E2D51 & word, 15) * 0x1B873593 & word

    state = unshift(word, 16)
    state = divide(state, 0xC2B2AE35)
    state = divide(unshift(state, 13), 0x85EBCA6B)
    state = unshift(state, 16) ^ 16
    for block in (column, position, 0):  # the seed's upper word is 0
        state = rotate(divide(state - 0xE6546B64 & word, 5), 19) ^ scramble(block)
    first = rotate(divide(state - 0xE6546B64 & word, 5), 19)
    return divide(rotate(divide(first, 0x1B873593), 17), 0xCC9E2D51)


def test_an_impossible_token_is_resampled(server, model):
    """sgl-project/sglang#25106 in SGLang's own sampler; where this fails, the repair is no longer needed."""
    prompt, params = [20, 21, 22], replace(PARAMS, temperature=0.2, max_new_tokens=8)
    floor = nucleus_floor(params.top_p, VOCABULARY)
    with torch.no_grad():
        at_first = (model(torch.tensor([prompt])).logits[0, -1] / params.temperature).log_softmax(-1)
    # with top-p the sampler's columns are ranks: this one is far outside of the nucleus
    seed = seed_of_infinite_noise(position=len(prompt) - 1, column=240)
    impossible = post(server, prompt, params, seed).json()["output_ids"][0]
    assert at_first[impossible] < floor
    ((repaired,),) = server.generate([prompt], params, [[seed]])
    assert repaired.token_ids[0] != impossible
    assert min(repaired.log_probs) > floor


# ---------------------------------------------------------------- faults


def test_one_of_two_data_parallel_schedulers_dies(serve, expected):
    """SGLang itself runs on beside it, and a request to the dead one is never answered."""
    with serve(data_parallel=2) as server:
        assert tokens(server.generate(PROMPTS, PARAMS, SEEDS)) == tokens(expected)
        first, _ = schedulers(server)
        first.send_signal(signal.SIGKILL)
        psutil.wait_procs([first], timeout=1)
        start = time.monotonic()
        with pytest.raises(SrpoError, match=rf"its process {first.pid} .* has died"):
            server.generate(PROMPTS, PARAMS, SEEDS)
        assert time.monotonic() - start < server.options.request_timeout / 2
