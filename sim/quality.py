"""How often a drafter is right, and how many tokens of a tree are accepted because of it.

On the *spine*, the path of first choices, position d (from 1) is right with log-odds
``top1_logit - depth_slope ln d + ease``. Ease varies from step to step, and a share of steps
is easy throughout: the whole block is right. What the first choice leaves over falls
on the other ranks as a Zipf tail. Off the spine, once another choice was accepted, every
later token is right ``off_spine`` times as often, for the block was drafted around the
spine. A drafter may instead be given as the measured chance of each position.

The tree is built from what the drafter *states*, which need not be how often it is right:
a position's marginal is spread over all that may come before it, so the stated log-odds
fall with depth by ``stated_slope ln d`` more than those of the position once its prefix is
known to be right. A tree built from modest statements branches early and stays short.

Sources: E[L] = 1 + the sum of path probabilities, arXiv 2604.12989, proposition 1. The
second choice right in 37 % of misses, and the next position right in 22 % after it
against 65-84 % on the spine; right 1.04 times as often as stated at depth 1 and 4.29 times
at depth 14: github.com/rmagur1203/vllm-ddtree, DDTREE-FINDINGS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim import ddtree
from sim.choices import Shape
from sim.ddtree import DraftTree, TreeSpec

Array = NDArray[np.float64]

TAIL_EXPONENT = 1.48
"""Zipf exponent that gives the second choice 37 % of what the first leaves."""
TAIL_RANKS = 163_840
"""Choices that the tail is spread over: Kimi's vocabulary; others make no difference."""
EASY_TOP1 = 0.995
"""Chance of each position in an easy step, assumed: 93 % of blocks of 16 are right to the end. Only the
product with ``easy_share`` shows in lengths."""
EASES = 32
"""Equally likely eases that stand for all: trees jump by whole nodes, so more are needed than a smooth
rule would. Means are within 0.04 tokens of those of 512."""
OFF_SPINE = 0.3
"""What off-spine positions keep where nothing better is known: 22 % right there, 65-84 % on the spine."""


@dataclass(frozen=True)
class DrafterQuality:
    """A drafter's accuracy; *top1*, the chance of each position, replaces the curve where given."""

    top1_logit: float = 0.0
    depth_slope: float = 0.0
    step_sd: float = 0.0
    easy_share: float = 0.0
    off_spine: float = 1.0
    stated_slope: float = 0.0
    top1: tuple[float, ...] = ()
    shift: float = 0.0
    """Added to the log-odds of every position."""

    def shifted(self, shift: float) -> DrafterQuality:
        """The same drafter, right with log-odds higher by *shift* at every position."""
        return replace(self, shift=self.shift + shift)

    def top1_by_depth(self, positions: int, ease: float = 0.0) -> Array:
        """(positions,) chance that each is right on the spine; *ease* 0 is a step of middling difficulty."""
        shift = self.shift + ease
        if self.top1:
            # Beyond the positions that it was trained for a drafter lands nothing.
            known = np.array([*self.top1[:positions], *([0.0] * (positions - len(self.top1)))])
            return np.asarray(special.expit(special.logit(known) + shift))
        return np.asarray(special.expit(self.top1_logit - self.depth_slope * _log_depth(positions) + shift))

    def draft(self, top1: Array, spec: TreeSpec) -> DraftTree:
        """What this drafter gives in a step where its first choices are right with chances *top1*."""
        match spec.shape:
            case Shape.CHAIN:
                return ddtree.chain(marginals(top1, 1), spec.budget)
            case Shape.DDTREE:
                return ddtree.build(marginals(self._stated(top1), spec.budget), spec.budget)
            case Shape.EAGLE:
                return ddtree.beam(marginals(self._stated(top1), spec.top_k), spec.budget, spec.top_k)

    def _stated(self, top1: Array) -> Array:
        """What the drafter says of its first choices where they are right with chances *top1*."""
        if not self.stated_slope:
            return top1
        return np.asarray(special.expit(special.logit(top1) - self.stated_slope * _log_depth(len(top1))))

    def survival(self, spec: TreeSpec) -> Array:
        """(positions,) P(L > d) for d = 1 ..., over the difficulty of steps."""
        return sum(
            (
                share * accepted(self.draft(top1, spec), top1, self.off_spine)
                for share, top1 in self._steps(spec)
            ),
            start=np.zeros(spec.positions),
        )

    def survival_by_budget(self, spec: TreeSpec) -> Array:
        """(budget, positions) the same for trees of 1, 2, ... nodes, the budget of *spec* the last."""
        return sum(
            (share * self._by_budget(top1, spec) for share, top1 in self._steps(spec)),
            start=np.zeros((spec.budget, spec.positions)),
        )

    def _by_budget(self, top1: Array, spec: TreeSpec) -> Array:
        """A smaller tree is the beginning of a larger one."""
        tree = self.draft(top1, spec)
        added = np.zeros((spec.budget, spec.positions))
        for place, chance in enumerate(path_chances(tree, top1, self.off_spine)):
            added[place, tree.nodes[place].depth] = chance
        return np.cumsum(added, axis=0)

    def _steps(self, spec: TreeSpec) -> Iterator[tuple[float, Array]]:
        """Every kind of step: its share, and (positions,) how often the first choice is right in it."""
        for ease in (eases := _eases(self.step_sd)):
            yield (1 - self.easy_share) / len(eases), self.top1_by_depth(spec.positions, ease)
        if self.easy_share:
            # A better drafter is better in easy steps too.
            sure = special.expit(special.logit(EASY_TOP1) + max(0.0, self.shift))
            yield self.easy_share, np.full(spec.positions, sure)


def accepted(tree: DraftTree, top1: Array, off_spine: float = 1.0) -> Array:
    """(positions,) P(L > d) of *tree* where first choices are right with chances *top1*."""
    depths = np.array([node.depth for node in tree.nodes], dtype=int)
    return np.asarray(np.bincount(depths, path_chances(tree, top1, off_spine), len(top1)), dtype=float)


def path_chances(tree: DraftTree, top1: Array, off_spine: float = 1.0) -> list[float]:
    """(nodes,) chance that each and all before it are accepted: leaving the spine is free, going on costs."""
    rows = marginals(top1, 1 + max((node.rank for node in tree.nodes), default=0))
    spine = [True, *ddtree.on_spine(tree)]
    chances = [1.0]
    for node in tree.nodes:
        penalty = 1.0 if spine[node.parent] else off_spine
        chances.append(chances[node.parent] * rows[node.depth][node.rank] * penalty)
    return chances[1:]


def marginals(top1: Array, ranks: int) -> list[list[float]]:
    """(positions, ranks) what a drafter gives each choice; a tree of n nodes needs n ranks at most.

    No choice is likelier than the first: what a Zipf tail would give beyond that goes to
    choices that no tree ever holds.
    """
    tail = _tail()[: ranks - 1]
    return [[first, *np.minimum(first, (1.0 - first) * tail).tolist()] for first in top1.tolist()]


@cache
def _tail() -> Array:
    """Shares of the second, third, ... choice in what the first leaves over."""
    weights = np.arange(1, TAIL_RANKS, dtype=float) ** -TAIL_EXPONENT
    return np.asarray(weights / weights.sum())


def _log_depth(positions: int) -> Array:
    return np.log(np.arange(1, positions + 1))


def _eases(step_sd: float) -> list[float]:
    """Quantiles of the normal distribution of eases, equally likely."""
    if step_sd == 0:
        return [0.0]
    quantiles: Array = special.ndtri((np.arange(EASES) + 0.5) / EASES)
    return [step_sd * quantile for quantile in quantiles.tolist()]
