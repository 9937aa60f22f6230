"""Pictures show every pair of axes through the best cell, and depend on nothing but the result."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from sweeps import plan_of, result_with, write_tiny

from sim.sweeps import pictures
from sim.sweeps.plan import Plan, from_target
from sim.sweeps.result import SweepResult, index_of

WIDE = "tree.budget=1..20"
TALL = "seed=1..20"
LONG = [f"{{mean_length: 1.5, request_sd: 0.{digit}}}" for digit in range(1, 5)]


def hill(plan: Plan, peak: tuple[int, ...], missing: tuple[int, ...] = ()) -> SweepResult:
    """A result that falls off from the cell at *peak*; cells *missing* failed."""
    found = {}
    for cell in plan.cells:
        if cell.index in missing:
            continue
        at = [axis.values.index(value) for axis, value in zip(plan.axes, cell.point, strict=True)]
        height = 900 / (1 + 0.02 * sum((a - b) ** 2 for a, b in zip(at, peak, strict=True)))
        found[cell.index] = [height + luck for luck in (-20.0, -10.0, 0.0, 10.0, 20.0)]
    return result_with(plan, found)


def three() -> SweepResult:
    return hill(plan_of("tree.budget=4,8,16", "drafter.block=6,7,8,9", "gpus=4,8"), (1, 2, 1), (3,))


def engines(folder: Path, axis: str, question: str, label: str) -> Plan:
    """A sweep file over bundles of any names."""
    changes = f'"small": {{tree.budget: 4}}, "{label}": {{tree.budget: 16}}'
    text = f'question: "{question}"\nscenario: tiny.yaml\n'
    write_tiny(folder, sweep=f'{text}axes: {{"{axis}": {{{changes}}}, drafter.block: [6, 8]}}\n')
    return from_target(str(folder / "sweep.yaml"), (), ())


def labels(figure: Figure) -> set[str]:
    """Every axis label, tick label excluded."""
    return {text for plot in figure.axes for text in (plot.get_xlabel(), plot.get_ylabel()) if text}


def numbers(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def frames(figure: Figure) -> dict[tuple[int, int], str]:
    """Line style of the red frame around each cell (column, row)."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    red = [patch for patch in patches if patch.get_edgecolor()[:3] == (1.0, 0.0, 0.0)]
    return {(round(p.get_x() + 0.46), round(p.get_y() + 0.46)): str(p.get_linestyle()) for p in red}


def test_every_pair_of_axes_has_a_map_and_every_axis_a_curve(tmp_path: Path) -> None:
    names = pictures.write(three(), tmp_path)
    axes = ["tree.budget", "drafter.block", "gpus"]
    stems = [f"map_{a}_{b}" for a, b in itertools.combinations(axes, 2)] + [f"curve_{a}" for a in axes]
    assert sorted(names) == sorted(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    for name in names:
        path = tmp_path / name
        assert path.stat().st_size > 8_000
        if path.suffix == ".png":
            image = imread(path)
            assert min(image.shape[:2]) > 400
            assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 20
        else:
            root = ET.parse(path).getroot()
            assert root.tag.endswith("svg")
            assert len(list(root.iter())) > 100


def test_bytes_depend_on_nothing_but_the_result(tmp_path: Path) -> None:
    result = hill(plan_of("tree.budget=4,8", "drafter.block=6,8"), (0, 1))
    written = []
    for name, user in (("a", {}), ("b", {"figure.facecolor": "red", "font.size": 30, "savefig.dpi": 20})):
        (tmp_path / name).mkdir()
        with mpl.rc_context(user):  # type: ignore[arg-type]
            names = pictures.write(result, tmp_path / name)
        written.append({file: (tmp_path / name / file).read_bytes() for file in names})
    assert written[0] == written[1]


def test_one_axis_has_one_curve(tmp_path: Path) -> None:
    names = pictures.write(hill(plan_of("tree.budget=4,8,16", "gpus=8"), (1, 0)), tmp_path)
    assert names == ["curve_tree.budget.png", "curve_tree.budget.svg"]


def test_where_all_failed_there_is_no_picture(tmp_path: Path) -> None:
    assert pictures.write(result_with(plan_of("tree.budget=4,8"), {}), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_one_cell_that_ran_is_drawn_alone(tmp_path: Path) -> None:
    plan = plan_of("tree.budget=4,8", "drafter.block=6,8")
    names = pictures.write(result_with(plan, {2: [900.0]}), tmp_path)
    assert len(names) == 6


def test_axes_are_named_with_their_units() -> None:
    result = three()
    assert labels(pictures.heat_map(result, 0, 1)) >= {"tree.budget (nodes)", "drafter.block (positions)"}
    assert pictures.QUANTITY in labels(pictures.heat_map(result, 0, 1))
    assert labels(pictures.curves(result, 2, 0)) == {"gpus (TP ranks)", "throughput (tok/s)"}


@given(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), st.permutations(range(3)))
def test_a_map_is_the_slice_through_the_best_cell(peak: tuple[int, ...], order: list[int]) -> None:
    plan = plan_of("tree.budget=4,8,16", "drafter.block=6,7,8,9", "gpus=4,8")
    result, (across, up, held) = hill(plan, peak), order
    figure = pictures.heat_map(result, across, up)
    (image,) = figure.axes[0].images
    for row, column in np.ndindex(*image.get_array().shape):  # type: ignore[union-attr]
        at = {across: column, up: row, held: peak[held]}
        index = index_of(plan, (at[0], at[1], at[2]))
        assert image.get_array()[row, column] == pytest.approx(result.throughput(index))  # type: ignore[index]
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == [
        value.label for value in plan.axes[across].values
    ]
    assert frames(figure)[(peak[across], peak[up])] == "-"
    fixed = plan.axes[held]
    assert f"at {fixed.name} = {fixed.values[peak[held]].label}" in pictures.titled(
        figure, result, {across, up}
    ).axes[0].get_title(loc="left")


def test_equals_are_dotted_and_failures_hatched() -> None:
    plan = plan_of("tree.budget=4,8", "drafter.block=6,8")
    best, same, slow = [900.0, 910, 920, 930, 940], [901.0, 909, 919, 931, 939], [800.0, 810, 820, 830, 840]
    figure = pictures.heat_map(result_with(plan, {0: best, 1: same, 2: slow}), 1, 0)
    assert frames(figure) == {(0, 0): "-", (1, 0): ":"}
    (hatched,) = [p for p in figure.axes[0].patches if p.get_hatch()]
    assert isinstance(hatched, Rectangle)
    assert (hatched.get_x(), hatched.get_y()) == (0.5, 0.5)
    assert numbers(figure) == ["920", "920", "820"]
    assert "hatched: no valid cell" in figure.get_supxlabel()


def test_maps_without_failures_do_not_speak_of_them() -> None:
    result = hill(plan_of("tree.budget=4,8", "drafter.block=6,8"), (0, 0))
    assert "hatched" not in pictures.heat_map(result, 0, 1).get_supxlabel()


def test_a_large_map_has_colours_and_no_numbers() -> None:
    large = hill(plan_of(WIDE, TALL, acceptance={"length": 1}), (19, 3))
    figure = pictures.heat_map(large, 0, 1)
    assert numbers(figure) == []
    assert (3, 19) in {(row, column) for column, row in frames(figure)}
    small = hill(plan_of("tree.budget=1..16", "seed=1..16", acceptance={"length": 1}), (9, 3))
    assert len(numbers(pictures.heat_map(small, 0, 1))) == 256


def test_labels_and_marks_of_a_curve_lie_where_the_values_are() -> None:
    result = hill(plan_of("tree.budget=16,4,8", "stack=sglang,vllm"), (0, 0), (1,))
    by_number, by_name = pictures.curves(result, 0, 1), pictures.curves(result, 1, 0)
    lines = by_number.axes[0].lines
    assert [np.asarray(line.get_xdata()).tolist() for line in lines] == [[4, 8, 16]] * 2
    assert np.isnan(np.asarray(lines[1].get_ydata())).tolist() == [True, False, False]
    expected = [result.throughput(index) for index in (0, 2, 4)]
    assert np.asarray(lines[0].get_ydata()).tolist() == pytest.approx(expected)
    assert [t.get_text() for t in by_number.axes[0].get_xticklabels()] == ["4", "8", "16"]
    assert [t.get_text() for t in by_name.axes[0].get_xticklabels()] == ["sglang", "vllm"]
    legend = by_number.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["sglang", "vllm"]


def test_a_curve_over_decades_is_logarithmic_and_starts_at_zero_tokens() -> None:
    for option, scale in (
        ("tree.budget=4..64*2", "log"),
        ("tree.budget=4,8,39", "linear"),
        ("seed=0,50", "linear"),
    ):
        plot = pictures.curves(hill(plan_of(option), (0,)), 0, None).axes[0]
        assert plot.get_xscale() == scale
        assert plot.get_ylim()[0] == 0


@given(st.integers(0, 19), st.integers(0, 1))
def test_of_many_curves_the_best_one_is_among_those_drawn(best: int, at: int) -> None:
    result = hill(plan_of("seed=1..20", "gpus=4,8"), (best, at))
    plot = pictures.curves(result, 1, 0).axes[0]
    legend = plot.get_legend()
    assert legend is not None
    drawn = [text.get_text() for text in legend.get_texts()]
    assert str(best + 1) in drawn
    assert len(drawn) <= pictures.MAX_CURVES
    assert len({str(line.get_linestyle()) + str(line.get_marker()) for line in plot.lines}) == len(drawn)


def test_a_long_question_fits_into_its_picture(tmp_path: Path) -> None:
    question = (
        "Which of these engines and drafters should one take for a hard reasoning load on eight B300 today?"
    )
    result = hill(engines(tmp_path, "engine", question, "large"), (0, 1))
    for bare in (pictures.heat_map(result, 0, 1), pictures.curves(result, 0, 1)):
        figure = pictures.titled(bare, result, {0, 1})
        figure.draw_without_rendering()
        for text in (figure.axes[0].title, figure.axes[0]._left_title):  # type: ignore[attr-defined]
            assert text.get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.parametrize("option", ["tree.budget=1..20", f"acceptance={','.join(LONG)}"])
def test_tick_labels_do_not_lie_on_one_another(option: str) -> None:
    every = {} if option.startswith("acceptance") else {"acceptance": {"length": 1}}
    result = hill(plan_of(option, "gpus=4,8", **every), (1, 1))
    for figure in (pictures.curves(result, 0, 1), pictures.heat_map(result, 0, 1)):
        figure.draw_without_rendering()
        ticks = [tick for tick in figure.axes[0].get_xticklabels() if tick.get_text()]
        boxes = [tick.get_window_extent() for tick in ticks if tick.get_rotation() == 0]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_no_line_is_drawn_across_a_cell_that_failed() -> None:
    result = hill(plan_of("tree.budget=4,8,12,16"), (0,), missing=(2,))
    lines = pictures.curves(result, 0, None).axes[0].lines
    heights = [np.asarray(line.get_ydata(), dtype=float) for line in lines]
    assert len(lines) > 1 or np.isnan(heights[0]).any()


@pytest.mark.parametrize("label", ["large", "_large", "$5", "[large]"])
def test_every_curve_is_named_in_the_legend(tmp_path: Path, label: str) -> None:
    plan = engines(tmp_path, "engine", "Which of the two is the better one?", label)
    legend = pictures.curves(hill(plan, (0, 1)), 1, 0).axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["small", label]


@pytest.mark.parametrize(
    ("axis", "question", "label"),
    [
        ("engine", "Is $x^^y$ too much to ask of this?", "large"),
        ("engine", "Which of the two is the better one?", "$^^$"),
        ("engine", "Which [/bold] of [red] is the better one?", "large"),
    ],
)
def test_any_words_can_be_drawn(tmp_path: Path, axis: str, question: str, label: str) -> None:
    plan = engines(tmp_path, axis, question, label)
    (tmp_path / "out").mkdir()
    assert len(pictures.write(hill(plan, (0, 1)), tmp_path / "out")) == 6
