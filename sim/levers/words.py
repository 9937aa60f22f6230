"""Gains, shares and tables of levers as text."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sim.levers.effects import Effect
from sim.levers.kinds import Degree
from sim.levers.study import Study

DEGREE_NAMES = {Degree.TENTH: "10 %", Degree.HALF: "50 %", Degree.FREE: "free"}
NO_BOUND = 1e4
"""A bound beyond this says that nothing else is on the critical path."""


def table_of(*columns: str, gap: int = 2) -> Table:
    """An empty table; all but the first of its *columns* are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(Text(columns[0]), no_wrap=True)
    for name in columns[1:]:
        table.add_column(Text(name, justify="right"), justify="right", no_wrap=True)
    return table


def share(effect: Effect) -> str:
    """Of the critical path; empty where no time on it belongs to the lever."""
    return "" if effect.share is None else per_cent(effect.share)


def gain(study: Study, effect: Effect, degree: Degree) -> str:
    """Change of throughput."""
    return change(effect.tok_s[degree] / study.base.tok_s)


def bound(study: Study, effect: Effect) -> str:
    """Amdahl's bound on that change, the lever free."""
    if effect.bound_tok_s is None:
        return ""
    ratio = effect.bound_tok_s[Degree.FREE] / study.base.tok_s
    return "no bound" if ratio > NO_BOUND else change(ratio)


def per_cent(value: float) -> str:
    """A share with one decimal, never -0.0."""
    return f"{abs(value) if abs(value) < 0.0005 else value:.1%}".replace("%", " %")


def change(ratio: float) -> str:
    """A ratio of throughputs as a change; as a factor from 10 on."""
    if ratio >= 10:
        return f"x{ratio:.1f}"
    value = ratio - 1
    return f"{0.0 if abs(value) < 0.0005 else value:+.1%}".replace("%", " %")
