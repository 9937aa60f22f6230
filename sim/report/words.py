"""Numbers and tables as text."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.table import Table

from sim.statistics import Spread

WIDTH = 100
BAR_WIDTH = 12


def render(parts: Iterable[RenderableType], width: int = WIDTH) -> list[str]:
    """Rich renderables as plain lines of at most *width* columns."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def with_half_width(value: Spread) -> str:
    """``607.1 +- 5.2``, or the mean alone where no interval exists."""
    if value.half_width is None:
        return number(value.mean)
    return f"{number(value.mean)} +- {value.half_width:.{decimals(value.mean)}f}"


def number(value: float) -> str:
    """Enough digits to tell neighbours apart, and no more."""
    return f"{value:.{decimals(value)}f}"


def decimals(value: float) -> int:
    """Decimal places that leave about four significant digits."""
    return 1 if abs(value) >= 100 else 2


def value(drawn: object) -> str:
    """A drawn value, in few digits where it is a number."""
    return f"{drawn:.4g}" if isinstance(drawn, float) else str(drawn)


def percent(share: float) -> str:
    """``12.3 %``."""
    return f"{100 * share:.1f} %"


def side_by_side(left: RenderableType, right: RenderableType) -> Table:
    """Two tables beside each other."""
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_row(left, right)
    return grid
