"""Reads YAML files into an :class:`~srpo.experiment.config.Experiment`.

An experiment file (``configs/experiments/*.yaml``) names methods, models and benchmarks; each name is one file under
``configs/``. :func:`load_experiment` adds what the experiment ``extends``, resolves the names, changes what
``overrides`` says and replaces methods by their variants.
"""

import hashlib
import itertools
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, FiniteFloat

from srpo.algorithm.method import Method, patched
from srpo.experiment.config import Block, Experiment, FileContent, Files, FilesBenchmark, Tuned, short_name
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_bytes, read_mapping
from srpo.ground.mistakes import validated
from srpo.ground.repository import CONFIGS, method_files
from srpo.ground.schema import Config, Count, Title, merged
from srpo.questions.rewards import check_truths, compute_reward, is_own
from srpo.questions.rows import check_responses, parse_rows
from srpo.questions.splits import question_key

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Valid names: they become folders and command-line arguments."""

_NAMED = ("methods", "models", "benchmarks")
"""Keys of the resolved experiment; an experiment file has only their names, in its matrix."""

_INHERITED = ("scale", "tuned", "overrides", "training", "execution", "evaluation")
"""Keys that an experiment inherits from the one that it extends."""

_FIXED = ("name", "title", "routing")
"""Keys of a method that an experiment cannot change."""


class VariantsRequest(Config):
    """``variants`` of an experiment file: every point of a grid of hyperparameters makes a variant of each method.

    ``held_out_questions`` makes the experiment a search: this number of questions of each benchmark's train split takes
    the place of the test split, which is not touched, and ``srpo tune`` writes the best variant of each method.
    """

    grid: dict[str, Annotated[list[int | FiniteFloat], Field(min_length=1)]] = Field(min_length=1)
    held_out_questions: Count | None = None


class ExperimentFile(Config):
    """What an experiment's file says. ``Experiment`` is the same with every name resolved."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=100)]
    title: Title
    extends: str | None = None
    scale: Literal["embedded", "paper"] | None = None
    comparable_with_paper: bool = False
    notice: str | None = None
    matrix: list[Block] = Field(min_length=1)
    tuned: str | None = None
    overrides: dict[str, dict[str, Any] | None] = Field({})
    variants: VariantsRequest | None = None
    training: dict[str, Any] = Field({})
    execution: dict[str, Any] = Field({})
    evaluation: dict[str, Any] = Field({})


def load_experiment(source: Path | dict[str, Any], config_root: Path = CONFIGS, where: str | None = None) -> Experiment:
    """Read an experiment file, or the mapping that Snakemake read from it, and resolve its names.

    ``extends: embedded`` inherits scale, tuned values, overrides, training, execution and evaluation of another
    experiment. The file can replace single keys of the last three, nested ones too.
    ``tuned: NAME`` takes the hyperparameters that a search has found (``configs/tuned/NAME.yaml``), and no others that
    were inherited; ``null`` takes none. ``overrides`` in the file changes hyperparameters of a method for this
    experiment only. Methods that extend this one have both, but for the keys that their own files give.
    A mapping that :meth:`Experiment.model_dump` made is already resolved and loads as it is.
    """
    from_files = where is not None or isinstance(source, Path)
    where = where or (str(source) if isinstance(source, Path) else "experiment")
    raw = read_mapping(source) if isinstance(source, Path) else dict(source)
    if not is_resolved(raw):
        file = validated(ExperimentFile, raw, where)
        shipped = config_root / "experiments" / f"{file.name}.yaml"
        own = from_files and shipped.resolve() not in [Path(each).resolve() for each in where.split(" and ")]
        if own and shipped.is_file() and raw != read_mapping(shipped):
            raise SrpoError(f"{where}: name = {file.name}: {shipped} has this name, and its results; choose another")
        extended = _extended(file, where, config_root)
        changes = extended["overrides"] or extended.get("tuned")
        raw = _resolve(extended, where, config_root)
        if file.comparable_with_paper and (changes or not validated(Experiment, raw, where).measures_as_the_paper):
            raise SrpoError(
                f"{where}: comparable_with_paper = true: clock, budgets, batch, lengths, validation or methods differ"
            )
    return validated(Experiment, raw, where)


def is_resolved(raw: Mapping[str, Any]) -> bool:
    """Whether the content of an experiment's file has all that its names stand for."""
    return not raw.keys() & {"extends", "overrides"} and {*_NAMED} <= raw.keys()


def resolved_text(experiment: Experiment) -> str:
    """The resolved experiment as YAML: every name resolved, every default filled in."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=120)


def experiment_file(name: str) -> Path:
    """The file of an experiment, from its name or its path."""
    return Path(name) if Path(name).is_file() else _file_of("experiments", name, CONFIGS)


def _file_of(kind: str, name: str, config_root: Path) -> Path:
    """The file of a name below ``configs``."""
    folder = config_root / kind
    known = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    if kind == "methods":
        known = method_files(config_root)
    if name not in known:
        raise SrpoError(f"unknown {kind[:-1]} {name!r}; {folder} has {', '.join(known)}")
    return known[name]


def _extended(file: ExperimentFile, where: str, config_root: Path) -> dict[str, Any]:
    """The keys of an experiment and those that it inherits, directly or indirectly."""
    base: dict[str, Any] = {}
    if file.extends is not None:
        path = _file_of("experiments", file.extends, config_root)
        parent = validated(ExperimentFile, read_mapping(path), str(path))
        base = _extended(parent, str(path), config_root)
    own = file.model_dump(exclude_unset=True, exclude={"extends", "overrides"})
    made = {key: base[key] for key in _INHERITED if key in base} | own
    for key in ("training", "execution", "evaluation"):
        made[key] = merged(base.get(key, {}), own.get(key, {}))
    inherited = base.get("overrides", {})
    if file.tuned is not None:
        made["tuned"] = tuned = read_tuned(file.tuned, config_root).model_dump(mode="json")
        found = tuned["methods"]
        inherited = {
            name: {key: value for key, value in values.items() if key not in found.get(name, {})}
            for name, values in inherited.items()
        }
    given = {name: values or {} for name, values in file.overrides.items()}
    made["overrides"] = merged(inherited, given)
    for name, values in given.items():
        if fixed := [key for key in _FIXED if key in values]:
            raise SrpoError(f"{where}: overrides.{name}.{fixed[0]}: write a method that extends {name}")
        if name not in {short_name(method) for block in file.matrix for method in block.methods}:
            raise SrpoError(f"{where}: overrides.{name}: not a method of the matrix")
    return made


def _resolve(raw: dict[str, Any], where: str, config_root: Path) -> dict[str, Any]:
    """An extended experiment with its names resolved."""
    overrides, tuned = raw.pop("overrides"), (raw.get("tuned") or {"methods": {}})["methods"]
    changed = merged(tuned, overrides)
    for kind in _NAMED:
        names = dict.fromkeys(name for block in raw["matrix"] for name in block.get(kind, []))
        raw[kind] = {short_name(name): _load_named(kind, name, config_root, where, changed) for name in names}
        if len(raw[kind]) < len(names):
            raise SrpoError(f"{where}: two {kind} of one experiment share a name: {', '.join(names)}")
    for kind in ("models", "methods"):  # their names are folders of results; a benchmark keeps the one that was given
        raw["matrix"] = [block | {kind: [short_name(name) for name in block.get(kind, [])]} for block in raw["matrix"]]
    if (request := raw.pop("variants", None)) is not None:
        raw |= _expand_variants(raw, VariantsRequest.model_validate(request), where)
    return raw


def read_tuned(name: str, config_root: Path = CONFIGS) -> Tuned:
    """What a search has found: a file of ``configs/tuned``, which ``srpo tune`` wrote."""
    path = _file_of("tuned", name, config_root)
    return validated(Tuned, read_mapping(path), str(path))


# ---------------------------------------------------------------- variants


class _Methods(Config):
    methods: dict[str, Method]


def _expand_variants(raw: dict[str, Any], request: VariantsRequest, where: str) -> dict[str, Any]:
    """What ``variants`` changes of an experiment. All later code treats a variant as an ordinary method."""
    points = [dict(zip(request.grid, values, strict=True)) for values in itertools.product(*request.grid.values())]
    replaced: dict[str, Any] = {}
    made: dict[str, dict[str, Any]] = {}
    of_each: dict[str, list[str]] = {}
    for of, original in raw["methods"].items():
        variants = _variants(of, original, points, where)
        made |= {name: {"of": of, "values": point} for name, point in zip(variants, points, strict=True)}
        of_each[of] = [*variants]
        replaced |= variants
    blocks = [
        block | {"methods": [new for name in block.get("methods", []) for new in of_each[name]]}
        for block in raw["matrix"]
    ]
    changed = {"methods": replaced, "matrix": blocks, "variants": made}
    if request.held_out_questions is None:
        return changed
    held_out = {"held_out_questions": request.held_out_questions}
    benchmarks = {name: definition | held_out for name, definition in raw["benchmarks"].items()}
    # what an earlier search has found is not used
    return changed | {"benchmarks": benchmarks, "tuned": None}


def _variants(of: str, original: dict[str, Any], points: list[dict[str, Any]], where: str) -> dict[str, Any]:
    """A method's variants by name, one for each point: values by key, where a key of a nested mapping has dots."""
    definition = validated(_Methods, {"methods": {of: original}}, where).methods[of].model_dump(mode="json")
    variants: dict[str, Any] = {}
    for point in points:
        name = "-".join([of, *(f"{key.rsplit('.', 1)[-1]}-{value:.12g}" for key, value in point.items())])
        setting = ", ".join(f"{key} = {value:.12g}" for key, value in point.items())
        variant = definition | {"name": name, "title": f"{definition['title']}, {setting}"}
        for key, value in point.items():
            variant = _with(variant, key, value)
        variants[name] = variant
    return variants


def _with(definition: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with another value of ``key``, a path with dots."""
    first, _, rest = key.partition(".")
    return definition | {first: _with(definition[first], rest, value) if rest else value}


# ---------------------------------------------------------------- files


def _load_named(
    kind: str,
    name: str,
    config_root: Path,
    where: str,
    changed: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """The content of a name's file, with what it extends; ``changed`` is what an experiment changes of each method."""
    own_file = name.endswith(".yaml")  # anywhere; all others are in configs
    path = Path(name).expanduser() if own_file else _file_of(kind, name, config_root)
    taken = name == "base"  # the untrained model
    if kind == "methods":  # what a search found, and what the paper claims, is of the method that has the name
        shipped = method_files(config_root).get(short_name(name), path)
        taken = short_name(name) == "base" or shipped.read_bytes() != read_bytes(path)
    if taken or not _NAME.fullmatch(short_name(name)):
        raise SrpoError(f"{where}: {kind[:-1]} {name!r}: give another name, of letters, digits, points and hyphens")
    content = read_mapping(path) | {"name": short_name(name)}

    def read(parent: str) -> dict[str, Any]:
        return _load_named(kind, parent, config_root, str(path), changed)

    if kind == "methods":
        complete = patched(content, lambda parent: {k: v for k, v in read(parent).items() if k != "title"})
        own = {key: value for key, value in changed.get(short_name(name), {}).items() if key not in _FIXED}
        return merged(complete, own)
    if kind == "models" and (parent := content.pop("extends", None)) is not None:
        # no stored base models: the parent's were made with another recipe
        inherited = {key: value for key, value in read(str(parent)).items() if key not in ("stored", "title")}
        return merged(inherited, content)
    return _with_own_data(content, path) if kind == "benchmarks" else content


def _with_own_data(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A benchmark's file, its own files of questions read and its reward tried on their answers."""
    if content.get("kind") != "files":
        return content
    of_every_kind = FilesBenchmark.model_fields.keys() - Files.model_fields.keys() - {"contents"}
    files = validated(Files, {k: v for k, v in content.items() if k not in of_every_kind}, str(path))
    rows, contents, reward = {}, {}, content.get("reward")
    for split, file in (("train", files.train_file), ("test", files.test_file)):
        found = Path(os.path.realpath(path.parent / file.expanduser()))
        data = read_bytes(found)
        rows[split] = parse_rows(data, str(found), files.columns)
        content = content | {f"{split}_file": str(found)}
        contents[split] = FileContent(sha256=hashlib.sha256(data).hexdigest(), rows=len(rows[split])).model_dump()
        if reward:
            tried = rows[split][:20] if is_own(reward) else rows[split]  # all, when the split is made
            check_truths(reward, {row.where: row.ground_truth for row in tried})
            check_responses(reward, tried)
    # one that calls the truth right was tried above; one that calls everything right would score 100 untrained
    if reward and is_own(reward) and all(compute_reward(reward, "", row.ground_truth) for row in rows["train"][:20]):
        raise SrpoError(f"{path}: reward = {reward}: an empty response is right to every question")
    files.columns.check_responses(rows["train"], str(files.train_file))
    if unread := sorted({column for of_split in rows.values() for row in of_split for column in row.unread}):
        _log.warning("%s: columns that no prompt shows: %s", path, ", ".join(unread))
    train, test = ([question_key(row.messages) for row in of_split] for of_split in rows.values())
    if both := sum(question in {*train} for question in test):
        _log.warning("%s: %d of %d test questions are train questions", path, both, len(test))
    return content | {"contents": contents}
