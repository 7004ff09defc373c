"""What typed YAML files are made of: a frozen base class that refuses unknown keys, bounded numbers; dotted keys."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Config(BaseModel):
    """Base of every configuration class: unknown keys are errors, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def flattened(nested: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The values of a nested mapping by the path of their keys, ``training.clock.kind``."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = flattened(value, separator) if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}{separator}{path}" if path else key: each for path, each in inner.items()}
    return flat
