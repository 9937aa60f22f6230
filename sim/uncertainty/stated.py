"""How a scenario file states a distribution: ``{uniform: [12, 16]}``, ``{normal: [1.5, 0.2]}`` and so on."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from hwmodels.documents import Strict
from sim.uncertainty import priors
from sim.uncertainty.priors import Prior

Option = bool | int | float | str
FORMS = ("uniform", "normal", "lognormal", "choice", "from_")


class Own(StrEnum):
    """What a figure says of itself."""

    RANGE = "range"
    """Its range, read as two sigma on either side."""
    FIT = "fit"
    """Whatever it states: a range, the error of its table or fit, or what its source leaves open."""


class Distribution(Strict):
    """What is not known about one value. Give exactly one form."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    uniform: tuple[float, float] | None = None
    """Lowest and highest value."""
    normal: tuple[float, float] | None = None
    """Mean and standard deviation."""
    lognormal: tuple[float, float] | None = None
    """Median and relative standard deviation (0.05 is 5 %)."""
    choice: tuple[Option, ...] | None = Field(default=None, min_length=1)
    """Equally likely values; one alone fixes it."""
    from_: Own | None = Field(default=None, alias="from")
    """range: the figure's own range; fit: whatever it or its table states."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name.rstrip("_") for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(name.rstrip("_") for name in FORMS)
            raise ValueError(f"give exactly one of {known}; got {' and '.join(given) or 'none'}")
        if self.uniform is not None and not self.uniform[0] <= self.uniform[1]:
            raise ValueError(f"uniform must not fall, got {list(self.uniform)}")
        if self.normal is not None and not self.normal[1] > 0:
            raise ValueError(f"normal needs a standard deviation above 0, got {self.normal[1]:g}")
        if self.lognormal is not None and not (self.lognormal[0] > 0 and self.lognormal[1] > 0):
            raise ValueError(f"lognormal needs a median and a spread above 0, got {list(self.lognormal)}")
        return self

    @property
    def prior(self) -> Prior:
        """The distribution itself; ValueError for ``from``, which only a figure can answer."""
        if self.uniform is not None:
            return priors.Uniform(*self.uniform)
        if self.normal is not None:
            return priors.Normal(*self.normal)
        if self.lognormal is not None:
            return priors.Lognormal(*self.lognormal)
        if self.choice is not None:
            return priors.Choice(self.choice)
        raise ValueError("what a figure states is the figure's to say")


class Named(dict[str, Distribution]):
    """Distributions by key. Nothing changes them once a scenario holds them, so that it can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


Distributions = Annotated[dict[str, Distribution], AfterValidator(Named)]
