"""A run that takes seconds: a random tiny Qwen3, physics questions, rewards drawn by a hash of the response."""

import hashlib

import yaml

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import MiniatureModel
from srpo.ground.files import write_json
from srpo.ground.layout import Layout, RunId
from srpo.ground.repository import CONFIGS
from srpo.questions.splits import write_split
from srpo.starts.data import build_split


def hash_reward(kind, response, ground_truth):
    """1 for about four in ten responses."""
    return float(hashlib.md5(response.encode()).digest()[0] < 100)


def tiny_experiment(method, execution=None, changes=None, **training):
    """One method, with these changes, on 4 questions x 4 rollouts of at most 12 tokens."""
    raw = yaml.safe_load((CONFIGS / "experiments" / "smoke.yaml").read_text())
    values = {"mini_batch_questions": 2 if method == "grpo" else 4, "learning_rate": 1e-3, "distillation_topk": 20}
    raw |= {
        "name": "tiny",
        "matrix": [{"models": ["miniature-tiny"], "benchmarks": ["miniature/physics"], "methods": [method]}],
        "overrides": {method: values | (changes or {})},
        "execution": execution or {},
    }
    raw["training"] |= {
        "questions_per_batch": 4,
        "rollouts_per_question": 4,
        "max_response_length": 12,
        "warmup_steps": 2,
        "micro_batch_size": 5,
        "validation": {"rollouts": 1},
        "budget_seconds": {"1h": 1e9},
        "max_steps": 4,
    } | training
    return load_experiment(raw)


def prepare(experiment, folder):
    """Write splits and a random base model; return the run's specification and the layout."""
    from random_qwen3 import random_qwen3

    from srpo.starts.make_tokenizer import symbol_tokenizer
    from srpo.starts.resolve import digest

    layout = Layout(folder / experiment.name)
    benchmark = experiment.benchmarks["physics"]
    for split in ("train", "test"):
        write_split(layout.split("physics", split), build_split(benchmark, split)[:40], split)
    prompts = [question.messages[0]["content"] for question in build_split(benchmark, "train")]
    tokenizer = symbol_tokenizer([f"user\n{p}\nassistant\n<answer>5</answer>" for p in prompts], 400)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "head_dim": 8, "intermediate_size": 64}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = random_qwen3(len(tokenizer), 0.2, **sizes, **ids)
    base = layout.model("miniature-tiny")
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    write_json(base / "base.json", {"sha256": digest(base)})
    (method,) = experiment.methods
    return experiment.run(RunId(model="miniature-tiny", benchmark="physics", method=method, seed=1)), layout


def tiny_miniature(warm_start=None, **changes):
    """A model of one layer whose warm start, with these changes, takes three steps."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    definition = {
        "kind": "miniature",
        "name": "tiny",
        "title": "Tiny",
        "architecture": {**sizes, "intermediate_size": 24, "vocab_size": 450},
        "warm_start": {"corpus": "families", "steps": 3, "batch_size": 4} | (warm_start or {}),
    }
    return MiniatureModel.model_validate(definition | changes)
