"""The settings of table 3 are those of the runs, and show all that differs between methods."""

from contextlib import suppress
from dataclasses import replace

import yaml
from helpers import load_method
from pydantic import ValidationError
from report_cases import EXPERIMENT, MODEL, results_of

from srpo.algorithm.branches import BRANCHES, Branch
from srpo.algorithm.method import Method
from srpo.analysis.load import load_results
from srpo.analysis.tables import table3
from srpo.analysis.write import make_tables
from srpo.ground.repository import method_files


def test_settings_are_those_of_the_runs_and_rows_if_a_method_has_them(tmp_path):
    """Otherwise the table has the rows that it always had."""
    tables = [make_tables(results_of(tmp_path))]
    path = tmp_path / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    origin = yaml.safe_load(path.read_text())
    origin["spec"]["method"] |= {"learning_rate": 0.25, "success_buffer": 4, "group_weight": "spread"}
    origin["spec"]["method"] |= {"teacher": {"kind": "frozen"}, "first_phase_steps": 60}
    origin["spec"]["method"] |= {"second_routing": load_method("grpo").routing.model_dump()}
    path.write_text(yaml.safe_dump(origin, sort_keys=False))
    tables.append(make_tables(load_results(tmp_path)))
    plain, other = (table["table3"].frame.set_index("setting") for table in tables)
    own = {"Weight by group": "spread", "Steps of the first phase": "60", "Success buffer, responses per question": "4"}
    assert [name for name in other.index if name not in plain.index] == ["Teacher", *own]
    assert other.loc[list(own), ["sdpo", "srpo"]].values.tolist() == [["–", value] for value in own.values()]
    assert other.loc["Teacher", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "EMA", "frozen"]
    for name, before, after in (("Learning rate", "5.0e-06", "2.5e-01"), ("Teacher EMA rate", "0.05", "–")):
        assert (plain.loc[name, "srpo"], other.loc[name, "srpo"]) == (before, after)
    routing = [table["table7"].frame for table in tables]
    assert "steps" not in routing[0]
    found = routing[1].set_index(["method", "steps"])["wrong_with_sibling"]
    assert found.to_dict() == {
        **routing[0].query("method != 'srpo'").assign(steps="").set_index(["method", "steps"])["wrong_with_sibling"],
        ("srpo", "steps 1 to 60"): "sdpo",
        ("srpo", "from step 61"): "grpo",
    }


OTHER = {"teacher": {"kind": "ema", "moves_after": "update"}, "teacher_context": {"solution": "ground_truth"}}
OTHER |= {"first_phase_steps": 7, "group_weight": "spread", "preserve_loss_scale": True}
"""Another value of each setting that is no number."""
ELSEWHERE = {"name", "title", "module", "routing", "second_routing"}
"""What is a column's head, or in table 7."""


def in_force(method):
    """The settings that change a number: others may be set where a whole loss is not used."""
    unused = {"distillation_is_clip"} if not method.distils else set()
    unused |= {"distillation_topk", "teacher"} if not method.needs_teacher else set()
    if not any(BRANCHES[name].loss == "policy_gradient" for name in method.branches):
        unused |= {"clip_ratio_low", "clip_ratio_high", "clip_ratio_c"}
    return method.model_dump(exclude=ELSEWHERE | unused)


def test_methods_with_other_settings_have_other_columns(tmp_path, monkeypatch):
    own = Branch("own", "own", "distillation", "required", settings=("distillation_alpha", "kl_coef", "rlsd_clip"))
    monkeypatch.setitem(BRANCHES, "own", own)
    shipped = [*map(load_method, method_files()), load_method("srpo", routing={"wrong_with_sibling": "own"})]
    tables, varied = [shipped], {*ELSEWHERE}
    for method in shipped:
        tables.append([method])
        for key in Method.model_fields.keys() - ELSEWHERE:
            value = getattr(method, key)
            other = OTHER.get(key) or (value + 1 if isinstance(value, int) else 0.99 * value or 0.5)
            second = {"second_routing": method.routing} if key == "first_phase_steps" else {}
            with suppress(ValidationError):  # the method has no use for it
                tables[-1].append(Method.model_validate(method.model_dump() | second | {key: other}))
                varied.add(key)
    assert varied == Method.model_fields.keys()
    results = results_of(tmp_path, keep=lambda run: False)
    for methods in tables:
        named = {str(number): method for number, method in enumerate(methods)}
        frame = table3.table(replace(results, experiment=EXPERIMENT.model_copy(update={"methods": named}))).frame
        shown = {}
        for name, method in named.items():
            assert shown.setdefault(tuple(frame[name]), in_force(method)) == in_force(method)
