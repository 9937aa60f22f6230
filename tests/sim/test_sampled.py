"""Ops of a measured file are distributed as its samples; all others draw what they always drew."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from builders import small_setup, without_noise
from hypothesis import given
from hypothesis import strategies as st
from measuring import bimodal, device, experts, kimi_file, kimi_points, mla, point, write, write_gpu
from scipy import stats
from sweeps import TINY, TWO_LAYERS, plan_of, sim_here, write_tiny

from hwmodels import cases, measured, sampled
from hwmodels.measured import Point, Series
from hwmodels.sampled import Samples
from hwmodels.work import DType, Elementwise, GroupedExperts, MlaAttention, experts_touched
from sim import simulate
from sim.draws import Noise, NoisePlan
from sim.fusion import fuse, unfused
from sim.graph import Component, GraphBuilder, IntArray, Lane, Phase, StepGraph
from sim.means import BaseTimes, mean_times
from sim.pieces import Pieces
from sim.replay import replay
from sim.sampled import Sampled, luck_of_run
from sim.setup import Setup
from sim.simulate import Simulation
from sim.step import decode_step
from sim.sweeps.plan import key_of

LAYERS = 3
SIGNIFICANCE = 1e-4


def with_samples(setup: Setup, *points: Point) -> Setup:
    """*setup* on a GPU for which *points* were measured."""
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "made_up.jsonl", *points)
        samples = Samples(measured.read(path, allow_emulated=True))
    return replace(setup, machine=replace(setup.machine, samples=samples))


INDEPENDENT = "experts.routing_correlation=0"
"""Tokens that touch as many experts as those of the made-up files."""


@cache
def small(*overrides: str) -> Setup:
    return small_setup(*(overrides or (INDEPENDENT,)), layers=LAYERS)


@cache
def kimi() -> Setup:
    """The small scenario, nearly all of whose work was measured."""
    return with_samples(small(), *kimi_points())


def durations(setup: Setup, contexts: list[int], run: int = 0) -> tuple[Pieces, IntArray]:
    """Every op of the setup's step by itself, and its durations (steps, ops)."""
    pieces = Pieces(unfused(decode_step(setup)))
    mean = mean_times(pieces, BaseTimes(setup, pieces).seconds(np.array(contexts)))
    found = Sampled(setup, pieces)
    plan = NoisePlan(setup.machine, pieces, mean.label_s[0], found.drawn)
    drawn = found.draw(luck_of_run(setup.scenario.seed, run), mean, np.array(contexts))
    return pieces, Noise(plan, setup.scenario.seed, run).durations(*drawn)


def of_work(setup: Setup, kind: type, contexts: list[int]) -> IntArray:
    """(steps, ops) durations of every op whose work is of *kind*."""
    pieces, found = durations(setup, contexts)
    return found[:, [i for i, op in enumerate(pieces.graph.ops) if isinstance(op.work, kind)]]


def assert_same_distribution(found_ns: np.ndarray, expected_us: np.ndarray) -> None:
    assert stats.ks_2samp(found_ns / 1000, expected_us, method="asymp").pvalue > SIGNIFICANCE


def skewed(scale_us: float, seed: int, count: int = 500) -> list[float]:
    """Samples that no lognormal noise around a mean would give."""
    luck = np.random.default_rng(seed)
    return (scale_us * np.where(luck.random(count) < 0.7, 1.0, 4.0) * luck.uniform(0.9, 1.1, count)).tolist()


def test_at_a_measured_point_durations_are_distributed_as_the_samples() -> None:
    # Nine tokens, as the base scenario verifies.
    samples = skewed(50.0, 1)
    setup = without_noise(with_samples(small(), point(experts(9), samples)))
    found = of_work(setup, GroupedExperts, [4096] * 200)
    assert_same_distribution(found.ravel(), np.array(samples))
    with_another_tail = stats.ks_2samp(found.ravel() / 1000, skewed(50.0, 1)[:250] + [50.0] * 250)
    assert with_another_tail.pvalue < SIGNIFICANCE


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.4])
def test_between_two_points_they_are_distributed_as_the_interpolated_quantiles(correlation: float) -> None:
    few, many = skewed(20.0, 1), skewed(90.0, 2)
    asked = small(f"experts.routing_correlation={correlation}")
    setup = without_noise(with_samples(asked, point(experts(4), few), point(experts(16), many)))
    # Files are of independent tokens.
    touched = [experts_touched(m, 384, 8, rho) for m, rho in ((4, 0), (9, correlation), (16, 0))]
    share = (touched[1] - touched[0]) / (touched[2] - touched[0])
    expected = (1 - share) * np.sort(few) + share * np.sort(many)
    found = of_work(setup, GroupedExperts, [4096] * 200)
    assert_same_distribution(found.ravel(), expected)
    assert stats.ks_2samp(found.ravel() / 1000, few).pvalue < SIGNIFICANCE


def test_attention_follows_its_context_step_by_step() -> None:
    points = [point(mla(9, c), skewed(c / 100, c)) for c in (4000, 8000)]
    setup = without_noise(with_samples(small(), *points))
    contexts = np.linspace(4096, 8000, 60).astype(int).tolist()
    found = of_work(setup, MlaAttention, contexts)
    ends = [np.sort(p.samples_us) for p in points]
    for context, row in zip(contexts, found, strict=True):
        share = (context - 4000) / 4000
        assert_same_distribution(row, (1 - share) * ends[0] + share * ends[1])


def test_attention_that_outgrows_the_samples_takes_its_noise_from_the_figures() -> None:
    setup = with_samples(small(), *(point(mla(9, c), bimodal(40.0)) for c in (4000, 5000)))
    found = of_work(without_noise(setup), MlaAttention, [4096, 5000, 5001])
    assert set(found[:2].ravel().tolist()) == {40_000, 120_000}
    beyond = setup.costs.estimate(next(iter(works(setup, MlaAttention))).at_context(5001))
    assert set(found[2].tolist()) == {beyond.ns}


def test_attention_that_grows_into_the_samples_draws_from_them_from_there_on() -> None:
    setup = with_samples(small(), *(point(mla(9, c), bimodal(40.0)) for c in (5000, 6000)))
    found = of_work(without_noise(setup), MlaAttention, [4096, 4999, 5000, 5500])
    assert set(found[2:].ravel().tolist()) == {40_000, 120_000}
    assert not set(found[:2].ravel().tolist()) & {40_000, 120_000}


def works(setup: Setup, kind: type) -> set[Any]:
    return {op.work for op in decode_step(setup).ops if isinstance(op.work, kind)}


def test_the_ranks_of_an_expert_layer_meet_the_same_routing() -> None:
    setup = without_noise(with_samples(small(), point(experts(9), np.linspace(10, 20, 1000))))
    found = of_work(setup, GroupedExperts, [4096] * 400)
    assert found.shape == (400, (LAYERS - 1) * 8)
    by_layer = found.reshape(400, LAYERS - 1, 8)
    assert (by_layer == by_layer[:, :, :1]).all()
    assert len(set(found[:, 0].tolist())) > 200


def test_every_other_op_rank_and_step_draws_for_itself() -> None:
    setup = without_noise(with_samples(small(), point(mla(9, 4096), np.linspace(10, 20, 1000))))
    found = of_work(setup, MlaAttention, [4096] * 400)
    columns = found.shape[1]
    assert columns == LAYERS * 8
    correlation = np.corrcoef(found.T)
    assert np.abs(correlation - np.eye(columns)).max() < 5 / np.sqrt(400)
    steps = np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]
    assert abs(steps) < 5 / np.sqrt(399 * columns)


def test_attention_rests_on_the_file_only_where_the_file_reaches() -> None:
    """The context grows past the last one that was measured in the middle of the run."""
    setup = with_samples(small(), *(point(mla(9, context), [900.0]) for context in (4096, 4200)))
    load = setup.scenario.load.model_copy(update={"context_tokens": 4150, "output_tokens": 200})
    run = Simulation(replace(setup, scenario=setup.scenario.model_copy(update={"load": load}))).run(0)
    inside = run.steps.contexts <= 4200
    assert 0 < inside.sum() < len(inside)
    assert (run.steps.file_ns[inside] > 0).all()
    assert (run.steps.file_ns[~inside] == 0).all()


def test_what_is_not_measured_draws_what_it_draws_without_the_file() -> None:
    setup = with_samples(small(), point(experts(9), bimodal(50.0)))
    pieces, found = durations(setup, [4096, 4100])
    base = BaseTimes(small(), pieces).seconds(np.array([4096, 4100]))
    kinds = mean_times(pieces, base)
    plain = Noise(NoisePlan(small().machine, pieces, base[0]), 1, 0).durations(kinds.kind_s)
    [expert_stream] = {op.phase for op in pieces.graph.ops if isinstance(op.work, GroupedExperts)}
    for i, op in enumerate(pieces.graph.ops):
        if op.phase is not expert_stream:
            assert found[:, i].tolist() == plain[:, i].tolist()
    assert (found != plain).any()


def test_ranks_drift_and_stalls_act_on_samples_too() -> None:
    one = with_samples(small(), point(experts(9), [50.0]))
    slow_ranks = of_work(without_noise(one, rank_cv=0.1), GroupedExperts, [4096] * 5)
    assert (slow_ranks == slow_ranks[0]).all()
    assert len(set(slow_ranks[0].tolist())) == 8
    drift = of_work(without_noise(one, step_cv=0.05), GroupedExperts, [4096] * 5)
    assert (drift == drift[:, :1]).all()
    assert len(set(drift[:, 0].tolist())) == 5
    stalled = without_noise(one, spike_probability=1.0, spike_factor_low=3.0, spike_factor_high=3.0)
    assert set(of_work(stalled, GroupedExperts, [4096]).ravel().tolist()) == {150_000}


@given(st.lists(st.booleans(), min_size=2, max_size=6))
def test_the_rest_of_a_stretch_keeps_the_noise_that_it_has_by_itself(drawn: list[bool]) -> None:
    """Not that of a longer stretch: what is drawn from samples brings its own."""
    machine = small().machine
    whole = Pieces(fuse(kernels(*range(10, 10 * len(drawn) + 10, 10))))
    rest = Pieces(fuse(kernels(*(10 * n for n, is_drawn in enumerate(drawn, 1) if not is_drawn))))
    seconds, alone = (np.array([label.work.size_bytes for label in p.labels]) * 1e-9 for p in (whole, rest))  # type: ignore[union-attr]
    [found] = NoisePlan(machine, whole, seconds, np.array(drawn)).streams.values()
    if all(drawn):
        assert found.factors.scale.tolist() == [0]
        return
    [expected] = NoisePlan(machine, rest, alone).streams.values()
    for mine, theirs in zip(found.factors, expected.factors, strict=True):
        assert mine == pytest.approx(theirs)


def kernels(*microseconds: float) -> StepGraph:
    """One kernel after the other; how long each takes is in its size (ns)."""
    builder = GraphBuilder()
    for time in microseconds:
        work = Elementwise(round(1000 * time))
        builder.add(Phase.VERIFY, Component.DENSE, work, [Lane("gpu0", "compute")], rank=0)
    return builder.build()


@pytest.mark.parametrize("repeats", [1, 4, 16])
def test_kernels_in_one_piece_draw_one_by_one(repeats: int) -> None:
    times = np.linspace(10, 20, 1000)
    # As many bytes as a kernel of 10 has.
    norm = cases.Norm(tokens=1, hidden=1250)
    setup = with_samples(small(), point(norm, times, Series.GRAPH))
    pieces, steps = Pieces(fuse(kernels(*[10] * repeats))), 2000
    assert len(pieces.graph.ops) == 1
    mean = mean_times(pieces, BaseTimes(setup, pieces).seconds(np.full(steps, 4096)))
    found = Sampled(setup, pieces).draw(luck_of_run(1, 0), mean, np.full(steps, 4096)).piece_s * 1e6
    assert found.mean() == pytest.approx(15 * repeats, rel=0.02)
    # Their variances add up; had they a draw in common, their deviations would.
    assert found.std() == pytest.approx(times.std() * np.sqrt(repeats), rel=0.1)


def test_every_run_and_every_seed_has_luck_of_its_own() -> None:
    drawn = {tuple(luck_of_run(seed, run).random(3)) for seed in range(3) for run in range(3)}
    assert len(drawn) == 9


def shared_expert_points() -> list[Point]:
    """What runs on a second stream beside the routed experts."""
    gate_up, down = ({"n": 512, "k": 7168}, {"n": 7168, "k": 256})
    shapes = [cases.DenseGemm(tokens=9, **shape, dtype=DType.BF16) for shape in (gate_up, down)]
    return [point(shape, bimodal(2.0)) for shape in shapes]


def test_a_step_takes_as_long_fused_as_op_by_op_on_average() -> None:
    setup = without_noise(with_samples(small(), *kimi_points(), *shared_expert_points()))
    means = []
    for fuse_it in (fuse, unfused):
        pieces = Pieces(fuse_it(decode_step(setup)))
        mean = mean_times(pieces, BaseTimes(setup, pieces).seconds(np.full(300, 4096)))
        found = Sampled(setup, pieces)
        drawn = found.draw(luck_of_run(1, 0), mean, np.full(300, 4096))
        rest = drawn.rest_s[:, pieces.kind_of]
        means.append((rest + drawn.piece_s).sum(axis=1))
        expected = mean.kind_s[0, pieces.kind_of].sum()
        assert means[-1].mean() == pytest.approx(expected, rel=0.003)
    # Sums of independent draws, however they are grouped.
    assert means[0].std() == pytest.approx(means[1].std(), rel=0.25)
    # Fused, the shorter way of a fork takes no time.
    assert means[0].mean() < means[1].mean()


@given(st.integers(1, 50))
def test_the_size_of_a_chunk_changes_nothing(steps: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = Simulation(kimi()).run(3)
        patch.setattr(simulate, "CHUNK_DURATIONS", steps * len(Simulation(kimi()).pieces.graph.ops))
        parts = Simulation(kimi()).run(3)
    assert parts.steps.step_ns.tolist() == whole.steps.step_ns.tolist()


@pytest.mark.parametrize("engine_matters", [(), ("tree.budget=0", "acceptance={length: 1}")])
def test_both_engines_agree_to_the_nanosecond(engine_matters: tuple[str, ...]) -> None:
    found = Simulation(with_samples(small_setup(INDEPENDENT, *engine_matters), *kimi_points()))
    assert replay(found, [found.run(0)]).kernel_steps == 4


def test_a_run_is_the_same_bytes_again_and_another_run_is_not() -> None:
    first, again, other = (Simulation(kimi()).run(run).steps.step_ns.tolist() for run in (0, 0, 1))
    assert first == again != other


def test_a_step_consumes_a_value_for_each_measured_execution_but_one_for_an_expert_layer() -> None:
    counted = Simulation(kimi()).values_per_step - Simulation(small()).values_per_step
    graph = decode_step(kimi())
    costs = kimi().costs
    drawn = [op for op in graph.ops if costs.estimate(op.work).blend is not None]
    other_ranks = [op for op in drawn if isinstance(op.work, GroupedExperts) and op.rank]
    assert counted == len(drawn) - len(other_ranks) > 50


DEEP = TWO_LAYERS.replace("\nlayers: 2\n", "\nlayers: 20\n")
NATIVE = TINY.replace("gpu: b300_sxm", "gpu: emulated_gpu.yaml").replace("sglang", "native")
UNCORRELATED = f"{NATIVE}experts: {{routing_correlation: 0}}\n"


def run_fixture(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], points: list[Point]
) -> dict[str, Any]:
    """What ``sim run --json`` says of a scenario whose GPU names a file of *points* in *folder*."""
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    monkeypatch.chdir(folder)
    write(folder / "emulated_gpu.jsonl", *points, device=device("sm_103"))
    write_gpu(folder, extends="b300_sxm")
    write_tiny(folder, tiny=UNCORRELATED, two_layers=DEEP)
    sampled.load.cache_clear()
    code, out, err = sim_here(monkeypatch, capsys, "run", "tiny.yaml", "--json")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def test_a_scenario_whose_gpu_names_a_file_draws_from_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run_fixture(tmp_path, monkeypatch, capsys, kimi_points())
    [(name, share)] = summary["measured_files"].items()
    assert name == "emulated_gpu.jsonl"
    # Small kernels are answered from the norm that was measured, and count as SCALED.
    assert 0.3 < share <= summary["sources"]["MEASURED"] + summary["sources"]["SCALED"] < 1
    assert sum(summary["sources"].values()) == pytest.approx(1)
    assert summary["sources"].keys() == {"MEASURED", "FITTED", "SCALED", "DATASHEET", "ASSUMED"}
    told = f"on emulated_gpu.jsonl {100 * share:.1f} %"
    assert told in " ".join((tmp_path / "results/tiny/report.txt").read_text().split())
    costs = (tmp_path / "results/tiny/costs.csv").read_text()
    assert "emulated_gpu.jsonl: experts at 66.2" in costs
    assert "emulated_gpu.jsonl has gemm of other sizes only" in costs
    assert len(summary["provenance"]["measured_sha256"]) == 64
    assert summary["replayed_on_simpy"]["steps"] > 0


def test_its_steps_are_slower_than_those_of_constant_samples_for_the_slowest_rank_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = [
        each.model_copy(update={"samples_us": (float(np.mean(each.samples_us)),) * len(each.samples_us)})
        for each in kimi_points()
    ]
    steady, varied = (
        run_fixture(tmp_path, monkeypatch, capsys, points)["step_time_ms"]["mean"]
        for points in (constant, kimi_points())
    )
    # Of eight draws among a and 3 a the largest is nearly always 3 a, where the mean is 2 a.
    assert varied > 1.1 * steady


def test_a_made_up_file_is_refused_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kimi_file(tmp_path)
    write_gpu(tmp_path, extends="b300_sxm")
    path = write_tiny(tmp_path, tiny=TINY.replace("gpu: b300_sxm", "gpu: emulated_gpu.yaml"))
    code, out, err = sim_here(monkeypatch, capsys, "run", str(path))
    assert (code, out) == (2, "")
    assert "emulated_gpu.jsonl:1: times made up by 'EMULATED device of a test'" in err


def test_the_key_of_a_cell_depends_on_the_bytes_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    path = write_tiny(tmp_path, tiny=TINY.replace("gpu: b300_sxm", "gpu: emulated_gpu.yaml"))
    write_gpu(tmp_path, extends="b300_sxm")
    keys = []
    for slow_us in (50.0, 50.0, 51.0):
        write(tmp_path / "emulated_gpu.jsonl", point(experts(9), [50.0, slow_us]), device=device("sm_103"))
        sampled.load.cache_clear()
        [cell] = plan_of("tree.budget=8", path=path).cells
        assert cell.setup is not None
        assert cell.key == key_of(cell.setup)
        keys.append(cell.key)
    assert keys[0] == keys[1] != keys[2]


def test_a_file_of_another_kind_of_gpu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    file = kimi_file(tmp_path)
    write_gpu(tmp_path, extends="b300_sxm")
    path = write_tiny(tmp_path, tiny=TINY.replace("gpu: b300_sxm", "gpu: emulated_gpu.yaml"))
    sampled.load.cache_clear()
    code, out, err = sim_here(monkeypatch, capsys, "run", str(path))
    found = "device.compute_capability sm_90 ('EMULATED device of a test')"
    told = f"error: {file}:1: {found}; expected sm_103, which emulated_gpu has\n"
    assert (code, out, err) == (2, "", told)
