"""Distinct experts that a batch of tokens reaches, and work at another context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.work import DType, GqaAttention, MlaAttention, effective_tokens, experts_touched

tokens = st.integers(1, 2000)
shapes = st.integers(1, 512).flatmap(lambda experts: st.tuples(st.just(experts), st.integers(1, experts)))
correlations = st.floats(0, 1)
Shape = tuple[int, int]


# Kimi K2: 384 experts, 8 per token.
@pytest.mark.parametrize(("count", "touched"), [(0, 0), (1, 8), (9, 66.3), (33, 192.3)])
def test_kimi_touches_what_the_closed_form_says(count: int, touched: float) -> None:
    assert experts_touched(count, 384, 8) == pytest.approx(touched, abs=0.05)


@given(tokens, shapes, correlations)
def test_touched_experts_are_bounded(count: int, shape: Shape, rho: float) -> None:
    experts, top_k = shape
    touched = experts_touched(count, experts, top_k, rho)
    assert top_k * (1 - 1e-9) <= touched <= min(experts, count * top_k) * (1 + 1e-9)


@given(tokens, st.integers(0, 2000), shapes, correlations)
def test_more_tokens_never_touch_fewer(count: int, more: int, shape: Shape, rho: float) -> None:
    fewer = experts_touched(count, *shape, rho)
    assert experts_touched(count + more, *shape, rho) >= fewer * (1 - 1e-12)


@given(tokens, shapes, correlations, correlations)
def test_correlated_tokens_touch_fewer(count: int, shape: Shape, first: float, second: float) -> None:
    low, high = sorted([first, second])
    apart = experts_touched(count, *shape, low)
    assert experts_touched(count, *shape, high) <= apart * (1 + 1e-12)


@given(tokens, shapes)
def test_fully_correlated_tokens_share_the_experts_of_one(count: int, shape: Shape) -> None:
    assert experts_touched(count, *shape, 1.0) == pytest.approx(shape[1])


def routed(rng: np.random.Generator, count: int, trials: int) -> np.ndarray:
    """Distinct experts in each of *trials* batches routed uniformly, 8 of 384 per token."""
    scores = rng.random((trials, count, 384), dtype=np.float32)
    chosen = np.argpartition(scores, 8, axis=2)[:, :, :8]
    return np.array([len(np.unique(batch)) for batch in chosen])


@pytest.mark.parametrize("count", [2, 9, 33])
def test_uniform_routing_agrees(count: int) -> None:
    sample = routed(np.random.default_rng(count), count, 400)
    standard_error = sample.std() / np.sqrt(len(sample))
    assert abs(sample.mean() - experts_touched(count, 384, 8)) < 4 * standard_error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 384, 8), "tokens must be >= 0, got -1"),
        ((float("nan"), 384, 8), "tokens must be >= 0, got nan"),
        ((1, 384, 0), r"top_k must be in \[1, 384\], got 0"),
        ((1, 4, 8), r"top_k must be in \[1, 4\], got 8"),
        ((1, 384, 8, 1.5), r"routing_correlation must be in \[0, 1\], got 1.5"),
        ((1, 384, 8, float("nan")), r"routing_correlation must be in \[0, 1\], got nan"),
    ],
)
def test_impossible_routing_is_refused(arguments: tuple[float, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        experts_touched(*arguments)


def test_attention_moves_to_another_context() -> None:
    shape = {"requests": 2, "queries": 3, "heads": 8, "latent": 576, "run_tokens": 16}
    mla = MlaAttention(context=5, dtype=DType.BF16, **shape)
    assert mla.at_context(9) == MlaAttention(context=9, dtype=DType.BF16, **shape)
    gqa = GqaAttention(queries=1, context=5, window=9, heads=8, kv_heads=1, head_dim=128, dtype=DType.BF16)
    assert (gqa.at_context(7).context, gqa.at_context(5)) == (7, gqa)


alike = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
few = st.integers(1, 64)


@given(few, few, alike)
def test_tokens_of_one_request_are_at_least_as_alike_as_those_of_several(
    requests: int, queries: int, rho: list[float]
) -> None:
    between, within = rho
    count = effective_tokens(requests, queries, between, within)
    assert 1 <= count <= requests * queries * (1 + 1e-12)
    assert count <= effective_tokens(requests * queries, 1, between, within) * (1 + 1e-12)


@given(few, st.floats(0, 0.99), st.floats(0, 1))
def test_each_correlation_alone_is_the_plain_one(count: int, between: float, more: float) -> None:
    within = between + (1 - between) * more
    assert effective_tokens(count, 1, between, within) == pytest.approx(1 + (count - 1) * (1 - between))
    assert effective_tokens(1, count, between, within) == pytest.approx(1 + (count - 1) * (1 - within))
    assert effective_tokens(count, 3, between, between) == pytest.approx(1 + (3 * count - 1) * (1 - between))


# Cohere's count on 128 experts at top-8: four tokens of one text, four of unrelated texts.
def test_published_counts_of_touched_experts_follow() -> None:
    assert experts_touched(effective_tokens(1, 4, 0.19, 0.44), 128, 8) == pytest.approx(20.4, abs=0.1)
    assert experts_touched(effective_tokens(4, 1, 0.19, 0.44), 128, 8) == pytest.approx(25.4, abs=0.1)


def test_less_alike_inside_a_request_than_outside_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between <= within"):
        effective_tokens(2, 2, 0.5, 0.4)
