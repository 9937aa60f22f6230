"""B against A with everything drawn that is not known: the same unknown takes the same quantile in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.comparison.odds import Odds, odds
from sim.comparison.runs import Runs
from sim.setup import Setup
from sim.uncertainty.parameters import Parameter, Parameters, draws
from sim.uncertainty.response import Outcomes, Response


@dataclass(frozen=True, eq=False)
class Drawn:
    """A scenario's unknowns, and its throughput at every draw of them."""

    parameters: Parameters
    outcomes: Outcomes


@dataclass(frozen=True, eq=False, kw_only=True)
class Unknown:
    """What B does against A in draws of the unknowns of both."""

    shared: tuple[str, ...]
    """Names, as A has them, of unknowns that are the same in both."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    without_luck: Odds
    """Of mean throughput."""
    with_luck: Odds
    """Of one run each: draw i with the luck of run i on both sides."""


def draw_together(
    sides: Sequence[tuple[Setup, Runs]], count: int, seed: int, advance: Callable[[], None]
) -> list[Drawn] | None:
    """*count* draws of the unknowns of all *sides* together; None where all is known of all.

    *advance* hears of every draw of every side.
    """
    responses = [Response(setup, runs=runs.results) for setup, runs in sides]
    if not any(response.parameters.items for response in responses):
        return None
    values = draws([response.parameters for response in responses], count, seed)
    return [
        Drawn(response.parameters, response.outcomes(drawn, advance))
        for response, drawn in zip(responses, values, strict=True)
    ]


def _drawn_as(side: Drawn, parameter: Parameter) -> tuple[str, str]:
    """The same where two sides draw an unknown together: from its prior, or from the same posterior."""
    known = side.parameters.posterior
    if known is None or parameter.identity not in known.place:
        return parameter.identity, ""
    return parameter.identity, "" if known.stored is None else known.stored.sha256


def unknown(a: Drawn, b: Drawn, confidence: float) -> Unknown:
    """*b* against *a*, draw by draw."""
    of_a, of_b = ({_drawn_as(side, item): item.name for item in side.parameters} for side in (a, b))
    return Unknown(
        shared=tuple(name for identity, name in of_a.items() if identity in of_b),
        only_a=tuple(name for identity, name in of_a.items() if identity not in of_b),
        only_b=tuple(name for identity, name in of_b.items() if identity not in of_a),
        without_luck=odds(a.outcomes.mean_tok_s, b.outcomes.mean_tok_s, confidence),
        with_luck=odds(a.outcomes.run_tok_s, b.outcomes.run_tok_s, confidence),
    )
