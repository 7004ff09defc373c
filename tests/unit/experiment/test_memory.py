"""The memory arithmetic held against the code, a real checkpoint, real logits and a real layer."""

from itertools import accumulate
from pathlib import Path

import pytest
import torch
from tiny import prepare, tiny_experiment
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

from srpo.algorithm import distribution
from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import LocalModel, TransformerShape
from srpo.ground.errors import SrpoError
from srpo.ground.layout import WEIGHTS
from srpo.ground.repository import CONFIGS
from srpo.policy import in_process
from srpo.starts import resolve

PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
SHAPES = {name: memory.shape_of(model) for name, model in PAPER.models.items()}


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(("model", "billions"), [("qwen3-4b", 4.02), ("qwen3-8b", 8.19)])
def test_parameters_are_the_published_ones(model: str, billions: float) -> None:
    assert round(memory.parameters(SHAPES[model]) / 1e9, 2) == billions


@pytest.mark.parametrize("model", SHAPES)
def test_parameters_are_those_of_transformers(model: str) -> None:
    with torch.device("meta"):
        network = Qwen3ForCausalLM(Qwen3Config(**SHAPES[model].model_dump()))
    assert memory.parameters(SHAPES[model]) == sum(parameter.numel() for parameter in network.parameters())
    layer = network.model.layers[0]
    assert memory.layer_parameters(SHAPES[model]) == sum(parameter.numel() for parameter in layer.parameters())


def test_parameters_of_a_llama_are_those_of_transformers() -> None:
    """SmolLM2-135M: no norms of queries and keys."""
    shape = memory.shape_of(load_experiment(CONFIGS / "experiments" / "rehearsal-real.yaml").models["smollm2-135m"])
    with torch.device("meta"):
        network = LlamaForCausalLM(LlamaConfig(**shape.model_dump(exclude={"model_type"})))
    assert memory.parameters(shape) == sum(parameter.numel() for parameter in network.parameters()) == 134_515_008
    layer = network.model.layers[0]
    assert memory.layer_parameters(shape) == sum(parameter.numel() for parameter in layer.parameters())


def test_host_memory_is_that_of_its_largest_moment() -> None:
    """Of Qwen3-8B on 8 ranks: servers' weights, and what one checkpoint has in host memory at a time."""
    shape, tied, ranks = SHAPES["qwen3-8b"], SHAPES["qwen3-4b"], 8 * memory.HOST_PER_RANK
    servers, size = 8 * 2 * memory.parameters(shape), memory.parameters(shape)

    def host(teacher: bool, **changes: object) -> float:
        return memory.host_memory(shape, PAPER.execution.model_copy(update=changes), teacher) - ranks

    assert host(teacher=False) == servers + 2 * size  # rank 0 has the weights to evaluate
    assert host(teacher=True) == servers + 4 * size  # ranks read the teacher's shards
    assert host(teacher=True, offload_teacher=True) == servers + 4 * size + 4 * size
    assert host(teacher=True, rollout_tensor_parallel=8) == 2 * size + 4 * size
    # of a model with tied embeddings every rank loads all of it
    assert memory.host_memory(tied, PAPER.execution) == 8 * 4 * memory.parameters(tied) + ranks


def test_a_run_in_one_process_asks_for_memory_by_its_model() -> None:
    models = load_experiment(CONFIGS / "experiments" / "rehearsal-real.yaml").models
    assert 8200 < memory.process_memory_mb(models["smollm2-135m"]) < 9000
    embedded = load_experiment(CONFIGS / "experiments" / "embedded.yaml").models
    assert {memory.process_memory_mb(model) // 100 for model in embedded.values()} == {20}


def test_a_local_checkpoint_is_read(tmp_path: Path) -> None:
    Qwen3Config(**SHAPES["qwen3-4b"].model_dump()).save_pretrained(tmp_path)
    model = LocalModel(kind="local", name="mine", title="Mine", path=tmp_path)
    assert memory.shape_of(model) == SHAPES["qwen3-4b"]


def test_a_shape_is_held_against_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = PAPER.models["qwen3-4b"]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda **_: str(tmp_path))
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    Qwen3Config(**SHAPES["qwen3-4b"].model_dump()).save_pretrained(tmp_path)
    assert resolve.resolve_hub(model) == tmp_path
    Qwen3Config(**SHAPES["qwen3-8b"].model_dump()).save_pretrained(tmp_path)
    with pytest.raises(SrpoError, match=r"shape\.hidden_size = 2560: config\.json has 4096"):
        resolve.resolve_hub(model)


# ---------------------------------------------------------------- facts of the code


def test_a_chunk_of_logits_is_that_of_the_code() -> None:
    assert memory.LOGITS_CHUNK == distribution.LOGITS_CHUNK


def _tensor_bytes(value) -> int:
    """Bytes of the distinct large tensors of a nested state; steps and random states are no part of the formula."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.numel() > 1)
    storages = [(t.to_local() if hasattr(t, "to_local") else t).untyped_storage() for t in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", ["grpo", "srpo", "srpo_live_teacher"])
def test_a_real_checkpoint_has_the_bytes_of_the_formula(method: str, precision: str, tmp_path: Path) -> None:
    spec, layout = prepare(tiny_experiment(method, {"precision": precision}, max_steps=1), tmp_path)
    base = layout.model(spec.id.model)
    with in_process.start(spec, base) as policy:
        # Adam has moments once it has taken a step
        engine = policy.worker.actor.engine
        for parameter in engine.module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        engine.optimizer.step()
        policy.save_checkpoint(tmp_path / "saved", 1)
    network = Qwen3Config.from_pretrained(base)
    shape = TransformerShape(**{key: getattr(network, key) for key in TransformerShape.model_fields})
    assert memory.parameters(shape) == resolve.count_parameters(base)
    size = memory.checkpoint_bytes(shape, spec.execution, spec.method.teacher_has_weights)
    kinds = {"model_*.pt": size.model, "optim_*.pt": size.optimizer, "*_teacher_*.pt": size.teacher}
    for pattern, expected in kinds.items():
        files = list((tmp_path / "saved").glob(pattern))
        assert len(files) == (expected > 0)
        for path in files:
            assert _tensor_bytes(torch.load(path, weights_only=False)) == expected, pattern
            assert expected <= path.stat().st_size < expected + 40_000
    weights = tmp_path / "saved" / WEIGHTS / "model.safetensors"
    assert size.weights <= weights.stat().st_size < size.weights + 10_000


def _peak(function) -> int:
    """Bytes allocated at most on the CPU while ``function`` runs."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


@pytest.mark.parametrize("distilled", [0.0, 0.5, 1.0])
def test_copies_of_the_logits(distilled: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The update's use of them (``prepare_model_outputs``), forward and backward: the logits and their gradient."""
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", 2**16)
    tokens, vocabulary = 512, 20_000
    hidden = torch.randn(tokens, 8, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(vocabulary, 8, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(vocabulary, (tokens,))
    rows = torch.arange(tokens) < distilled * tokens
    ids = torch.arange(20).repeat(int(rows.sum()), 1)

    def update() -> None:
        logits = hidden @ head.T
        log_probs, restricted = distribution.token_and_top_k_log_probs(logits, labels, rows, ids)
        del logits
        (log_probs.sum() + restricted.sum()).backward()

    copies = _peak(update) / (2 * tokens * vocabulary)
    assert memory.LOGITS_COPIES <= copies <= memory.LOGITS_COPIES + 0.15


@pytest.mark.parametrize(
    "sizes", [(64, 4, 2, 16, 128), (128, 4, 2, 16, 128), (64, 8, 2, 16, 128), (64, 4, 4, 16, 128), (64, 4, 2, 16, 256)]
)
def test_a_layer_keeps_what_the_formula_says(sizes: tuple[int, ...]) -> None:
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    shape = TransformerShape(
        **dict(zip(names, sizes, strict=True)), num_hidden_layers=1, vocab_size=8, tie_word_embeddings=True
    )
    config, tokens = Qwen3Config(**shape.model_dump()), 64
    config._attn_implementation = "sdpa"
    layer = Qwen3DecoderLayer(config, 0).to(torch.bfloat16)
    hidden = torch.randn(1, tokens, shape.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    positions = Qwen3RotaryEmbedding(config)(hidden, torch.arange(tokens)[None])
    shared = {tensor.untyped_storage().data_ptr() for tensor in (*layer.parameters(), *positions)}
    kept: dict[int, torch.Tensor] = {}  # holding them, so that no address is used twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in shared:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        layer(hidden, position_embeddings=positions)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / tokens
    assert measured <= memory.layer_activations(shape) < 2.2 * measured
