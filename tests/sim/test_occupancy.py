"""A whole benchmark beside a batch that is always full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.validation import occupancy as module
from sim.validation.occupancy import occupancy

CV = 0.6
prompts = st.integers(1, 400)
places = st.integers(2, 32)
beyond = st.floats(0.05, 1)
"""Of a step of the full batch, what does not shrink with the requests."""


def alone(places: int, fixed: float) -> float:
    """The step of one request over that of the full batch."""
    return fixed + (1 - fixed) / places


@given(prompts, beyond)
def test_one_place_is_always_taken(count: int, share: float) -> None:
    assert occupancy(count, 1, share, CV) == 1


@settings(max_examples=20)
@given(prompts, places, beyond)
def test_a_drain_costs_something_and_leaves_something(count: int, size: int, fixed: float) -> None:
    assert 1 / size <= occupancy(count, size, alone(size, fixed), CV) < 1


@settings(max_examples=20)
@given(prompts, places)
def test_where_a_step_is_in_proportion_to_its_requests_a_drain_costs_nothing(count: int, size: int) -> None:
    assert occupancy(count, size, 1 / size, CV) == pytest.approx(1)


@settings(max_examples=15)
@given(prompts, places, beyond)
def test_more_prompts_for_each_place_matter_less(count: int, size: int, fixed: float) -> None:
    few, share = max(count, size), alone(size, fixed)
    assert occupancy(few, size, share, CV) < occupancy(4 * few, size, share, CV)


@settings(max_examples=15)
@given(prompts, places, st.floats(0, 0.9))
def test_the_more_of_a_step_is_fixed_the_more_a_drain_costs(count: int, size: int, fixed: float) -> None:
    less, more = (occupancy(count, size, alone(size, share), CV) for share in (fixed, fixed + 0.1))
    assert less > more


def test_equal_answers_in_full_rounds_leave_nothing_empty() -> None:
    assert module._one([5.0] * 12, 4, 0.3) == pytest.approx(1)


# Two places, answers of 1 and 3 steps: one step of both, then two of one alone.
@pytest.mark.parametrize(("share", "expected"), [(1.0, 4 / 6), (0.5, 1.0)])
def test_the_drain_of_two_requests(share: float, expected: float) -> None:
    assert module._one([1.0, 3.0], 2, share) == pytest.approx(expected)


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=30), st.integers(2, 3))
def test_a_step_that_does_not_depend_on_the_batch_counts_the_places_taken(
    lengths: list[float], size: int
) -> None:
    """Against requests placed one by one where a place is free first."""
    free = np.zeros(size)
    for length in [*lengths[:size], *lengths[size:][::-1]]:
        free[free.argmin()] += length
    assert module._one(lengths, size, 1.0) == pytest.approx(sum(lengths) / (size * free.max()))


@pytest.mark.parametrize("size", [4, 16])
def test_answers_that_differ_more_leave_more_places_empty(size: int) -> None:
    shares = [occupancy(80, size, 0.5, cv) for cv in (0.0, 0.3, 0.6, 1.0)]
    assert shares == sorted(shares, reverse=True)
