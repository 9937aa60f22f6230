"""The busiest of several groups of experts, against counting and against chance."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.expert_groups import busiest_group


@pytest.mark.parametrize(("experts", "groups"), [(8, 2), (8, 4), (9, 3), (12, 2)])
def test_the_busiest_group_is_the_mean_over_all_sets(experts: int, groups: int) -> None:
    size = experts // groups
    for touched in range(experts + 1):
        counted = [
            max(sum(e // size == group for e in chosen) for group in range(groups))
            for chosen in combinations(range(experts), touched)
        ]
        assert busiest_group(touched, experts, groups) == pytest.approx(np.mean(counted))


@pytest.mark.parametrize(("touched", "groups"), [(8, 8), (66, 8), (192, 4), (300, 2)])
def test_the_busiest_group_of_kimi_is_what_chance_makes_it(touched: int, groups: int) -> None:
    luck = np.random.default_rng(1)
    counts = luck.multivariate_hypergeometric([384 // groups] * groups, touched, size=20_000)
    busiest = counts.max(axis=1)
    error = 5 * busiest.std() / np.sqrt(len(busiest))
    assert busiest_group(touched, 384, groups) == pytest.approx(busiest.mean(), abs=error)


@given(st.floats(0, 384), st.sampled_from([1, 2, 4, 8]))
def test_the_busiest_group_has_its_share_and_no_more_than_it_holds(touched: float, groups: int) -> None:
    found = busiest_group(touched, 384, groups)
    assert touched / groups * (1 - 1e-9) <= found <= min(touched, 384 / groups) * (1 + 1e-9) + 1e-12


@given(st.floats(0, 383), st.floats(0, 1), st.sampled_from([2, 4, 8]))
def test_more_experts_touched_never_relieve_the_busiest_group(
    touched: float, more: float, groups: int
) -> None:
    assert busiest_group(touched, 384, groups) <= busiest_group(touched + more, 384, groups) + 1e-9


@given(st.floats(0, 384))
def test_one_group_has_them_all(touched: float) -> None:
    assert busiest_group(touched, 384, 1) == touched


def test_groups_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="384 experts do not make 5 equal groups"):
        busiest_group(3, 384, 5)
    with pytest.raises(ValueError, match=r"touched must lie in \[0, 384\], got 400"):
        busiest_group(400, 384, 8)
