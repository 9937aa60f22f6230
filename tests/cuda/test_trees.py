"""On a GPU the tree, and what is accepted of it, are those of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cuda import hostkernel
from cuda.launch import TreeAccept, TreeBuild
from sim import ddtree

pytestmark = pytest.mark.usefixtures("host_tools")

Arrays = dict[str, NDArray[Any]]
SCHEDULES = st.sampled_from(hostkernel.SCHEDULES)


@st.composite
def marginals(draw: st.DrawFn, most_positions: int = 6, most_ranks: int = 6) -> NDArray[np.float32]:
    """(positions, ranks) that fall along ranks; few distinct values, so that prefixes tie."""
    ranks = draw(st.integers(1, most_ranks))
    values = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]) | st.floats(0.0, 1.0, width=32)
    row = st.lists(values, min_size=ranks, max_size=ranks).map(lambda row: sorted(row, reverse=True))
    return np.array(draw(st.lists(row, min_size=1, max_size=most_positions)), np.float32)


def build_on_gpu(rows: NDArray[np.float32], tokens: NDArray[np.int32], budget: int, schedule: int) -> Arrays:
    """The kernel's tree of one request, cut to the nodes that there are."""
    operation = TreeBuild(1, *rows.shape, budget)
    inputs = {"marginals": rows, "tokens": tokens, "root_token": np.array([7])}
    results = hostkernel.run(operation, inputs, schedule)
    count = int(results["nodes"][0])
    return {name: array[0] if name == "nodes" else array[0, :count] for name, array in results.items()}


def numbered(rows: NDArray[np.float32]) -> NDArray[np.int32]:
    """A token of its own for each rank of each position."""
    return np.arange(rows.size, dtype=np.int32).reshape(rows.shape)


@given(marginals(), st.integers(0, 80), SCHEDULES)
def test_the_tree_is_the_simulators_node_by_node(
    rows: NDArray[np.float32], budget: int, schedule: int
) -> None:
    expected = ddtree.build(rows.astype(float).tolist(), budget)
    found = build_on_gpu(rows, numbered(rows), budget, schedule)
    assert found["parent"].tolist() == [-1, *(node.parent for node in expected.nodes)]
    assert found["depth"].tolist() == [0, *(node.depth + 1 for node in expected.nodes)]
    assert found["probability"].tolist() == [1.0, *(node.probability for node in expected.nodes)]
    ranks = found["token"][1:] % rows.shape[1]
    assert ranks.tolist() == [node.rank for node in expected.nodes]


@given(marginals(), st.integers(0, 80), SCHEDULES)
def test_the_mask_is_the_simulators(rows: NDArray[np.float32], budget: int, schedule: int) -> None:
    expected = ddtree.ancestor_mask(ddtree.build(rows.astype(float).tolist(), budget))
    words = build_on_gpu(rows, numbered(rows), budget, schedule)["sees"]
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(bool)
    np.testing.assert_array_equal(bits[:, : len(expected)], expected)
    assert not bits[:, len(expected) :].any()


def test_the_largest_tree_fits() -> None:
    rows = -np.sort(-np.random.default_rng(0).dirichlet(np.ones(64), 16)).astype(np.float32)
    expected = ddtree.build(rows.astype(float).tolist(), 255)
    found = build_on_gpu(rows, numbered(rows), 255, 0)
    assert found["parent"].tolist() == [-1, *(node.parent for node in expected.nodes)]


@given(marginals(), st.integers(0, 60), st.integers(0, 2**32 - 1), SCHEDULES)
def test_what_is_accepted_is_what_the_simulators_walk_commits(
    rows: NDArray[np.float32], budget: int, seed: int, schedule: int
) -> None:
    rng = np.random.default_rng(seed)
    ranks = rows.shape[1]
    tokens = np.stack([rng.permutation(ranks + 1)[:ranks] for _ in rows]).astype(np.int32)
    tree = ddtree.build(rows.astype(float).tolist(), budget)
    found = build_on_gpu(rows, tokens, budget, schedule)
    choices = rng.integers(0, ranks + 1, len(tree.nodes) + 1)
    committed = ddtree.walk(tree, found["token"][1:].tolist(), target_of(tree, found["token"], choices))
    assert accept_on_gpu(found, choices, budget, schedule) == committed


def target_of(tree: ddtree.DraftTree, tokens: NDArray[np.int32], choices: NDArray[Any]) -> Any:
    """The target's token after a prefix of drafted tokens, where each node has a choice."""
    prefixes: dict[int, tuple[int, ...]] = {ddtree.ROOT: ()}
    for number, node in enumerate(tree.nodes, 1):
        prefixes[number] = (*prefixes[node.parent], int(tokens[number]))
    by_prefix = {prefix: int(choices[number]) for number, prefix in prefixes.items()}
    return lambda prefix: by_prefix[tuple(prefix)]


def accept_on_gpu(tree: Arrays, choices: NDArray[Any], budget: int, schedule: int) -> list[int]:
    """The committed tokens of one request; checks that the path leads to them."""
    operation = TreeAccept(1, budget)
    inputs = {
        buffer.name: np.full(buffer.shape, -1, buffer.element.dtype)
        if buffer.element.dtype == np.int32
        else np.zeros(buffer.shape, buffer.element.dtype)
        for buffer in operation.buffers()
    }
    for name, array in tree.items():
        if name in inputs and name != "nodes":
            inputs[name][0, : len(array)] = array
    inputs["nodes"][0] = tree["nodes"]
    inputs["target"][0, : len(choices)] = choices
    results = hostkernel.run(operation, inputs, schedule)
    length, path = int(results["length"][0]), results["accepted"][0]
    committed = results["committed"][0]
    assert 1 <= length <= len(tree["parent"])
    assert (path[length - 1 :] == -1).all()
    assert (committed[length:] == -1).all()
    assert tree["token"][path[: length - 1]].tolist() == committed[: length - 1].tolist()
    assert [int(tree["parent"][node]) for node in path[: length - 1]] == [0, *path[: length - 1]][
        : length - 1
    ]
    return [int(token) for token in committed[:length]]
