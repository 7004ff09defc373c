"""Offline evaluation by an SGLang server of our own: started, asked over HTTP, restarted when it dies, stopped.

A server in processes of its own isolates its crashes and gives all GPU memory back. Every sample is a
request with its own seed, so that asking again, after a fault or a restart, gives the same sample.
Written against SGLang 0.5.12; ``tests/sglang_double.py`` speaks its protocol on machines without GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx

from srpo.errors import SrpoError
from srpo.rollout.engine import Completion, SamplingParams

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "sglang.launch_server")

ATTEMPTS = 5
"""How often a living server is asked for one sample."""

BACK_OFF = 0.5
"""Seconds before the second attempt; they double from attempt to attempt."""

DRAWS = 16
"""How often a response is drawn on before its tokens are all possible. A quarter of the longest need a second time."""

RESTARTS = 3
"""How often a server that died is started again."""

STOP_SECONDS = 30.0
"""From SIGTERM to SIGKILL: SGLang looks for the signal every 5 s."""

KILL_SECONDS = 30.0
"""From SIGKILL to giving up: a driver frees the memory of its GPU first."""

POLL_SECONDS = 0.5
"""Between looks at a starting server."""

CONTEXT_MARGIN = 8
"""Positions SGLang keeps for itself: it cuts responses short and refuses prompts that come within 6 of its limit."""

SEEDS = range(-(2**63), 2**63)
"""SGLang packs seeds into an int64 tensor, and one outside ends the server."""

OTHER_FILES = 128
"""Files that this process has open besides its connections, at most."""

_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""What runs before the server in its process: no cleaning up of ours outlives a SIGKILL. SGLang's own children
die with theirs by the same call. The signal is bound to the thread that starts the server."""

_Place = tuple[int, int]  # index of the prompt, index of the sample


@dataclass(frozen=True)
class ServerOptions:
    """How the server runs.

    Attributes:
        context_length: tokens of the longest prompt and its response together.
        tensor_parallel: GPUs that share one copy of the model.
        data_parallel: copies of the model.
        memory_fraction: of each GPU's memory, for weights and key-value cache.
        dtype: of weights and activations, an SGLang name.
        deterministic: batch-invariant kernels and honoured seeds, at some cost in speed. Without it a
            sample depends on chance.
        concurrency: requests in flight for each copy of the model.
        start_timeout: seconds until the server has to be healthy.
        request_timeout: seconds a sample may take, waiting in the server's queue included.
    """

    context_length: int
    tensor_parallel: int = 1
    data_parallel: int = 1
    memory_fraction: float = 0.8
    dtype: str = "bfloat16"
    deterministic: bool = True
    concurrency: int = 256
    start_timeout: float = 900.0
    request_timeout: float = 1800.0


# ---------------------------------------------------------------- the protocol


def server_arguments(checkpoint: Path, port: int, options: ServerOptions) -> list[str]:
    """Arguments of ``sglang.launch_server``: token ids in and out, bound to loopback."""
    arguments = {
        "--model-path": checkpoint,
        "--host": HOST,
        "--port": port,
        "--context-length": options.context_length + CONTEXT_MARGIN,
        "--tp-size": options.tensor_parallel,
        "--dp-size": options.data_parallel,
        "--mem-fraction-static": options.memory_fraction,
        "--dtype": options.dtype,
    }
    flags = ["--skip-tokenizer-init"] + ["--enable-deterministic-inference"] * options.deterministic
    return [*(str(part) for pair in arguments.items() for part in pair), *flags]


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment of the server.

    Without the switch that returns log-probs before the temperature, and with loopback exempt from
    proxies: SGLang asks itself for a first token while it starts.
    """
    kept = {name: value for name, value in environment.items() if name != "SGLANG_RETURN_ORIGINAL_LOGPROB"}
    no_proxy = kept.get("no_proxy") or kept.get("NO_PROXY")
    return kept | {"no_proxy": f"{no_proxy},{HOST}" if no_proxy else HOST}


def stop_token_ids(checkpoint: Path) -> frozenset[int]:
    """The tokens at which SGLang ends a response: those of ``config.json`` and ``generation_config.json``.

    Raises:
        SrpoError: if ``config.json`` cannot be read or there is no such token.
    """
    stops: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = checkpoint / name
        if name == "generation_config.json" and not path.exists():
            continue
        try:
            found = json.loads(path.read_text()).get("eos_token_id")
        except (OSError, ValueError, AttributeError) as error:
            raise SrpoError(f"{path}: cannot be read ({error}); give a checkpoint in Hugging Face format") from error
        stops.update([found] if isinstance(found, int) else found or [])
    if not stops:
        raise SrpoError(f"{checkpoint / 'config.json'}: no eos_token_id; a response could not end")
    return frozenset(stops)


def vocabulary_size(checkpoint: Path) -> int:
    """``vocab_size`` of ``config.json``.

    Raises:
        SrpoError: if there is none.
    """
    path = checkpoint / "config.json"
    size = json.loads(path.read_text()).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise SrpoError(f"{path}: vocab_size = {size!r}; a positive number is needed")
    return size


def nucleus_floor(top_p: float, vocabulary: int) -> float:
    """A log-prob below which no token is in the nucleus.

    The nucleus is the smallest set of the likeliest tokens that holds ``top_p``. Without its least likely token it
    holds less, so that this one and those outside hold more than ``1 - top_p`` together; none of them is likelier
    than it, and there are at most ``vocabulary`` of them.
    """
    return math.log((1 - top_p) / vocabulary) if top_p < 1 else -math.inf


def generate_request(prompt_ids: list[int], params: SamplingParams, seed: int) -> dict[str, Any]:
    """The body of one ``/generate`` request: one sample."""
    return {
        "input_ids": prompt_ids,
        "sampling_params": {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "max_new_tokens": params.max_new_tokens,
            "sampling_seed": seed,
        },
        "return_logprob": True,
    }


def read_completion(answer: Any, max_new_tokens: int, stops: Collection[int]) -> Completion:
    """Take the sample out of an answer of ``/generate``, whether or not its ``output_ids`` have the stop token.

    Args:
        answer: the decoded JSON.
        max_new_tokens: what the request allowed.
        stops: the tokens that end a response. SGLang looks at the length first, and calls a response
            whose stop token is the last one allowed cut off.

    Raises:
        ValueError: if it is no whole sample: aborted, short, or a log-prob is missing or not finite.
    """
    try:
        finish, entries = answer["meta_info"]["finish_reason"], answer["meta_info"]["output_token_logprobs"]
        reason, matched, output_ids = finish["type"], finish.get("matched"), answer["output_ids"]
        log_probs, token_ids = [entry[0] for entry in entries], [entry[1] for entry in entries]
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"not an answer of /generate: {error!r}") from error
    if reason not in ("stop", "length"):
        raise ValueError(f"finish_reason = {finish}")
    if output_ids != token_ids and (reason == "length" or [*output_ids, matched] != token_ids):
        raise ValueError(f"{len(output_ids)} tokens, but log-probs of {len(token_ids)}")
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in log_probs):
        raise ValueError("a log-prob is not finite: has training diverged?")
    if not token_ids or len(token_ids) > max_new_tokens or (reason == "length" and len(token_ids) < max_new_tokens):
        raise ValueError(f"finish_reason = {finish} after {len(token_ids)} of {max_new_tokens} tokens")
    if reason == "stop" and token_ids[-1] != matched:
        raise ValueError(f"finish_reason = {finish}, but the last token is {token_ids[-1]}")
    return Completion(token_ids, log_probs, "stop" if token_ids[-1] in {matched, *stops} else "length")


# ---------------------------------------------------------------- the server


class _ServerDied(Exception):
    """The server's process has ended while it was needed."""


class SGLangServer:
    """A :class:`~srpo.rollout.engine.RolloutEngine` that owns an SGLang server.

    ``with SGLangServer(checkpoint, log, ServerOptions(context_length=10240)) as engine: engine.generate(...)``

    Args:
        checkpoint: folder in Hugging Face format; no tokenizer is needed in it.
        log: file to which the server's output is appended.
        options: how the server runs.
        command: what starts the server, before its arguments.

    Raises:
        SrpoError: if the checkpoint names no end-of-sequence token or no vocabulary size.
    """

    def __init__(self, checkpoint: Path, log: Path, options: ServerOptions, command: Sequence[str] = COMMAND) -> None:
        self._checkpoint = checkpoint
        self._log = log
        self._options = options
        self._command = command
        self._stops = stop_token_ids(checkpoint)
        self._vocabulary = vocabulary_size(checkpoint)
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._log_start = 0  # where the log of the running server begins
        self._restarts_left = RESTARTS

    def __enter__(self) -> Self:
        """Start the server and wait until it is healthy.

        Raises:
            SrpoError: if the server ends, or is not healthy in time.
        """
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        """Sample ``len(seeds[i])`` responses to prompt ``i``.

        Raises:
            SrpoError: on an empty prompt, one that with ``max_new_tokens`` exceeds the context, a seed beyond
                64 bits, a refused request, a sample that stays incomplete, or a server that keeps dying.
        """
        if self._process is None:
            raise RuntimeError("generate is for inside the with block")
        self._check(prompt_ids, params.max_new_tokens, seeds)
        requests = {
            (i, j): (prompt, seed)
            for i, (prompt, own) in enumerate(zip(prompt_ids, seeds, strict=True))
            for j, seed in enumerate(own)
        }
        completions: dict[_Place, Completion] = {}
        while missing := {place: asked for place, asked in requests.items() if place not in completions}:
            try:
                asyncio.run(self._sample_all(missing, params, completions))
            except _ServerDied:
                self._restart()
        return [[completions[i, j] for j in range(len(own))] for i, own in enumerate(seeds)]

    def _check(self, prompt_ids: list[list[int]], max_new_tokens: int, seeds: list[list[int]]) -> None:
        longest = max(map(len, prompt_ids), default=0)
        if not all(prompt_ids):
            raise SrpoError("a prompt has no tokens: give at least one")
        if longest + max_new_tokens > self._options.context_length:
            raise SrpoError(
                f"prompt of {longest} tokens + max_new_tokens = {max_new_tokens} exceed the server's"
                f" context_length = {self._options.context_length}"
            )
        for seed in (seed for own in seeds for seed in own):
            if seed not in SEEDS:
                raise SrpoError(f"seed {seed}: must be at least -2**63 and below 2**63")

    # ------------------------------------------------------------ requests

    async def _sample_all(
        self,
        requests: Mapping[_Place, tuple[list[int], int]],
        params: SamplingParams,
        completions: dict[_Place, Completion],
    ) -> None:
        """Add to ``completions`` as they come; the first failure ends the other requests."""
        in_flight = min(len(requests), self._options.concurrency * self._options.data_parallel)
        free = asyncio.Semaphore(_connections(in_flight))

        async def sample(place: _Place, prompt: list[int], seed: int) -> None:
            async with free:
                completions[place] = await self._sample(client, prompt, params, seed)

        # No connection is reused: the server may close one just as we send. Proxies are not for loopback.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = self._options.request_timeout
        async with httpx.AsyncClient(base_url=self._url, timeout=timeout, limits=limits, trust_env=False) as client:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for place, (prompt, seed) in requests.items():
                        tasks.create_task(sample(place, prompt, seed))
            except ExceptionGroup as group:
                raise group.exceptions[0] from None

    async def _sample(
        self, client: httpx.AsyncClient, prompt: list[int], params: SamplingParams, seed: int
    ) -> Completion:
        """One sample, mended where SGLang's deterministic sampling went wrong.

        Of 28,000 tokens of Qwen3's it takes one whatever its probability: one of the hashes it makes noise of is
        infinite (sgl-project/sglang#25106). From there on the response is drawn anew with another seed. Where it goes
        wrong does not depend on the model, so that responses keep their distribution.
        """
        floor = nucleus_floor(params.top_p, self._vocabulary)
        token_ids: list[int] = []
        log_probs: list[float] = []
        for draw in range(DRAWS):
            left = params.max_new_tokens - len(token_ids)
            body = generate_request(prompt + token_ids, replace(params, max_new_tokens=left), seed ^ draw)
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
            if self._exit_status() is not None:
                raise _ServerDied
            try:
                response = await client.post("/generate", json=body)
                if response.is_client_error:
                    raise SrpoError(f"sglang server: status {response.status_code}: {response.text[:300]}")
                if response.is_success:
                    return read_completion(response.json(), max_new_tokens, self._stops)
                problem = f"status {response.status_code}: {response.text[:300]}"
            except (httpx.TransportError, ValueError) as error:
                problem = repr(error)
        if self._exit_status() is not None:
            raise _ServerDied
        raise SrpoError(f"sglang server: no whole sample in {ATTEMPTS} attempts, the last: {problem}; see {self._log}")

    # ------------------------------------------------------------ process

    def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._log.open("ab") as log:
                self._log_start = log.tell()
                port = _free_port()
                self._url = f"http://{HOST}:{port}"
                guard = [sys.executable, "-ISc", _DIE_WITH_PARENT]
                self._process = subprocess.Popen(
                    [*guard, *self._command, *server_arguments(self._checkpoint, port, self._options)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=server_environment(os.environ),
                )
            self._wait_until_healthy()
        except BaseException:
            self._stop()
            raise

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self._options.start_timeout
        with httpx.Client(base_url=self._url, trust_env=False) as client:
            while (served := _served_model(client, deadline)) is None:
                if (status := self._exit_status()) is not None:
                    raise SrpoError(f"sglang server: ended with status {status} while starting; {self._log_end()}")
                if time.monotonic() > deadline:
                    raise SrpoError(
                        f"sglang server: not healthy after start_timeout = {self._options.start_timeout:g} s;"
                        f" {self._log_end()}"
                    )
                time.sleep(POLL_SECONDS)
        # The port was free before the model was loaded; another server may have taken it since.
        if served != str(self._checkpoint):
            raise SrpoError(f"sglang server: {self._url} is a server of {served} by now; start again")

    def _restart(self) -> None:
        if not self._restarts_left:
            raise SrpoError(f"sglang server: died {RESTARTS + 1} times; {self._log_end()}")
        self._restarts_left -= 1
        self._stop()
        self._start()

    def _stop(self) -> None:
        """End every process of the server's group.

        Raises:
            SrpoError: if one survives SIGKILL, stuck in its driver.
        """
        if self._process is None:
            return
        group = self._process.pid
        for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            if self._group_lives(group):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, number)
            deadline = time.monotonic() + patience
            while self._group_lives(group) and time.monotonic() < deadline:
                time.sleep(0.05)
        survives = self._group_lives(group)
        self._process = None
        if survives:
            raise SrpoError(f"sglang server: process group {group} survives SIGKILL; its GPU memory is not free")

    def _group_lives(self, group: int) -> bool:
        self._exit_status()  # collects the leader
        return _has_members(group)

    def _exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def _log_end(self) -> str:
        """Where the log is and the end of what this server wrote, on one line."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{self._log} ends: {' | '.join(lines[-5:])[-1000:]}"


def _served_model(client: httpx.Client, deadline: float) -> str | None:
    """Path of the model a server serves, None while it is not healthy.

    SGLang answers ``/health`` after generating a token, which takes it a second or more.
    """
    try:
        if not client.get("/health", timeout=min(30.0, max(1.0, deadline - time.monotonic()))).is_success:
            return None
        return str(client.get("/model_info").json()["model_path"])
    except httpx.TransportError:
        return None
    except (ValueError, LookupError, TypeError):
        return "something else"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _connections(wanted: int) -> int:
    """How many of ``wanted`` connections may be open at once, after raising this process's limit as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(wanted, soft - OTHER_FILES))
    return wanted


def _has_members(group: int) -> bool:
    """Whether a process of the group runs. Zombies do not count: in a container nobody may collect them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # has ended since
            continue
        if int(its_group) == group and state not in "ZX":
            return True
    return False
