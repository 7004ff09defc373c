"""The embedded engine: equal to transformers' forward, and samples that depend on their seeds only."""

import copy
import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from srpo.ground.errors import SrpoError
from srpo.rollout import embedded
from srpo.rollout.embedded import EmbeddedEngine, counter_uniforms, sample_tokens, seed_keys
from srpo.rollout.interface import Completion, SamplingParams

PAD, EOS, VOCAB = 0, 1, 24
LARGEST_UNIFORM = 1 - 2**-24


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


def make_model(heads=4, kv_heads=2, head_dim=8, tied=True, theta=10000.0, family="qwen3", **changes) -> PreTrainedModel:
    torch.manual_seed(0)
    make_config, make_network = FAMILIES[family]
    config = make_config(
        **{
            "vocab_size": VOCAB,
            "hidden_size": 8 * heads if family == "llama" else 32,  # transformers' Llama wants a multiple of the heads
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
            "tie_word_embeddings": tied,
            "initializer_range": 0.15,
            "eos_token_id": EOS,
            "pad_token_id": PAD,
        }
        | changes
    )
    model = make_network(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:  # ones would hide a norm that is not applied, or to the wrong head
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def make_engine(model: PreTrainedModel, **bounds: Any) -> EmbeddedEngine:
    engine = EmbeddedEngine(model.config, {EOS}, PAD, **bounds)
    engine.update_weights(model.state_dict().items())
    return engine


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return make_model()


@pytest.fixture(scope="module")
def engine(model) -> EmbeddedEngine:
    return make_engine(model)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Six prompts of mixed lengths; two are equal, one is the beginning of another."""
    draw = random.Random(0)
    drawn = [[draw.randrange(2, VOCAB) for _ in range(length)] for length in (9, 3, 14, 1)]
    return [*drawn, drawn[0], drawn[2][:5]]


SEEDS = [[10, 11, 12], [20, 21, 22, 23, 24], [30], [], [50, 51], [60, 61, 62, 63]]
PARAMS = SamplingParams(temperature=0.8, max_new_tokens=20)


def reference_log_probs(model, prompt: list[int], response: list[int], temperature: float) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]


def tokens_of(completions: list[list[Completion]]) -> list[list[list[int]]]:
    return [[completion.token_ids for completion in group] for group in completions]


# ---------------------------------------------------------------- against transformers


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "tied", "theta"),
    [(4, 2, 8, True, 1e4), (4, 4, 8, False, 1e6), (6, 1, 4, True, 1e6), (3, 3, 16, False, 1e2), (1, 1, 32, True, 1e4)],
)
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_those_of_transformers(prompts, family, heads, kv_heads, head_dim, tied, theta, top_p):
    model = make_model(heads, kv_heads, head_dim, tied, theta, family)
    params = SamplingParams(0.8, 20, top_p)
    completions = make_engine(model).generate(prompts, params, SEEDS)
    for prompt, group in zip(prompts, completions, strict=True):
        for completion in group:
            expected = reference_log_probs(model, prompt, completion.token_ids, 0.8)
            torch.testing.assert_close(torch.tensor(completion.log_probs), expected, rtol=0, atol=1e-5)
    lengths = {len(completion.token_ids) for group in completions for completion in group}
    assert len(lengths) > 2, "rows must leave the batch at different steps for this test to mean anything"


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(prompts, family):
    """Both round, at other places: neither is exact, and one is not further off than one and a half times the other."""
    model = make_model(family=family)
    completions = make_engine(model, precision="bfloat16").generate(prompts, PARAMS, SEEDS)
    rounded = copy.deepcopy(model).bfloat16()
    ours, theirs = [], []
    for prompt, group in zip(prompts, completions, strict=True):
        for completion in group:
            exact = reference_log_probs(model, prompt, completion.token_ids, 0.8)
            ours.append(torch.tensor(completion.log_probs) - exact)
            theirs.append(reference_log_probs(rounded, prompt, completion.token_ids, 0.8).float() - exact)
    error, expected = (torch.cat(errors).square().mean().sqrt() for errors in (ours, theirs))
    assert 0 < error < 1.5 * expected < 0.2


@pytest.mark.parametrize("family", FAMILIES)
def test_low_temperature_is_greedy(family, prompts):
    model = make_model(family=family)
    engine = make_engine(model)
    for prompt, [completion] in zip(
        prompts, engine.generate(prompts, SamplingParams(1e-5, 12), [[1]] * len(prompts)), strict=True
    ):
        expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0, len(prompt) :]
        assert completion.token_ids == expected.tolist()


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_first_token_frequencies(model, engine, top_p):
    prompt, count = [5, 6, 7], 4000
    [group] = engine.generate([prompt], SamplingParams(1.0, 1, top_p), [list(range(count))])
    observed = np.bincount([completion.token_ids[0] for completion in group], minlength=VOCAB)
    with torch.no_grad():
        expected = model(torch.tensor([prompt])).logits[0, -1].softmax(-1).double().numpy()
    assert_frequencies(observed, truncate(expected, top_p))


# ---------------------------------------------------------------- seeds


def test_samples_do_not_depend_on_order_or_calls(engine, prompts):
    together = tokens_of(engine.generate(prompts, PARAMS, SEEDS))

    order = [4, 0, 5, 2, 1, 3]
    permuted = engine.generate([prompts[i] for i in order], PARAMS, [SEEDS[i][::-1] for i in order])
    assert tokens_of(permuted) == [together[i][::-1] for i in order]

    for i, own in enumerate(SEEDS):
        for j, seed in enumerate(own):
            assert tokens_of(engine.generate([prompts[i]], PARAMS, [[seed]])) == [[together[i][j]]]


@pytest.mark.parametrize("bounds", [{"max_batch": 1}, {"max_batch": 4}, {"memory_bytes": 1}, {"memory_bytes": 80_000}])
def test_samples_do_not_depend_on_chunks(model, engine, prompts, bounds):
    whole = engine.generate(prompts, PARAMS, SEEDS)
    chunked = make_engine(model, **bounds).generate(prompts, PARAMS, SEEDS)
    assert tokens_of(chunked) == tokens_of(whole)
    for a, b in zip(itertools.chain(*chunked), itertools.chain(*whole), strict=True):
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-5)


def test_chunks_respect_the_bounds(model, prompts, monkeypatch):
    rows: list[int] = []
    original = EmbeddedEngine._decode

    def spy(self, tokens, *rest):
        rows.append(len(tokens))
        return original(self, tokens, *rest)

    monkeypatch.setattr(EmbeddedEngine, "_decode", spy)
    make_engine(model, max_batch=4).generate(prompts, PARAMS, SEEDS)
    assert max(rows) == 4
    rows.clear()
    # A row: 2 x 3 layers x 2 heads x 8 numbers for each of 34 positions, and 4 x 24 logits, 4 bytes each.
    make_engine(model, memory_bytes=3 * 4 * (2 * 3 * 2 * 8 * 34 + 4 * 24)).generate(prompts, PARAMS, SEEDS)
    assert max(rows) == 4, "shorter prompts leave room for one more row"
    rows.clear()
    make_engine(model, memory_bytes=1).generate(prompts, PARAMS, SEEDS)
    assert max(rows) == 1


def test_prompts_run_once_and_in_bounded_batches(engine, prompts, monkeypatch):
    expected = tokens_of(engine.generate(prompts, PARAMS, SEEDS))
    batches: list[list[tuple[int, ...]]] = []
    original = EmbeddedEngine._run_prompts

    def spy(self, batch):
        batches.append(batch)
        return original(self, batch)

    monkeypatch.setattr(EmbeddedEngine, "_run_prompts", spy)
    monkeypatch.setattr(embedded, "PREFILL_TOKENS", 30)
    assert tokens_of(engine.generate(prompts, PARAMS, SEEDS)) == expected
    assert [len(batch) for batch in batches] == [2, 2]
    assert sorted(itertools.chain(*batches)) == sorted({tuple(p) for p, own in zip(prompts, SEEDS, strict=True) if own})


def test_torch_random_state_is_neither_used_nor_changed(engine, prompts):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = engine.generate(prompts, PARAMS, SEEDS)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert engine.generate(prompts, PARAMS, SEEDS) == first


def test_equal_seeds_give_equal_samples_and_others_differ(engine):
    [group] = engine.generate([[3, 4, 5]], SamplingParams(1.0, 30), [[7, 7, *range(100, 130)]])
    responses = [tuple(completion.token_ids) for completion in group]
    assert responses[0] == responses[1]
    assert len(set(responses[1:])) > 25


# ---------------------------------------------------------------- end of sequence


def test_end_of_sequence(engine, prompts):
    reasons = set()
    for completion in itertools.chain(*engine.generate(prompts, PARAMS, SEEDS)):
        assert EOS not in completion.token_ids[:-1]
        assert len(completion.log_probs) == len(completion.token_ids) <= PARAMS.max_new_tokens
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] == EOS)
        if completion.finish_reason == "length":
            assert len(completion.token_ids) == PARAMS.max_new_tokens
        reasons.add(completion.finish_reason)
    assert reasons == {"stop", "length"}


def test_length_limit_cuts_the_same_sample(engine, prompts):
    long = tokens_of(engine.generate(prompts, PARAMS, SEEDS))
    short = tokens_of(engine.generate(prompts, SamplingParams(0.8, 4), SEEDS))
    assert short == [[response[:4] for response in group] for group in long]


# ---------------------------------------------------------------- drawing


def truncate(probs: np.ndarray, top_p: float) -> np.ndarray:
    """Reference nucleus of one distribution, renormalised."""
    order = np.argsort(-probs, kind="stable")
    size = int(np.searchsorted(np.cumsum(probs[order]), top_p - 1e-9)) + 1
    kept = np.zeros_like(probs)
    kept[order[:size]] = probs[order[:size]]
    return kept / kept.sum()


def assert_frequencies(observed: np.ndarray, expected: np.ndarray) -> None:
    assert not observed[expected == 0].any(), "drew a token of probability zero"
    possible = expected > 0
    if possible.sum() == 1:
        return
    counts = observed.sum() * expected[possible]
    assert stats.chisquare(observed[possible], counts * observed.sum() / counts.sum()).pvalue > 1e-3


def even_uniforms(count: int) -> torch.Tensor:
    return torch.from_numpy(counter_uniforms(seed_keys(list(range(count))), position=3))


@pytest.mark.parametrize(
    ("probs", "temperature", "top_p", "expected"),
    [
        ([0.5, 0.3, 0.2], 1.0, 1.0, [0.5, 0.3, 0.2]),
        ([0.5, 0.3, 0.2], 0.5, 1.0, [25 / 38, 9 / 38, 4 / 38]),
        ([0.2, 0.5, 0.3], 1.0, 0.79, [0, 5 / 8, 3 / 8]),
        ([0.2, 0.5, 0.3], 1.0, 0.81, [0.2, 0.5, 0.3]),
        ([0.2, 0.5, 0.3], 1.0, 0.01, [0, 1, 0]),
        ([0.2, 0.5, 0.0, 0.3], 1.0, 1.0, [0.2, 0.5, 0, 0.3]),
    ],
)
def test_drawn_frequencies(probs, temperature, top_p, expected):
    count = 20_000
    logits = torch.tensor(probs).log().expand(count, -1)
    tokens, log_probs = sample_tokens(logits, even_uniforms(count), temperature, top_p)
    observed = np.bincount(tokens.numpy(), minlength=len(probs))
    assert_frequencies(observed, np.array(expected))
    scaled = (logits[0] / temperature).log_softmax(-1)
    torch.testing.assert_close(log_probs, scaled[tokens])


def test_nucleus_takes_as_many_equal_tokens_as_are_needed():
    tokens, _ = sample_tokens(torch.zeros(1000, 10), even_uniforms(1000), 1.0, 0.45)
    assert len(tokens.unique()) == 5


@pytest.mark.parametrize("sharpness", [0.0, 0.3, 2.0, 6.0])
@pytest.mark.parametrize("top_p", [0.3, 0.95])
def test_nucleus_of_large_vocabularies(sharpness, top_p):
    logits = sharpness * torch.randn(64, 500, generator=torch.Generator().manual_seed(1))
    probs = logits.softmax(-1)
    kept = embedded.cut_to_nucleus(probs, top_p)
    for row, cut in zip(probs, kept, strict=True):
        inside = cut > 0
        assert torch.equal(cut[inside], row[inside])
        assert row[inside].sum() >= top_p - 1e-6
        assert row[inside].sum() - row[inside].min() < top_p + 1e-6, "one token fewer would have been enough"
        assert inside.all() or row[inside].min() >= row[~inside].max()


def test_uniforms_at_the_ends_draw_possible_tokens():
    masses = torch.rand(500, 40, generator=torch.Generator().manual_seed(2)) ** 4
    masses[:, [0, 1, 20, 38, 39]] = 0
    logits = masses.log()
    for end, top_p in itertools.product((0.0, LARGEST_UNIFORM), (1.0, 0.9)):
        tokens, log_probs = sample_tokens(logits, torch.full((500,), end), 1.0, top_p)
        assert log_probs.isfinite().all()
        assert (masses.gather(1, tokens[:, None]) > 0).all()


# ---------------------------------------------------------------- random numbers


def test_uniforms_are_pinned():
    """Results are only comparable between versions of the code if these never change."""
    keys = seed_keys([0, 1, 2**63 - 1])
    assert keys[0] == 0xE220A8397B1DCDAF  # the published first output of splitmix64 from state 0
    drawn = np.stack([counter_uniforms(keys, position) for position in (0, 1, 8191)])
    assert (drawn * 2**24).astype(int).tolist() == [
        [10946269, 6177195, 6932953],
        [11764387, 15830380, 8356977],
        [11467952, 7469380, 14136222],
    ]


def test_uniforms_are_uniform_and_independent():
    keys = seed_keys([*range(500), *(500 + 2**40 * i for i in range(500))])
    drawn = np.stack([counter_uniforms(keys, position) for position in range(200)])
    assert drawn.dtype == np.float32
    assert drawn.min() >= 0
    assert drawn.max() <= LARGEST_UNIFORM
    assert stats.kstest(drawn[:5].ravel(), "uniform").pvalue > 1e-3
    # Over seeds at one position, and over positions of one seed: p-values must be uniform themselves.
    for table in (drawn, drawn.T):
        assert stats.kstest([stats.kstest(line, "uniform").pvalue for line in table[:200]], "uniform").pvalue > 1e-3
    # Neighbouring positions, neighbouring seeds, and a shifted stream of the next seed: pairs fill the square.
    for first, second in (
        (drawn[:-1], drawn[1:]),
        (drawn[:, :-1], drawn[:, 1:]),
        (drawn[1:, :-1], drawn[:-1, 1:]),
    ):
        cells = (first * 16).astype(int) * 16 + (second * 16).astype(int)
        assert stats.chisquare(np.bincount(cells.ravel(), minlength=256)).pvalue > 1e-3


# ---------------------------------------------------------------- weights and files


def test_weights_are_copied_and_replaced(model, prompts):
    other = make_model()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.1)
    engine = make_engine(model)
    expected = engine.generate(prompts, PARAMS, SEEDS)
    source = {name: weight.clone() for name, weight in model.state_dict().items()}
    engine.update_weights(source.items())
    for weight in source.values():
        weight.zero_()
    assert engine.generate(prompts, PARAMS, SEEDS) == expected
    engine.update_weights(other.state_dict().items())
    assert engine.generate(prompts, PARAMS, SEEDS) == make_engine(other).generate(prompts, PARAMS, SEEDS) != expected


def test_weights_of_other_types_and_without_tied_head(model, prompts):
    weights = {name: weight.bfloat16() for name, weight in model.named_parameters()}
    assert "lm_head.weight" not in weights
    engine = EmbeddedEngine(model.config, {EOS}, PAD)
    engine.update_weights(weights.items())
    rounded = {name: weight.float() for name, weight in weights.items()}
    other = EmbeddedEngine(model.config.to_dict(), {EOS}, PAD)
    other.update_weights(rounded.items())
    assert engine.generate(prompts, PARAMS, SEEDS) == other.generate(prompts, PARAMS, SEEDS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), r"1 missing, for example model\.norm\.weight"),
        (lambda w: w.update(extra=torch.ones(1)), "1 unexpected, for example extra"),
        (
            lambda w: w.update({"model.layers.0.self_attn.q_proj.weight": torch.ones(16, 64)}),
            r"q_proj\.weight has shape \[16, 64\], not \[32, 32\]",
        ),
    ],
)
def test_wrong_weights_are_refused_and_change_nothing(prompts, change, message):
    model = make_model(tied=False)
    engine = make_engine(model)
    before = engine.generate(prompts, PARAMS, SEEDS)
    weights = {name: weight + 1 for name, weight in model.state_dict().items()}
    change(weights)
    with pytest.raises(SrpoError, match=message):
        engine.update_weights(weights.items())
    assert engine.generate(prompts, PARAMS, SEEDS) == before


@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen3", False), ("llama", True)])
def test_from_pretrained(tmp_path, prompts, family, tied):
    model = make_model(tied=tied, theta=5e5, family=family)
    model.save_pretrained(tmp_path)
    expected = make_engine(model).generate(prompts, PARAMS, SEEDS)
    assert EmbeddedEngine.from_pretrained(tmp_path).generate(prompts, PARAMS, SEEDS) == expected

    # As transformers 4 wrote it, in two shards.
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config |= {"rope_scaling": None, "pad_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    (tmp_path / "model.safetensors").unlink()
    names = sorted(weights)
    save_file({name: weights[name] for name in names[:9]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({name: weights[name] for name in names[9:]}, tmp_path / "model-00002-of-00002.safetensors")
    of_each = {name: f"model-0000{1 + (i >= 9)}-of-00002.safetensors" for i, name in enumerate(names)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": of_each}))
    save_file({name: 2 * weight for name, weight in weights.items()}, tmp_path / "model_old.safetensors")
    assert EmbeddedEngine.from_pretrained(tmp_path).generate(prompts, PARAMS, SEEDS) == expected


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma3"}, "model_type = 'gemma3': the embedded engine needs 'qwen3' or 'llama'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type = 'yarn'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window = True"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
    ],
)
def test_unsupported_configurations(model, changes, message):
    with pytest.raises(SrpoError, match=message):
        EmbeddedEngine(model.config.to_dict() | changes, {EOS}, PAD)


def test_prompt_lengths(engine):
    with pytest.raises(SrpoError, match=r"prompt of 45 tokens \+ max_new_tokens = 20 .* max_position_embeddings = 64"):
        engine.generate([[3], [4] * 45], PARAMS, [[1], [2]])
    assert len(engine.generate([[4] * 44], SamplingParams(1e-5, 20), [[1]])[0][0].token_ids) <= 20
    with pytest.raises(SrpoError, match="a prompt has no tokens"):
        engine.generate([[3], []], PARAMS, [[1], [2]])


def test_diverged_weights_are_named(model):
    engine = make_engine(model)
    engine.update_weights((name, weight * float("nan")) for name, weight in model.state_dict().items())
    for top_p in (1.0, 0.9):
        with pytest.raises(SrpoError, match="training has diverged"):
            engine.generate([[3, 4]], SamplingParams(1.0, 4, top_p), [[1, 2]])
