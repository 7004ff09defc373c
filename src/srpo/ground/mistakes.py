"""What a mistake in typed YAML says: pydantic's words, one line for each, with the file and the key."""

import pkgutil
from typing import Any, TypeVar

from pydantic import ValidationError

from srpo.ground.errors import SrpoError
from srpo.ground.schema import Config

Model = TypeVar("Model", bound=Config)


def validated(model: type[Model], raw: Any, where: str) -> Model:
    """``raw`` as a ``model``."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise SrpoError("\n".join(f"{where}: {line}" for line in lines_of(error))) from error


def lines_of(error: ValidationError) -> list[str]:
    """A line for each mistake: the key, the value, and what is wrong with it."""
    lines = []
    for each in error.errors(include_url=False):
        key, value = ".".join(map(str, each["loc"])), repr(each["input"])
        given = f" = {value}" if key and each["type"] not in ("missing", "extra_forbidden") and len(value) < 200 else ""
        said = "unknown key" if each["type"] == "extra_forbidden" else each["msg"].removeprefix("Value error, ")
        lines.append(": ".join(filter(None, [key + given, said])))
    return lines


def resolve_own(name: str) -> Any:
    """A module of the user's, or what it has: ``module`` or ``module:function``."""
    try:
        return pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name}: cannot be imported ({error!r}); its folder must be in PYTHONPATH") from error
