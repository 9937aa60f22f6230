"""Noise factors: their mean, deviation and minimum, and the normals they consume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hwmodels.noise import MAX_CV, SHAPE, factors, log_deviation, lognormal_factor, skewness

SAMPLES = 200_000
EXCESS_KURTOSIS = sum(w * np.exp(k * SHAPE**2) for w, k in ((1, 4), (2, 3), (3, 2))) - 6
cvs = st.floats(1e-3, MAX_CV)
seeds = st.integers(0, 2**32)
shapes = st.floats(0.01, 1.5)
parts = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, MAX_CV)), min_size=1, max_size=60)
"""(mean, cv) of executions one after the other."""
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
    with pytest.raises(ValueError, match=r"cv must lie in \[0, 0\.533\] for this skewness, got"):
        draw(0, 1, cv)


def moments(shape: float, floor: float, scale: float) -> tuple[float, float, float]:
    """Mean, deviation and skewness of ``floor + scale * exp(shape * z)``, from E[exp(k shape z)]."""
    first, second, third = (np.exp(k**2 * shape**2 / 2) for k in (1, 2, 3))
    variance = second - first**2
    central = third - 3 * first * second + 2 * first**3
    return float(floor + scale * first), float(scale * np.sqrt(variance)), float(central / variance**1.5)


def added_up(executions: list[tuple[float, float]]) -> tuple[float, float]:
    """Relative deviation and skewness of the sum of independent *executions*, by its cumulants."""
    mean = sum(m for m, _ in executions)
    variance = sum((m * cv) ** 2 for m, cv in executions)
    third = sum((m * cv) ** 3 for m, cv in executions) * float(skewness(SHAPE))
    return float(np.sqrt(variance)) / mean, third / variance**1.5


@given(shapes)
def test_the_log_deviation_of_a_skewness_is_the_one_it_came_from(shape: float) -> None:
    assert float(log_deviation(skewness(shape))) == pytest.approx(shape, rel=1e-6)


@given(st.floats(0.01, 30))
def test_the_skewness_of_a_log_deviation_is_the_one_it_came_from(skew: float) -> None:
    assert float(skewness(log_deviation(skew))) == pytest.approx(skew, rel=1e-6)


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=5))
def test_many_skewnesses_are_inverted_one_by_one(skews: list[float]) -> None:
    assert log_deviation(skews).tolist() == [float(log_deviation(skew)) for skew in skews]


def test_no_skewness_leaves_a_trace_of_deviation_to_divide_by() -> None:
    assert 0 < float(log_deviation(0.0)) < 1e-6


def test_a_single_execution_is_skewed_by_1_75() -> None:
    # (e^0.25 + 2) sqrt(e^0.25 - 1)
    assert float(skewness(0.5)) == pytest.approx(1.7502, abs=1e-4)


@given(shapes, st.floats(0.001, 1))
def test_factors_have_the_mean_deviation_and_skewness_asked_for(shape: float, share: float) -> None:
    cv = share * float(np.sqrt(np.exp(shape**2) - 1))
    mean, deviation, skew = moments(*map(float, factors(cv, shape)))
    assert mean == pytest.approx(1, abs=1e-9)
    assert deviation == pytest.approx(cv, rel=1e-6)
    # Cumulants of narrow lognormals are small differences of numbers near 1.
    assert skew == pytest.approx(float(skewness(shape)), rel=1e-6, abs=1e-8 / shape**3)


@pytest.mark.parametrize(("cv", "shape"), [(0.1, 0.2), (0.3, 0.5), (0.05, 0.8)])
def test_many_factors_have_the_moments_asked_for(cv: float, shape: float) -> None:
    made = factors(cv, shape)
    drawn = made.floor + made.scale * np.exp(
        made.log_sd * np.random.default_rng(6).standard_normal(2_000_000)
    )
    assert drawn.mean() == pytest.approx(1, abs=1e-3)
    assert drawn.std() == pytest.approx(cv, rel=0.01)
    assert (((drawn - 1) / cv) ** 3).mean() == pytest.approx(float(skewness(shape)), rel=0.05)


@given(parts)
def test_no_sum_of_executions_is_ever_negative(executions: list[tuple[float, float]]) -> None:
    """By Cauchy and Schwarz a sum is skewed enough to stay above nothing; else ValueError."""
    varied = [(mean, cv) for mean, cv in executions if cv > 1e-3] or [(1.0, MAX_CV)]
    still = [(mean, 0.0) for mean, cv in executions if cv <= 1e-3]
    cv, skew = added_up([*varied, *still])
    assert float(factors(cv, log_deviation(skew)).floor) >= -1e-9


@given(parts)
def test_a_sum_of_executions_is_narrower_and_less_skewed_than_its_widest(
    executions: list[tuple[float, float]],
) -> None:
    varied = [(mean, cv) for mean, cv in executions if cv > 1e-3] or [(1.0, MAX_CV)]
    cv, skew = added_up(varied)
    assert cv <= max(one for _, one in varied) * (1 + 1e-9)
    assert float(log_deviation(skew)) <= SHAPE * (1 + 1e-6)


def test_one_factor_too_wide_among_many_is_refused() -> None:
    with pytest.raises(ValueError, match="cv must lie in"):
        factors([0.1, 0.2], [0.5, 0.1])
