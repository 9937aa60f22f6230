"""Compiled loops give what the same loops give in Python, and need no folder to be kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from sim.compiled import compiled


def add_up(values: np.ndarray) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_sums_keep_their_order() -> None:
    """With fast-math the ones would be added up apart from what swallows them."""
    values = np.array([1e16, *[1.0] * 64, -1e16, *[0.1] * 64])
    assert compiled(add_up)(values) == add_up(values)


def test_where_no_folder_can_be_written_code_is_compiled_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, asked = numba.njit, []

    def njit(function: Callable[..., object] | None = None, **options: Any) -> Any:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return honest(function, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(add_up)(np.ones(3)) == 3
    assert asked == [{"cache": True}, {}]
