"""Chances of being faster: ties are halves, swapping turns them round, intervals hold what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.comparison.odds import TIE, odds

# Whole numbers tie now and then; 0 is a draw that leaves no room for a request.
THROUGHPUTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60)


def sides(found: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.array(found, dtype=float).T
    return a, b


@given(THROUGHPUTS)
def test_swapping_the_sides_turns_the_odds_round(found: list[tuple[int, int]]) -> None:
    a, b = sides(found)
    there, back = odds(a, b, 0.99), odds(b, a, 0.99)
    assert there.faster + back.faster == pytest.approx(1)
    assert (there.ties, there.stuck) == (back.ties, back.stuck)
    assert np.allclose(there.ratios * back.ratios, 1)
    assert np.allclose(there.faster_interval, [1 - end for end in reversed(back.faster_interval)])


@given(THROUGHPUTS)
def test_what_was_seen_lies_in_the_interval(found: list[tuple[int, int]]) -> None:
    a, b = sides(found)
    seen = odds(a, b, 0.99)
    low, high = seen.faster_interval
    assert 0 <= low <= seen.faster <= high <= 1
    assert seen.wins + seen.ties + odds(b, a, 0.99).wins == seen.count == len(found)
    assert seen.stuck == sum(not one or not other for one, other in found)
    assert (seen.quantiles is None) == (seen.stuck == seen.count)
    if seen.quantiles is not None:
        assert sorted(seen.quantiles) == list(seen.quantiles)


def test_the_last_digits_of_sums_decide_nothing() -> None:
    a = np.array([100.0, 200.0])
    seen = odds(a, a * (1 + TIE / 10), 0.99)
    assert (seen.wins, seen.ties, seen.faster) == (0, 2, 0.5)
    assert odds(a, a * (1 + 100 * TIE), 0.99).wins == 2


def test_a_side_that_has_no_room_loses() -> None:
    seen = odds(np.array([0.0, 5.0, 5.0, 0.0]), np.array([5.0, 0.0, 10.0, 0.0]), 0.99)
    assert (seen.wins, seen.ties, seen.stuck) == (2, 1, 3)
    assert seen.ratios.tolist() == [2.0]


def test_more_draws_make_the_chance_surer() -> None:
    def width(count: int) -> float:
        low, high = odds(np.tile([1.0, 2.0], count), np.full(2 * count, 1.5), 0.99).faster_interval
        return high - low

    assert width(10) > 1.5 * width(100) > 0
