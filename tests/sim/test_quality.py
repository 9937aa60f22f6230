"""What a tree lands follows from how often the drafter is right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import ddtree
from sim.acceptance import AcceptanceModel, hazards_from_rates
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.quality import TAIL_EXPONENT, DrafterQuality, accepted, marginals

KIMI_RATES = (0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28)
"""Unconditional rates of Kimi K2.6 DFlash on K2.7, 30k prompt (local-inference-lab/rtx6kpro)."""
KIMI_BUDGETS = {7: 4.73, 8: 4.81, 16: 5.18, 32: 5.53, 128: 6.10}
GSM8K_DDTREE = DrafterQuality(4.79, 1.902, 1.809, 0.0463, 0.3)
"""Four parameters fitted to the 4,400 rounds of hxri/ddtreeplus (block 16, budget 128)."""

chances = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).map(np.array)
qualities = st.builds(
    DrafterQuality,
    top1_logit=st.floats(-3, 5),
    depth_slope=st.floats(0, 2),
    step_sd=st.sampled_from([0.0, 0.5, 2.0]),
    easy_share=st.sampled_from([0.0, 0.1, 0.5]),
    off_spine=st.sampled_from([0.0, 0.3, 1.0]),
)


def hazards() -> tuple[float, ...]:
    """The conditional chances behind the unconditional rates."""
    rates = np.array(KIMI_RATES)
    return tuple((rates / np.concatenate([[1.0], rates[:-1]])).tolist())


def mean_length(quality: DrafterQuality, block: int, budget: int) -> float:
    return 1 + float(quality.survival(TreeSpec(block, budget)).sum())


@pytest.mark.parametrize(("budget", "published"), KIMI_BUDGETS.items())
def test_one_published_vector_of_rates_predicts_every_budget(budget: int, published: float) -> None:
    quality = DrafterQuality(top1=hazards())
    assert mean_length(quality, 8, budget) == pytest.approx(published, rel=0.03)


def test_the_penalty_off_the_spine_takes_the_tree_its_worth() -> None:
    free, paid = (mean_length(DrafterQuality(top1=hazards(), off_spine=k), 8, 128) for k in (1.0, 0.3))
    chain = 1 + sum(KIMI_RATES)
    assert chain < paid < free
    assert (paid - chain) / (free - chain) < 0.5


def test_four_parameters_give_the_published_distribution() -> None:
    survival = GSM8K_DDTREE.survival(TreeSpec(16, 128))
    shares = -np.diff(np.concatenate([[1.0], survival, [0.0]]))
    lengths = np.arange(1, 17)
    mean = float(shares @ lengths)
    assert mean == pytest.approx(8.67, abs=0.15)
    assert np.sqrt(shares @ lengths**2 - mean**2) == pytest.approx(4.59, abs=0.3)
    assert shares[-1] == pytest.approx(0.167, abs=0.015)


@given(chances, st.integers(1, 40))
def test_expected_length_is_the_sum_of_path_probabilities(top1: np.ndarray, budget: int) -> None:
    tree = ddtree.build(marginals(top1, budget), budget)
    assert accepted(tree, top1).sum() == pytest.approx(sum(node.probability for node in tree.nodes))


@given(chances, st.integers(1, 12), st.integers(0, 2**32))
def test_the_closed_form_is_the_mean_of_simulated_walks(top1: np.ndarray, budget: int, seed: int) -> None:
    """The target takes each rank with its marginal, in every position by itself."""
    rows = marginals(top1, budget)
    tree = ddtree.build(rows, budget)
    generator, steps = np.random.default_rng(seed), 2000
    ranks = np.stack([_ranks(row, generator, steps) for row in rows], axis=1).tolist()
    drafted = [node.rank for node in tree.nodes]
    lengths = [
        len(ddtree.walk(tree, drafted, lambda prefix, row=row: [*row, -1][len(prefix)]))  # type: ignore[misc]
        for row in ranks
    ]
    survival = accepted(tree, top1)
    expected = 1 + survival.sum()
    variance = 1 + ((2 * np.arange(len(top1)) + 3) * survival).sum() - expected**2
    # Six standard errors, and a dozen events too rare for a normal distribution.
    allowed = 6 * np.sqrt(max(variance, 0) / steps) + 12 * len(top1) / steps
    assert np.mean(lengths) == pytest.approx(expected, abs=allowed)


def _ranks(row: list[float], generator: np.random.Generator, steps: int) -> np.ndarray:
    """The target's choice as a rank of *row*, -1 where it is none of them."""
    bounds = np.cumsum(row)
    found = np.searchsorted(bounds, generator.random(steps), side="right")
    return np.where(found < len(row), found, -1)


@given(qualities, st.integers(1, 7), st.integers(1, 20))
def test_lengths_are_bounded_and_survival_falls(quality: DrafterQuality, positions: int, budget: int) -> None:
    survival = quality.survival(TreeSpec(positions + 1, budget))
    assert (np.diff(np.concatenate([[1.0], survival, [0.0]])) <= 1e-12).all()
    assert 1 <= mean_length(quality, positions + 1, budget) <= positions + 1 + 1e-9


@given(qualities, st.integers(1, 7), st.integers(1, 20))
def test_a_larger_budget_accepts_no_less_at_any_depth(
    quality: DrafterQuality, positions: int, budget: int
) -> None:
    smaller, larger = (quality.survival(TreeSpec(positions + 1, b)) for b in (budget, budget + 1))
    assert (larger >= smaller - 1e-12).all()


@given(qualities, st.integers(1, 7), st.integers(1, 12))
def test_an_eagle_tree_of_one_choice_lands_what_the_chain_lands(
    quality: DrafterQuality, positions: int, budget: int
) -> None:
    chain, beam = (
        quality.survival(TreeSpec(positions + 1, budget, shape)) for shape in (Shape.CHAIN, Shape.EAGLE)
    )
    assert beam == pytest.approx(chain, abs=1e-12)


@given(qualities, st.integers(1, 5), st.integers(1, 16), st.integers(1, 4))
def test_a_larger_eagle_tree_accepts_no_less_at_any_depth_nor_more_than_the_exact_one(
    quality: DrafterQuality, positions: int, budget: int, top_k: int
) -> None:
    smaller, larger = (
        quality.survival(TreeSpec(positions + 1, nodes, Shape.EAGLE, top_k)) for nodes in (budget, budget + 1)
    )
    assert (larger >= smaller - 1e-12).all()
    assert (np.diff(np.concatenate([[1.0], larger, [0.0]])) <= 1e-12).all()
    if quality.off_spine == 1:
        exact = quality.survival(TreeSpec(positions + 1, budget))
        assert smaller.sum() <= exact.sum() + 1e-9


@given(st.floats(-3, 5), st.floats(0, 2), st.integers(2, 7), st.integers(1, 20))
def test_a_longer_block_lands_no_less(logit: float, slope: float, positions: int, budget: int) -> None:
    """Without a penalty off the spine, which the tree does not know of when it is built."""
    quality = DrafterQuality(logit, slope)
    shorter, longer = (mean_length(quality, block, budget) for block in (positions, positions + 1))
    assert longer >= shorter - 1e-12


@given(st.integers(1, 15), st.integers(1, 64))
def test_a_perfect_drafter_lands_the_block_and_a_useless_one_nothing(positions: int, budget: int) -> None:
    perfect, useless = DrafterQuality(top1=(1.0,) * positions), DrafterQuality(top1=(0.0,) * positions)
    assert mean_length(perfect, positions + 1, budget) == 1 + min(positions, budget)
    assert mean_length(useless, positions + 1, budget) == 1


def test_beyond_its_trained_block_a_drafter_lands_nothing() -> None:
    quality = DrafterQuality(top1=hazards())
    assert quality.top1_by_depth(15)[7:].tolist() == [0.0] * 8
    assert mean_length(quality, 16, 7) == pytest.approx(mean_length(quality, 8, 7))


def test_the_second_choice_is_right_in_the_published_share_of_misses() -> None:
    [[first, second, *_]] = marginals(np.array([0.8]), 8)
    assert second / (1 - first) == pytest.approx(0.37, abs=0.005)
    assert 1.4 < TAIL_EXPONENT < 1.6


@given(chances, st.integers(1, 40))
def test_marginals_fall_and_leave_room_for_other_choices(top1: np.ndarray, budget: int) -> None:
    for row in marginals(top1, budget):
        assert len(row) == budget
        assert all(0 <= b <= a for a, b in itertools.pairwise(row))
        assert sum(row) <= 1 + 1e-9


@given(qualities, st.floats(0, 2))
def test_an_easier_request_lands_more(quality: DrafterQuality, shift: float) -> None:
    assert (
        quality.shifted(shift).survival(TreeSpec(6, 8)).sum() >= quality.survival(TreeSpec(6, 8)).sum() - 1e-9
    )


def test_six_parameters_give_the_published_rounds() -> None:
    """hxri/ddtreeplus: 128 requests of about 34 rounds; the bounds are those of its figures."""
    hazards = hazards_from_rates(tuple(GSM8K_DDTREE.survival(TreeSpec(16, 128)).tolist()))
    model = AcceptanceModel(hazards, request_sd=0.15, step_correlation=0.30)
    requests = [model.draw(np.random.default_rng(seed), 300)[:34] for seed in range(4000)]
    lengths = np.concatenate(requests)
    apart = [(one - one.mean()) for one in requests]
    spread = sum(float(one @ one) for one in apart)
    lag_1, lag_2 = (sum(float(one[lag:] @ one[:-lag]) for one in apart) / spread for lag in (1, 2))
    assert lengths.mean() == pytest.approx(8.67, abs=0.15)
    assert lengths.std() == pytest.approx(4.59, abs=0.3)
    assert np.mean(lengths == 16) == pytest.approx(0.167, abs=0.015)
    assert lag_1 == pytest.approx(0.22, abs=0.05)
    assert lag_2 == pytest.approx(0.02, abs=0.05)
    assert np.std([one.mean() for one in requests]) == pytest.approx(1.18, abs=0.2)
