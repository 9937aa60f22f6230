"""What a draft tree is worth: laws of the numbers, of the layout and of the pictures."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from builders import BASE, full_setup
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread
from scipy import special

from hwmodels.errors import HardwareError
from sim import ddtree, pictures
from sim.choices import Shape
from sim.ddtree import DraftTree, Node, TreeSpec
from sim.drafting import REACHED, acceptance_model
from sim.errors import ScenarioError
from sim.quality import EASY_TOP1, DrafterQuality, accepted, marginals, path_chances
from sim.setup import Setup
from sim.trees import layout as tree_layout
from sim.trees import pictures as tree_pictures
from sim.trees import report as tree_report
from sim.trees import view as tree_view
from sim.trees.view import AcceptanceView, TreeView

KIMI_TREE = "acceptance={quality: {mean_length: 4.4, block: 8, budget: 8}}"
STRONG = "drafter={model: kimi_dflash_block16, block: 16}"
STRONG_TREE = "acceptance={quality: {mean_length: 14, block: 16, budget: 32}}"
FREE_TREE = "acceptance={quality: {mean_length: 4.4, block: 8, budget: 8, off_spine: 1}}"
KINDS = {
    "length": "{length: 5}",
    "rates": "{rates: [0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28]}",
    "hazard": "{hazard: 0.8, request_sd: 0.5}",
    "mean_length": "{mean_length: 4.4, mean_length_range: [4, 5]}",
    "quality": "{quality: {}}",
}

chances = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).map(np.array)
qualities = st.builds(
    DrafterQuality,
    top1_logit=st.floats(-3, 5),
    depth_slope=st.floats(0, 2),
    step_sd=st.sampled_from([0.0, 0.5, 2.0]),
    easy_share=st.sampled_from([0.0, 0.1, 0.5]),
    off_spine=st.sampled_from([0.0, 0.3, 1.0]),
    stated_slope=st.sampled_from([0.0, 1.0]),
)
blocks, budgets = st.integers(2, 9), st.integers(1, 12)
means = st.floats(1.5, 7.5)


def tree_of(top1: np.ndarray, budget: int) -> DraftTree:
    return ddtree.build(marginals(top1, budget), budget)


@cache
def view_of(*overrides: str) -> AcceptanceView:
    return tree_view.of(full_setup(*overrides))


def shown(*overrides: str) -> TreeView:
    tree = view_of(*overrides).tree
    assert tree is not None
    return tree


def quality_view(block: int, budget: int, *changes: str) -> tuple[Setup, AcceptanceView, TreeView]:
    """A scenario of *block* and *budget*, shown."""
    setup = full_setup(f"drafter.block={block}", f"tree.budget={budget}", *changes)
    view = tree_view.of(setup)
    assert view.tree is not None
    return setup, view, view.tree


# The tree and its chances.


@given(chances, st.integers(1, 40), st.floats(0, 1))
def test_chances_add_up_by_depth_to_what_is_accepted(top1: np.ndarray, budget: int, off_spine: float) -> None:
    tree = tree_of(top1, budget)
    sums = np.zeros(len(top1))
    for node, chance in zip(tree.nodes, path_chances(tree, top1, off_spine), strict=True):
        sums[node.depth] += chance
    assert sums == pytest.approx(accepted(tree, top1, off_spine))


@given(chances, st.integers(1, 40), st.floats(0, 1))
def test_a_chance_is_the_product_along_the_path_with_a_penalty_after_every_other_choice(
    top1: np.ndarray, budget: int, off_spine: float
) -> None:
    rows, tree = marginals(top1, budget), tree_of(top1, budget)
    found = path_chances(tree, top1, off_spine)
    for node, chance in zip(tree.nodes, found, strict=True):
        path = [node]
        while path[0].parent:
            path.insert(0, tree.nodes[path[0].parent - 1])
        expected, left = 1.0, False
        for step in path:
            expected *= rows[step.depth][step.rank] * (off_spine if left else 1.0)
            left = left or step.rank > 0
        assert chance == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(chances, st.integers(1, 40))
def test_the_spine_is_the_nodes_whose_ranks_are_all_0(top1: np.ndarray, budget: int) -> None:
    tree = tree_of(top1, budget)
    ranks: list[tuple[int, ...]] = [()]
    for node in tree.nodes:
        ranks.append((*ranks[node.parent], node.rank))
    assert list(ddtree.on_spine(tree)) == [set(path) == {0} for path in ranks[1:]]


@given(qualities, st.integers(1, 6), st.integers(1, 24), st.sampled_from(Shape))
def test_survival_of_every_budget_is_that_of_each(
    quality: DrafterQuality, positions: int, budget: int, shape: Shape
) -> None:
    rows = quality.survival_by_budget(TreeSpec(positions + 1, budget, shape))
    assert rows.shape == (budget, positions)
    for nodes in {1, (budget + 1) // 2, budget}:
        expected = quality.survival(TreeSpec(positions + 1, nodes, shape))
        assert rows[nodes - 1] == pytest.approx(expected, abs=1e-14)


@given(qualities, st.integers(1, 6), st.integers(1, 12), st.floats(-2, 2))
def test_easy_steps_are_mixed_in_by_their_share(
    quality: DrafterQuality, positions: int, budget: int, shift: float
) -> None:
    none, some, all_ = (
        replace(quality, shift=shift, easy_share=share).survival(TreeSpec(positions + 1, budget))
        for share in (0.0, 0.25, 1.0)
    )
    assert some == pytest.approx(0.75 * none + 0.25 * all_, abs=1e-12)
    sure = special.expit(special.logit(EASY_TOP1) + max(0.0, shift))
    top1 = np.full(positions, sure)
    tree = quality.draft(top1, TreeSpec(positions + 1, budget))
    assert all_ == pytest.approx(accepted(tree, top1, quality.off_spine), abs=1e-12)


# What is shown.


@given(blocks, budgets, means, st.sampled_from([0.0, 0.7]))
def test_the_scenarios_own_numbers_are_those_of_its_model(
    block: int, budget: int, mean: float, request_sd: float
) -> None:
    text = f"acceptance={{quality: {{mean_length: {mean}, block: 8, budget: 8}}, request_sd: {request_sd}}}"
    setup, view, tree = quality_view(block, budget, text)
    model = acceptance_model(setup)
    own = next(at for at in tree.budgets if at.budget == budget)
    curve = next(curve for curve in tree.curves if curve.block == block)
    assert view.mean_length == model.mean_length()
    assert list(view.shares) == model.distribution().tolist()
    assert own.mean_length == pytest.approx(view.mean_length, abs=1e-9)
    assert next(at for at in tree.blocks if at.block == block).mean_length == pytest.approx(own.mean_length)
    assert curve.mean_lengths[curve.budgets.index(budget)] == pytest.approx(own.mean_length)
    at_asked = tree_view.of(full_setup(text)).mean_length
    assert tree.asked_length == pytest.approx(at_asked)


@given(blocks, budgets, means)
def test_shares_add_to_1_and_have_the_mean(block: int, budget: int, mean: float) -> None:
    text = f"acceptance={{quality: {{mean_length: {mean}, block: 8, budget: 8}}}}"
    _, view, _ = quality_view(block, budget, text)
    assert view.cap == min(block, budget + 1)
    assert sum(view.shares) == pytest.approx(1)
    assert sum(n * share for n, share in enumerate(view.shares, 1)) == pytest.approx(view.mean_length)
    assert view.at_least[0] == pytest.approx(1)
    assert sum(view.at_least) == pytest.approx(view.mean_length)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(view.at_least))


@given(blocks, budgets, means)
def test_without_a_penalty_more_is_never_less_and_each_node_adds_less(
    block: int, budget: int, mean: float
) -> None:
    text = f"acceptance={{quality: {{mean_length: {mean}, block: 8, budget: 8, off_spine: 1}}}}"
    for drafter in ("kimi_dflash", "kimi_dflash_block16"):
        _, _, tree = quality_view(block, budget, f"drafter.model={drafter}", text)
        series = [
            [at.mean_length for at in tree.budgets],
            [at.mean_length for at in tree.blocks],
            [-gain for gain in tree.next_nodes],
            *(curve.mean_lengths for curve in tree.curves),
        ]
        for values in series:
            assert all(b >= a - 1e-9 for a, b in itertools.pairwise(values))


@given(blocks, budgets, means, st.sampled_from([0.0, 0.3, 1.0]))
def test_no_length_exceeds_its_cap(block: int, budget: int, mean: float, off_spine: float) -> None:
    text = f"acceptance={{quality: {{mean_length: {mean}, block: 8, budget: 8, off_spine: {off_spine}}}}}"
    _, _, tree = quality_view(block, budget, text)
    assert all(1 <= at.mean_length <= min(block, at.budget + 1) + 1e-9 for at in tree.budgets)
    assert all(at.cap == min(at.block, budget + 1) for at in tree.blocks)
    assert all(1 <= at.mean_length <= at.cap + 1e-9 for at in tree.blocks)


@given(blocks, budgets)
def test_what_the_next_node_adds_is_the_difference(block: int, budget: int) -> None:
    _, _, tree = quality_view(block, budget, KIMI_TREE)
    assert len(tree.next_nodes) == 2 * budget
    own = next(curve for curve in tree.curves if curve.block == block)
    lengths = dict(zip(own.budgets, own.mean_lengths, strict=True))
    for nodes, gain in enumerate(tree.next_nodes[:budget], 1):
        assert gain == pytest.approx(lengths[nodes + 1] - lengths[nodes], abs=1e-12)
    for at in tree.budgets:
        if at.budget <= 2 * budget:
            assert at.next_node == pytest.approx(tree.next_nodes[at.budget - 1], abs=1e-12)


@given(blocks, st.integers(1, 40))
def test_the_ladder_doubles_to_four_times_the_budget_and_has_the_chain(block: int, budget: int) -> None:
    setup = full_setup(f"drafter.block={block}", f"tree.budget={budget}", "acceptance={length: 2}")
    rungs = tree_view.ladder(setup)
    powers = {2**power for power in range(20) if 2**power <= 4 * budget}
    assert set(rungs) == powers | {budget, block - 1}
    assert list(rungs) == sorted(rungs)


def test_nodes_by_depth_are_those_of_the_tree_at_each_budget() -> None:
    tree = shown(KIMI_TREE, "tree.budget=32")
    for at in tree.budgets:
        nodes = tree_of(np.array(tree.first_choices), at.budget).nodes
        assert list(at.nodes_by_depth) == np.bincount([n.depth for n in nodes], minlength=7).tolist()


def test_the_tree_shown_is_that_of_middling_difficulty() -> None:
    tree = shown(STRONG, STRONG_TREE, "tree.budget=32")
    top1 = tree.quality.top1_by_depth(15)
    assert tree.first_choices == tuple(top1)
    assert tree.tree == tree_of(top1, 32)
    assert tree.middling_length == pytest.approx(1 + accepted(tree.tree, top1, 0.3).sum())


@pytest.mark.parametrize(
    ("block", "expected"), [(2, [2, 4]), (4, [2, 4, 8]), (8, [4, 8, 16]), (12, [6, 12, 16]), (16, [8, 16])]
)
def test_curves_have_half_the_block_and_twice_as_far_as_it_was_trained(
    block: int, expected: list[int]
) -> None:
    tree = shown(STRONG, f"drafter.block={block}", STRONG_TREE, "tree.budget=4")
    assert [curve.block for curve in tree.curves] == expected


def test_a_measured_drafter_lands_nothing_beyond_its_block_and_a_curve_goes_on() -> None:
    measured, curve = shown(KIMI_TREE), shown(STRONG, STRONG_TREE, "tree.budget=64")
    assert (measured.known_block, measured.lands_nothing_beyond) == (8, True)
    assert {round(at.mean_length, 9) for at in measured.blocks if at.block >= 8} == {round(4.4, 9)}
    assert (curve.known_block, curve.lands_nothing_beyond) == (16, False)
    assert curve.blocks[-1].block == 32
    beyond = [at.mean_length for at in curve.blocks if at.block >= 16]
    assert all(b > a for a, b in itertools.pairwise(beyond))


def test_of_many_blocks_some_are_shown_and_the_own_and_the_trained_one_are() -> None:
    tree = shown("drafter={model: kimi_dflash_block16, block: 101}", STRONG_TREE, "tree.budget=2")
    found = [at.block for at in tree.blocks]
    assert len(found) <= tree_view.MAX_BLOCKS + 2
    assert {2, 16, 101, 202} <= set(found)


@pytest.mark.parametrize(("kind", "text"), KINDS.items(), ids=KINDS)
def test_every_kind_of_acceptance_has_its_distribution(kind: str, text: str) -> None:
    view = view_of(f"acceptance={text}")
    assert view.kind == kind
    assert (view.tree is not None) == (kind == "quality")
    assert sum(view.shares) == pytest.approx(1)
    printed = "\n".join(tree_report.lines(view))
    assert f"E[L] {view.mean_length:.2f} of at most 8 tokens a step" in printed
    assert ("--set 'acceptance={quality: {}}'" in printed) == (kind != "quality")
    assert ("next node adds" in printed) == (kind == "quality")


def test_the_published_rates_are_shown_as_they_are() -> None:
    """Unconditional rates of Kimi K2.6 DFlash on K2.7: 4.73 tokens a step of a chain."""
    view = view_of("acceptance={quality: {}}", "tree.budget=7")
    assert view.mean_length == pytest.approx(4.73)
    assert view.at_least[1:] == pytest.approx((0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28))


@pytest.mark.parametrize(
    ("change", "key"), [("tree.budget=0", "tree.budget"), ("drafter.block=1", "drafter.block")]
)
def test_plain_decoding_has_nothing_to_show(change: str, key: str) -> None:
    with pytest.raises(ScenarioError, match="is plain decoding: nothing is drafted") as caught:
        tree_view.load(BASE, (change,))
    assert caught.value.key == key
    assert str(caught.value).startswith(f"--set {change}: {key}: {change[-1]} is plain")


def test_plain_decoding_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(BASE.read_text().replace("tree: {budget: 8}", "tree:\n  budget: 0"))
    line = path.read_text().splitlines().index("  budget: 0") + 1
    with pytest.raises(ScenarioError, match=f"plain.yaml:{line}: tree.budget: 0 is plain decoding"):
        tree_view.load(path)


def test_a_drafter_of_unknown_accuracy_is_refused() -> None:
    setup = full_setup("acceptance={quality: {}}")
    unknown = Setup(
        setup.scenario, setup.model, setup.drafter.model_copy(update={"accuracy": None}), setup.machine
    )
    with pytest.raises(HardwareError, match="kimi_dflash: no accuracy is known for it"):
        tree_view.of(unknown)


# Text.


def test_the_report_fits_a_screen() -> None:
    for changes in (
        (KIMI_TREE,),
        (STRONG, STRONG_TREE, "tree.budget=128"),
        (STRONG, STRONG_TREE, "tree.budget=1024"),
    ):
        printed = tree_report.lines(view_of(*changes))
        assert len(printed) <= 50
        assert max(map(len, printed)) <= 110


def test_a_large_block_is_told_in_groups() -> None:
    view = view_of(
        "drafter={model: kimi_dflash_block16, block: 100}",
        "acceptance={quality: {mean_length: 60}}",
        "tree.budget=99",
    )
    printed = tree_report.lines(view)
    firsts = [line.split()[0] for line in printed if line.strip()]
    assert {"1-7", "8-14", "99-100"} <= set(firsts)
    (row,) = [line.replace("█", "").split() for line in printed if line.strip().startswith("8-14 ")]
    assert row[1::2] == [f"{100 * share:.1f}" for share in (sum(view.shares[7:14]), view.at_least[7])]
    assert sum("█" in line for line in printed) <= tree_report.MAX_ROWS
    assert any("nodes at depth" in line and "1-13" in line for line in printed)
    assert max(map(len, printed)) <= 110


def test_the_table_says_what_the_view_says() -> None:
    view, tree = view_of(KIMI_TREE), shown(KIMI_TREE)
    printed = tree_report.lines(view)
    for at in tree.budgets:
        counts = " ".join(str(count) for count in at.nodes_by_depth if count)
        row = f"{at.budget} {at.mean_length:.2f} {at.next_node:.4f} {counts}"
        assert sum(" ".join(line.replace(">", "").split()) == row for line in printed) == 1
    (own,) = [line.lstrip() for line in printed if line.lstrip().startswith(">")]
    assert own.split()[1] == "8"
    for n, (share, at_least) in enumerate(zip(view.shares, view.at_least, strict=True), 1):
        row = [f"{n}", f"{100 * share:.1f}", "%", f"{100 * at_least:.1f}", "%"]
        assert sum(line.replace("█", "").split() == row for line in printed) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((KIMI_TREE,), "The accuracy is given up to block 8; positions beyond land nothing."),
        ((STRONG, STRONG_TREE), "Trained for block 16; beyond, the curve over depth is extrapolated."),
        (("acceptance={mean_length: 4.4, mean_length_range: [4, 5]}",), "does not know the mean: 4 to 5."),
        (("acceptance={hazard: 0.8, decay_per_1k_context: 0.1}",), "fall by 0.1 per 1,000 tokens decoded"),
        (
            ("acceptance={mean_length: 4.4}",),
            "quality: {mean_length: 4.4, block: 8, budget: 8, shape: ddtree}",
        ),
        ((KIMI_TREE,), "one node may add more than the one before it"),
    ],
)
def test_what_a_reader_must_know_is_said(changes: tuple[str, ...], said: str) -> None:
    assert said in " ".join(tree_report.lines(view_of(*changes)))


def test_what_is_not_so_is_not_said() -> None:
    printed = " ".join(tree_report.lines(view_of(FREE_TREE)))
    for words in ("may add more", "the nearest is", "does not know the mean", "tokens decoded"):
        assert words not in printed


def test_a_scenario_whose_drafter_is_unknown_is_not_told_to_ask_for_the_tree() -> None:
    setup = full_setup()
    unknown = Setup(
        setup.scenario, setup.model, setup.drafter.model_copy(update={"accuracy": None}), setup.machine
    )
    said = tree_report.how_to_ask(tree_view.of(unknown))
    assert "--set" not in said
    assert "no accuracy of kimi_dflash" in said


@given(means)
def test_a_mean_that_the_solver_misses_is_said_to_be_missed(mean: float) -> None:
    """The tree changes with the drafter, and with it E[L] jumps where leaving the spine costs."""
    _, view, _ = quality_view(8, 8, f"acceptance={{quality: {{mean_length: {mean}}}}}")
    missed = abs(view.mean_length - mean) > REACHED
    assert any("the nearest is" in line for line in tree_report.lines(view)) == missed


# Layout.


@st.composite
def trees(draw: st.DrawFn) -> tuple[Node, ...]:
    """Any tree whose nodes have their parents before them, siblings by rank."""
    nodes: list[Node] = []
    children = [0]
    for number in range(1, draw(st.integers(1, 30)) + 1):
        parent = draw(st.integers(0, number - 1))
        depth = nodes[parent - 1].depth + 1 if parent else 0
        nodes.append(Node(parent, depth, children[parent], 0.5))
        children[parent] += 1
        children.append(0)
    return tuple(nodes)


@given(trees())
def test_no_two_nodes_share_a_place_and_first_children_lie_in_line(nodes: tuple[Node, ...]) -> None:
    rows = tree_layout.rows(nodes)
    places = [(node.depth, row) for node, row in zip(nodes, rows[1:], strict=True)]
    assert rows[0] == 0
    assert len(set(places)) == len(nodes)
    for node, row in zip(nodes, rows[1:], strict=True):
        assert row >= rows[node.parent]
        assert (row == rows[node.parent]) == (node.rank == 0)


@given(trees())
def test_no_two_edges_cross_or_touch(nodes: tuple[Node, ...]) -> None:
    """Between two columns each parent spans the rows from its own to its last child's."""
    rows = tree_layout.rows(nodes)
    spans: dict[int, dict[int, list[int]]] = {}
    for number, node in enumerate(nodes, 1):
        spans.setdefault(node.depth, {}).setdefault(node.parent, [rows[node.parent]]).append(rows[number])
    for parents in spans.values():
        ranges = sorted((min(span), max(span)) for span in parents.values())
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(ranges))


def test_a_tree_takes_no_more_rows_than_it_must() -> None:
    """The sibling at depth 1 may lie in the row below, though the spine has one there at depth 3."""
    chain = [Node(0, 0, 0, 0.5), Node(1, 1, 0, 0.5), Node(2, 2, 0, 0.5), Node(2, 2, 1, 0.5)]
    assert tree_layout.rows((*chain, Node(0, 0, 1, 0.5))) == (0, 0, 0, 0, 1, 1)
    under = (*chain, Node(0, 0, 1, 0.5), Node(5, 1, 0, 0.5), Node(6, 2, 0, 0.5))
    assert tree_layout.rows(under) == (0, 0, 0, 0, 1, 2, 2, 2)


# Pictures.


def drawn(figure: Figure) -> list[str]:
    """Numbers on the nodes."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_text() != "root"]


def title(figure: Figure) -> str:
    return " ".join(figure.axes[0].get_title(loc="left").split())


def test_every_picture_is_there_and_not_blank(tmp_path: Path) -> None:
    names = tree_pictures.write(view_of(KIMI_TREE), tmp_path)
    stems = ("tree", "lengths", "budgets", "next_node", "blocks")
    assert sorted(names) == sorted(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    for stem in stems:
        image = imread(tmp_path / f"{stem}.png")
        assert min(image.shape[:2]) > 400
        assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 20
        assert len(list(ET.parse(tmp_path / f"{stem}.svg").getroot().iter())) > 50


def test_bytes_depend_on_nothing_but_the_view(tmp_path: Path) -> None:
    written = []
    for name, user in (("a", {}), ("b", {"figure.facecolor": "red", "font.size": 30, "savefig.dpi": 20})):
        (tmp_path / name).mkdir()
        with mpl.rc_context(user):  # type: ignore[arg-type]
            names = tree_pictures.write(view_of(KIMI_TREE), tmp_path / name)
        written.append({file: (tmp_path / name / file).read_bytes() for file in names})
    assert written[0] == written[1]


def test_without_a_tree_only_lengths_are_drawn(tmp_path: Path) -> None:
    assert tree_pictures.write(view_of(), tmp_path) == ["lengths.png", "lengths.svg"]


WIDE = (STRONG, "drafter.block=64", "acceptance={quality: {mean_length: 40}}", "tree.budget=64")
TALL = ("acceptance={quality: {mean_length: 2, off_spine: 1}}", "tree.budget=250")


@pytest.mark.parametrize(
    "changes",
    [
        *((KIMI_TREE, f"tree.budget={budget}") for budget in (8, 32, 128)),
        *((STRONG, STRONG_TREE, f"tree.budget={budget}") for budget in (8, 32, 128)),
        WIDE,
        TALL,
    ],
)
def test_nodes_lie_apart_and_areas_are_chances(changes: tuple[str, ...]) -> None:
    view, tree = view_of(*changes), shown(*changes)
    figure = tree_pictures.draft_tree(view, tree)
    figure.draw_without_rendering()
    plot, points = figure.axes[0], figure.dpi / 72
    others, spine, root = plot.collections
    assert len(spine.get_offsets()) == sum(tree.spine)
    assert len(others.get_offsets()) == len(tree.spine) - sum(tree.spine)
    centres = np.vstack([plot.transData.transform(c.get_offsets()) for c in (others, spine, root)])
    across = np.sqrt(np.concatenate([c.get_sizes() for c in (others, spine, root)])) * points
    for (a, wide_a), (b, wide_b) in itertools.combinations(zip(centres, across, strict=True), 2):
        assert np.hypot(*(a - b)) >= (wide_a + wide_b) / 2
    areas = dict(zip(np.flatnonzero(tree.spine), spine.get_sizes(), strict=True))
    largest = tree.chances[0]
    for at, area in areas.items():
        if area > tree_pictures.SMALLEST_NODE**2:
            assert area / areas[0] == pytest.approx(tree.chances[at] / largest)


@given(st.integers(0, 255), st.integers(0, 255))
def test_nodes_that_share_a_column_fit_into_their_rows(columns: int, rows: int) -> None:
    """Their chances add to 1 at most: at worst two neighbours of one half each."""
    canvas = tree_pictures.Canvas(columns, rows)
    inches = canvas.size[1] - tree_pictures.MARGINS[1]
    assert canvas.largest_node * np.sqrt(0.5) <= 72 * inches / (rows + 1)
    assert canvas.largest_node <= 72 * canvas.size[0] / (columns + 1)
    assert max(canvas.size) <= pictures.LARGEST


def test_the_spine_has_a_colour_and_a_weight_of_its_own() -> None:
    view, tree = view_of(KIMI_TREE, "tree.budget=32"), shown(KIMI_TREE, "tree.budget=32")
    lines = tree_pictures.draft_tree(view, tree).axes[0].lines
    looks = [(line.get_color(), line.get_linewidth()) for line in lines]
    assert len(lines) == 32
    assert len(set(looks)) == 2
    thick = {look for look, spine in zip(looks, tree.spine, strict=True) if spine}
    thin = {look for look, spine in zip(looks, tree.spine, strict=True) if not spine}
    ((colour, weight),), ((other_colour, other_weight),) = thick, thin
    assert colour != other_colour
    assert weight > 2 * other_weight
    assert all(set(line.get_ydata()) == {0} for line, spine in zip(lines, tree.spine, strict=True) if spine)


def test_an_edge_goes_right_down_and_right_from_parent_to_child() -> None:
    view, tree = view_of(KIMI_TREE, "tree.budget=32"), shown(KIMI_TREE, "tree.budget=32")
    rows = tree_layout.rows(tree.tree.nodes)
    lines = tree_pictures.draft_tree(view, tree).axes[0].lines
    for number, (node, line) in enumerate(zip(tree.tree.nodes, lines, strict=True), 1):
        top, bottom, left = rows[node.parent], rows[number], node.depth
        assert list(line.get_xdata()) == [left, left + 0.5, left + 0.5, left + 1]
        assert list(line.get_ydata()) == [top, top, bottom, bottom]


def test_numbers_are_the_chances_of_the_largest_nodes_and_the_title_counts_the_others() -> None:
    view, tree = view_of(KIMI_TREE, "tree.budget=32"), shown(KIMI_TREE, "tree.budget=32")
    figure = tree_pictures.draft_tree(view, tree)
    numbers = drawn(figure)
    largest = sorted(tree.chances, reverse=True)[: len(numbers)]
    assert sorted(numbers) == sorted(f"{100 * chance:.0f}" for chance in largest)
    assert f"{32 - len(numbers)} nodes are too small for their number" in title(figure)
    assert "it lands 4.75 tokens" in title(figure)
    small = tree_pictures.draft_tree(view_of(KIMI_TREE), shown(KIMI_TREE))
    assert len(drawn(small)) == 8
    assert "too small" not in title(small)


def test_of_a_large_tree_the_most_probable_nodes_are_drawn() -> None:
    changes = (STRONG, "acceptance={quality: {mean_length: 8}}", "tree.budget=300")
    figure = tree_pictures.draft_tree(view_of(*changes), shown(*changes))
    assert len(figure.axes[0].lines) == tree_pictures.MAX_NODES
    assert "The 256 most probable nodes are drawn, 44 left out" in title(figure)
    counts = [label.get_text().split("\n") for label in figure.axes[0].get_xticklabels()][1:]
    nodes = [node.depth + 1 for node in shown(*changes).tree.nodes]
    assert all(int(count) == nodes.count(int(depth)) for depth, count, _ in counts)


@pytest.mark.parametrize("changes", [(KIMI_TREE,), (STRONG, STRONG_TREE, "tree.budget=128")])
def test_nothing_written_is_cut_off_and_labels_lie_apart(changes: tuple[str, ...]) -> None:
    view, tree = view_of(*changes), shown(*changes)
    long_name = view.setup.drafter.model_copy(update={"name": "a drafter of a long name " * 4})
    view = replace(view, setup=replace(view.setup, drafter=long_name))
    makers = (tree_pictures.budgets, tree_pictures.next_node, tree_pictures.blocks, tree_pictures.draft_tree)
    with mpl.rc_context(pictures.STYLE):
        figures = [tree_pictures.lengths(view), *(maker(view, tree) for maker in makers)]
    for figure in figures:
        figure.draw_without_rendering()
        plot = figure.axes[0]
        texts = [plot._left_title, *(t for legend in figure.legends for t in legend.get_texts())]  # type: ignore[attr-defined]
        for text in texts:
            assert text.get_window_extent().x1 <= figure.bbox.x1
        for labels in (plot.get_xticklabels(), plot.get_yticklabels()):
            assert not any("$" in label.get_text() for label in labels)
        boxes = [tick.get_window_extent() for tick in plot.get_xticklabels() if tick.get_rotation() == 0]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(sorted(boxes, key=lambda box: box.x0)))


def test_curves_show_the_numbers_of_the_view() -> None:
    view, tree = view_of(STRONG, STRONG_TREE, "tree.budget=32"), shown(STRONG, STRONG_TREE, "tree.budget=32")
    lines = {line.get_label(): line for line in tree_pictures.budgets(view, tree).axes[0].lines}
    for curve in tree.curves:
        line = lines[f"block {curve.block}"]
        assert tuple(line.get_xdata()) == curve.budgets
        assert tuple(line.get_ydata()) == curve.mean_lengths
    assert lines["block 16"].get_linestyle() == "-"
    assert list(lines["cap of block 16"].get_ydata()) == [min(16, b + 1) for b in range(1, 129)]
    own = lines["this scenario: 14"]
    assert (list(own.get_xdata()), own.get_ydata()) == ([32], [pytest.approx(14)])
    gains = tree_pictures.next_node(view, tree).axes[0]
    assert gains.get_yscale() == "log"
    assert list(gains.lines[0].get_ydata()) == pytest.approx(tree.next_nodes)
    over_blocks = tree_pictures.blocks(view, tree).axes[0].lines[0]
    assert list(over_blocks.get_ydata()) == [at.mean_length for at in tree.blocks]


def test_lengths_are_bars_and_steps() -> None:
    view = view_of(KIMI_TREE)
    plot = tree_pictures.lengths(view).axes[0]
    bars = [patch.get_height() for patch in plot.containers[0]]  # type: ignore[attr-defined]
    (steps,) = [patch for patch in plot.patches if patch not in plot.containers[0].patches]  # type: ignore[attr-defined]
    assert bars == pytest.approx(view.shares)
    assert list(steps.get_data().values) == pytest.approx(view.at_least)  # type: ignore[attr-defined]


def test_where_no_node_adds_anything_the_picture_says_so() -> None:
    """A perfect drafter at a budget beyond its chain: no gain is left, and no logarithm of it."""
    view = view_of("acceptance={quality: {mean_length: 8}}", "tree.budget=32")
    tree = shown("acceptance={quality: {mean_length: 8}}", "tree.budget=32")
    nothing = replace(tree, next_nodes=(0.0,) * 64)
    plot = tree_pictures.next_node(view, nothing).axes[0]
    assert plot.get_yscale() == "linear"
    assert [text.get_text() for text in plot.texts] == ["no further node adds anything"]
    assert tree_pictures.next_node(view, tree).axes[0].get_yscale() == "log"


def test_a_tree_without_nodes_can_be_drawn(tmp_path: Path) -> None:
    """Where the first position is never right nothing is drafted at all."""
    view = view_of(KIMI_TREE)
    tree = replace(shown(KIMI_TREE), tree=DraftTree((), 0), chances=(), spine=())
    assert "it lands 1.00 tokens" in title(tree_pictures.draft_tree(view, tree))
    assert len(tree_pictures.write(replace(view, tree=tree), tmp_path)) == 10
