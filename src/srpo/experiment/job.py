"""What one job of the workflow reads of an experiment, as arguments of its command.

A rule gives each section as a parameter, so Snakemake runs a job again exactly if a section that the job reads has
changed. A command that is called by hand takes the same sections from ``experiment.yaml``.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

import srpo
from srpo.algorithm.method import Method
from srpo.experiment.config import (
    Benchmark,
    Execution,
    Experiment,
    HubModel,
    Model,
    RunSpec,
    Sampling,
    Training,
    changed,
    listed,
)
from srpo.ground.errors import SrpoError
from srpo.ground.layout import RunId
from srpo.ground.mistakes import validated
from srpo.ground.schema import Config
from srpo.questions.rewards import REWARDS

READS: Mapping[str, tuple[str, ...]] = {
    "train": (*RunSpec.model_fields,),
    "evaluate": (*RunSpec.model_fields, "evaluation"),
    "evaluate_base": ("model", "benchmark", "training", "execution", "evaluation"),
    "gap": ("model", "benchmark", "training", "execution"),
}
"""The sections that determine what a command makes."""

_ABSENT: Any = None


class Job(Config):
    """Sections of an experiment for one job. A section that the job does not read may be absent.

    ``model`` is the base model, ``benchmark`` the questions as that model meets them. ``code`` has the hash of each
    file of one's own code that the benchmark and the method name, or that such a file imports.
    """

    experiment: str = _ABSENT
    scale: Literal["embedded", "paper"] = _ABSENT
    id: RunId = _ABSENT
    model: Model = _ABSENT
    benchmark: Benchmark = _ABSENT
    method: Method = _ABSENT
    training: Training = _ABSENT
    execution: Execution = _ABSENT
    evaluation: Sampling = _ABSENT
    code: dict[str, str] = _ABSENT
    version: str = _ABSENT

    def text(self, section: str) -> str:
        """A section as JSON. A title changes no result, so the name stands for it."""
        return json.dumps(self.settings(("experiment", "scale") if section == "experiment" else (section,)))

    def settings(self, sections: Iterable[str]) -> dict[str, Any]:
        """Some sections, without titles."""
        found = self.model_dump(mode="json", include={*sections})
        return {key: _untitled(value) for key, value in found.items()}

    @property
    def spec(self) -> RunSpec:
        """The run that this job trains or evaluates."""
        return RunSpec(**{name: getattr(self, name) for name in RunSpec.model_fields})


def _untitled(value: Any) -> Any:
    return value | {"title": value["name"]} if isinstance(value, dict) and {"name", "title"} <= value.keys() else value


def job_of(experiment: Experiment, names: Mapping[str, str]) -> Job:
    """The sections for the names in a result's path (:data:`srpo.ground.layout.PLACES`)."""

    def named(key: str, known: Mapping[str, Any]) -> Any:
        if names[key] not in known:
            raise SrpoError(f"{key} {names[key]}: experiment {experiment.name} has {', '.join(known)}")
        return known[names[key]]

    found: dict[str, Any] = {"experiment": experiment.name, "scale": experiment.scale, "version": srpo.__version__}
    if "method" in names:
        spec = experiment.run(RunId.model_validate(names))
        found |= {"id": spec.id, "model": spec.model, "benchmark": spec.benchmark, "method": spec.method}
    elif "model" in names:
        found["model"] = named("model", experiment.every_base_model())
        if "benchmark" in names:
            found["benchmark"] = named("benchmark", experiment.benchmarks).for_model(found["model"])
    if "data_set" in names:
        found["benchmark"] = named("data_set", experiment.data_sets())
    if "benchmark" in names:
        found["model"] = _as_read_by_runs(found["model"])
    return Job.model_construct(
        **found,
        training=experiment.training,
        execution=experiment.execution,
        evaluation=experiment.evaluation,
        code=_code(getattr(found.get("benchmark"), "reward", None), getattr(found.get("method"), "module", None)),
    )


def _as_read_by_runs(model: Model) -> Model:
    """A base model without where its weights come from: a run reads them in the results, and its provenance has their
    hash."""
    elsewhere = {"path": Path(model.name), "stored": {}} | ({"shape": None} if isinstance(model, HubModel) else {})
    return model.model_copy(update={key: value for key, value in elsewhere.items() if hasattr(model, key)})


def read_job(sections: Iterable[str], names: Mapping[str, str]) -> Job:
    """The job whose sections a command was given.

    Raises:
        SrpoError: if the sections are of another version of srpo, or of other files of one's own code.
    """
    merged = {key: value for text in sections for key, value in json.loads(text).items()}
    own = merged.get("benchmark", {}).get("reward"), merged.get("method", {}).get("module")
    now = {"version": srpo.__version__} | (_code(*own) if "code" in merged else {})
    if found := changed({"version": merged.get("version"), **merged.get("code", {})}, now):
        raise SrpoError(f"not the code that the workflow began with: {listed(found)}; start Snakemake again")
    if "method" in names:
        merged["id"] = names
    return validated(Job, merged, "settings")


def filled_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Dumped sections with the keys that their commit did not have yet, at their defaults.

    A run did then what the default does now: a change of results raises srpo's version. Sections that cannot be read
    any more stay as they are.
    """
    try:
        return Job.model_validate(spec).model_dump(mode="json", include={*spec})
    except ValidationError:
        return dict(spec)


def _code(*own: str | None) -> dict[str, str]:
    """The hash of each file of own code that a reward and a method's module name, or that such a file imports.

    Of an installed module these are files of its package.
    """
    hashes: dict[str, str] = {}
    for module in sorted(name.partition(":")[0] for name in own if name and name not in REWARDS):
        if (spec := find_spec(module)) and spec.origin:
            file = Path(spec.origin)
            root = file.parents[module.count(".") + (file.name == "__init__.py")]
            inside = root / module.partition(".")[0] if "site-packages" in file.parts else root
            found = {file}
            while more := {p for f in found for p in _imports(f, root) if p.is_relative_to(inside)} - found:
                found |= more
            hashes |= {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in sorted(found)}
    return hashes


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """The files below ``root`` that a file imports, or names in a text like ``module:function``."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Constant) and re.fullmatch(r"[\w.]+:\w+", str(node.value)):
            node = ast.Import([ast.alias(str(node.value).partition(":")[0])])
        folder = file.parents[node.level - 1] if isinstance(node, ast.ImportFrom) and node.level else root
        if isinstance(node, ast.ImportFrom):
            folder = folder.joinpath(*(node.module or "").split("."))
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            path = folder.joinpath(*alias.name.split("."))
            places = (path, path.parent) if isinstance(node, ast.ImportFrom) else (path,)
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            yield from filter(Path.is_file, files)
