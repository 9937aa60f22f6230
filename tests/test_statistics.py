"""Statistics are tested by coverage and against exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import GOOD, scenario_from

from hwmodels.estimate import Source
from sim.answer import Answer, answer
from sim.graph import Component
from sim.setup import resolve
from sim.statistics import MIN_RUNS, half_width, spread


@pytest.fixture(scope="module")
def found() -> Answer:
    return answer(resolve(scenario_from(GOOD, "load.output_tokens=60")))


def autoregressive_means(generator: np.random.Generator, runs: int, steps: int, a: float) -> list[float]:
    """Means of independent AR(1) runs with true mean 0."""
    means = []
    for _ in range(runs):
        value, total = generator.standard_normal() / np.sqrt(1 - a * a), 0.0
        for _ in range(steps):
            total += value
            value = a * value + generator.standard_normal()
        means.append(total / steps)
    return means


@pytest.mark.parametrize("a", [0.0, 0.5, 0.95])
def test_intervals_cover_the_truth_whatever_the_correlation_inside_a_run(a: float) -> None:
    generator = np.random.default_rng(7)
    trials, covered = 600, 0
    for _ in range(trials):
        means = autoregressive_means(generator, runs=12, steps=20, a=a)
        width = half_width(means)
        assert width is not None
        covered += abs(np.mean(means)) <= width
    # 95 % +- 4 standard errors of a proportion over 600 trials.
    assert abs(covered / trials - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_too_few_runs_give_no_interval(values: list[float]) -> None:
    assert (half_width(values) is None) == (len(values) < MIN_RUNS)


@given(st.lists(st.floats(0.1, 1e6), min_size=MIN_RUNS, max_size=30), st.floats(0.5, 10))
def test_spread_scales_and_orders(values: list[float], scale: float) -> None:
    one, scaled = spread(values, values), spread(np.array(values) * scale, np.array(values) * scale)
    assert one.p5 <= one.p50 <= one.p95
    assert scaled.mean == pytest.approx(one.mean * scale)
    assert scaled.half_width == pytest.approx((one.half_width or 0) * scale, abs=1e-6)


def test_shares_add_to_one(found: Answer) -> None:
    summary = found.summary
    for shares in (summary.components, summary.phases, summary.sources):
        assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    assert sum(summary.length_shares) == pytest.approx(1, abs=1e-12)


def test_throughput_is_tokens_over_time_of_each_run(found: Answer) -> None:
    rates = [run.tokens / run.duration_ns * 1e9 for run in found.experiment.runs]
    assert found.summary.throughput_tok_s.mean == pytest.approx(np.mean(rates))
    assert found.summary.throughput_tok_s.p50 == pytest.approx(np.median(rates))


def test_utilisation_lies_between_zero_and_one_and_host_and_gpu_are_both_there(found: Answer) -> None:
    lanes = found.summary.utilisation
    assert all(0 <= value <= 1 for value in lanes.values())
    assert {lane.device for lane in lanes} == {*(f"gpu{r}" for r in range(8)), "host", "nvlink"}


def test_every_source_and_component_is_accounted_for(found: Answer) -> None:
    assert found.summary.sources.keys() <= set(Source)
    assert {Component.EXPERTS, Component.SCHEDULING, Component.ALLREDUCE} <= found.summary.components.keys()


def test_ranks_that_differ_make_each_other_wait(found: Answer) -> None:
    assert found.summary.allreduce_wait_ms > 0
    assert found.summary.allreduce_transfer_ms > 0
