"""Acceptance lengths: closed forms, published figures, sampled frequencies."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import acceptance
from sim.acceptance import (
    AcceptanceModel,
    hazards_from_rates,
    solve_constant_hazard,
)
from sim.graph import IntArray

chances = st.floats(0, 1, allow_subnormal=False)
hazard_vectors = st.lists(chances, max_size=15).map(tuple)
models = st.builds(
    AcceptanceModel,
    hazard_vectors,
    request_sd=st.floats(0, 2),
    step_correlation=st.floats(0, 0.95),
    decay_per_1k_context=st.floats(0, 5),
)
falling_rates = st.lists(chances, min_size=1, max_size=15).map(lambda r: tuple(sorted(r, reverse=True)))
SEEDS = st.integers(0, 2**32)
PUBLISHED_RATES = (0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28)
"""sjug/rtx6kpro@738985b models/kimi-k27-code_v2.md."""
HAZARDS = (0.9, 0.8, 0.7, 0.75, 0.6, 0.5, 0.65)
VARIED = {
    "constant": AcceptanceModel((0.819,) * 7),
    "by position": AcceptanceModel(HAZARDS),
    "never": AcceptanceModel((0.0,) * 7),
    "always": AcceptanceModel((1.0,) * 7),
}


def sample(model: AcceptanceModel, tokens: int, seed: int = 7) -> IntArray:
    """Lengths of one request of *tokens* tokens."""
    return model.draw(np.random.default_rng(seed), tokens)


def first_lengths(model: AcceptanceModel, requests: int, seed: int = 7) -> IntArray:
    """The first length of each of many requests."""
    generator = np.random.default_rng(seed)
    return np.concatenate([model.draw(generator, 1) for _ in range(requests)])


def lag_1(lengths: IntArray) -> float:
    """Autocorrelation of neighbouring steps."""
    return float(np.corrcoef(lengths[:-1], lengths[1:])[0, 1])


@given(models, st.integers(1, 400), SEEDS)
def test_every_length_lies_between_one_and_the_cap(model: AcceptanceModel, tokens: int, seed: int) -> None:
    lengths = sample(model, tokens, seed)
    assert model.cap == len(model.hazards) + 1
    assert lengths.min() >= 1
    assert lengths.max() <= model.cap


@given(models, st.integers(1, 400), SEEDS)
def test_a_request_ends_with_the_step_that_reaches_its_output(
    model: AcceptanceModel, tokens: int, seed: int
) -> None:
    lengths = sample(model, tokens, seed)
    assert lengths.sum() >= tokens > lengths.sum() - lengths[-1]


@given(models, SEEDS)
def test_draws_depend_on_the_generator_and_nothing_else(model: AcceptanceModel, seed: int) -> None:
    first = sample(model, 200, seed)
    sample(model, 50, seed + 1)
    assert sample(model, 200, seed).tolist() == first.tolist()


@given(models, st.integers(1, 400), SEEDS)
def test_lengths_are_those_drawn_one_at_a_time(model: AcceptanceModel, tokens: int, seed: int) -> None:
    one_at_a_time = oracle.lengths(model, np.random.default_rng(seed), tokens)
    assert sample(model, tokens, seed).tolist() == one_at_a_time


@given(models, st.integers(1, 400), SEEDS, st.integers(1, 500))
def test_how_far_is_drawn_ahead_changes_nothing(
    model: AcceptanceModel, tokens: int, seed: int, ahead: int
) -> None:
    usual = sample(model, tokens, seed).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptance, "DRAW_AHEAD", ahead)
        assert sample(model, tokens, seed).tolist() == usual


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_steps_correlate_across_the_ends_of_blocks_as_inside_them(correlation: float) -> None:
    model = AcceptanceModel((0.819,) * 7, step_correlation=correlation)
    lengths, block = sample(model, 600_000), acceptance.DRAW_AHEAD
    last, first = lengths[block - 1 :: block], lengths[block::block]
    shared = min(len(last), len(first))
    across = np.corrcoef(last[:shared], first[:shared])[0, 1]
    assert across == pytest.approx(lag_1(lengths), abs=5 / np.sqrt(shared))


@given(models, st.integers(1, 100), SEEDS)
def test_a_longer_request_begins_like_a_shorter_one(model: AcceptanceModel, tokens: int, seed: int) -> None:
    short, long = sample(model, tokens, seed), sample(model, 2 * tokens, seed)
    assert long[: len(short)].tolist() == short.tolist()


@given(hazard_vectors)
def test_mean_and_distribution_match_their_closed_forms(hazards: tuple[float, ...]) -> None:
    model = AcceptanceModel(hazards)
    assert model.mean_length() == pytest.approx(oracle.mean_length(hazards), abs=1e-9)
    assert model.distribution() == pytest.approx(np.array(oracle.length_distribution(hazards)), abs=1e-9)


@given(models)
def test_the_distribution_sums_to_one_and_agrees_with_the_mean(model: AcceptanceModel) -> None:
    chance = model.distribution()
    assert len(chance) == model.cap
    assert (chance >= -1e-15).all()
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    assert chance @ np.arange(1, model.cap + 1) == pytest.approx(model.mean_length(), abs=1e-9)


@pytest.mark.parametrize("model", VARIED.values(), ids=VARIED.keys())
def test_sampled_frequencies_follow_the_distribution(model: AcceptanceModel) -> None:
    lengths = sample(model, 80_000)
    found = np.bincount(lengths, minlength=model.cap + 1)[1:] / len(lengths)
    chance = model.distribution()
    assert (np.abs(found - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / len(lengths)) + 1e-12).all()


@pytest.mark.parametrize("mean", [1.0, 1.3, 3.7, 4.4, 7.5, 8.0])
def test_the_sampled_mean_lies_within_four_standard_errors_of_the_one_asked_for(mean: float) -> None:
    model = AcceptanceModel((solve_constant_hazard(mean, 8),) * 7)
    lengths = sample(model, 80_000)
    assert abs(lengths.mean() - mean) <= 4 * lengths.std() / np.sqrt(len(lengths))


@given(st.integers(1, 32), chances)
def test_the_solved_hazard_gives_the_mean_asked_for(cap: int, share: float) -> None:
    mean = 1 + share * (cap - 1)
    hazard = solve_constant_hazard(mean, cap)
    assert oracle.mean_length((hazard,) * (cap - 1)) == pytest.approx(mean, abs=1e-9)


@given(st.integers(2, 16), st.floats(0.05, 0.95), st.floats(0, 2))
def test_the_solved_hazard_allows_for_variation_between_requests(cap: int, share: float, sd: float) -> None:
    mean = 1 + share * (cap - 1)
    hazard = solve_constant_hazard(mean, cap, sd)
    assert AcceptanceModel((hazard,) * (cap - 1), sd).mean_length() == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("sd", [0.5, 1.0, 1.5])
def test_variation_between_requests_keeps_the_mean(sd: float) -> None:
    model = AcceptanceModel((solve_constant_hazard(4.4, 8, sd),) * 7, sd)
    lengths = first_lengths(model, 20_000)
    assert abs(lengths.mean() - 4.4) <= 4 * lengths.std() / np.sqrt(len(lengths))
    assert lengths.std() > sample(AcceptanceModel((solve_constant_hazard(4.4, 8),) * 7), 80_000).std()


@pytest.mark.parametrize("sd", [0.5, 1.0])
def test_the_distribution_over_requests_is_the_one_sampled(sd: float) -> None:
    model = AcceptanceModel(HAZARDS, sd)
    found = np.bincount(first_lengths(model, 20_000), minlength=9)[1:] / 20_000
    chance = model.distribution()
    assert (np.abs(found - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / 20_000)).all()


@pytest.mark.parametrize(("sd", "error"), [(0.5, 1e-12), (1.0, 1e-9), (2.0, 1e-5), (5.0, 2e-3)])
def test_the_mean_over_requests_equals_fine_integration(sd: float, error: float) -> None:
    z = np.linspace(-10, 10, 200_001)
    weight = np.exp(-(z**2) / 2)
    means = sum((1 / (1 + np.exp(-(np.log(4) + sd * z)))) ** depth for depth in range(8))
    model = AcceptanceModel((0.8,) * 7, sd)
    assert model.mean_length() == pytest.approx(float((weight * means).sum() / weight.sum()), abs=error)


@pytest.mark.parametrize(("mean", "cap"), [(8.01, 8), (0.99, 8), (1.5, 1), (float("nan"), 8)])
def test_a_mean_beyond_the_cap_is_refused(mean: float, cap: int) -> None:
    with pytest.raises(ValueError, match=rf"mean_length must lie in \[1, {cap}\], got {mean}"):
        solve_constant_hazard(mean, cap)


@pytest.mark.parametrize(("mean", "hazard"), [(3.7, 0.760), (4.4, 0.819), (5.3, 0.878)])
def test_published_means_at_block_8_and_their_hazards(mean: float, hazard: float) -> None:
    assert solve_constant_hazard(mean, 8) == pytest.approx(hazard, abs=0.002)
    assert AcceptanceModel((hazard,) * 7).mean_length() == pytest.approx(mean, abs=0.02)


@given(st.integers(2, 32), st.tuples(chances, chances))
def test_a_longer_mean_needs_a_higher_hazard(cap: int, shares: tuple[float, float]) -> None:
    low, high = sorted(shares)
    assume(high - low > 1e-6)
    first, second = (solve_constant_hazard(1 + share * (cap - 1), cap) for share in (low, high))
    assert first < second


@pytest.mark.parametrize(("hazard", "length"), [(0.0, 1), (1.0, 8)])
@pytest.mark.parametrize("sd", [0.0, 2.0])
def test_certain_hazards_give_certain_lengths(hazard: float, length: int, sd: float) -> None:
    model = AcceptanceModel((hazard,) * 7, sd, step_correlation=0.5, decay_per_1k_context=1.0)
    assert set(sample(model, 300).tolist()) == {length}
    assert model.mean_length() == pytest.approx(length, abs=1e-12)


@given(falling_rates)
def test_rates_give_a_mean_of_one_plus_their_sum(rates: tuple[float, ...]) -> None:
    hazards = hazards_from_rates(rates)
    assert AcceptanceModel(hazards).mean_length() == pytest.approx(1 + sum(rates), abs=1e-9)
    assert list(itertools.accumulate(hazards, lambda a, b: a * b)) == pytest.approx(rates, abs=1e-9)


def test_published_rates_add_up_to_the_published_length() -> None:
    model = AcceptanceModel(hazards_from_rates(PUBLISHED_RATES))
    assert model.mean_length() == pytest.approx(4.73, abs=1e-12)
    assert model.cap == 8


def test_a_position_after_a_rate_of_zero_is_never_reached() -> None:
    assert hazards_from_rates((0.5, 0.0, 0.0)) == (0.5, 0.0, 0.0)


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.8])
def test_correlation_between_steps_leaves_each_step_alone(correlation: float) -> None:
    model = AcceptanceModel(HAZARDS, step_correlation=correlation)
    lengths = sample(model, 150_000)
    found = np.bincount(lengths, minlength=9)[1:] / len(lengths)
    chance = model.distribution()
    effective = len(lengths) * (1 - correlation) / (1 + correlation)
    assert (np.abs(found - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / effective)).all()


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.8])
def test_neighbouring_steps_correlate_nearly_as_asked(correlation: float) -> None:
    lengths = sample(AcceptanceModel((0.819,) * 7, step_correlation=correlation), 100_000)
    assert 0.75 * correlation < lag_1(lengths) < 1.05 * correlation


def test_steps_are_independent_unless_asked() -> None:
    lengths = sample(AcceptanceModel((0.819,) * 7), 100_000)
    assert abs(lag_1(lengths)) < 4 / np.sqrt(len(lengths))


@given(hazard_vectors, st.floats(0, 5), SEEDS)
def test_decay_lowers_every_step_of_the_same_luck(
    hazards: tuple[float, ...], decay: float, seed: int
) -> None:
    steady = sample(AcceptanceModel(hazards), 500, seed)
    decaying = sample(AcceptanceModel(hazards, decay_per_1k_context=decay), 500, seed)
    shared = min(len(steady), len(decaying))
    assert (decaying[:shared] <= steady[:shared]).all()
    assert len(decaying) >= len(steady)


def test_decay_shortens_what_comes_late_and_not_what_comes_first() -> None:
    lengths = sample(AcceptanceModel((0.9,) * 7, decay_per_1k_context=0.5), 6000)
    third = len(lengths) // 3
    early, middle, late = (lengths[i * third : (i + 1) * third].mean() for i in range(3))
    assert early > middle + 0.3
    assert middle > late + 0.3
    model = AcceptanceModel((0.9,) * 7, decay_per_1k_context=0.5)
    assert model.mean_length() == AcceptanceModel((0.9,) * 7).mean_length()


@given(hazard_vectors, st.floats(0, 1), SEEDS)
def test_a_better_drafter_never_draws_a_shorter_length_with_the_same_luck(
    hazards: tuple[float, ...], share: float, seed: int
) -> None:
    better = tuple(hazard + share * (1 - hazard) for hazard in hazards)
    worse_lengths = sample(AcceptanceModel(hazards), 200, seed)
    better_lengths = sample(AcceptanceModel(better), 200, seed)
    shared = min(len(worse_lengths), len(better_lengths))
    assert (better_lengths[:shared] >= worse_lengths[:shared]).all()
