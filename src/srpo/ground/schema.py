"""What typed YAML files are made of: a frozen base class that refuses unknown keys, bounded numbers; dotted keys."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

Positive = Annotated[float, Field(gt=0, lt=1e30)]
"""With room for what float32 makes of it, as for the next two."""
NotNegative = Annotated[float, Field(ge=0, lt=1e30)]
AtLeastOne = Annotated[float, Field(ge=1, lt=1e30)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
"""A learning rate. Adam moves a weight by about this much: above 1 nothing of a model is left."""

REPOSITORY = r"^[\w.-]*\w[\w.-]*/[\w.-]*\w[\w.-]*$"
"""On GitHub or the Hugging Face hub; neither name has points only."""


Title = Annotated[str, Field(pattern=r"^[^\r\n]*\S[^\r\n]*$")]
"""What the report calls something: one line."""


class Config(BaseModel):
    """Base of every configuration class: unknown keys are errors, numbers are finite, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    gone: ClassVar[Mapping[str, Any]] = {}
    """Keys of an earlier version, with the value that changed nothing, or ``...`` for any: its files have them."""

    @model_validator(mode="wrap")
    @classmethod
    def _true_is_no_number(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """pydantic reads ``true`` as 1, so that ``success_buffer: true`` would keep one response."""
        if cls.gone and isinstance(raw, Mapping):
            raw = {key: value for key, value in raw.items() if key not in cls.gone or cls.gone[key] not in (value, ...)}
        made = handler(raw)
        for key, value in raw.items() if isinstance(raw, Mapping) else ():
            if _true_became_a_number(value, getattr(made, key)):
                raise ValueError(f"{key} = {str(value).lower()}: give a number")
        return made


def _true_became_a_number(given: Any, made: Any) -> bool:
    if isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        return any(map(_true_became_a_number, given, made))
    if isinstance(given, Mapping) and isinstance(made, Mapping):
        return any(_true_became_a_number(value, made.get(key)) for key, value in given.items())
    return isinstance(given, bool) and not isinstance(made, bool)


_WHOLE = ("budget_seconds", "families", "step_seconds")
"""Mappings whose keys are the user's own: one replaces another."""


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the keys of ``own``, nested ones too; what is of another ``kind`` than in ``base`` replaces it."""
    inner = {
        key: merged(of_base, value)
        for key, value in own.items()
        if isinstance(value, Mapping) and isinstance(of_base := base.get(key), Mapping) and key not in _WHOLE
        if value.get("kind", of_base.get("kind")) == of_base.get("kind")
    }
    return {**base, **own, **inner}


def flattened(nested: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The values of a nested mapping by the path of their keys, ``training.clock.kind``."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = flattened(value, separator) if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}{separator}{path}" if path else key: each for path, each in inner.items()}
    return flat
