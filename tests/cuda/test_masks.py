"""Masks never leak: what a node must not see changes nothing, bit for bit; what it sees does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda import hostkernel, reference
from cuda.launch import Cache, TreeAttention

pytestmark = pytest.mark.usefixtures("host_tools")


def sees(mask: np.ndarray, node: int, tokens: int) -> np.ndarray:
    """(tokens,) which nodes see *node*."""
    return mask[:tokens, node // 32] >> np.uint32(node % 32) & 1 == 1


@settings(max_examples=12)
@given(st.integers(2, 40), st.integers(0, 40), st.integers(1, 3), st.sampled_from(Cache), st.data())
def test_a_node_changes_only_those_that_see_it(
    tokens: int, context: int, splits: int, cache: Cache, data: st.DataObject
) -> None:
    operation = TreeAttention(1, tokens, context, splits, cache)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    node = data.draw(st.integers(1, tokens - 1))
    inputs = reference.make_inputs(operation, rng)
    before = hostkernel.run(operation, inputs)["out"][0]
    changed = inputs | {"cache": inputs["cache"].copy()}
    key = changed["cache"][0, context + node]
    key ^= np.array(1 << (8 * key.itemsize - 1), key.dtype)
    after = hostkernel.run(operation, changed)["out"][0]
    differs = (before != after).reshape(tokens, -1).any(axis=1)
    np.testing.assert_array_equal(differs, sees(inputs["sees"][0], node, tokens))


def test_everyone_sees_the_whole_context() -> None:
    operation = TreeAttention(1, 5, 37, 2)
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    before = hostkernel.run(operation, inputs)["out"][0]
    for key in (0, 31, 32, 36):
        changed = inputs | {"cache": inputs["cache"].copy()}
        changed["cache"][0, key] ^= np.uint16(1 << 15)
        after = hostkernel.run(operation, changed)["out"][0]
        assert (before != after).reshape(5, -1).any(axis=1).all(), key


def test_requests_do_not_see_each_other() -> None:
    operation = TreeAttention(2, 3, 10, 1)
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    before = hostkernel.run(operation, inputs)["out"]
    changed = inputs | {"cache": inputs["cache"].copy()}
    changed["cache"][1] ^= np.uint16(1 << 15)
    after = hostkernel.run(operation, changed)["out"]
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1] != after[1]).any()


@given(st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_a_packed_mask_unpacks_to_itself(nodes: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((2, nodes, nodes)) < 0.5
    words = reference.pack_mask(mask)
    for node in range(nodes):
        bit = words[..., node // 32] >> np.uint32(node % 32) & 1
        np.testing.assert_array_equal(bit == 1, mask[..., node])
