"""Distributions: their quantiles are those that were stated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.uncertainty import priors
from sim.uncertainty.priors import Choice, Coarse, Integers, Lognormal, Normal, Prior, Ranged, Uniform, Whole

FINE = (np.arange(4096) + 0.5) / 4096
positive = st.floats(0.01, 1e4)


@st.composite
def ranged(draw: st.DrawFn) -> Ranged:
    low, value, high = sorted(draw(st.tuples(positive, positive, positive)))
    return Ranged(value, low, high)


numeric = st.one_of(
    st.builds(lambda low, width: Uniform(low, low + width), positive, positive),
    st.builds(Normal, positive, positive),
    st.builds(Lognormal, positive, st.floats(0.0, 1.0)),
    ranged(),
)


@pytest.mark.parametrize(
    ("prior", "cdf"),
    [
        (Uniform(12, 16), stats.uniform(12, 4).cdf),
        (Normal(1.5, 0.2), stats.norm(1.5, 0.2).cdf),
        (Lognormal(6300, 0.05), stats.lognorm(np.sqrt(np.log1p(0.05**2)), scale=6300).cdf),
    ],
)
def test_draws_have_the_stated_distribution(prior: Prior, cdf: object) -> None:
    drawn = prior.at(np.random.default_rng(3).random(4000))
    assert stats.kstest(drawn, cdf).pvalue > 0.01
    # The test has teeth: a tenth of a standard deviation away it fails.
    assert stats.kstest(drawn + 0.1 * drawn.std(), cdf).pvalue < 0.01


@given(numeric)
def test_values_never_fall_in_the_quantile(prior: Prior) -> None:
    assert (np.diff(prior.at(FINE)) >= 0).all()


@given(ranged())
def test_a_range_is_two_sigma_on_either_side_and_never_left(prior: Ranged) -> None:
    sigmas = stats.norm.cdf([-2, 0, 2])
    assert prior.at(sigmas) == pytest.approx([prior.low, prior.value, prior.high])
    drawn = prior.at(np.array([0.0, *FINE, 1.0]))
    assert drawn.min() >= prior.low
    assert drawn.max() <= prior.high


@given(st.lists(st.integers(), min_size=1, max_size=9, unique=True))
def test_choices_are_equally_likely(options: list[int]) -> None:
    drawn = Choice(tuple(options)).at((np.arange(len(options) * 100) + 0.5) / (len(options) * 100))
    assert [int((drawn == option).sum()) for option in options] == [100] * len(options)


def test_choices_keep_their_types() -> None:
    drawn = Choice(("host", 8, True)).at(np.array([0.0, 0.5, 1.0])).tolist()
    assert drawn == ["host", 8, True]
    assert [type(value) for value in drawn] == [str, int, bool]


def test_whole_numbers_are_equally_likely_to_both_ends() -> None:
    drawn = Integers(4, 9).at(np.array([0.0, *((np.arange(600) + 0.5) / 600), 1.0]))
    assert np.unique(drawn, return_counts=True)[1][1:-1].tolist() == [100] * 4
    assert (drawn.min(), drawn.max()) == (4, 9)


@given(numeric)
def test_coarse_values_lie_where_those_of_their_part_do(prior: Prior) -> None:
    drawn = Coarse(prior).at(FINE)
    assert len(np.unique(drawn)) <= priors.VALUES
    fine = prior.at(FINE).reshape(priors.VALUES, -1)
    assert (fine[:, 0] <= drawn.reshape(priors.VALUES, -1)[:, 0]).all()
    assert (drawn.reshape(priors.VALUES, -1)[:, -1] <= fine[:, -1]).all()


@given(numeric)
def test_whole_values_are_whole_and_near(prior: Prior) -> None:
    drawn, exact = Whole(prior).at(FINE), prior.at(FINE)
    assert (drawn == np.rint(drawn)).all()
    assert (abs(drawn - exact) <= 0.5).all()
