"""What a draft tree is worth, before anything is simulated: acceptance lengths, budgets and blocks.

Everything follows from the acceptance of a scenario (``sim.drafting``) and, where that
follows from the tree, from the drafter's accuracy (``sim.quality``). The drafter stays the
same while block and budget change. Trees of one step are nested, so that one tree gives
E[L] at every smaller budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwmodels.drafters import Drafter
from sim import ddtree, scenario
from sim.ddtree import DraftTree, Node, TreeSpec
from sim.drafting import acceptance_model, drafter_quality, landed, survival_model
from sim.errors import ScenarioError
from sim.quality import DrafterQuality, path_chances
from sim.scenario import KINDS, MAX_BLOCK
from sim.setup import Setup, resolve

LARGEST_BUDGET = 4
"""The ladder of budgets ends at this many times the scenario's."""
EVERY_BUDGET = 64
"""Curves have every budget up to this, and beyond it those of the ladder."""
LARGEST_NEXT = 2
"""The worth of one more node is shown up to this many times the scenario's budget."""
LARGEST_BLOCK = 2
"""Blocks go to this many times the larger of the scenario's and the trained one."""
MAX_BLOCKS = 32
"""Of more blocks than this only some are looked at."""


@dataclass(frozen=True)
class AtBudget:
    """The scenario's block with trees of *budget* nodes."""

    budget: int
    mean_length: float
    next_node: float
    """E[L] that one node more would add."""
    nodes_by_depth: tuple[int, ...]
    """Nodes at depth 1, 2, ... of the tree of a step of middling difficulty."""


@dataclass(frozen=True)
class AtBlock:
    """The scenario's budget with another *block*."""

    block: int
    mean_length: float
    cap: int


@dataclass(frozen=True)
class Curve:
    """E[L] of one *block* at each of *budgets*."""

    block: int
    budgets: tuple[int, ...]
    mean_lengths: tuple[float, ...]


@dataclass(frozen=True)
class TreeView:
    """What follows from the drafter's accuracy."""

    quality: DrafterQuality
    first_choices: tuple[float, ...]
    """Chance that each position is right on the spine, in a step of middling difficulty."""
    tree: DraftTree
    """Of that step."""
    chances: tuple[float, ...]
    """That each node is accepted."""
    spine: tuple[bool, ...]
    """Whether each node is on the path of first choices."""
    budgets: tuple[AtBudget, ...]
    next_nodes: tuple[float, ...]
    """E[L] that the next node adds to 1, 2, ... nodes."""
    blocks: tuple[AtBlock, ...]
    curves: tuple[Curve, ...]
    asked_length: float
    """E[L] at the block and budget for which a mean length was asked."""
    known_block: int
    """The largest block that the accuracy was known or trained for."""

    @property
    def middling_length(self) -> float:
        """E[L] of the tree that is shown."""
        return 1.0 + sum(self.chances)

    @property
    def lands_nothing_beyond(self) -> bool:
        """True where positions beyond the known block land nothing; else they are extrapolated."""
        return bool(self.quality.top1)


@dataclass(frozen=True)
class AcceptanceView:
    """The acceptance lengths of a scenario, over requests and the difficulty of steps."""

    setup: Setup
    kind: str
    """The key of the scenario's acceptance: ``hazard``, ``quality``, ..."""
    mean_length: float
    shares: tuple[float, ...]
    """P(L = 1 ... cap), at the context where decoding begins."""
    tree: TreeView | None
    """None where acceptance does not follow from the tree."""

    @property
    def cap(self) -> int:
        """The longest length."""
        return len(self.shares)

    @property
    def at_least(self) -> tuple[float, ...]:
        """P(L >= 1 ... cap)."""
        return tuple(np.cumsum(self.shares[::-1])[::-1].tolist())


def load(path: Path, overrides: tuple[str, ...] = ()) -> Setup:
    """The setup in *path* with *overrides* applied; ScenarioError where it drafts nothing."""
    document = scenario.edited(path, overrides)
    asked = scenario.build(document)
    if asked.is_plain:
        key = "tree.budget" if asked.tree.budget == 0 else "drafter.block"
        found = asked.tree.budget if asked.tree.budget == 0 else asked.drafter.block
        raise ScenarioError(
            *document.place(tuple(key.split("."))),
            key,
            f"{found} is plain decoding: nothing is drafted, so there is no acceptance to show;"
            " expected tree.budget of at least 1 and drafter.block of at least 2",
        )
    return resolve(asked)


def of(setup: Setup) -> AcceptanceView:
    """What the acceptance of *setup*, which drafts, looks like.

    HardwareError where it follows from the tree and the drafter's accuracy is not known.
    """
    given = setup.scenario.acceptance
    model = acceptance_model(setup)
    return AcceptanceView(
        setup=setup,
        kind=next(kind for kind in KINDS if getattr(given, kind) is not None),
        mean_length=model.mean_length(),
        shares=tuple(model.distribution().tolist()),
        tree=None if given.quality is None else _tree_view(setup),
    )


def _tree_view(setup: Setup) -> TreeView:
    asked = setup.scenario
    quality = drafter_quality(setup, asked.acceptance.asked_mean)
    top1, known = (
        quality.top1_by_depth(asked.drafted.positions),
        _known_block(quality, setup.drafter, asked.drafter.block),
    )
    tree = quality.draft(top1, asked.drafted)
    return TreeView(
        quality=quality,
        first_choices=tuple(top1.tolist()),
        tree=tree,
        chances=tuple(path_chances(tree, top1, quality.off_spine)),
        spine=ddtree.on_spine(tree),
        budgets=_at_budgets(setup, quality),
        next_nodes=_next_nodes(setup, quality),
        blocks=tuple(_at_block(setup, quality, block) for block in _blocks(setup, known)),
        curves=tuple(_curve(setup, quality, block) for block in _curve_blocks(setup)),
        asked_length=landed(quality, asked.asked_at, asked.acceptance.request_sd),
        known_block=known,
    )


def ladder(setup: Setup) -> tuple[int, ...]:
    """Budgets to compare: powers of two, the scenario's own, and a chain through the block."""
    own, chain = setup.scenario.tree.budget, setup.scenario.drafter.block - 1
    powers = {1 << power for power in range((LARGEST_BUDGET * own).bit_length())}
    return tuple(sorted(powers | {own, chain}))


def _mean_lengths(setup: Setup, quality: DrafterQuality, block: int, budgets: Sequence[int]) -> list[float]:
    """E[L] at each of *budgets*."""
    rows = quality.survival_by_budget(setup.scenario.drafted._replace(block=block, budget=max(budgets)))
    request_sd = setup.scenario.acceptance.request_sd
    return [survival_model(rows[budget - 1], request_sd).mean_length() for budget in budgets]


def _at_budgets(setup: Setup, quality: DrafterQuality) -> tuple[AtBudget, ...]:
    budgets, spec = ladder(setup), setup.scenario.drafted
    # Each budget, and one node more.
    lengths = _mean_lengths(setup, quality, spec.block, [*budgets, *(budget + 1 for budget in budgets)])
    # The largest tree begins with every smaller one.
    largest = quality.draft(quality.top1_by_depth(spec.positions), spec._replace(budget=budgets[-1]))
    return tuple(
        AtBudget(budget, here, beyond - here, _nodes_by_depth(largest.nodes[:budget], spec.block))
        for budget, here, beyond in zip(budgets, lengths, lengths[len(budgets) :], strict=False)
    )


def _nodes_by_depth(nodes: Sequence[Node], block: int) -> tuple[int, ...]:
    depths = np.array([node.depth for node in nodes], dtype=int)
    return tuple(np.bincount(depths, minlength=block - 1).tolist())


def _next_nodes(setup: Setup, quality: DrafterQuality) -> tuple[float, ...]:
    budgets = range(1, LARGEST_NEXT * setup.scenario.tree.budget + 2)
    lengths = _mean_lengths(setup, quality, setup.scenario.drafter.block, budgets)
    return tuple(np.diff(lengths).tolist())


def _at_block(setup: Setup, quality: DrafterQuality, block: int) -> AtBlock:
    spec: TreeSpec = setup.scenario.drafted._replace(block=block)
    return AtBlock(block, landed(quality, spec, setup.scenario.acceptance.request_sd), spec.cap)


def _curve(setup: Setup, quality: DrafterQuality, block: int) -> Curve:
    rungs = ladder(setup)
    budgets = tuple(sorted({*rungs, *range(1, min(rungs[-1], EVERY_BUDGET) + 1)}))
    return Curve(block, budgets, tuple(_mean_lengths(setup, quality, block, budgets)))


def _known_block(quality: DrafterQuality, drafter: Drafter, own: int) -> int:
    """The largest block that the accuracy is given for or, where it is a curve, the drafter trained for.

    The scenario's *own* where it was trained for none.
    """
    return len(quality.top1) + 1 if quality.top1 else drafter.longest_block or own


def _blocks(setup: Setup, known: int) -> list[int]:
    """Blocks to compare, from 2; the scenario's and the *known* one always among them."""
    own = setup.scenario.drafter.block
    last = min(MAX_BLOCK, LARGEST_BLOCK * max(own, known))
    spread = np.linspace(2, last, min(MAX_BLOCKS, last - 1)).round().astype(int).tolist()
    return sorted({*spread, own, max(2, known)})


def _curve_blocks(setup: Setup) -> list[int]:
    """Half the scenario's block, the block, and up to twice of it, as far as the drafter was trained."""
    own = setup.scenario.drafter.block
    trained = setup.drafter.longest_block or 2 * own
    return sorted({max(2, own // 2), own, max(own, min(2 * own, trained))})
