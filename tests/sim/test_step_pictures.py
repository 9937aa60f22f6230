"""Pictures of a step show the time that its lanes and components take."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import oracle
import pytest
from builders import small_setup
from hypothesis import given
from matplotlib import style
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from strategies import PiecesCase, tied_pieces, untied_pieces

from sim import pictures, timeline, waterfall
from sim.answer import Answer, answer
from sim.graph import Component
from sim.op_steps import OpStep, op_steps
from sim.simulate import Simulation
from sim.timeline import Held

SCENARIOS = {
    "tree": (),
    "eager": ("tree.budget=9",),
    "plain": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4"),
    "one rank": ("gpus=1",),
    "two streams": ("model=kimi_k2_6_nvfp4",),
}
any_scenario = pytest.mark.parametrize("name", SCENARIOS)


@cache
def simulation(name: str) -> Simulation:
    return Simulation(small_setup(*SCENARIOS[name]))


@cache
def answered(name: str) -> Answer:
    return answer(small_setup(*SCENARIOS[name]))


@cache
def step(name: str) -> OpStep:
    return next(op_steps(simulation(name), 0, range(1, 2)))


def svg(figure: Figure) -> bytes:
    stream = io.BytesIO()
    with style.context(["default", pictures.STYLE]):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


@given(untied_pieces() | tied_pieces())
def test_the_bins_of_a_lane_hold_the_time_of_its_components(case: PiecesCase) -> None:
    pieces, mean, durations = case
    ops = pieces.split(durations, mean)
    graph = pieces.fusion.graph
    end = oracle.play(graph, ops)
    for took, ended in zip(ops, end, strict=True):
        played = OpStep(0, 0, 1, 1000, mean.label_s[0], took, ended)
        if not played.step_ns:
            continue
        for queue in graph.queues:
            order = [list(Component).index(graph.ops[op].component) for op in queue]
            held = Held(np.array(order, dtype=np.int64), played.start[[*queue]], ended[[*queue]])
            parts = timeline.shares(held, played.step_ns, bins=7)
            expected = np.bincount(order, took[[*queue]], len(Component))
            assert parts.sum(axis=1) * played.step_ns / 7 == pytest.approx(expected, abs=1e-3)
            assert parts.min() >= -1e-9
            assert parts.sum(axis=0).max() <= 1 + 1e-9


@any_scenario
def test_a_timeline_has_every_lane_and_the_colours_of_its_components(name: str) -> None:
    graph = simulation(name).graph
    figure = timeline.figure(graph, step(name))
    whole, near = figure.axes
    assert {text.get_text() for text in whole.get_yticklabels()} == {str(lane) for lane in graph.lanes}
    assert {text.get_text() for text in near.get_yticklabels()} <= {str(lane) for lane in graph.lanes}
    (legend,) = figure.legends
    shown = {text.get_text() for text in legend.get_texts()}
    assert shown == {op.component.value for op in graph.ops}
    assert f"{step(name).step_ns / 1e6:.2f} ms" in whole.get_title(loc="left")


@any_scenario
def test_near_by_every_op_is_one_bar_as_long_as_it_took(name: str) -> None:
    graph, played = simulation(name).graph, step(name)
    held = timeline.by_lane(graph, played)
    since, until = timeline.middle(held)
    near = timeline.figure(graph, played).axes[1]
    assert near.get_xlim() == (0, (until - since) / 1e3)
    for row, label in enumerate(near.get_yticklabels()):
        lane = held[label.get_text()]
        inside = np.minimum(lane.end, until) - np.maximum(lane.start, since)
        drawn = [path.get_extents().width for path in near.collections[row].get_paths()]
        assert drawn == pytest.approx((inside[(lane.end > since) & (lane.start < until)] / 1e3).tolist())


def test_components_have_colours_of_their_own() -> None:
    assert set(pictures.COMPONENT_COLOURS) == set(Component)
    assert len({to_hex(colour) for colour in pictures.COMPONENT_COLOURS.values()}) == len(Component)


@any_scenario
def test_bars_of_a_waterfall_follow_one_another_up_to_the_step(name: str) -> None:
    summary = answered(name).summary
    bars = waterfall.bars(summary.step_time_ms.mean, summary.components)
    ends = np.cumsum([bar.ms for bar in bars])
    assert ends[-1] == pytest.approx(summary.step_time_ms.mean)
    assert [bar.begin_ms for bar in bars[1:]] == pytest.approx(ends[:-1])
    named = {bar.name: bar.ms / summary.step_time_ms.mean for bar in bars if bar.name != "the rest"}
    for component, share in summary.components.items():
        assert named.get(component.value, share) == pytest.approx(share)
        assert (component.value in named) == (share >= waterfall.LEAST_SHARE)


def test_pictures_of_the_same_step_are_the_same_bytes() -> None:
    figures = [timeline.figure(simulation("tree").graph, step("tree")) for _ in range(2)]
    summary = answered("tree").summary
    figures += [waterfall.figure(summary.step_time_ms.mean, summary.components) for _ in range(2)]
    first, second, third, fourth = map(svg, figures)
    assert (first, third) == (second, fourth)
