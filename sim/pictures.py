"""What all pictures share: style, colours, and saving as bytes that depend on nothing but the data."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from sim import files
from sim.graph import Component

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "svg.hashsalt": "specdec-sim",
    "svg.fonttype": "path",
    # A question may speak of dollars.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DPI = 150
COLOURS = "cividis"
"""Rises in lightness, so that it prints in grey."""
CURVE_SIZE = (6.4, 4.2)
LARGEST = 14.0
"""Inches a side."""
TITLE_COLUMNS_PER_INCH = 12
"""Characters of a title of 9 points."""
COMPONENT_COLOURS = {
    Component.EXPERTS: "#1f5fa8",
    Component.DENSE: "#76b0e0",
    Component.ATTENTION: "#e8801c",
    Component.SMALL_KERNELS: "#9a9a9a",
    Component.ALLREDUCE: "#c8313a",
    Component.LM_HEAD: "#7fd0d8",
    Component.DRAFTER: "#2f8f4e",
    Component.TREE: "#a5c93d",
    Component.COPIES: "#f0c430",
    Component.LAUNCH: "#8058b0",
    Component.SCHEDULING: "#d58ac0",
    Component.ACCEPTANCE: "#8a5a3b",
    Component.PREFILL: "#4a4f55",
}
"""One for each component, the same in every picture: neighbours on a lane differ in lightness too."""
BETTER, SLIGHTLY_BETTER, WORSE = "#2f6fb0", "#6596c8", "#c9702b"
"""They stand out from white paper and from a dark page, and from one another in grey."""
WHOLE_COLOUR = "#737373"
"""Of a step as a whole."""
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = "osD^vP"


def write(figures: Iterator[tuple[str, Figure]], folder: Path) -> list[str]:
    """Every figure, under its name, as PNG and SVG in *folder*; the names of the files.

    *figures* makes them one by one, so that they are in our style, whatever the user's own is.
    """
    names = []
    with style.context(["default", STYLE]):
        for stem, figure in figures:
            names += [_saved(figure, folder / f"{stem}.{kind}") for kind in ("png", "svg")]
    return names


def _saved(figure: Figure, path: Path) -> str:
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": "specdec-sim"}
    with files.replacing(path) as temporary, warnings.catch_warnings():
        # A script that the font lacks shows as boxes; the tables have the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(temporary, format=path.suffix[1:], dpi=DPI, metadata=metadata)
    return path.name


def wrapped(lines: Sequence[str], width: float) -> str:
    """A title of 9 points over a figure of *width* inches, each of *lines* on new lines."""
    return "\n".join(textwrap.fill(line, round(width * TITLE_COLUMNS_PER_INCH)) for line in lines)
