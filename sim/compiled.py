"""Loops over steps and pieces, compiled by numba.

Compiled code is kept beside its source where that can be written, so that only the
first process pays for it. No fast-math: sums keep their order, results their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """*function* in machine code; cached on disk unless no folder for that can be written."""
    try:
        return cast(Function, numba.njit(cache=True)(function))
    except RuntimeError:
        return cast(Function, numba.njit(function))
