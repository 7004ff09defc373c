"""The embedded engine: a decoder of Qwen3 and Llama for CPUs, made for models of a few million parameters.

A batch of rows decodes one token per step over a static key-value cache. Each distinct
prompt is computed once for all its samples, and finished rows are removed from the batch. Random numbers are
a function of (seed of the sample, position in the response), so a sample does not depend on the order of
prompts, the batch or other calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from srpo.experiment.config import Precision, TransformerShape
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json
from srpo.ground.mistakes import validated
from srpo.ground.schema import Count, Positive
from srpo.rollout.checkpoint import stop_token_ids, weight_files
from srpo.rollout.interface import Completion, SamplingParams

PREFILL_TOKENS = 2**14
"""Number of prompt tokens in one forward pass."""

NUCLEUS_HEAD = 32
"""Candidates taken before a full sort: enough for nearly every row of a peaked distribution."""

MASKED = -1e30
"""Added to the attention score of a padding column; finite, because an infinity can become NaN."""

_WORD = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


# ---------------------------------------------------------------- random numbers


def _mix(words: np.ndarray) -> np.ndarray:
    """Finalizer of splitmix64: a bijection of uint64 in which each input bit flips half of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def seed_keys(seeds: list[int]) -> np.ndarray:
    """Turn seeds, any integers, into the uint64 keys of :func:`counter_uniforms`."""
    # Mixed here and again with the position: otherwise seeds one constant apart would share a shifted stream.
    return _mix(np.array([seed & _WORD for seed in seeds], dtype=np.uint64) + _GOLDEN)


def counter_uniforms(keys: np.ndarray, position: int) -> np.ndarray:
    """Uniform numbers that depend on nothing but key and position.

    Returns:
        float32, shaped like ``keys``: multiples of 2**-24 in [0, 1).
    """
    step = np.uint64(int(_GOLDEN) * (position + 1) & _WORD)
    return (_mix(keys + step) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


# ---------------------------------------------------------------- sampling


def sample_tokens(logits: Tensor, uniforms: Tensor, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: [rows, vocabulary], float32.
        uniforms: [rows], float32 multiples of 2**-24 in [0, 1); for these ``uniform * mass < mass`` holds
            after rounding, hence no token of probability zero is drawn.
        temperature: divides the logits.
        top_p: keep the smallest set of most probable tokens that has at least this mass.

    Returns:
        The tokens, int64 [rows], and their log-probabilities before the top-p cut, float32 [rows];
        NaN where the logits are.
    """
    log_probs = F.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    probs = log_probs.exp()
    cumulative = (cut_to_nucleus(probs, top_p) if top_p < 1 else probs).cumsum(-1)
    targets = uniforms * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, targets[:, None], right=True)
    tokens.clamp_(max=logits.shape[1] - 1)  # beyond the end only if a row is NaN
    return tokens[:, 0], log_probs.gather(1, tokens)[:, 0]


def cut_to_nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Set to zero what is outside the nucleus. Tokens keep their order: sorted, near ties could swap
    by rounding and with them the token that a uniform number means."""
    head, candidates = probs.topk(min(NUCLEUS_HEAD, probs.shape[1]))
    cut = torch.zeros_like(probs).scatter_(1, candidates, _zero_after(head, top_p))
    wide = (head.sum(-1) < top_p).nonzero()[:, 0]
    if len(wide) and head.shape[1] < probs.shape[1]:
        head, candidates = probs[wide].sort(dim=-1, descending=True)
        cut[wide] = torch.zeros_like(head).scatter_(1, candidates, _zero_after(head, top_p))
    return cut


def _zero_after(falling: Tensor, top_p: float) -> Tensor:
    """Keep the shortest beginning of each row whose sum reaches ``top_p``, at least one entry."""
    kept = falling.clone()
    kept[:, 1:] *= falling.cumsum(-1)[:, :-1] < top_p
    return kept


# ---------------------------------------------------------------- model


class _Shape(TransformerShape):
    """What the engine needs of a configuration of Qwen3 or Llama, which normalises no queries and keys."""

    max_position_embeddings: Count
    rms_norm_eps: Positive
    rope_theta: Positive

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> _Shape:
        """Take the sizes from a configuration of transformers 4 or 5, refusing what is not implemented."""
        # transformers 5 keeps theta in rope_parameters, 4 beside rope_scaling.
        rope = config.get("rope_parameters") or {
            "rope_theta": config.get("rope_theta"),
            **(config.get("rope_scaling") or {}),
        }
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        for key, found, allowed in (
            ("model_type", config.get("model_type"), ("qwen3", "llama")),
            ("rope_type", rope_type, ("default",)),
            ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
            ("use_sliding_window", config.get("use_sliding_window") or False, (False,)),
            ("attention_bias", config.get("attention_bias") or False, (False,)),
            ("mlp_bias", config.get("mlp_bias") or False, (False,)),
        ):
            if found not in allowed:
                needed = " or ".join(map(repr, allowed))
                raise SrpoError(f"model configuration: {key} = {found!r}: the embedded engine needs {needed}")
        given = {"tie_word_embeddings": False, **config, "rope_theta": rope.get("rope_theta")}
        return validated(cls, {key: given.get(key) for key in cls.model_fields}, "model configuration")


@dataclass
class _Layer:
    """Weights of one layer, fused: fewer, larger products are faster."""

    attention_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 kv_heads) head_dim, hidden]; rows of query and key heads in rotation order
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim], in rotation order
    out: Tensor  # [hidden, heads head_dim]
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 feed_forward, hidden]
    down: Tensor  # [hidden, feed_forward]


@dataclass
class _Cache:
    """Keys and values of the rows in the batch; columns are right-aligned prompt, then response."""

    keys: Tensor  # [layers, rows, kv_heads, head_dim, columns]
    values: Tensor  # [layers, rows, kv_heads, columns, head_dim]
    bias: Tensor  # [rows, kv_heads, columns], added to the attention scores

    @classmethod
    def empty(cls, shape: _Shape, rows: int, prompt: int, columns: int, dtype: torch.dtype) -> _Cache:
        """Allocate; the ``prompt`` first columns are padding until a prompt is written there."""
        layers, heads, dim = shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim
        keys = torch.empty(layers, rows, heads, dim, columns, dtype=dtype)
        values = torch.empty(layers, rows, heads, columns, dim, dtype=dtype)
        bias = torch.zeros(rows, heads, columns, dtype=dtype)
        keys[..., :prompt] = 0
        values[..., :prompt, :] = 0
        bias[..., :prompt] = MASKED
        return cls(keys, values, bias)

    def move(self, source: Tensor, target: Tensor, used: int) -> None:
        """Copy the ``used`` first columns of rows ``source`` over rows ``target``."""
        self.keys[:, target, ..., :used] = self.keys[:, source, ..., :used]
        self.values[:, target, :, :used] = self.values[:, source, :, :used]
        self.bias[target] = self.bias[source]


@dataclass(frozen=True)
class _Row:
    prompt: tuple[int, ...]
    seed: int
    place: tuple[int, int]  # index of the prompt in the call, index of the sample


class EmbeddedEngine:
    """A :class:`~srpo.rollout.interface.RolloutEngine` for Qwen3 and Llama on the CPU.

    Args:
        hf_config: a ``Qwen3Config`` or ``LlamaConfig``, or the mapping in its ``config.json``.
        ends: token ids that end a response.
        pad_token_id: fills up prompts; never reaches a result.
        precision: of weights, activations and cache. Positions are rotated and tokens are drawn in float32.
        max_batch: maximum number of rows decoded at once. A batch decodes until its longest response ends, so few large
            batches were faster than many small ones (measured on a toy).
        memory_bytes: bound on the rows' key-value cache and logits; at least one row is decoded.
    """

    def __init__(
        self,
        hf_config: Any,
        ends: Collection[int],
        pad_token_id: int | None,
        precision: Precision = "float32",
        max_batch: int = 512,
        memory_bytes: int = 2**30,
    ) -> None:
        self._shape = shape = _Shape.read(hf_config if isinstance(hf_config, Mapping) else hf_config.to_dict())
        self._dtype: torch.dtype = getattr(torch, precision)
        self._ends = [*ends]
        self._pad = pad_token_id or 0
        self._max_batch = max_batch
        self._memory_bytes = memory_bytes
        self._loaded = False

        exponents = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        angles = torch.outer(torch.arange(shape.max_position_embeddings).float(), 1 / shape.rope_theta**exponents)
        self._rotation = torch.polar(torch.ones_like(angles), angles)  # complex64 [positions, head_dim / 2]

        heads, kv_heads, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        empty = partial(torch.empty, dtype=self._dtype)
        self._layers = [
            _Layer(
                attention_norm=empty(shape.hidden_size),
                qkv=empty((heads + 2 * kv_heads) * dim, shape.hidden_size),
                qk_norm=empty(heads + kv_heads, dim) if shape.model_type == "qwen3" else None,
                out=empty(shape.hidden_size, heads * dim),
                mlp_norm=empty(shape.hidden_size),
                gate_up=empty(2 * shape.intermediate_size, shape.hidden_size),
                down=empty(shape.hidden_size, shape.intermediate_size),
            )
            for _ in range(shape.num_hidden_layers)
        ]
        self._embedding = empty(shape.vocab_size, shape.hidden_size)
        self._norm = empty(shape.hidden_size)
        self._head = self._embedding if shape.tie_word_embeddings else empty(shape.vocab_size, shape.hidden_size)
        self._weights = self._name_weights()

    @classmethod
    def from_pretrained(
        cls, path: Path, precision: Precision = "float32", ends: Collection[int] = ()
    ) -> EmbeddedEngine:
        """Load a directory in Hugging Face format: ``config.json`` and safetensors, no code; ``ends``: further ones."""
        config = read_json(path / "config.json")
        engine = cls(config, {*ends, *stop_token_ids(path)}, config.get("pad_token_id"), precision)
        engine.update_weights(item for file in weight_files(path) for item in load_file(file).items())
        return engine

    def update_weights(self, named_tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy in a full set of weights, converted to the engine's precision.

        ``lm_head.weight`` may be absent, and is ignored, when the embeddings are tied.
        """
        tensors = dict(named_tensors)
        if self._shape.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
        for problem, names in (
            ("missing", self._weights.keys() - tensors.keys()),
            ("unexpected", tensors.keys() - self._weights.keys()),
        ):
            if names:
                raise SrpoError(f"model weights: {len(names)} {problem}, for example {min(names)}")
        for name, (_, hf_shape) in self._weights.items():
            if tuple(tensors[name].shape) != hf_shape:
                raise SrpoError(f"model weights: {name} has shape {list(tensors[name].shape)}, not {list(hf_shape)}")
        with torch.no_grad():
            for name, (target, _) in self._weights.items():
                tensor = tensors[name]
                # The heads share one norm's weight: copying repeats it along the leading dimension.
                target.copy_(tensor.reshape(target.shape if tensor.numel() == target.numel() else target.shape[1:]))
        self._loaded = True

    @torch.inference_mode()
    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        """Sample ``len(seeds[i])`` responses to prompt ``i``."""
        if not self._loaded:
            raise RuntimeError("update_weights must come before generate")
        self._check_lengths(prompt_ids, params.max_new_tokens)
        rows = [
            _Row(tuple(prompt), seed, (i, j))
            for i, (prompt, own) in enumerate(zip(prompt_ids, seeds, strict=True))
            for j, seed in enumerate(own)
        ]
        rows.sort(key=lambda row: (len(row.prompt), row.prompt))  # little padding, equal prompts adjacent
        completions: list[list[Completion]] = [[None] * len(own) for own in seeds]  # type: ignore[list-item]
        for chunk in self._chunks(rows, params.max_new_tokens):
            for row, completion in zip(chunk, self._sample(chunk, params), strict=True):
                completions[row.place[0]][row.place[1]] = completion
        return completions

    # ------------------------------------------------------------ weights

    def _name_weights(self) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
        """Map each Hugging Face name to the view of our storage it is copied into, and to its shape there."""
        shape = self._shape
        heads, kv_heads, dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        hidden = shape.hidden_size
        weights = {
            "model.embed_tokens.weight": (self._embedding, (shape.vocab_size, hidden)),
            "model.norm.weight": (self._norm, (hidden,)),
        }
        if not shape.tie_word_embeddings:
            weights["lm_head.weight"] = (self._head, (shape.vocab_size, hidden))
        for index, layer in enumerate(self._layers):
            query, key, value = layer.qkv.split([heads * dim, kv_heads * dim, kv_heads * dim])
            gate, up = layer.gate_up.chunk(2)
            own = {
                "input_layernorm": (layer.attention_norm, (hidden,)),
                "self_attn.q_proj": (_rotation_order(query, dim), (heads * dim, hidden)),
                "self_attn.k_proj": (_rotation_order(key, dim), (kv_heads * dim, hidden)),
                "self_attn.v_proj": (value, (kv_heads * dim, hidden)),
                "self_attn.o_proj": (layer.out, (hidden, heads * dim)),
                "post_attention_layernorm": (layer.mlp_norm, (hidden,)),
                "mlp.gate_proj": (gate, (shape.intermediate_size, hidden)),
                "mlp.up_proj": (up, (shape.intermediate_size, hidden)),
                "mlp.down_proj": (layer.down, (hidden, shape.intermediate_size)),
            }
            if layer.qk_norm is not None:
                own |= {
                    "self_attn.q_norm": (_rotation_order(layer.qk_norm[:heads].view(-1, 1), dim)[..., 0], (dim,)),
                    "self_attn.k_norm": (_rotation_order(layer.qk_norm[heads:].view(-1, 1), dim)[..., 0], (dim,)),
                }
            weights |= {f"model.layers.{index}.{name}.weight": slot for name, slot in own.items()}
        return weights

    # ------------------------------------------------------------ batches

    def _check_lengths(self, prompt_ids: list[list[int]], max_new_tokens: int) -> None:
        longest = max(map(len, prompt_ids), default=0)
        if not all(prompt_ids):
            raise SrpoError("a prompt has no tokens: give at least one")
        if longest + max_new_tokens > self._shape.max_position_embeddings:
            raise SrpoError(
                f"prompt of {longest} tokens + max_new_tokens = {max_new_tokens} exceed the model's"
                f" max_position_embeddings = {self._shape.max_position_embeddings}"
            )

    def _chunks(self, rows: list[_Row], max_new_tokens: int) -> Iterator[list[_Row]]:
        """Cut rows, sorted by prompt length, so that each chunk fits the batch and memory bounds."""
        shape = self._shape
        a_token = self._dtype.itemsize * 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
        count = -(-len(rows) // self._max_batch)
        even = -(-len(rows) // max(count, 1))
        chunk: list[_Row] = []
        for row in rows:
            # Logits, float32, count four times: sampling holds a few tensors of their size.
            needed = a_token * (len(row.prompt) + max_new_tokens) + 16 * shape.vocab_size
            most = max(1, min(even, self._memory_bytes // needed))
            if len(chunk) >= most:
                yield chunk
                chunk = []
            chunk.append(row)
        if chunk:
            yield chunk

    def _sample(self, rows: list[_Row], params: SamplingParams) -> list[Completion]:
        prompt_columns = len(rows[-1].prompt)
        cache = _Cache.empty(
            self._shape, len(rows), prompt_columns, prompt_columns + params.max_new_tokens, self._dtype
        )
        logits = self._prefill(rows, cache, prompt_columns)

        tokens_of = np.zeros((len(rows), params.max_new_tokens), dtype=np.int64)
        log_probs_of = np.zeros((len(rows), params.max_new_tokens), dtype=np.float32)
        lengths = np.full(len(rows), params.max_new_tokens)
        stopped = np.zeros(len(rows), dtype=bool)

        # State of the rows that are still decoded, by position in the batch.
        members = np.arange(len(rows))
        keys = seed_keys([row.seed for row in rows])
        positions = torch.tensor([len(row.prompt) for row in rows])
        for step in range(params.max_new_tokens):
            uniforms = torch.from_numpy(counter_uniforms(keys, step))
            tokens, log_probs = sample_tokens(logits, uniforms, params.temperature, params.top_p)
            tokens_of[members, step] = tokens.numpy()
            log_probs_of[members, step] = log_probs.numpy()
            ended = np.isin(tokens_of[members, step], self._ends)
            stopped[members[ended]] = True
            lengths[members[ended]] = step + 1
            live = len(members) - int(ended.sum())
            if not live or step + 1 == params.max_new_tokens:
                break
            if live < len(members):
                # Unfinished rows from the end replace finished rows, so that few rows are copied.
                target, source = np.flatnonzero(ended[:live]), live + np.flatnonzero(~ended[live:])
                for state in (members, keys, positions, tokens):
                    state[target] = state[source]
                cache.move(torch.from_numpy(source), torch.from_numpy(target), prompt_columns + step)
                members, keys, positions, tokens = members[:live], keys[:live], positions[:live], tokens[:live]
            logits = self._decode(tokens, positions + step, cache, prompt_columns + step)

        if np.isnan(log_probs_of).any():
            raise SrpoError("model weights: the logits are not finite; training has diverged")
        return [
            Completion(
                token_ids=tokens_of[i, : lengths[i]].tolist(),
                log_probs=log_probs_of[i, : lengths[i]].tolist(),
                finish_reason="stop" if stopped[i] else "length",
            )
            for i in range(len(rows))
        ]

    # ------------------------------------------------------------ forward

    def _prefill(self, rows: list[_Row], cache: _Cache, prompt_columns: int) -> Tensor:
        """Run each distinct prompt through the model and write its keys and values to the cache of its rows.

        Returns:
            Logits of the first response token, float32 [rows, vocabulary].
        """
        groups = [(prompt, len(list(group))) for prompt, group in itertools.groupby(rows, key=lambda row: row.prompt)]
        starts = [0, *itertools.accumulate(count for _, count in groups)]
        per_batch = max(1, PREFILL_TOKENS // prompt_columns)
        first_logits = []
        for first in range(0, len(groups), per_batch):
            batch = [prompt for prompt, _ in groups[first : first + per_batch]]
            keys, values, logits = self._run_prompts(batch)
            first_logits.append(logits)
            for i, prompt in enumerate(batch):
                own = slice(starts[first + i], starts[first + i + 1])
                begin = prompt_columns - len(prompt)
                cache.keys[:, own, ..., begin:prompt_columns] = keys[:, i, None, :, : len(prompt)].mT
                cache.values[:, own, :, begin:prompt_columns] = values[:, i, None, :, : len(prompt)]
                cache.bias[own, :, begin:prompt_columns] = 0
        return torch.cat(first_logits).repeat_interleave(torch.tensor([count for _, count in groups]), dim=0)

    def _run_prompts(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor, Tensor]:
        """Causal forward of right-padded prompts; what follows a prompt's end cannot change it.

        Returns:
            Keys and values, [layers, prompts, kv_heads, columns, head_dim], and the logits after each
            prompt's last token, [prompts, vocabulary].
        """
        shape = self._shape
        columns = max(map(len, prompts))
        ids = torch.tensor([[*prompt, *[self._pad] * (columns - len(prompt))] for prompt in prompts])
        split = (len(prompts), columns, -1, shape.head_dim)
        rotation = self._rotation[:columns].repeat(len(prompts), 1)
        hidden = self._embedding[ids.view(-1)]
        all_keys, all_values = [], []
        for layer in self._layers:
            query, key, value = (part.view(split).transpose(1, 2) for part in self._project(layer, hidden, rotation))
            all_keys.append(key)
            all_values.append(value)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            self._finish_layer(layer, hidden, mixed.transpose(1, 2).reshape(len(hidden), -1))
        last = torch.arange(len(prompts)) * columns + torch.tensor([len(prompt) - 1 for prompt in prompts])
        return torch.stack(all_keys), torch.stack(all_values), self._logits(hidden[last])

    def _decode(self, tokens: Tensor, positions: Tensor, cache: _Cache, column: int) -> Tensor:
        """Run one token per row, writing its key and value to ``column`` of the cache.

        Returns:
            Logits of the next token, float32 [rows, vocabulary].
        """
        shape, rows, used = self._shape, len(tokens), column + 1
        flat = rows * shape.num_key_value_heads
        rotation = self._rotation[positions]
        bias = cache.bias[:rows].view(flat, 1, -1)[..., :used]
        hidden = self._embedding[tokens]
        for index, layer in enumerate(self._layers):
            query, key, value = self._project(layer, hidden, rotation)
            keys, values = cache.keys[index, :rows], cache.values[index, :rows]
            keys[..., column] = key
            values[:, :, column] = value
            # The query heads that share a key head form one small matrix: keys are never repeated.
            scores = torch.baddbmm(
                bias,
                query.reshape(flat, -1, shape.head_dim),
                keys.view(flat, shape.head_dim, -1)[..., :used],
                alpha=shape.head_dim**-0.5,
            )
            mixed = torch.bmm(F.softmax(scores, dim=-1), values.view(flat, -1, shape.head_dim)[:, :used])
            self._finish_layer(layer, hidden, mixed.view(rows, -1))
        return self._logits(hidden)

    def _project(self, layer: _Layer, hidden: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens [n, hidden]: [n, heads or kv_heads, head_dim], rotated by position."""
        shape = self._shape
        rotated = shape.num_attention_heads + shape.num_key_value_heads
        normed = self._normed(hidden, layer.attention_norm)
        heads = F.linear(normed, layer.qkv).view(len(hidden), -1, shape.head_dim)
        query_key = heads[:, :rotated]
        if layer.qk_norm is not None:
            query_key = F.rms_norm(query_key, (shape.head_dim,), eps=shape.rms_norm_eps).mul_(layer.qk_norm)
        pairs = torch.view_as_complex(query_key.float().unflatten(-1, (-1, 2)))
        query_key = torch.view_as_real(pairs * rotation[:, None]).flatten(-2).to(self._dtype)
        query, key = query_key.split([shape.num_attention_heads, shape.num_key_value_heads], dim=1)
        return query, key, heads[:, rotated:]

    def _finish_layer(self, layer: _Layer, hidden: Tensor, mixed: Tensor) -> None:
        """Add the attention's output and the feed-forward block to ``hidden`` in place."""
        hidden.addmm_(mixed, layer.out.T)
        gate, up = F.linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        hidden.addmm_(F.silu(gate).mul_(up), layer.down.T)

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self._normed(hidden, self._norm), self._head).float()

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._shape.rms_norm_eps)


def _rotation_order(storage: Tensor, head_dim: int) -> Tensor:
    """View rows of ``storage``, stored pair by pair, in the order of the checkpoint.

    A checkpoint rotates dimension j of a head with j + head_dim / 2. Stored next to each other, the two
    are one complex number, and rotating is one product; attention scores do not depend on the order.

    Returns:
        [heads, 2, head_dim / 2, columns], a view.
    """
    return storage.view(-1, head_dim // 2, 2, storage.shape[-1]).transpose(1, 2)
