"""A small Qwen3 with random weights, for tests and benchmarks."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def random_qwen3(vocab_size: int, initializer_range: float, **settings) -> Qwen3ForCausalLM:
    """The same weights each time; ``settings`` are token ids and other sizes than :data:`SIZES`."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab_size,
        initializer_range=initializer_range,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        **(SIZES | settings),
    )
    return Qwen3ForCausalLM(config)
