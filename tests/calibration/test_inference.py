"""Laws of the inference: against what can be worked out exactly, and by coverage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sim.calibration.inference import (
    Evidence,
    Normal,
    effective_sample_size,
    importance_sample,
    linearised,
    mixed,
    quantiles,
    resampled,
)

Array = NDArray[np.float64]
DRAWS = 2048


class Linear(NamedTuple):
    """A model that is a line, and what was measured."""

    slopes: Array
    evidence: Evidence

    def __call__(self, values: Array) -> Array:
        return np.asarray(values @ self.slopes.T + 1.0)


@st.composite
def linears(draw: st.DrawFn) -> Linear:
    unknowns, rows = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sds = rng.uniform(0.05, 1.0, rows)
    return Linear(rng.normal(0, 0.5, (rows, unknowns)), Evidence(1 + rng.normal(0, 0.7, rows), sds))


def exact(model: Linear, rows: list[int]) -> Normal:
    """The posterior by the textbook's formula for precisions."""
    slopes, count = model.slopes[rows], model.slopes.shape[1]
    precision = np.eye(count) + slopes.T @ np.diag(model.evidence.sds[rows] ** -2.0) @ slopes
    covariance = np.linalg.inv(precision)
    missed = (model.evidence.logs[rows] - 1) / model.evidence.sds[rows] ** 2
    return Normal(covariance @ slopes.T @ missed, covariance)


@settings(max_examples=25)
@given(linears())
def test_a_linear_model_has_the_posterior_of_the_textbook(model: Linear) -> None:
    found = importance_sample(model, model.evidence, model.slopes.shape[1], DRAWS, 1)
    every = list(range(len(model.evidence.logs)))
    for left_out in (None, *every) if len(every) > 1 else (None,):
        weights, true = found.weights(left_out), exact(model, [row for row in every if row != left_out])
        mean = weights @ found.values
        sds = np.sqrt(weights @ (found.values - mean) ** 2)
        expected = np.sqrt(np.diag(true.covariance))
        rough = 4 / np.sqrt(effective_sample_size(weights))
        assert np.abs(mean - true.mean).max() < rough
        assert np.abs(sds / expected - 1).max() < rough


@settings(max_examples=25)
@given(linears())
def test_the_posterior_of_a_line_is_the_textbooks(model: Linear) -> None:
    every = range(len(model.evidence.logs))
    found, true = linearised(model, np.zeros(model.slopes.shape[1])), exact(model, list(every))
    assert found.slopes == pytest.approx(model.slopes)
    assert found.posterior(model.evidence, every).mean == pytest.approx(true.mean)
    assert found.posterior(model.evidence, every).covariance == pytest.approx(true.covariance)


@settings(max_examples=25)
@given(linears(), st.integers(0, 100))
def test_draws_weigh_the_prior_over_the_mixture(model: Linear, seed: int) -> None:
    """The mean of prior over proposal is 1 under the proposal, whatever it is."""
    found = importance_sample(model, model.evidence, model.slopes.shape[1], DRAWS, seed)
    ratios = np.exp(found.log_ratio)
    assert float(ratios.mean()) == pytest.approx(1, abs=5 * float(ratios.std()) / np.sqrt(DRAWS) + 0.02)
    # A fifth of the pool comes from the prior: no draw can stand for more than five.
    assert ratios.max() <= 5.1
    # Before anything is learnt the same draws, weighted, are standard normal.
    rough = 5 / np.sqrt(effective_sample_size(found.prior_weights))
    assert np.abs(found.prior_weights @ found.values).max() < rough
    assert np.abs(found.prior_weights @ found.values**2 - 1).max() < 1.5 * rough


def test_what_no_measurement_meets_stays_as_it_was() -> None:
    model = Linear(np.array([[0.8, 0.0, 0.5]]), Evidence(np.array([2.0]), np.array([0.1])))
    found = importance_sample(model, model.evidence, 3, DRAWS, 1)
    weights = found.weights()
    mean = float(weights @ found.values[:, 1])
    assert mean == pytest.approx(0, abs=0.1)
    assert float(weights @ found.values[:, 1] ** 2) == pytest.approx(1, abs=0.1)


def test_without_a_measurement_the_posterior_is_the_prior() -> None:
    model = Linear(np.array([[0.8, 0.5]]), Evidence(np.array([3.0]), np.array([0.1])))
    found = linearised(model, np.zeros(2)).posterior(model.evidence, [])
    assert found.mean == pytest.approx([0, 0])
    assert found.covariance == pytest.approx(np.eye(2))


@given(st.integers(1, 5), st.integers(0, 50))
def test_a_mixture_of_one_distribution_is_that_distribution(parts: int, seed: int) -> None:
    one = Normal(np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]]))
    values, log_density = mixed([one] * parts, np.full(parts, 1 / parts), 64, seed)
    assert log_density == pytest.approx(one.log_density(values))


weights_of = st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda found: sum(found) > 1e-3)


@given(weights_of, st.integers(1, 200), st.integers(0, 9))
def test_rows_are_taken_as_often_as_they_weigh(raw: list[float], count: int, seed: int) -> None:
    weights = np.array(raw) / sum(raw)
    taken = np.bincount(resampled(weights, count, seed), minlength=len(weights))
    assert taken.sum() == count
    assert (np.abs(taken - count * weights) < 1 + 1e-6).all()


@given(weights_of)
def test_the_effective_size_lies_between_one_and_all(raw: list[float]) -> None:
    weights = np.array(raw) / sum(raw)
    assert 1 - 1e-9 <= effective_sample_size(weights) <= len(weights) + 1e-9
    assert effective_sample_size(np.full(8, 1 / 8)) == pytest.approx(8)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30, unique=True), st.floats(0.01, 0.99))
def test_weights_stand_for_repeats(values: list[float], level: float) -> None:
    """A value that weighs three times as much is a value that is there three times."""
    times = np.arange(len(values)) % 3 + 1
    held = np.array(values)
    found = quantiles(held, times / times.sum(), np.array([level]))[0]
    repeated = np.sort(np.repeat(held, times))
    near = np.clip([level * len(repeated) - 3, level * len(repeated) + 3], 0, len(repeated) - 1).astype(int)
    assert repeated[near[0]] - 1e-9 <= found <= repeated[near[1]] + 1e-9
    assert held.min() <= found <= held.max()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30, unique=True))
def test_the_middle_is_the_median_and_both_tails_are_alike(values: list[float]) -> None:
    held = np.array(values)
    even = np.full(len(held), 1 / len(held))
    low, middle, high = quantiles(held, even, np.array([0.2, 0.5, 0.8]))
    assert middle == pytest.approx(np.median(held))
    assert quantiles(-held, even, np.array([0.2, 0.8])) == pytest.approx([-high, -low])


CASES = 400
BENT = np.array([[0.30, 0.15, 0.05, 0.0, 0.08], [0.12, -0.10, 0.25, 0.04, 0.0]])


def bent(values: Array) -> Array:
    """A model with a kink and a curve, as steps have."""
    straight = values @ BENT.T
    return np.asarray(straight + 0.05 * np.maximum(values[:, :1], 0.3) + 0.01 * values[:, 1:2] ** 2)


def test_intervals_cover_what_they_say() -> None:
    """True values are drawn from the prior and measured; 90 % intervals hold 90 % of them."""
    rng = np.random.default_rng(7)
    sds, levels = np.array([0.03, 0.05]), np.array([0.05, 0.95])
    covered = np.zeros(BENT.shape[1])
    for case in range(CASES):
        true = rng.normal(size=BENT.shape[1])
        logs = bent(true[None])[0] + rng.normal(size=2) * sds
        found = importance_sample(bent, Evidence(logs, sds), BENT.shape[1], 256, case)
        weights = found.weights()
        for at, value in enumerate(true):
            low, high = quantiles(found.values[:, at], weights, levels)
            covered[at] += low <= value <= high
    assert (covered >= 0.85 * CASES).all()
    assert (covered <= 0.95 * CASES).all()
    assert 0.88 <= covered.mean() / CASES <= 0.92


@settings(max_examples=10)
@given(linears(), st.integers(0, 100))
def test_errors_of_measurements_have_nothing_to_do_with_unknowns(model: Linear, seed: int) -> None:
    """Two sets of Sobol points would: errors must add their variance to that of what is predicted."""
    found = importance_sample(model, model.evidence, model.slopes.shape[1], DRAWS, seed)
    errors = (found.measured(seed) - found.logs) / model.evidence.sds
    for weights in (found.prior_weights, found.weights()):
        rough = 5 / np.sqrt(effective_sample_size(weights))
        assert np.abs(weights @ errors).max() < rough
        assert np.abs(weights @ errors**2 - 1).max() < 1.5 * rough
        both = np.einsum("d,dm,du->mu", weights, errors, found.values)
        assert np.abs(both).max() < 2 * rough
