"""Published experiments: what may be published, and that all tables come from the files alone."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from command_line import fails
from run_files import write_gap
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.analysis import published
from srpo.analysis.published import publish, read_published
from srpo.analysis.report import remarks
from srpo.experiment.compose import load_experiment
from srpo.ground.layout import Layout

RUN = "runs/miniature-tiny/physics/srpo/seed1"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished experiment, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("written")
    write_results(folder, load_experiment(tiny_experiment()))
    for run in load_experiment(folder / "experiment.yaml").runs():
        files = Layout(folder).run_files(run)
        files.finished.touch()
        times = {"start": 0, "end": 86400 * run.seed}
        lines = [{"attempt": 1, "event": event, "time": at, "step": 1, "status": 0} for event, at in times.items()]
        files.attempts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def results(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The experiment in results/tiny, below the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    return Path(shutil.copytree(written, "results/tiny"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def made(folder: Path) -> dict[str, bytes]:
    """What `srpo report` makes in a results folder."""
    return {
        name: text
        for name, text in contents(folder).items()
        if not name.startswith((".", "runs", "base", "data", "prov"))
    }


@pytest.mark.parametrize("gaps", [True, False])
def test_the_report_of_a_published_experiment_is_that_of_its_results(results: Path, gaps: bool, capsys) -> None:
    if gaps:
        write_gap(
            results / "base/miniature-tiny/physics",
            student=(30.0, 20.0, 40.0),
            gap=(50.0, None, None),
        )
    assert cli.main(["publish", str(results)]) == 0
    assert capsys.readouterr().out.startswith("published/tiny: 6 runs, 0.")
    first = contents(Path("published/tiny"))
    assert cli.main(["publish", str(results)]) == 0
    assert contents(Path("published/tiny")) == first
    assert cli.main(["report", str(results)]) == 0
    expected = made(results)
    assert {"tables/table6.csv", "cost/cost.csv", "figures/learning_curves.png", "report.html"} <= expected.keys()
    if not gaps:  # as in what was published before gaps were measured, without checksums
        Path("published/tiny/gaps.jsonl.gz").unlink()
        text, _, _ = Path("published/tiny/provenance.yaml").read_text().partition("sha256:\n")
        Path("published/tiny/provenance.yaml").write_text(text)
    results.rename("hidden")
    stale = Path("results/published/tiny", RUN, "watch.jsonl")  # of an older copy
    stale.parent.mkdir(parents=True)
    stale.write_text('{"step": 1}\n')
    assert cli.main(["report", "published/tiny"]) == 0
    assert not stale.exists()
    found = made(Path("results/published/tiny"))
    found["report.html"] = found["report.html"].replace(b"results/published/tiny", b"results/tiny")
    assert found == expected
    assert ("tables/before_training.csv" in expected) == gaps


def test_a_run_without_a_record_of_attempts_ended_when_its_summary_was_written(results: Path) -> None:
    assert publish(Layout(results), Path("published/tiny"))["trained"] == "1970-01-02"
    for number, path in enumerate(results.rglob("attempts.jsonl")):
        path.unlink()
        os.utime(path.parent / "summary.json", (86400 * (2 + number),) * 2)
    assert publish(Layout(results), Path("published/tiny"))["trained"] == "1970-01-03 to 1970-01-08"


def test_seeds_may_be_trained_on_other_machines(results: Path) -> None:
    """What was published before comes back, byte for byte; each seed is of one commit."""
    assert cli.main(["publish", str(results)]) == 0
    before = {path.relative_to(results): path.read_bytes() for path in results.rglob("seed1/*.*")}
    shutil.rmtree(results)
    matrix = tiny_experiment()["matrix"]
    matrix[0]["seeds"] = [1, 2]
    write_results(results, load_experiment(tiny_experiment(matrix=matrix)))
    for folder in results.rglob("seed1"):
        shutil.rmtree(folder)
    for origin in results.rglob("seed2/run.yaml"):
        (origin.parent / "finished").touch()
        change(origin, "13707f0", "24708e1")
        record = yaml.safe_load(origin.read_text())
        record["provenance"] |= {"base_model": "ef" * 32, "data": {"train": "0f" * 32}, "processor": "another"}
        origin.write_text(yaml.safe_dump(record, sort_keys=False))
    assert cli.main(["publish", str(results)]) == 0
    for path in results.rglob("seed1/summary.json"):  # counts as made: nothing is trained again
        assert path.with_name("finished").read_bytes() == path.read_bytes()
        assert path.with_name("weights").is_dir()
    restored = {path: (results / path).read_bytes() for path in before if (results / path).exists()}
    assert restored == {path: content for path, content in before.items() if path.name != "attempts.jsonl"}
    found = yaml.safe_load(Path("published/tiny/provenance.yaml").read_text())
    assert found["runs"] == 12
    assert len(found["commit"]) == len(found["base_models"]["miniature-tiny"]) == len(found["data"]["physics"]) == 2
    assert found["packages"] == {"torch": "2.8.0", "verl": "0.6.0"}
    assert {run["seed"] for run in read_published(Path("published/tiny"), "runs")} == {1, 2}
    assert not remarks(published.results("published/tiny"))  # methods are compared within seeds


def test_what_differs_between_compared_runs_is_named(results: Path) -> None:
    change(results / RUN / "run.yaml", "torch: 2.8.0", "torch: 2.9.0")
    change(results / RUN / "run.yaml", "processor: a synthetic", "processor: another")
    change(results / RUN / "run.yaml", "source: ab", "source: ef")
    change(results / RUN / "run.yaml", "base_model: ab", "base_model: 12")
    publish(Layout(results), Path("published/tiny"))
    for folder in (results, Path("published/tiny")):
        (said,) = remarks(published.results(folder))
        named = ["torch", "2.8.0", "2.9.0", "a synthetic CPU", "another CPU", "source", "efab", "base model", "12ab"]
        assert not [name for name in named if name not in said]
        assert "verl" not in said
    change(results / "experiment.yaml", "  - srpo\n", "")
    assert remarks(published.results(results))[0].startswith("In no number: 2 runs ")


def test_a_deleted_run_of_a_seed_does_not_come_back(results: Path, capsys) -> None:
    assert cli.main(["publish", str(results)]) == 0
    shutil.rmtree(results / RUN)
    assert "1 of 6 runs not finished and evaluated" in fails(capsys, "publish", results)
    assert not (results / RUN).exists()


# ---------------------------------------------------------------- refused


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: (r / RUN / "finished").unlink(), "1 of 6 runs not finished and evaluated, e.g. miniature-tiny/phy"),
        (lambda r: (r / RUN / "evaluation.json").unlink(), "1 of 6 runs not finished and evaluated"),
        (lambda r: (r / "base/miniature-tiny/physics/evaluation.json").unlink(), "is not evaluated on physics"),
        (lambda r: change(r / "experiment.yaml", "  - srpo\n", ""), "2 runs of the folder not in it, e.g. runs/mini"),
        (lambda r: change(r / "experiment.yaml", "decay: 0.01", "decay: 0.02"), "weight_decay = 0.01, now 0.02"),
        (
            lambda r: change(r / RUN / "run.yaml", "13707f0", "24708e1"),
            "miniature-tiny, seed 1 has runs of several commits: 5 runs",
        ),
        (lambda r: (r / RUN / "steps.jsonl").write_text(""), "steps.jsonl: not those of the run's "),
        (lambda r: change(r / RUN / "validations.jsonl", ": ", ":"), "seed1/validations.jsonl: was changed after"),
    ],
)
def test_what_cannot_be_published(results: Path, capsys, spoil, message: str) -> None:
    spoil(results)
    assert message in fails(capsys, "publish", results)
    assert not Path("published").exists()


def test_what_is_published_is_not_published_again_and_replaces_no_results(results: Path, capsys) -> None:
    before = contents(results)
    said = "give results/NAME, and another folder to publish it in"
    assert said in fails(capsys, "publish", results, "--to", results.parent)
    assert contents(results) == before
    assert cli.main(["publish", str(results)]) == 0
    assert said in fails(capsys, "publish", "published/tiny")
    capsys.readouterr()
    assert cli.main(["status", "published/tiny"]) == 0
    assert "6 evaluated" in capsys.readouterr().out


def test_an_unknown_commit_is_refused_and_a_changed_one_named(results: Path, capsys) -> None:
    for before, commit, status in (("13707f0" + "0" * 33, "unknown", 2), ("unknown", "a1b2-dirty", 0)):
        for origin in results.rglob("run.yaml"):
            change(origin, f"commit: {before}", f"commit: {commit}")
        assert cli.main(["publish", str(results)]) == status
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert {2: "commit is unknown", 0: "local changes"}[status] in error


@pytest.mark.parametrize("name", ["steps.jsonl.gz", "experiment.yaml", "provenance.yaml"])
def test_a_damaged_file_is_named(results: Path, capsys, name: str) -> None:
    assert cli.main(["publish", str(results)]) == 0
    path = Path("published/tiny", name)
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    assert f"{path}: damaged" in fails(capsys, "report", "published/tiny")
