"""Errors of the hardware models.

* ``DocumentError``: a YAML file is wrong; names file, line, key and problem.
* ``MeasuredFileError``: a measured file is wrong; names file, line, what was found and what was expected.
* ``HardwareError``: no figure exists for this device and this work.

SimPy re-raises exceptions as ``type(e)(*e.args)`` and process pools pickle them,
so arguments pass through unchanged and the message is formatted in ``__str__``.
"""

from __future__ import annotations


def in_one_line(text: str) -> str:
    """*text* with all that does not print, line ends among it, escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class HardwareError(Exception):
    """There is no figure for this *device* and this *problem*."""

    def __init__(self, device: str, problem: str) -> None:
        super().__init__(device, problem)
        self.device = device
        self.problem = problem

    def __str__(self) -> str:
        return in_one_line(f"{self.device}: {self.problem}")


class DocumentError(Exception):
    """A data file is wrong: *file*, *line* (1-based, 0 for the whole file), *key*, *problem*."""

    def __init__(self, file: str, line: int, key: str, problem: str) -> None:
        super().__init__(file, line, key, problem)
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return in_one_line(f"{place}: {self.key}: {self.problem}" if self.key else f"{place}: {self.problem}")


class MeasuredFileError(DocumentError):
    """The measured *file* is wrong at *line* (1-based, 0 for the whole file): *found*, not *expected*."""

    def __init__(self, file: str, line: int, found: str, expected: str) -> None:
        super().__init__(file, line, "", f"{found}; expected {expected}")
        self.args = (file, line, found, expected)
        self.found = found
        self.expected = expected
