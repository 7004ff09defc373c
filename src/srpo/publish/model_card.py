"""The model card of an evaluated checkpoint: description, scores, settings, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from srpo.analysis.results.contrasts import Arm, contrast
from srpo.benchmarks.splits import read_split
from srpo.config import Sampling
from srpo.files import write_text
from srpo.layout import WEIGHTS, RunFiles

CARD = "README.md"
"""The name that the Hugging Face hub asks for."""

_TEXT = """\
---
{header}---

# {title}

{sentence}

## How well it answers

avg@{k} of {questions} test questions: the mean reward of {k} samples per question, at temperature {temperature:g} and
top-p {top_p:g}. The interval covers other questions, not other training seeds.

| selected within | step | avg@{k}, % | 95 % interval |
| --- | --- | --- | --- |
{scores}

## How it was made

| | |
| --- | --- |
{facts}

The whole specification:

```yaml
{specification}```

## How to load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "."  # this folder, or its name on the hub
tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModelForCausalLM.from_pretrained(name)
question = [{{"role": "user", "content": {question}}}]
prompt = tokenizer.apply_chat_template(
    question, add_generation_prompt=True, enable_thinking=False, return_tensors="pt", return_dict=True
)
how = {{"do_sample": True, "temperature": {temperature:g}, "top_p": {top_p:g}, "max_new_tokens": {max_new_tokens}}}
answer = model.generate(**prompt, **how)
print(tokenizer.decode(answer[0, prompt["input_ids"].shape[1]:], skip_special_tokens=True))
```

The model was trained on one narrow task. It is meant for research on training methods.
"""


def write_cards(files: RunFiles, sampling: Sampling, test: Path) -> list[Path]:
    """Write ``README.md`` beside the weights of every checkpoint of an evaluation.

    Args:
        files: of the run: ``run.yaml`` tells where it comes from, ``evaluation.json`` how well it answers.
        sampling: how it was evaluated.
        test: the test split, for a question to ask.

    Returns:
        The cards.
    """
    origin = yaml.safe_load(files.origin.read_text())
    evaluation = json.loads(files.evaluation.read_text())
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
    seconds = training["budget_seconds"]
    scores = [
        f"| {label}, {seconds[label]:g} s of training clock | {step} | {_score(budget['question_scores'])} |"
        for label, budget in evaluation["budgets"].items()
        if budget and budget["step"] == step
    ]
    facts = {
        "Base model": _base(model, provenance),
        "Data": _data(benchmark),
        **{f"SHA-256 of {split}": f"`{checksum}`" for split, checksum in provenance.get("data", {}).items()},
        "Method": f"{method['title']} (`{method['name']}`), seed {spec['id']['seed']}",
        "Learning rate": f"{method['learning_rate']:g}",
        "Batch": f"{training['questions_per_batch']} questions, {training['rollouts_per_question']} rollouts each, "
        f"{training['questions_per_batch'] // method['mini_batch_questions']} updates",
        "Commit": f"`{provenance.get('commit', 'unknown')}`",
        "Packages": ", ".join(f"{name} {number}" for name, number in provenance.get("packages", {}).items()),
    }
    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if model["kind"] == "hub":
        header["base_model"] = model["repository"]
    header["tags"] = ["srpo", method["name"], "reinforcement-learning"]
    return _TEXT.format(
        header=yaml.safe_dump(header, sort_keys=False),
        title=f"{model['title']}, {method['title']}, {benchmark['title']}",
        sentence=f"{model['title']} after {step} steps of {method['title']} on {benchmark['title']}, from the "
        f"experiment `{spec['experiment']}` of a reproduction of Sample-Routed Policy Optimization (SRPO).",
        k=evaluation["k"],
        questions=evaluation["questions"],
        temperature=sampling["temperature"],
        top_p=sampling["top_p"],
        scores="\n".join(scores),
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items() if value),
        specification=yaml.safe_dump(spec, sort_keys=False),
        question=json.dumps(example),
        max_new_tokens=training["max_response_length"],
    )


def _score(questions: list[float]) -> str:
    estimate = contrast([[Arm(np.array([questions]))]])
    interval = f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}" if estimate.has_interval else "–"
    return f"{100 * estimate.value:.1f} | {interval}"


def _base(model: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    if model["kind"] == "hub":
        return f"`{model['repository']}`, revision `{model['revision']}`"
    made = {
        "miniature": "built and warm-started by the workflow",
        "gguf": f"from `{model.get('package') or model.get('path')}`",
        "local": "a local checkpoint",
    }[model["kind"]]
    return f"{model['title']} (`{model['name']}`), {made}, SHA-256 `{provenance.get('base_model')}`"


def _data(benchmark: Mapping[str, Any]) -> str:
    if benchmark["kind"] == "sourced":
        source = benchmark["source"]
        return f"`{benchmark['name']}` of `{source['repository']}`, commit `{source['commit']}`"
    of = f"task `{benchmark['task']}`" if benchmark["kind"] == "reasoning_gym" else f"family `{benchmark['family']}`"
    return f"`{benchmark['name']}`: generated questions, {of}, seed {benchmark['seed']}"
