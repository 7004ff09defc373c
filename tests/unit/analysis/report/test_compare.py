"""srpo report compare: verdicts that changed, differences on the same questions, settings that differ."""

import json
import re
import shutil

import pytest
import yaml
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.analysis.report.compare import compare
from srpo.experiment.compose import load_experiment

MODEL = "miniature-small"


@pytest.fixture
def folders(tmp_path):
    """Two experiments; in the second SRPO was trained and evaluated on chemistry only, with another weight decay."""
    experiment = load_experiment(tiny_experiment())
    write_results(tmp_path / "a", experiment)
    training = tiny_experiment()["training"] | {"weight_decay": 0.5}
    other = load_experiment(tiny_experiment(name="other", training=training))
    write_results(tmp_path / "b", other, keep=lambda run: (run.method, run.benchmark) != ("srpo", "physics"))
    return tmp_path / "a", tmp_path / "b"


def evaluation(root, method, budget="10h", benchmark="chemistry"):
    path = root / f"runs/{MODEL}/{benchmark}/{method}/seed1/evaluation.json"
    return json.loads(path.read_text())["budgets"][budget]["question_scores"]


def test_scores_are_compared_question_by_question(folders):
    text = compare(*folders)
    a, b = (evaluation(folder, "srpo") for folder in folders)
    gap = 100 * sum(y - x for x, y in zip(a, b, strict=True)) / len(a)
    rows = [line for line in text.splitlines() if line.startswith("| SRPO, budget 3")]
    assert len(rows) == 2
    cells = [cell.strip(" *") for cell in rows[0].split("|")]
    assert cells[2].startswith(f"{100 * sum(a) / len(a):.1f} [")
    assert cells[4].startswith(f"{gap:+.1f} [")
    assert rows[1].split("|")[3].strip() == "–"  # physics is not there in the second


def test_questions_are_paired_only_if_they_are_the_same(folders):
    def margin():
        row = next(line for line in compare(*folders).splitlines() if line.startswith("| SRPO, budget 3"))
        low, high = re.findall(r"[-+]?\d+\.\d", row.rsplit("[", 1)[1])
        return float(high) - float(low)

    # answers that agree question by question: paired, the difference is certain
    path = folders[1] / f"runs/{MODEL}/chemistry/srpo/seed1/evaluation.json"
    content = json.loads(path.read_text())
    scores = evaluation(folders[0], "srpo")
    content["budgets"]["10h"]["question_scores"] = [max(0.0, s - 1 / 16 * (i % 2)) for i, s in enumerate(scores)]
    path.write_text(json.dumps(content))
    paired = margin()
    for record in (folders[1] / "runs").rglob("run.yaml"):
        record.write_text(record.read_text().replace("ef" * 32, "99" * 32))
    assert margin() > 1.5 * paired


def test_settings_and_verdicts_that_differ_are_named(folders):
    shutil.rmtree(folders[1] / "runs" / MODEL / "chemistry" / "sdpo")
    shutil.rmtree(folders[1] / "runs" / MODEL / "physics" / "sdpo")
    text = compare(*folders)
    assert "| training.weight_decay | 0.01 | 0.5 |" in text
    assert "| training.warmup_steps" not in text
    changed = text.split("**Changed: ")[1].split("**Unchanged")[0]
    rows = [row for row in changed.splitlines()[1:] if row.count(" | ") == 2]
    assert int(changed.split("**")[0]) == len(rows) > 0
    for row in rows:
        first, second = (re.sub(r" \(.*", "", cell).strip(" |") for cell in row.split(" | ")[1:])
        assert first != second


def test_an_experiment_compared_with_itself_differs_in_nothing(folders):
    text = compare(folders[0], folders[0])
    assert "**Changed: 0**" in text
    assert "no setting differs" in text


def test_the_verb(folders, tmp_path, capsys):
    a, b = map(str, folders)
    assert cli.main(["report", "compare", a, b]) == 0
    assert capsys.readouterr().out.startswith("# tiny and other")
    assert cli.main(["report", "compare", a, str(tmp_path)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "no experiment.yaml" in error


def test_unfinished_experiments_compare(folders, tmp_path):
    write_results(tmp_path / "c", load_experiment(tiny_experiment(name="early")), stop_at=1.0, evaluate=False)
    text = compare(folders[0], tmp_path / "c")
    assert "nan" not in text
    assert yaml.safe_load((tmp_path / "c/experiment.yaml").read_text())["name"] == "early"
