"""Closed forms of collectives: hand values and the order between algorithms."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.collectives import (
    multicast_allreduce,
    one_shot_allreduce,
    ring_allgather,
    ring_allreduce,
    two_shot_allreduce,
)

Form = Callable[[float, int, float, float], float]
FORMS = [ring_allreduce, one_shot_allreduce, two_shot_allreduce, multicast_allreduce, ring_allgather]
every_form = pytest.mark.parametrize("form", FORMS)
sizes = st.floats(0, 1e9)
ranks = st.integers(1, 64)
alphas = st.floats(0, 1e-4)
bandwidths = st.floats(1e9, 1e12)


# 1 MB over 8 ranks at 100 GB/s and 2 us a hop, by hand.
@pytest.mark.parametrize(
    ("form", "us"),
    [
        (ring_allreduce, 14 * 2 + 17.5),
        (one_shot_allreduce, 2 + 70),
        (two_shot_allreduce, 4 + 17.5),
        (multicast_allreduce, 2 + 10),
        (ring_allgather, 14 + 8.75),
    ],
)
def test_a_megabyte_over_eight_ranks(form: Form, us: float) -> None:
    assert form(1e6, 8, 2e-6, 100e9) * 1e6 == pytest.approx(us)


@every_form
@given(sizes, alphas, bandwidths)
def test_one_rank_sends_nothing(form: Form, size: float, alpha: float, bandwidth: float) -> None:
    assert form(size, 1, alpha, bandwidth) == 0


@every_form
@given(sizes, st.floats(0, 1e9), ranks, alphas, bandwidths)
def test_more_bytes_never_take_less(
    form: Form, size: float, more: float, n: int, alpha: float, bandwidth: float
) -> None:
    assert form(size + more, n, alpha, bandwidth) >= form(size, n, alpha, bandwidth)


@every_form
@given(sizes, ranks, st.integers(0, 64), alphas, bandwidths)
def test_more_ranks_never_take_less(
    form: Form, size: float, n: int, more: int, alpha: float, bandwidth: float
) -> None:
    fewer = form(size, n, alpha, bandwidth)
    assert form(size, n + more, alpha, bandwidth) >= fewer * (1 - 1e-12)


@every_form
@given(sizes, ranks, alphas, bandwidths, st.floats(1, 100))
def test_twice_the_link_halves_the_transfer(
    form: Form, size: float, n: int, alpha: float, bandwidth: float, factor: float
) -> None:
    faster = form(size, n, alpha / factor, bandwidth * factor)
    assert faster * factor == pytest.approx(form(size, n, alpha, bandwidth))


@given(sizes, ranks, alphas, bandwidths)
def test_multicast_never_loses_to_pushing_to_each_peer(
    size: float, n: int, alpha: float, bandwidth: float
) -> None:
    pushed = one_shot_allreduce(size, n, alpha, bandwidth)
    assert multicast_allreduce(size, n, alpha, bandwidth) <= pushed


@given(sizes, ranks, alphas, bandwidths)
def test_two_shot_never_loses_to_the_ring(size: float, n: int, alpha: float, bandwidth: float) -> None:
    ring = ring_allreduce(size, n, alpha, bandwidth)
    assert two_shot_allreduce(size, n, alpha, bandwidth) <= ring * (1 + 1e-12)


@given(sizes, ranks, bandwidths)
def test_a_ring_moves_its_message_almost_twice(size: float, n: int, bandwidth: float) -> None:
    expected = 2 * size * (n - 1) / (n * bandwidth)
    assert ring_allreduce(size, n, 0.0, bandwidth) == pytest.approx(expected)


@given(sizes, ranks, alphas, bandwidths)
def test_a_gather_is_half_a_ring_allreduce(size: float, n: int, alpha: float, bandwidth: float) -> None:
    both = ring_allreduce(size, n, alpha, bandwidth)
    assert 2 * ring_allgather(size, n, alpha, bandwidth) == pytest.approx(both)
