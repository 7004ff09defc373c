"""What an experiment takes: the plan's arithmetic, the verb, and the page that shows it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from statistics import fmean

import pandas as pd
import pytest
from paths import ROOT

from srpo import cli
from srpo.analysis.results.power import (
    ASSUMED_RUN_SD,
    assumed,
    effect_found,
    half_width,
    power,
    sample_noise,
    seeds_needed,
)
from srpo.cost import memory
from srpo.experiment.compose import load_experiment
from srpo.plan import decide, gpus, plan
from srpo.plan import text as plan_text
from srpo.plan.measurements import product_rate_here
from srpo.plan.published import published_steps
from srpo.plan.shortages import shortages
from srpo.repository import CONFIGS, REFERENCE
from srpo.text import duration

EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))
PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
EMBEDDED = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
_LARGE = EMBEDDED.models["miniature-large"].model_copy(update={"stored": {}})
BUILT = EMBEDDED.model_copy(update={"models": {"miniature-large": _LARGE}})
"""The same with base models that are built."""
TOY_MODELS = (ROOT / "docs" / "toy-models.md").read_text()


REST = "log-probs, teacher, update"


def changed(**execution):
    """The paper's experiment with other execution settings."""
    return PAPER.model_copy(update={"execution": PAPER.execution.model_copy(update=execution)})


def run_of(planned: plan.Plan, **what: str) -> plan.RunPlan:
    """The only run that is ``what``."""
    (found,) = [run for run in planned.runs if what.items() <= run.run.model_dump().items()]
    return found


# ---------------------------------------------------------------- time


def test_steps_follow_figure_4b() -> None:
    run = run_of(plan.make_plan(PAPER), model="qwen3-8b", benchmark="physics", method="srpo")
    assert run.steps == {"1h": int(3600 / 83.4), "5h": int(18000 / 78.3), "10h": int(36000 / 75.8)}
    assert run.validations == -(-run.steps["10h"] // 5)
    assert run.seconds["generation"] + run.seconds[REST] == pytest.approx(36000)


def data_sheet(gpu: str, method: str, model: str = "qwen3-8b", experiment=PAPER) -> tuple[float, float]:
    """Generation and the rest of a step of the paper's experiment by a data sheet."""
    return gpus.data_sheet_seconds(
        gpus.GPUS[gpu],
        memory.shape_of(experiment.models[model]),
        experiment.training,
        experiment.execution,
        experiment.methods[method],
        plan.timed_like(experiment.methods[method]),
    )


def test_a_real_model_takes_what_its_flops_take_here() -> None:
    """At 100 GFLOP/s a FLOP takes 10 + 4 ps, so a second of dense FLOPs at 3e11 per second takes 4.2 s."""
    experiment = load_experiment(CONFIGS / "experiments" / "real-cpu.yaml")
    nominal, here = plan.make_plan(experiment), plan.make_plan(experiment, product_rate=1e11)
    for before, after in zip(nominal.runs, here.runs, strict=True):
        assert after.steps == before.steps
        assert after.seconds[REST] == pytest.approx(4.2 * before.seconds[REST])
        for sampling in ("generation", "validation"):
            assert after.seconds[sampling] == pytest.approx(1.4e11 * 14e-12 * before.seconds[sampling])
    assert "at the rate of this machine" in plan_text.headline(here, "real-cpu")
    assert "at nominal rates" in plan_text.headline(nominal, "real-cpu")
    assert "matrix products at 100 GFLOP/s in float32, measured now, and 4 ps more" in plan_text.render(here)
    assert "counted as 1 s of a core." in plan_text.render(nominal)
    emulated = load_experiment(CONFIGS / "experiments" / "real-cpu-bf16.yaml")
    assert "1 s of a core, because this processor would emulate" in plan_text.render(plan.make_plan(emulated))


def test_the_rate_of_this_machine_is_measured_where_the_plan_depends_on_it() -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "real-cpu.yaml")
    assert 1e9 < product_rate_here(experiment) < 5e12
    assert product_rate_here(EMBEDDED) is None


@pytest.mark.parametrize("name", ["embedded", "rehearsal", "paper", "one-gpu"])
def test_a_plan_that_does_not_depend_on_this_machine(name: str) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
    assert plan.make_plan(experiment, product_rate=1e11) == plan.make_plan(experiment)


def test_a_card_has_one_model_of_time() -> None:
    """The paper's card, named or not: figure 4b's seconds, and that card's own split of them."""
    silent, named = plan.make_plan(PAPER), plan.make_plan(PAPER, gpu="h20")
    assert silent.runs == named.runs
    assert silent.base_seconds == named.base_seconds
    run = run_of(silent, model="qwen3-8b", benchmark="physics", method="srpo")
    generation, rest = data_sheet("h20", "srpo")
    assert run.seconds["generation"] == pytest.approx(36000 * generation / (generation + rest))


def test_another_model_and_other_passes_are_scaled_by_the_data_sheet() -> None:
    planned = plan.make_plan(PAPER)
    small = run_of(planned, model="qwen3-4b", benchmark="physics", method="grpo")
    ratio = sum(data_sheet("h20", "grpo", "qwen3-4b")) / sum(data_sheet("h20", "grpo"))
    assert ratio < 0.8
    assert small.step.seconds == pytest.approx({"1h": 71.0 * ratio, "5h": 82.4 * ratio, "10h": 91.5 * ratio})
    assert small.step.source == "paper, scaled"
    controls = load_experiment(CONFIGS / "experiments" / "paper-controls.yaml")
    matched = run_of(plan.make_plan(controls), benchmark="physics", method="grpo_at_srpo_settings", seed=1)
    one_update = sum(data_sheet("h20", "grpo_at_srpo_settings", experiment=controls)) / sum(data_sheet("h20", "grpo"))
    assert one_update < 1  # no pass for old log-probs
    assert matched.step.seconds["10h"] == pytest.approx(91.5 * one_update)
    assert matched.step.source == "paper, grpo, scaled"


def test_the_card_of_an_experiment_that_names_none() -> None:
    """The paper's for its steps; else the smallest that has room."""
    names = ("paper", "one-gpu", "one-gpu-48gb", "one-node-small", "embedded")
    cards = {name: plan.default_gpu(load_experiment(CONFIGS / "experiments" / f"{name}.yaml")) for name in names}
    assert cards == {
        "paper": "h20", "one-gpu": "a10g", "one-gpu-48gb": "l40s", "one-node-small": "l40s", "embedded": None
    }  # fmt: skip
    training = PAPER.training.model_copy(update={"questions_per_batch": 16})
    halved = PAPER.model_copy(update={"training": training})
    assert plan.default_gpu(halved) == "a100"
    huge = halved.execution.model_copy(update={"max_tokens_per_rank": 10**6})
    assert plan.default_gpu(halved.model_copy(update={"execution": huge})) == "h200"  # none has room


def test_the_first_line_names_the_card() -> None:
    for name, card in (("paper", "h20, 96 GB"), ("one-gpu-48gb", "l40s, 48 GB")):
        experiment = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
        first = plan_text.render(plan.make_plan(experiment)).splitlines()[0]
        assert first == f"{name}: {experiment.title}; card: {card}"
    assert plan_text.render(plan.make_plan(EMBEDDED)).splitlines()[0] == f"embedded: {EMBEDDED.title}"


def test_published_step_times_give_a_range() -> None:
    calibrated = load_experiment(CONFIGS / "experiments" / "paper-calibrated.yaml")
    text = plan_text.render(plan.make_plan(calibrated, gpu="h100"))
    low, high = map(
        int, re.search(r"^(\d+) to (\d+) GPU-hours if steps take 0.55 to 1.50 times", text, re.MULTILINE).groups()
    )
    ends = [plan.make_plan(calibrated, gpu="h100", pace=pace) for pace in (41.6 / 75.8, 70 * 3600 / 2010 / 83.7)]
    assert [low, high] == [round(end.device_hours) for end in ends]
    for run, usual in zip(ends[0].runs, plan.make_plan(calibrated, gpu="h100").runs, strict=True):
        assert run.seconds["generation"] == pytest.approx(usual.seconds["generation"] * 41.6 / 75.8)
    assert "srpo 42 s (SDCL; figure 4b 75.8) and sdpo 125 s (SDPO issue 17; figure 4b 83.7)" in text
    assert "In the same hours 0.67 to 1.82 times as many steps are possible" in plan_text.render(plan.make_plan(PAPER))
    assert "published on" not in plan_text.render(plan.make_plan(EMBEDDED))


def test_the_price_of_the_other_clock() -> None:
    calibrated = load_experiment(CONFIGS / "experiments" / "paper-calibrated.yaml")
    hours = {name: plan.make_plan(each, gpu="h100") for name, each in (("wall", PAPER), ("calibrated", calibrated))}
    for name, other in (("wall", "calibrated"), ("calibrated", "wall")):
        line = rf"With training.clock {{kind: {other}}}, .*: {hours[other].device_hours:.0f} GPU-hours."
        assert re.search(line, plan_text.render(hours[name]))


@pytest.mark.parametrize(("name", "every", "said"), [("paper", 10, "10"), ("paper-decisive", 5, "5, as in the paper")])
def test_the_price_of_other_validations(name, every, said) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
    text = plan_text.render(plan.make_plan(experiment, gpu="h100"))
    training = experiment.training.model_copy(update={"validate_every": every})
    other = plan.make_plan(experiment.model_copy(update={"training": training}), gpu="h100")
    assert f"With training.validate_every: {said}: {other.device_hours:.0f} GPU-hours." in text
    assert "validate_every" not in plan_text.render(plan.make_plan(EMBEDDED))


def test_a_rehearsal_says_no_more_than_it_knows() -> None:
    rehearsal = load_experiment(CONFIGS / "experiments" / "paper-rehearsal-8b.yaml")
    text = plan_text.render(plan.make_plan(rehearsal)).partition("\ndisk")[0]
    assert "A run ends after 2 steps: it shows that the path works, and no difference of methods." in text
    for noise in ("resolve", "seeds", "times as long", "kind:", "steps in "):
        assert noise not in text.partition("\n\n")[2]
    assert not re.search(r"\d[\d.]*\d\d+ (hours|minutes)|\d\d\.\d (hours|minutes)", text)  # two digits
    made = plan.make_plan(rehearsal)
    assert made.rehearsal
    assert not plan.make_plan(PAPER).rehearsal


@pytest.mark.parametrize(
    ("method", "like"),
    [("grpo", "grpo"), ("srpo_without_weighting", "srpo"), ("advantage_mix", "sdpo"), ("sdpo_failed_only", "sdpo")],
)
def test_a_method_that_is_not_in_the_figure(method: str, like: str) -> None:
    assert plan.timed_like(PAPER.methods[method]) == like


def test_steps_that_are_not_like_the_papers_follow_from_a_data_sheet() -> None:
    small = load_experiment(CONFIGS / "experiments" / "one-gpu.yaml")
    planned = {gpu: plan.make_plan(small, gpu=gpu) for gpu in (None, "h20", "a10g")}
    seconds = {gpu: found.runs[0].step.seconds["10h"] for gpu, found in planned.items()}
    assert planned[None].gpu == "a10g"
    assert seconds["h20"] < seconds[None] == seconds["a10g"]
    for found in planned.values():
        assert {run.step.source for run in found.runs} == {found.gpu}
        for run in found.runs:
            assert run.steps["10h"] == int(7200 // run.step.seconds["10h"])
    assert plan.make_plan(PAPER).gpu == "h20"
    assert plan.make_plan(EMBEDDED).gpu is None


def test_the_paper_on_another_card() -> None:
    planned = plan.make_plan(PAPER, gpu="h100")
    run = run_of(planned, model="qwen3-8b", benchmark="physics", method="srpo")
    assert run.step.source == "h100"
    assert run.step.seconds["10h"] < 75.8
    text = plan_text.render(planned)
    assert "the data sheet of h100 (80 GB, 3350 GB/s, 989 TFLOP/s in bfloat16)" in text
    assert "left of 80 GB" in text
    assert "left of 96 GB" not in text


def test_a_card_that_is_not_known_is_one_line(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["plan", "one-gpu", "--gpu", "gtx480"]) == 2
    assert "--gpu gtx480: unknown; there is a10g" in capsys.readouterr().err
    assert cli.main(["plan", "one-gpu", "--gpu", "a10g"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert cli.main(["plan", "one-gpu-48gb", "--gpu", "a10g"]) == 0
    assert "qwen3-1.7b: an update needs about" in capsys.readouterr().err


def test_hours_add_up() -> None:
    planned = plan.make_plan(PAPER)
    assert len(planned.runs) == len(PAPER.runs()) == 42
    assert planned.device_hours == pytest.approx(8 * planned.wall_seconds / 3600)
    assert planned.device_hours > 42 * 10 * 8
    more = plan.make_plan(PAPER, nodes=4)
    assert planned.wall_seconds / 4 <= more.wall_seconds < planned.wall_seconds / 3
    longest = max(run.total_seconds for run in planned.runs)
    assert plan.make_plan(PAPER, nodes=1000).wall_seconds == longest


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
    assert run.seconds["generation"] + run.seconds[REST] == pytest.approx(4 * run.step.seconds["10h"])


def test_base_models_take_what_was_measured() -> None:
    """The row "warm start" of docs/toy-models.md has Miniature-S and Miniature-L."""
    (row,) = re.findall(r"^\| warm start \|.*$", TOY_MODELS, re.MULTILINE)
    measured = [float(seconds) for seconds in re.findall(r"(\d+) CPU s", row)]
    experiments = {
        "miniature-small": load_experiment(CONFIGS / "experiments" / "controls.yaml"),
        "miniature-large": BUILT,
    }
    assert [[*experiment.models] for experiment in experiments.values()] == [[name] for name in experiments]
    planned = [plan.make_plan(experiment).model_seconds for experiment in experiments.values()]
    assert [len(each) for each in planned] == [1, 3]  # one that all seeds share, and one for each seed
    assert [seconds for each in planned for seconds in {*each}] == pytest.approx(measured, rel=0.02)


def test_stored_base_models_take_no_time() -> None:
    assert plan.make_plan(EMBEDDED).model_seconds == []


def test_base_models_come_before_the_rest_and_count() -> None:
    planned = plan.make_plan(BUILT)
    assert planned.device_hours * 3600 == pytest.approx(planned.busy_seconds + sum(planned.model_seconds))
    assert planned.wall_seconds == pytest.approx(planned.device_hours * 3600)
    many = plan.make_plan(BUILT, nodes=1000)
    assert many.wall_seconds == max(planned.model_seconds) + max(run.total_seconds for run in planned.runs)
    assert plan.make_plan(PAPER).model_seconds == []


def test_the_embedded_experiment_takes_what_was_measured() -> None:
    """docs/toy-models.md: "`make report` are 52 CPU minutes", with the last budget of then; edited there alone."""
    (measured,) = re.findall(r"`make report` are (\d+) CPU minutes", TOY_MODELS)
    (last,) = re.findall(r"had a last budget of (\d+)\s+seconds", TOY_MODELS)
    labels, shares = EMBEDDED.training.budget_seconds, (0.5, 0.75, 1)
    budgets = {label: float(last) * share for label, share in zip(labels, shares, strict=True)}
    then = EMBEDDED.model_copy(update={"training": EMBEDDED.training.model_copy(update={"budget_seconds": budgets})})
    assert plan.make_plan(then).device_hours * 60 == pytest.approx(float(measured), rel=0.15)


def test_sweeps_take_as_long_as_their_documentation_says() -> None:
    """On two cores, below 20 minutes with one base model and below 45 with four (docs/extending.md)."""
    sweeps = [name for name in EXPERIMENTS if name.startswith("sweep-")]
    assert len(sweeps) == 6
    for name in sweeps:
        experiment = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
        minutes = {1: 20, 4: 45}[len(experiment.models)]
        assert plan.make_plan(experiment, nodes=2).wall_seconds < minutes * 60, name


def test_headline() -> None:
    lines = plan_text.headline(plan.make_plan(EMBEDDED, nodes=2), "lab.yaml").splitlines()
    assert re.fullmatch(
        r"embedded: 55 runs; from nothing about [\d.]+ core-(minutes|hours), \d\d(\.\d)? minutes "
        r"with 2 runs at a time",
        lines[0],
    )
    assert lines[1].startswith("An estimate from FLOPs")
    paper = plan_text.headline(plan.make_plan(PAPER), "paper").splitlines()
    assert paper[0].startswith("paper: 42 runs; from nothing about 4326 GPU-hours, 22.5 days with 1 run")
    assert "the paper's seconds per step" in paper[1]


def test_jobs_of_a_minute_are_not_printed_as_parts_of_an_hour() -> None:
    text = plan_text.render(plan.make_plan(EMBEDDED))
    row = re.search(r"^miniature-large +sdpo +.*$", text, re.MULTILINE)[0]
    assert re.search(r" 1\.\d+ minutes +1\d\.\d minutes$", row)
    assert not re.search(r"\b0\.\d+ (core-)?(minutes|hours)", text)
    assert " 11.9 to 14.2 hours " in plan_text.render(plan.make_plan(PAPER))


def test_only_estimated_steps_are_printed_without_at_least() -> None:
    assert "  steps, at least, in 10h  " in plan_text.render(plan.make_plan(EMBEDDED))
    assert "  steps in 10h  " in plan_text.render(plan.make_plan(PAPER))


def test_one_is_not_several() -> None:
    seeds = load_experiment(CONFIGS / "experiments" / "sweep-seeds.yaml")
    assert "\n15 runs of 1 core, 5 evaluations of untrained models\n" in plan_text.render(plan.make_plan(seeds))
    shared = {name: model.model_copy(update={"draws": "shared"}) for name, model in seeds.models.items()}
    one = seeds.model_copy(update={"models": shared})
    assert "\n15 runs of 1 core, 1 evaluation of untrained models\n" in plan_text.render(plan.make_plan(one))


def test_each_number_of_seeds_is_said_of_its_methods() -> None:
    lines = plan_text.render(plan.make_plan(EMBEDDED)).splitlines()
    seeds = lines.index("Seeds, miniature-large")
    assert lines[seeds + 1].startswith("- GRPO, SDPO and SRPO: 3 seeds would resolve ±")
    assert lines[seeds + 2].startswith("- SRPO w/o dynamic weighting and Advantage mix: one seed resolves nothing, ")
    same = load_experiment(CONFIGS / "experiments" / "regimes.yaml")
    assert "\nSeeds, miniature-easy and miniature-hard\n" in plan_text.render(plan.make_plan(same))


def test_one_more_seed_is_one_more_of_every_method() -> None:
    """The ablations have one seed, the other methods three."""
    planned = plan.make_plan(EMBEDDED)
    seconds = sum(run.total_seconds for run in planned.runs if run.run.seed == 1)
    assert f"One more seed of every run takes about {duration(seconds, 'core')}.\n" in plan_text.render(planned)


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
    assert update(attention="sdpa") - usual == 2 * 20_480**2
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
    (line,) = shortages(changed(rollout_memory_fraction=0.95), 80e9)[-1:]
    assert "lower execution.rollout_memory_fraction" in line
    assert shortages(PAPER, 30e9)[-1].startswith("qwen3-8b: a server's share")


# ---------------------------------------------------------------- the verb


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_plan(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srpo.plan.measurements.product_rate_here", lambda experiment: None)  # another each time
    assert cli.main(["plan", name, "--nodes", "3"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    sources = {
        "paper": "Seconds per step up to each budget, if no others are named: those of figure 4b",
        "one-": "Seconds per step, if no others are named: from the data sheet of",
        "": "nominal rates",
    }
    source = next(said for start, said in sources.items() if name.startswith(start))
    assert [said for said in sources.values() if said in printed.out] == [source]
    assert ("memory of a GPU" in printed.out) == (source != sources[""])
    assert cli.main(["plan", str(CONFIGS / "experiments" / f"{name}.yaml"), "--nodes", "3"]) == 0
    assert capsys.readouterr().out == printed.out


def test_a_shortage_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "paper", "--gpu-memory", "60"]) == 0
    assert capsys.readouterr().err.startswith("srpo: warning: qwen3-8b: an update needs about ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["papers"], "unknown experiment 'papers'; did you mean paper?; give a file or one of controls, demo, "),
        (["mine.yaml"], "mine.yaml: no such file; give a file or one of controls, demo, "),
        (["paper", "--gpu", "GTX480"], "--gpu gtx480: unknown; there is a10g, "),
        (["paper", "--nodes", "0"], "--nodes 0: at least 1"),
        (["paper", "--gpu-memory", "nan"], "--gpu-memory nan: above 0"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_an_experiment_without_runs_has_a_plan() -> None:
    matrix = [block.model_copy(update={"methods": []}) for block in PAPER.matrix]
    assert "0 runs" in plan_text.render(plan.make_plan(PAPER.model_copy(update={"matrix": matrix})))


def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys, srpo.cli; srpo.cli.main(['plan', 'paper']); "
        "sys.exit(bool({'torch', 'pandas', 'transformers'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


# ---------------------------------------------------------------- the page


def test_the_page_holds_what_is_computed() -> None:
    spec = importlib.util.spec_from_file_location("paper_scale", ROOT / "scripts" / "paper_scale.py")
    paper_scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper_scale)
    page = paper_scale.PAGE.read_text()
    assert page == paper_scale.current(page), "run: python scripts/paper_scale.py"
    stale = (
        page.replace("Assumed\n", "").replace("That frees", "It frees").replace("| qwen3-4b | 1,024", "| 4b | 1,024")
    )
    assert stale != page
    assert paper_scale.current(stale) == page


def test_the_price_list_of_the_papers_scale_is_the_plans() -> None:
    """The table "What GPU-hours buy" of docs/paper-scale.md, and the sentence on its range."""
    page = " ".join((ROOT / "docs" / "paper-scale.md").read_text().split())
    text = (ROOT / "docs" / "paper-scale.md").read_text()
    rows = {int(number): name for number, name in re.findall(r"^\| (\d+) \| .*?`([\w-]+)`", text, re.MULTILINE)}
    loaded = {name: load_experiment(CONFIGS / "experiments" / f"{name}.yaml") for name in EXPERIMENTS}

    def price(name: str, gpu: str = "h100", pace: float = 1.0, **changes) -> float:
        return plan.make_plan(loaded[name].model_copy(update=changes), gpu=gpu, pace=pace).device_hours

    blocks, (pair,) = loaded["paper-calibrated"].matrix, loaded["paper-decisive"].matrix
    two_seeds = pair.model_copy(update={"seeds": [1, 2]})
    biology = pair.model_copy(update={"benchmarks": ["sdpo/biology"], "seeds": [1, 2, 3, 4, 5]})
    calibrated = plan.make_plan(loaded["paper-calibrated"], gpu="h100")
    contrasted = decide.contrasted(loaded["paper-calibrated"], ("srpo", "grpo_at_srpo_settings"))
    (five, *_) = decide.designs(contrasted, plan.make_plan(contrasted, gpu="h100"), 2700)["qwen3-4b"]
    assert (len(five.block.benchmarks), len(five.block.seeds)) == (5, 5)
    assert f"five seeds resolve {five.expected.resolves:.1f} points; the published lead is {five.lead:.1f} |" in page
    assert rows == {
        round(price("one-gpu", "a10g")): "one-gpu",
        round(sum(calibrated.base_seconds) * 8 / 3600): "paper-calibrated",
        round(price("paper-rehearsal") + price("paper-rehearsal-8b")): "paper-rehearsal",
        round(price("paper-decisive", matrix=[two_seeds])): "paper-decisive",
        round(price("paper-decisive", matrix=[biology])): "paper-decisive",
        round(price("paper-decisive")): "paper-decisive",
        round(price("paper-controls", matrix=loaded["paper-controls"].matrix[:1])): "paper-controls",
        round(price("paper-controls")): "paper-controls",
        round(five.gpu_hours): "paper-calibrated",
        round(price("paper-calibrated")): "paper-calibrated",
        round(price("paper")): "paper",
        round(
            price(
                "paper-calibrated",
                matrix=[block.model_copy(update={"seeds": [1, 2, 3]}) for block in blocks],
            )
        ): "paper-calibrated",
    }
    low, high = (round(price("paper-decisive", pace=steps.pace)) for steps in published_steps())
    assert f"0.55 or 1.50 times as long, `paper-decisive` takes {low} or {high} hours" in page
    hours = plan.make_plan(PAPER, gpu="h100")
    steps = run_of(hours, model="qwen3-8b", benchmark="physics", method="srpo").steps["10h"]
    assert f"on H100 they hold {steps / 474:.1f} times the paper's steps of SRPO with Qwen3-8B" in page
    average = assumed(ASSUMED_RUN_SD, 5, sample_noise(fmean([50, 210, 94, 80, 68]), 16))
    assert f"three seeds resolve {half_width(average, 3):.1f} |" in page
    assert f"which need {seeds_needed(average, 1.8)} seeds" in page


def test_the_smallest_experiment_that_decides_is_as_the_page_says() -> None:
    page = " ".join((ROOT / "docs" / "paper-scale.md").read_text().split())
    decisive = load_experiment(CONFIGS / "experiments" / "paper-decisive.yaml")
    assert {run.run.method for run in plan.make_plan(decisive).runs} == {"srpo", "grpo_at_srpo_settings"}
    noise = sample_noise(fmean([210, 50]), 16)
    usual, larger = (assumed(sd, 2, noise) for sd in (2.0, 3.4))
    lead = ((82.7 - 78.3) + (65.8 - 55.5)) / 2  # table 1, 10 hours
    assert f"{round(lead + 1e-9, 1)} points on average over these two benchmarks" in page
    assert f"Three seeds resolve {half_width(usual, 3):.1f} points; the published leads there are 4.4 and 10.3" in page
    assert f"three seeds find a true lead of {effect_found(usual, 3):.1f} points with a power of 80%" in page
    assert f"they find {effect_found(larger, 3):.1f}" in page
    assert f"as large as the paper's with a power of {power(larger, lead, 3):.0%}" in page
    verpo = pd.read_csv(REFERENCE / "reproductions.csv").query("source == 'VERPO' and model == 'Qwen3-4B'")
    scores = verpo.set_index(["method", "benchmark"])["score"].astype(float)
    ahead = [scores["srpo", name] - scores["grpo", name] for name in decisive.benchmarks]
    assert "have {:+.1f} and {:+.1f} there".format(*ahead) in page


def test_a_search_says_nothing_of_seeds():
    """Its methods are trials; what they tell apart is another experiment's question."""
    search = load_experiment(CONFIGS / "experiments" / "tuning.yaml")
    assert "Seeds" not in plan_text.render(plan.make_plan(search))
    assert "Seeds" in plan_text.render(plan.make_plan(EMBEDDED))
