"""Reads YAML files into an :class:`~srpo.experiment.config.Experiment`.

An experiment file (``configs/experiments/*.yaml``) names methods, models and benchmarks; each name is
one file under ``configs/``. :func:`load_experiment` adds what the experiment ``extends``, resolves the names,
changes what ``overrides`` says and replaces methods by their variants.
"""

import hashlib
import itertools
import json
import logging
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Annotated, Any

import yaml
from pydantic import Field, FiniteFloat, ValidationError

from srpo.algorithm.method import Method, patched
from srpo.experiment.config import (
    Block,
    Execution,
    Experiment,
    FileContent,
    Files,
    FilesBenchmark,
    Sampling,
    Training,
    Tuned,
    short_name,
)
from srpo.experiment.rows import Row, check_responses, doubts, parse_rows, read_file
from srpo.files import read_mapping, read_yaml, write_text
from srpo.inputs.errors import SrpoError
from srpo.inputs.mistakes import hint, nearest, reason, section, validated
from srpo.inputs.schema import Config, Count, flattened
from srpo.repository import CONFIGS, method_files
from srpo.rewards import PATIENCE, check_truths, find_reward, is_own, taken_for_right

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Valid names: they become folders and command-line arguments."""

SLOW = 10.0
"""Seconds after which a reward that is tried is named."""

MAX_PATH = 255
"""Characters of a path that every file system takes."""

_NAMED = ("methods", "models", "benchmarks")
"""Keys of the resolved experiment; an experiment file has only their names, in its matrix."""

_INHERITED = ("scale", "tuned", "overrides", "training", "execution", "evaluation")
"""Keys that an experiment inherits from the one that it extends. Name, title, matrix and variants are not inherited."""

_FIXED = ("name", "title", "routing")
"""Keys of a method that an experiment cannot change."""

_PLACES: dict[str, Collection[str]] = {
    "a block of matrix": Block.model_fields,
    "overrides, below a method": Method.model_fields.keys() - _FIXED,
    "a method's file": _FIXED,
    "training": Training.model_fields,
    "execution": Execution.model_fields,
    "evaluation": Sampling.model_fields,
}
"""Where a key of an experiment's file belongs, in words."""

_validate = partial(validated, places=_PLACES)


def load_experiment(
    source: Path | dict[str, Any],
    config_root: Path = CONFIGS,
    where: str | None = None,
    also_known: Collection[str] = (),
) -> Experiment:
    """Read an experiment file, or the mapping that Snakemake read from it, and resolve its names.

    ``extends: embedded`` inherits scale, tuned values, overrides, training, execution and evaluation of another
    experiment. The file can replace single keys of the last three.
    ``tuned: NAME`` takes the hyperparameters that a search has found (``configs/tuned/NAME.yaml``), and no others that
    were inherited; ``null`` takes none. ``overrides`` in the file changes hyperparameters of a method for this
    experiment only, e.g. ``overrides: {grpo: {learning_rate: 1.0e-4}}``. Methods that extend this one have both, but
    for the keys that their own files give.
    ``variants`` replaces methods by variants with other values, e.g.
    ``variants: {of: [srpo], grid: {entropy_beta: [0, 1, 2]}}`` (:class:`VariantsRequest`). A mapping that
    :meth:`Experiment.model_dump` made is already resolved and loads as it is.

    Args:
        source: the file, or its content.
        config_root: the folder of experiments, methods, models and benchmarks.
        where: the name of ``source`` in messages; by default its path.
        also_known: other valid keys, which are suggested if a key is misspelt.

    Raises:
        SrpoError: on unknown keys or names, missing keys or impossible values, with one line for each.
    """
    from_files = where is not None or isinstance(source, Path)
    where = where or (str(source) if isinstance(source, Path) else "experiment")
    raw = read_mapping(source) if isinstance(source, Path) else dict(source)
    _check_is_experiment(raw, where)
    problems: dict[str, str] = {}
    if not is_resolved(raw):
        if from_files:
            _check_name(raw, where, config_root)
        try:
            extended = _extended(raw, where, config_root, problems, also_known)
            raw = _resolve(extended, raw.get("overrides") or {}, where, config_root, problems)
        except SrpoError as error:
            lines = "\n".join([*problems.values(), str(error)]).splitlines()
            raise SrpoError("\n".join(dict.fromkeys(lines))) from error
        composed: Experiment = _validate(Experiment, raw, where, problems)
        _check_own_data(composed, where)
        return composed
    return _validate(Experiment, raw, where, problems)


def is_resolved(raw: Mapping[str, Any]) -> bool:
    """Whether the content of an experiment's file has all that its names stand for."""
    return not raw.keys() & {"extends", "overrides"} and {*_NAMED} <= raw.keys()


def resolved_text(experiment: Experiment) -> str:
    """The resolved experiment as YAML: every name resolved, every default filled in."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=120)


def check_same(file: Path, experiment: Experiment) -> Any:
    """What a file of a resolved experiment has, if it is there; an :class:`SrpoError` if that is another experiment."""
    there = None
    with suppress(SrpoError):  # no YAML is no experiment
        there = read_yaml(file)
    if isinstance(there, dict) and there.get("name", experiment.name) != experiment.name:
        raise SrpoError(f"{file} has the experiment {there['name']}; choose another folder")
    return there


def write_resolved(text: str, path: Path) -> None:
    """Write the file that all commands read, unless it has this content already."""
    if not path.exists() or path.read_text() != text:
        write_text(path, text)


def experiment_file(name: str, config_root: Path = CONFIGS) -> Path:
    """The file of an experiment, from its name or its path.

    Raises:
        SrpoError: if there is no such file.
    """
    folder = config_root / "experiments"
    if name and len(name) < MAX_PATH:
        if Path(name).is_dir():
            raise SrpoError(f"{name}: a folder; give a file")
        for path in (Path(name), folder / f"{name}.yaml"):
            if path.is_file():
                return path
        if Path(file := f"{name}.yaml").is_file():
            raise SrpoError(f"unknown experiment {name!r}; did you mean {file}?")
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    what = f"{name}: no such file" if name.endswith(".yaml") else f"unknown experiment {name!r:.100}"
    likely = hint(nearest(name.removesuffix(".yaml"), known))
    raise SrpoError(f"{what}{likely}; give a file or one of {', '.join(known)}")


def _check_is_experiment(raw: dict[str, Any], where: str) -> None:
    """Check that a mapping is not that of another kind of file, which would be one mistake for each of its keys."""
    keys = {
        "a method": {"routing", "mini_batch_questions"},
        "a model": {"architecture", "repository", "shape", "warm_start"},
        "a benchmark": {"reward", "train_file", "family", "source", "task"},
        "a search": {"search", "trials"},
    }
    found = next((what for what, of_kind in keys.items() if of_kind & raw.keys()), None)
    if found and not {"matrix", "extends", "name"} & raw.keys():
        raise SrpoError(f"{where}: the file of {found}; give an experiment, which has name, title and matrix")


def _check_name(raw: dict[str, Any], where: str, config_root: Path) -> None:
    """Check that an experiment of one's own does not take the results folder of one that is in ``configs``."""
    shipped = config_root / "experiments" / f"{raw.get('name')}.yaml"
    own = [Path(file).resolve() for file in where.split(" and ")]
    is_name = _NAME.fullmatch(str(raw.get("name")))
    if is_name and shipped.is_file() and shipped.resolve() not in own and raw != read_mapping(shipped):
        raise SrpoError(f"{where}: name = {raw['name']}: {shipped} has this name, and its results; choose another")


def _extended(
    raw: dict[str, Any],
    where: str,
    config_root: Path,
    problems: dict[str, str],
    also_known: Collection[str] = (),
    seen: tuple[str, ...] = (),
) -> dict[str, Any]:
    """An experiment with the keys that it inherits, directly or indirectly.

    Args:
        problems: to which unknown keys are added, as :func:`_validate` does.
    """
    known = [*(key for key in Experiment.model_fields if key not in _NAMED), "overrides", "extends"]
    for key in map(str, raw):
        if key in _NAMED:
            problems[key] = f"{where}: unknown key {key}; put names into the matrix, changed values into overrides"
        elif key not in known:
            likely = nearest(key, [*known, *also_known])
            inside = section(key, _PLACES)
            problems[key if inside else likely or key] = f"{where}: {key}: unknown key{inside or hint(likely)}"
    raw = {key: value for key, value in raw.items() if key in known}
    base_name = raw.pop("extends", None)
    own = raw.get("overrides") or {}
    if not isinstance(own, dict):
        raise SrpoError(f"{where}: overrides = {own!r}: give a mapping of methods")
    for name, values in own.items():
        if not isinstance(values, dict | None):
            raise SrpoError(f"{where}: overrides.{name} = {values!r}: give hyperparameters of the method")
    base: dict[str, Any] = {}
    if base_name is not None:
        folder = config_root / "experiments"
        path = folder / f"{base_name}.yaml"
        if base_name in seen:
            raise SrpoError(f"{where}: extends: {' -> '.join((*seen, base_name))} is a circle")
        if not path.is_file() or "/" in str(base_name):
            known = sorted(file.stem for file in folder.glob("*.yaml"))
            likely = hint(nearest(Path(str(base_name)).stem, known)) or f"; there is {', '.join(known)}"
            what = "a path; give the name of one" if "/" in str(base_name) else "no such experiment"
            raise SrpoError(f"{where}: extends = {base_name!r}: {what} in {folder}{likely}")
        base = _extended(read_mapping(path), str(path), config_root, problems, seen=(*seen, base_name))
    merged = {key: base[key] for key in _INHERITED if key in base} | raw
    for key in ("training", "execution", "evaluation"):
        if isinstance(raw.get(key), dict) and isinstance(base.get(key), dict):
            merged[key] = base[key] | raw[key]
    inherited = base.get("overrides") or {}
    if raw.get("tuned") is not None:
        tuned = read_tuned(str(raw["tuned"]), where, config_root)
        merged["tuned"] = tuned.model_dump(mode="json")
        inherited = {
            name: {key: value for key, value in values.items() if key not in tuned.methods.get(name, {})}
            for name, values in inherited.items()
        }
    merged["overrides"] = inherited | {name: inherited.get(name, {}) | (of or {}) for name, of in own.items()}
    return merged


def _resolve(
    raw: dict[str, Any], own: dict[str, Any], where: str, config_root: Path, problems: dict[str, str]
) -> dict[str, Any]:
    """An extended experiment with its names resolved; ``own`` has the overrides in its file."""
    overrides = raw.pop("overrides")
    tuned = (raw.get("tuned") or {"methods": {}})["methods"]
    changed = {name: tuned.get(name, {}) | overrides.get(name, {}) for name in [*tuned, *overrides]}
    others = ("name", "training", "execution", "evaluation")
    try:
        _validate(Experiment, raw, where, only=("matrix",))
    except SrpoError:  # the names that it was meant to have are unknown
        _validate(Experiment, raw, where, problems, ("matrix", *others))
    blocks = raw["matrix"]
    for number, block in enumerate(blocks):
        key = f"{where}: matrix.{number}"
        if "methods" in block and not block["methods"]:
            problems[key] = f"{key}.methods = {block['methods']}: give methods, or no key"
        elif "seeds" in block and "methods" not in block:
            problems[key] = f"{key}.seeds: without methods nothing is trained"
    all_names = {kind: dict.fromkeys(name for block in blocks for name in block.get(kind, [])) for kind in _NAMED}
    for kind, names in all_names.items():
        raw[kind] = {}
        for name in names:
            try:
                raw[kind][short_name(name)] = _load_named(kind, name, config_root, where, changed)
            except SrpoError as error:
                problems[f"{kind}.{name}"] = str(error)
        if len({*map(short_name, names)}) < len(names):
            problems[kind] = f"{where}: two {kind} of one experiment share a name: {', '.join(names)}"
    for name, values in overrides.items():
        key = f"{where}: overrides.{name}"
        if name in own and name not in all_names["methods"]:
            problems[key] = f"{key}: not a method of the matrix ({', '.join(all_names['methods'])})"
        elif fixed := [each for each in _FIXED if each in values]:
            problems[key] = f"{key}.{fixed[0]}: no hyperparameter; write a method that extends {name}"
    if problems:  # what does not depend on names is checked, too
        _validate(Experiment, raw, where, problems, (*others, "methods"))
    if raw.get("variants") is not None:
        raw |= _expand_variants(raw, own, where)
    return raw


# ---------------------------------------------------------------- variants, and what a search of them has found


class VariantsRequest(Config):
    """``variants`` of an experiment file: every point of a grid of hyperparameters makes a variant of each method.

    ``of`` names the methods; without it they are all methods of the matrix. ``held_out_questions`` makes the experiment
    a search: this number of questions of each benchmark's train split takes the place of the test split, which is not
    touched, and ``srpo tune`` writes the best variant of each method.
    """

    of: list[str] | None = Field(None, min_length=1)
    grid: dict[str, Annotated[list[int | FiniteFloat], Field(min_length=1)]] = Field(min_length=1)
    held_out_questions: Count | None = None


class _Request(Config):
    """The file's key around a request, so that a mistake is named ``variants.<key>``."""

    variants: VariantsRequest


class _Methods(Config):
    methods: dict[str, Method]


def read_tuned(name: str, where: str, config_root: Path = CONFIGS) -> Tuned:
    """What a search has found: a file of ``configs/tuned``.

    Raises:
        SrpoError: if there is no such file, or it is not one that ``srpo tune`` wrote.
    """
    path = config_root / "tuned" / f"{name}.yaml"
    if not path.is_file() or "/" in name:
        known = ", ".join(sorted(file.stem for file in (config_root / "tuned").glob("*.yaml"))) or "no file"
        raise SrpoError(f"{where}: tuned = {name!r}: unknown; {config_root / 'tuned'} has {known}; null takes none")
    return _validate(Tuned, read_mapping(path), str(path))


def _expand_variants(raw: dict[str, Any], own: dict[str, Any], where: str) -> dict[str, Any]:
    """What ``variants`` changes of an experiment. All later code treats a variant as an ordinary method."""
    request: VariantsRequest = _validate(_Request, {"variants": raw["variants"]}, where).variants
    names = request.of or [*raw["methods"]]
    if not {*names} <= raw["methods"].keys() or len({*names}) < len(names):
        what = f"{where}: variants.of = {', '.join(names)}"
        raise SrpoError(f"{what}: give one or more of the methods {', '.join(raw['methods'])}, each once")
    for of, key in itertools.product(request.of or [], request.grid):
        if key in (own.get(of) or {}):
            raise SrpoError(f"{where}: overrides.{of}.{key}: the grid sets it; change variants.grid")
    points = [dict(zip(request.grid, values, strict=True)) for values in itertools.product(*request.grid.values())]
    replaced: dict[str, Any] = {}
    made: dict[str, dict[str, Any]] = {}
    of_each: dict[str, list[str]] = {}
    for of, original in raw["methods"].items():
        variants = _variants(of, original, points, where) if of in names else {of: original}
        for name in variants:
            if of in names and name in raw["methods"]:
                what = f"{where}: the grid makes a method {name}"
                raise SrpoError(f"{what}, and the matrix has another of this name; rename it")
        of_each[of] = [*variants]
        replaced |= variants
        if of in names:
            made |= {name: {"of": of, "values": point} for name, point in zip(variants, points, strict=True)}
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


def _variants(of: str, original: dict[str, Any], points: Sequence[dict[str, Any]], where: str) -> dict[str, Any]:
    """A method's variants by name, one for each point: values by key, where a key of a nested mapping has dots."""
    definition = _validate(_Methods, {"methods": {of: original}}, where).methods[of].model_dump(mode="json")
    found = flattened(definition).items()
    numbers = [key for key, value in found if isinstance(value, int | float) and not isinstance(value, bool)]
    for key in points[0]:
        if key not in numbers:
            what = f"{where}: variants.grid = {key}: not a number of method {of}"
            raise SrpoError(f"{what}; there is {', '.join(numbers)}")
    variants: dict[str, Any] = {}
    for point in points:
        name = "-".join([of, *(f"{key.rsplit('.', 1)[-1]}-{value:.12g}" for key, value in point.items())])
        values = f"variants.grid = {', '.join(f'{value:.12g}' for value in point.values())}"
        if name in variants:
            raise SrpoError(f"{where}: {values}: given twice")
        setting = ", ".join(f"{key} = {value:.12g}" for key, value in point.items())
        variant = definition | {"name": name, "title": f"{definition['title']}, {setting}"}
        for key, value in point.items():
            variant = _with(variant, key, value)
        try:
            Method.model_validate(variant)
        except ValidationError as error:
            said = reason(error.errors(include_url=False)[0])
            raise SrpoError(f"{where}: {values} for {', '.join(point)} of {of}: {said}") from error
        variants[name] = variant
    return variants


def _with(definition: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with another value of ``key``, a path with dots."""
    first, _, rest = key.partition(".")
    return definition | {first: _with(definition[first], rest, value) if rest else value}


# ---------------------------------------------------------------- files and errors


def _load_named(
    kind: str,
    name: str,
    config_root: Path,
    where: str,
    changed: Mapping[str, dict[str, Any]],
    seen: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The content of a name's file, with what it extends; ``changed`` is what an experiment changes of each method."""
    folder, named = config_root / kind, f"{where}: {kind[:-1]} {name!r}"
    if name in seen:
        raise SrpoError(f"{where}: extends: {' -> '.join((*seen, name))} is a circle")
    own_file = kind == "benchmarks" and name.endswith(".yaml")  # anywhere; all others are in configs
    shipped = method_files(config_root) if kind == "methods" else {}
    path = _expanded(name, f"{where}: benchmarks") if own_file else shipped.get(name, folder / f"{name}.yaml")
    if "/" in name and kind != "benchmarks":
        likely = hint(nearest(Path(name).stem, [*shipped] or [each.stem for each in folder.glob("*.yaml")]))
        raise SrpoError(f"{named}: give NAME of a file {folder}/NAME.yaml{likely}")
    if kind == "methods" and len(same := sorted(path for path in folder.rglob("*.yaml") if path.stem == name)) > 1:
        raise SrpoError(f"{named}: {' and '.join(map(str, same))} have one name; rename one")
    if not all(map(_NAME.fullmatch, [short_name(name)] if own_file else name.split("/"))):
        what = "a name has letters (A to Z), digits, points, hyphens and underscores"
        raise SrpoError(f"{named}: {what}, and begins with a letter, digit or underscore")
    if kind == "methods" and name == "base":
        raise SrpoError(f"{named}: the untrained model's name, which is always evaluated; leave it out, or rename it")
    if not (own_file or path.is_file()):
        known = [*shipped] or sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))
        with_end = f"{name}.yaml" if kind == "benchmarks" and Path(f"{name}.yaml").is_file() else None
        if misnamed := next(folder.rglob(f"{name}.yml"), None):
            raise SrpoError(f"{where}: {kind[:-1]} {name!r}: {misnamed} is there; rename it to {misnamed.stem}.yaml")
        likely = hint(with_end or nearest(name, known))
        raise SrpoError(f"{where}: unknown {kind[:-1]} {name!r}{likely}; {folder} has {', '.join(known)}")
    if own_file and not path.exists():
        beside = Path(where.rsplit(" and ")[-1]).parent / path  # of the experiment's file
        shipped_name = name.removesuffix(".yaml") if (folder / name).is_file() else None
        likely = hint(os.path.relpath(beside) if beside.is_file() else shipped_name)
        raise SrpoError(f"{where}: benchmarks: {name}: no such file; the path is relative to {Path.cwd()}{likely}")
    content = read_mapping(path)
    if content.setdefault("name", short_name(name)) != short_name(name):
        what = f"a {kind[:-1]} has the name of its file; leave the key out"
        raise SrpoError(f"{path}: name = {content['name']!r}: {what}")
    if content.get("kind") == "local" and isinstance(content.get("path"), str):
        checkpoint = _expanded(content["path"], f"{path}: path")
        if not (checkpoint / "config.json").is_file():
            what = "no config.json in it" if checkpoint.is_dir() else "no such folder"
            raise SrpoError(f"{path}: path = {content['path']}: {what}; give a checkpoint in Hugging Face format")

    def read(parent: str) -> dict[str, Any]:
        return _load_named(kind, parent, config_root, str(path), changed, (*seen, name))

    if kind == "methods":
        complete = patched(content, lambda parent: {k: v for k, v in read(parent).items() if k != "title"})
        # before something replaces a value of the file; what goes together is checked behind that
        _validate(Method, complete, str(path), only=content.keys())
        return complete | {key: value for key, value in changed.get(name, {}).items() if key not in _FIXED}
    if kind == "models" and (parent := content.pop("extends", None)) is not None:
        return _other_model(content, read(str(parent)))
    return _with_own_data(content, path) if kind == "benchmarks" else content


def _expanded(path: str | Path, key: str) -> Path:
    """A path whose ~ is the user's folder; ``key`` names it in the error."""
    try:
        if "\0" in str(path):
            raise ValueError("embedded null byte")
        return Path(path).expanduser()
    except (ValueError, RuntimeError) as error:  # ~ of nobody
        raise SrpoError(f"{key} = {str(path)!r}: {error}") from error


def _other_model(content: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    """A model's file with what it has from the one that it extends; of ``warm_start`` it may give single keys.

    It has no stored base models: the parent's were made with another recipe.
    """
    inherited = {key: value for key, value in parent.items() if key not in ("stored", "title")}
    both = [each for each in (parent.get("warm_start"), content.get("warm_start")) if isinstance(each, dict)]
    return inherited | content | ({"warm_start": both[0] | both[1]} if len(both) > 1 else {})


def _with_own_data(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A benchmark's file, its own files of questions read and its reward tried on their answers."""
    rows: dict[str, list[Row]] = {}
    if content.get("kind") == "files":
        of_every_kind = FilesBenchmark.model_fields.keys() - Files.model_fields.keys() - {"contents"}
        files: Files = _validate(Files, {k: v for k, v in content.items() if k not in of_every_kind}, str(path))
        contents = {}
        for split, file in (("train", files.train_file), ("test", files.test_file)):
            found = Path(os.path.realpath(path.parent / _expanded(file, f"{path}: {split}_file")))
            data = read_file(found)
            rows[split] = parse_rows(data, str(found), files.columns)
            content = content | {f"{split}_file": str(found)}
            contents[split] = FileContent(sha256=hashlib.sha256(data).hexdigest(), rows=len(rows[split])).model_dump()
        files.columns.check_responses(rows["train"], str(files.train_file))
        content = content | {"contents": contents}
        _check_questions(rows, path)
    reward = content.get("reward")
    if isinstance(reward, str) and (rows or is_own(reward)):
        try:
            with _said_if_slow(f"{path}: reward = {reward}"):
                _try_reward(reward, rows, path)
        except SrpoError as error:
            raise SrpoError(f"{path}: {error}") from error
    return content


def _try_reward(reward: str, rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Try a reward on own questions: one's own for a moment only, and on all of them when the splits are written."""
    find_reward(reward)
    patience = PATIENCE if is_own(reward) else math.inf
    for of_split in rows.values():
        check_truths(reward, {row.where: row.ground_truth for row in of_split}, patience)
        check_responses(reward, of_split, patience)
    for line in (line for split, of_split in rows.items() for line in doubts(reward, of_split, split)):
        _log.warning("%s: %s", path, line)
    if is_own(reward) and rows:
        _check_tells_apart(reward, rows["train"], path)


@contextmanager
def _said_if_slow(what: str) -> Iterator[None]:
    """Say what is waited for, if that takes long: it may never end."""
    timer = Timer(SLOW, _log.warning, ["%s: still tried after %g seconds", what, SLOW])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check_tells_apart(reward: str, rows: Iterable[Row], path: Path) -> None:
    """Check that a reward function does not call everything right; one that rewards a format only is possible."""
    if wrong := taken_for_right(reward, [row.ground_truth for row in rows]):
        what = f"reward = {reward}: {wrong} is right to every question that was tried"
        if wrong == "an empty response":
            raise SrpoError(f"{what}; let it be wrong, or exchange the arguments: (response, truth)")
        _log.warning("%s: %s; is that meant?", path, what)


def _check_own_data(experiment: Experiment, where: str) -> None:
    """Check that a model that learns the responses of own data has some."""
    files = {name: each for name, each in experiment.benchmarks.items() if isinstance(each, FilesBenchmark)}
    trained = {run.benchmark for run in experiment.runs()}
    for name, model in experiment.models.items():
        if getattr(getattr(model, "warm_start", None), "corpus", None) == "files":
            own = [files[each] for of, each in experiment.bases() if of == name and each in files.keys() & trained]
            rows = (parse_rows(read_file(each.train_file), "", each.columns) for each in own)
            if not any(row.response for of_file in rows for row in of_file):
                found = ", ".join(str(each.train_file) for each in own) or "no benchmark of kind files is trained on"
                what = f"{where}: model {name}: warm_start.corpus = files: no question has a response: {found}"
                raise SrpoError(f"{what}; give a train file a column response")


def _check_questions(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Warn of repeated questions and of test questions that are trained on; refuse a test of trained questions only."""
    asked = {split: [json.dumps(row.messages) for row in of_split] for split, of_split in rows.items()}
    known = {*asked["train"]}
    if known.issuperset(asked["test"]):
        raise SrpoError(f"{path}: all {len(asked['test'])} test questions are train questions; keep some for the test")
    for split, of_split in asked.items():
        if again := len(of_split) - len({*of_split}):
            other = len({*zip(of_split, (row.ground_truth for row in rows[split]), strict=True)}) - len({*of_split})
            what = f"repeated{f', {other} with another answer' if other else ''}"
            _log.warning("%s: %d of %d %s questions are %s", path, again, len(of_split), split, what)
    systems = [
        {row.messages[0]["content"] if row.messages[1:] else "" for row in of_split} for of_split in rows.values()
    ]
    if {*map(len, systems)} == {1} and systems[0] != systems[1]:
        shown = " and ".join(f"{next(iter(each))!r:.60}" for each in systems)
        _log.warning("%s: the system messages of train and test differ: %s; is that meant?", path, shown)
    if both := sum(question in known for question in asked["test"]):
        _log.warning("%s: %d of %d test questions are train questions", path, both, len(asked["test"]))
