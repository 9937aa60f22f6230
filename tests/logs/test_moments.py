"""Pairs of steps: closed forms against the sampler, numerical integration and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.acceptance import AcceptanceModel
from sim.logs import moments
from sim.logs.checks import simulate
from sim.logs.moments import Equations, PairCounts, hazards_per_position, one_hazard
from sim.logs.sums import Steps, Sums, same_output, sums_by_block, sums_by_request, without_last

hazard_lists = st.lists(st.floats(0.05, 0.98), min_size=1, max_size=8)
sds = st.floats(0, 2)
correlations = st.floats(0, 0.9)
request_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=12)
HAZARDS = (0.9, 0.8, 0.7, 0.75, 0.6, 0.5, 0.65)


def survival_of(model: AcceptanceModel) -> np.ndarray:
    return 1 - np.cumsum(model.distribution())[:-1]


def spread_of(model: AcceptanceModel) -> moments.Spread:
    logits = np.log(np.array(model.hazards) / (1 - np.array(model.hazards)))
    return moments.spread(logits, model.request_sd)


@given(hazard_lists, sds)
def test_hazards_are_found_again_from_the_survival_they_give(hazards: list[float], sd: float) -> None:
    logits = hazards_per_position(survival_of(AcceptanceModel(tuple(hazards), sd)), sd)
    assert 1 / (1 + np.exp(-logits)) == pytest.approx(hazards, abs=1e-6)


@given(hazard_lists, sds)
def test_one_hazard_keeps_the_mean(hazards: list[float], sd: float) -> None:
    survival = survival_of(AcceptanceModel(tuple(hazards)))
    found = moments.model(one_hazard(survival, sd), sd, 0.0)
    assert len(set(found.hazards)) == 1
    assert found.mean_length() == pytest.approx(1 + survival.sum(), abs=1e-9)


def test_positions_never_or_always_reached_keep_certain_hazards() -> None:
    assert hazards_per_position(np.array([1.0, 0.5, 0.5, 0.0, 0.0]), 0.4)[[0, 2, 3, 4]].tolist() == [
        np.inf,
        np.inf,
        -np.inf,
        -np.inf,
    ]


@given(hazard_lists, sds)
def test_variance_within_and_between_requests_add_to_the_whole(hazards: list[float], sd: float) -> None:
    model = AcceptanceModel(tuple(hazards), sd)
    chance, lengths = model.distribution(), np.arange(1, model.cap + 1)
    found = spread_of(model)
    whole = chance @ lengths**2 - (chance @ lengths) ** 2
    assert found.between + found.at_lag(1.0) == pytest.approx(whole, abs=1e-6)
    assert found.at_lag(0.0) == 0
    assert (found.waves >= 0).all()


@given(hazard_lists, st.lists(st.floats(-0.95, 0.95), min_size=2, max_size=6))
def test_covariance_rises_with_correlation(hazards: list[float], correlations: list[float]) -> None:
    found = spread_of(AcceptanceModel(tuple(hazards)))
    covariances = [found.at_lag(correlation) for correlation in sorted(correlations)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(covariances))


@pytest.mark.parametrize("correlation", [-0.4, 0.2, 0.6, 0.9])
def test_covariance_at_a_lag_is_that_of_two_normal_latents(correlation: float) -> None:
    survival = survival_of(AcceptanceModel(HAZARDS))
    thresholds = stats.norm.isf(survival)
    both = stats.multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    expected = sum(
        both.cdf([-a, -b]) - stats.norm.sf(a) * stats.norm.sf(b)
        for a, b in itertools.product(thresholds, thresholds)
    )
    assert spread_of(AcceptanceModel(HAZARDS)).at_lag(correlation) == pytest.approx(expected, abs=2e-3)


@given(hazard_lists, st.floats(0, 1.5), correlations, st.integers(10, 60))
def test_parameters_are_found_again_from_the_moments_they_give(
    hazards: list[float], sd: float, correlation: float, steps: int
) -> None:
    # Short requests of very alike steps have two solutions; these are far from that.
    correlation = min(correlation, 0.5)
    survival = survival_of(AcceptanceModel(tuple(hazards), sd))
    equations = Equations(survival, PairCounts((steps,) * 9))
    variance, found = equations.solve(*equations.moments(sd**2, correlation))
    assert variance == pytest.approx(sd**2, abs=2e-3)
    assert found == pytest.approx(correlation, abs=2e-3)


def test_a_variance_below_zero_is_the_mirror_image() -> None:
    equations = Equations(survival_of(AcceptanceModel(HAZARDS)), PairCounts((30,) * 9))
    variance, correlation = equations.solve(*equations.moments(-0.02, -0.1))
    assert (variance, correlation) == (pytest.approx(-0.02, abs=1e-6), pytest.approx(-0.1, abs=1e-6))


@given(request_sizes)
def test_pairs_are_counted_exactly_and_requests_count_the_same(sizes: list[int]) -> None:
    lags = range(2, max(sizes) + 1)
    counts = np.array([[max(0, size - lag) for lag in lags] for size in sizes if size > 2], dtype=float)
    expected = (
        (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0) if len(counts) else np.zeros(len(lags))
    )
    assert PairCounts(tuple(sizes)).shares == pytest.approx(expected)


traces = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=9), min_size=1, max_size=8)


def steps_from(requests: list[list[int]]) -> Steps:
    return Steps(np.concatenate(requests).astype(np.int64), np.array([len(r) for r in requests]))


@given(traces, st.floats(1, 8))
def test_sums_by_request_are_the_means_of_every_pair(requests: list[list[int]], mean: float) -> None:
    found = sums_by_request(steps_from(requests), 7)
    for at, request in enumerate(requests):
        pairs = list(itertools.combinations(range(len(request)), 2))
        off = [length - mean for length in request]
        near = [off[s] * off[t] for s, t in pairs if t - s == 1]
        far = [off[s] * off[t] for s, t in pairs if t - s > 1]
        assert found.near.about(mean)[at] == pytest.approx(np.mean(near or [0]), abs=1e-9)
        assert found.far.about(mean)[at] == pytest.approx(np.mean(far or [0]), abs=1e-9)
        assert (found.near.pairs[at], found.far.pairs[at]) == (bool(near), bool(far))
        assert found.total[at] == pytest.approx(np.mean(request))
        beyond = [np.mean([n > depth for n in request]) for depth in range(1, 8)]
        assert found.beyond[at] == pytest.approx(beyond)


@given(traces)
def test_blocks_hold_every_step_and_every_pair_of_neighbours_once(requests: list[list[int]]) -> None:
    long = [request * 8 for request in requests]
    found, pooled = sums_by_block(steps_from(long), 7), np.concatenate(long)
    neighbours = [(a - 3) * (b - 3) for request in long for a, b in itertools.pairwise(request)]
    assert found.weight.sum() == found.steps == len(pooled)
    assert found.total.sum() == pytest.approx(pooled.sum())
    assert found.near.about(3.0).sum() == pytest.approx(sum(neighbours))
    assert found.near.pairs.sum() == len(neighbours)
    assert found.survival == pytest.approx([np.mean(pooled > depth) for depth in range(1, 8)])


@given(traces)
def test_requests_of_one_size_have_as_many_steps_as_there_are(requests: list[list[int]]) -> None:
    steps = steps_from([request[:1] * 6 for request in requests])
    assert sums_by_request(steps, 7).steps == pytest.approx(len(steps.lengths))


def test_one_long_request_among_short_ones_is_hardly_more_sure() -> None:
    alike, one_long = (sums_by_request(steps_from([[1] * 5] * 9 + [[1] * n]), 7).steps for n in (5, 500))
    assert alike == pytest.approx(50)
    assert one_long == pytest.approx(100 / (9 / 5 + 1 / 500))


def test_outputs_are_one_where_steps_vary_far_more() -> None:
    model, generator = AcceptanceModel(HAZARDS, 0.4, 0.2), np.random.default_rng(1)
    outputs = [[model.draw(generator, tokens).tolist() for _ in range(60)] for tokens in (60, 600)]
    assert all(same_output(steps_from(requests)) for requests in outputs)
    assert not same_output(steps_from([row for requests in outputs for row in requests]))
    assert not same_output(simulate(model, np.full(60, 30), generator))
    assert not same_output(steps_from([[8], [4, 4], [4, 4]]))


@given(traces)
def test_all_but_the_last_step_is_left(requests: list[list[int]]) -> None:
    longer = [[*request, 7] for request in requests]
    found = without_last(steps_from(longer))
    assert found.lengths.tolist() == [n for request in requests for n in request]
    assert found.sizes.tolist() == [len(request) for request in requests]


def test_means_before_the_last_step_have_no_bias() -> None:
    """Eleven steps to an output: with the last, the mean would be a tenth of a token too long."""
    model, generator = AcceptanceModel(HAZARDS), np.random.default_rng(7)
    whole = steps_from([model.draw(generator, 40).tolist() for _ in range(40_000)])
    found, biased = (sums_by_request(steps, 7) for steps in (without_last(whole), whole))
    error = found.total.std() / np.sqrt(40_000)
    assert found.mean == pytest.approx(model.mean_length(), abs=4 * error)
    assert found.survival == pytest.approx(survival_of(model), abs=0.004)
    assert biased.mean - model.mean_length() > 0.08 > 10 * error


def test_the_bias_of_the_pooled_mean_is_taken_out() -> None:
    """Ten requests of four steps: left in, it would be a twelfth of what varies between them."""
    model = AcceptanceModel(HAZARDS, 0.8, 0.3)
    spread = spread_of(model)
    generator = np.random.default_rng(5)
    sizes = np.array([2, 3, 4, 5, 6] * 2)
    logs: list[Sums] = [sums_by_request(simulate(model, sizes, generator), 7) for _ in range(6000)]
    far_shares = PairCounts(tuple(sizes.tolist())).far(spread, 0.3)
    wanted = {"near": spread.between + spread.at_lag(0.3), "far": spread.between + far_shares}
    for name, expected in wanted.items():
        found = np.array([one.covariance(getattr(one, name)) for one in logs])
        error = found.std() / np.sqrt(len(found))
        assert 4 * error < 0.08 * expected
        assert found.mean() == pytest.approx(expected, abs=4 * error)


def test_the_simulated_logs_are_those_of_the_acceptance_model() -> None:
    model = AcceptanceModel(HAZARDS, 0.6, 0.4)
    steps = simulate(model, np.full(20_000, 12), np.random.default_rng(3))
    found = sums_by_request(steps, 7)
    assert found.mean == pytest.approx(model.mean_length(), abs=0.05)
    drawn = [model.draw(np.random.default_rng(seed), 100)[:12] for seed in range(20_000)]
    other = sums_by_request(steps_from(drawn), 7)  # type: ignore[arg-type]
    for name in ("near", "far"):
        here, there = (one.covariance(getattr(one, name)) for one in (found, other))
        assert here == pytest.approx(there, rel=0.06)
    assert found.survival == pytest.approx(other.survival, abs=0.015)
