"""Quantile functions keep the mean and the distribution of their samples, and blend slice by slice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hwmodels.quantiles import LEVELS, Blend, Quantiles

times = st.lists(st.floats(1e-7, 1e-2), min_size=1, max_size=60)


@given(times)
def test_the_mean_is_that_of_the_samples(samples: list[float]) -> None:
    assert Quantiles.of(samples).mean == pytest.approx(np.mean(samples), rel=1e-9)


@given(times)
def test_slices_rise_from_the_least_sample_to_the_largest(samples: list[float]) -> None:
    slices = Quantiles.of(samples).seconds
    assert slices.shape == (LEVELS,)
    assert (np.diff(slices) >= 0).all()
    assert slices[0] == pytest.approx(min(samples), rel=1e-6)
    assert slices[-1] == pytest.approx(max(samples), rel=1e-6)


@given(times, st.randoms())
def test_the_order_of_the_samples_does_not_matter(samples: list[float], luck: object) -> None:
    shuffled = list(samples)
    luck.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Quantiles.of(samples).seconds.tolist() == Quantiles.of(shuffled).seconds.tolist()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40, unique=True))
def test_every_sample_has_its_share_of_the_slices(samples: list[int]) -> None:
    slices = Quantiles.of(samples).seconds
    share = LEVELS / len(samples)
    for sample in samples:
        # The slices that hold nothing else, and a part of two more at most.
        pure = np.isclose(slices, sample, rtol=1e-9).sum()
        assert share - 2 < pure < share + 1


def test_a_thousand_samples_are_the_slices() -> None:
    samples = np.random.default_rng(1).lognormal(size=LEVELS)
    assert Quantiles.of(samples).seconds == pytest.approx(np.sort(samples))


@pytest.mark.parametrize("count", [10, 137, 1000, 5000])
def test_slices_are_distributed_as_the_samples(count: int) -> None:
    samples = np.random.default_rng(count).lognormal(size=count)
    distance = stats.ks_2samp(Quantiles.of(samples).seconds, samples, method="asymp").statistic
    assert distance <= 1 / min(count, LEVELS) + 2 / LEVELS


@given(times, times, st.floats(0, 1))
def test_a_blend_lies_between_its_parts_slice_by_slice(
    first: list[float], second: list[float], share: float
) -> None:
    parts = (Quantiles.of(first), Quantiles.of(second))
    blend = Blend("made_up", parts, (1 - share, share))
    low, high = (f(parts[0].seconds, parts[1].seconds) for f in (np.minimum, np.maximum))
    assert (blend.seconds >= low * (1 - 1e-9)).all()
    assert (blend.seconds <= high * (1 + 1e-9)).all()
    assert blend.mean == pytest.approx(blend.seconds.mean())
    assert blend.mean == pytest.approx((1 - share) * np.mean(first) + share * np.mean(second))


def test_a_blend_is_as_uncertain_as_its_least_certain_part() -> None:
    parts = (Quantiles.of([1.0], 0.01), Quantiles.of([2.0], 0.03))
    assert Blend("made_up", parts, (0.5, 0.5)).relative_error == 0.03


def test_a_pickled_blend_draws_the_same() -> None:
    blend = Blend("made_up", (Quantiles.of([1.0, 3.0]),), (1.0,))
    assert pickle.loads(pickle.dumps(blend)).seconds.tolist() == blend.seconds.tolist()
