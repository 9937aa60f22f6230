"""Rankings are paired t-tests that hold together, and keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sim.statistics import MIN_RUNS
from sim.sweeps.ranking import rank

Sample = dict[int, list[float]]


def sample(
    generator: np.random.Generator, cells: int, runs: int, spread: float, gap: float = 0.0
) -> NDArray[np.float64]:
    """Throughput (cells, runs): luck that all share, a little of their own, *gap* from one to the next."""
    shared = 100 * generator.standard_normal(runs)
    own = spread * generator.standard_normal((cells, runs))
    return np.asarray(1000 + shared + own - gap * np.arange(cells)[:, None])


def as_mapping(values: NDArray[np.float64]) -> Sample:
    return {index: row.tolist() for index, row in enumerate(values)}


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(MIN_RUNS, 30), st.floats(0, 5))
def test_verdicts_are_paired_t_tests_at_the_same_level_for_all_together(
    seed: int, cells: int, runs: int, gap: float
) -> None:
    values = sample(np.random.default_rng(seed), cells, runs, 3.0, gap)
    ranking = rank(as_mapping(values))
    assert ranking is not None
    assert ranking.best == np.argmax(values.mean(axis=1))
    level = 0.05 / (cells * (cells - 1) / 2)
    for index, verdict in ranking.verdicts.items():
        if index == ranking.best:
            continue
        test = stats.ttest_rel(values[index], values[ranking.best])
        low, high = test.confidence_interval(1 - level)
        assert verdict.difference_tok_s == pytest.approx((low + high) / 2)
        assert verdict.half_width_tok_s == pytest.approx((high - low) / 2)
        assert verdict.distinguishable == (test.pvalue < level)
    assert ranking.not_distinguishable == [
        i for i in range(cells) if i != ranking.best and not ranking.verdicts[i].distinguishable
    ]


def test_equal_cells_are_called_slower_no_more_often_than_promised() -> None:
    generator, trials, wrong, excluded = np.random.default_rng(11), 1000, 0, 0
    for _ in range(trials):
        ranking = rank(as_mapping(sample(generator, cells=6, runs=8, spread=3.0)))
        assert ranking is not None
        wrong += any(verdict.distinguishable for verdict in ranking.verdicts.values())
        excluded += ranking.verdicts[0].distinguishable
    # All six are truly best, cell 0 as well as any other.
    assert 0 < wrong <= 0.05 * trials
    assert excluded <= wrong


def test_the_best_cell_is_found_where_the_luck_is_shared_and_the_gap_is_not() -> None:
    generator, trials, alone = np.random.default_rng(12), 200, 0
    for _ in range(trials):
        ranking = rank(as_mapping(sample(generator, cells=6, runs=20, spread=3.0, gap=8.0)))
        assert ranking is not None
        alone += ranking.best == 0 and not ranking.not_distinguishable
    # Unpaired, a gap of 8 tok/s would drown in 100 tok/s of luck.
    assert alone > 190


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_order_of_cells_does_not_matter(seed: int, cells: int, runs: int, luck: object) -> None:
    found = as_mapping(sample(np.random.default_rng(seed), cells, runs, 3.0, 2.0))
    shuffled = list(found)
    luck.shuffle(shuffled)  # type: ignore[attr-defined]
    ranking, again = rank(found), rank({index: found[index] for index in shuffled})
    assert ranking is not None
    assert again is not None
    assert (again.best, again.verdicts) == (ranking.best, ranking.verdicts)


@given(st.lists(st.floats(1, 1e4), min_size=MIN_RUNS, max_size=12), st.integers(2, 5))
def test_equal_cells_are_not_distinguishable_and_the_first_is_named(values: list[float], cells: int) -> None:
    ranking = rank(dict.fromkeys(range(3, 3 + cells), values))
    assert ranking is not None
    assert ranking.best == 3
    assert ranking.not_distinguishable == list(range(4, 3 + cells))
    assert all(verdict.difference_tok_s == 0 for verdict in ranking.verdicts.values())


@given(st.integers(1, 12))
def test_too_few_runs_give_no_verdict(runs: int) -> None:
    values = np.random.default_rng(runs).normal(0, 1, runs)
    ranking = rank({0: (1000 + values).tolist(), 1: (10 - values).tolist()})
    assert ranking is not None
    verdict = ranking.verdicts[1]
    assert ranking.best == 0
    assert (verdict.half_width_tok_s is None) == (runs < MIN_RUNS)
    assert verdict.distinguishable == (runs >= MIN_RUNS)


def test_cells_of_different_length_are_compared_over_the_runs_that_both_have() -> None:
    long = [100.0, 101, 102, 103, 104, 500, 500]
    short = [100.5, 101.5, 102.5, 103.5, 104.5]
    ranking = rank({0: short, 1: long})
    assert ranking is not None
    assert ranking.best == 1
    assert ranking.verdicts[0].difference_tok_s == pytest.approx(0.5)
    assert ranking.not_distinguishable == [0]


def test_nothing_ran_nothing_is_best_and_one_cell_is() -> None:
    assert rank({}) is None
    ranking = rank({7: [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert ranking is not None
    assert (ranking.best, ranking.not_distinguishable) == (7, [])
