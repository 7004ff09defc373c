"""What every typed YAML file is made of: a frozen base class that refuses unknown keys, and bounded numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Config(BaseModel):
    """Base of every configuration class: unknown keys are errors, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
