"""The protocol of an SGLang server (0.5.12): arguments, environment, requests and samples.

Pure functions, tested without a server; `tests/real_sglang` tests them with SGLang itself.
"""

import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json
from srpo.rollout.interface import Completion, SamplingParams

HOST = "127.0.0.1"

CONTEXT_MARGIN = 8
"""Positions that SGLang reserves: it truncates responses and refuses prompts within 6 tokens of its limit."""

ENVIRONMENT = {"SGLANG_GRPC_PORT": "50051"}
"""Environment of every process that starts an SGLang server or reads its arguments.

SGLang derives a gRPC port from the server's, 10000 above it, and refuses what exceeds 65535, though gRPC is off
(sgl-project/sglang#29416). An explicit port replaces the derived one; nothing listens on it.
"""


@dataclass(frozen=True)
class ServerOptions:
    """How the server runs.

    Attributes:
        context_length: tokens of the longest prompt and its response together.
        tensor_parallel: GPUs that share one copy of the model.
        data_parallel: copies of the model.
        memory_fraction: of each GPU's memory, for weights and key-value cache.
        dtype: of weights and activations, an SGLang name.
        attention_backend: an SGLang name. The default is what verl chooses for training's servers: left to itself,
            deterministic SGLang takes fa3 on Hopper, whose CUDA graphs 0.5.12 cannot capture
            (sgl-project/sglang#22800).
        deterministic: batch-invariant kernels and honoured seeds, at some cost in speed. Without it a
            sample depends on chance.
        ends: token ids that end a response, besides those that the checkpoint's files name.
        concurrency: requests in flight for each copy of the model, and so the largest batch that needs CUDA graphs.
            Left to itself, SGLang makes graphs for 24 or 32 sequences on GPUs of 24 or 48 GB.
        start_timeout: seconds until the server has to be healthy.
        request_timeout: seconds that a sample may take, waiting in the server's queue included.
    """

    context_length: int
    tensor_parallel: int = 1
    data_parallel: int = 1
    memory_fraction: float = 0.8
    dtype: str = "bfloat16"
    attention_backend: str = "flashinfer"
    deterministic: bool = True
    ends: frozenset[int] = frozenset()
    concurrency: int = 256
    start_timeout: float = 900.0
    request_timeout: float = 1800.0


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
        "--attention-backend": options.attention_backend,
        "--cuda-graph-max-bs": options.concurrency,
    }
    flags = ["--skip-tokenizer-init"] + ["--enable-deterministic-inference"] * options.deterministic
    return [*(str(part) for pair in arguments.items() for part in pair), *flags]


def with_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """``PATH`` with this Python's folder of programs at its end.

    SGLang and flashinfer compile kernels with ``ninja`` of the environment, which need not be active.
    """
    folder = str(Path(sys.executable).parent)
    return {"PATH": os.pathsep.join([*filter(None, [environment.get("PATH")]), folder])}


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment of the server, from this process' one.

    Adds :data:`ENVIRONMENT` and :func:`with_programs`. Removes the switch that returns log-probs before the
    temperature. Exempts loopback from proxies, because a starting SGLang sends itself a request.
    """
    kept = {name: value for name, value in environment.items() if name != "SGLANG_RETURN_ORIGINAL_LOGPROB"}
    no_proxy = kept.get("no_proxy") or kept.get("NO_PROXY")
    return kept | ENVIRONMENT | with_programs(kept) | {"no_proxy": f"{no_proxy},{HOST}" if no_proxy else HOST}


def vocabulary_size(checkpoint: Path) -> int:
    """``vocab_size`` of ``config.json``."""
    return read_json(checkpoint / "config.json")["vocab_size"]


def check_token_ids(prompt_ids: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Check that prompts have only tokens of the model's vocabulary.

    SGLang 0.5.12 does not check: another token crashes its scheduler, or is read from the padding of its embedding.
    """
    for number, prompt in enumerate(prompt_ids):
        if not prompt or min(prompt) < 0 or max(prompt) >= vocabulary:
            raise SrpoError(f"prompt {number} has no tokens, or others than the {vocabulary} of the model's vocabulary")


def nucleus_floor(top_p: float, vocabulary: int) -> float:
    """A bound: no token with a lower log-prob is in the nucleus.

    The nucleus is the smallest set of the likeliest tokens that holds ``top_p``. Without its least likely token it
    holds less than ``top_p``; so this token and all outside hold more than ``1 - top_p`` together. They are at most
    ``vocabulary`` tokens and none is likelier than it.
    """
    return math.log((1 - top_p) / vocabulary) if top_p < 1 else -math.inf


def generate_request(
    prompt_ids: list[int], params: SamplingParams, seed: int, ends: Collection[int] = ()
) -> dict[str, Any]:
    """The body of one ``/generate`` request: one sample."""
    return {
        "input_ids": prompt_ids,
        "sampling_params": {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "max_new_tokens": params.max_new_tokens,
            "sampling_seed": seed,
            "stop_token_ids": sorted(ends),
        },
        "return_logprob": True,
    }


def read_completion(answer: Any, max_new_tokens: int, stops: Collection[int]) -> Completion:
    """Read the sample from an answer of ``/generate``, with or without the stop token in its ``output_ids``.

    Args:
        stops: the tokens that end a response. SGLang looks at the length first: if the last token
            that is allowed is a stop token, it says that the response was cut off.

    Raises:
        ValueError: if the sample is not complete: aborted, short, or a log-prob is missing or not finite.
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
