"""Experiments: every file that is shipped loads, every mistake is one line that names it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import refused
from synthetic import tiny_experiment

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, Sampling, WallClock, identity_of
from srpo.ground.errors import SrpoError
from srpo.ground.repository import CONFIGS, method_files

EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.yaml"))
SHARED = tiny_experiment()["training"]
BARE = {"models": ["miniature-tiny"], "benchmarks": ["miniature/physics"]}
PHYSICS = BARE | {"methods": ["grpo"]}


@pytest.mark.parametrize("path", [*method_files().values()], ids=lambda path: path.stem)
def test_shipped_methods_load(path: Path) -> None:
    matrix = [PHYSICS | {"methods": [path.stem]}]
    assert load_experiment(tiny_experiment(matrix=matrix)).methods[path.stem].name == path.stem


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiments_load_and_once_resolved_load_as_themselves(path: Path, tmp_path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert all(experiment.run(run).id == run for run in experiment.runs())
    resolved = tmp_path / "experiment.yaml"
    resolved.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    assert load_experiment(resolved) == experiment


def test_matrix_is_the_union_of_its_blocks() -> None:
    more = {"models": ["miniature-tiny"], "benchmarks": ["miniature/tooluse"]}
    blocks = [PHYSICS | {"seeds": [1, 2]}, PHYSICS | {"methods": ["srpo", "grpo"]}, more]
    experiment = load_experiment(tiny_experiment(matrix=blocks))
    assert [(run.method, run.seed) for run in experiment.runs()] == [("grpo", 1), ("grpo", 2), ("srpo", 1)]
    assert experiment.bases() == [("miniature-tiny", "physics"), ("miniature-tiny", "tooluse")]


def test_variants_take_the_place_of_their_method() -> None:
    given = {"matrix": [PHYSICS | {"methods": ["srpo"]}], "overrides": {"srpo": {"learning_rate": 0.25}}}
    plain = load_experiment(tiny_experiment(**given))
    experiment = load_experiment(tiny_experiment(**given, variants={"grid": {"entropy_beta": [0, 0.5, 1]}}))
    names = ["srpo-entropy_beta-0", "srpo-entropy_beta-0.5", "srpo-entropy_beta-1"]
    assert list(experiment.methods) == experiment.matrix[0].methods == names
    assert {run.method for run in experiment.runs()} == {*names}
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
    experiment = load_experiment(tiny_experiment(variants={"grid": {"distillation_topk": [5, 100]}}))
    assert list(experiment.methods) == [
        "grpo-distillation_topk-5",
        "grpo-distillation_topk-100",
        "sdpo-distillation_topk-5",
        "sdpo-distillation_topk-100",
        "srpo-distillation_topk-5",
        "srpo-distillation_topk-100",
    ]
    assert experiment.methods["sdpo-distillation_topk-5"].distillation_topk == 5


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


def test_validations_can_be_denser_within_the_first_budget() -> None:
    training = load_experiment({**MINE, "training": {"validate_every_in_first_budget": 2}}).training
    assert (training.validate_every, min(training.budget_seconds.values())) == (3, 4.0)
    ends = {1: 1.0, 2: 3.0, 3: 3.5, 4: 4.0, 5: 4.1, 6: 5.0, 8: 6.0}
    assert [step for step, clock in ends.items() if training.validates(step, clock)] == [2, 4, 6]
    assert not training.validates(0, 0.0)


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
    with refused("own.yaml: name = smoke: ", "has this name, and its results; choose another"):
        load_experiment(content | {"title": "Mine"}, own, where="own.yaml")
    assert load_experiment(content | {"title": "Mine"}, own, where=str(shipped)).title == "Mine"


@pytest.mark.parametrize("name", ["srpo", "base"])
def test_an_own_method_has_a_name_of_its_own(name: str, tmp_path: Path) -> None:
    """Tuned values, claims and the paper's numbers are of the shipped method; the untrained model is called base."""
    file = tmp_path / f"{name}.yaml"
    file.write_text("extends: grpo\ntitle: Mine\n")
    with refused("give another name"):
        load_experiment(MINE | {"matrix": [BARE | {"methods": [str(file)]}], "overrides": {}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": {**SHARED, "validate_evry": 3}}, ["training.validate_evry: unknown key"]),
        ({"training": {**SHARED, "budget_seconds": {"1h": 5, "5h": 5}}}, ["budget_seconds", "strictly increasing"]),
        ({"evaluation": {"temperature": 1.0}}, ["evaluation.temperature = 1.0", "validation.temperature = 0.6"]),
        ({"overrides": {"srpo": {"success_buffer": True}}}, ["success_buffer = true: give a number"]),
        ({"overrides": {"ppo": {"learning_rate": 1.0}}}, ["overrides.ppo: not a method of the matrix"]),
        ({"matrix": [BARE | {"benchmarks": ["miniature/physics", "sdpo/physics"]}]}, ["share a name"]),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        load_experiment(tiny_experiment(**changes))


@pytest.mark.parametrize(
    ("routing", "word"),
    [
        (("grpo", "sdpo", "grpo", "grpo"), "no sibling"),
        (("dropped", "dropped", "dropped", "dropped"), "nothing"),
        (("mix", "mix", "sdpo", "dropped"), "exclude"),
    ],
)
def test_impossible_routing(routing: tuple[str, ...], word: str) -> None:
    experiment = load_experiment(tiny_experiment()).model_dump(mode="json")
    cells = ("correct_with_sibling", "correct_without_sibling", "wrong_with_sibling", "wrong_without_sibling")
    experiment["methods"]["srpo"]["routing"] = dict(zip(cells, routing, strict=True))
    with pytest.raises(SrpoError, match=word):
        load_experiment(experiment)


# ---------------------------------------------------------------- one's own methods, models and benchmarks


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the configuration to which a test adds files."""
    return Path(shutil.copytree(CONFIGS, tmp_path / "configs"))


def test_nested_keys_of_what_is_extended_stay() -> None:
    """A validation with other rollouts had the temperature 0.6 again, the evaluation 1.0."""
    own = {**MINE, "extends": "real-cpu", "training": {"validation": {"rollouts": 8}}}
    found = load_experiment(own).training
    assert found.validation == Sampling(rollouts=8, temperature=1.0)
    assert found.clock.decode_flops_per_second == 1.4e11
    assert load_experiment({**own, "training": {"clock": {"kind": "wall"}}}).training.clock == WallClock(kind="wall")


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


def test_two_methods_have_two_titles(own: Path) -> None:
    shutil.copy(method_files()["grpo"], own / "methods" / "mine.yaml")
    with refused("methods.mine: title = 'GRPO'", "grpo has it, too"):
        load_experiment(tiny_experiment(matrix=[PHYSICS | {"methods": ["grpo", "mine"]}]), own)


def test_two_base_models_have_two_folders() -> None:
    raw = _with_draws("per_seed", seeds=[1, 2]).model_dump(mode="json")
    other = {"name": "miniature-large-2", "title": "Another", "draws": "shared"}
    raw["models"]["miniature-large-2"] = raw["models"]["miniature-large"] | other
    raw["matrix"] += [raw["matrix"][0] | {"models": ["miniature-large-2"]}]
    with refused("models.miniature-large-2", "base model miniature-large-2"):
        load_experiment(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"budget_seconds": {"1h": 1440, "5h": 7200, "10h": 14400}}},
        {"training": {"rollouts_per_question": 4}},
        {"training": {"clock": {"kind": "modelled"}}},
        {"overrides": {"grpo": {"learning_rate": 1e-4}}},
    ],
)
def test_other_hours_batches_clocks_and_rates_are_not_compared_with_the_paper(change: dict[str, Any]) -> None:
    raw = yaml.safe_load((CONFIGS / "experiments" / "paper.yaml").read_text()) | {"name": "mine"}
    load_experiment(raw)
    with refused("comparable_with_paper"):
        load_experiment(raw | change | {"training": raw["training"] | change.get("training", {})})


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


def test_a_key_that_went_and_changed_no_result_is_not_part_of_an_older_runs_identity() -> None:
    assert identity_of({"training": {"branch_gradients_every": 12, "warmup_steps": 3}}) == {"training.warmup_steps": 3}


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
