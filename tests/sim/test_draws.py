"""Durations are reproducible, centred on their means, and drawn from streams that never mix."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from builders import small_setup, with_figures, with_noise, without_noise
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.machine import Machine
from hwmodels.noise import MAX_CV, SHAPE, Factors, lognormal_factor, skewness
from hwmodels.work import (
    AllGather,
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
from sim.draws import Family, Noise, NoisePlan, RandomStream, Stretch, stretches
from sim.fusion import fuse, unfused
from sim.graph import Component, GraphBuilder, IntArray, Lane, Op, Phase, StepGraph
from sim.means import BaseTimes
from sim.pieces import Pieces, along_piece
from sim.setup import Setup
from sim.simulate import Simulation
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
NOT_SERVED = (RandomStream.ACCEPTANCE, RandomStream.MACHINE, RandomStream.SAMPLES)
SERVED = [stream for stream in RandomStream if stream not in NOT_SERVED]
FIRST_OF: dict[RandomStream, tuple[Phase, Work]] = {
    RandomStream.VERIFY_KERNELS: (Phase.VERIFY, Elementwise(1024)),
    RandomStream.OTHER_KERNELS: (Phase.DRAFT, Elementwise(1024)),
    RandomStream.VERIFY_LINK: (Phase.VERIFY, AllReduce(1024, 8)),
    RandomStream.OTHER_LINK: (Phase.COPY_BACK, AllGather(1024, 8)),
    RandomStream.GRAPH_LAUNCHES: (Phase.DISPATCH, GraphLaunch(100)),
    RandomStream.EAGER_LAUNCHES: (Phase.DISPATCH, EagerLaunch(1, False)),
    RandomStream.HOST: (Phase.SCHEDULE, HostWork(HostTask.SCHEDULE, 1)),
}
KERNELS = st.lists(st.sampled_from([0.0, 1.0, 3.0, 10.0, 40.0]), min_size=1, max_size=8)
"""Mean times of kernels in us."""


def graph_with(**counts: int) -> StepGraph:
    """As many ops of each family (by lower-case name) as asked, one unless said, all on their own devices."""
    builder = GraphBuilder()
    for family, work in WORKS.items():
        for index in range(counts.get(family.value, 1)):
            rank = index % 8 if family in RANKED else None
            lane = Lane(f"{family.value}{index}", "0")
            builder.add(Phase.VERIFY, Component.DENSE, work, [lane], rank=rank)
    return builder.build()


def graph_of_streams(**counts: int) -> StepGraph:
    """As many ops of each stream (by name of the member) as asked, one unless said, on their own devices."""
    builder = GraphBuilder()
    for stream, (phase, work) in FIRST_OF.items():
        for index in range(counts.get(stream.name, 1)):
            builder.add(phase, Component.DENSE, work, [Lane(f"{stream.value}{index}", "0")])
    return builder.build()


def kernels(*microseconds: float) -> StepGraph:
    """One kernel after the other; how long each takes is in its size (ns)."""
    builder = GraphBuilder()
    for time in microseconds:
        work = Elementwise(round(1000 * time))
        builder.add(Phase.VERIFY, Component.DENSE, work, [Lane("gpu0", "compute")], rank=0)
    return builder.build()


def diamond(fork: float, main: float, side: float, join: float) -> StepGraph:
    """A diamond of kernels that take so many microseconds."""
    builder = GraphBuilder()
    compute, beside = Lane("gpu0", "compute"), Lane("gpu0", "side")
    sizes = [Elementwise(round(1000 * time)) for time in (fork, side, main, join)]
    first = builder.add(Phase.VERIFY, Component.DENSE, sizes[0], [compute], rank=0)
    detour = builder.add(Phase.VERIFY, Component.DENSE, sizes[1], [beside], [first], rank=0)
    builder.add(Phase.VERIFY, Component.DENSE, sizes[2], [compute], rank=0)
    builder.add(Phase.VERIFY, Component.DENSE, sizes[3], [compute], [detour], rank=0)
    return builder.build()


def columns(graph: StepGraph, family: Family) -> list[int]:
    """The ops of *family*."""
    return [i for i, op in enumerate(graph.ops) if draws.family_of(op.work) is family]


def of_stream(graph: StepGraph, stream: RandomStream) -> list[int]:
    """The ops that *stream* serves."""
    return [i for i, op in enumerate(graph.ops) if draws.stream_of(op) is stream]


def sizes(pieces: Pieces) -> np.ndarray:
    """Mean seconds of every label of ``kernels`` and ``diamond``."""
    return np.array([label.work.size_bytes * 1e-9 for label in pieces.labels])


def drawn_pieces(
    setup: Setup, pieces: Pieces, label_seconds: np.ndarray, steps: int, run: int = 0
) -> IntArray:
    """Durations of *steps* steps in which every work takes *label_seconds* on average."""
    parts = pieces.part_sums(np.tile(label_seconds, (steps, 1)))
    plan = NoisePlan(setup.machine, pieces, label_seconds)
    return Noise(plan, setup.scenario.seed, run).durations(along_piece(parts, parts))


def drawn(setup: Setup, graph: StepGraph, steps: int, run: int = 0, microseconds: float = 100) -> IntArray:
    """Durations of *steps* steps in which every op takes *microseconds* on average."""
    pieces = Pieces(unfused(graph))
    return drawn_pieces(setup, pieces, np.full(len(pieces.labels), microseconds * US), steps, run)


def factors_of(machine: Machine, pieces: Pieces, label_seconds: np.ndarray) -> Factors:
    """The noise of the only stretch of a step."""
    [served] = NoisePlan(machine, pieces, label_seconds).streams.values()
    return served.factors


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
    pieces = Pieces(unfused(graph_with(kernels=3, host=2)))
    seconds = np.random.default_rng(1).uniform(1e-6, 1e-3, (sum(chunks), pieces.kind_count))
    plan = NoisePlan(noisy().machine, pieces, seconds[0])
    in_parts = Noise(plan, 1, run)
    bounds = pairwise([0, *np.cumsum(chunks).tolist()])
    parts = [in_parts.durations(seconds[first:last]) for first, last in bounds]
    at_once = Noise(plan, 1, run).durations(seconds)
    assert np.concatenate(parts).tolist() == at_once.tolist()


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


@pytest.mark.parametrize("changed", SERVED)
@pytest.mark.parametrize("count", [0, 5])
def test_more_or_fewer_stretches_of_a_stream_leave_the_others_alone(
    changed: RandomStream, count: int
) -> None:
    before, after = graph_of_streams(), graph_of_streams(**{changed.name: count})
    first, second = drawn(noisy(), before, 4), drawn(noisy(), after, 4)
    for stream in set(SERVED) - {changed}:
        assert first[:, of_stream(before, stream)].tolist() == second[:, of_stream(after, stream)].tolist()


@pytest.mark.parametrize("stream", SERVED)
def test_every_stream_serves_what_is_first_of_it(stream: RandomStream) -> None:
    graph = graph_of_streams()
    assert [draws.stream_of(graph.ops[op]) for op in of_stream(graph, stream)] == [stream]
    [index] = of_stream(graph, stream)
    phase, work = FIRST_OF[stream]
    assert (graph.ops[index].phase, graph.ops[index].work) == (phase, work)
    quiet_but_wide = factor_of_step(drawn(noisy(), graph, 3), index)
    luck = draws.generator(noisy().scenario.seed, 0, stream).standard_normal(3)
    assert np.argsort(quiet_but_wide).tolist() == np.argsort(luck).tolist()


def factor_of_step(times: IntArray, op: int) -> np.ndarray:
    """What the noise of *op* alone is in each step, the drift of the step taken away."""
    plan = NoisePlan(noisy().machine, Pieces(unfused(graph_of_streams())), np.full(len(FIRST_OF), 100 * US))
    shared = any(served.shared and op in served.pieces for served in plan.streams.values())
    drift = Noise(plan, noisy().scenario.seed, 0)._step_factors(len(times)) if shared else 1.0
    return np.asarray(times[:, op] / drift)


def test_pieces_of_draft_and_verify_draw_from_streams_of_their_own() -> None:
    for phase in Phase:
        verify = phase is Phase.VERIFY
        for family, work in WORKS.items():
            op = Op(phase, Component.DENSE, work, (0,), (), None)
            expected = {
                Family.LINK: RandomStream.VERIFY_LINK if verify else RandomStream.OTHER_LINK,
                Family.LAUNCH: RandomStream.GRAPH_LAUNCHES,
                Family.HOST: RandomStream.HOST,
            }
            kernel = RandomStream.VERIFY_KERNELS if verify else RandomStream.OTHER_KERNELS
            assert draws.stream_of(op) is expected.get(family, kernel)
            eager = op._replace(work=EagerLaunch(1, True))
            assert draws.stream_of(eager) is RandomStream.EAGER_LAUNCHES


def test_every_stream_of_every_run_is_its_own() -> None:
    names = list(RandomStream)
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


@pytest.mark.parametrize("stream", SERVED)
def test_only_kernels_and_links_share_what_happens_to_a_step(stream: RandomStream) -> None:
    graph = graph_of_streams()
    times = drawn(stalling(low=3.0, high=3.0, chance=1.0), graph, 5)[:, of_stream(graph, stream)]
    on_gpu = stream.name.endswith(("KERNELS", "LINK"))
    assert set(times.ravel().tolist()) == {300_000 if on_gpu else 100_000}


def test_stalls_are_as_frequent_and_as_long_as_the_figures_say() -> None:
    times = drawn(stalling(low=2.0, high=5.0, chance=0.2), graph_with(), 20_000)[:, 0]
    stalled = times[times > 100_000]
    assert len(stalled) == pytest.approx(4000, abs=5 * np.sqrt(20_000 * 0.2 * 0.8))
    assert (stalled >= 200_000).all()
    assert (stalled <= 500_000).all()
    assert stalled.mean() == pytest.approx(350_000, rel=0.02)


def test_drift_chance_and_size_of_stalls_are_independent_of_one_another() -> None:
    setup = with_noise(stalling(low=2.0, high=4.0, chance=0.3), step_cv=0.05)
    drifting = drawn(setup, graph_with(), 20_000)[:, 0] / 100_000
    still = drawn(stalling(low=2.0, high=4.0, chance=0.3), graph_with(), 20_000)[:, 0] / 100_000
    drift, stalled = drifting / still, still > 1
    assert drift.std() == pytest.approx(0.05, rel=0.05)
    for other in (stalled, still[stalled]):
        paired = drift if len(other) == len(drift) else drift[stalled]
        assert abs(np.corrcoef(paired, other)[0, 1]) < 5 / np.sqrt(len(other))


def test_no_rank_is_faster_than_twice_the_mean_however_widely_they_differ() -> None:
    setup, graph = without_noise(noisy(), rank_cv=1.0), graph_with(kernels=8)
    runs = np.concatenate([drawn(setup, graph, 1, run) for run in range(100)])
    times = runs[:, columns(graph, Family.KERNELS)]
    assert times.min() == 50_000
    assert times.max() > 250_000


def test_four_ranks_meet_the_luck_of_the_first_four_of_eight() -> None:
    setup = without_noise(noisy(), rank_cv=0.02, step_cv=0.05)
    few = graph_with(kernels=4, experts=4, attention=4)
    many = graph_with(kernels=8, experts=8, attention=8)
    first, second = drawn(setup, few, 5), drawn(setup, many, 5)
    for family in Family:
        shared = columns(many, family)[: len(columns(few, family))]
        assert first[:, columns(few, family)].tolist() == second[:, shared].tolist()


@pytest.mark.parametrize("overrides", [(), ("tree.budget=0", "acceptance={length: 1}")])
def test_without_noise_every_op_takes_its_rounded_base_time(overrides: tuple[str, ...]) -> None:
    setup = without_noise(small_setup(*overrides))
    pieces = Pieces(unfused(decode_step(setup)))
    base = BaseTimes(setup, pieces).seconds(np.array([4096, 5000]))
    expected = [[round(row[label] * 1e9) for label in pieces.label_of] for row in base]
    parts = pieces.part_sums(base)
    noise = Noise(NoisePlan(setup.machine, pieces, base[0]), 0, 0)
    assert noise.durations(along_piece(parts, parts)).tolist() == expected


def test_base_times_are_the_cost_model_at_each_context() -> None:
    setup, pieces = quiet(), Pieces(fuse(decode_step(quiet())))
    base, contexts = BaseTimes(setup, pieces), [9000, 4096, 4100, 9000, 12000]
    for asked in (contexts, contexts[::-1], [4100]):
        for context, row in zip(asked, base.seconds(np.array(asked)), strict=True):
            works = [label.work for label in pieces.labels]
            works = [w.at_context(context) if hasattr(w, "at_context") else w for w in works]
            assert row.tolist() == [setup.costs.estimate(work).seconds for work in works]


def test_base_times_are_looked_up_once_per_context() -> None:
    setup, pieces = quiet(), Pieces(fuse(decode_step(quiet())))
    base, asked = BaseTimes(setup, pieces), []
    base._costs = SimpleNamespace(estimate=lambda work: asked.append(work) or setup.costs.estimate(work))
    for _ in range(2):
        base.seconds(np.array([4096, 5000, 4500]))
    growing = [label.work for label in pieces.labels if hasattr(label.work, "at_context")]
    assert sorted(work.context for work in asked) == sorted([4096, 4500, 5000] * len(growing))


def test_sources_are_those_of_the_estimates() -> None:
    setup, pieces = quiet(), Pieces(fuse(decode_step(quiet())))
    expected = [setup.costs.estimate(label.work).source for label in pieces.labels]
    assert list(BaseTimes(setup, pieces).sources()) == expected


def test_durations_never_fall_below_zero_even_with_the_widest_noise() -> None:
    host = with_figures(noisy().machine.host, noise_cv=0.53)
    setup = replace(noisy(), machine=replace(noisy().machine, host=host))
    assert (drawn(with_noise(setup, kernel_cv=0.53, rank_cv=1.0), graph_with(), 2000) >= 0).all()


def by_cumulants(microseconds: list[float], cv: float) -> tuple[float, float]:
    """Relative deviation and skewness of the sum of independent kernels."""
    times = np.array(microseconds)
    variance = (times**2).sum() * cv**2
    third = (times**3).sum() * cv**3 * float(skewness(SHAPE))
    return float(np.sqrt(variance)) / times.sum(), third / variance**1.5


def deviation_and_skewness(made: Factors) -> tuple[float, float]:
    """Of factors ``floor + scale * exp(shape * z)`` of one column, whose mean must be 1."""
    shape, floor, scale = (float(values[0]) for values in made)
    assert floor + scale * np.exp(shape**2 / 2) == pytest.approx(1)
    return scale * np.sqrt(np.expm1(shape**2) * np.exp(shape**2)), float(skewness(shape))


@given(KERNELS.filter(any), st.booleans())
def test_a_stretch_varies_as_the_independent_noise_of_its_ops_adds_up_to(
    microseconds: list[float], fused: bool
) -> None:
    graph, machine = kernels(*microseconds), noisy().machine
    pieces = Pieces(fuse(graph) if fused else unfused(graph))
    found = deviation_and_skewness(factors_of(machine, pieces, sizes(pieces)))
    expected = by_cumulants(microseconds, machine.gpu.noise.kernel_cv.value)
    assert found == pytest.approx(expected, rel=1e-6)


@given(st.tuples(*[st.integers(1, 50)] * 4))
def test_of_a_diamond_only_the_longer_way_varies(times: tuple[int, int, int, int]) -> None:
    fork, main, side, join = times
    pieces, machine = Pieces(fuse(diamond(*times))), noisy().machine
    assert len(pieces.graph.ops) == 1
    found = deviation_and_skewness(factors_of(machine, pieces, sizes(pieces)))
    way = [fork, max(main, side), join]
    assert found == pytest.approx(by_cumulants(way, machine.gpu.noise.kernel_cv.value), rel=1e-6)


def test_the_longer_way_is_the_one_with_the_longer_mean_however_little_it_varies() -> None:
    """Six kernels of 10 us beside one of 50 us, which alone varies more than they do."""
    builder, compute, beside = GraphBuilder(), Lane("gpu0", "compute"), Lane("gpu0", "side")
    works = [Elementwise(10_000), Elementwise(50_000)]
    fork = builder.add(Phase.VERIFY, Component.DENSE, works[0], [compute], rank=0)
    detour = builder.add(Phase.VERIFY, Component.DENSE, works[1], [beside], [fork], rank=0)
    for after in [()] * 6 + [(detour,)]:
        builder.add(Phase.VERIFY, Component.DENSE, works[0], [compute], after, rank=0)
    pieces, machine = Pieces(fuse(builder.build())), noisy().machine
    assert len(pieces.graph.ops) == 1
    found = deviation_and_skewness(factors_of(machine, pieces, sizes(pieces)))
    assert found == pytest.approx(by_cumulants([10.0] * 8, machine.gpu.noise.kernel_cv.value), rel=1e-6)


@given(st.tuples(*[st.integers(1, 50)] * 4))
def test_a_lane_beside_the_first_one_adds_no_noise(times: tuple[int, int, int, int]) -> None:
    fork, main, _, join = times
    pieces, machine = Pieces(unfused(diamond(*times))), noisy().machine
    found = deviation_and_skewness(factors_of(machine, pieces, sizes(pieces)))
    assert found == pytest.approx(
        by_cumulants([fork, main, join], machine.gpu.noise.kernel_cv.value), rel=1e-6
    )


@pytest.mark.parametrize("cv", [0.05, MAX_CV])
def test_a_drawn_stretch_is_distributed_as_the_sum_of_its_ops(cv: float) -> None:
    setup, times = without_noise(noisy(), kernel_cv=cv), [40.0, 10, 10, 3, 3, 1]
    pieces = Pieces(fuse(kernels(*times)))
    found = drawn_pieces(setup, pieces, sizes(pieces), 100_000)[:, 0]
    luck = np.random.default_rng(11)
    summed = sum(1000 * time * lognormal_factor(luck, (100_000,), cv) for time in times)
    assert isinstance(summed, np.ndarray)
    assert found.mean() == pytest.approx(summed.mean(), rel=5e-3)
    assert found.std() == pytest.approx(summed.std(), rel=0.03)
    assert skew_of(found) == pytest.approx(skew_of(summed), rel=0.15)
    levels = [0.01, 0.1, 0.5, 0.9, 0.99]
    assert np.quantile(found, levels) == pytest.approx(np.quantile(summed, levels), abs=0.1 * summed.std())


def skew_of(values: np.ndarray) -> float:
    """Sample skewness."""
    return float((((values - values.mean()) / values.std()) ** 3).mean())


def test_works_of_one_stretch_vary_by_their_own_figures() -> None:
    host = with_figures(noisy().machine.host, noise_cv=0.2, graph_launch_cv=0.4)
    builder, python = GraphBuilder(), Lane("host", "python")
    builder.add(Phase.SCHEDULE, Component.SCHEDULING, HostWork(HostTask.SCHEDULE, 1), [python])
    builder.add(Phase.DRAFT, Component.LAUNCH, GraphLaunch(9), [python])
    pieces = Pieces(fuse(builder.build()))
    made = factors_of(replace(noisy().machine, host=host), pieces, np.array([30 * US, 10 * US]))
    # 30 us at 0.2 and 10 us at 0.4: variances 36 and 16, third moments 216 and 64.
    skew = (216 + 64) * float(skewness(SHAPE)) / 52**1.5
    assert deviation_and_skewness(made) == pytest.approx((np.sqrt(52) / 40, skew), rel=1e-6)


def test_pieces_of_one_stretch_share_their_luck_and_others_do_not() -> None:
    """Two devices, a collective, and the same devices again."""
    builder, first, second = GraphBuilder(), Lane("gpu0", "compute"), Lane("gpu1", "compute")
    for lane in (first, first, second):
        builder.add(Phase.VERIFY, Component.DENSE, Elementwise(1024), [lane])
    builder.add(Phase.VERIFY, Component.ALLREDUCE, AllReduce(1024, 2), [first, second])
    for lane in (first, second):
        builder.add(Phase.VERIFY, Component.DENSE, Elementwise(1024), [lane])
    times = drawn(noisy(), builder.build(), 20, microseconds=1e6)
    assert (times[:, 0] == times[:, 1]).all()
    apart = times[:, [0, 2, 3, 4, 5]]
    assert all((apart[:, i] != apart[:, j]).all() for i in range(5) for j in range(i))


def test_stretches_are_what_a_device_does_between_two_collectives() -> None:
    builder, gpu, other = GraphBuilder(), Lane("gpu0", "compute"), Lane("gpu1", "compute")
    python, side = Lane("host", "python"), Lane("gpu0", "side")
    dense = Component.DENSE
    builder.add(Phase.SCHEDULE, dense, HostWork(HostTask.SCHEDULE, 1), [python])
    builder.add(Phase.DISPATCH, dense, GraphLaunch(3), [python])
    builder.add(Phase.DISPATCH, dense, EagerLaunch(1, False), [python])
    for lane in (gpu, side, other):
        builder.add(Phase.VERIFY, dense, Elementwise(8), [lane])
    builder.add(Phase.VERIFY, dense, AllReduce(8, 2), [gpu, other])
    builder.add(Phase.VERIFY, dense, Elementwise(8), [gpu])
    builder.add(Phase.ACCEPT, dense, Elementwise(8), [gpu])
    kernels_, link = RandomStream.VERIFY_KERNELS, RandomStream.VERIFY_LINK
    assert stretches(builder.build()) == [
        Stretch("host", 0, RandomStream.HOST),
        Stretch("host", 0, RandomStream.GRAPH_LAUNCHES),
        Stretch("host", 0, RandomStream.EAGER_LAUNCHES),
        Stretch("gpu0", 0, kernels_),
        Stretch("gpu0", 0, kernels_),
        Stretch("gpu1", 0, kernels_),
        Stretch("gpu0", 1, link),
        Stretch("gpu0", 1, kernels_),
        Stretch("gpu0", 1, RandomStream.OTHER_KERNELS),
    ]


@pytest.mark.parametrize("overrides", [(), ("tree.budget=9",), ("tree.budget=0", "acceptance={length: 1}")])
def test_every_piece_belongs_to_one_stretch_of_one_stream(overrides: tuple[str, ...]) -> None:
    simulation = Simulation(small_setup(*overrides))
    pieces = simulation.pieces
    seconds = simulation.base.seconds(np.array([4096]))[0]
    plan, found = NoisePlan(simulation.setup.machine, pieces, seconds), stretches(pieces.graph)
    served = np.concatenate([one.pieces for one in plan.streams.values()])
    assert sorted(served.tolist()) == list(range(len(pieces.graph.ops)))
    # Beside one value a stretch: drift, two for stalls, and acceptance.
    assert simulation.values_per_step == len(set(found)) + 4
    for stream, one in plan.streams.items():
        mine = [found[piece] for piece in one.pieces.tolist()]
        assert {stretch.stream for stretch in mine} == {stream}
        assert len(set(zip(mine, one.columns.tolist(), strict=True))) == len(set(mine))
        assert len(set(one.columns.tolist())) == len(set(mine)) == len(one.factors.log_sd)


@pytest.mark.parametrize("overrides", [(), ("tree.budget=9",), ("tree.budget=0", "acceptance={length: 1}")])
def test_no_stretch_of_a_real_step_can_take_less_than_no_time(overrides: tuple[str, ...]) -> None:
    setup = with_noise(small_setup(*overrides), kernel_cv=MAX_CV)
    simulation = Simulation(setup)
    plan = NoisePlan(setup.machine, simulation.pieces, simulation.base.seconds(np.array([4096]))[0])
    assert all((one.factors.floor >= -1e-9).all() for one in plan.streams.values())


@pytest.mark.parametrize("overrides", [(), ("tree.budget=9",), ("tree.builder=gpu",), ("gpus=1",)])
def test_nothing_that_takes_time_always_takes_the_same(overrides: tuple[str, ...]) -> None:
    simulation = Simulation(small_setup(*overrides))
    durations = next(simulation.chunks(0)).durations
    takes_time = durations.max(axis=0) > 0
    assert (np.ptp(durations, axis=0)[takes_time] > 0).all()


def test_noise_follows_the_context_of_each_step() -> None:
    """Twice the mean time takes twice as long in every step, with the same luck."""
    pieces = Pieces(unfused(graph_with(kernels=3)))
    plan = NoisePlan(noisy().machine, pieces, np.full(len(pieces.labels), US))
    seconds = np.repeat([[1e-3], [2e-3], [4e-3]], pieces.kind_count, axis=1)
    first = Noise(plan, 1, 0).durations(seconds)
    second = Noise(plan, 1, 0).durations(np.full_like(seconds, 1e-3))
    assert np.abs(first - second * [[1], [2], [4]]).max() <= 2


def stalling(low: float, high: float, chance: float) -> Setup:
    """No noise but stalls."""
    spikes = {"spike_factor_low": low, "spike_factor_high": high}
    return without_noise(with_noise(noisy(), **spikes), spike_probability=chance)
