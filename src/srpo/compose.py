"""Reads YAML files into an :class:`~srpo.config.Experiment`.

An experiment file (``configs/experiments/*.yaml``) names methods, models and benchmarks; each name is
a file of its own under ``configs/``. :func:`load_experiment` adds what the experiment ``extends``, resolves the names,
changes what ``overrides`` says and expands a sweep.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import yaml
from pydantic import Field, FiniteFloat, ValidationError, field_validator

from srpo.config import Config, Count, Experiment, Method, Model, Tuned, short_name
from srpo.errors import SrpoError
from srpo.files import write_text
from srpo.repository import CONFIGS

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""Valid names: they become folders and command-line arguments."""

_NAMED = ("methods", "models", "benchmarks")
"""Keys of the resolved experiment; an experiment file has only their names, in its matrix."""

_INHERITED = ("scale", "tuned", "overrides", "training", "execution", "evaluation")
"""Keys that an experiment inherits from the one that it extends. Name, title, matrix and sweep are not inherited."""

_RENAMED = {"budgets": "budget_seconds"}
"""Keys of older versions, and their present names."""


def load_experiment(
    source: Path | dict[str, Any],
    config_root: Path = CONFIGS,
    where: str | None = None,
    also_known: Collection[str] = (),
) -> Experiment:
    """Read an experiment file, or the mapping that Snakemake read from it, and resolve its names.

    ``extends: embedded`` inherits scale, tuned values, overrides, training, execution and evaluation of another
    experiment. The file can replace single keys of the last three. Inherited overrides apply to the methods in this
    experiment's matrix.
    ``tuned: NAME`` takes the hyperparameters that a search has found (``configs/tuned/NAME.yaml``).
    ``overrides`` in the file changes hyperparameters of a method for this experiment only, e.g.
    ``overrides: {grpo: {learning_rate: 1.0e-4}}``, or gives it those of another, ``{advantage_mix: srpo}``.
    ``search`` replaces every method by trials of several values. ``sweep`` replaces a method or model by variants, e.g.
    ``sweep: {of: srpo, key: entropy_beta, values: [0, 1, 2], label: β}``. A mapping that
    :meth:`Experiment.model_dump` made is already resolved and loads as it is.

    Args:
        source: the file, or its content.
        config_root: the folder of experiments, methods, models and benchmarks.
        where: the name of ``source`` in messages; by default its path.
        also_known: other valid keys, which are suggested if a key is misspelt.

    Raises:
        SrpoError: on an unknown key or name, a missing key or an impossible value.
    """
    where = where or (str(source) if isinstance(source, Path) else "experiment")
    raw = _read_yaml(source) if isinstance(source, Path) else dict(source)
    if raw.keys() & {"extends", "overrides"} or not {*_NAMED} <= raw.keys():
        raw = _resolve(_extended(raw, where, config_root, also_known), where, config_root)
    return _validate(Experiment, raw, where)


def resolved_text(experiment: Experiment) -> str:
    """The resolved experiment as YAML: every name resolved, every default filled in."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=120)


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
    for path in (Path(name), folder / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
    raise SrpoError(f"unknown experiment {name!r}; give a file or one of {known}")


def _extended(
    raw: dict[str, Any],
    where: str,
    config_root: Path,
    also_known: Collection[str] = (),
    seen: tuple[str, ...] = (),
) -> dict[str, Any]:
    """An experiment with the keys that it inherits, directly or indirectly."""
    for key in _NAMED:
        if key in raw:
            raise SrpoError(f"{where}: unknown key {key}; put names into the matrix, changed values into overrides")
    known = [*(key for key in Experiment.model_fields if key not in _NAMED), "overrides", "extends"]
    for key in raw:
        if key not in known:
            raise SrpoError(f"{where}: {key}: {_unknown_key(str(key), [*known, *also_known])}")
    raw = dict(raw)
    base_name = raw.pop("extends", None)
    own = raw.get("overrides") or {}
    if not isinstance(own, dict):
        raise SrpoError(f"{where}: overrides = {own!r}: give a mapping of methods")
    base: dict[str, Any] = {}
    if base_name is not None:
        path = config_root / "experiments" / f"{base_name}.yaml"
        if base_name in seen:
            raise SrpoError(f"{where}: extends: {' -> '.join((*seen, base_name))} is a circle")
        if not path.is_file():
            known = sorted(file.stem for file in path.parent.glob("*.yaml"))
            hint = _nearest(str(base_name), known) or f"there is {', '.join(known)}"
            raise SrpoError(f"{where}: extends = {base_name!r}: no such experiment in {path.parent}; {hint}")
        base = _extended(_read_yaml(path), str(path), config_root, seen=(*seen, base_name))
    merged = {key: base[key] for key in _INHERITED if key in base} | raw
    for key in ("training", "execution", "evaluation"):
        if isinstance(raw.get(key), dict) and isinstance(base.get(key), dict):
            merged[key] = base[key] | raw[key]
    inherited = base.get("overrides") or {}
    if raw.get("tuned") is not None:
        merged["tuned"] = read_tuned(str(raw["tuned"]), where, config_root).model_dump(mode="json")
        inherited = _override(inherited, merged["tuned"]["methods"], where)
    blocks = raw.get("matrix")
    named = {
        method
        for block in (blocks if isinstance(blocks, list) else [])
        for method in (isinstance(block, dict) and block.get("methods")) or []
    }
    changed = _override(inherited, own, where)
    merged["overrides"] = {name: values for name, values in changed.items() if name in named or name in own}
    return merged


def _override(inherited: dict[str, Any], own: dict[str, Any], where: str) -> dict[str, Any]:
    """Hyperparameters by method: the inherited ones, changed as ``own`` says; a name stands for that method's."""
    merged = dict(inherited)
    for name, values in own.items():
        merged[name] = inherited.get(name, {}) | values if isinstance(values, dict) else values
    for name, values in merged.items():
        if isinstance(values, str):
            if not isinstance(merged.get(values), dict):
                known = ", ".join(other for other, given in merged.items() if isinstance(given, dict)) or "none"
                what = f"that method has no overrides; there is {known}"
                raise SrpoError(f"{where}: overrides.{name} = {values!r}: {what}")
            merged[name] = merged[values]
    return merged


def _resolve(raw: dict[str, Any], where: str, config_root: Path) -> dict[str, Any]:
    overrides = raw.pop("overrides", None) or {}
    if "matrix" not in raw:
        raise SrpoError(f"{where}: matrix is missing: give a list of blocks with models, benchmarks and methods")
    blocks = raw["matrix"]
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise SrpoError(f"{where}: matrix = {blocks!r}: give a list of blocks with models, benchmarks and methods")
    for kind, names in ((k, block.get(k)) for block in blocks for k in ("methods", "models", "benchmarks")):
        if not isinstance(names, list | None):
            raise SrpoError(f"{where}: matrix.{kind} = {names!r}: give a list of names")
    for kind in _NAMED:
        names = dict.fromkeys(str(name) for block in blocks for name in block.get(kind) or [])
        raw[kind] = {short_name(name): _load_named(kind, name, config_root, where) for name in names}
        if len(raw[kind]) < len(names):
            raise SrpoError(f"{where}: two {kind} of one experiment share a name: {', '.join(names)}")
    for name, values in overrides.items():
        if name not in raw["methods"]:
            raise SrpoError(f"{where}: overrides.{name}: not a method of the matrix ({', '.join(raw['methods'])})")
        if not isinstance(values, dict) or {"name", "title", "routing"} & values.keys():
            raise SrpoError(f"{where}: overrides.{name} = {values!r}: give hyperparameters of the method")
        raw["methods"][name] = {**raw["methods"][name], **values}
    if raw.get("search") is not None:
        raw |= _expand_search(raw, where)
    if raw.get("sweep") is not None:
        raw |= _expand(raw, overrides, where)
    return raw


# ---------------------------------------------------------------- tuned hyperparameters and their search


class SearchRequest(Config):
    """A search as an experiment file asks for it: a grid of hyperparameters, the same for every method of the matrix.

    ``held_out_questions`` of each benchmark's train split take the place of the test split, which is not touched.
    """

    held_out_questions: Count
    grid: dict[str, Annotated[list[int | FiniteFloat], Field(min_length=1)]] = Field(min_length=1)


class _Searched(Config):
    """The file's key around a search, so that a mistake in it is named ``search.<key>``."""

    search: SearchRequest


def read_tuned(name: str, where: str, config_root: Path = CONFIGS) -> Tuned:
    """What a search has found: a file of ``configs/tuned``.

    Raises:
        SrpoError: if there is no such file, or it is not one that ``srpo tune`` wrote.
    """
    path = config_root / "tuned" / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml"))) or "no file"
        raise SrpoError(f"{where}: tuned = {name!r}: unknown; {path.parent} has {known}")
    return _validate(Tuned, _read_yaml(path), str(path))


def _expand_search(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """What a search changes of an experiment: every method becomes one for each point of the grid."""
    if raw.get("sweep") is not None:
        raise SrpoError(f"{where}: search: an experiment has a search or a sweep, not both")
    request: SearchRequest = _validate(_Searched, {"search": raw["search"]}, where).search
    points = [dict(zip(request.grid, values, strict=True)) for values in itertools.product(*request.grid.values())]
    trials: dict[str, dict[str, Any]] = {}
    methods: dict[str, dict[str, Any]] = {}
    for of, raw_method in raw["methods"].items():
        definition = raw_method
        for key in request.grid:
            definition = _sweepable(raw_method, "methods", of, key, where, "search.grid")
        for point in points:
            setting = ", ".join(f"{key} = {value:.12g}" for key, value in point.items())
            name = "-".join([of, *(f"{key}-{value:.12g}" for key, value in point.items())])
            trials[name] = {"of": of, "values": point}
            methods[name] = definition | point | {"name": name, "title": f"{definition['title']}, {setting}"}
    blocks = [
        block | {"methods": [name for of in block.get("methods") or [] for name in trials if trials[name]["of"] == of]}
        for block in raw["matrix"]
    ]
    benchmarks = {
        name: definition | {"held_out_questions": request.held_out_questions}
        for name, definition in raw["benchmarks"].items()
    }
    found = {"methods": methods, "matrix": blocks, "benchmarks": benchmarks, "search": {"trials": trials}}
    return found | {"tuned": None}  # what an earlier search has found is not used


# ---------------------------------------------------------------- sweeps


class SweepRequest(Config):
    """The ``sweep`` of an experiment file: methods or models of the matrix, one of their keys, its values."""

    of: list[str] = Field(min_length=1)
    key: str
    values: list[FiniteFloat] = Field(min_length=2)
    label: str = Field(min_length=1)

    @field_validator("of", mode="before")
    @classmethod
    def _one_or_several(cls, of: Any) -> Any:
        return [of] if isinstance(of, str) else of


class _Asked(Config):
    """Wraps a sweep, so that error messages name ``sweep.<key>``."""

    sweep: SweepRequest


class _Swept(Config):
    """Wraps methods and models in the same way."""

    methods: dict[str, Method] = Field({})
    models: dict[str, Model] = Field({})


def _expand(raw: dict[str, Any], overrides: dict[str, Any], where: str) -> dict[str, Any]:
    """Replace the swept methods or models of an experiment by their variants.

    All later code treats variants as ordinary methods and models. The report reads from ``sweep`` which ones belong
    together.
    """
    request: SweepRequest = _validate(_Asked, {"sweep": raw["sweep"]}, where).sweep
    kind = next((kind for kind in ("methods", "models") if {*request.of} <= raw[kind].keys()), None)
    if kind is None or len({*request.of}) < len(request.of):
        known = " or ".join(f"of the {kind} {', '.join(raw[kind])}" for kind in ("methods", "models") if raw[kind])
        raise SrpoError(f"{where}: sweep.of = {', '.join(request.of)}: give one or more {known}, each once")
    variants: dict[str, dict[str, dict[str, Any]]] = {}  # by original name, then by variant name
    for of in request.of:
        definition = _sweepable(raw[kind][of], kind, of, request.key, where, "sweep.key")
        if request.key in overrides.get(of, {}):
            raise SrpoError(f"{where}: overrides.{of}.{request.key}: the sweep sets it; change sweep.values")
        variants[of] = {}
        for value in request.values:
            title = f"{definition['title']}, {request.label} = {value:.12g}"
            name = f"{of}-{request.key.rsplit('.', 1)[-1]}-{value:.12g}"
            if name in variants[of]:
                raise SrpoError(f"{where}: sweep.values = {value:.12g}: given twice")
            if name in raw[kind]:
                raise SrpoError(f"{where}: the sweep makes a {kind[:-1]} {name}, and the matrix has another; rename it")
            variant = _with(definition, request.key, value) | {"name": name, "title": title}
            try:
                _Swept.model_validate({kind: {name: variant}})
            except ValidationError as error:
                reason = _reason(error.errors(include_url=False)[0])
                raise SrpoError(f"{where}: sweep.values = {value:.12g} for {request.key} of {of}: {reason}") from error
            variants[of][name] = variant
    replaced: dict[str, Any] = {}
    for name, definition in raw[kind].items():
        replaced |= variants.get(name) or {name: definition}
    blocks = [
        block | {kind: [new for name in block.get(kind) or [] for new in variants.get(str(name), [name])]}
        for block in raw["matrix"]
    ]
    of_each = {
        name: {"of": of, "value": value}
        for of, named in variants.items()
        for name, value in zip(named, request.values, strict=True)
    }
    titles = {of: raw[kind][of]["title"] for of in request.of}
    sweep = {"kind": kind, "key": request.key, "label": request.label, "titles": titles, "variants": of_each}
    return {kind: replaced, "matrix": blocks, "sweep": sweep}


def _sweepable(definition: dict[str, Any], kind: str, name: str, key: str, where: str, asked: str) -> dict[str, Any]:
    """A method or model with its defaults, if ``key`` is one of its numbers; ``asked`` is the file's key that names it.

    Raises:
        SrpoError: if it is not; the message lists the keys that are numbers.
    """
    checked = getattr(_validate(_Swept, {kind: {name: definition}}, where), kind)[name].model_dump(mode="json")
    numbers = _numbers(checked)
    if key not in numbers:
        what = f"a number of {kind[:-1]} {name}; " + (f"there is {', '.join(numbers)}" if numbers else "it has none")
        raise SrpoError(f"{where}: {asked} = {key}: not {what}")
    return checked


def _numbers(definition: dict[str, Any], prefix: str = "") -> list[str]:
    """The keys of all numbers; keys of nested mappings have dots."""
    found = []
    for key, value in definition.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(f"{prefix}{key}")
    return found


def _with(definition: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with another value of ``key``, a path with dots."""
    first, _, rest = key.partition(".")
    return definition | {first: _with(definition[first], rest, value) if rest else value}


# ---------------------------------------------------------------- files and errors


def _load_named(kind: str, name: str, config_root: Path, where: str) -> dict[str, Any]:
    folder = config_root / kind
    path = folder / f"{name}.yaml"
    if "/" in name and kind != "benchmarks":
        raise SrpoError(f"{where}: {kind[:-1]} {name!r}: only benchmarks are in folders")
    if not all(map(_NAME.fullmatch, name.split("/"))):
        raise SrpoError(
            f"{where}: {kind[:-1]} {name!r}: a name has letters (A to Z), digits, points, hyphens and "
            "underscores, and begins with a letter, digit or underscore"
        )
    if kind == "methods" and name == "base":
        raise SrpoError(f"{where}: method 'base': this name is reserved for the untrained model; rename the file")
    if not path.is_file():
        known = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))
        hint = "".join(f"; {near}" for near in [_nearest(name, known)] if near)
        raise SrpoError(f"{where}: unknown {kind[:-1]} {name!r}{hint}; {folder} has {', '.join(known)}")
    content = _read_yaml(path)
    if content.setdefault("name", short_name(name)) != short_name(name):
        raise SrpoError(
            f"{path}: name = {content['name']!r}: a {kind[:-1]} has the name of its file; leave the key out"
        )
    return content


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SrpoError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        raise SrpoError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SrpoError(f"{path}: a mapping is expected, found {type(content).__name__}")
    return content


def _validate(model: type[Config], raw: dict[str, Any], where: str) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        # report an unknown key first: another error may only say that the correctly spelt key is missing
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        loc = first["loc"]
        if loc[:1] in (("models",), ("benchmarks",)) or loc[:2] == ("training", "clock"):
            loc = loc[:2] + loc[3:]  # pydantic adds the kind as third element
        key = ".".join(str(part) for part in loc)
        value = "" if not key or first["type"] in ("missing", "extra_forbidden") else f" = {first['input']!r}"
        value = value if len(value) < 200 else ""
        subject = f"{key}{value}: " if key else ""
        unknown = first["type"] == "extra_forbidden"
        reason = _unknown_key(str(loc[-1]), _keys_beside(model, raw, loc)) if unknown else _reason(first)
        raise SrpoError(f"{where}: {subject}{reason}") from error


def _unknown_key(key: str, known: Iterable[str]) -> str:
    """The message for an unknown key, with the key that was probably meant."""
    known = [*known]
    if _RENAMED.get(key) in known:
        return f"unknown key; it is called {_RENAMED[key]} now"
    return "; ".join(part for part in ("unknown key", _nearest(key, known)) if part)


def _nearest(name: str, known: Iterable[str]) -> str:
    return "".join(f"did you mean {near}?" for near in difflib.get_close_matches(name, [*known], n=1))


def _keys_beside(model: type[Config], raw: Any, loc: Sequence[int | str]) -> list[str]:
    """The keys of the configuration class at a place of ``model``.

    If several classes are possible, the one with the most of the given keys is taken.
    """
    kind: Any = model
    for part in loc[:-1]:
        raw = raw[part]
        field = getattr(kind, "model_fields", {}).get(part)
        kind = field.annotation if field else None
    if not (isinstance(kind, type) and issubclass(kind, Config)):
        of_kind = [each for each in _subclasses(Config) if _is_of_kind(each, raw.get("kind"))] or _subclasses(Config)
        kind = max(of_kind, key=lambda each: len(each.model_fields.keys() & raw.keys()))
    return [*kind.model_fields]


def _is_of_kind(model: type[Config], kind: Any) -> bool:
    return "kind" in model.model_fields and kind in get_args(model.model_fields["kind"].annotation)


def _subclasses(kind: type[Config]) -> list[type[Config]]:
    return [found for each in kind.__subclasses__() for found in (each, *_subclasses(each))]


def _reason(error: Mapping[str, Any]) -> str:
    """pydantic's error as one short sentence."""
    if error["type"] == "union_tag_invalid":
        return f"kind = {error['ctx']['tag']}: give one of {error['ctx']['expected_tags']}"
    message = {"extra_forbidden": "unknown key", "union_tag_not_found": "the key kind is missing"}.get(
        error["type"], error["msg"].removeprefix("Value error, ")
    )
    quote = "; quote it" if error["type"] == "string_type" and isinstance(error["input"], int | float) else ""
    return f"{message[0].lower()}{message[1:]}{quote}"
