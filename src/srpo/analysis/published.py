"""The numbers of a finished experiment as a few small files, ``published/NAME``: all tables are made from them again.

Most files are compressed JSON lines, one per event of a log or per document, which begins with the wildcards of
its place in the results folder (docs/architecture.md). Nothing is rounded or left out, so that :func:`unpack` restores
the results folder's files byte for byte, without data, weights and attempts.
"""

import gzip
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import yaml

from srpo.analysis.load import days, ends, load_results
from srpo.analysis.results import Results
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_bytes, read_events, read_json, read_mapping, write_bytes
from srpo.ground.layout import Layout, RunFiles, RunId, is_published, model_description
from srpo.ground.text import joined, plural
from srpo.training.provenance import check_origin, checked_experiment, others_of

_END = ".jsonl.gz"
_PROVENANCE = "provenance.yaml"


def _places() -> dict[str, Path]:
    """Which files of a results folder a published file has, as a pattern within the folder, by its name."""
    layout = Layout(Path())
    run, base = layout.any_run, layout.base_files("{model}", "{benchmark}")
    return {
        "runs": run.origin,
        "steps": run.steps,
        "validations": run.validations,
        "groups": run.groups,
        "watch": run.watch,
        "summaries": run.summary,
        "evaluations": run.evaluation,
        "samples": run.samples,
        "base_evaluations": base.evaluation,
        "base_samples": base.samples,
        "gaps": layout.gap("{model}", "{benchmark}"),
        "models": model_description(layout.model("{model}")),
        "statistics": layout.statistics("{benchmark}"),
    }


# ---------------------------------------------------------------- writing


def publish(layout: Layout, folder: Path) -> dict[str, Any]:
    """Write a finished experiment's numbers to ``folder``. The same results give the same bytes.

    Seeds that were published before and of which the results folder has no run come back into it first: so seeds may
    be trained on different days and machines.

    Returns:
        The provenance.

    Raises:
        SrpoError: if a run is not finished, is none of the experiment's or was trained with other settings, if runs
            of a seed are of several commits, or if a file is damaged or was changed by hand.
    """
    experiment = load_experiment(layout.experiment)
    if is_published(folder):
        for files in map(RunFiles, _restore(folder, layout)):  # without weights, which nobody needs any more
            files.weights.mkdir(exist_ok=True)
            shutil.copy(files.summary, files.finished)
    found = _provenance(experiment, layout)
    contents = {layout.experiment.name: read_bytes(layout.experiment)}
    for name, pattern in _places().items():
        rows = "".join(json.dumps(row, allow_nan=False) + "\n" for row in _rows(layout, pattern))
        contents[f"{name}{_END}"] = gzip.compress(rows.encode(), mtime=0)
    contents[_PROVENANCE] = with_checksums(found, contents)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return found


def with_checksums(provenance: dict[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """``provenance.yaml`` with the SHA-256 of itself, up to these checksums, and of the ``contents`` beside it."""
    above = yaml.safe_dump(provenance, sort_keys=False, width=120).encode()
    sums = {name: hashlib.sha256(of).hexdigest() for name, of in {_PROVENANCE: above, **contents}.items()}
    return above + yaml.safe_dump({"sha256": sums}, sort_keys=False, width=120).encode()


def _rows(layout: Layout, pattern: Path) -> Iterator[dict[str, Any]]:
    place = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(str(pattern))))
    for path in layout.found(layout.folder / pattern):
        matched = cast(re.Match[str], place.fullmatch(str(path.relative_to(layout.folder))))
        key = {name: int(value) if name == "seed" else value for name, value in matched.groupdict().items()}
        contents = _read(path)
        if _text(path, contents).encode() != read_bytes(path):
            raise SrpoError(f"{path}: was changed after srpo wrote it; delete the folder and make it again")
        yield from (key | content for content in contents)


def _read(path: Path) -> list[dict[str, Any]]:
    """The events of a log, or a document under the key ``content``."""
    if path.suffix == ".jsonl":
        return list(read_events(path))
    return [{"content": read_mapping(path) if path.suffix == ".yaml" else read_json(path)}]


def _text(path: Path, contents: Iterable[dict[str, Any]]) -> str:
    """What a file says, as the stage that makes it writes it; the inverse of :func:`_read`."""
    if path.suffix == ".jsonl":
        return "".join(json.dumps(event, allow_nan=False) + "\n" for event in contents)
    (document,) = (each["content"] for each in contents)
    if path.suffix == ".yaml":
        return yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)  # libyaml's
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


# ---------------------------------------------------------------- what may be published


def _provenance(experiment: Experiment, layout: Layout) -> dict[str, Any]:
    """Where an experiment's numbers come from, if they may be published."""
    runs = experiment.runs()
    _check_finished(experiment, runs, layout)
    load_results(layout.folder, experiment)  # refuses what no report can be made of
    records = {run: read_mapping(layout.run_files(run).origin) for run in runs}
    for run, record in records.items():  # the hashes may differ: some seeds may be of another machine
        now = {"spec": experiment.run(run).model_dump(mode="json"), "provenance": {}}
        check_origin(layout.run(run), record, now)
    origins, starts = [record["provenance"] for record in records.values()], ("data", "base_model")
    models = [record["spec"]["model"]["name"] for record in records.values()]
    _check_commits({run: str(record["provenance"].get("commit", "unknown")) for run, record in records.items()}, layout)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "runs": len(runs),
        "trained": days(ends(layout, runs) or [layout.run_files(run).summary.stat().st_mtime for run in runs]),
        **{key: _one_or_all(each.get(key) for each in origins) for key in origins[0] if key not in starts},
        "data": _by_name([run.benchmark for run in runs], [each.get("data") for each in origins]),
        "base_models": _by_name(models, [each.get("base_model") for each in origins]),
    }


def _check_finished(experiment: Experiment, runs: list[RunId], layout: Layout) -> None:
    def complete(files: RunFiles) -> bool:
        return all(path.is_file() for path in (files.finished, files.summary, files.evaluation))

    open_ = [run.path for run in runs if not complete(layout.run_files(run))]
    if open_:
        raise SrpoError(
            f"{layout.folder}: {len(open_)} of {plural(len(runs), 'run')} not finished and evaluated, "
            f"e.g. {open_[0]}; srpo status {layout.folder} shows them"
        )
    for model, benchmark in experiment.base_evaluations():
        if not layout.base_files(model, benchmark).evaluation.is_file():
            raise SrpoError(f"{layout.folder}: base model {model} is not evaluated on {benchmark}; run snakemake again")
    if others := others_of(experiment, layout):
        raise SrpoError(
            f"{layout.folder}: experiment.yaml was changed: {plural(len(others), 'run')} of the folder not in it, "
            f"e.g. {others[0]}; add them to the matrix, or delete their folders"
        )


def _check_commits(commits: dict[RunId, str], layout: Layout) -> None:
    """Methods are compared within a model's seed: there nothing but the method may differ."""
    if "unknown" in commits.values():
        raise SrpoError(f"{layout.folder}: the runs' commit is unknown; train them in a git checkout")
    for model, seed in sorted({(run.model, run.seed) for run in commits}):
        counts = Counter(commit for run, commit in commits.items() if (run.model, run.seed) == (model, seed))
        if len(counts) > 1:
            listed = joined([f"{plural(count, 'run')} of {commit}" for commit, count in counts.most_common()])
            where = f"{layout.folder}: {model}, seed {seed}"
            raise SrpoError(f"{where} has runs of several commits: {listed}; delete the runs of all but one")


def _one_or_all(values: Iterable[Any]) -> Any:
    distinct = [*{json.dumps(value): value for value in values}.values()]
    return distinct[0] if len(distinct) == 1 else distinct


def _by_name(names: list[str], values: list[Any]) -> dict[str, Any]:
    """The one value of each name, or all."""
    pairs = [*zip(names, values, strict=True)]
    return {name: _one_or_all(value for of, value in pairs if of == name) for name in dict.fromkeys(names)}


# ---------------------------------------------------------------- reading


def read_published(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a published file, e.g. ``validations``."""
    return [json.loads(line) for line in gzip.decompress(read_bytes(folder / f"{name}{_END}")).splitlines()]


def check_checksums(folder: Path) -> None:
    """Raise if a file is not as it was published. Folders of older versions have no checksums."""
    for name, expected in read_mapping(folder / _PROVENANCE).get("sha256", {}).items():
        content = read_bytes(folder / name)
        if name == _PROVENANCE:
            content = content.partition(b"sha256:\n")[0]
        if hashlib.sha256(content).hexdigest() != expected:
            raise SrpoError(f"{folder / name}: damaged or changed, not the SHA-256 of {_PROVENANCE}; fetch it again")


def results(folder: Path | str) -> Results:
    """The results of ``results/NAME`` or ``published/NAME`` as frames of pandas.

    Start with ``results("results/NAME").scores``, ``.steps`` or ``.seconds``, whose docstrings explain the columns.
    """
    folder = Path(folder)
    layout = Layout(unpacked(folder) if is_published(folder) else folder)
    return load_results(layout.folder, checked_experiment(layout))


def unpacked(folder: Path) -> Path:
    """The results folder of a published experiment, ``results/published/NAME``, unpacked now."""
    layout = Layout(Path("results", "published", folder.resolve().name))
    unpack(folder, layout)
    return layout.folder


def unpack(folder: Path, layout: Layout) -> None:
    """Write the files of a published experiment as they were in its results folder, for all commands that read one."""
    for pattern in _places().values():
        for stale in layout.found(layout.folder / pattern):
            stale.unlink()
    _restore(folder, layout)
    for path in (layout.experiment, layout.provenance):
        path.write_bytes(read_bytes(folder / path.name))


def _restore(folder: Path, layout: Layout) -> set[Path]:
    """Write what a published experiment has and the results folder lacks: whole seeds of a model, else one by one.

    A single run does not come back: who deleted it wants it trained again.

    Returns:
        The folders of the runs that were written.
    """
    check_checksums(folder)
    present = {path.parent for path in layout.found(layout.any_run.origin)}
    seeds = {_seed_of(run) for run in present}
    for name, pattern in _places().items():
        keys = re.findall(r"{(\w+)}", str(pattern))
        found = read_published(folder, name) if name != "gaps" or (folder / f"{name}{_END}").exists() else []
        for values, rows in groupby(found, itemgetter(*keys)):  # older ones measured no gap
            key = dict(zip(keys, values if len(keys) > 1 else [values], strict=True))
            path = layout.folder / str(pattern).format(**key)
            if _seed_of(path.parent) in seeds or path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            contents = [{name: value for name, value in row.items() if name not in key} for row in rows]
            path.write_text(_text(path, contents))
    return {path.parent for path in layout.found(layout.any_run.origin)} - present


def _seed_of(run: Path) -> tuple[str, str]:
    """The model and the seed of a run's folder, ``runs/MODEL/BENCHMARK/METHOD/seedN``."""
    return run.parts[-4], run.name
