"""Rollouts from verl's servers: a request for each sample, again if incomplete; the embedded engine as a server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from tiny import prepare, tiny_experiment
from verl.workers.rollout.replica import TokenOutput

from srpo.ground.errors import SrpoError
from srpo.policy.ray_driver import RayPolicy
from srpo.policy.servers import ATTEMPTS, EmbeddedServer, ServerRollout, wait_until_idle
from srpo.rollout.checkpoint import stop_token_ids
from srpo.rollout.embedded import EmbeddedEngine
from srpo.rollout.interface import Completion, SamplingParams, ServersFailed
from srpo.rollout.sglang_protocol import vocabulary_size

pytestmark = pytest.mark.fault

STOPS = {10, 11, 20}
PARAMS = SamplingParams(temperature=0.7, max_new_tokens=9, top_p=0.9)


class Client:
    """Answers with the request's seed as only token; ``spoil`` may replace an answer, given how often it was asked."""

    def __init__(self, spoil=lambda answer, asked: answer):
        self.requests, self.spoil, self.asked = [], spoil, {}

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.requests.append((request_id, prompt_ids, sampling_params))
        seed = sampling_params["sampling_seed"]
        self.asked[seed] = self.asked.get(seed, 0) + 1
        await asyncio.sleep(0.001 * (seed % 3))  # answers come in another order than requests
        return self.spoil(TokenOutput(token_ids=[seed], log_probs=[-0.5], stop_reason="stop"), self.asked[seed])


def test_each_sample_is_a_request_with_its_own_seed_and_comes_back_in_its_place():
    client = Client()
    samples = ServerRollout(client, STOPS, 100).generate([[1, 2], [3]], PARAMS, [[10, 11, 12], [20]])
    assert [[c.token_ids for c in group] for group in samples] == [[[10], [11], [12]], [[20]]]
    assert samples[0][0] == Completion([10], [-0.5], "stop")
    assert len({request_id for request_id, *_ in client.requests}) == 4
    asked = {(tuple(prompt), params["sampling_seed"]) for _, prompt, params in client.requests}
    assert asked == {((1, 2), 10), ((1, 2), 11), ((1, 2), 12), ((3,), 20)}
    for *_, params in client.requests:
        del params["sampling_seed"]
        assert params.pop("stop_token_ids") == [10, 11, 20]
        assert params == {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "max_new_tokens": 9, "logprobs": True}


def test_a_response_ended_if_its_last_token_ends_responses():
    client = Client(lambda answer, asked: TokenOutput(token_ids=[7, 10], log_probs=[-1.0, -1.0], stop_reason="length"))
    assert ServerRollout(client, STOPS, 100).generate([[1]], PARAMS, [[1]])[0][0].finish_reason == "stop"
    assert ServerRollout(client, {3}, 100).generate([[1]], PARAMS, [[1]])[0][0].finish_reason == "length"


@pytest.mark.parametrize("token", [100, -1])
def test_a_token_outside_the_vocabulary_never_reaches_a_server(token):
    client = Client()
    with pytest.raises(SrpoError, match=r"^prompt 1 "):
        ServerRollout(client, STOPS, 100).generate([[1], [2, token]], PARAMS, [[10], [11]])
    assert not client.requests


INCOMPLETE = {
    "aborted": TokenOutput(token_ids=[5], log_probs=[-1.0], stop_reason="abort"),
    "no log-probs": TokenOutput(token_ids=[5], log_probs=None, stop_reason="stop"),
    "fewer log-probs": TokenOutput(token_ids=[5, 6], log_probs=[-1.0], stop_reason="length"),
    "a log-prob that is not finite": TokenOutput(token_ids=[5], log_probs=[float("nan")], stop_reason="stop"),
    "empty": TokenOutput(token_ids=[], log_probs=[], stop_reason="stop"),
}


@pytest.mark.parametrize("incomplete", INCOMPLETE.values(), ids=INCOMPLETE)
def test_an_incomplete_sample_is_asked_for_again_with_the_same_seed(incomplete):
    client = Client(lambda answer, asked: incomplete if asked < ATTEMPTS else answer)
    assert ServerRollout(client, STOPS, 100).generate([[1]], PARAMS, [[10]]) == [[Completion([10], [-0.5], "stop")]]
    assert client.asked == {10: ATTEMPTS}
    assert len({request_id for request_id, *_ in client.requests}) == ATTEMPTS


def test_a_server_that_never_completes_a_sample_ends_the_run():
    with pytest.raises(SrpoError, match=rf"no complete sample in {ATTEMPTS} attempts"):
        ServerRollout(Client(lambda answer, asked: INCOMPLETE["empty"]), STOPS, 100).generate([[1]], PARAMS, [[10]])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    spec, layout = prepare(tiny_experiment("srpo"), tmp_path_factory.mktemp("servers"))
    return layout.model(spec.id.model)


@pytest.fixture
def server(model, monkeypatch):
    from transformers import AutoConfig, AutoTokenizer

    monkeypatch.setattr("srpo.policy.servers.omega_conf_to_dataclass", lambda config: config)
    config = SimpleNamespace(
        hf_config=AutoConfig.from_pretrained(model), tokenizer=AutoTokenizer.from_pretrained(model), local_path=model
    )
    return EmbeddedServer(config, "float32")


def test_the_embedded_server_answers_as_the_engine_does(server, model):
    from safetensors.torch import load_file

    engine = EmbeddedEngine.from_pretrained(model)
    weights = load_file(model / "model.safetensors")
    prompts, seeds = [[5, 6, 7], [8, 9], [5, 6, 7]], [[1, 2], [3], [4]]

    class Handle:
        async def generate(self, request_id, **request):
            return await server.generate(request_id, **request)

    async def ask():
        await server.update_weights(weights)
        rollout = ServerRollout(Handle(), stop_token_ids(model), vocabulary_size(model), embedded_servers=1)
        return await rollout._generate(prompts, PARAMS, seeds)

    for group, expected in zip(asyncio.run(ask()), engine.generate(prompts, PARAMS, seeds), strict=True):
        for ours, theirs in zip(group, expected, strict=True):
            assert (ours.token_ids, ours.finish_reason) == (theirs.token_ids, theirs.finish_reason)
            torch.testing.assert_close(torch.tensor(ours.log_probs), torch.tensor(theirs.log_probs))


def test_what_the_embedded_server_decodes_together_does_not_depend_on_when_requests_come(server, model, monkeypatch):
    from safetensors.torch import load_file

    decoded = []
    generate = EmbeddedEngine.generate

    def note_and_generate(self, prompt_ids, params, seeds):
        decoded.append((prompt_ids, seeds))
        return generate(self, prompt_ids, params, seeds)

    monkeypatch.setattr(EmbeddedEngine, "generate", note_and_generate)

    class Handle:  # later than the server waits for stragglers, and the other way round
        async def generate(self, request_id, **request):
            await asyncio.sleep(0.1 * (5 - request["sampling_params"]["sampling_seed"]))
            return await server.generate(request_id, **request)

    async def ask():
        await server.update_weights(load_file(model / "model.safetensors"))
        rollout = ServerRollout(Handle(), stop_token_ids(model), vocabulary_size(model), embedded_servers=1)
        return await rollout._generate([[5, 6], [7]], PARAMS, [[1, 2], [3, 4]])

    asyncio.run(ask())
    assert decoded == [([[5, 6], [5, 6], [7], [7]], [[1], [2], [3], [4]])]


def test_an_error_of_the_embedded_server_reaches_every_caller(server):
    async def ask():  # no weights were ever sent, and this prompt is not made of tokens
        params = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 2, "sampling_seed": 1}
        params |= {"place": (0, 0), "share": 2}
        asked = [server.generate("a", prompt_ids=[10**9], sampling_params=params) for _ in range(2)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert all(isinstance(answer, Exception) for answer in asyncio.run(ask()))


# ---------------------------------------------------------------- before servers sleep


@contextmanager
def busy_server(idle_at: float) -> Iterator[str]:
    """The address of a stand-in that is idle from a time on, and answers ``/flush_cache`` as SGLang 0.5.12 does."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            url = urlsplit(self.path)
            assert url.path == "/flush_cache"
            time.sleep(max(0.0, min(float(parse_qs(url.query)["timeout"][0]), idle_at - time.monotonic())))
            is_idle = time.monotonic() >= idle_at
            self.send_response(200 if is_idle else 400)
            self.end_headers()
            self.wfile.write(b"Cache flushed." if is_idle else b"Timed out waiting for idle state.")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_servers_sleep_when_all_of_them_are_idle():
    idle_at = time.monotonic() + 0.6
    slept = []

    class Manager:
        def update_weights(self) -> None: ...

        def sleep_replicas(self) -> None:
            assert time.monotonic() >= idle_at  # SGLang's own assertion
            slept.append(True)

    with busy_server(0.0) as first, busy_server(idle_at) as second:
        policy = SimpleNamespace(checkpoint_manager=Manager(), _rollout="rollout", _sglang=[first, second])
        with RayPolicy.sampling(policy) as rollout:
            assert rollout == "rollout"
    assert slept


def test_a_server_that_stays_busy_is_named_and_one_that_is_gone_is_left_to_the_next_call():
    with busy_server(time.monotonic() + 60) as address:
        with pytest.raises(ServersFailed) as caught:
            wait_until_idle([address], seconds=0.2)
        assert caught.value.can_checkpoint
    wait_until_idle([address])
