"""B against A, run by run: everything adds up, whatever the runs are."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.comparison.intervals import Certainty, Pairing
from sim.comparison.paired import Pair, Verdict, logarithmic_mean, pair
from sim.comparison.pictures import bars
from sim.comparison.runs import Runs
from sim.graph import Component
from sim.records import RunResult
from sim.statistics import MIN_RUNS

COUNT = len(Component)
COMPONENTS = st.lists(st.integers(0, 10**8), min_size=COUNT, max_size=COUNT).filter(any)
CERTAINTIES = st.builds(Certainty, st.sampled_from(Pairing), st.just(0.99))


def runs_of(rows: list[tuple[int, int, list[int]]], requests: int = 1) -> Runs:
    """Runs of so many steps, tokens and ns by component."""
    results = tuple(
        RunResult(index, steps, tokens * requests, sum(ns), requests)
        for index, (steps, tokens, ns) in enumerate(rows)
    )
    return Runs(results, np.array([ns for *_, ns in rows]))


@st.composite
def run_lists(draw: st.DrawFn, count: int) -> Runs:
    row = st.tuples(st.integers(1, 500), st.integers(1, 5000), COMPONENTS)
    return runs_of(draw(st.lists(row, min_size=count, max_size=count)), draw(st.integers(1, 4)))


@st.composite
def two(draw: st.DrawFn, least: int = 1) -> tuple[Runs, Runs]:
    count = draw(st.integers(least, 9))
    return draw(run_lists(count)), draw(run_lists(count))


@given(two(), CERTAINTIES)
def test_components_add_up_to_the_step_and_factors_to_throughput(
    sides: tuple[Runs, Runs], how: Certainty
) -> None:
    found = pair(*sides, how)
    step = found.step_time_ms
    near = {"rel": 1e-9, "abs": 1e-9 * (step.a + step.b)}
    assert sum(part.a_ms for part in found.parts) == pytest.approx(step.a, **near)
    assert sum(part.b_ms for part in found.parts) == pytest.approx(step.b, **near)
    assert sum(p.difference_ms.mean for p in found.parts) == pytest.approx(step.difference.mean, **near)
    of_step = sum(part.log_factor for part in found.parts)
    assert of_step == pytest.approx(-step.log_ratio.mean, abs=1e-9)
    whole = of_step + found.acceptance_length.log_ratio.mean + found.log_requests
    assert found.throughput_tok_s.log_ratio.mean == pytest.approx(whole, abs=1e-9)


@given(two(), CERTAINTIES)
def test_swapping_the_sides_changes_signs_alone(sides: tuple[Runs, Runs], how: Certainty) -> None:
    there, back = pair(*sides, how), pair(*reversed(sides), how)
    for one, other in (
        (there.throughput_tok_s, back.throughput_tok_s),
        (there.step_time_ms, back.step_time_ms),
        (there.acceptance_length, back.acceptance_length),
    ):
        assert (one.a, one.b, one.difference.mean) == (other.b, other.a, -other.difference.mean)
        assert one.log_ratio.mean == -other.log_ratio.mean
        assert one.ratio * other.ratio == pytest.approx(1)
    returned = {part.component: part for part in back.parts}
    for part in there.parts:
        assert part.difference_ms.mean == -returned[part.component].difference_ms.mean
        assert part.log_factor == pytest.approx(-returned[part.component].log_factor, abs=1e-12)
    assert there.log_requests == pytest.approx(-back.log_requests)
    turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    if there.verdict in turned:
        assert back.verdict is turned[there.verdict]


@given(st.integers(1, 9).flatmap(run_lists), CERTAINTIES)
def test_a_scenario_is_identical_to_itself(runs: Runs, how: Certainty) -> None:
    again = Runs(tuple(runs.results), runs.component_ns.copy())
    found = pair(runs, again, how)
    assert found.verdict is Verdict.IDENTICAL
    for quantity in (found.throughput_tok_s, found.step_time_ms, found.acceptance_length):
        assert quantity.difference.mean == quantity.log_ratio.mean == 0
        assert quantity.ratio == 1
    assert all(part.difference_ms.mean == part.log_factor == 0 for part in found.parts)
    assert found.luck.ties == len(runs.results)


@given(st.integers(MIN_RUNS, 9).flatmap(run_lists), st.integers(0, COUNT - 1), st.integers(1, 10**6))
def test_a_nanosecond_anywhere_ends_identity(runs: Runs, component: int, ns: int) -> None:
    changed = runs.component_ns.copy()
    changed[-1, component] += ns
    last = runs.results[-1]
    slower = RunResult(last.index, last.steps, last.tokens, last.duration_ns + ns, last.requests)
    found = pair(runs, Runs((*runs.results[:-1], slower), changed), Certainty(Pairing.COMMON, 0.99))
    assert not found.identical
    assert found.throughput_tok_s.difference.mean < 0
    moved = [part.component for part in found.parts if part.difference_ms.mean]
    assert moved == [tuple(Component)[component]]


@pytest.mark.parametrize("other", [(10, 45, [5, 1]), (11, 44, [5, 1]), (10, 44, [1, 5])])
def test_other_tokens_steps_or_components_end_identity(other: tuple[int, int, list[int]]) -> None:
    """Though every run takes as long."""
    rest = [0] * (COUNT - 2)
    steps, tokens, ns = other
    a, b = runs_of([(10, 44, [5, 1, *rest])] * 5), runs_of([(steps, tokens, [*ns, *rest])] * 5)
    assert not pair(a, b, Certainty(Pairing.COMMON, 0.99)).identical


def slowed(by: list[float]) -> Pair:
    """Runs against runs that take *by* times as long, one by one."""
    rows = [(10, 44, [5_000_000, 1_000_000] + [0] * (COUNT - 2)) for _ in by]
    later = [
        (steps, tokens, [round(ns * factor) for ns in each])
        for (steps, tokens, each), factor in zip(rows, by, strict=True)
    ]
    return pair(runs_of(rows), runs_of(later), Certainty(Pairing.COMMON, 0.99))


@pytest.mark.parametrize(
    ("by", "verdict"),
    [
        ([1.2, 1.21, 1.19, 1.2, 1.2, 1.21], Verdict.SLOWER),
        ([0.8, 0.81, 0.79, 0.8, 0.8, 0.81], Verdict.FASTER),
        ([1.005, 1.006, 1.004, 1.005, 1.005], Verdict.BARELY_SLOWER),
        ([0.995, 0.996, 0.994, 0.995, 0.995], Verdict.BARELY_FASTER),
        ([1.2, 0.8, 1.1, 0.9, 1.0, 1.0], Verdict.NOT_DISTINGUISHABLE),
        ([1.2, 1.2], Verdict.UNDECIDED),
        ([1.0, 1.0], Verdict.IDENTICAL),
    ],
)
def test_verdicts(by: list[float], verdict: Verdict) -> None:
    found = slowed(by)
    assert found.verdict is verdict
    assert found.throughput_tok_s.log_ratio.mean == pytest.approx(-np.mean(np.log(by)), abs=1e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_one_side_that_never_varies_leaves_no_correlation(turned: bool) -> None:
    rest = [0] * (COUNT - 1)
    still, varied = runs_of([(10, 44, [7, *rest])] * 3), runs_of([(10, 44, [ns, *rest]) for ns in (5, 6, 7)])
    sides = (varied, still) if turned else (still, varied)
    assert pair(*sides, Certainty(Pairing.COMMON, 0.99)).correlation is None


def test_the_ratio_is_the_geometric_mean_with_its_interval() -> None:
    found = slowed([1.1, 1.2, 1.3, 1.2, 1.15]).throughput_tok_s
    assert found.ratio_interval is not None
    low, high = found.ratio_interval
    assert low < found.ratio < high
    assert low * high == pytest.approx(found.ratio**2)
    assert slowed([1.1, 1.2]).throughput_tok_s.ratio_interval is None


def test_intervals_of_components_hold_together() -> None:
    """So each of two rows is wider than the step, of which one row is five sixths."""
    found = slowed([1.1, 1.2, 1.3, 1.2, 1.15])
    first = found.parts[0].difference_ms
    assert first.half_width is not None
    assert found.step_time_ms.difference.half_width is not None
    assert first.half_width > 5 / 6 * found.step_time_ms.difference.half_width * 1.1


def test_unequal_numbers_of_runs_are_refused() -> None:
    runs = runs_of([(10, 44, [5] * COUNT)] * 3)
    with pytest.raises(ValueError, match="3 runs cannot be paired with 2"):
        pair(runs, Runs(runs.results[:2], runs.component_ns[:2]), Certainty(Pairing.COMMON, 0.99))


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_the_logarithmic_mean_lies_between_and_turns_differences_into_logarithms(a: float, b: float) -> None:
    found = float(logarithmic_mean(np.array([a]), np.array([b]))[0])
    assert min(a, b) * (1 - 1e-12) <= found <= max(a, b) * (1 + 1e-12)
    assert (b - a) / found == pytest.approx(log(b / a), rel=1e-9, abs=1e-12)


@given(two())
def test_the_waterfall_leads_from_one_step_to_the_other(sides: tuple[Runs, Runs]) -> None:
    found = pair(*sides, Certainty(Pairing.COMMON, 0.99))
    step = found.step_time_ms
    at = step.a
    for bar in bars(found):
        assert bar.begin_ms == pytest.approx(at)
        at += bar.ms
    assert at == pytest.approx(step.b, abs=0.001 * max(step.a, step.b))
