"""Rollout servers under verl: a client for every engine, and the embedded engine as a server.

SGLang's server comes with verl. The embedded one lets the whole Ray path run on CPUs.
"""

import asyncio
import math
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import ray
import torch
from torch import Tensor
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from srpo.experiment.config import Precision
from srpo.policy.verl_private import register_rollout_adapter
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.embedded import EmbeddedEngine
from srpo.rollout.interface import Completion, SamplingParams, ServersFailed
from srpo.rollout.sglang_protocol import check_token_ids

ATTEMPTS = 3
"""Maximum number of requests for one sample before the run stops with an error."""

IDLE_SECONDS = 60.0
"""How long a server may take to become idle after its last response."""

# ---------------------------------------------------------------- client


@contextmanager
def server_errors(action: str, can_checkpoint: bool) -> Iterator[None]:
    """Turn errors of servers into :class:`ServersFailed`."""
    try:
        yield
    except torch.OutOfMemoryError:  # an error of a worker, which new servers do not fix
        raise
    except ray.exceptions.RayError as error:
        raise ServersFailed(f"{action}: {type(error).__name__}: {_reason(error)[:600]}", can_checkpoint) from error


def _reason(error: ray.exceptions.RayError) -> str:
    """Of a process that died, what its own log says: Ray knows only that it is gone, and guesses at its memory."""
    text = str(error).strip()
    pid = re.search(r"^\s*pid: (\d+)$", text, re.MULTILINE)
    if isinstance(error, ray.exceptions.ActorDiedError) and pid and ray.is_initialized():
        temporary = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        folder = Path(temporary, "ray", ray.get_runtime_context().get_session_name(), "logs")
        for log in folder.glob(f"worker-*-{pid[1]}.err"):
            said = re.findall(r"^\w*(?:Error|Exception)\b.*$", log.read_text(errors="replace"), re.MULTILINE)
            return f"process {pid[1]} ended{f' with {said[-1][:200]}' if said else ''}; its log: {log}"
    # the last line; the tracebacks of all processes are above it
    return (text.splitlines() or [""])[-1]


def wait_until_idle(addresses: Sequence[str], seconds: float = IDLE_SECONDS) -> None:
    """Wait until no SGLang server computes any more, so that it can be put to sleep.

    With its overlapping scheduler a server sends the last response while one further batch is queued. A request to
    sleep that comes then ends it by an assertion (sgl-project/sglang#24123). ``/flush_cache`` answers when it is idle.

    Raises:
        ServersFailed: if a server does not become idle in time. One that is gone is left to the next call.
    """

    async def ask(client: httpx.AsyncClient, address: str) -> str | None:
        try:
            answer = await client.post(f"http://{address}/flush_cache", params={"timeout": seconds})
        except httpx.TimeoutException:
            return "no answer"
        except httpx.TransportError:
            return None
        return None if answer.is_success else answer.text.strip()

    async def ask_all() -> list[str | None]:
        async with httpx.AsyncClient(timeout=seconds + 10, trust_env=False) as client:
            return await asyncio.gather(*(ask(client, address) for address in addresses))

    for address, problem in zip(addresses, asyncio.run(ask_all()), strict=True):
        if problem is not None:
            message = f"rollout server {address} is not idle {seconds:g} s after its last response: {problem}"
            raise ServersFailed(message, can_checkpoint=True)


class ServerRollout:
    """A rollout engine (:class:`srpo.rollout.interface.RolloutEngine`) over verl's servers: one request per sample.

    Args:
        client: of verl's server manager.
        stops: the tokens that end a response.
        vocabulary: number of the model's tokens; prompts may have no other.
        embedded_servers: number of embedded servers that share the requests; 0 for another engine.
    """

    def __init__(
        self, client: LLMServerClient, stops: Collection[int], vocabulary: int, embedded_servers: int = 0
    ) -> None:
        self._client = client
        self._stops = stops
        self._vocabulary = vocabulary
        self._embedded_servers = embedded_servers

    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        """Sample ``len(seeds[i])`` responses to prompt ``i``.

        SGLang respects the seeds only with ``execution.deterministic_rollouts``.
        """
        check_token_ids(prompt_ids, self._vocabulary)
        with server_errors("generating", can_checkpoint=True):
            return asyncio.run(self._generate(prompt_ids, params, seeds))

    async def _generate(
        self, prompt_ids: Sequence[list[int]], params: SamplingParams, seeds: Sequence[Sequence[int]]
    ) -> list[list[Completion]]:
        share = sum(map(len, seeds)) // self._embedded_servers if self._embedded_servers else 0
        groups = [
            asyncio.gather(*(self._sample((i, j), share, ids, params, seed) for j, seed in enumerate(row)))
            for i, (ids, row) in enumerate(zip(prompt_ids, seeds, strict=True))
        ]
        return list(await asyncio.gather(*groups))

    async def _sample(
        self, place: tuple[int, int], share: int, prompt_ids: list[int], params: SamplingParams, seed: int
    ) -> Completion:
        for attempt in range(ATTEMPTS):
            sampling_params: dict[str, Any] = {
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": -1,  # never the default of a model's generation_config.json
                "max_new_tokens": params.max_new_tokens,
                "sampling_seed": seed,
                "stop_token_ids": sorted(self._stops),
                "logprobs": True,
            }
            if self._embedded_servers:
                sampling_params |= {"place": place, "share": 0 if attempt else share}
            output = await self._client.generate(
                f"{place[0]}-{place[1]}-{attempt}", prompt_ids=prompt_ids, sampling_params=sampling_params
            )
            tokens, log_probs = list(output.token_ids), list(output.log_probs or [])
            complete = tokens and len(tokens) == len(log_probs) and all(map(math.isfinite, log_probs))
            if complete and output.stop_reason in ("stop", "length"):
                # SGLang checks the length first: it calls a stop token in the last place "length"
                return Completion(tokens, log_probs, "stop" if tokens[-1] in self._stops else "length")
        raise ServersFailed(
            f"rollout server: no complete sample in {ATTEMPTS} attempts; the last ended by {output.stop_reason!r} "
            f"with {len(tokens)} tokens and {sum(map(math.isfinite, log_probs))} finite log-probs",
            can_checkpoint=True,
        )


# ---------------------------------------------------------------- the embedded engine as a server

_QUIET_SECONDS = 0.02
"""Seconds without a new request after which a complete batch is decoded."""

_PATIENCE_SECONDS = 5.0
"""Seconds of quiet before a smaller batch is decoded, which occurs if requests were not balanced."""

_Waiting = tuple[list[int], dict, asyncio.Future]  # prompt, sampling parameters


class EmbeddedServer:
    """A Ray actor around the embedded engine; it decodes the requests of one call together.

    The last bits of log-probs depend on which rows are decoded together and in which order. They must not depend on the
    load of the machine, so each request has its position and the number of requests of its call for this server.
    """

    def __init__(self, model_config: Any, precision: Precision) -> None:
        torch.set_num_threads(1)
        config: HFModelConfig = omega_conf_to_dataclass(model_config)
        ends = end_tokens(Path(config.local_path), config.tokenizer)
        self._engine = EmbeddedEngine(config.hf_config, ends, config.tokenizer.pad_token_id, precision)
        self._waiting: list[_Waiting] = []
        self._expected = 0
        self._server: asyncio.Task | None = None

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **_: Any) -> TokenOutput:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((list(prompt_ids), sampling_params, future))
        self._expected = max(self._expected, sampling_params["share"])
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            quiet = 0.0
            while quiet < (_QUIET_SECONDS if len(self._waiting) >= self._expected else _PATIENCE_SECONDS):
                seen = len(self._waiting)
                await asyncio.sleep(_QUIET_SECONDS)
                quiet = quiet + _QUIET_SECONDS if len(self._waiting) == seen else 0.0
            batch, self._waiting, self._expected = sorted(self._waiting, key=lambda request: request[1]["place"]), [], 0
            try:
                completions = await asyncio.to_thread(self._decode, batch)
            except Exception as error:
                for *_, future in batch:
                    future.set_exception(error)
                continue
            for (*_, future), completion in zip(batch, completions, strict=True):
                future.set_result(
                    TokenOutput(
                        token_ids=completion.token_ids,
                        log_probs=completion.log_probs,
                        stop_reason=completion.finish_reason,
                    )
                )

    def _decode(self, batch: list[_Waiting]) -> list[Completion]:
        """Samples in the order of the requests, which are of one call; requests for one prompt share its prefill."""
        asked = [request[1] for request in batch]
        params = SamplingParams(asked[0]["temperature"], asked[0]["max_new_tokens"], asked[0]["top_p"])
        seeds = [[each["sampling_seed"]] for each in asked]
        return [sample for (sample,) in self._engine.generate([request[0] for request in batch], params, seeds)]

    async def update_weights(self, named_tensors: dict[str, Tensor]) -> None:
        self._engine.update_weights(named_tensors.items())

    async def sleep(self) -> None: ...

    async def wake_up(self) -> None: ...


class EmbeddedReplica(RolloutReplica):
    """A replica that is one :class:`EmbeddedServer`."""

    async def launch_servers(self) -> None:
        """Start the server's actor; its weights come with the first synchronisation."""
        name = _server_name(self.replica_rank)
        actor = ray.remote(EmbeddedServer).options(name=name, num_cpus=0, max_concurrency=self.max_concurrency)
        self._server_handle, self._server_address = actor.remote(self.model_config, self.config.dtype), name
        self.servers = [self._server_handle]


class EmbeddedAdapter(BaseRollout):
    """The trainer's end of a replica: every rank gathers the weights, the replica's first rank sends them."""

    async def resume(self, tags: list[str]) -> None:
        """Nothing was freed."""

    async def release(self) -> None:
        """Nothing to free."""

    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], **_: Any) -> None:
        """Replace the server's weights."""
        replica, position = divmod(int(os.environ["RANK"]), self.config.tensor_model_parallel_size)
        named_tensors = {name: tensor.detach().cpu() for name, tensor in weights}
        if position == 0:
            await ray.get_actor(_server_name(replica)).update_weights.remote(named_tensors)


def _server_name(replica: int) -> str:
    return f"embedded_server_{replica}"


RolloutReplicaRegistry.register("embedded", lambda: EmbeddedReplica)
register_rollout_adapter("embedded", f"{EmbeddedAdapter.__module__}.{EmbeddedAdapter.__qualname__}")
