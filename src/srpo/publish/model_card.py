"""The model card of an evaluated checkpoint: description, scores, settings, and how to load it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from srpo.analysis.results.contrasts import Arm, contrast
from srpo.benchmarks.splits import read_split
from srpo.experiment.config import Sampling
from srpo.files import read_json, read_yaml, write_text
from srpo.layout import WEIGHTS, RunFiles
from srpo.repository import REPORTS

CARD = "README.md"
"""The name that the Hugging Face hub asks for."""

_TEMPLATE = REPORTS / "model_card.md.j2"

_OUR_LICENSE = "apache-2.0"
"""Of weights that the workflow trained from nothing; other weights have the license of their base model."""


def write_cards(files: RunFiles, sampling: Sampling, test: Path) -> list[Path]:
    """Write ``README.md`` beside the weights of every checkpoint of an evaluation.

    Args:
        files: of the run: ``run.yaml`` tells where it comes from, ``evaluation.json`` how well it answers.
        sampling: how it was evaluated.
        test: the test split, for a question to ask.

    Returns:
        The cards.
    """
    origin = read_yaml(files.origin)
    evaluation = read_json(files.evaluation)
    example = read_split(test)[0].messages[-1]["content"]
    steps = sorted({budget["step"] for budget in evaluation["budgets"].values() if budget})
    cards = {files.checkpoint(step) / WEIGHTS / CARD: step for step in steps}
    for path, step in cards.items():
        write_text(path, card(origin, evaluation, step, sampling.model_dump(), example))
    return list(cards)


def card(
    origin: Mapping[str, Any], evaluation: Mapping[str, Any], step: int, sampling: Mapping[str, Any], example: str
) -> str:
    """The card of the checkpoint after ``step`` steps; ``origin`` is the content of ``run.yaml``."""
    spec, provenance = origin["spec"], origin.get("provenance", {})
    model, benchmark, method, training = (spec[key] for key in ("model", "benchmark", "method", "training"))
    # of own files the names only: a card is public, where they are on this machine is not
    benchmark = benchmark | {key: Path(benchmark[key]).name for key in ("train_file", "test_file") if key in benchmark}
    spec = spec | {"benchmark": benchmark}
    seconds = training["budget_seconds"]
    budgets = {label: each for label, each in evaluation["budgets"].items() if each and each["step"] == step}
    scores = [
        {"label": label, "seconds": seconds[label], "estimate": _score(budget["question_scores"])}
        for label, budget in budgets.items()
    ]
    facts = {
        "Base model": base_model_line(model, provenance),
        "Data": data_line(benchmark),
        **{f"SHA-256 of {split}": f"`{checksum}`" for split, checksum in provenance.get("data", {}).items()},
        "Method": f"{method['title']} (`{method['name']}`), seed {spec['id']['seed']}",
        "Learning rate": f"{method['learning_rate']:g}",
        "Batch": f"{training['questions_per_batch']} questions, {training['rollouts_per_question']} rollouts each, "
        f"{training['questions_per_batch'] // method['mini_batch_questions']} updates",
        "Commit": f"`{provenance.get('commit', 'unknown')}`",
        "Packages": ", ".join(f"{name} {number}" for name, number in provenance.get("packages", {}).items()),
    }
    data = ModelCardData(
        model_name=f"{model['title']}, {method['title']}",
        library_name="transformers",
        pipeline_tag="text-generation",
        license=_OUR_LICENSE if model["kind"] == "miniature" else None,
        base_model=model["repository"] if model["kind"] == "hub" else None,
        tags=[*dict.fromkeys(["srpo", method["name"], "reinforcement-learning"])],
        eval_results=[
            EvalResult(
                task_type="text-generation",
                dataset_type=benchmark["name"],
                dataset_name=benchmark["title"],
                dataset_split="test",
                metric_type="accuracy",
                metric_name=f"avg@{evaluation['k']}, selected within {label}",
                metric_value=round(budget["avg_at_k"], 4),
            )
            for label, budget in budgets.items()
        ],
    )
    rendered = ModelCard.from_template(
        data,
        str(_TEMPLATE),
        model=model["title"],
        method=method["title"],
        benchmark=benchmark["title"],
        step=step,
        experiment=spec["experiment"],
        k=evaluation["k"],
        questions=evaluation["questions"],
        temperature=sampling["temperature"],
        top_p=sampling["top_p"],
        scores=scores,
        facts=facts,
        specification=yaml.safe_dump(spec, sort_keys=False),
        question=json.dumps(example),
        max_new_tokens=training["max_response_length"],
    )
    return f"{rendered}\n"


def _score(questions: list[float]) -> str:
    estimate = contrast([[Arm(np.array([questions]))]])
    interval = f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}" if estimate.has_interval else "–"
    return f"{100 * estimate.value:.1f} | {interval}"


def base_model_line(model: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    if model["kind"] == "hub":
        return f"`{model['repository']}`, revision `{model['revision']}`"
    made = {
        "miniature": "built and warm-started by the workflow",
        "gguf": f"from `{model.get('package') or model.get('path')}`",
        "local": "a local checkpoint",
    }[model["kind"]]
    return f"{model['title']} (`{model['name']}`), {made}, SHA-256 `{provenance.get('base_model')}`"


def data_line(benchmark: Mapping[str, Any]) -> str:
    if benchmark["kind"] == "sourced":
        source = benchmark["source"]
        return f"`{benchmark['name']}` of `{source['repository']}`, commit `{source['commit']}`"
    if benchmark["kind"] == "files":
        return f"`{benchmark['name']}`: `{benchmark['train_file']}` and `{benchmark['test_file']}`"
    of = f"task `{benchmark['task']}`" if benchmark["kind"] == "reasoning_gym" else f"family `{benchmark['family']}`"
    return f"`{benchmark['name']}`: generated questions, {of}, seed {benchmark['seed']}"
