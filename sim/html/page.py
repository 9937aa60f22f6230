"""What a report page is made of, and how it becomes one HTML file.

A page is a title, an answer, and sections of blocks; the template knows no more. A report on
anything is therefore a function that returns a Page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


@dataclass(frozen=True)
class Paragraph:
    """Words."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Heading:
    """Of what follows it in its section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Points:
    """A list of words."""

    kind: ClassVar[str] = "points"
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """*rows* under *head*; the first column names the row, *words* are the columns of text beside it."""

    kind: ClassVar[str] = "table"
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()
    groups: Mapping[int, str] = field(default_factory=dict)
    """By the index of its first row, what rows have in common that follow one another."""

    @property
    def is_long(self) -> bool:
        """True where it is shown a part at a time, so that what follows is not far away."""
        return len(self.rows) > MOST_AT_ONCE

    @property
    def is_crowded(self) -> bool:
        """True where paper is too narrow for its columns as they are."""
        return len(self.head) > MOST_ON_PAPER


@dataclass(frozen=True)
class Picture:
    """An inline SVG with the sentence below it."""

    kind: ClassVar[str] = "picture"
    svg: Markup
    caption: str


@dataclass(frozen=True)
class Folded:
    """Preformatted *text* that opens on request."""

    kind: ClassVar[str] = "folded"
    summary: str
    text: str


MOST_AT_ONCE = 24
"""Rows of a table that are shown without scrolling."""
MOST_ON_PAPER = 9
"""Columns of a table that are printed without breaking what is in them."""
ENDINGS = (".html", ".htm")
"""Of a report's name."""
_JOINT = re.compile(r"([._])(?=\w)")
Block = Paragraph | Heading | Points | Table | Picture | Folded


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    anchor: str
    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A report: the *question*, its *answer* in two sentences, and what it rests on."""

    question: str
    about: Sequence[str]
    answer: Sequence[str]
    sections: Sequence[Section]


def render(page: Page) -> str:
    """*page* as one HTML file. Text is escaped; only pictures are markup."""
    environment = Environment(
        loader=PackageLoader("sim.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_typeset,
    )
    environment.filters["breakable"] = _breakable
    return environment.get_template("page.html").render(page=page)


def _breakable(name: str) -> Markup:
    """*name* that may go on in a new line behind a dot or an underscore, as keys do on a narrow screen."""
    return Markup(_JOINT.sub(r"\1<wbr>", str(escape(_typeset(name)))))


def _typeset(value: object) -> object:
    """Text of terminal reports, which have no sign for plus or minus and break no lines before a %."""
    return value.replace("+-", "±").replace(" %", "\u00a0%") if type(value) is str else value
