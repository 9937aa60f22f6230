"""Durations are reproducible, centred on their means, and drawn from streams that never mix."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from builders import small_setup, with_figures, with_noise, without_noise
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.work import (
    AllReduce,
    Copy,
    CopyDirection,
    DType,
    EagerLaunch,
    Elementwise,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    MlaAttention,
    Work,
)
from sim import draws
from sim.draws import BaseTimes, Family, Noise
from sim.graph import Component, GraphBuilder, IntArray, Lane, Phase, StepGraph
from sim.setup import Setup
from sim.step import decode_step

US = 1e-6
EXPERTS = GroupedExperts(
    tokens=9, touched=66.0, experts=384, top_k=8, hidden=7168, intermediate=256, dtype=DType.INT4
)
ATTENTION = MlaAttention(
    requests=1, queries=9, context=4096, heads=8, latent=576, dtype=DType.BF16, run_tokens=1_000_000
)
WORKS: dict[Family, Work] = {
    Family.EXPERTS: EXPERTS,
    Family.ATTENTION: ATTENTION,
    Family.KERNELS: Elementwise(1024),
    Family.LINK: AllReduce(1024, 8),
    Family.LAUNCH: GraphLaunch(100),
    Family.HOST: HostWork(HostTask.SCHEDULE, 1),
}
ON_HOST = (Family.LAUNCH, Family.HOST)
RANKED = (Family.EXPERTS, Family.ATTENTION, Family.KERNELS)


def graph_with(**counts: int) -> StepGraph:
    """A graph with as many ops of each family (by lower-case name) as asked, one unless said."""
    builder = GraphBuilder()
    for family, work in WORKS.items():
        for index in range(counts.get(family.value, 1)):
            rank = index % 8 if family in RANKED else None
            builder.add(Phase.VERIFY, Component.DENSE, work, [Lane("lane", "0")], rank=rank)
    return builder.build()


def columns(graph: StepGraph, family: Family) -> list[int]:
    """The ops of *family*."""
    return [i for i, op in enumerate(graph.ops) if draws.family_of(op.work) is family]


def drawn(setup: Setup, graph: StepGraph, steps: int, run: int = 0, microseconds: float = 100) -> IntArray:
    """Durations of *steps* steps in which every op takes *microseconds* on average."""
    return Noise(setup, graph, run).durations(np.full((steps, len(graph.works)), microseconds * US))


@cache
def noisy() -> Setup:
    """The catalog's noise on a model of two layers."""
    return small_setup()


@cache
def quiet() -> Setup:
    """No noise at all."""
    return without_noise(small_setup())


def seeded(seed: int) -> Setup:
    """The same machine with another seed."""
    return replace(noisy(), scenario=noisy().scenario.model_copy(update={"seed": seed}))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 3))
def test_the_size_of_a_chunk_changes_nothing(chunks: list[int], run: int) -> None:
    graph = graph_with(kernels=3, host=2)
    seconds = np.random.default_rng(1).uniform(1e-6, 1e-3, (sum(chunks), len(graph.works)))
    in_parts = Noise(noisy(), graph, run)
    bounds = pairwise([0, *np.cumsum(chunks).tolist()])
    parts = [in_parts.durations(seconds[first:last]) for first, last in bounds]
    whole = Noise(noisy(), graph, run).durations(seconds)
    assert np.concatenate(parts).tolist() == whole.tolist()


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_a_seed_and_a_run_give_the_same_bytes(seed: int, run: int) -> None:
    first, second = (drawn(seeded(seed), graph_with(), 3, run) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@given(st.integers(0, 2**62), st.integers(0, 1000))
def test_another_seed_and_another_run_differ_in_every_family(seed: int, run: int) -> None:
    graph = graph_with()
    first = drawn(seeded(seed), graph, 3, run)
    for other in (drawn(seeded(seed + 1), graph, 3, run), drawn(seeded(seed), graph, 3, run + 1)):
        assert (first != other).any(axis=0).all()


@pytest.mark.parametrize("changed", Family)
@pytest.mark.parametrize("count", [0, 5])
def test_more_or_fewer_ops_of_a_family_leave_the_others_alone(changed: Family, count: int) -> None:
    before, after = graph_with(), graph_with(**{changed.value: count})
    first, second = drawn(noisy(), before, 4), drawn(noisy(), after, 4)
    for family in set(Family) - {changed}:
        assert first[:, columns(before, family)].tolist() == second[:, columns(after, family)].tolist()


def test_every_stream_of_every_run_is_its_own() -> None:
    names = [*Family, *draws.RandomStream]
    firsts = {draws.generator(seed, run, n).random() for seed in (0, 1) for run in (0, 1) for n in names}
    assert len(firsts) == 4 * len(names)


def test_every_work_of_a_real_step_belongs_to_its_family() -> None:
    assert {draws.family_of(work): work for work in WORKS.values()} == WORKS
    assert draws.family_of(EagerLaunch(1, False)) is Family.HOST
    assert draws.family_of(Copy(8, CopyDirection.TO_HOST)) is Family.HOST


@pytest.mark.parametrize("family", Family)
def test_the_mean_of_many_draws_is_the_base_time(family: Family) -> None:
    setup, graph = with_noise(noisy(), rank_cv=0.0, spike_probability=0.0), graph_with()
    machine, steps = setup.machine, 20_000
    times = drawn(setup, graph, steps)[:, columns(graph, family)[0]]
    drift = 0.0 if family in ON_HOST else machine.gpu.noise.step_cv.value
    cv = float(np.hypot(draws.noise_cv(machine, family), drift))
    assert abs(times.mean() / 100_000 - 1) < 5 * cv / np.sqrt(steps)
    assert times.std() / times.mean() == pytest.approx(cv, rel=0.05)


def test_each_family_varies_by_its_own_figure() -> None:
    machine = noisy().machine
    expected = {
        Family.LINK: machine.interconnect.noise_cv.value,
        Family.LAUNCH: machine.host.graph_launch_cv.value,
        Family.HOST: machine.host.noise_cv.value,
    }
    for family in Family:
        wanted = expected.get(family, machine.gpu.noise.kernel_cv.value)
        assert draws.noise_cv(machine, family) == wanted


def test_ops_of_a_rank_share_one_factor_for_the_whole_run() -> None:
    setup, graph = without_noise(noisy(), rank_cv=0.1), graph_with(kernels=8, experts=8, attention=8)
    times = drawn(setup, graph, 50)
    assert (times == times[0]).all()
    by_family = [times[0, columns(graph, family)].tolist() for family in RANKED]
    assert by_family[0] == by_family[1] == by_family[2]
    assert len(set(by_family[0])) == 8


def test_ranks_differ_by_the_catalog_figure_and_ops_without_a_rank_not_at_all() -> None:
    setup, graph = without_noise(noisy(), rank_cv=0.015), graph_with(kernels=8)
    runs = np.concatenate([drawn(setup, graph, 1, run) for run in range(300)])
    factors = runs[:, columns(graph, Family.KERNELS)] / 100_000
    assert factors.mean() == pytest.approx(1, abs=5 * 0.015 / np.sqrt(2400))
    assert factors.std() == pytest.approx(0.015, rel=0.1)
    for family in (Family.LINK, *ON_HOST):
        assert (runs[:, columns(graph, family)] == 100_000).all()


def test_gpus_and_links_drift_together_and_the_host_does_not() -> None:
    setup, graph = without_noise(noisy(), step_cv=0.05), graph_with(kernels=3)
    times = drawn(setup, graph, 40)
    on_host = [i for family in ON_HOST for i in columns(graph, family)]
    elsewhere = [i for i in range(len(graph.ops)) if i not in on_host]
    assert (times[:, on_host] == 100_000).all()
    assert (times[:, elsewhere] == times[:, elsewhere[:1]]).all()
    assert len(set(times[:, elsewhere[0]].tolist())) == 40


def test_a_stall_slows_gpus_and_links_and_not_the_host() -> None:
    setup, graph = stalling(low=3.0, high=3.0, chance=1.0), graph_with()
    times = drawn(setup, graph, 5)
    for family in Family:
        expected = 100_000 if family in ON_HOST else 300_000
        assert (times[:, columns(graph, family)] == expected).all()


def test_stalls_are_as_frequent_and_as_long_as_the_figures_say() -> None:
    times = drawn(stalling(low=2.0, high=5.0, chance=0.2), graph_with(), 20_000)[:, 0]
    stalled = times[times > 100_000]
    assert len(stalled) == pytest.approx(4000, abs=5 * np.sqrt(20_000 * 0.2 * 0.8))
    assert (stalled >= 200_000).all()
    assert (stalled <= 500_000).all()
    assert stalled.mean() == pytest.approx(350_000, rel=0.02)


@pytest.mark.parametrize("overrides", [(), ("tree.budget=0", "acceptance={length: 1}")])
def test_without_noise_every_op_takes_its_rounded_base_time(overrides: tuple[str, ...]) -> None:
    setup = without_noise(small_setup(*overrides))
    graph = decode_step(setup)
    base = BaseTimes(setup, graph).seconds([4096, 5000])
    expected = [[round(row[work] * 1e9) for work in graph.work_index] for row in base]
    assert Noise(setup, graph, 0).durations(base).tolist() == expected


def test_base_times_are_the_cost_model_at_each_context() -> None:
    setup, graph = quiet(), decode_step(quiet())
    for context, row in zip([500, 9000], BaseTimes(setup, graph).seconds([500, 9000]), strict=True):
        works = [w.at_context(context) if hasattr(w, "at_context") else w for w in graph.works]
        assert row.tolist() == [setup.costs.estimate(work).seconds for work in works]


def test_sources_are_those_of_the_estimates() -> None:
    setup, graph = quiet(), decode_step(quiet())
    expected = [setup.costs.estimate(work).source for work in graph.works]
    assert list(BaseTimes(setup, graph).sources()) == expected


def test_durations_never_fall_below_zero_even_with_the_widest_noise() -> None:
    host = with_figures(noisy().machine.host, noise_cv=0.53)
    setup = replace(noisy(), machine=replace(noisy().machine, host=host))
    assert (drawn(with_noise(setup, kernel_cv=0.53, rank_cv=1.0), graph_with(), 2000) >= 0).all()


def stalling(low: float, high: float, chance: float) -> Setup:
    """No noise but stalls."""
    spikes = {"spike_factor_low": low, "spike_factor_high": high}
    return without_noise(with_noise(noisy(), **spikes), spike_probability=chance)
