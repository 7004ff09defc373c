"""The search of hyperparameters: the same trials for every method, on train questions, and the file it leaves."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import fails
from one_line import refused
from synthetic import tiny_experiment

from srpo.analysis.load import load_results
from srpo.analysis.published import results
from srpo.analysis.tables.table import Bold
from srpo.analysis.write import make_table
from srpo.cli import main
from srpo.experiment import tuning
from srpo.experiment.compose import load_experiment, resolved_text
from srpo.experiment.config import Tuned
from srpo.ground.files import write_text
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS
from srpo.starts.data import build_split

GRID = {"learning_rate": [1.0e-4, 1.0e-3], "mini_batch_questions": [4, 16]}
BLOCK = {"models": ["miniature-tiny"], "benchmarks": ["miniature/physics"], "methods": ["grpo", "srpo"]}
REQUEST = tiny_experiment(matrix=[BLOCK], variants={"held_out_questions": 64, "grid": GRID}) | {"overrides": {}}
SCORES = {"grpo": [0.5, 0.7, 0.7, 0.2], "srpo": [0.1, 0.2, 0.3, 0.4]}
"""By method in the grid's order; the second and third of GRPO are equal."""


def finish(folder: Path, request: dict[str, Any] = REQUEST) -> Layout:
    """A search whose runs are finished."""
    experiment, layout = load_experiment(request), Layout(folder)
    write_text(layout.experiment, resolved_text(experiment))
    for of, scores in SCORES.items():
        names = [name for name, trial in experiment.variants.items() if trial.of == of]
        for run in experiment.runs():
            if run.method in names:
                # the first budget is worse and the last better than the mean
                score = scores[names.index(run.method)]
                marks = [score - 0.05, score + 0.05]
                budgets = {f"{i}h": {"avg_at_k": mark} for i, mark in enumerate(marks)}
                summary = {"steps": 10, "clock": 2.5, "wall_seconds": 30.0, "budgets": budgets}
                write_text(layout.run_files(run).summary, json.dumps(summary))
                record = {"spec": experiment.run(run).model_dump(mode="json"), "provenance": {}}
                write_text(layout.run_files(run).origin, json.dumps(record))
    return layout


def test_every_method_has_the_same_trials_on_held_out_train_questions() -> None:
    experiment = load_experiment(REQUEST)
    of_each = {
        of: [trial.values for trial in experiment.variants.values() if trial.of == of] for of in ("grpo", "srpo")
    }
    points = [{"learning_rate": r, "mini_batch_questions": n} for r in (1e-4, 1e-3) for n in (4, 16)]
    assert of_each == {"grpo": points, "srpo": points}
    assert {run.method for run in experiment.runs()} == {*experiment.methods} == {*experiment.variants}
    for name, trial in experiment.variants.items():
        method, of = experiment.methods[name], load_experiment(tiny_experiment(matrix=[BLOCK])).methods[trial.of]
        assert method.model_dump() | {"name": of.name, "title": of.title} == of.model_dump() | trial.values


def test_a_search_never_sees_a_test_question() -> None:
    searched = load_experiment(REQUEST).benchmarks["physics"]
    published = searched.model_copy(update={"held_out_questions": 0})
    train, held_out = (build_split(searched, split) for split in ("train", "test"))
    prompts = {name: {q.messages[0]["content"] for q in part} for name, part in (("train", train), ("held", held_out))}
    assert (len(train), len(held_out)) == (448, 64) == (searched.questions("train"), searched.questions("test"))
    assert prompts["train"] | prompts["held"] == {q.messages[0]["content"] for q in build_split(published, "train")}
    assert not prompts["train"] & prompts["held"]
    assert not prompts["held"] & {q.messages[0]["content"] for q in build_split(published, "test")}
    assert [q.index for q in held_out] == list(range(64))
    assert held_out == build_split(searched, "test")


def test_the_best_trial_is_chosen_by_the_mean_over_budgets_and_the_first_of_equals(tmp_path: Path) -> None:
    layout = finish(tmp_path / "search")
    assert main(["tune", str(layout.folder)]) == 0
    tuned = Tuned.model_validate(yaml.safe_load(layout.tuned.read_text()))
    assert tuned.methods == {
        "grpo": {"learning_rate": 1e-4, "mini_batch_questions": 16},
        "srpo": {"learning_rate": 1e-3, "mini_batch_questions": 16},
    }
    assert [(t.method, t.score) for t in tuned.trials] == [
        (of, pytest.approx(100 * score)) for of, scores in SCORES.items() for score in scores
    ]
    assert (tuned.runs, tuned.training_steps, tuned.clock_seconds, tuned.wall_seconds) == (8, 80, 20.0, 240.0)
    assert layout.tuned.read_text().startswith("# Written by srpo tune from results/tiny: the best of 4 trials of each")


def test_runs_of_other_settings_are_refused_by_all_that_compute_with_their_numbers(tmp_path: Path, capsys) -> None:
    """Snakemake writes the experiment first, beside runs that it will train again."""
    layout = finish(tmp_path / "search")
    now = load_experiment(REQUEST | {"training": REQUEST["training"] | {"temperature": 0.5}})
    write_text(layout.experiment, resolved_text(now))
    said = "training.temperature = 1.0, now 0.5"
    for command in (["tune"], ["plan", "smoke", "--from"], ["report"]):
        assert said in fails(capsys, *command, layout.folder)
    with refused(said):
        results(layout.folder)
    assert not layout.tuned.exists()
    assert main(["status", str(layout.folder)]) == 0


def test_an_experiment_takes_what_was_found_and_says_where_it_is_from(tmp_path: Path) -> None:
    own = Path(shutil.copytree(CONFIGS, tmp_path / "configs"))
    layout = finish(tmp_path / "search")
    tuning.write(tuning.collect(load_experiment(layout.experiment), layout), own / "tuned" / "mine.yaml")
    block = BLOCK | {"methods": ["grpo", "srpo", "srpo_without_weighting"]}
    overrides = {"grpo": {"mini_batch_questions": 8}}
    base = tiny_experiment(matrix=[block]) | {"tuned": "mine", "overrides": overrides}
    (own / "experiments" / "base.yaml").write_text(yaml.safe_dump(base, sort_keys=False))
    child = {"name": "child", "title": "Child", "extends": "base", "matrix": [BLOCK | {"methods": ["srpo"]}]}
    for experiment in (load_experiment(base, own), load_experiment(child, own)):
        for name, method in experiment.methods.items():
            wanted = {"grpo": (1e-4, 8)}.get(name, (1e-3, 16))  # an override is stronger, and ablations have SRPO's
            assert (method.learning_rate, method.mini_batch_questions) == wanted
        root = tmp_path / experiment.name
        write_text(Layout(root).experiment, resolved_text(experiment))
        table = make_table("tuning", load_results(root))
        (view,) = table.shown
        texts = [texts for _, texts in view.rows]
        scores = [[f"{100 * SCORES[method][i]:.1f}" for method in ("grpo", "srpo")] for i in range(4)]
        assert texts == scores
        bold = [[isinstance(text, Bold) for text in row] for row in texts]
        assert bold == [[False, False], [True, False], [False, False], [False, True]]
        assert "8 runs, 80 training steps, 20 s of the training clock, 4 minutes" in table.notes[0]
