"""What a mistake in typed YAML says: one line that names the key, the value, what is allowed and what was meant."""

import difflib
import pkgutil
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import PurePath
from types import NoneType
from typing import Any, get_args

from pydantic import ValidationError

from srpo.inputs.errors import SrpoError
from srpo.inputs.schema import REPOSITORY, Config

_ALIASES = {
    "batch_size": "questions_per_batch",
    "beta": "entropy_beta (a KL penalty's is kl_coef)",
    "budgets": "budget_seconds",
    "clip_ratio": "clip_ratio_low and clip_ratio_high",
    "ema_decay": "teacher_update_rate = 1 - ema_decay",
    "ema_rate": "teacher_update_rate",
    "epsilon": "clip_ratio_low and clip_ratio_high",
    "epsilon_high": "clip_ratio_high",
    "file": "path",
    "gpu_memory_utilization": "rollout_memory_fraction",
    "gpus": "ranks",
    "lr": "learning_rate",
    "max_completion_length": "max_response_length",
    "n_gpus_per_node": "ranks",
    "num_generations": "rollouts_per_question",
    "ppo_mini_batch_size": "mini_batch_questions",
    "search": "variants",
    "sweep": "variants",
    "tensor_model_parallel_size": "rollout_tensor_parallel",
    "test_freq": "validate_every",
    "top_k": "distillation_topk",
    "train_batch_size": "questions_per_batch",
}
"""Names of verl, TRL and papers, and the keys here, with what else is to be said; only messages use them."""

_KEYS = {name: said.split()[0] for name, said in _ALIASES.items()}


def validated(
    model: type[Config],
    raw: dict[str, Any],
    where: str,
    problems: dict[str, str] | None = None,
    only: Collection[str] = (),
    places: Mapping[str, Collection[str]] | None = None,
) -> Any:
    """``raw`` as a ``model``.

    Args:
        problems: lines about mistakes found before, by the key that was probably meant. A key that such a line
            explains is not missing.
        only: keys of ``raw`` whose mistakes count; default: all.
        places: where other keys belong, in words.

    Raises:
        SrpoError: with one line for each mistake.
    """
    problems = problems or {}
    explained = {*problems}
    valid, errors = None, []
    try:
        valid = model.model_validate(raw)
    except ValidationError as error:
        # unknown keys first: they explain why the correctly spelt key is missing
        errors = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    for each in errors:
        path, what, value = _path(raw, each), "", repr(each["input"])
        key = ".".join(map(str, path))
        if (only and not {*path[:1]} & {*only}) or (each["type"] == "missing" and key in explained):
            continue
        if each["type"] == "extra_forbidden":
            name, known = str(path[-1]), _keys_beside(model, raw, path)
            given = _at(raw, path[:-1]).keys() - {_KEYS.get(name)}
            # rather a key that is not given yet: wrong_no_sibling beside wrong_with_sibling
            near = nearest(name, [key for key in known if key not in given]) or nearest(name, known)
            explained.add(".".join(map(str, (*path[:-1], near))))
            likely = _ALIASES[name] if near and near == _KEYS.get(name) else near
            if each["input"] in known:
                likely = f"{each['input']}: {name}"
            elsewhere = section(name, places or {})
            exact = f"; {name} belongs" in elsewhere and not (likely or "").startswith(f"{name}_")
            listed = f"; there is {', '.join(known)}" if len(known) < 6 else ""
            what = f"unknown key{elsewhere if exact else hint(likely) or elsewhere or listed}"
        elif key and each["type"] != "missing" and len(value) < 200:
            key = f"{key} = {value}"
        line = ": ".join(filter(None, [where, key, what or reason(each) + _also_valid(model, path, each)]))
        problems.setdefault(str(path), line)
    if problems:
        raise SrpoError("\n".join(problems.values()))
    return valid


def _path(raw: Any, error: Mapping[str, Any]) -> tuple[int | str, ...]:
    """The key that pydantic's error is about. Its ``loc`` has the kinds of unions among the keys."""
    path: list[int | str] = []
    for last, part in enumerate(error["loc"], 1 - len(error["loc"])):
        if (isinstance(raw, Mapping) and part in raw) or (isinstance(raw, Sequence) and isinstance(part, int)):
            raw = raw[part]
            path.append(part)
        elif not last and error["type"] == "missing":
            path.append(part)
    return tuple(path)


def _at(raw: Any, path: Iterable[int | str]) -> Any:
    for part in path:
        raw = raw[part]
    return raw


def hint(likely: str | None) -> str:
    return f"; did you mean {likely}?" if likely else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, in whatever case it was written."""
    by_folded = {each.casefold(): each for each in known}
    word = name.casefold()
    ends = [each for each in by_folded if each.startswith(f"{word}_") or each.endswith(f"_{word}")]
    near = ends if len(ends) == 1 else difflib.get_close_matches(word, by_folded, n=1)
    found = [_KEYS[word]] if _KEYS.get(word) in by_folded else near
    return by_folded[found[0]] if found else None


def section(key: str, places: Mapping[str, Collection[str]]) -> str:
    """The end of a message about a key that belongs elsewhere; empty if it belongs into none of ``places``."""
    named = key if any(key in each for each in places.values()) else _ALIASES.get(key.casefold(), key)
    found = [place for place, each in places.items() if named.split()[0] in each]
    return f"; {named} belongs into {found[0]}" if found else ""


def _keys_beside(model: type[Config], raw: Any, path: Sequence[int | str]) -> list[str]:
    """The keys of the configuration class that has the last key of ``path``; of several, the one most like ``raw``."""
    classes = [each for annotation in _annotations(model, path[:-1]) for each in _classes(annotation)]
    raw = _at(raw, path[:-1])

    def likeness(each: type[Config]) -> tuple[bool, int]:
        kind = each.model_fields.get("kind")
        return kind is not None and raw.get("kind") in get_args(kind.annotation), len(each.model_fields.keys() & raw)

    return [*max(classes, key=likeness).model_fields]


def _also_valid(model: type[Config], path: Sequence[int | str], error: Mapping[str, Any]) -> str:
    """The end of a message: the kinds that a mapping may have or its keys, and whether the key may be null."""
    annotations = _annotations(model, path)
    classes = [each for annotation in annotations for each in _classes(annotation)]
    kinds = [get_args(each.model_fields["kind"].annotation) for each in classes if "kind" in each.model_fields]
    names = ", ".join(repr(kind) for each in kinds for kind in each)
    keys = ", ".join(key for each in classes[:1] for key in each.model_fields if len(each.model_fields) < 6)
    listed = {
        "union_tag_not_found": f"; give one of {names}",
        "model_attributes_type": f": one of {names}",
        "model_type": f" with {keys}" * bool(keys),
    }.get(error["type"], "")
    # the file's own rules (value_error) are about more than one key; another kind of model or benchmark may allow null
    no_null = error["type"] in ("value_error", "missing") or error["input"] is None
    null = not no_null and any(NoneType in get_args(each) for each in annotations)
    return listed + (", or null" if null else "")


def _annotations(model: type[Config], path: Iterable[int | str]) -> list[Any]:
    """The types that the value at ``path`` may have."""
    annotations: list[Any] = [model]
    for part in path:
        classes = [each for annotation in annotations for each in _classes(annotation)]
        fields = [each.model_fields[part].annotation for each in classes if part in each.model_fields]
        # a key of a mapping, or a number in a list
        inner = [each for annotation in annotations for each in get_args(annotation) if each is not NoneType]
        annotations = fields or inner
    return annotations


def _classes(annotation: Any) -> list[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    return [found for part in get_args(annotation) for found in _classes(part)]


_PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]*$": "give small letters, digits, hyphens and underscores; a letter or digit is first",
    r"^[0-9a-f]{64}$": "give the 64 digits of a SHA-256",
    r"^[0-9a-f]{40}$": "give the 40 digits of a commit",
    r"^[\w.-]+==[\w.]+$": "give NAME==VERSION",
    r"^(@[\w.-]+/)?[\w.-]+@\d[\w.-]*$": "give NAME@VERSION",
    REPOSITORY: "give OWNER/NAME",
}
"""What a pattern of a configuration class asks for."""


def _listed(given: str | float, count: bool) -> str:
    """What is given for a list as its items: all numbers of 1-5, and of a ``count``."""
    span = re.fullmatch(r"(\d{1,3})-(\d{1,3})", f"1-{given}" if count and given != 0 else str(given))
    numbers = range(int(span[1]), int(span[2]) + 1) if span else range(0)
    return ", ".join(map(str, numbers)) if 0 < len(numbers) <= 10 else str(given)


def reason(error: Mapping[str, Any]) -> str:
    """pydantic's error as one short sentence."""
    if error["type"] == "union_tag_invalid":
        return f"kind = {error['ctx']['tag']}: give one of {error['ctx']['expected_tags']}"
    context, given = error.get("ctx", {}), error["input"]
    seeds = isinstance(given, int) and error["loc"][-1:] == ("seeds",)
    extends = "; did you forget extends: embedded, or extends: real-cpu?"
    inherited = error["loc"] in (("scale",), ("training",))
    items = f", such as [{_listed(given, seeds)}]" if isinstance(given, str | int | float) else ""
    items = " of blocks with models, benchmarks and methods" if error["loc"] == ("matrix",) else items
    message = {
        "missing": f"field required{extends * inherited}",
        "extra_forbidden": "unknown key",
        "union_tag_not_found": "the key kind is missing",
        "model_attributes_type": "give a mapping with the key kind",
        "model_type": "give a mapping",
        "too_short": f"give at least {context.get('min_length')}",
        "path_type": "give a path",
        "list_type": f"give a list{items}",
        "dict_type": f"give a mapping{', such as {1h: 3600}' if 'budget_seconds' in error['loc'][-1:] else ''}",
        **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "give a whole number"),
        **dict.fromkeys(("float_type", "float_parsing"), "give a number"),
        **({"string_pattern_mismatch": words} if (words := _PATTERNS.get(context.get("pattern", ""))) else {}),
    }.get(error["type"], f"{error['msg'][0].lower()}{error['msg'][1:]}".removeprefix("value error, "))
    quote = "; quote it" if error["type"] == "string_type" and isinstance(given, int | float | date) else ""
    return f"{message}{quote}"


def resolve_own(name: str) -> Any:
    """A module of the user's, or what it has: ``module`` or ``module:function``.

    Raises:
        ValueError: if it cannot be imported. It may fail in any way, and exit.
    """
    try:
        return pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split()) * isinstance(error, Exception) or repr(error)
        module = name.partition(":")[0]
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        where = "; install the module, or name its folder in PYTHONPATH" if absent else ""
        if "/" in module or module.endswith(".py"):
            where = f"; give the module's name, {PurePath(module).stem}, and its folder in PYTHONPATH"
        raise ValueError(f"{name}: cannot be imported ({why}){where}") from error
