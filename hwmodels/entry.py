"""What every catalog file has: a name, notes, and figures with their provenance."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from hwmodels.documents import Strict
from hwmodels.estimate import Source


class Figure(Strict):
    """A non-negative number with its provenance."""

    value: float = Field(ge=0)
    source: Source
    ref: str = Field(min_length=3)
    """The repository, paper, datasheet or derivation behind the value."""
    range: tuple[float, float] | None = None
    """Low and high end of what is not known, where a source gives one."""

    @field_validator("source", mode="before")
    @classmethod
    def _any_case(cls, source: Any) -> Any:
        """Reports print sources in capitals, so they may be written so."""
        return source.lower() if isinstance(source, str) else source

    @model_validator(mode="after")
    def _value_lies_in_range(self) -> Self:
        if self.range and not self.range[0] <= self.value <= self.range[1]:
            raise ValueError(
                f"value {self.value} lies outside its range {list(self.range)}"
                " (an entry that extends another inherits its range; range: null takes it away)"
            )
        return self

    @property
    def spread(self) -> float:
        """Relative one-sigma uncertainty: a range is read as +- 2 sigma."""
        if not self.range or not self.value:
            return 0.0
        return (self.range[1] - self.range[0]) / 4 / self.value


class Entry(Strict):
    """What every catalog file has."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    """Names that publications use for it, in lower case; not inherited."""
    unlike: tuple[str, ...] = ()
    """Others that an alias would take for it, in lower case; a text with all words of one means that one."""
    notes: tuple[str, ...] = ()
