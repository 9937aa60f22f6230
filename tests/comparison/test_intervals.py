"""Intervals of a difference: scipy's own, signs alone when swapped, and they cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sim.comparison.intervals import Certainty, Gap, Pairing, gap
from sim.statistics import MIN_RUNS

VALUES = st.floats(1.0, 1e6)
CERTAINTIES = st.builds(Certainty, st.sampled_from(Pairing), st.sampled_from([0.9, 0.95, 0.99]))


@st.composite
def pairs(draw: st.DrawFn, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    runs = draw(st.integers(least, 20))
    return draw(arrays(float, runs, elements=VALUES)), draw(arrays(float, runs, elements=VALUES))


@given(pairs(), CERTAINTIES)
def test_swapping_the_sides_changes_the_sign_alone(
    sides: tuple[np.ndarray, np.ndarray], how: Certainty
) -> None:
    a, b = sides
    there, back = gap(a, b, how), gap(b, a, how)
    assert there.mean == -back.mean
    assert there.half_width == pytest.approx(back.half_width)
    assert (there.half_width is None) == (len(a) < MIN_RUNS)


@given(pairs(MIN_RUNS), st.sampled_from([0.9, 0.99]))
def test_widths_are_those_of_scipy(sides: tuple[np.ndarray, np.ndarray], confidence: float) -> None:
    a, b = sides
    if min(np.ptp(a), np.ptp(b), np.ptp(b - a)) < 1e-3:
        return
    paired = stats.ttest_rel(b, a).confidence_interval(confidence)
    welch = stats.ttest_ind(b, a, equal_var=False).confidence_interval(confidence)
    for pairing, expected in ((Pairing.COMMON, paired), (Pairing.INDEPENDENT, welch)):
        found = gap(a, b, Certainty(pairing, confidence))
        assert found.half_width == pytest.approx((expected.high - expected.low) / 2, rel=1e-6)
        assert found.mean == pytest.approx((expected.high + expected.low) / 2, rel=1e-6, abs=1e-6)


@given(pairs(MIN_RUNS), CERTAINTIES)
def test_a_surer_interval_is_wider(sides: tuple[np.ndarray, np.ndarray], how: Certainty) -> None:
    alone, together = gap(*sides, how), gap(*sides, how.each_of(3))
    assert alone.half_width is not None
    assert together.half_width is not None
    assert together.half_width >= alone.half_width
    assert how.each_of(1) == pytest.approx(how)


@given(arrays(float, st.integers(1, 20), elements=VALUES), st.sampled_from([0.9, 0.99]))
def test_the_same_on_common_luck_is_exactly_no_difference(values: np.ndarray, confidence: float) -> None:
    found = gap(values, values.copy(), Certainty(Pairing.COMMON, confidence))
    assert found.mean == 0
    assert not found.distinguishable
    assert found.half_width in (0, None)


@pytest.mark.parametrize("pairing", Pairing)
def test_values_that_never_vary_are_told_apart_without_a_width(pairing: Pairing) -> None:
    a, how = np.full(6, 3.0), Certainty(pairing, 0.99)
    assert gap(a, a, how) == Gap(0.0, 0.0)
    assert gap(a, a + 1, how).distinguishable


@pytest.mark.parametrize("pairing", Pairing)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_cover_the_true_difference(pairing: Pairing, confidence: float) -> None:
    generator, trials, covered, widths = np.random.default_rng(5), 2000, 0, 0.0
    how = Certainty(pairing, confidence)
    for _ in range(trials):
        common = generator.standard_normal(8) if pairing is Pairing.COMMON else np.zeros(8)
        a = 5 + common + generator.standard_normal(8)
        b = 7 + common + 3 * generator.standard_normal(8)
        found = gap(a, b, how)
        assert found.half_width is not None
        covered += abs(found.mean - 2) <= found.half_width
        widths += found.half_width
    assert abs(covered / trials - confidence) < 4 * np.sqrt(confidence * (1 - confidence) / trials)
    assert widths > 0


def test_common_luck_cancels() -> None:
    generator = np.random.default_rng(3)
    luck = 10 * generator.standard_normal(30)
    a, b = 100 + luck, 101 + luck + 0.1 * generator.standard_normal(30)
    assert gap(a, b, Certainty(Pairing.COMMON, 0.99)).distinguishable
    assert not gap(a, b, Certainty(Pairing.INDEPENDENT, 0.99)).distinguishable
