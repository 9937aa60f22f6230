"""Pictures as SVG inside a page: they take its ink, so that they are read on light and dark alike."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.figure import Figure

from sim.pictures import STYLE

INK = "#1b1c1d"
"""Stands for the text colour of the page."""
LEAST_SCALE = 0.75
"""Of a picture on a small screen, which scrolls where it has not even that: its letters are read then."""
INK_STYLE = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
_SIZE = re.compile(r'width="([\d.]+)pt" height="[\d.]+pt" ')
_NAMED = re.compile(r'\bid="|href="#|url\(#')


def inline(draw: Callable[[], Figure], name: str, title: str, description: str) -> Markup:
    """The SVG of what *draw* makes, for people who see it, and *title* and *description* for others.

    *name* is the picture's own on its page: every id in it begins with that.
    """
    stream = io.StringIO()
    with style.context(["default", STYLE, INK_STYLE]):
        draw().savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawn = stream.getvalue()
    body = drawn[drawn.index("<svg ") :].replace(INK, "currentColor")
    body = _NAMED.sub(lambda found: f"{found[0]}{name}-", body)
    width = _SIZE.search(body)
    assert width is not None
    least = LEAST_SCALE * float(width[1])
    size = f"max-width: {width[1]}pt; min-width: {least:g}pt"
    opening = f'role="img" aria-labelledby="{name}-title {name}-description" style="{size}"'
    body = _SIZE.sub(f"{opening} ", body, count=1)
    said = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-description">{escape(description)}</desc>'
    )
    start = body.index(">") + 1
    return Markup(body[:start] + said + body[start:])
