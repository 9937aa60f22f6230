"""The unknowns of several setups together: the same unknown has the same value in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim.calibration.observed import Predicted
from sim.uncertainty.discrepancy import kind_of_system
from sim.uncertainty.parameters import Parameter, Parameters
from sim.uncertainty.posterior import Discrepancy, SystemKind
from sim.uncertainty.response import Response

Array = NDArray[np.float64]
MOST_NAMES = 2
"""Of setups in a label."""
LEAST_TOK_S = 1e-6
"""What decodes nothing is off by enough of that."""


@dataclass(frozen=True, eq=False)
class ForwardModel:
    """One setup as a function of the unknowns of all."""

    predicted: Predicted
    response: Response
    best_tok_s: float
    """Of the response, at the best values."""

    @classmethod
    def of(cls, predicted: Predicted, discrepancies: Mapping[SystemKind, Discrepancy]) -> ForwardModel:
        """*predicted* with everything unknown, *discrepancies* included."""
        setup = predicted.setup
        response = Response(setup, Parameters.with_discrepancy(setup, discrepancies[kind_of_system(setup)]))
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
    def of(cls, models: Iterable[ForwardModel]) -> Unknowns:
        """Those of all *models*."""
        found: dict[str, Parameter] = {}
        owners: dict[str, list[str]] = {}
        every = list(models)
        for forward in every:
            for parameter in forward.response.parameters:
                found[parameter.identity] = parameter
                owners.setdefault(parameter.identity, []).append(forward.predicted.name)
        order = sorted(found)
        labels = (_label(found[identity].name, owners[identity], len(every)) for identity in order)
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


def _label(name: str, owners: Sequence[str], setups: int) -> str:
    if len(owners) == setups:
        return name
    of = list(dict.fromkeys(owners))
    more = f" and {len(of) - MOST_NAMES} more" if len(of) > MOST_NAMES else ""
    return f"{name} ({', '.join(of[:MOST_NAMES])}{more})"


def seen(
    models: Sequence[ForwardModel], unknowns: Unknowns, advance: Callable[[], None]
) -> Callable[[Array], Array]:
    """The logarithms of all *models* as a function of normal values."""

    def model(normals: Array) -> Array:
        """(draws, unknowns) to (draws, models)."""
        return np.column_stack([forward.logs(normals, unknowns, advance) for forward in models])

    return model
