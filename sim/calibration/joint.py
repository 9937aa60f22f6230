"""The unknowns of several setups together: the same unknown has the same value in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim.calibration.observed import Predicted
from sim.uncertainty.lacking import sort_of
from sim.uncertainty.parameters import Parameter, Parameters
from sim.uncertainty.posterior import Lack, Sort
from sim.uncertainty.response import Response

Array = NDArray[np.float64]
MOST_NAMES = 2
"""Of setups in a label."""
LEAST_TOK_S = 1e-6
"""What decodes nothing is off by enough of that."""


@dataclass(frozen=True, eq=False)
class Sight:
    """One setup as a function of the unknowns of all."""

    predicted: Predicted
    response: Response
    best_tok_s: float
    """Of the response, at the best values."""

    @classmethod
    def of(cls, predicted: Predicted, lacks: Mapping[Sort, Lack]) -> Sight:
        """*predicted* with everything unknown, *lacks* included."""
        setup = predicted.setup
        response = Response(setup, Parameters.lacking(setup, lacks[sort_of(setup)]))
        return cls(predicted, response, float(response.throughput(response.parameters.best())[0]))

    def columns(self, unknowns: Unknowns) -> list[int]:
        """Where its own unknowns are."""
        return [unknowns.place[parameter.identity] for parameter in self.response.parameters]

    def logs(self, normals: Array, unknowns: Unknowns, advance: Callable[[], None] = lambda: None) -> Array:
        """(draws,) log tok/s where the unknowns are *normals* (draws, unknowns).

        The step is played without noise and set in proportion to the prediction, which has it.
        """
        own = special.ndtr(normals[:, self.columns(unknowns)])
        # A slope moves one unknown at a time: most leave this setup as it was.
        rows, back = np.unique(own, axis=0, return_inverse=True)
        tok_s = self.response.throughput(self.response.parameters.at(rows))[back.ravel()]
        for _ in range(len(own)):
            advance()
        return np.asarray(np.log(np.maximum(tok_s / self.best_tok_s * self.predicted.tok_s, LEAST_TOK_S)))


@dataclass(frozen=True, eq=False)
class Unknowns:
    """Every unknown of some setups, once, in the order of their identities."""

    items: tuple[Parameter, ...]
    labels: tuple[str, ...]
    """Names; with those of its setups where it is not in all of them."""

    @classmethod
    def of(cls, sights: Iterable[Sight]) -> Unknowns:
        """Those of all *sights*."""
        found: dict[str, Parameter] = {}
        names: dict[str, list[str]] = {}
        every = {sight.predicted.name: sight.response.parameters for sight in sights}
        for name, parameters in every.items():
            for parameter in parameters:
                found[parameter.identity] = parameter
                names.setdefault(parameter.identity, []).append(name)
        order = sorted(found)
        labels = (_label(found[identity].name, names[identity], len(every)) for identity in order)
        return cls(tuple(found[identity] for identity in order), tuple(labels))

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def place(self) -> dict[str, int]:
        """The column of each identity."""
        return {parameter.identity: at for at, parameter in enumerate(self.items)}

    def label(self, parameter: Parameter) -> str:
        """Its name, and whose it is where it is not everybody's."""
        return self.labels[self.place[parameter.identity]]


def _label(name: str, of: Sequence[str], all_of: int) -> str:
    if len(of) == all_of:
        return name
    more = f" and {len(of) - MOST_NAMES} more" if len(of) > MOST_NAMES else ""
    return f"{name} ({', '.join(of[:MOST_NAMES])}{more})"


def seen(
    sights: Sequence[Sight], unknowns: Unknowns, advance: Callable[[], None]
) -> Callable[[Array], Array]:
    """The logarithms of all *sights* as a function of normal values."""

    def model(normals: Array) -> Array:
        """(draws, unknowns) to (draws, sights)."""
        return np.column_stack([sight.logs(normals, unknowns, advance) for sight in sights])

    return model
