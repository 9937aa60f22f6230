"""Captured batches: the next larger one, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hwmodels import catalog
from hwmodels.captured import BatchUnit, Beyond, Captured, Sizes

VLLM = catalog.stack("vllm").dispatch.captured
SGLANG = catalog.stack("sglang").dispatch.captured
stacks = st.sampled_from([VLLM, SGLANG])


@given(stacks, st.integers(1, 512), st.integers(1, 64), st.integers(1, 8), st.floats(8, 300))
def test_a_batch_takes_the_next_captured_size(
    captured: Captured, requests: int, queries: int, ranks: int, gib: float
) -> None:
    held = captured.padded(requests, queries, ranks, gib)
    if held is None:
        assert captured.padded(requests + 1, queries, ranks, gib) is None
    else:
        assert held >= requests
        assert captured.padded(held, queries, ranks, gib) == held
        assert captured.padded(1, queries, ranks, gib) == 1


@pytest.mark.parametrize(
    ("captured", "requests", "queries", "held"),
    [
        (VLLM, 3, 1, 4),
        (VLLM, 9, 1, 16),
        (VLLM, 257, 1, 272),
        (VLLM, 512, 1, 512),
        # Seen in a server log at 6 tokens a request: 24 and 36 tokens are captured, 30 are not.
        (VLLM, 4, 6, 4),
        (VLLM, 5, 6, 6),
        (VLLM, 16, 33, None),
        (VLLM, 1, 513, None),
        (SGLANG, 9, 1, 12),
        (SGLANG, 17, 1, 24),
        (SGLANG, 5, 9, 5),
        (SGLANG, 17, 9, 18),
        (SGLANG, 33, 9, 40),
    ],
)
def test_published_sizes(captured: Captured, requests: int, queries: int, held: int | None) -> None:
    assert captured.padded(requests, queries, 8, 141.0) == held


@pytest.mark.parametrize(
    ("ranks", "gib", "most"),
    [(1, 24, 24), (4, 32, 80), (2, 48, 32), (2, 95, 256), (8, 95, 512), (1, 180, 512)],
)
def test_smaller_gpus_capture_less(ranks: int, gib: float, most: int) -> None:
    assert SGLANG.padded(most, 1, ranks, gib) == most
    assert SGLANG.padded(most + 1, 1, ranks, gib) is None


@pytest.mark.parametrize("runs", [[(4, 4, 1), (1, 2, 1)], [(1, 2, 1), (2, 4, 1)], [(2, 1, 1)]])
def test_sizes_that_do_not_rise_are_refused(runs: list[tuple[int, int, int]]) -> None:
    plain = tuple(Sizes(first=first, last=last, step=step) for first, last, step in runs)
    with pytest.raises(ValidationError, match="captured sizes must rise"):
        Captured(unit=BatchUnit.TOKENS, plain=plain, beyond=Beyond.EAGER, ref="made up")


def test_a_gpu_of_just_the_size_is_not_below_it() -> None:
    for entry in SGLANG.largest:
        below, at = (SGLANG.limit(1, gib) for gib in (entry.below_gib - 0.01, entry.below_gib))
        assert below == entry.up_to_3_ranks
        assert at != below
