"""How often a drafter is right, and how many tokens of a tree are accepted because of it.

On the *spine*, the path of first choices, position d (from 1) is right with log-odds
``top1_logit - depth_slope ln d + difficulty``. Difficulty varies from step to step, and a
share of steps is easy: the whole block is right. What the first choice leaves over falls
on the other ranks as a Zipf tail. Off the spine, once another choice was accepted, every
later token is right ``off_spine`` times as often, for the block was drafted around the
spine. A drafter may instead be given as the measured chance of each position.

Sources: E[L] = 1 + the sum of path probabilities, arXiv 2604.12989, proposition 1. The
second choice right in 37 % of misses, and the next position right in 22 % after it
against 65-84 % on the spine: github.com/rmagur1203/vllm-ddtree, DDTREE-FINDINGS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim import ddtree
from sim.ddtree import DraftTree

Array = NDArray[np.float64]

TAIL_EXPONENT = 1.48
"""Zipf exponent that gives the second choice 37 % of what the first leaves."""
TAIL_RANKS = 163_840
"""Choices that the tail is spread over: a vocabulary."""
EASY_TOP1 = 0.995
"""Chance of each position in an easy step: 93 % of blocks of 16 are right to the end."""
DIFFICULTY_NODES = 9
"""Gauss-Hermite nodes for the difficulty of steps."""


@dataclass(frozen=True)
class DrafterQuality:
    """A drafter's accuracy; *top1*, the chance of each position, replaces the curve where given."""

    top1_logit: float = 0.0
    depth_slope: float = 0.0
    step_sd: float = 0.0
    easy_share: float = 0.0
    off_spine: float = 1.0
    top1: tuple[float, ...] = ()
    shift: float = 0.0
    """Added to the log-odds of every position."""

    def shifted(self, shift: float) -> DrafterQuality:
        """The same drafter, right with log-odds higher by *shift* at every position."""
        return replace(self, shift=self.shift + shift)

    def top1_by_depth(self, positions: int, difficulty: float = 0.0) -> Array:
        """(positions,) chance that each is right on the spine, in a step of middling difficulty."""
        shift = self.shift + difficulty
        if self.top1:
            # Beyond the positions that it was trained for a drafter lands nothing.
            known = np.array([*self.top1[:positions], *([0.0] * (positions - len(self.top1)))])
            return np.asarray(special.expit(special.logit(known) + shift))
        depth = np.arange(1, positions + 1)
        return np.asarray(special.expit(self.top1_logit - self.depth_slope * np.log(depth) + shift))

    def survival(self, positions: int, budget: int) -> Array:
        """(positions,) P(L > d) for d = 1 ..., over the difficulty of steps."""
        return sum(
            (weight * accepted(top1, budget, self.off_spine) for weight, top1 in self._steps(positions)),
            start=np.zeros(positions),
        )

    def survival_by_budget(self, positions: int, budget: int) -> Array:
        """(budget, positions) the same for the trees of 1, 2, ... *budget* nodes."""
        return sum(
            (w * accepted_by_budget(top1, budget, self.off_spine) for w, top1 in self._steps(positions)),
            start=np.zeros((budget, positions)),
        )

    def _steps(self, positions: int) -> Iterator[tuple[float, Array]]:
        """Every kind of step: its share, and (positions,) how often the first choice is right in it."""
        for offset, weight in zip(*_difficulties(self.step_sd), strict=True):
            yield (1 - self.easy_share) * weight, self.top1_by_depth(positions, offset)
        if self.easy_share:
            # A better drafter is better in easy steps too.
            sure = special.expit(special.logit(EASY_TOP1) + max(0.0, self.shift))
            yield self.easy_share, np.full(positions, sure)


def accepted(top1: Array, budget: int, off_spine: float = 1.0) -> Array:
    """(positions,) P(L > d) of the tree built from first choices right with chances *top1*."""
    tree = ddtree.build(marginals(top1, budget), budget)
    depths = np.array([node.depth for node in tree.nodes], dtype=int)
    return np.asarray(np.bincount(depths, path_chances(tree, off_spine), len(top1)), dtype=float)


def accepted_by_budget(top1: Array, budget: int, off_spine: float = 1.0) -> Array:
    """(budget, positions) the same for 1, 2, ... nodes: a smaller tree is the beginning of a larger one."""
    tree = ddtree.build(marginals(top1, budget), budget)
    added = np.zeros((budget, len(top1)))
    for place, (node, chance) in enumerate(zip(tree.nodes, path_chances(tree, off_spine), strict=True)):
        added[place, node.depth] = chance
    return np.cumsum(added, axis=0)


def path_chances(tree: DraftTree, off_spine: float) -> Array:
    """(nodes,) chance that each is accepted: the product of its marginals and of penalties off the spine."""
    # By node, the root first: leaving is free, every token after it costs.
    spine = [True, *ddtree.on_spine(tree)]
    factors = [1.0]
    for node in tree.nodes:
        factors.append(factors[node.parent] * (1.0 if spine[node.parent] else off_spine))
    return np.array([node.probability for node in tree.nodes]) * factors[1:]


def marginals(top1: Array, budget: int) -> list[list[float]]:
    """(positions, ranks) what a drafter gives each choice; no more ranks than *budget* can need.

    No choice is likelier than the first: what a Zipf tail would give beyond that goes to
    choices that no tree ever holds.
    """
    tail = _tail()[: budget - 1]
    return [[first, *np.minimum(first, (1.0 - first) * tail).tolist()] for first in top1.tolist()]


@cache
def _tail() -> Array:
    """Shares of the second, third, ... choice in what the first leaves over."""
    weights = np.arange(1, TAIL_RANKS, dtype=float) ** -TAIL_EXPONENT
    return np.asarray(weights / weights.sum())


def _difficulties(step_sd: float) -> tuple[Array, Array]:
    if step_sd == 0:
        return np.zeros(1), np.ones(1)
    nodes, weights = special.roots_hermitenorm(DIFFICULTY_NODES)
    return step_sd * nodes, weights / weights.sum()
