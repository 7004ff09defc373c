"""What was run, as tables: settings (3), data (4), examples (5), routing (6, 7), seconds a step, cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from srpo.analysis import paper
from srpo.analysis.grid import MISSING, Cell, Grid, Row, interval, number, text_grid
from srpo.analysis.load import PHASES, Results, routed_methods
from srpo.analysis.logs import Logs
from srpo.analysis.scores import available, columns, combine, planned
from srpo.analysis.table import (
    Table,
    benchmark_title,
    comparability,
    count_range,
    estimate_cell,
    in_matrix_order,
    intervals_note,
    method_title,
    over_seeds,
)
from srpo.analysis.text import printable
from srpo.config import Method, Training
from srpo.text import shortened

# ---------------------------------------------------------------- table 3: settings


def settings_table(results: Results) -> Table:
    """Table 3: every method's settings, from its runs' ``run.yaml`` where there is one."""
    specs = {name: method_spec(results, name) for name in results.experiment.methods}
    frame = pd.DataFrame(
        [(group, setting, *(read(*spec) for spec in specs.values())) for group, setting, read in _SETTINGS],
        columns=["group", "setting", *specs],
    )
    rows: list[Row] = []
    for group, of_group in frame.groupby("group", sort=False):
        rows.append(Row(str(group), heading=True))
        rows += [Row(row[1], [Cell(text) for text in row[2:]]) for row in of_group.itertuples(index=False, name=None)]
    columns = [("", method_title(results, name)) for name in specs]
    notes = [f"{MISSING}: does not apply to the method."]
    grids = [Grid("Setting", columns, rows, numeric=False)] if specs else []
    return Table("table3", "Table 3. Settings as run", notes, frame, {}, grids)


def method_spec(results: Results, name: str) -> tuple[Method, Training]:
    """Method and training settings of the first run of ``name`` that has a ``run.yaml``, else the experiment's."""
    for run, spec in results.specs.items():
        if run.method == name and "method" in spec and "training" in spec:
            return Method.model_validate(spec["method"]), Training.model_validate(spec["training"])
    return results.experiment.methods[name], results.experiment.training


def _when(branches: set[str], read: Callable[[Method], Any]) -> Callable[[Method, Training], str]:
    """The setting for methods that use one of ``branches``, a dash for the others."""
    return lambda m, _: f"{read(m):g}" if branches & {*m.routing.branches} else MISSING


def _rate(read: Callable[[Training], float]) -> Callable[[Method, Training], str]:
    """A nominal rate of a modelled clock."""
    return lambda m, t: f"{read(t):g}" if t.clock.kind == "modelled" else MISSING


_POLICY_GRADIENT, _DISTILLATION = {"grpo", "mix"}, {"sdpo", "mix"}
_SETTINGS: list[tuple[str, str, Callable[[Method, Training], str]]] = [
    ("Batch", "Questions per batch", lambda m, t: f"{t.questions_per_batch}"),
    ("Batch", "Rollouts per question", lambda m, t: f"{t.rollouts_per_question}"),
    ("Batch", "Questions per mini-batch", lambda m, t: f"{m.mini_batch_questions}"),
    ("Lengths", "Prompt, tokens at most", lambda m, t: f"{t.max_prompt_length}"),
    ("Lengths", "Response, tokens at most", lambda m, t: f"{t.max_response_length}"),
    ("Lengths", "Teacher prompt, tokens at most", lambda m, t: f"{t.max_teacher_prompt_length}"),
    ("Rollouts", "Temperature", lambda m, t: f"{t.temperature:g}"),
    ("Validation", "Every, steps", lambda m, t: f"{t.validate_every}"),
    ("Validation", "Rollouts per question", lambda m, t: f"{t.validation.rollouts}"),
    ("Validation", "Temperature", lambda m, t: f"{t.validation.temperature:g}"),
    ("Validation", "Top-p", lambda m, t: f"{t.validation.top_p:g}"),
    ("Optimiser (AdamW)", "Learning rate", lambda m, t: f"{m.learning_rate:.1e}"),
    ("Optimiser (AdamW)", "Warm-up steps", lambda m, t: f"{t.warmup_steps}"),
    ("Optimiser (AdamW)", "Weight decay", lambda m, t: f"{t.weight_decay:g}"),
    ("Optimiser (AdamW)", "Gradient clip norm", lambda m, t: f"{t.clip_grad:g}"),
    ("GRPO loss", "Clip low", _when(_POLICY_GRADIENT, lambda m: m.clip_ratio_low)),
    ("GRPO loss", "Clip high", _when(_POLICY_GRADIENT, lambda m: m.clip_ratio_high)),
    ("GRPO loss", "Dual clip", _when(_POLICY_GRADIENT, lambda m: m.clip_ratio_c)),
    ("Either loss", "Rollout importance clip", lambda m, t: f"{m.rollout_is_threshold:g}"),
    ("SDPO loss", "Top-K", _when(_DISTILLATION, lambda m: m.top_k)),
    ("SDPO loss", "Divergence alpha (0.5: Jensen–Shannon)", _when({"sdpo"}, lambda m: m.divergence_alpha)),
    ("SDPO loss", "Distillation importance clip", _when({"sdpo"}, lambda m: m.distillation_is_threshold)),
    ("SDPO loss", "Teacher EMA rate", _when(_DISTILLATION, lambda m: m.teacher_ema_rate)),
    ("SDPO loss", "Entropy weighting beta", _when({"sdpo"}, lambda m: m.entropy_beta)),
    ("SDPO loss", "Mixing lambda", _when({"mix"}, lambda m: m.mix_lambda)),
    ("Training clock", "Kind", lambda m, t: t.clock.kind),
    ("Training clock", "Decoding, FLOP/s", _rate(lambda t: t.clock.decode_flops_per_second)),
    ("Training clock", "Dense passes, FLOP/s", _rate(lambda t: t.clock.dense_flops_per_second)),
    ("Training clock", "Budgets, s", lambda m, t: " / ".join(f"{seconds:g}" for seconds in t.budgets.values())),
    ("Training clock", "Steps at most", lambda m, t: MISSING if t.max_steps is None else f"{t.max_steps}"),
]


# ---------------------------------------------------------------- table 6: routing of one group

_BRANCHES = {"grpo": "GRPO", "sdpo": "SDPO", "mix": "mix", "none": "dropped"}
_ROUTED = [
    *("model", "benchmark", "method", "seed", "step", "question", "prompt", "ground_truth", "rollout", "correct"),
    *("teacher_available", "branch", "sibling_shown", "advantage", "response_length", "truncated", "response"),
]


def group_table(results: Results) -> Table:
    """Table 6: how one group of this experiment was routed, rollout by rollout, and what was shown to the teacher."""
    title = "Table 6. The routing decision on a real group"
    if results.routed_group is None:
        return Table("table6", title, [_why_no_group(results)], pd.DataFrame(columns=_ROUTED), {}, [])
    run, group = results.routed_group
    correct = [rollout["reward"] == 1 for rollout in group["rollouts"]]
    shared = run.model_dump() | {"step": group["step"], "question": group["question"]}
    shared |= {name: printable(group[name]) for name in ("prompt", "ground_truth")}
    rows, body = [], []
    for i, rollout in enumerate(group["rollouts"]):
        teacher = rollout["teacher"]
        row = {
            **shared,
            "rollout": i + 1,
            "correct": correct[i],
            "teacher_available": any(correct[:i] + correct[i + 1 :]),
            "branch": rollout["branch"],
            "sibling_shown": None if teacher is None else teacher + 1,
            "advantage": rollout["advantage"],
            "response_length": rollout["response_length"],
            "truncated": rollout["truncated"],
            "response": printable(rollout["response"]),
        }
        cells = [
            "yes" if row["correct"] else "no",
            "yes" if row["teacher_available"] else "no",
            _BRANCHES.get(row["branch"], row["branch"]),
            _why_routed(row),
            number(row["advantage"], 3, sign=True),
            f"{row['response_length']}{' (cut off)' if row['truncated'] else ''}",
            _one_line(rollout["response"]),
        ]
        rows.append(row)
        body.append(Row(f"Rollout {i + 1}", [Cell(text) for text in cells]))
    asked = f"Question: {_one_line(group['prompt'])} Correct answer: {_one_line(group['ground_truth'])}"
    heads = ["Correct?", "Teacher available?", "Route", "Explanation", "Advantage", "Tokens", "Response"]
    grid = Grid("Rollout", [("", head) for head in heads], [Row(asked, heading=True), *body], numeric=False)
    notes = [
        f"{results.experiment.models[run.model].title}, {benchmark_title(results, run.benchmark)}, "
        f"{method_title(results, run.method)}, seed {run.seed}, training step {group['step']}. Not chosen for what it "
        "says: one group is logged at each validation, the first of its step with right and wrong rollouts; this is "
        "the first logged one with rollouts in both branches, of the first run that has one.",
        "Advantage: reward minus the group's mean, before any routing; only rollouts in the GRPO branch are trained "
        "with it. Long texts are cut in the middle; the CSV holds more of them.",
    ]
    frame = pd.DataFrame(rows, columns=_ROUTED).astype({"sibling_shown": "Int64"})
    return Table("table6", title, notes, frame, {"advantage": 4}, [grid])


def _why_no_group(results: Results) -> str:
    if not routed_methods(results.experiment):
        return "No method of this experiment sends rollouts to both branches."
    return (
        "No group with rollouts in both branches is logged (yet): a run logs one at each validation, runs of older "
        "versions did not."
    )


def _why_routed(row: dict[str, Any]) -> str:
    """The decision in words, from the rollout's own record."""
    if row["sibling_shown"] is not None:
        return f"The self-teacher is shown rollout {row['sibling_shown']}"
    if row["branch"] == "none":
        return "Not trained on"
    if row["teacher_available"]:
        return f"{'Correct' if row['correct'] else 'Wrong'}; a teacher is available but unused"
    return "The only correct rollout: no teacher" if row["correct"] else "No correct rollout: no teacher"


def _one_line(text: str) -> str:
    return printable(shortened(" ".join(text.split()), _EXCERPT))


# ---------------------------------------------------------------- table 7: routing

_CASES = {
    "correct_with_teacher": ("Correct", "teacher available"),
    "correct_without_teacher": ("Correct", "no teacher"),
    "wrong_with_teacher": ("Wrong", "teacher available"),
    "wrong_without_teacher": ("Wrong", "no teacher"),
}


def routing_table(results: Results) -> Table:
    """Table 7: which branch each kind of rollout takes, by method, and how often each kind occurred."""
    specs = {name: method_spec(results, name)[0].routing for name in results.experiment.methods}
    routings = {name: {case: getattr(routing, case) for case in _CASES} for name, routing in specs.items()}
    rows = [{"method": name, **routing} for name, routing in routings.items()]
    frame = pd.DataFrame(rows, columns=["method", *_CASES])
    body = [
        Row(method_title(results, name), [Cell(_BRANCHES.get(routing[case], routing[case])) for case in _CASES])
        for name, routing in routings.items()
    ]
    grids = [Grid("Method", list(_CASES.values()), body, "Branch", numeric=False)] if body else []
    notes = ["A teacher is available if another rollout of the same question is correct."]
    return Table("table7", "Table 7. The branch a rollout takes", notes, frame, {}, grids)


def cases_table(results: Results) -> Table:
    """How often each case of table 7 occurred, early and late in training."""
    logs, rows, grids = Logs.of(results), [], []
    parts = {"early": "first tenth", "late": "last tenth"}
    for model, spec in results.experiment.models.items():
        body = []
        for method, benchmarks in planned(results, model).items():
            found = {}
            for case in _CASES:
                lookup = logs.metric(model, f"cases/{case}")
                for when in parts:
                    over = available(lookup, {(method, when): 100.0}, benchmarks)
                    estimate = over_seeds(combine(lookup, {(method, when): 100.0}, over))
                    found[case, when] = estimate
                    key = {"model": model, "method": method, "case": case, "part": when, "benchmarks": len(over)}
                    rows.append(key | columns("percent", estimate))
            body.append(Row(method_title(results, method), [estimate_cell(found[c, w]) for c in _CASES for w in parts]))
        if any(row["model"] == model and not math.isnan(row["percent"]) for row in rows):
            heads = [(" ".join(_CASES[case]).lower(), parts[when]) for case in _CASES for when in parts]
            grids.append(Grid("Method", heads, body, spec.title))
    names = ["model", "method", "case", "part", "benchmarks", "percent", "percent_low", "percent_high", "percent_unit"]
    notes = [
        "Percent of rollouts in the first and the last tenth of training, averaged over the benchmarks with a finished "
        f"run. {intervals_note(row['percent_unit'] for row in rows)}"
    ]
    digits = dict.fromkeys(["percent", "percent_low", "percent_high"], 1)
    frame = pd.DataFrame(rows, columns=names)
    return Table("routing_cases", "How often each case of table 7 occurred", notes, frame, digits, grids)


# ---------------------------------------------------------------- table 4: data


def splits_table(results: Results) -> Table:
    """Rows of each split as found, beside the paper's where comparable."""
    rows = []
    for name in results.experiment.benchmarks:
        statistics = results.statistics.get(name, {})
        for split in ("train", "test"):
            rows.append((name, statistics.get("kind"), split, statistics.get("rows", {}).get(split)))
    frame = pd.DataFrame(rows, columns=["benchmark", "kind", "split", "rows"]).astype({"rows": "Int64"})
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper.paper_splits(), how="left").astype({"paper": "Int64"})
    values = [column for column in ("rows", "paper") if column in frame]
    lookup = frame.set_index(["benchmark", "split"])

    def texts(name: str) -> list[str]:
        statistics = results.statistics.get(name, {})
        lengths = statistics.get("prompt_characters", {})
        counts = [lookup.loc[(name, split), value] for value in values for split in ("train", "test")]
        source = statistics.get("source", {}).get("repository") or statistics.get("kind", MISSING)
        shown = [MISSING if pd.isna(count) else f"{count:,}" for count in counts]
        return [source, *shown, *(number(lengths.get(key), 0) for key in ("mean", "max"))]

    heads = ["Source", "Train", "Test", *(["Train (paper)", "Test (paper)"] if "paper" in frame else [])]
    heads += ["Prompt characters, mean", "max"]
    body = [(benchmark_title(results, name), texts(name)) for name in results.experiment.benchmarks]
    grid = text_grid("Benchmark", heads, body)
    return Table("table4", "Table 4. Questions", comparability(results), frame, {}, [grid])


# ---------------------------------------------------------------- table 5: examples

_EXCERPT = 240


def examples_table(results: Results) -> Table:
    """Table 5: one question of each benchmark with its answer."""
    rows = []
    for name in results.experiment.benchmarks:
        example = results.statistics.get(name, {}).get("example") or {}
        if example:
            rows.append((name, str(example.get("prompt", "")), str(example.get("answer", ""))))
    frame = pd.DataFrame(rows, columns=["benchmark", "question", "answer"])
    body = [
        (benchmark_title(results, name), [printable(question, _EXCERPT), printable(answer, _EXCERPT)])
        for name, question, answer in rows
    ]
    grids = [text_grid("Benchmark", ["Question", "Answer"], body, numeric=False)] if body else []
    notes = ["The first question of each benchmark's split, long texts cut."]
    return Table("table5", "Table 5. Example questions", notes, frame, {}, grids)


# ---------------------------------------------------------------- figure 4b as a table

_SECONDS = {"step_seconds": "step_seconds", **{phase: f"phase_seconds/{phase}" for phase in PHASES}}


def step_seconds(results: Results) -> pd.DataFrame:
    """Mean seconds of the training clock a step, in total with its interval and by phase, up to each budget.

    Averaged over the benchmarks that every method of the model which has reached the budget anywhere has reached it
    on, so that the methods of a model compare; ``benchmarks`` counts them, ``seeds`` the runs behind the fewest.
    """
    logs, rows = Logs.of(results), []
    for model in results.experiment.models:
        plan, total = planned(results, model), logs.seconds(model)
        for budget in results.experiment.training.budgets:
            reached = {m: available(total, {(m, budget): 1.0}, benchmarks) for m, benchmarks in plan.items()}
            reached = {method: benchmarks for method, benchmarks in reached.items() if benchmarks}
            shared = [b for b in results.experiment.benchmarks if all(b in there for there in reached.values())]
            for method in reached if shared else ():
                row = {"model": model, "method": method, "budget": budget, "benchmarks": len(shared)}
                row["seeds"] = min(len(total(b, method, budget)) for b in shared)
                for name, column in _SECONDS.items():
                    estimate = over_seeds(combine(logs.seconds(model, column), {(method, budget): 1.0}, shared))
                    found = columns(name, estimate)
                    row |= found if name == "step_seconds" else {name: found[name]}
                rows.append(row)
    ends = ["step_seconds_low", "step_seconds_high", "step_seconds_unit"]
    return pd.DataFrame(rows, columns=["model", "method", "budget", "benchmarks", "seeds", *_SECONDS, *ends])


def step_seconds_table(results: Results) -> Table:
    """Figure 4b's numbers: mean seconds a step up to each budget."""
    frame = step_seconds(results)
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper.paper_step_seconds(results.experiment), how="left")
    frame = in_matrix_order(frame, results)
    budgets = list(results.experiment.training.budgets)
    lookup = {(row["model"], row["method"], row["budget"]): row for row in frame.to_dict("records")}
    views = {"step_seconds": "Measured", "paper": "Published"} if "paper" in frame else {"step_seconds": ""}
    rows = []
    for model, spec in results.experiment.models.items():
        rows.append(Row(spec.title, heading=True))
        for method in planned(results, model):
            found = [lookup.get((model, method, budget), {}) for budget in budgets]
            counts = count_range(row.get("benchmarks", 0) for row in found)
            measured = [
                Cell(number(row.get(view), 3), interval=interval(row.get(f"{view}_low"), row.get(f"{view}_high"), 3))
                for view in views
                for row in found
            ]
            rows.append(Row(method_title(results, method), [Cell(counts), *measured]))
    heads = [(head, f"up to {budget}") for head in views.values() for budget in budgets]
    grid = Grid("Method", [("", "Benchmarks"), *heads], rows)
    notes = [
        f"Seconds of the {results.experiment.training.clock.kind} training clock, averaged over the benchmarks on "
        "which every method of the model has reached the budget or its last allowed step. "
        f"{intervals_note(frame['step_seconds_unit'])}",
        *comparability(results),
    ]
    digits = dict.fromkeys([*_SECONDS, "step_seconds_low", "step_seconds_high"], 4) | {"paper": 1}
    return Table("step_seconds", "Mean seconds a training step", notes, frame, digits, [grid])


# ---------------------------------------------------------------- cost


def cost_table(results: Results) -> Table:
    """What each run took. Wall time and memory depend on the machine and on what else ran there."""
    columns = ["status", "stopped_by", "steps", "clock", "wall_seconds", "evaluation_wall_seconds", "peak_memory_gb"]
    frame = in_matrix_order(results.runs[["model", "benchmark", "method", "seed", *columns]], results)
    frame = frame.astype({"steps": "Int64"})
    rows = [
        (
            f"{results.experiment.models[r.model].title} · {benchmark_title(results, r.benchmark)} · "
            f"{method_title(results, r.method)} · seed {r.seed}",
            [
                r.status if pd.isna(r.stopped_by) else f"{r.status} ({r.stopped_by})",
                MISSING if pd.isna(r.steps) else r.steps,
                number(r.clock),
                number(r.wall_seconds),
                number(r.evaluation_wall_seconds),
                number(r.peak_memory_gb, 2),
            ],
        )
        for r in frame.itertuples(index=False)
    ]
    heads = ["Status", "Steps", "Clock, s", "Training wall, s", "Evaluation wall, s", "Peak memory, GB"]
    digits = {"clock": 1, "wall_seconds": 1, "evaluation_wall_seconds": 1, "peak_memory_gb": 2}
    notes = ["Wall time and memory depend on the machine and on what else it was doing."]
    return Table("cost", "Cost of each run", notes, frame, digits, [text_grid("Run", heads, rows)])
