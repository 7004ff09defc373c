"""Every argument that the project or verl gives to SGLang, read by SGLang's own parser; no server is started."""

import asyncio
import dataclasses
import os

import pytest
from omegaconf import OmegaConf

from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS
from srpo.policy.verl_config import RUNNING_SAMPLES, samples_per_server
from srpo.rollout.sglang_protocol import ENVIRONMENT, HOST, ServerOptions, server_arguments, server_environment

PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
HIGH_PORT = 60999  # the highest that Linux hands out


@pytest.fixture
def grpc_port(monkeypatch):
    """The environment in which the project starts servers and Ray's workers."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def read(monkeypatch):
    """SGLang's reading of a command line, in the environment that the project gives to servers."""
    from sglang.srt.server_args import prepare_server_args

    def read_arguments(arguments: list[str]):
        for name, value in server_environment(os.environ).items():
            monkeypatch.setenv(name, value)
        return prepare_server_args(arguments)

    return read_arguments


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation(read, model, deterministic):
    options = ServerOptions(
        context_length=500,
        tensor_parallel=2,
        data_parallel=4,
        memory_fraction=0.7,
        deterministic=deterministic,
    )
    arguments = server_arguments(model.checkpoint, HIGH_PORT, options)
    found = read(arguments)
    assert (found.model_path, found.host, found.port) == (str(model.checkpoint), HOST, HIGH_PORT)
    assert (found.tp_size, found.dp_size, found.context_length) == (2, 4, 508)
    assert (found.mem_fraction_static, found.dtype) == (0.7, "bfloat16")
    assert (found.skip_tokenizer_init, found.enable_deterministic_inference) == (True, deterministic)
    # on a CPU SGLang has no CUDA graphs and replaces the number, and the stand-ins replace the attention
    on_cuda = read([*arguments, "--device", "cuda"])
    assert on_cuda.cuda_graph_bs[-1] == options.concurrency
    assert on_cuda.attention_backend == "flashinfer"  # not fa3, which is SGLang's choice on Hopper
    # a mistyped argument would not be swallowed
    with pytest.raises(SystemExit):
        read([*arguments, "--no-such-argument", "1"])


# ---------------------------------------------------------------- verl


class Reached(Exception):
    """The arguments have been accepted; their server is not started."""


@pytest.fixture
def verl_server(model, monkeypatch, tmp_path):
    """What verl's own server passes to SGLang in a run of the paper, as SGLang's ``ServerArgs``."""
    from sglang.srt.entrypoints.http_server import Engine
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import HFModelConfig
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.sglang_rollout.async_sglang_server import SGLangHttpServer

    from srpo.policy.verl_config import compose_verl_config
    from srpo.starts.make_tokenizer import symbol_tokenizer

    def reach(*, server_args, **_):
        raise Reached(server_args)

    monkeypatch.setattr(Engine, "_launch_subprocesses", reach)
    model.config.save_pretrained(tmp_path)
    symbol_tokenizer(["user\n1\nassistant\n<answer>A</answer>"], 300).save_pretrained(tmp_path)

    def arguments(**execution):
        run = PAPER.run(PAPER.runs()[0])
        run = run.model_copy(update={"execution": run.execution.model_copy(update=execution)})
        config = compose_verl_config(run, tmp_path).actor_rollout_ref
        server = object.__new__(SGLangHttpServer)
        server.config = omega_conf_to_dataclass(config.rollout)
        OmegaConf.set_struct(config.model, False)
        config.model.override_config.attn_implementation = "sdpa"  # of the trainer
        server.model_config = omega_conf_to_dataclass(config.model, dataclass_type=HFModelConfig)
        server.rollout_mode = RolloutMode.HYBRID
        server.replica_rank = server.node_rank = server.base_gpu_id = 0
        server.nnodes = 1
        server._disaggregation_role = "null"
        with pytest.raises(Reached) as reached:
            asyncio.run(server.launch_server())
        return reached.value.args[0]

    return arguments


@pytest.mark.parametrize("deterministic", [True, False])
def test_training(verl_server, grpc_port, deterministic):
    found = verl_server(deterministic_rollouts=deterministic, verl_overrides=ON_CUDA)
    assert found.enable_deterministic_inference == deterministic
    assert found.attention_backend == "flashinfer"  # what evaluation asks for too
    assert found.disable_piecewise_cuda_graph
    assert (found.tp_size, found.dp_size) == (PAPER.execution.rollout_tensor_parallel, 1)
    assert found.mem_fraction_static == PAPER.execution.rollout_memory_fraction
    assert (found.enable_memory_saver, found.skip_tokenizer_init) == (True, True)
    assert found.enable_weights_cpu_backup


SGLANG = "actor_rollout_ref.rollout.engine_kwargs.sglang"
ON_CUDA = {f"{SGLANG}.device": "cuda"}  # as SGLang finds it on a GPU


def test_graphs_for_the_largest_batch_of_training(verl_server, grpc_port):
    """Whatever the GPU's memory, by which SGLang would choose."""
    spec = PAPER.run(PAPER.runs()[0])
    found = verl_server(verl_overrides=ON_CUDA)
    assert found.cuda_graph_max_bs == max(found.cuda_graph_bs) == samples_per_server(spec)
    assert found.max_running_requests == RUNNING_SAMPLES
    assert found.speculative_algorithm is None


def test_drafts_without_a_model_keep_the_distribution(verl_server, grpc_port):
    found = verl_server(verl_overrides=ON_CUDA | {f"{SGLANG}.speculative_algorithm": "NGRAM"})
    assert found.speculative_algorithm == "NGRAM"
    # a draft is taken with exactly the probability that the model gives it
    assert (found.speculative_accept_threshold_single, found.speculative_accept_threshold_acc) == (1.0, 1.0)


def test_a_request_has_only_fields_of_sglangs():
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams as Theirs

    from srpo.rollout.interface import SamplingParams
    from srpo.rollout.sglang_protocol import generate_request

    body = generate_request([5, 6], SamplingParams(temperature=0.7, max_new_tokens=4, top_p=0.9), 2**63 - 1)
    assert set(body) <= {field.name for field in dataclasses.fields(GenerateReqInput)}
    Theirs(**body["sampling_params"]).verify(250)
