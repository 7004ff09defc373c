"""Which runs have the same test questions: those of a base model's table of facts have their own file."""

from pathlib import Path

from report_cases import results_of
from synthetic import tiny_of

from srpo.analysis.load import load_results
from srpo.analysis.numbers import mixed_questions
from srpo.ground.layout import Layout


def test_each_table_of_facts_has_its_own_test_file(tmp_path: Path) -> None:
    experiment = tiny_of(models=["miniature-large"], seeds=[1, 2])
    assert mixed_questions(results_of(tmp_path, experiment)) == {}
    for run in experiment.runs():
        origin = Layout(tmp_path).run_files(run).origin
        origin.write_text(origin.read_text().replace("ef" * 32, f"{run.seed}f" * 32))
    assert mixed_questions(load_results(tmp_path)) == {}
    origin = Layout(tmp_path).run_files(experiment.runs()[0]).origin
    origin.write_text(origin.read_text().replace("1f" * 32, "0f" * 32))
    assert mixed_questions(load_results(tmp_path)) == {"chemistry": "2 different test files"}
