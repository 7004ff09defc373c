"""The paper's tables, measured: tidy CSV for programs, Markdown for people.

Everything below ``tables/`` depends on the logs' scores and training clock only, so that with a modelled
clock it is the same to the byte on every machine. What a machine decides (wall time, memory) goes to
``cost/`` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from srpo.analysis import paper
from srpo.analysis.grid import MISSING, Cell, Grid, Row, mark_best, markdown, number, text_grid
from srpo.analysis.load import PHASES, Results
from srpo.analysis.scores import (
    ABLATIONS,
    AVERAGE,
    BASE,
    CELL,
    average_scores,
    cell_scores,
    main_methods,
    model_benchmarks,
    planned,
)
from srpo.config import Method, Training
from srpo.files import write_text

NOT_COMPARABLE = (
    "Models, questions and budgets are miniatures: the numbers are not comparable with the paper's, "
    "which are therefore not shown."
)
TABLES = ("table1", "table2", "table3", "table4", "table7", "step_seconds")


@dataclass(frozen=True)
class Table:
    """One table: ``frame`` is written as CSV with ``digits`` decimals by column, ``grids`` as Markdown and HTML."""

    name: str
    title: str
    notes: list[str]
    frame: pd.DataFrame
    digits: dict[str, int]
    grids: list[Grid]


def write_tables(results: Results, out_dir: Path, cost_dir: Path | None = None) -> list[Path]:
    """Write every table as ``<name>.csv`` and ``<name>.md`` and return the paths.

    Args:
        cost_dir: where the cost table goes; by default ``cost/`` beside ``out_dir``.
    """
    out_dir = Path(out_dir)
    written = [path for table in build_tables(results).values() for path in _write(table, out_dir)]
    return written + _write(cost_table(results), cost_dir or out_dir.parent / "cost")


def build_tables(results: Results) -> dict[str, Table]:
    """All tables but the cost table, by name (:data:`TABLES`)."""
    makers = (main_table, ablation_table, settings_table, splits_table, routing_table, step_seconds_table)
    return {name: make(results) for name, make in zip(TABLES, makers, strict=True)}


# ---------------------------------------------------------------- table 1


def main_table(results: Results) -> Table:
    """Model x method x benchmark x budget, by both protocols, with the base models."""
    cells = cell_scores(results)
    cells = cells[cells["method"].isin([BASE, *main_methods(results)])]
    averages = [
        average_scores(cells[cells["model"] == model], model_benchmarks(results, model))
        for model in results.experiment.models
        if len(model_benchmarks(results, model)) > 1
    ]
    frame = _with_paper(pd.concat([cells, *averages], ignore_index=True), results)
    frame = _in_matrix_order(frame, results)
    k, again = results.experiment.training.validation.rollouts, results.experiment.evaluation.rollouts
    views = [
        ("in_training", f"In-training maximum (the paper's protocol), avg@{k}, percent"),
        ("resampled", f"Selected checkpoint sampled anew, avg@{again}, percent"),
    ]
    if "paper" in frame:
        views.append(("paper", "Published numbers, percent"))
    grids = [_score_grid(results, frame, value, title) for value, title in views]
    notes = [
        "In-training: the highest validation whose training clock is within the budget, a maximum of noisy scores "
        "and so biased upward. Sampled anew: that checkpoint on the same questions with new samples. "
        "The base row is the untrained model. Bold: best method of a model in a column. "
        f"Budgets: {budgets_listed(results)}. "
        f"{MISSING}: not measured (yet).",
        *_comparability(results),
    ]
    digits = {"in_training": 1, "resampled": 1, "paper": 1}
    return Table("table1", "Table 1. Scores within each training budget", notes, frame, digits, grids)


def _score_grid(results: Results, frame: pd.DataFrame, value: str, title: str) -> Grid:
    experiment = results.experiment
    budgets = list(experiment.training.budgets)
    shown = [b for b in (*experiment.benchmarks, AVERAGE) if b in set(frame["benchmark"])]
    columns = [(benchmark_title(results, b), budget) for b in shown for budget in budgets]
    count = "resampled_seeds" if value == "resampled" else "seeds"
    scores = frame.set_index(CELL)
    rows = []
    for model, model_spec in experiment.models.items():
        rows.append(Row(model_spec.title, heading=True))
        base = [scores[BASE_VALUE[value]].get((model, BASE, b, BASE)) for b in shown]
        spanned = [Cell(number(v), span=len(budgets)) for v in base]
        rows.append(Row("Base", [Cell(""), *spanned]))
        methods = [m for m in main_methods(results) if m in planned(results, model)]
        keys = {m: [(model, m, b, budget) for b in shown for budget in budgets] for m in methods}
        values = {m: [scores[value].get(key, float("nan")) for key in keys[m]] for m in methods}
        best = list(zip(*(mark_best(column) for column in zip(*values.values(), strict=True)), strict=True))
        for i, method in enumerate(methods):
            seeds = "" if value == "paper" else _range(scores[count].get(key, 0) for key in keys[method])
            trained = {*planned(results, model)[method], AVERAGE}
            marked = [
                Cell(number(v), bool(b)) if key[2] in trained else Cell("")
                for v, b, key in zip(values[method], best[i], keys[method], strict=True)
            ]
            rows.append(Row(method_title(results, method), [Cell(seeds), *marked]))
    return Grid("Method", [("", "Seeds"), *columns], rows, title=title)


# Validation never sees the untrained model, so that its anew sampled score stands in both views.
BASE_VALUE = {"in_training": "resampled", "resampled": "resampled", "paper": "paper"}


def _range(counts: Iterable[float]) -> str:
    """``1`` or ``1–3``: how many seeds the cells of a row are means of, leaving out empty cells."""
    there = sorted({int(count) for count in counts if count})
    return MISSING if not there else str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"


# ---------------------------------------------------------------- table 2


def ablation_table(results: Results) -> Table:
    """The ablations averaged over benchmarks, with what each differs by from the variant it ablates."""
    cells = cell_scores(results)
    parts, covered = [], {}
    for model in results.experiment.models:
        methods = _ablation_methods(results, model)
        if methods:
            covered[model] = model_benchmarks(results, model, methods)
            chosen = cells[(cells["model"] == model) & cells["method"].isin(methods)]
            parts += [chosen, average_scores(chosen, covered[model])]
    frame = pd.concat(parts, ignore_index=True) if parts else cells.iloc[:0]
    frame = _in_matrix_order(_with_differences(_with_paper(frame, results)), results)
    grids = [
        _ablation_grid(results, frame, value, title)
        for value, title in (
            ("in_training", "In-training maximum (the paper's protocol), percent"),
            ("resampled", "Selected checkpoint sampled anew, percent"),
            ("paper", "Published numbers, percent"),
        )
        if value in frame and covered
    ]
    over = [
        f"{results.experiment.models[model].title}: average over {_listed(benchmark_title(results, b) for b in names)}."
        for model, names in covered.items()
    ]
    notes = [
        "Each variant is compared with the row above it, as in the paper: the unweighted variant with SRPO, "
        "the advantage mix with the unweighted variant.",
        *over,
        *_comparability(results),
    ]
    digits = dict.fromkeys(frame.columns.difference([*CELL, "seeds", "resampled_seeds", "compared_with"]), 1)
    return Table("table2", "Table 2. Ablations", notes if covered else [], frame, digits, grids)


def _ablation_methods(results: Results, model: str) -> list[str]:
    """SRPO and its ablations in the order of comparison; empty if the matrix holds no ablation of it."""
    plan = planned(results, model)
    methods = [m for m in ("srpo", *ABLATIONS) if m in plan]
    return methods if set(methods) & set(ABLATIONS) else []


def _with_differences(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    reference = [ABLATIONS.get(method) for method in frame["method"]]
    frame["compared_with"] = pd.Series(reference, index=frame.index, dtype=object)
    keys = list(zip(frame["model"], reference, frame["benchmark"], frame["budget"], strict=True))
    for value in ("in_training", "resampled", "paper"):
        if value in frame:
            known = frame.set_index(CELL)[value].to_dict()
            other = pd.Series([known.get(key, float("nan")) for key in keys], index=frame.index, dtype=float)
            frame[f"{value}_difference"] = frame[value] - other
    return frame


def _ablation_grid(results: Results, frame: pd.DataFrame, value: str, title: str) -> Grid:
    budgets = list(results.experiment.training.budgets)
    averages = frame[frame["benchmark"] == AVERAGE].set_index(["model", "method", "budget"])
    count = "resampled_seeds" if value == "resampled" else "seeds"
    rows = []
    for model, spec in results.experiment.models.items():
        methods = _ablation_methods(results, model)
        if methods:
            rows.append(Row(spec.title, heading=True))
        for method in methods:
            keys = [(model, method, budget) for budget in budgets]
            scores = [number(averages[value].get(key)) for key in keys]
            differences = [number(averages[f"{value}_difference"].get(key), sign=True) for key in keys]
            seeds = "" if value == "paper" else _range(averages[count].get(key, 0) for key in keys)
            texts = [seeds, *scores]
            texts += differences if method in ABLATIONS else [""] * len(budgets)
            rows.append(Row(method_title(results, method), [Cell(text) for text in texts]))
    columns = [
        ("", "Seeds"),
        *(("Average", b) for b in budgets),
        *(("Difference to the row above", b) for b in budgets),
    ]
    return Grid("Variant", columns, rows, title=title)


# ---------------------------------------------------------------- tables 3 and 7: settings


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


def routing_table(results: Results) -> Table:
    """Which branch each kind of rollout takes, by method (table 7 of the paper)."""
    heads = {
        "correct_with_teacher": ("Correct", "teacher available"),
        "correct_without_teacher": ("Correct", "no teacher"),
        "wrong_with_teacher": ("Wrong", "teacher available"),
        "wrong_without_teacher": ("Wrong", "no teacher"),
    }
    routings = {name: method_spec(results, name)[0].routing for name in results.experiment.methods}
    frame = pd.DataFrame(
        [(name, *(getattr(routing, cell) for cell in heads)) for name, routing in routings.items()],
        columns=["method", *heads],
    )
    shown = {"grpo": "GRPO", "sdpo": "SDPO", "mix": "mix", "none": "dropped"}
    rows = [
        Row(method_title(results, name), [Cell(shown[getattr(routing, cell)]) for cell in heads])
        for name, routing in routings.items()
    ]
    grids = [Grid("Method", list(heads.values()), rows, numeric=False)] if rows else []
    notes = ["A teacher is available if another rollout of the same question is correct."]
    return Table("table7", "Table 7. The branch a rollout takes", notes, frame, {}, grids)


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
        lengths = results.statistics.get(name, {}).get("prompt_characters", {})
        counts = [lookup.loc[(name, split), value] for value in values for split in ("train", "test")]
        kind = results.statistics.get(name, {}).get("kind", MISSING)
        shown = [MISSING if pd.isna(count) else f"{count:,}" for count in counts]
        return [kind, *shown, *(number(lengths.get(key), 0) for key in ("mean", "max"))]

    heads = ["Source", "Train", "Test", *(["Train (paper)", "Test (paper)"] if "paper" in frame else [])]
    heads += ["Prompt characters, mean", "max"]
    body = [(benchmark_title(results, name), texts(name)) for name in results.experiment.benchmarks]
    grid = text_grid("Benchmark", heads, body)
    return Table("table4", "Table 4. Questions", _comparability(results), frame, {}, [grid])


# ---------------------------------------------------------------- figure 4b as a table


def step_seconds(results: Results) -> pd.DataFrame:
    """Mean seconds of the training clock a step, in total and by phase, up to each budget.

    Averaged over the benchmarks that every method of the model has reached the budget on, so that the
    methods of a model compare; ``benchmarks`` counts them.
    """
    values = ["step_seconds", *(f"phase_seconds/{phase}" for phase in PHASES)]
    status = results.runs.set_index(["model", "benchmark", "method", "seed"])
    parts = []
    for budget, seconds in results.experiment.training.budgets.items():
        reached = status[(status["status"] == "finished") | (status["clock"] >= seconds)].index
        steps = results.steps[results.steps["clock"] <= seconds]
        runs = steps.groupby(list(reached.names))[values].mean()
        runs = runs[runs.index.isin(reached)].reset_index()
        cells = runs.groupby(["model", "method", "benchmark"], sort=False)[values].mean()
        cells["seeds"] = runs.groupby(["model", "method", "benchmark"], sort=False)["seed"].count()
        parts.append(cells.reset_index().assign(budget=budget))
    frame = pd.concat(parts, ignore_index=True)
    shared = [_shared_average(group, values) for _, group in frame.groupby(["model", "budget"], sort=False)]
    columns = ["model", "method", "budget", "benchmarks", "seeds", *values]
    return pd.concat(shared, ignore_index=True)[columns] if shared else pd.DataFrame(columns=columns)


def _shared_average(group: pd.DataFrame, values: list[str]) -> pd.DataFrame:
    """Average one model's cells of a budget over the benchmarks that all of its methods have."""
    methods = group["method"].nunique()
    counts = group.groupby("benchmark")["method"].nunique()
    shared = group[group["benchmark"].isin(counts[counts == methods].index)]
    by_method = shared.groupby(["model", "method", "budget"], sort=False)
    average = by_method[values].mean()
    average["benchmarks"], average["seeds"] = by_method["benchmark"].nunique(), by_method["seeds"].min()
    return average.reset_index()


def step_seconds_table(results: Results) -> Table:
    """Mean seconds a step up to each budget."""
    frame = step_seconds(results)
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper.paper_step_seconds(results.experiment), how="left")
    frame = frame.rename(columns={f"phase_seconds/{phase}": phase for phase in PHASES})
    frame = _in_matrix_order(frame, results)
    budgets = list(results.experiment.training.budgets)
    lookup = frame.set_index(["model", "method", "budget"])
    views = {"step_seconds": "Measured", "paper": "Published"} if "paper" in frame else {"step_seconds": ""}
    rows = []
    for model, spec in results.experiment.models.items():
        rows.append(Row(spec.title, heading=True))
        for method in planned(results, model):
            keys = [(model, method, budget) for budget in budgets]
            counts = _range(lookup["benchmarks"].get(key, 0) for key in keys)
            cells = [Cell(number(lookup[value].get(key), 3)) for value in views for key in keys]
            rows.append(Row(method_title(results, method), [Cell(counts), *cells]))
    heads = [(head, f"up to {budget}") for head in views.values() for budget in budgets]
    grid = Grid("Method", [("", "Benchmarks"), *heads], rows)
    notes = [
        f"Seconds of the {results.experiment.training.clock.kind} training clock, averaged over the benchmarks on "
        "which every method of the model has reached the budget.",
        *_comparability(results),
    ]
    digits = dict.fromkeys(["step_seconds", *PHASES], 4) | {"paper": 1}
    return Table("step_seconds", "Mean seconds a training step", notes, frame, digits, [grid])


# ---------------------------------------------------------------- cost


def cost_table(results: Results) -> Table:
    """What each run took. Wall time and memory depend on the machine and on what else ran there."""
    columns = ["status", "stopped_by", "steps", "clock", "wall_seconds", "evaluation_wall_seconds", "peak_memory_gb"]
    frame = _in_matrix_order(results.runs[["model", "benchmark", "method", "seed", *columns]], results)
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


# ---------------------------------------------------------------- shared


def method_title(results: Results, name: str) -> str:
    """A method's title; the untrained model is ``Base``."""
    return "Base" if name == BASE else results.experiment.methods[name].title


def benchmark_title(results: Results, name: str) -> str:
    """A benchmark's title."""
    return "Average" if name == AVERAGE else results.experiment.benchmarks[name].title


def budgets_listed(results: Results) -> str:
    """What the budgets' names stand for."""
    training = results.experiment.training
    return (
        ", ".join(f"{name} = {s:g} s" for name, s in training.budgets.items()) + f" of the {training.clock.kind} clock"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no benchmark"


def _comparability(results: Results) -> list[str]:
    return [] if results.experiment.comparable_with_paper else [NOT_COMPARABLE]


def _with_paper(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Put the published numbers beside the measured ones, if they may be compared."""
    if not results.experiment.comparable_with_paper:
        return frame
    return frame.merge(paper.paper_scores(results.experiment), how="left", on=CELL)


def _in_matrix_order(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Sort rows as the experiment names things: independent of the order in which files were read."""
    experiment = results.experiment
    orders = {
        "model": list(experiment.models),
        "benchmark": [*experiment.benchmarks, AVERAGE],
        "method": [BASE, *experiment.methods],
        "budget": [BASE, *experiment.training.budgets],
    }
    keys = [c for c in ("model", "method", "benchmark", "budget", "seed") if c in frame]
    rank = pd.DataFrame({k: frame[k].map(orders[k].index) if k in orders else frame[k] for k in keys})
    return frame.loc[rank.sort_values(keys, kind="stable").index].reset_index(drop=True)


def _write(table: Table, folder: Path) -> list[Path]:
    csv, text = folder / f"{table.name}.csv", folder / f"{table.name}.md"
    write_text(csv, _csv(table))
    parts = [f"## {table.title}", *(markdown(grid).rstrip() for grid in table.grids), *table.notes]
    if not table.grids:
        parts.append("Not part of this experiment.")
    write_text(text, "\n\n".join(parts) + "\n")
    return [csv, text]


def _csv(table: Table) -> str:
    """CSV with fixed decimals: empty where missing, never a negative zero."""
    frame = table.frame.copy()
    for column in frame.columns.intersection(list(table.digits)):
        digits = table.digits[column]
        frame[column] = [None if pd.isna(v) else number(v, digits) for v in frame[column]]
    return frame.to_csv(index=False, lineterminator="\n")
