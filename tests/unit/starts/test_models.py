"""Base models: tokenizers lose nothing, warm starts repeat exactly, checkpoints are checked before they are used."""

import fnmatch
import hashlib
import json
import math
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from huggingface_hub.errors import OfflineModeIsEnabled
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_miniature
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import (
    GgufModel,
    HubModel,
    LocalModel,
    ReasoningGymBenchmark,
    TransformerShape,
    WarmStart,
)
from srpo.experiment.memory import parameters
from srpo.ground.errors import SrpoError
from srpo.ground.repository import CONFIGS, ROOT
from srpo.questions.families import FAMILIES, get_family
from srpo.questions.prompts import student_prompts, teacher_messages
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import Question, write_split
from srpo.starts import build_model, resolve
from srpo.starts.corpus import WORKINGS, FamiliesCorpus, SplitsCorpus, corpus_texts, open_corpus
from srpo.starts.data import build_split
from srpo.starts.make_tokenizer import CHAT_TEMPLATE, END, PAD, symbol_tokenizer, text_tokenizer
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.starts.warm_start import backward, learning_rate_factor, make_batches, new_model, summed_loss, warm_start
from srpo.training.provenance import checked_hash

FAMILIES_START = WarmStart(corpus="families", steps=3, batch_size=4)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  1+1?\n"}]


def base(folder: Path) -> dict:
    return json.loads((folder / "base.json").read_text())


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(corpus_texts(FamiliesCorpus(FAMILIES_START), random.Random(0), 2000))


@pytest.fixture(scope="module", params=[symbol_tokenizer, text_tokenizer])
def tokenizer(request, texts):
    return request.param(texts, 450)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_model(tiny_miniature(), folder, {})
    return folder


@pytest.fixture(scope="module")
def split(tmp_path_factory) -> Path:
    """Questions in the real format, and one that is not multiple choice."""
    system = "Answer with the letter.\n<answer>\n...\n</answer>\n"
    questions = [
        Question(
            i,
            [
                {"role": "system", "content": system},
                {"role": "user", "content": f"Solubility of C{i}=O, in Å?\n\nA: {i}\nB: 2"},
            ],
            "AB"[i % 2],
            "answer_match",
            "sdpo/chemistry",
        )
        for i in range(8)
    ]
    questions.append(Question(8, [{"role": "user", "content": "Call a tool."}], "[]", "tool_use", "sdpo/tooluse"))
    path = tmp_path_factory.mktemp("data") / "train.parquet"
    write_split(path, questions, "train")
    return path


# ---------------------------------------------------------------- tokenizer


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_round_trips(tokenizer, text: str):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert all(0 <= i < len(tokenizer) for i in ids)


def test_words_and_numbers_of_the_families_are_single_tokens(texts):
    tokenizer = symbol_tokenizer(texts, 450)
    assert len(tokenizer) < 450
    assert tokenizer.tokenize("On mars, find the larger of force 3 9.") == [
        *("On", "Ġmars", ",", "Ġfind", "Ġthe", "Ġlarger", "Ġof", "Ġforce", "Ġ3", "Ġ9", ".")
    ]
    assert tokenizer.tokenize("<answer> MAF</answer>") == ["<answer>", "Ġ", "M", "A", "F", "</answer>"]


def test_miniatures_have_a_token_for_every_word(texts):
    experiment = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
    for model in experiment.models.values():
        assert len(symbol_tokenizer(texts, model.architecture.vocab_size)) < model.architecture.vocab_size


def test_chat_is_qwens(tokenizer):
    assert tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n  1+1?\n<|im_end|>\n<|im_start|>assistant\n"
    )
    whole = [*MESSAGES, {"role": "assistant", "content": "2"}]
    assert tokenizer.apply_chat_template(whole, tokenize=False).endswith("<|im_start|>assistant\n2<|im_end|>\n")
    ids = tokenizer(tokenizer.apply_chat_template(whole, tokenize=False))["input_ids"]
    assert ids.count(tokenizer.eos_token_id) == 3


def test_a_tokenizer_made_here_opens_as_transformers_opens_it(built: Path):
    ours, theirs = open_tokenizer(built), AutoTokenizer.from_pretrained(built)
    assert type(ours) is type(theirs)
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert ours.init_kwargs == theirs.init_kwargs
    assert ours.get_chat_template() == theirs.get_chat_template()


# ---------------------------------------------------------------- corpus


def test_families_examples_mix_plain_and_informed():
    corpus = FamiliesCorpus(WarmStart(corpus="families", steps=1, informed_fraction=0.5))
    rng = random.Random(0)
    examples = [corpus.draw(rng) for _ in range(400)]
    informed = [example for example in examples if example.solution is not None]
    assert 150 < len(informed) < 250
    for example in informed:
        assert f"Correct solution:\n\n{example.solution}\n\nCorrectly" in example.messages[-1]["content"]
    assert all("Correct solution" not in e.messages[-1]["content"] for e in examples if e.solution is None)


def test_a_corpus_is_about_its_table_of_facts_with_its_numbers_of_facts():
    settings = WarmStart(
        corpus="families", steps=1, families={"biology": 5, "materials": None}, facts=3, informed_fraction=0
    )
    corpus = FamiliesCorpus(settings)
    assert list(corpus.probes(random.Random(0), 2)) == ["biology-5", "materials"]
    rng = random.Random(0)
    biology, stated = get_family("biology", 5, 3), []
    for _ in range(400):
        example = corpus.draw(rng)
        if example.messages[-1]["content"].startswith("In phase"):
            continue
        world, codons = re.fullmatch(r"In (\w+), find the peptide of(.*)\.", example.messages[-1]["content"]).groups()
        assert len(codons.split()) == 5
        values = re.findall(r"([a-z]{3})=([A-Z])", example.response)
        stated += [biology.facts[world, codon].truth == value for codon, value in values]
    # mean of the probabilities .2, .4, .6, .8 and .95; the checking style is more accurate
    assert 0.5 < sum(stated) / len(stated) < 0.75


def test_probes_show_solutions_that_are_right():
    probes = FamiliesCorpus(FAMILIES_START).probes(random.Random(0), 20)
    assert list(probes) == list(FAMILIES)
    for questions in probes.values():
        for question, messages in questions:
            solution = messages[-1]["content"].split("Correct solution:\n\n")[1].split("\n\nCorrectly")[0]
            assert compute_reward(question.reward, solution, question.ground_truth) == 1
            assert messages == teacher_messages(question.messages, solution)


def test_splits_examples_answer_in_the_real_format(split: Path):
    corpus = SplitsCorpus(WarmStart(corpus="splits", steps=1, informed_fraction=0.5), {"chemistry": split})
    rng = random.Random(0)
    examples = [corpus.draw(rng) for _ in range(200)]
    rewards = [[compute_reward("answer_match", example.response, letter) for letter in "ABCD"] for example in examples]
    assert all(sum(of_letters) == 1 for of_letters in rewards)
    assert not any("Call a tool." in example.messages[-1]["content"] for example in examples)


@pytest.mark.parametrize("task", WORKINGS)
def test_a_warm_start_on_a_task_is_right_and_says_how(task: str, tmp_path: Path):
    """Each response, and each solution that a prompt shows, gets the task's own full reward."""
    pytest.importorskip("reasoning_gym", reason="pip install --no-deps -r envs/reasoning-gym.txt")
    benchmark = ReasoningGymBenchmark(
        name=task, title=task, kind="reasoning_gym", task=task, train_questions=20, test_questions=2
    )
    questions = build_split(benchmark, "train")
    write_split(tmp_path / "train.parquet", questions, "train")
    truths = {question.messages[-1]["content"]: question.ground_truth for question in questions}
    corpus = open_corpus(WarmStart(corpus="splits", steps=1, informed_fraction=0.5), {task: tmp_path / "train.parquet"})
    rng = random.Random(0)
    examples = [corpus.draw(rng) for _ in range(40)]
    plain = [example for example in examples if example.solution is None]
    informed = [example for example in examples if example.solution is not None]
    assert plain
    assert informed
    for example in plain:
        assert compute_reward("reasoning_gym", example.response, truths[example.messages[-1]["content"]]) == 1
    for example in informed:
        assert example.solution == example.response
        assert example.solution in example.messages[-1]["content"]
    for question, _ in corpus.probes(rng, 3)[task]:
        assert question in questions


# ---------------------------------------------------------------- warm start


def test_responses_and_shown_solutions_are_learnt(texts):
    tokenizer = symbol_tokenizer(texts, 450)
    settings = WarmStart(corpus="families", steps=1, batch_size=8, informed_fraction=0.5)
    batches = make_batches(tokenizer, FamiliesCorpus(settings), settings)
    for row in (row for _ in range(16) for row in next(batches)):
        learnt = tokenizer.decode([row.ids[i] for i in row.learnt if row.ids[i] != tokenizer.eos_token_id])
        whole = tokenizer.decode(row.ids)
        response = whole.split("<|im_start|>assistant\n")[1].removesuffix(END)
        if "Correct solution" in whole:
            response += whole.split("Correct solution:\n\n")[1].split("\n\nCorrectly")[0]
        assert learnt == response
        assert row.learnt.count(len(row.ids) - 1) == 1


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_batch_in_parts_has_the_gradient_of_its_mean_loss(texts, rows):
    tokenizer = symbol_tokenizer(texts, 450)
    settings = WarmStart(corpus="families", steps=1, batch_size=rows)
    batch = next(make_batches(tokenizer, FamiliesCorpus(FAMILIES_START), settings))
    model = new_model(tiny_miniature().architecture, tokenizer, 0).double()
    tokens = sum(len(row.learnt) for row in batch)
    expected = sum(summed_loss(model, [row], tokenizer.pad_token_id) for row in batch) / tokens  # without padding
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):  # earlier gradients do not stay
            loss = backward(model, batch, tokenizer.pad_token_id, threads)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_learning_rate_rises_stays_and_falls():
    rates = [learning_rate_factor(step / 1000) for step in range(1000)]
    assert 0 < rates[0] < rates[10] < rates[20] == rates[199] == 1
    assert rates[200:] == sorted(rates[200:], reverse=True)
    assert rates[-1] == pytest.approx(0.02, abs=1e-3)


def test_a_warm_start_repeats_byte_for_byte(built: Path, tmp_path: Path):
    torch.manual_seed(99)
    random.seed(99)
    build_model(tiny_miniature(), tmp_path / "again", {})
    for name in {path.name for path in built.iterdir()} - {"base.json"}:
        assert (tmp_path / "again" / name).read_bytes() == (built / name).read_bytes()
    assert base(tmp_path / "again")["sha256"] == base(built)["sha256"]
    build_model(tiny_miniature({"seed": 1}), tmp_path / "other", {})
    assert base(tmp_path / "other")["sha256"] != base(built)["sha256"]


def test_a_warm_start_learns(texts):
    settings = WarmStart(corpus="families", steps=40, batch_size=16, learning_rate=0.02)
    tokenizer = symbol_tokenizer(texts, 450)
    corpus = FamiliesCorpus(settings)
    model = new_model(tiny_miniature().architecture, tokenizer, 0)
    batch = next(make_batches(tokenizer, corpus, settings))
    before = summed_loss(model, batch, tokenizer.pad_token_id).item() / sum(len(row.learnt) for row in batch)
    assert warm_start(model, tokenizer, corpus, settings) < 0.7 * before


def test_threads_are_given_back(texts, tmp_path: Path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        build_model(tiny_miniature({"steps": 1}), tmp_path / "tiny", {})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


# ---------------------------------------------------------------- folder


def test_built_folder_is_a_checkpoint(built: Path):
    tokenizer = AutoTokenizer.from_pretrained(built)
    model = AutoModelForCausalLM.from_pretrained(built)
    assert model.dtype == torch.float32
    assert model.config.model_type == "qwen3"
    assert model.generation_config.eos_token_id == model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.decode(student_prompts(tokenizer, [MESSAGES], 450)[0]).endswith("assistant\n")
    described = base(built)
    assert described["parameters"] == model.num_parameters()
    assert (described["model"], described["kind"]) == ("tiny", "miniature")
    assert described["warm_start"]["steps"] == 3
    assert set(described["warm_start"]["accuracy"]) == set(FAMILIES)
    assert all(set(of) == {"plain", "with_solution"} for of in described["warm_start"]["accuracy"].values())


def test_a_model_for_real_splits(split: Path, tmp_path: Path):
    build_model(tiny_miniature({"corpus": "splits"}), tmp_path / "model", {"chemistry": split})
    assert set(base(tmp_path / "model")["warm_start"]["accuracy"]) == {"chemistry"}
    assert AutoTokenizer.from_pretrained(tmp_path / "model").decode([]) == ""


def test_a_failed_build_leaves_what_was_there(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    with pytest.raises(SrpoError):
        build_model(tiny_miniature({"corpus": "splits"}), tmp_path / "model", {})
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]


# ---------------------------------------------------------------- checkpoints


def local(path: Path) -> LocalModel:
    return LocalModel(kind="local", name="mine", title="Mine", path=path)


def test_a_local_checkpoint_gets_the_same_layout(built: Path, tmp_path: Path):
    build_model(local(built), tmp_path / "model", {})
    described = base(tmp_path / "model")
    assert described["source"] == {"path": str(built)}
    assert described["sha256"] == base(built)["sha256"]
    assert described["parameters"] == base(built)["parameters"]
    assert (tmp_path / "model" / "model.safetensors").is_symlink()
    assert not (tmp_path / "model" / "config.json").is_symlink()
    AutoModelForCausalLM.from_pretrained(tmp_path / "model")


def test_weights_that_take_the_place_of_linked_ones_are_noticed(built: Path, tmp_path: Path):
    own = shutil.copytree(built, tmp_path / "own")
    build_model(local(own), tmp_path / "model", {})
    checked_hash(tmp_path / "model")
    (own / "model.safetensors").write_bytes(b"others")
    with pytest.raises(SrpoError, match=r"base\.json has"):
        checked_hash(tmp_path / "model")


HUB = HubModel(kind="hub", name="qwen", title="Qwen", repository="Qwen/Qwen3-4B", revision="0" * 40)


def test_a_hub_model_is_linked(built: Path, tmp_path: Path, monkeypatch):
    asked = {}

    def download(**options):
        asked.update(options)
        return str(built)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    build_model(HUB, tmp_path / "model", {})
    assert (asked["repo_id"], asked["revision"]) == (HUB.repository, HUB.revision)
    for unwanted in ("modeling_qwen.py", "pytorch_model.bin", "optimizer.pt"):
        assert not any(fnmatch.fnmatch(unwanted, pattern) for pattern in asked["allow_patterns"])
    assert base(tmp_path / "model")["source"] == {"repository": HUB.repository, "revision": HUB.revision}


@pytest.mark.parametrize("failure", [httpx.ConnectError("no route"), OfflineModeIsEnabled("offline")])
def test_without_network_the_cache_is_used(built: Path, tmp_path: Path, monkeypatch, failure: Exception):
    def download(local_files_only=False, **options):
        if local_files_only:
            return str(built)
        raise failure

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve.resolve_hub(HUB) == built


# ---------------------------------------------------------------- GGUF files

SMOLLM = load_experiment(CONFIGS / "experiments" / "rehearsal-real.yaml").models["smollm2-135m-cold"]


def gguf(**changes) -> GgufModel:
    return SMOLLM.model_copy(update=changes)


def test_the_package_of_a_real_model_is_pinned_once():
    assert SMOLLM.package in (ROOT / "envs" / "real-model.txt").read_text().splitlines()


def test_a_file_with_other_bytes_is_refused(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(SrpoError, match="not the pinned file"):
        resolve.resolve_gguf(gguf(package=None, path=file))
    digest = hashlib.sha256(b"GGUF").hexdigest()
    assert resolve.resolve_gguf(gguf(package=None, path=file, sha256=digest)) == file


def written_gguf(folder: Path) -> tuple[GgufModel, LlamaForCausalLM]:
    """A random Llama of 2 layers in a GGUF file, float32, with a tokenizer of bytes, and the network itself."""
    writer_of = pytest.importorskip("gguf", reason="optional: pip install --no-deps -r envs/real-model.txt")
    torch.manual_seed(0)
    tokens = [PAD, "<|im_start|>", END, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "cd"]
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        **sizes, num_key_value_heads=2, head_dim=8, vocab_size=len(tokens), max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5}, tie_word_embeddings=True, initializer_range=0.2,
    )  # fmt: skip
    network = LlamaForCausalLM(config).eval()
    path = folder / "tiny.gguf"
    writer = writer_of.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(1e5)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "c d"])  # of a single one transformers would read the letters
    for name, token in (("bos", 1), ("eos", 2), ("pad", 0), ("unk", 0)):
        getattr(writer, f"add_{name}_token_id")(token)
    writer.add_chat_template(CHAT_TEMPLATE)
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for name, weight in network.state_dict().items():
        array = weight.numpy()
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            part = rest.removesuffix(".weight")
            if part.endswith(("q_proj", "k_proj")):  # the file keeps the rotated pairs side by side
                heads = 4 if part.endswith("q_proj") else 2
                array = array.reshape(heads, 2, 4, 32).swapaxes(1, 2).reshape(array.shape)
            writer.add_tensor(f"blk.{layer}.{names[part]}.weight", array.copy())
        elif name != "lm_head.weight":
            writer.add_tensor({"model.embed_tokens.weight": "token_embd.weight"}.get(name, "output_norm.weight"), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shape = TransformerShape.model_validate(config, from_attributes=True)
    return gguf(package=None, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), shape=shape), network


def test_a_gguf_file_becomes_a_checkpoint_with_its_weights_and_tokenizer(tmp_path):
    model, network = written_gguf(tmp_path)
    build_model(model, tmp_path / "cold", {})
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "cold")
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight, rtol=0, atol=0)
    assert base(tmp_path / "cold")["parameters"] == parameters(model.shape)
    tokenizer = open_tokenizer(tmp_path / "cold")
    assert tokenizer.decode(tokenizer("Å b\n")["input_ids"]) == "Å b\n"
    assert tokenizer.eos_token == END
    assert student_prompts(tokenizer, [MESSAGES], 128)[0][-1] == tokenizer("\n")["input_ids"][-1]
    with pytest.raises(SrpoError, match=r"shape\.hidden_size = 576: config\.json has 32"):
        build_model(model.model_copy(update={"shape": SMOLLM.shape}), tmp_path / "wrong", {})
    assert not (tmp_path / "wrong").exists()


def test_a_pretrained_model_learns_the_format_where_it_is_asked_to(tmp_path, split):
    model, network = written_gguf(tmp_path)
    start = WarmStart(corpus="splits", steps=30, batch_size=2, learning_rate=3e-3)
    for name in ("one", "two"):
        build_model(model.model_copy(update={"warm_start": start}), tmp_path / name, {"chemistry": split})
    assert base(tmp_path / "one")["sha256"] == base(tmp_path / "two")["sha256"]
    report = base(tmp_path / "one")["warm_start"]
    assert report["steps"] == 30
    assert report["loss"] < math.log(network.config.vocab_size)
    assert report["accuracy"].keys() == {"chemistry"}
