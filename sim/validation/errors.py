"""What can be wrong with a file of cases or of fits, and with one case.

``CasesError`` and ``FitsError`` stop everything: the file cannot be read as it was meant. ``Unpredictable``
stops one prediction: the row names something that nobody here knows.
"""

from __future__ import annotations

from hwmodels.errors import DocumentError
from sim.errors import in_one_line


class CasesError(DocumentError):
    """The *file* of cases is wrong at *line* (1-based, 0 for the whole file), *column*: *problem*."""

    def __init__(self, file: str, line: int, column: str, problem: str) -> None:
        super().__init__(file, line, column, problem)

    def __str__(self) -> str:
        return in_one_line(super().__str__())


class FitsError(DocumentError):
    """The *file* of fits is wrong at *line* (1-based, 0 for the whole file), *key*: *problem*."""


class Unpredictable(Exception):
    """A row cannot be predicted, for this *reason*."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = in_one_line(reason)

    def __str__(self) -> str:
        return self.reason
