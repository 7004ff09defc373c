"""Tests against SGLang itself, on a CPU (`make test-sglang`): a small model and evaluation's server."""

import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from srpo.rollout.sglang_protocol import ServerOptions
from srpo.rollout.sglang_server import SGLangServer

VOCABULARY = 250  # padded to 256 by SGLang
STOP = 1
OPTIONS = ServerOptions(context_length=504, memory_fraction=0.5, dtype="float32", concurrency=16)


def pytest_collection_modifyitems(items) -> None:
    """Skip all of this folder's tests, with the reason, where SGLang is missing or not set up for a CPU."""
    reason = None
    if find_spec("sglang") is None:
        reason = "sglang is not installed: make test-sglang"
    elif "sglang_on_cpu" not in sys.modules:
        reason = "the stand-ins for CUDA packages are not on PYTHONPATH: make test-sglang"
    for item in items:
        if "real_sglang" in item.path.parts:
            item.add_marker(pytest.mark.sglang)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A random Qwen3 whose folder is ``model.checkpoint``; about one token in eight is the stop token."""
    from random_qwen3 import random_qwen3

    torch.set_num_threads(1)
    model = random_qwen3(VOCABULARY, 0.1, intermediate_size=128, num_hidden_layers=2, eos_token_id=STOP)
    with torch.no_grad():
        model.model.embed_tokens.weight[STOP] *= 3.0
    model.checkpoint = tmp_path_factory.mktemp("model") / "checkpoint"
    model.save_pretrained(model.checkpoint)
    return model


@pytest.fixture(scope="session")
def serve(model, tmp_path_factory):
    """Make a server of the adapter for the CPU, not yet started."""

    def make(checkpoint=model.checkpoint, **options) -> SGLangServer:
        log = tmp_path_factory.mktemp("log") / "server.log"
        return SGLangServer(checkpoint, log, replace(OPTIONS, **options))

    return make
