"""Offline evaluation: a rollout engine that starts an SGLang server and queries it over HTTP.

The server runs in separate processes: a crash stays there, and its end frees all GPU memory. If the server fails, the
checkpoint is sampled again with a new one. Every sample is one request with its own seed, so a repeated request gives
the same sample.
Written for SGLang 0.5.12. `tests/real_sglang` tests it with SGLang itself on a CPU; `tests/support/sglang_double.py`
is a fast test double of the server that can simulate every fault.
"""

import asyncio
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx

from srpo.ground.errors import SrpoError
from srpo.rollout import sglang_process
from srpo.rollout.checkpoint import stop_token_ids
from srpo.rollout.interface import Completion, SamplingParams, ServersFailed
from srpo.rollout.sglang_process import COMMAND, ServerProcess
from srpo.rollout.sglang_protocol import (
    ServerOptions,
    check_token_ids,
    generate_request,
    nucleus_floor,
    read_completion,
    vocabulary_size,
)

ATTEMPTS = 5
"""Maximum number of requests for one sample to a server that is alive."""

BACK_OFF = 0.5
"""Seconds before the second attempt; doubled for each further one."""

DRAWS = 16
"""Maximum number of times the rest of a response is resampled because of an impossible token.

At full length about a quarter of the responses need one."""

OTHER_FILES = 128
"""Maximum number of files that this process has open besides its connections."""

_Place = tuple[int, int]  # index of the prompt, index of the sample


class SGLangServer:
    """A :class:`~srpo.rollout.interface.RolloutEngine` that owns an SGLang server.

    ``with SGLangServer(checkpoint, log, ServerOptions(context_length=10240)) as engine: engine.generate(...)``
    """

    def __init__(self, checkpoint: Path, log: Path, options: ServerOptions, command: Sequence[str] = COMMAND) -> None:
        self._checkpoint = checkpoint
        self._log = log
        self.options = options
        self.command = command
        self._stops = options.ends | stop_token_ids(checkpoint)
        self._vocabulary = vocabulary_size(checkpoint)
        self.server: ServerProcess | None = None

    def __enter__(self) -> Self:
        """Start the server and wait until it is healthy."""
        self.server = ServerProcess(self._checkpoint, self._log, self.options, self.command)
        return self

    def __exit__(self, *_: object) -> None:
        if self.server is not None:
            server, self.server = self.server, None
            server.stop()

    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        """Sample ``len(seeds[i])`` responses to prompt ``i``."""
        self._check(prompt_ids, params.max_new_tokens)
        requests = {
            (i, j): (prompt, seed)
            for i, (prompt, own) in enumerate(zip(prompt_ids, seeds, strict=True))
            for j, seed in enumerate(own)
        }
        completions: dict[_Place, Completion] = {}
        if requests:
            asyncio.run(self._sample_all(requests, params, completions))
        return [[completions[i, j] for j in range(len(own))] for i, own in enumerate(seeds)]

    def _check(self, prompt_ids: list[list[int]], max_new_tokens: int) -> None:
        check_token_ids(prompt_ids, self._vocabulary)
        longest = max(map(len, prompt_ids), default=0)
        if longest + max_new_tokens > self.options.context_length:
            raise SrpoError(
                f"prompt of {longest} tokens + max_new_tokens = {max_new_tokens} exceed the server's"
                f" context_length = {self.options.context_length}"
            )

    # ------------------------------------------------------------ requests

    async def _sample_all(
        self,
        requests: Mapping[_Place, tuple[list[int], int]],
        params: SamplingParams,
        completions: dict[_Place, Completion],
    ) -> None:
        """Add samples to ``completions`` as they arrive; the first failure cancels the other requests."""
        in_flight = min(len(requests), self.options.concurrency * self.options.data_parallel)
        free = asyncio.Semaphore(_connections(in_flight))

        async def sample(place: _Place, prompt: list[int], seed: int) -> None:
            async with free:
                completions[place] = await self._sample(client, prompt, params, seed)

        async def watch() -> None:
            while True:
                self._raise_if_failed()
                await asyncio.sleep(sglang_process.POLL_SECONDS)

        # Connections are not reused: the server may close one while we send. No proxy for loopback addresses.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = self.options.request_timeout
        assert self.server is not None  # started by generate
        url = self.server.url
        async with httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, trust_env=False) as client:
            try:
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(watch())
                    await asyncio.wait([tasks.create_task(sample(place, *asked)) for place, asked in requests.items()])
                    watching.cancel()
            except ExceptionGroup as group:
                raise group.exceptions[0] from None

    async def _sample(
        self, client: httpx.AsyncClient, prompt: list[int], params: SamplingParams, seed: int
    ) -> Completion:
        """One sample, resampled from the first impossible token that SGLang's deterministic sampling drew.

        SGLang turns hashes into noise, and one hash into infinite noise (sgl-project/sglang#25106): with Qwen3's
        vocabulary one token in 28,000 is drawn regardless of its probability. The response is resampled from there with
        another seed. Which tokens are affected does not depend on the model, so responses keep their distribution.
        """
        floor = nucleus_floor(params.top_p, self._vocabulary)
        token_ids: list[int] = []
        log_probs: list[float] = []
        for draw in range(DRAWS):
            left = params.max_new_tokens - len(token_ids)
            now = replace(params, max_new_tokens=left)
            body = generate_request(prompt + token_ids, now, seed ^ draw, self.options.ends)
            rest = await self._ask(client, body, left)
            wrong = next((i for i, log_prob in enumerate(rest.log_probs) if log_prob < floor), None)
            token_ids += rest.token_ids[:wrong]
            log_probs += rest.log_probs[:wrong]
            if wrong is None:
                return Completion(token_ids, log_probs, rest.finish_reason)
        raise SrpoError(
            f"sglang server: {DRAWS} times a token of log-prob below {floor:.1f} in one sample, which top_p = "
            f"{params.top_p} does not allow; see {self._log}"
        )

    async def _ask(self, client: httpx.AsyncClient, body: dict[str, Any], max_new_tokens: int) -> Completion:
        problem: object = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACK_OFF * 2 ** (attempt - 1))
            self._raise_if_failed()
            try:
                response = await client.post("/generate", json=body)
                if response.is_client_error:
                    raise SrpoError(f"sglang server: status {response.status_code}: {response.text[:300]}")
                if response.is_success:
                    return read_completion(response.json(), max_new_tokens, self._stops)
                problem = f"status {response.status_code}: {response.text[:300]}"
            except (httpx.TransportError, ValueError) as error:
                problem = repr(error)
        self._raise_if_failed()
        raise ServersFailed(
            f"sglang server: no complete sample in {ATTEMPTS} attempts, the last: {problem}; see {self._log}"
        )

    # ------------------------------------------------------------ server

    def _raise_if_failed(self) -> None:
        assert self.server is not None
        if failure := self.server.failure():
            raise ServersFailed(f"sglang server: {failure}; {self.server.log_end()}")


def _connections(wanted: int) -> int:
    """Number of connections, at most ``wanted``, that may be open at once, after raising this process' limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(wanted, soft - OTHER_FILES))
    return wanted
