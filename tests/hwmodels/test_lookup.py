"""Which measured shape serves a piece of work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hwmodels import lookup
from hwmodels.work import DType, GroupedExperts


@given(st.sampled_from([1, 2, 4, 8, 16, 128]))
def test_a_group_holds_and_reaches_its_share_of_the_experts(groups: int) -> None:
    work = GroupedExperts(
        tokens=9,
        touched=66,
        experts=384,
        top_k=8,
        hidden=7168,
        intermediate=256,
        dtype=DType.INT4,
        groups=groups,
    )
    shape = lookup.expert_shape(work)
    assert (shape.experts, shape.top_k) == (384 // groups, max(1, 8 // groups))
