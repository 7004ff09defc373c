"""What an experiment takes: the plan's arithmetic, the verb, and the page that shows it."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from srpo import cli
from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS
from srpo.plan import gpus, plan
from srpo.plan.shortages import shortages
from srpo.plan.warnings import warnings

EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))
PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
EMBEDDED = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
_LARGE = EMBEDDED.models["miniature-large"].model_copy(update={"stored": {}})
BUILT = EMBEDDED.model_copy(update={"models": {"miniature-large": _LARGE}})
"""The same with base models that are built."""


REST = "log-probs, teacher, update"


def changed(**execution):
    """The paper's experiment with other execution settings."""
    return PAPER.model_copy(update={"execution": PAPER.execution.model_copy(update=execution)})


def run_of(planned: plan.Plan, **what: str) -> plan.RunPlan:
    """The only run that is ``what``."""
    (found,) = [run for run in planned.runs if what.items() <= run.run.model_dump().items()]
    return found


# ---------------------------------------------------------------- time


def test_a_search_evaluates_nothing() -> None:
    planned = plan.make_plan(load_experiment(CONFIGS / "experiments" / "tuning.yaml"))
    assert planned.base_seconds == []
    assert {run.seconds["evaluation"] for run in planned.runs} == {0}


@pytest.mark.parametrize("gpu", ["h20", "h100"])
def test_a_budget_of_hours_is_as_many_steps_as_the_card_makes(gpu: str) -> None:
    run = run_of(plan.make_plan(PAPER, gpu=gpu), model="qwen3-8b", benchmark="physics", method="srpo")
    shape, settings = memory.shape_of(PAPER.models["qwen3-8b"]), (PAPER.training, PAPER.execution)
    generation, rest = gpus.card_seconds(gpus.GPUS[gpu], shape, *settings, PAPER.methods["srpo"], gpus.Assumed())
    assert run.source == gpu
    assert run.step_seconds == pytest.approx(generation + rest)
    assert run.steps == {f"{hours}h": int(3600 * hours / (generation + rest)) for hours in (1, 5, 10)}
    assert run.validations == -(-run.steps["10h"] // 5)
    assert run.seconds["generation"] + run.seconds[REST] == pytest.approx(36000)
    assert run.seconds["generation"] == pytest.approx(36000 * generation / (generation + rest))


def test_the_card_of_an_experiment_that_names_none() -> None:
    """The smallest that has room; a node of eight has none below 80 GB."""
    names = ("paper", "paper-arms", "paper-calibrated", "paper-controls", "one-gpu", "one-gpu-48gb", "one-node-small")
    cards = {name: plan.default_gpu(load_experiment(CONFIGS / "experiments" / f"{name}.yaml")).name for name in names}
    smaller = {"one-gpu": "a10g", "one-gpu-48gb": "l40s", "one-node-small": "l40s"}
    assert cards == dict.fromkeys(names[:4], "h100") | smaller
    assert plan.default_gpu(EMBEDDED) is None
    assert plan.default_gpu(changed(max_tokens_per_rank=10**6)).name == "b200"  # none has room


def test_a_method_that_is_not_in_the_figure() -> None:
    methods = ("grpo", "srpo_without_weighting", "advantage_mix", "sdpo_failed_only")
    assert [plan.timed_like(PAPER.methods[name]) for name in methods] == ["grpo", "srpo", "sdpo", "sdpo"]


def test_too_few_test_questions_and_one_split_under_two_names_are_named(tmp_path) -> None:
    rows = [{"prompt": f"What is {n}?", "answer": f"{n}"} for n in range(40)]
    for name, part in (("train", rows[9:]), ("fewer", rows[9:20]), ("few", rows[:7]), ("enough", rows[:9])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    for name, train, test in (("a", "train", "few"), ("b", "train", "enough"), ("c", "fewer", "enough")):
        files = {"train_file": f"{tmp_path}/{train}.jsonl", "test_file": f"{tmp_path}/{test}.jsonl"}
        own = files | {"title": name, "reward": "answer_match", "kind": "files"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(own))
    block = {"models": ["qwen3-0.6b"], "benchmarks": [f"{tmp_path}/{n}.yaml" for n in "abc"], "methods": ["srpo"]}
    mine = load_experiment({"name": "mine", "title": "Mine", "extends": "real-cpu", "matrix": [block], "tuned": None})
    made = plan.make_plan(mine)
    assert made.assumed.prompt == 3  # eleven or twelve characters
    assert [line for line in warnings(made) if line.startswith("benchmarks")] == [
        "benchmarks.a: fewer than 8 test questions, so no interval and no verdict",
        "benchmarks b and c: the same test questions, which their average counts again",
    ]


def test_hours_add_up() -> None:
    planned = plan.make_plan(PAPER)
    assert len(planned.runs) == len(PAPER.runs()) == 42
    assert planned.device_hours == pytest.approx(8 * planned.wall_seconds / 3600)
    assert planned.device_hours > 42 * 10 * 8
    more = plan.make_plan(PAPER, nodes=4)
    assert planned.wall_seconds / 4 <= more.wall_seconds < planned.wall_seconds / 3
    longest = max(run.total_seconds for run in planned.runs)
    assert plan.make_plan(PAPER, nodes=10**15).wall_seconds == longest


def test_a_larger_test_split_takes_longer() -> None:
    planned = plan.make_plan(PAPER)
    chemistry, biology = (
        run_of(planned, model="qwen3-8b", benchmark=name, method="srpo").seconds for name in ("chemistry", "biology")
    )
    assert chemistry["validation"] > 2 * biology["validation"]
    assert (chemistry["generation"], chemistry[REST]) == (biology["generation"], biology[REST])


def test_a_limit_of_steps_ends_a_run() -> None:
    training = PAPER.training.model_copy(update={"max_steps": 4})
    run = plan.make_plan(PAPER.model_copy(update={"training": training})).runs[0]
    assert set(run.steps.values()) == {4}
    assert run.seconds["generation"] + run.seconds[REST] == pytest.approx(4 * run.step_seconds)


def test_base_models_take_what_was_measured() -> None:
    """Miniature-L's warm start of 2,500 steps of 32: 208 CPU seconds."""
    measured = 208
    planned = plan.make_plan(BUILT).model_seconds
    assert planned == pytest.approx([measured] * len(BUILT.matrix[0].seeds), rel=0.02)  # one for each seed


def test_stored_base_models_take_no_time() -> None:
    assert plan.make_plan(EMBEDDED).model_seconds == []


def test_base_models_come_before_the_rest_and_count() -> None:
    planned = plan.make_plan(BUILT)
    assert planned.device_hours * 3600 == pytest.approx(planned.busy_seconds + sum(planned.model_seconds))
    assert planned.wall_seconds == pytest.approx(planned.device_hours * 3600)
    many = plan.make_plan(BUILT, nodes=1000)
    assert many.wall_seconds == max(planned.model_seconds) + max(run.total_seconds for run in planned.runs)
    assert plan.make_plan(PAPER).model_seconds == []


# ---------------------------------------------------------------- disk and memory


def test_disk_of_a_run() -> None:
    parameters = memory.parameters(memory.shape_of(PAPER.models["qwen3-8b"]))
    planned = plan.make_plan(PAPER)
    srpo, grpo = (run_of(planned, model="qwen3-8b", benchmark="physics", method=method) for method in ("srpo", "grpo"))
    assert (srpo.disk_peak, srpo.disk_end) == ((3 * 18 + 3 * 2) * parameters, (18 + 3 * 2) * parameters)
    assert (grpo.disk_peak, grpo.disk_end) == ((3 * 14 + 3 * 2) * parameters, (14 + 3 * 2) * parameters)


def test_disk_of_the_experiment() -> None:
    one, all_at_once = plan.make_plan(PAPER), plan.make_plan(PAPER, nodes=1000)
    assert one.disk_end == one.base_bytes + sum(run.disk_end for run in one.runs)
    assert one.disk_peak == one.disk_end + max(run.disk_peak - run.disk_end for run in one.runs)
    assert all_at_once.disk_peak == one.base_bytes + sum(run.disk_peak for run in one.runs)


def test_memory_follows_the_settings() -> None:
    shape = memory.shape_of(PAPER.models["qwen3-8b"])

    def update(**execution) -> float:
        return sum(memory.update_memory(shape, changed(**execution).execution, PAPER.training).values())

    usual = update()
    assert usual - update(offload_teacher=True) == memory.parameters(shape) / 2
    assert update(gradient_checkpointing=False) > 3 * usual
    assert update(max_tokens_per_rank=18_432) < usual
    rollout = memory.rollout_memory(shape, PAPER.execution, 80e9)
    state = memory.trainer_state(shape, PAPER.execution)
    free = 80e9 - memory.DEVICE_RUNTIME - state["weights, float32"] - state["teacher, float32"]
    assert rollout["server's weights, bfloat16"] + rollout["keys and values"] == pytest.approx(0.6 * free)


def test_a_shortage_is_one_line_that_says_what_to_change() -> None:
    assert shortages(PAPER, 80e9) == []
    assert shortages(EMBEDDED, 1e9) == []
    lines = shortages(PAPER, 40e9)
    assert lines
    assert all(re.fullmatch(r"qwen3-\db: .* 40 GB.*(lower|raise) execution\..*", line) for line in lines)
    assert "(activations: 13.6; logits, bfloat16, 2 times: 12.4; Adam's moments, float32: 8.19)" in lines[-2] + lines[1]
    (line,) = shortages(changed(rollout_memory_fraction=0.95), 80e9)[-1:]
    assert "lower execution.rollout_memory_fraction" in line
    assert shortages(PAPER, 30e9)[-1].startswith("qwen3-8b: a server's share")


# ---------------------------------------------------------------- the verb


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_plan(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["plan", name, "--nodes", "3"]) == 0
    printed = capsys.readouterr()
    assert ("clock.kind = wall" in printed.err) == (name == "paper")
    assert ("physics: fewer than 8 test questions" in printed.err) == (name == "rehearsal-real")
    assert len(printed.err.splitlines()) == (name in ("paper", "rehearsal-real"))
    on_gpus = name.startswith(("paper", "one-", "gpu-")) and name != "paper-in-small"
    sources = {"from the data sheet of": on_gpus, "FLOPs at the clock's nominal rates": not on_gpus}
    assert {said: said in printed.out for said in sources} == sources
    assert ("Memory of a GPU" in printed.out) == sources["from the data sheet of"]
    file = str(CONFIGS / "experiments" / f"{name}.yaml")
    assert cli.main(["plan", file, "--nodes", "3"]) == 0
    of_file = re.sub(f"srpo (rehearse|plan) {name}", rf"srpo \1 {file}", printed.out)
    assert capsys.readouterr().out == of_file.replace(f" configs/experiments/{name}.yaml", f" {file}")


def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys, srpo.cli; srpo.cli.main(['plan', 'paper']); "
        "sys.exit(bool({'torch', 'pandas', 'transformers'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
