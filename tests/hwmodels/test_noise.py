"""Noise factors: their mean, deviation and minimum, and the normals they consume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hwmodels.noise import MAX_CV, SHAPE, lognormal_factor

SAMPLES = 200_000
EXCESS_KURTOSIS = sum(w * np.exp(k * SHAPE**2) for w, k in ((1, 4), (2, 3), (3, 2))) - 6
cvs = st.floats(1e-3, MAX_CV)
seeds = st.integers(0, 2**32)
some_cv = pytest.mark.parametrize("cv", [0.0, 0.02, 0.15, MAX_CV])


def draw(seed: int, count: int, cv: float) -> NDArray[np.float64]:
    return lognormal_factor(np.random.default_rng(seed), (count,), cv)


@some_cv
def test_the_mean_is_one(cv: float) -> None:
    error = draw(1, SAMPLES, cv).mean() - 1
    assert abs(error) <= 4 * cv / np.sqrt(SAMPLES)


@some_cv
def test_the_deviation_is_cv(cv: float) -> None:
    relative_error = np.sqrt((EXCESS_KURTOSIS + 2) / SAMPLES) / 2
    assert draw(2, SAMPLES, cv).std() == pytest.approx(cv, rel=4 * relative_error)


@given(seeds, cvs)
def test_no_factor_is_below_the_minimum(seed: int, cv: float) -> None:
    assert draw(seed, 500, cv).min() >= 1 - cv / MAX_CV - 1e-12


def test_the_minimum_is_approached() -> None:
    # The lowest of 200,000 normals is near -4.4, where the body still stands 0.1 above nothing.
    assert draw(3, SAMPLES, MAX_CV).min() < 0.12


@given(seeds, cvs, cvs)
def test_the_same_normals_are_used_for_any_cv(seed: int, first: float, second: float) -> None:
    scaled = (draw(seed, 20, first) - 1) / first
    assert scaled == pytest.approx((draw(seed, 20, second) - 1) / second)


@given(seeds, st.floats(0, MAX_CV))
def test_the_generator_advances_alike_for_any_cv(seed: int, cv: float) -> None:
    one, other = np.random.default_rng(seed), np.random.default_rng(seed)
    lognormal_factor(one, (3, 2), cv)
    lognormal_factor(other, (3, 2), 0.1)
    assert one.random() == other.random()


@given(st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_factors_have_the_shape_asked_for(shape: tuple[int, int]) -> None:
    assert lognormal_factor(np.random.default_rng(0), shape, 0.1).shape == shape


def test_without_deviation_every_factor_is_one() -> None:
    assert set(draw(4, 100, 0.0)) == {1.0}


def test_the_tail_points_to_longer_times() -> None:
    sample = draw(5, SAMPLES, 0.1)
    assert sample.max() - 1 > 2 * (1 - sample.min())
    assert np.median(sample) < 1


@pytest.mark.parametrize("cv", [-0.01, MAX_CV + 1e-6, 1.0, float("inf"), float("nan")])
def test_a_deviation_out_of_range_is_refused(cv: float) -> None:
    with pytest.raises(ValueError, match=r"cv must lie in \[0, 0.533\], got"):
        draw(0, 1, cv)
