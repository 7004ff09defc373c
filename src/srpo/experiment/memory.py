"""Computes parameters, checkpoint sizes, device and host memory from a model's shape. Only arithmetic, no torch.

The number of bytes depends on the engine (``policy/self_teacher_engine.py``, ``policy/verl_config.py``): float32
weights, gradients, Adam moments and teacher, sharded over the ranks (FSDP2), computation in bfloat16. Values that
cannot be computed are named constants. ``test_memory.py`` checks parameters and checkpoints against
real ones.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from srpo.algorithm import LOGITS_CHUNK
from srpo.experiment.config import Execution, GgufModel, LocalModel, MiniatureModel, Model, Training, TransformerShape
from srpo.ground.errors import SrpoError

FLOAT32, BFLOAT16 = 4, 2

CHUNK_COPIES = 4
"""float32 copies of a chunk at the same time: the softmax, the tail's part of the gradient, and a temporary of each."""

LOGITS_COPIES = 2
"""Copies of a micro-batch's logits in an update: the logits and their gradient."""

DEVICE_RUNTIME = 6e9
"""Assumed bytes on each GPU: CUDA and NCCL of trainer and server, and the CUDA graphs that a sleeping server keeps."""

SYNC_BUCKETS = 2 * 2 * 2**30
"""Bytes of the weights in transfer to a server: two of verl's buckets of 2048 MiB."""

PROCESS_MB, PROCESS_COPIES = 2000, 12
"""Assumed memory of a run in one process on a CPU: MB of libraries and tokens; float32 copies of the weights: model,
gradient, two moments, teacher, engine, two in a checkpoint, and room: ``published/real-cpu`` took up to 8.2 GB."""

HOST_PER_RANK = 10e9
"""Assumed host memory of each rank: a worker, a server's processes and Ray's share."""


# ---------------------------------------------------------------- models


def shape_of(model: Model) -> TransformerShape:
    """A model's shape, without downloading or building it."""
    if isinstance(model, MiniatureModel):
        sizes = model.architecture
        return TransformerShape(
            **sizes.model_dump(exclude={"max_position_embeddings"}),
            head_dim=sizes.hidden_size // sizes.num_attention_heads,
            tie_word_embeddings=True,
        )
    if isinstance(model, GgufModel):
        return model.shape
    if isinstance(model, LocalModel):
        return shape_in(model.path.expanduser())
    if model.shape is None:
        keys = ", ".join(TransformerShape.model_fields)
        raise SrpoError(f"model {model.name}: its file has no shape; give {keys}")
    return model.shape


def shape_in(folder: Path) -> TransformerShape:
    """The shape of the model in a folder."""
    path = folder / "config.json"
    try:
        found = json.loads(path.read_text())
        return TransformerShape(**{name: found[name] for name in TransformerShape.model_fields})
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SrpoError(f"{path} does not give the shape of a Qwen3 or Llama ({why})") from error


def layer_parameters(shape: TransformerShape) -> int:
    """Weights of one decoder layer: attention, in Qwen3 with norms of queries and keys; gated MLP; two norms."""
    queries = shape.num_attention_heads * shape.head_dim
    keys = shape.num_key_value_heads * shape.head_dim
    norms = 2 * shape.head_dim if shape.model_type == "qwen3" else 0
    attention = shape.hidden_size * (2 * queries + 2 * keys) + norms
    return attention + 3 * shape.hidden_size * shape.intermediate_size + 2 * shape.hidden_size


def embedding_parameters(shape: TransformerShape) -> int:
    """Weights of the embedding, or of the output head."""
    return shape.vocab_size * shape.hidden_size


def parameters(shape: TransformerShape) -> int:
    """All weights, tied ones once."""
    embeddings = embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2)
    return embeddings + shape.num_hidden_layers * layer_parameters(shape) + shape.hidden_size


def kv_bytes_per_token(shape: TransformerShape) -> int:
    """Keys and values of a token in bfloat16, over all layers."""
    return 2 * BFLOAT16 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim


# ---------------------------------------------------------------- checkpoints


@dataclass(frozen=True)
class CheckpointBytes:
    """A checkpoint's large files, all ranks together.

    Attributes:
        model: verl's shards of the weights, float32.
        optimizer: Adam's two moments, float32.
        teacher: the teacher's shards, float32; 0 for a method whose teacher has only the student's weights.
        weights: ``huggingface/``, what is evaluated, in the precision that the run computes with.
    """

    model: int
    optimizer: int
    teacher: int
    weights: int

    @property
    def total(self) -> int:
        """Bytes of a complete checkpoint, from which a run can be resumed."""
        return self.model + self.optimizer + self.teacher + self.weights


def checkpoint_bytes(shape: TransformerShape, execution: Execution, teacher: bool) -> CheckpointBytes:
    """Size of a checkpoint of a method whose teacher has its own weights, or not."""
    once = FLOAT32 * parameters(shape)
    weights = weight_bytes(execution) * parameters(shape)
    return CheckpointBytes(model=once, optimizer=2 * once, teacher=once if teacher else 0, weights=weights)


def weight_bytes(execution: Execution) -> int:
    """Bytes of a weight in the precision that a run computes with."""
    return {"float32": FLOAT32, "bfloat16": BFLOAT16}[execution.precision]


# ---------------------------------------------------------------- device memory


def trainer_state(shape: TransformerShape, execution: Execution, teacher: bool = True) -> dict[str, float]:
    """Bytes on each GPU that stay allocated in all phases, by item."""
    shard = FLOAT32 * parameters(shape) / execution.ranks
    return {
        "weights, float32": shard,
        "Adam's moments, float32": 2 * shard,
        "teacher, float32": shard if teacher and not execution.offload_teacher else 0.0,
    }


def update_memory(
    shape: TransformerShape, execution: Execution, training: Training, teacher: bool = True
) -> dict[str, float]:
    """Bytes on each GPU at the peak of an update, if the largest micro-batch has distilled responses only.

    The passes before it take less: they have no gradients.
    """
    tokens = micro_batch_tokens(execution, training)
    layer, embedding = layer_parameters(shape), embedding_parameters(shape)
    inside_layer = layer_activations(shape)
    if execution.gradient_checkpointing:
        activations = tokens * (shape.num_hidden_layers * BFLOAT16 * shape.hidden_size + inside_layer)
    else:
        activations = tokens * shape.num_hidden_layers * inside_layer
    # embedding, head and two layers; one rank keeps what it has converted
    gathered = 2 * (embedding + layer) if execution.ranks > 1 else parameters(shape)
    return {
        **trainer_state(shape, execution, teacher),
        "gradients, float32": FLOAT32 * parameters(shape) / execution.ranks,
        # in bfloat16; the largest unit's gradient in bfloat16 and, for its sum, float32
        "gathered weights and gradients": BFLOAT16 * gathered + (BFLOAT16 + FLOAT32) * embedding,
        "activations": activations,
        f"logits, bfloat16, {LOGITS_COPIES} times": LOGITS_COPIES * BFLOAT16 * tokens * shape.vocab_size,
        "logits in float32, a chunk at a time": CHUNK_COPIES * FLOAT32 * LOGITS_CHUNK,
        "CUDA, NCCL, sleeping server": DEVICE_RUNTIME,
    }


def layer_activations(shape: TransformerShape) -> int:
    """Bytes a token inside one layer between its forward and backward pass in bfloat16, gradients included.

    Two norms (input twice in float32, once in bfloat16) and residuals; norms of queries and keys, rotary embedding and
    attention; gate, up, their product. ``test_memory.py`` measures what a layer keeps; it is less,
    as gradients come one after the other.
    """
    queries = shape.num_attention_heads * shape.head_dim
    keys_values = 2 * shape.num_key_value_heads * shape.head_dim
    return 24 * shape.hidden_size + 20 * (queries + keys_values) + 12 * shape.intermediate_size


def rollout_memory(
    shape: TransformerShape, execution: Execution, device: float, teacher: bool = True
) -> dict[str, float]:
    """Bytes on each GPU of ``device`` bytes while servers generate.

    A server takes ``rollout_memory_fraction`` of the memory that is free when it starts (before Adam's first step). It
    holds its weights there, and keys and values in the rest.
    """
    state = trainer_state(shape, execution, teacher)
    free = device - DEVICE_RUNTIME - state["weights, float32"] - state["teacher, float32"]
    weights = BFLOAT16 * parameters(shape) / execution.rollout_tensor_parallel
    keys_values = max(0.0, execution.rollout_memory_fraction * free - weights)
    return {
        **state,
        "server's weights, bfloat16": weights,
        "keys and values": keys_values,
        # they are sent before there are keys and values
        "weights being sent": max(0.0, SYNC_BUCKETS + FLOAT32 * embedding_parameters(shape) - keys_values),
        "CUDA, NCCL, server": DEVICE_RUNTIME,
    }


def host_memory(shape: TransformerShape, execution: Execution, teacher: bool = True) -> float:
    """Bytes of host memory that a run needs at its peak, all ranks together.

    It is at the start, when a checkpoint is written, or when one is loaded. What verl saves and loads of the student
    goes through host memory one tensor at a time.
    """
    size = parameters(shape)
    # verl loads a model with tied embeddings on every rank, others on the first, in float32
    loading = FLOAT32 * size * (execution.ranks if shape.tie_word_embeddings else 1)
    # each server keeps a copy of its weights
    servers = BFLOAT16 * size * execution.ranks / execution.rollout_tensor_parallel
    # the first rank puts the weights to evaluate together; safetensors 0.8 writes them without another copy (measured)
    saving = weight_bytes(execution) * size
    # when a run goes on, every rank reads its whole shard of the teacher (self_teacher_engine.py)
    resuming = FLOAT32 * size if teacher else 0
    offloaded = FLOAT32 * size if teacher and execution.offload_teacher else 0
    return max(loading, servers + max(saving, resuming)) + offloaded + HOST_PER_RANK * execution.ranks


def process_memory_mb(model: Model) -> int:
    """MB of memory that a run without GPU needs for its model; of a hub or local model that is not known, a default."""
    known = isinstance(model, MiniatureModel | GgufModel)
    return PROCESS_MB + int(PROCESS_COPIES * FLOAT32 * parameters(shape_of(model)) / 1e6) if known else PROCESS_MB


def micro_batch_tokens(execution: Execution, training: Training) -> int:
    """Tokens of the largest micro-batch of one rank."""
    longest = training.max_prompt_length + training.max_response_length
    return execution.max_tokens_per_rank or training.micro_batch_size * longest
