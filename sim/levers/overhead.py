"""Whether overhead dominates: the host against the experts, and the articles' own count."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from sim.article import Overhead, article_overhead
from sim.levers.effects import Effect
from sim.levers.kinds import Degree, Lever
from sim.levers.study import Study
from sim.levers.words import gain, per_cent, share, table_of

ALIKE = 1.1
"""Two gains within this factor of one another are called alike."""
OVERHEAD_NOTE = (
    "Shares are of the step; host: Python scheduling, launches, copies and synchronisation, tree build; the"
    " rest: all but the experts."
)
ARTICLES_NOTE = " The articles call that overhead; their figures are of their own closed form."


def overhead(studies: Sequence[Study]) -> list[RenderableType]:
    """Whether overhead dominates: a row a scenario, the articles' own count beside it."""
    compared = [found for study in studies if (found := _weighed_parts(study)) is not None]
    if not compared:
        return []
    claims = [article_overhead(parts.study.setup) for parts in compared]
    head = ("does overhead dominate?", "host", "if free", "experts", "if free", "the rest", "if free")
    table = table_of(*head, *(["in the articles"] if any(claims) else []))
    for parts, claim in zip(compared, claims, strict=True):
        cells = [
            cell
            for effect in (parts.host, parts.experts, parts.rest)
            for cell in (share(effect), gain(parts.study, effect, Degree.FREE))
        ]
        table.add_row(Text(parts.study.name), *cells, "" if claim is None else _claimed(claim))
    verdicts = [
        Text(f"{parts.study.name}: {_weighed(parts)} {_sentence(dominates(parts.host, parts.rest))}")
        for parts in compared
    ]
    return [table, Text(OVERHEAD_NOTE + (ARTICLES_NOTE if any(claims) else "")), *verdicts]


class WeighedParts(NamedTuple):
    """The parts of a step that are set against one another."""

    study: Study
    host: Effect
    experts: Effect
    rest: Effect
    """All but the experts."""


def _weighed_parts(study: Study) -> WeighedParts | None:
    """None for a model without experts."""
    host, experts, rest = (study.effect(lever) for lever in (Lever.HOST, Lever.EXPERTS, Lever.REST))
    if host is None or experts is None or rest is None:
        return None
    return WeighedParts(study, host, experts, rest)


def _claimed(claim: Overhead) -> str:
    """``86.4 % (12.5 of 14.5 ms)``."""
    return f"{per_cent(claim.share)} ({claim.rest_ms:.1f} of {claim.step_ms:.1f} ms)"


def _weighed(parts: WeighedParts) -> str:
    """Which of the two brings more when free."""
    base = parts.study.base.tok_s
    of_host, of_experts = (log(effect.tok_s[Degree.FREE] / base) for effect in (parts.host, parts.experts))
    if of_host > ALIKE * of_experts:
        return "The host weighs more than the experts."
    if of_experts > ALIKE * of_host:
        return "The experts weigh more than the host."
    return "Host and experts weigh about the same."


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def dominates(host: Effect, rest: Effect) -> str:
    """Whether overhead is more than half of the step, counted as host work, or as the articles do."""
    if (host.share or 0.0) > 0.5:
        return "overhead dominates, host work alone"
    if (rest.share or 0.0) > 0.5:
        return "overhead dominates as the articles count it, all but the experts, but not as host work"
    return "overhead does not dominate, however it is counted"
