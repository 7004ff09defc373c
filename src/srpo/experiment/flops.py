"""FLOPs of a forward pass, and its time on a modelled clock. Only arithmetic, no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from srpo.experiment import memory
from srpo.experiment.config import ModelledClock, TransformerShape


@dataclass(frozen=True)
class ModelCost:
    """The cost of a forward pass of a decoder-only transformer.

    Attributes:
        matmul_parameters: weights that every token is multiplied with, the output head included, a pure
            embedding lookup excluded.
        attention_width: layers x heads x head dimension.
    """

    matmul_parameters: int
    attention_width: int

    def forward_flops(self, lengths: Iterable[int]) -> float:
        """FLOPs of scoring sequences: 2 N per token and 4 W per token and attended position."""
        return float(sum(2 * self.matmul_parameters * n + 2 * self.attention_width * n * (n + 1) for n in lengths))

    def decode_flops(self, prompt_lengths: Sequence[int], response_lengths: Sequence[int]) -> float:
        """FLOPs of generating responses behind prompts whose keys and values are cached."""
        totals = [p + r for p, r in zip(prompt_lengths, response_lengths, strict=True)]
        return self.forward_flops(totals) - self.forward_flops(prompt_lengths)


def model_cost(shape: TransformerShape) -> ModelCost:
    """The cost of a forward pass of a model with this shape."""
    lookup = 0 if shape.tie_word_embeddings else memory.embedding_parameters(shape)
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    return ModelCost(memory.parameters(shape) - lookup, width)


def modelled_seconds(clock: ModelledClock, decode_flops: float, dense_flops: float) -> float:
    """Seconds that FLOPs take at the clock's nominal rates."""
    return decode_flops / clock.decode_flops_per_second + dense_flops / clock.dense_flops_per_second
