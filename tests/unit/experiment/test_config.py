"""Experiments: every file that is shipped loads, every mistake is one line that names it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import refused
from synthetic import tiny_experiment

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.inputs.errors import SrpoError
from srpo.layout import RunId
from srpo.repository import CONFIGS, method_files

EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.yaml"))
SHARED = tiny_experiment()["training"]
BARE = {"models": ["miniature-small"], "benchmarks": ["miniature/physics"]}
PHYSICS = BARE | {"methods": ["grpo"]}
TYPO = {
    "correct_with_sibling": "grpo",
    "correct_without_sibling": "grpo",
    "wrong_with_sibling": "sdpo",
    "wrong_no_sibling": "grpo",
}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiments_load(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    for run in experiment.runs():
        assert experiment.run(run).id == run


@pytest.mark.parametrize("path", [*method_files().values()], ids=lambda path: path.stem)
def test_shipped_methods_load(path: Path) -> None:
    matrix = [PHYSICS | {"methods": [path.stem]}]
    assert load_experiment(tiny_experiment(matrix=matrix)).methods[path.stem].name == path.stem


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_resolved_experiment_loads_as_itself(path: Path, tmp_path: Path) -> None:
    experiment = load_experiment(path)
    resolved = tmp_path / "experiment.yaml"
    resolved.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    assert load_experiment(resolved) == experiment


def test_matrix_is_the_union_of_its_blocks() -> None:
    more = {"models": ["miniature-small"], "benchmarks": ["miniature/tooluse"]}
    blocks = [PHYSICS | {"seeds": [1, 2]}, PHYSICS | {"methods": ["srpo", "grpo"]}, more]
    experiment = load_experiment(tiny_experiment(matrix=blocks))
    assert [(run.method, run.seed) for run in experiment.runs()] == [("grpo", 1), ("grpo", 2), ("srpo", 1)]
    assert experiment.bases() == [("miniature-small", "physics"), ("miniature-small", "tooluse")]


def test_overrides_change_one_method() -> None:
    experiment = load_experiment(tiny_experiment(overrides={"srpo": {"learning_rate": 0.25}}))
    assert experiment.methods["srpo"].learning_rate == 0.25
    assert experiment.methods["sdpo"].learning_rate == 1e-5


BETA = {"of": ["srpo"], "grid": {"entropy_beta": [0, 0.5, 1]}}


def test_variants_take_the_place_of_their_method() -> None:
    overrides = {"srpo": {"learning_rate": 0.25}}
    plain = load_experiment(tiny_experiment(overrides=overrides))
    experiment = load_experiment(tiny_experiment(overrides=overrides, variants=BETA))
    names = ["srpo-entropy_beta-0", "srpo-entropy_beta-0.5", "srpo-entropy_beta-1"]
    assert list(experiment.methods) == experiment.matrix[0].methods == ["grpo", "sdpo", *names]
    assert {run.method for run in experiment.runs()} == {"grpo", "sdpo", *names}
    assert [experiment.methods[name].entropy_beta for name in names] == [0, 0.5, 1]
    assert [experiment.methods[name].title for name in names] == [f"SRPO, entropy_beta = {b}" for b in (0, 0.5, 1)]
    for name in names:  # nothing else differs
        other = {"name", "title", "entropy_beta"}
        assert experiment.methods[name].name == name
        assert experiment.methods[name].model_dump(exclude=other) == plain.methods["srpo"].model_dump(exclude=other)
    assert {name: (v.of, v.values) for name, v in experiment.variants.items()} == {
        name: ("srpo", {"entropy_beta": value}) for name, value in zip(names, [0, 0.5, 1], strict=True)
    }
    assert (experiment.benchmarks, experiment.is_search) == (plain.benchmarks, False)


def test_variants_of_several_methods_keep_the_order_of_the_matrix() -> None:
    variants = {"of": ["srpo", "sdpo"], "grid": {"distillation_topk": [5, 100]}}
    experiment = load_experiment(tiny_experiment(variants=variants))
    assert list(experiment.methods) == [
        "grpo",
        "sdpo-distillation_topk-5",
        "sdpo-distillation_topk-100",
        "srpo-distillation_topk-5",
        "srpo-distillation_topk-100",
    ]
    assert experiment.methods["sdpo-distillation_topk-5"].distillation_topk == 5


def test_names_of_variants_are_path_components() -> None:
    experiment = load_experiment(tiny_experiment(variants=BETA | {"grid": {"entropy_beta": [1e-7, 2.5, 1e20]}}))
    assert list(experiment.variants) == [f"srpo-entropy_beta-{v}" for v in ("1e-07", "2.5", "1e+20")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"of": ["ppo"]}, ["variants.of = ppo", "methods grpo, sdpo, srpo"]),
        ({"of": ["advantage_mix"]}, ["variants.of = advantage_mix", "grpo, sdpo, srpo"]),  # is not in the matrix
        ({"of": ["srpo", "srpo"]}, ["variants.of = srpo, srpo", "once"]),
        ({"of": []}, ["variants.of", "at least 1"]),
        ({"of": "srpo"}, ["variants.of = 'srpo'", "list"]),
        ({"grid": {"beta": [1]}}, ["variants.grid = beta", "method srpo", "entropy_beta", "distillation_topk"]),
        ({"grid": {"title": [1]}}, ["variants.grid = title", "entropy_beta"]),
        ({"grid": {"routing.correct_with_sibling": [1]}}, ["variants.grid = routing.correct_with_sibling"]),
        ({"grid": {"entropy_beta": []}}, ["variants.grid.entropy_beta = []", "at least 1"]),
        ({"grid": {"entropy_beta": [0, 1, 1.0]}}, ["variants.grid = 1: given twice"]),
        ({"grid": {"entropy_beta": [0, -1]}}, ["grid = -1", "entropy_beta of srpo", "greater than or equal to 0"]),
        ({"grid": {"entropy_beta": [float("nan")]}}, ["variants.grid.entropy_beta.0", "finite"]),
        ({"grid": {"distillation_topk": [1, 1.5]}}, ["grid = 1.5 for distillation_topk of srpo", "whole number"]),
        ({"grid": {"mini_batch_questions": [8, 7]}}, ["mini_batch_questions = 7", "must divide"]),
        ({"colour": "red"}, ["variants.colour: unknown key"]),
    ],
)
def test_mistakes_in_variants_are_one_line(change: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        load_experiment(tiny_experiment(variants=BETA | change))


def test_an_override_does_not_contradict_the_grid() -> None:
    with pytest.raises(SrpoError, match=r"overrides\.srpo\.entropy_beta: the grid sets it"):
        load_experiment(tiny_experiment(variants=BETA, overrides={"srpo": {"entropy_beta": 2.0}}))


@pytest.mark.parametrize("key", ["sweep", "search"])
def test_the_keys_of_an_earlier_version(key: str) -> None:
    """One that is given is an error; one that is null is in every file that 0.2.0 resolved."""
    with pytest.raises(SrpoError, match=f"{key}: unknown key; did you mean variants"):
        load_experiment(tiny_experiment(**{key: BETA}))
    resolved = load_experiment(tiny_experiment())
    assert load_experiment(resolved.model_dump(mode="json") | {key: None}) == resolved


# ---------------------------------------------------------------- experiments that extend others

MINE = {
    "name": "mine",
    "title": "Mine",
    "extends": "embedded",
    "matrix": [PHYSICS | {"methods": ["srpo"]}],
}


def test_an_experiment_takes_the_settings_of_the_one_that_it_extends() -> None:
    base = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
    mine = load_experiment({**MINE, "training": {"validate_every": 7}, "overrides": {"srpo": {"distillation_topk": 3}}})
    assert mine.training == base.training.model_copy(update={"validate_every": 7})
    assert (mine.scale, mine.execution, mine.evaluation) == (base.scale, base.execution, base.evaluation)
    assert mine.methods == {
        "srpo": base.methods["srpo"].model_copy(update={"distillation_topk": 3})
    }  # not what it does not name
    assert (mine.name, len(mine.runs()), mine.variants) == ("mine", 1, {})


def test_what_a_method_s_own_file_says_holds_against_what_its_parent_gets(own: Path) -> None:
    """Nearest wins: the parent's file, what an experiment changes of the parent, the file, what it changes of that."""
    for name, content in {
        "mine": {"title": "Mine", "extends": "srpo", "learning_rate": 5.0e-4},
        "child": {"title": "Child", "extends": "mine", "entropy_beta": 2.0},
    }.items():
        (own / "methods" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    raw = {**MINE, "matrix": [PHYSICS | {"methods": ["srpo", "mine", "child"]}]}
    rates = {"srpo": 3e-4, "mine": 5e-4, "child": 5e-4}
    experiment = load_experiment(raw, own)
    assert {name: each.learning_rate for name, each in experiment.methods.items()} == rates
    assert {each.mini_batch_questions for each in experiment.methods.values()} == {2}  # what no file of theirs says
    changed = load_experiment({**raw, "overrides": {"mine": {"learning_rate": 0.25}, "srpo": {"entropy_beta": 3}}}, own)
    found = {name: (each.learning_rate, each.entropy_beta) for name, each in changed.methods.items()}
    assert found == {"srpo": (3e-4, 3.0), "mine": (0.25, 3.0), "child": (0.25, 2.0)}


def test_no_override_hides_a_mistake_in_a_method_s_file(own: Path) -> None:
    with refused("mine.yaml: learning_rate = 'fast': give a number"):
        content = {**GRPO, "title": "Mine", "learning_rate": "fast"}
        load_with(own, "methods", "mine", content, overrides={"mine": {"learning_rate": 1.0e-3}})


def test_a_method_s_file_says_each_mistake_once(own: Path) -> None:
    content = {**GRPO, "title": "Mine", "learning_rate": "fast", "colour": 1}
    with pytest.raises(SrpoError) as caught:
        load_with(own, "methods", "mine", content, overrides={"mine": {"learning_rate": 1.0e-3}})
    path = own / "methods" / "mine.yaml"
    assert str(caught.value).splitlines() == [
        f"{path}: colour: unknown key",
        f"{path}: learning_rate = 'fast': give a number",
    ]


def test_null_takes_no_tuned_values() -> None:
    raw = {**MINE, "tuned": None, "overrides": {"srpo": {"mini_batch_questions": 8}}}
    assert load_experiment(raw).methods["srpo"].learning_rate == 5e-6
    with refused("methods.srpo.mini_batch_questions = 32: must divide training.questions_per_batch = 8"):
        load_experiment({**MINE, "tuned": None})


def test_what_an_experiment_gives_replaces_its_base_s(own: Path) -> None:
    """A key of ``training`` as a whole, budgets too, and along a chain."""
    (own / "experiments" / "mine.yaml").write_text(yaml.safe_dump({**MINE, "training": {"budget_seconds": {"2h": 6}}}))
    child = load_experiment({**MINE, "extends": "mine", "name": "child", "training": {"warmup_steps": 0}}, own)
    assert child.training.budget_seconds == {"2h": 6}
    assert child.training.warmup_steps == 0


def test_a_shipped_experiment_keeps_its_name(own: Path, tmp_path: Path) -> None:
    """The results folder has the experiment's name; the file itself may be changed, and be loaded as a mapping."""
    shipped = own / "experiments" / "smoke.yaml"
    content = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    with pytest.raises(
        SrpoError, match=r"^own.yaml: name = smoke: .*/smoke\.yaml has this name, and its results; choose"
    ):
        load_experiment(content | {"title": "Mine"}, own, where="own.yaml")
    assert load_experiment(content, own, where="own.yaml").name == "smoke"
    assert load_experiment(content | {"title": "Mine"}, own, where=str(shipped)).title == "Mine"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("embeded", ["extends = 'embeded'", "did you mean embedded?"]),
        (
            "configs/experiments/smoke.yaml",
            ["a path; give the name of one in ", "configs/experiments; did you mean smoke?"],
        ),
        ("../experiments/embedded", ["a path; give the name of one in ", "did you mean embedded?"]),
        ("nowhere", ["extends = 'nowhere'", "demo, embedded, "]),
        ("mine", ["mine.yaml: extends", "mine -> mine", "circle"]),
    ],
)
def test_mistakes_in_a_base_are_one_line(base: str, words: list[str], own: Path) -> None:
    (own / "experiments" / "mine.yaml").write_text(yaml.safe_dump({**MINE, "extends": "mine"}))
    with refused(*words):
        load_experiment({**MINE, "name": "child", "extends": base}, own)


def test_run_outside_the_matrix() -> None:
    run = RunId(model="miniature-small", benchmark="physics", method="grpo", seed=7)
    with pytest.raises(SrpoError, match="seed7 is not in the matrix"):
        load_experiment(tiny_experiment()).run(run)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "red"}, ["colour", "unknown key"]),
        ({"title": ""}, ["title = '': give one line of text"]),
        ({"matrix": [PHYSICS | {"methods": []}]}, ["matrix.0.methods = []: give methods, or no key"]),
        ({"matrix": [PHYSICS, BARE | {"seeds": [1]}]}, ["matrix.1.seeds: without methods nothing is trained"]),
        ({"matrix": [PHYSICS | {"seeds": [True]}]}, ["seeds = [true]: give a number"]),
        (
            {"training": {**SHARED, "budget_seconds": {"../x": 1}}},
            ["training.budget_seconds = {'../x': 1}: '../x': a name has letters"],
        ),
        ({"tuned": "../tuned/miniature"}, ["tuned = '../tuned/miniature': unknown"]),
        ({"traning": SHARED}, ["traning: unknown key; did you mean training?"]),
        (
            {"training": {**SHARED, "budgets": {"1h": 1}}},
            ["training.budgets: unknown key; did you mean budget_seconds?"],
        ),
        ({"training": {key: SHARED[key] for key in SHARED if key != "clock"}}, ["training.clock", "required"]),
        ({"training": {**SHARED, "Validate_Every": 3}}, ["training.Validate_Every", "did you mean validate_every?"]),
        ({"execution": {"gpus": 8}}, ["execution.gpus: unknown key; did you mean ranks?"]),
        (
            {"training": {**SHARED, "clock": {"kind": "sundial"}}},
            ["training.clock", "kind = sundial: give one of 'wall', 'modelled', 'calibrated'"],
        ),
        (
            {"training": {**SHARED, "clock": {"kind": "calibrated", "step_seconds": {"grpo": {1: 71}}}}},
            ["training.clock = ", "step_seconds.sdpo is missing; give grpo, sdpo, srpo"],
        ),
        ({"training": {**SHARED, "rollouts_per_question": 1}}, ["rollouts_per_question = 1", "2"]),
        (
            {"training": {**SHARED, "budget_seconds": {"1h": 5, "5h": 5}}},
            ["experiment: training.budget_seconds = {'1h': 5, '5h': 5}: give at least one, in strictly increasing"],
        ),
        ({"training": {**SHARED, "budget_seconds": {}}}, ["budget_seconds", "at least one"]),
        ({"overrides": ["srpo"]}, ["overrides = ['srpo']", "a mapping"]),
        ({"matrix": [PHYSICS | {"methods": "grpo"}]}, ["matrix.0.methods = 'grpo': give a list, such as [grpo]"]),
        ({"matrix": [PHYSICS | {"models": 3}]}, ["matrix.0.models = 3: give a list"]),
        ({"matrix": [PHYSICS | {"models": [3]}]}, ["matrix.0.models.0 = 3: input should be a valid string; quote it"]),
        ({"matrix": [BARE | {"method": ["grpo"]}]}, ["matrix.0.method: unknown key; did you mean methods?"]),
        (
            {"matrix": [{"model": ["big"], "benchmarks": ["miniature/physics"], "methods": ["srpo"]}]},
            ["matrix.0.model: unknown key; did you mean models?"],
        ),
        (
            {"overrides": {"sdpo": {"distillation_topk": 0}}},
            ["methods.sdpo.distillation_topk = 0", "greater than or equal to 1"],
        ),
        ({"overrides": {"grpo": {"learning_rate": -1.0}}}, ["methods.grpo.learning_rate = -1.0", "greater than 0"]),
        (
            {"overrides": {"grpo": {"learning_rate": 1.0e9}}},
            ["learning_rate = 1000000000.0", "less than or equal to 1"],
        ),
        ({"overrides": {"grpo": {"learning_rate": float("inf")}}}, ["grpo.learning_rate = inf", "finite number"]),
        ({"overrides": {"srpo": {"success_buffer": True}}}, ["methods.srpo", "success_buffer = true: give a number"]),
        ({"training": {**SHARED, "warmup_steps": False}}, ["training", "warmup_steps = false: give a number"]),
        (
            {"overrides": {"srpo": {"teacher": "frozen"}}},
            ["methods.srpo.teacher = 'frozen': give a mapping with the key kind: one of 'ema', 'frozen', 'live', "],
        ),
        (
            {"training": {**SHARED, "clock": {"flops": 1}}},
            ["training.clock = {'flops': 1}: the key kind is missing; give one of 'wall', 'modelled', 'calibrated'"],
        ),
        (
            {"training": {**SHARED, "weight_decay": 2}},
            ["training.weight_decay = 2: input should be less than or equal to 1"],
        ),
        ({"training": {**SHARED, "temperature": 1e-9}}, ["temperature = 1e-09", "greater than or equal to 0.01"]),
        (
            {"training": {**SHARED, "clock": {"kind": "modelled", "decode_flops_per_second": 1e300}}},
            ["training.clock.decode_flops_per_second = 1e+300", "less than or equal to 1000000000000000000"],
        ),
        ({"training": {**SHARED, "max_steps": 0}}, ["max_steps = 0", "than or equal to 1, or null"]),
        ({"training": {**SHARED, "stop_on": "warn"}}, ["stop_on = 'warn': input should be 'alarm' or 'cost', or null"]),
        (
            {"overrides": {"sdpo": {"module": "no_such_module"}}},
            ["methods.sdpo: module = no_such_module: cannot be imported (No module named", "PYTHONPATH"],
        ),
        (
            {"overrides": {"sdpo": {"module": "examples/methods/rlrt.py"}}},
            ["module = examples/methods/rlrt.py: ", "; give the module's name, rlrt, and its folder in PYTHONPATH"],
        ),
        (
            {"overrides": {"srpo": {"second_routing": "grpo", "first_phase_steps": 1}}},
            ["methods.srpo.second_routing = 'grpo': give a mapping with correct_with_sibling, "],
        ),
        (
            {"overrides": {"srpo": {"second_routing": TYPO, "first_phase_steps": 1}}},
            ["srpo.second_routing.wrong_no_sibling: unknown key; did you mean wrong_without_sibling?"],
        ),
        ({"overrides": {"ppo": {"learning_rate": 1.0}}}, ["overrides.ppo", "grpo, sdpo, srpo"]),
        (
            {"overrides": {"grpo": {"routing": {}}}},
            ["overrides.grpo.routing: no hyperparameter; write a method"],
        ),
        (
            {"matrix": [PHYSICS | {"methods": ["base"]}]},
            ["method 'base'", "which is always evaluated; leave it out"],
        ),
        ({"training": {**SHARED, "top_p": 0.9}}, ["training.top_p: unknown key; top_p belongs into evaluation"]),
        ({"methods": ["grpo"]}, ["unknown key methods", "matrix"]),
        ({"seeds": 3}, ["experiment: seeds: unknown key; seeds belongs into a block of matrix"]),
        ({"lr": 1.0e-4}, ["experiment: lr: unknown key; learning_rate belongs into overrides, below a method"]),
        ({"routing": {"wrong_with_sibling": "grpo"}}, ["routing: unknown key; routing belongs into a method's file"]),
        ({"training": {**SHARED, "rollouts": 4}}, ["rollouts: unknown key; did you mean rollouts_per_question?"]),
        ({"tuned": "None"}, ["tuned = 'None': unknown; ", "configs/tuned has miniature, real; null takes none"]),
        ({"training": {**SHARED, "ranks": 2}}, ["training.ranks: unknown key; ranks belongs into execution"]),
        ({"matrix": [PHYSICS | {"seeds": 3}]}, ["matrix.0.seeds = 3: give a list, such as [1, 2, 3]"]),
        ({"matrix": [PHYSICS | {"seeds": "1-3"}]}, ["matrix.0.seeds = '1-3': give a list, such as [1, 2, 3]"]),
        (
            {"training": {**SHARED, "budget_seconds": 3600}},
            ["training.budget_seconds = 3600: give a mapping, such as {1h: 3600}"],
        ),
        (
            {"overrides": {"srpo": {"ema_decay": 0.95}}},
            ["methods.srpo.ema_decay: unknown key; did you mean teacher_update_rate = 1 - ema_decay?"],
        ),
        (
            {"matrix": [BARE | {"benchmarks": ["miniature/materials.yaml"]}]},
            ["miniature/materials.yaml: no such file", "did you mean miniature/materials?"],
        ),
        ({"matrix": []}, ["matrix", "at least 1"]),
        ({"matrix": "grpo"}, ["matrix = 'grpo': give a list of blocks with models, benchmarks and methods"]),
        ({"matrix": ["grpo"]}, ["matrix.0 = 'grpo': give a mapping with models, benchmarks, methods, seeds"]),
        (
            {"overrides": {"srpo": {"clip_ratio": 0.2}}},
            ["methods.srpo.clip_ratio: unknown key; did you mean clip_ratio_low and clip_ratio_high?"],
        ),
        ({"overrides": {"srpo": {"epsilon": 0.2}}}, ["did you mean clip_ratio_low and clip_ratio_high?"]),
        ({"overrides": {"srpo": {"epsilon_high": 0.3}}}, ["did you mean clip_ratio_high?"]),
        ({"overrides": {"srpo": {"beta": 0.1}}}, ["did you mean entropy_beta (a KL penalty's is kl_coef)?"]),
        ({"training": {**SHARED, "batch_size": 4}}, ["batch_size: unknown key; did you mean questions_per_batch?"]),
        ({"matrix": [PHYSICS | {"seeds": [1, 2, 1]}]}, ["matrix.0.seeds = [1, 2, 1]: 1 is given twice"]),
        ({"matrix": [PHYSICS | {"methods": ["grpo", "grpo"]}]}, ["matrix.0.methods = ", "grpo is given twice"]),
        ({"matrix": [BARE | {"models": ["big"]}]}, ["unknown model 'big'", "miniature"]),
        ({"matrix": [BARE | {"benchmarks": ["maths"]}]}, ["unknown benchmark 'maths'"]),
        (
            {"matrix": [BARE | {"methods": ["ppo"]}]},
            ["experiment: unknown method 'ppo'", "configs/methods has advantage_mix", "srpo"],
        ),
        (
            {"matrix": [BARE | {"benchmarks": ["miniature/physics", "sdpo/physics"]}]},
            ["share a name", "miniature/physics, sdpo/physics"],
        ),
        ({"name": "Not A Name"}, ["name = 'Not A Name'"]),
        (
            {"training": {**SHARED, "questions_per_batch": 1024}},
            ["training.questions_per_batch = 1024", "miniature/chemistry", "to train on"],
        ),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        load_experiment(tiny_experiment(**changes))


@pytest.mark.parametrize("key", ["scale", "training"])
def test_without_what_others_give_a_file_is_asked_for_extends(key: str) -> None:
    content = {name: value for name, value in tiny_experiment().items() if name != key}
    with refused(f"{key}: field required; did you forget extends: embedded, or extends: real-cpu?"):
        load_experiment(content)


def test_every_mistake_of_a_file_has_its_line() -> None:
    changes = {
        "colour": "red",
        "traning": SHARED,
        "training": {**SHARED, "validate_evry": 3, "micro_batch_size": 0, "clock": {"kind": "wall", "flops": 1}},
        "matrix": [{"models": ["big"], "benchmarks": ["miniature/physics"], "methods": ["SRPO", "grpo"]}],
        "overrides": {"grpo": {"lr": 1.0, "learning_rate": -1.0}, "ppo": {}, "SRPO": {"entropy_beta": 1}},
    }
    with pytest.raises(SrpoError) as caught:
        load_experiment(tiny_experiment(**changes))
    lines = str(caught.value).splitlines()
    expected = [
        "colour: unknown key",
        "traning: unknown key; did you mean training?",
        "training.validate_evry: unknown key; did you mean validate_every?",
        "training.micro_batch_size = 0: input should be greater than or equal to 1",
        "training.clock.flops: unknown key",
        "unknown model 'big'",
        "unknown method 'SRPO'; did you mean srpo?",
        "overrides.ppo: not a method of the matrix (SRPO, grpo)",
        "methods.grpo.lr: unknown key; did you mean learning_rate?",
        "methods.grpo.learning_rate = -1.0",
    ]
    assert len(lines) == len(expected)
    for line in expected:
        assert any(line in each for each in lines), line


DROPPED = dict.fromkeys(TYPO.keys() - {"wrong_no_sibling"} | {"wrong_without_sibling"}, "dropped")
MISSPELT = {"clok" if key == "clock" else key: value for key, value in SHARED.items()}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        # a key that needs a value does not take null, and what is no mistake of type does not speak of it
        ({"overrides": {"srpo": {"learning_rate": None}}}, "learning_rate = None: [^,]*$"),
        ({"overrides": {"srpo": {"distillation_topk": None}}}, "distillation_topk = None: [^,]*$"),
        (
            {"overrides": {"srpo": {"second_routing": DROPPED, "first_phase_steps": 1}}},
            "second_routing = .*: every branch is dropped: [^,]*$",
        ),
        # a misspelt key is not missing, and a key of another kind is not suggested
        ({"training": MISSPELT}, r"^experiment: training\.clok: unknown key; did you mean clock\?$"),
        (
            {"training": {**SHARED, "clock": {"kind": "wall", "dense_flops_per_second": 1}}},
            r"training\.clock\.dense_flops_per_second: unknown key; there is kind$",
        ),
    ],
)
def test_a_line_says_no_more_than_the_mistake(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SrpoError, match=line):
        load_experiment(tiny_experiment(**changes))


@pytest.mark.parametrize(
    ("routing", "word"),
    [
        (("grpo", "sdpo", "grpo", "grpo"), "no sibling"),
        (("dropped", "dropped", "dropped", "dropped"), "nothing"),
        (("mix", "mix", "sdpo", "dropped"), "exclude"),
        (("grpo", "grpo", "ppo", "grpo"), "wrong_with_sibling"),
    ],
)
def test_impossible_routing(routing: tuple[str, ...], word: str) -> None:
    experiment = load_experiment(tiny_experiment()).model_dump(mode="json")
    cells = ("correct_with_sibling", "correct_without_sibling", "wrong_with_sibling", "wrong_without_sibling")
    experiment["methods"]["srpo"]["routing"] = dict(zip(cells, routing, strict=True))
    with pytest.raises(SrpoError, match=word):
        load_experiment(experiment)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("- a\n", "a mapping of keys to values is expected, found list"),
        ("# nothing\n", "a mapping of keys to values is expected, found nothing"),
        ("PAR1", "a file of data; give one of YAML"),
        ("a: [\n", "not valid YAML"),
        (None, "cannot be read"),
        *(
            (next((CONFIGS / kind).rglob(f"{name}.yaml")).read_text(), f"the file of {what}; give an experiment")
            for kind, name, what in (
                ("methods", "srpo", "a method"),
                ("models", "miniature-large", "a model"),
                ("models", "qwen3-4b", "a model"),
                ("benchmarks", "physics", "a benchmark"),
                ("tuned", "miniature", "a search"),
            )
        ),
    ],
)
def test_unreadable_file(tmp_path: Path, content: str | None, word: str) -> None:
    path = tmp_path / "broken.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SrpoError, match=word) as caught:
        load_experiment(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- one's own methods, models and benchmarks


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the configuration to which a test adds files."""
    return Path(shutil.copytree(CONFIGS, tmp_path / "configs"))


def load_with(own: Path, kind: str, name: str, content: dict[str, Any], **changes: Any) -> None:
    """Load an experiment with a file of one's own."""
    path = own / kind / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    block = {"models": ["miniature-small"], "benchmarks": ["miniature/physics"], "methods": ["grpo", "srpo"]}
    block[kind] = [*dict.fromkeys([*block[kind], name])]
    load_experiment(tiny_experiment(**{"matrix": [block]} | changes), own)


def test_a_file_with_the_end_yml_is_asked_to_be_renamed(own: Path) -> None:
    (own / "methods" / "mm.yml").write_text("title: MM\nextends: srpo\n")
    with refused("method 'mm': ", "/methods/mm.yml is there; rename it to mm.yaml"):
        load_experiment(tiny_experiment(matrix=[BARE | {"methods": ["mm"]}], overrides={}), own)
    (own / "benchmarks" / "miniature" / "q.yml").touch()
    with refused("benchmark 'miniature/q': ", "/miniature/q.yml is there; rename it to q.yaml"):
        load_experiment(tiny_experiment(matrix=[PHYSICS | {"benchmarks": ["miniature/q"]}], overrides={}), own)


def test_a_value_keeps_its_case(own: Path) -> None:
    with refused("routing.correct_with_sibling = 'SDPO': SDPO: no branch; use dropped, grpo, sdpo, "):
        content = {"title": "Mine", "extends": "srpo", "routing": {"correct_with_sibling": "SDPO"}}
        load_with(own, "methods", "mine", content)


def test_a_model_extends_another(own: Path) -> None:
    """It has the parent's keys but for its stored base models; of the warm start it gives single keys."""
    (own / "models" / "less.yaml").write_text(
        yaml.safe_dump({"title": "Less", "extends": "miniature-large", "warm_start": {"informed_fraction": 0.1}})
    )
    block = {"models": ["miniature-large", "less"], "benchmarks": ["miniature/physics"], "methods": ["grpo"]}
    models = load_experiment(tiny_experiment(matrix=[block]), own).models
    parent, child = (models[name].model_dump() for name in block["models"])
    assert parent["stored"]
    warm_start = parent["warm_start"] | {"informed_fraction": 0.1}
    assert child == parent | {"name": "less", "title": "Less", "stored": {}, "warm_start": warm_start}


@pytest.mark.parametrize("kind", ["models", "methods"])
def test_what_extends_itself_is_refused(own: Path, kind: str) -> None:
    with refused("extends: mine -> mine is a circle"):
        load_with(own, kind, "mine", {"title": "Mine", "extends": "mine"})


def test_a_list_of_parents_is_refused(own: Path) -> None:
    with refused("""method "['srpo']": a name has letters"""):
        load_with(own, "methods", "mine", {"title": "Mine", "extends": ["srpo"]})


GRPO = yaml.safe_load(method_files()["grpo"].read_text())
MODEL = yaml.safe_load((CONFIGS / "models" / "miniature-tiny.yaml").read_text())
HUB = yaml.safe_load((CONFIGS / "models" / "qwen3-0.6b.yaml").read_text())
CALLS = yaml.safe_load((CONFIGS / "benchmarks" / "miniature" / "tooluse.yaml").read_text()) | {"title": "Calls"}
SUMS = {
    "kind": "sourced",
    "title": "Sums",
    "reward": "answer_match",
    "source": {
        "repository": "lab/sums",
        "commit": "0" * 40,
        "train": {"path": "train.jsonl", "git_blob": "a" * 40, "rows": 64},
        "test": {"path": "test.jsonl", "git_blob": "b" * 40, "rows": 8},
    },
}


@pytest.mark.parametrize(
    ("kind", "name", "content", "words"),
    [
        ("methods", "base", {**GRPO, "title": "Mine"}, ["method 'base'", "untrained", "rename"]),
        ("methods", "own/x", {**GRPO, "title": "Mine"}, ["method 'own/x'", "give NAME of a file", "methods/NAME.yaml"]),
        ("methods", "grpo", {**GRPO, "title": "Mine"}, ["methods/grpo.yaml", "methods/paper/grpo.yaml", "rename one"]),
        ("methods", "a b", {**GRPO, "title": "Mine"}, ["method 'a b'", "letters"]),
        ("methods", "-x", {**GRPO, "title": "Mine"}, ["method '-x'", "begins with a letter, digit or underscore"]),
        ("models", "own/x", {**MODEL, "title": "Mine"}, ["model 'own/x'", "give NAME of a file", "models/NAME.yaml"]),
        ("models", "own/minature-tiny", MODEL, ["did you mean miniature-tiny?"]),
        (
            "models",
            "mine",
            {"kind": "local", "title": "Mine", "path": "/nope"},
            ["mine.yaml: path = /nope: no such folder"],
        ),
        (
            "models",
            "mine",
            {"kind": "local", "title": "X", "path": "~nobody9/m"},
            ["path = '~nobody9/m': Could not det"],
        ),
        (
            "models",
            "mine",
            {**MODEL, "extends": "miniature-tiny", "warm_start": 5},
            ["mine.warm_start = 5: give a map"],
        ),
        ("methods", "mine", {"extends": "srpo", "entropy_beta": 2}, ["methods.mine.title: field required"]),
        ("models", "mine", {"kind": "local", "title": "Mine", "path": "."}, ["path = .: no config.json in it; give a"]),
        ("models", "mine", {**HUB, "title": "Mine", "repository": "../.."}, ["repository = '../..': give OWNER/NAME"]),
        ("benchmarks", "own/a b", SUMS, ["benchmark 'own/a b'", "letters"]),
        (
            "methods",
            "mine",
            {**GRPO, "title": "Mine", "name": "grpo"},
            ["mine.yaml: name = 'grpo'", "leave the key out"],
        ),
        ("methods", "mine", GRPO, ["methods.mine.title = 'GRPO'", "grpo has it, too"]),
        ("benchmarks", "own/sums", {**SUMS, "title": "Physics"}, ["benchmarks.sums.title", "physics has it, too"]),
        ("benchmarks", "own/sums", {**SUMS, "reward": "guess"}, ["benchmarks.sums.reward = 'guess'", "answer_match"]),
        ("benchmarks", "own/sums", {**SUMS, "kind": "source"}, ["benchmarks.sums", "kind = source", "'sourced'"]),
        ("benchmarks", "own/sums", {k: v for k, v in SUMS.items() if k != "kind"}, ["sums", "the key kind is missing"]),
        (
            "benchmarks",
            "own/sums",
            {**SUMS, "source": {**SUMS["source"], "commit": 0}},
            ["benchmarks.sums.source.commit = 0", "quote it"],
        ),
        (
            "models",
            "mine",
            {"extends": "smollm2-135m", "title": "X", "file": "x"},
            ["file: unknown key; did you mean path?"],
        ),
        (
            "models",
            "mine",
            {**MODEL, "title": "Mine", "warm_start": {**MODEL["warm_start"], "families": {"phisics": None}}},
            ["models.mine.warm_start.families.phisics", "'chemistry', 'physics', 'biology', 'materials' or 'tooluse'"],
        ),
        (
            "methods",
            "mine",
            {"title": "Mine", "extends": "srpo", "routing": {"wrong": "grpo"}},
            ["mine.yaml: routing.wrong: unknown key; there is correct_with_sibling, correct_without_sibling, wrong_w"],
        ),
        ("benchmarks", "own/calls", {**CALLS, "family": "calls"}, ["benchmarks.calls.family = 'calls'", "'tooluse'"]),
        ("benchmarks", "own/calls", {**CALLS, "facts_per_question": 11}, ["facts_per_question = 11", "equal to 10"]),
        (
            "models",
            "mine",
            {**MODEL, "title": "Mine", "warm_start": {**MODEL["warm_start"], "families": {"biology": 11}}},
            ["models.mine.warm_start.families.biology = 11", "equal to 10"],
        ),
        (
            "models",
            "mine",
            {**MODEL, "title": "Mine", "architecture": {**MODEL["architecture"], "num_key_value_heads": 3}},
            ["models.mine.architecture", "num_key_value_heads = 3", "num_attention_heads = 4"],
        ),
        (
            "models",
            "mine",
            {**MODEL, "title": "Mine", "architecture": {**MODEL["architecture"], "num_attention_heads": 3}},
            ["num_attention_heads = 3: must divide hidden_size = 64"],
        ),
        (
            "models",
            "mine",
            {**MODEL, "title": "Mine", "architecture": {**MODEL["architecture"], "hidden_size": 60}},
            ["num_attention_heads = 4: must divide hidden_size = 60 an even number of times"],
        ),
    ],
)
def test_mistakes_in_files_of_ones_own_are_one_line(own, kind, name, content, words) -> None:
    with refused(*words):
        load_with(own, kind, name, content)


def test_a_variant_does_not_replace_another_method_of_its_name(own) -> None:
    with refused("the grid makes a method srpo-entropy_beta-1, and the matrix has another"):
        load_with(own, "methods", "srpo-entropy_beta-1", {**GRPO, "title": "Mine"}, variants=BETA)


def test_the_clock_with_its_seconds_is_part_of_a_runs_identity() -> None:
    run, *_ = load_experiment(tiny_experiment()).runs()
    clocks = [
        {"kind": "wall"},
        {"kind": "calibrated"},
        {"kind": "calibrated", "step_seconds": {key: {1: 60.0} for key in ("grpo", "sdpo", "srpo")}},
    ]
    wall, calibrated, other = (
        load_experiment(tiny_experiment(training={**SHARED, "clock": clock})).run(run).identity() for clock in clocks
    )
    of_grpo = "training.clock.step_seconds.grpo"
    assert wall["training.clock.kind"] == "wall"
    assert [calibrated[f"{of_grpo}.{hours}"] for hours in ("1.0", "5.0", "10.0")] == [71.0, 82.4, 91.5]
    assert {key: value for key, value in other.items() if key.startswith(of_grpo)} == {f"{of_grpo}.1.0": 60.0}


def test_a_title_and_an_experiments_name_change_no_result() -> None:
    experiment = load_experiment(tiny_experiment())
    renamed = experiment.model_dump(mode="json") | {"name": "another"}
    for kind in ("methods", "models", "benchmarks"):
        for definition in renamed[kind].values():
            definition["title"] += " of old"
    for run in experiment.runs():
        assert load_experiment(renamed).run(run).identity() == experiment.run(run).identity()


# ---------------------------------------------------------------- base models


def _with_draws(draws: str, **matrix: Any) -> Experiment:
    raw = yaml.safe_load((CONFIGS / "experiments" / "embedded.yaml").read_text())
    experiment = load_experiment(raw | {"matrix": [raw["matrix"][0] | matrix], "overrides": {}})
    model = experiment.models["miniature-large"].model_copy(update={"draws": draws})
    return experiment.model_copy(update={"models": {"miniature-large": model}})


def test_runs_of_one_seed_start_from_one_base_model():
    experiment = _with_draws("per_seed", seeds=[1, 2, 5])
    bases = experiment.base_models("miniature-large")
    assert {seed: (base.name, base.warm_start.seed) for seed, base in bases.items()} == {
        seed: (f"miniature-large-{seed}", seed) for seed in (1, 2, 5)
    }
    for run in experiment.runs():
        spec = experiment.run(run)
        assert spec.model == bases[run.seed]
        assert spec.id == run  # its folder has the model's name, not the base model's
        assert spec.benchmark.facts == spec.model.warm_start.facts == run.seed
        assert spec.benchmark.data_set == f"{run.benchmark}-facts{run.seed}"
        assert experiment.data_set(run.benchmark, spec.model.name) == spec.benchmark
    assert [*experiment.data_sets()] == [
        f"{benchmark}-facts{seed}" for benchmark in experiment.benchmarks for seed in (1, 2, 5)
    ]
    assert len(experiment.base_evaluations()) == 3 * len(experiment.bases())
    assert set(experiment.every_base_model()) == {name for name, _ in experiment.base_evaluations()}


def test_a_shared_base_model_serves_all_seeds():
    experiment = _with_draws("shared", seeds=[1, 2, 5])
    model = experiment.models["miniature-large"]
    assert experiment.base_models("miniature-large") == {0: model}
    assert {experiment.run(run).model.name for run in experiment.runs()} == {"miniature-large"}
    assert experiment.base_evaluations() == experiment.bases()
    assert experiment.data_sets() == experiment.benchmarks


def test_the_gap_is_measured_of_each_base_model_and_benchmark_that_runs_begin_with():
    experiment = _with_draws("per_seed", seeds=[1, 2])
    assert sorted(experiment.gaps()) == sorted(experiment.base_evaluations())
    untrained = experiment.matrix[0].model_copy(update={"methods": [], "benchmarks": ["miniature/biology"]})
    more = experiment.model_copy(update={"matrix": [*experiment.matrix, untrained]})
    assert more.gaps() == experiment.gaps()
    assert _with_draws("shared", seeds=[1, 2]).gaps() == experiment.bases()
    training = experiment.training.model_copy(update={"max_steps": 3})
    assert experiment.model_copy(update={"training": training}).gaps() == []


def test_the_base_model_is_part_of_a_runs_identity():
    run = _with_draws("per_seed").runs()[0]
    assert _with_draws("per_seed").run(run).identity() != _with_draws("shared").run(run).identity()


def test_a_real_model_is_drawn_by_the_seed_of_its_warm_start():
    experiment = load_experiment(CONFIGS.parent / "bench" / "real_base_models.yaml")
    model = experiment.models["smollm2-135m-spelling-drawn"]
    bases = experiment.base_models(model.name)
    assert {seed: (base.name, base.warm_start.seed, base.warm_start.facts) for seed, base in bases.items()} == {
        seed: (f"{model.name}-{seed}", seed, 0) for seed in (1, 2, 3)
    }
    assert {experiment.run(run).model == bases[run.seed] for run in experiment.runs()} == {True}
    assert [*experiment.data_sets()] == ["spell_short_backward"]  # its questions are about no facts


def test_a_model_that_is_drawn_has_a_warm_start():
    model = load_experiment(CONFIGS.parent / "bench" / "real_base_models.yaml").models["smollm2-135m-spelling-drawn"]
    with pytest.raises(ValueError, match="draws = per_seed: the base models would be the same; give a warm_start"):
        type(model).model_validate(model.model_dump() | {"warm_start": None})
