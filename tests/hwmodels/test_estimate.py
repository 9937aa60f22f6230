"""Estimates refuse times that are none, and round to whole nanoseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.estimate import Bound, Estimate, Source


def estimate(seconds: float, spread: float = 0.0) -> Estimate:
    return Estimate(
        seconds=seconds, spread=spread, source=Source.ASSUMED, bound=Bound.HOST, evidence="made up"
    )


@pytest.mark.parametrize("seconds", [-1e-12, -1.0, float("nan"), float("inf"), float("-inf")])
def test_impossible_times_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"seconds must be finite and >= 0, got"):
        estimate(seconds)


@pytest.mark.parametrize("spread", [-0.1, float("nan"), float("-inf"), float("inf")])
def test_impossible_spreads_are_refused(spread: float) -> None:
    with pytest.raises(ValueError, match="spread must be finite and >= 0, got"):
        estimate(1.0, spread)


@pytest.mark.parametrize(
    ("seconds", "ns"), [(0, 0), (0.4e-9, 0), (1.4e-9, 1), (1.6e-9, 2), (12.3456e-6, 12_346), (1, 10**9)]
)
def test_nanoseconds_are_rounded(seconds: float, ns: int) -> None:
    assert estimate(seconds).ns == ns


@given(st.floats(0, 1e6))
def test_rounding_moves_a_time_by_half_a_nanosecond_at_most(seconds: float) -> None:
    assert abs(estimate(seconds).ns - seconds * 1e9) <= 0.5


@given(st.integers(0, 10**12))
def test_whole_nanoseconds_survive(ns: int) -> None:
    assert estimate(ns / 1e9).ns == ns


def test_a_source_must_be_given() -> None:
    with pytest.raises(TypeError, match="source"):
        Estimate(seconds=1, spread=0, bound=Bound.HOST, evidence="made up")  # type: ignore[call-arg]


def test_sources_are_listed_best_first() -> None:
    assert [s.value for s in Source] == ["measured", "fitted", "scaled", "datasheet", "assumed"]
