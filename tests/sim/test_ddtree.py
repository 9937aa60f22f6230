"""DDTree is exact: the most probable prefixes, and decoding with it changes no token."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.choices import Shape
from sim.ddtree import ROOT, DraftTree, TreeSpec, ancestor_mask, beam, build, chain, most_operations, walk

Marginals = list[list[float]]
Grow = Callable[[Marginals, int], DraftTree]
VOCABULARY = 4


@st.composite
def marginals(draw: st.DrawFn, most_depths: int = 4, most_ranks: int = 4) -> Marginals:
    """Rows that fall, of the same length; few distinct values, so that prefixes tie."""
    ranks = draw(st.integers(1, most_ranks))
    values = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]) | st.floats(0.0, 1.0)
    row = st.lists(values, min_size=ranks, max_size=ranks).map(lambda row: sorted(row, reverse=True))
    return draw(st.lists(row, min_size=1, max_size=most_depths))


def path_of(tree: DraftTree, number: int) -> tuple[int, ...]:
    """Ranks from the root down to node *number*."""
    if number == ROOT:
        return ()
    node = tree.nodes[number - 1]
    return (*path_of(tree, node.parent), node.rank)


def every_prefix(rows: Marginals) -> list[float]:
    """The probability of every prefix there is, falling."""
    found = [
        math.prod(rows[depth][rank] for depth, rank in enumerate(path))
        for length in range(1, len(rows) + 1)
        for path in itertools.product(range(len(rows[0])), repeat=length)
    ]
    return sorted((p for p in found if p > 0), reverse=True)


@given(marginals(), st.integers(0, 40))
def test_the_most_probable_prefixes_are_found(rows: Marginals, budget: int) -> None:
    found = [node.probability for node in build(rows, budget).nodes]
    assert found == pytest.approx(every_prefix(rows)[:budget])


@given(marginals(), st.integers(0, 40))
def test_a_node_has_the_probability_of_its_path_and_comes_after_its_parent(
    rows: Marginals, budget: int
) -> None:
    tree = build(rows, budget)
    paths = [path_of(tree, number) for number in range(1, len(tree.nodes) + 1)]
    assert len(set(paths)) == len(paths)
    for number, (node, path) in enumerate(zip(tree.nodes, paths, strict=True), 1):
        assert node.parent < number
        assert node.depth == len(path) - 1
        expected = math.prod(rows[depth][rank] for depth, rank in enumerate(path))
        assert node.probability == pytest.approx(expected)


@given(marginals(), st.integers(0, 30))
def test_a_larger_budget_only_adds_nodes_each_worth_no_more_than_the_last(
    rows: Marginals, budget: int
) -> None:
    smaller, larger = build(rows, budget), build(rows, budget + 1)
    assert larger.nodes[: len(smaller.nodes)] == smaller.nodes
    probabilities = [node.probability for node in larger.nodes]
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(probabilities))


@given(marginals(), st.integers(0, 40))
def test_at_most_a_pop_and_two_pushes_for_each_node(rows: Marginals, budget: int) -> None:
    tree = build(rows, budget)
    assert tree.heap_operations <= most_operations(len(tree.nodes))


@given(st.integers(1, 12), st.integers(1, 20))
def test_one_choice_per_position_is_a_chain(positions: int, budget: int) -> None:
    tree = build([[1.0]] * positions, budget)
    assert [node.parent for node in tree.nodes] == list(range(min(positions, budget)))


@given(marginals(), st.integers(0, 10))
def test_a_chain_is_the_tree_of_first_choices(rows: Marginals, budget: int) -> None:
    sure = [[first] for first, *_ in rows]
    found = chain(rows, budget)
    assert [node for node in found.nodes if node.probability > 0] == list(build(sure, budget).nodes)
    assert len(found.nodes) == min(len(rows), budget)
    assert found.heap_operations == 0


def candidates(rows: Marginals, top_k: int) -> dict[tuple[int, ...], float]:
    """Every prefix that a beam of *top_k* looks at, with its probability."""
    found: dict[tuple[int, ...], float] = {}
    kept: list[tuple[int, ...]] = [()]
    for depth, row in enumerate(rows):
        layer = [(*path, rank) for path in kept for rank in range(min(top_k, len(row)))]
        found |= {path: math.prod(rows[d][rank] for d, rank in enumerate(path)) for path in layer}
        kept = sorted(layer, key=lambda path: -found[path])[:top_k]
        assert all(len(path) == depth + 1 for path in kept)
    return found


@given(marginals(), st.integers(0, 40), st.integers(1, 5))
def test_a_beam_keeps_the_most_probable_of_its_candidates(rows: Marginals, budget: int, top_k: int) -> None:
    tree, seen = beam(rows, budget, top_k), candidates(rows, top_k)
    paths = [path_of(tree, number) for number in range(1, len(tree.nodes) + 1)]
    assert len(set(paths)) == len(paths) == min(budget, len(seen))
    assert [node.probability for node in tree.nodes] == pytest.approx(
        sorted(seen.values(), reverse=True)[:budget]
    )
    for number, (node, path) in enumerate(zip(tree.nodes, paths, strict=True), 1):
        assert node.parent < number
        assert node.depth == len(path) - 1
        assert node.probability == pytest.approx(seen[path])


@given(marginals(), st.integers(1, 12))
def test_a_beam_as_wide_as_the_budget_is_the_exact_tree(rows: Marginals, budget: int) -> None:
    found = [node.probability for node in beam(rows, budget, budget).nodes if node.probability > 0]
    assert found == pytest.approx(every_prefix(rows)[:budget])


@given(marginals(), st.integers(0, 12))
def test_a_beam_of_one_is_the_chain(rows: Marginals, budget: int) -> None:
    assert beam(rows, budget, 1) == chain(rows, budget)


@given(marginals(), st.integers(0, 30), st.integers(1, 5))
def test_a_larger_beam_tree_begins_with_the_smaller(rows: Marginals, budget: int, top_k: int) -> None:
    smaller, larger = (beam(rows, nodes, top_k) for nodes in (budget, budget + 1))
    assert larger.nodes[: len(smaller.nodes)] == smaller.nodes


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 60))
def test_a_beam_tree_has_the_nodes_that_a_step_verifies(positions: int, top_k: int, budget: int) -> None:
    tree = beam([[0.5 / rank for rank in range(1, 6)]] * positions, budget, top_k)
    assert len(tree.nodes) == TreeSpec(positions + 1, budget, Shape.EAGLE, top_k).nodes


def test_of_equal_prefixes_the_first_pushed_counts() -> None:
    tree = build([[0.5, 0.5], [0.5, 0.5]], 6)
    assert [path_of(tree, number) for number in range(1, 7)] == [(0,), (1,), (0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(("rows", "budget"), [([], 4), ([[]], 4), ([[0.5]], 0), ([[0.0]], 3)])
def test_nothing_to_draft_is_an_empty_tree(rows: Marginals, budget: int) -> None:
    assert build(rows, budget) == DraftTree((), build(rows, budget).heap_operations)
    assert build(rows, budget).depth == 0


@given(marginals(), st.integers(0, 30))
def test_a_token_sees_itself_and_its_ancestors(rows: Marginals, budget: int) -> None:
    tree = build(rows, budget)
    mask = ancestor_mask(tree)
    assert mask.shape == (len(tree.nodes) + 1,) * 2
    for number in range(len(tree.nodes) + 1):
        ancestors, at = {ROOT, number}, number
        while at != ROOT:
            at = tree.nodes[at - 1].parent
            ancestors.add(at)
        assert set(np.flatnonzero(mask[number]).tolist()) == ancestors


def toy_target(weights: list[int]) -> Callable[[tuple[int, ...]], int]:
    """A deterministic model whose next token depends on all tokens before."""
    return lambda prefix: (
        (
            sum(w * (token + 1) for w, token in zip(itertools.cycle(weights), prefix, strict=False))
            + len(prefix)
        )
        % VOCABULARY
    )


def plain_decoding(target: Callable[[tuple[int, ...]], int], count: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < count:
        tokens.append(target(tuple(tokens)))
    return tokens


class Drafter(NamedTuple):
    """Marginals and tokens that depend on everything before, in a way that knows nothing of the target."""

    seed: int
    positions: int
    ranks: int

    def rows(self, prefix: tuple[int, ...]) -> Marginals:
        drawn = np.random.default_rng([self.seed, 0, *prefix]).dirichlet([0.5] * VOCABULARY, self.positions)
        # Few distinct values, so that prefixes tie.
        return (np.sort(drawn.round(1), axis=1)[:, ::-1][:, : self.ranks]).tolist()

    def names(self, prefix: tuple[int, ...]) -> list[list[int]]:
        generator = np.random.default_rng([self.seed, 1, *prefix])
        return [generator.permutation(VOCABULARY).tolist() for _ in range(self.positions)]


def speculative_decoding(
    target: Callable[[tuple[int, ...]], int], count: int, drafter: Drafter, grow: Grow, budget: int
) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < count:
        before = tuple(tokens)
        tree, names = grow(drafter.rows(before), budget), drafter.names(before)
        drafted = [names[node.depth][node.rank] for node in tree.nodes]
        committed = walk(tree, drafted, lambda after, before=before: target((*before, *after)))  # type: ignore[misc]
        assert 1 <= len(committed) <= tree.depth + 1
        tokens += committed
    return tokens


def narrow_beam(rows: Marginals, budget: int) -> DraftTree:
    """EAGLE's tree with two prefixes at every depth."""
    return beam(rows, budget, 2)


@pytest.mark.parametrize("grow", [build, chain, narrow_beam])
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.builds(Drafter, st.integers(0, 2**32), st.integers(1, 6), st.integers(1, VOCABULARY)),
    st.integers(0, 30),
)
def test_decoding_with_any_tree_or_chain_emits_the_tokens_of_plain_decoding(
    grow: Grow, weights: list[int], drafter: Drafter, budget: int
) -> None:
    target = toy_target(weights)
    emitted = speculative_decoding(target, 15, drafter, grow, budget)
    assert emitted == plain_decoding(target, len(emitted))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(1, 8))
def test_a_chain_that_knows_the_target_lands_the_whole_block(weights: list[int], positions: int) -> None:
    target = toy_target(weights)
    tree = build([[1.0]] * positions, positions)
    drafted = plain_decoding(target, positions)
    assert walk(tree, drafted, target) == plain_decoding(target, positions + 1)


def test_a_drafter_that_is_never_right_still_yields_a_token_a_step() -> None:
    target = toy_target([1])
    wrong = [(target(()) + 1) % VOCABULARY]
    assert walk(build([[1.0]], 1), wrong, target) == [target(())]


@given(st.integers(0, 3), st.integers(1, 30))
def test_two_siblings_of_the_same_token_are_the_same_prefix(token: int, budget: int) -> None:
    """A drafter may name a token twice; what is emitted does not depend on it."""
    tree = build([[0.5, 0.5], [0.5, 0.5]], budget)
    target = toy_target([2, 3])
    committed = walk(tree, [token] * len(tree.nodes), target)
    assert committed == plain_decoding(target, len(committed))
