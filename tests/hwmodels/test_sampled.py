"""A measured file answers the works it has, between its points and never beyond them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import bimodal, experts, kimi_file, kimi_points, mla, point, write, write_gpu

from hwmodels import cases, catalog, measured, sampled
from hwmodels.cases import AllReduceAlgorithm, AnyCase
from hwmodels.catalog import Kind
from hwmodels.cost import CostModel
from hwmodels.errors import DocumentError, MeasuredFileError
from hwmodels.estimate import Bound, Source
from hwmodels.machine import Machine
from hwmodels.measured import Point, Series
from hwmodels.sampled import Answer, Samples, Silence
from hwmodels.work import (
    AllReduce,
    Copy,
    CopyDirection,
    DType,
    EagerLaunch,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    MlaAttention,
    Work,
    experts_touched,
)

US = 1e-6


def samples_of(*points: Point) -> Samples:
    with TemporaryDirectory() as folder:
        return Samples(measured.read(write(Path(folder) / "made_up.jsonl", *points), allow_emulated=True))


def experts_work(tokens: int, touched: float | None = None, **changes: Any) -> GroupedExperts:
    uniform = experts_touched(tokens, 384, 8)
    sizes = {"experts": 384, "top_k": 8, "hidden": 7168, "intermediate": 256, "dtype": DType.INT4} | changes
    return GroupedExperts(tokens=tokens, touched=uniform if touched is None else touched, **sizes)


def mla_work(queries: int, context: int, **changes: Any) -> MlaAttention:
    sizes = {"requests": 1, "heads": 8, "latent": 576, "dtype": DType.BF16, "run_tokens": 10**6} | changes
    return MlaAttention(queries=queries, context=context, **sizes)


PAIRS: list[tuple[AnyCase, Series, Work]] = [
    (experts(9), Series.COLD, experts_work(9)),
    (mla(9, 4096), Series.COLD, mla_work(9, 4096)),
    (cases.DenseGemm(tokens=9, n=5, k=7, dtype=DType.BF16), Series.COLD, Gemm(9, 5, 7, DType.BF16)),
    (cases.Norm(tokens=9, hidden=7168), Series.GRAPH, Elementwise(8 * 9 * 7168)),
    (cases.TopK(rows=7, vocabulary=20480, k=8), Series.WARM, GpuKernel(GpuTask.TOP_K, 7)),
    (
        cases.TreeBuild(nodes=8, positions=7, candidates=8),
        Series.WARM,
        GpuKernel(GpuTask.TREE_BUILD, 8),
    ),
    (cases.TreeAccept(tokens=9), Series.WARM, GpuKernel(GpuTask.TREE_ACCEPT, 9)),
    (
        cases.HostCopy(size_bytes=64, direction=CopyDirection.TO_HOST),
        Series.WARM,
        Copy(64, CopyDirection.TO_HOST),
    ),
    (cases.GraphLaunch(nodes=100), Series.WARM, GraphLaunch(100)),
]
UNANSWERED: list[tuple[AnyCase, Work]] = [
    (
        cases.Reduce(message_bytes=64, ranks=8, algorithm=AllReduceAlgorithm.ONE_SHOT),
        AllReduce(64, 8),
    ),
    (
        cases.ReduceStandin(message_bytes=64, ranks=8, algorithm=AllReduceAlgorithm.ONE_SHOT),
        AllReduce(64, 8),
    ),
    (cases.EmptyKernel(), EagerLaunch(1, False)),
    (cases.EmptyInterval(), HostWork(HostTask.SYNCHRONISE, 1)),
]
OTHER_SIZES: list[tuple[AnyCase, Work]] = [
    (experts(9), experts_work(9, experts=128)),
    (experts(9), experts_work(9, top_k=4)),
    (experts(9), experts_work(9, hidden=4096)),
    (experts(9), experts_work(9, intermediate=512)),
    (experts(9), experts_work(9, dtype=DType.NVFP4)),
    (mla(9, 4096), mla_work(9, 4096, requests=2)),
    (mla(9, 4096), mla_work(9, 4096, heads=16)),
    (mla(9, 4096), mla_work(9, 4096, dtype=DType.FP8)),
    (mla(9, 4096), mla_work(9, 4096, run_tokens=64)),
    (cases.DenseGemm(tokens=9, n=5, k=7, dtype=DType.BF16), Gemm(9, 7, 5, DType.BF16)),
    (cases.DenseGemm(tokens=9, n=5, k=7, dtype=DType.BF16), Gemm(9, 5, 7, DType.FP8)),
    (
        cases.HostCopy(size_bytes=64, direction=CopyDirection.TO_HOST),
        Copy(64, CopyDirection.TO_DEVICE),
    ),
]


@pytest.mark.parametrize(("case", "series", "work"), PAIRS)
def test_a_measured_work_is_answered_by_its_own_samples(case: AnyCase, series: Series, work: Work) -> None:
    found = samples_of(point(case, [3.0, 1.0, 5.0], series)).find(work)
    assert isinstance(found, Answer)
    assert found.blend.mean == pytest.approx(3 * US)
    assert found.blend.file == "made_up.jsonl"
    assert f"{case.op} at" in found.evidence
    assert f"3 samples, {series.value}, made up" in found.evidence


@pytest.mark.parametrize(("case", "series", "work"), PAIRS)
def test_no_other_series_answers_it(case: AnyCase, series: Series, work: Work) -> None:
    wanted = sampled.SERIES[case.op]
    others = [point(case, [3.0], other) for other in Series if other not in wanted]
    told = " or ".join(each.value for each in wanted)
    assert samples_of(*others).find(work) == Silence(f"made_up.jsonl has no {case.op} ({told})")
    assert series == wanted[0]


@pytest.mark.parametrize(("case", "work"), UNANSWERED)
def test_what_says_nothing_about_a_work_is_not_asked(case: AnyCase, work: Work) -> None:
    assert samples_of(*(point(case, [3.0], series) for series in Series)).find(work) is None


@pytest.mark.parametrize(
    ("case", "work", "op"),
    [
        (cases.GraphReplay(nodes=100), GraphLaunch(100), "graph_launch (warm)"),
        (cases.DeviceCopy(size_bytes=64), Copy(64, CopyDirection.TO_DEVICE), "host_copy (warm)"),
        (experts(9), mla_work(9, 4096), "mla (cold)"),
        (experts(9), Elementwise(64), "norm (graph or warm)"),
    ],
)
def test_a_file_without_an_op_says_that_it_has_none(case: AnyCase, work: Work, op: str) -> None:
    found = samples_of(*(point(case, [3.0], series) for series in Series)).find(work)
    assert found == Silence(f"made_up.jsonl has no {op}")


@pytest.mark.parametrize(("case", "work"), OTHER_SIZES)
def test_another_size_is_another_work(case: AnyCase, work: Work) -> None:
    found = samples_of(*(point(case, [3.0], series) for series in Series)).find(work)
    assert found == Silence(f"made_up.jsonl has {case.op} of other sizes only")


def test_norms_in_a_graph_come_before_warm_ones_and_are_not_mixed_with_them() -> None:
    small, large = cases.Norm(tokens=1, hidden=100), cases.Norm(tokens=9, hidden=100)
    warm = [point(case, [4.0], Series.WARM) for case in (small, large)]
    in_graph = point(small, [2.0], Series.GRAPH)
    found = samples_of(*warm, in_graph)
    answer = found.find(Elementwise(800))
    assert isinstance(answer, Answer)
    assert answer.blend.mean == pytest.approx(2 * US)
    assert found.find(Elementwise(7200)) == Silence("made_up.jsonl has norm only at 800 to 800 bytes")


def test_of_several_vocabularies_the_largest_is_taken() -> None:
    points = [
        point(cases.TopK(rows=7, vocabulary=v, k=k), [us], Series.WARM)
        for v, k, us in ((100, 9, 1.0), (200, 4, 2.0), (200, 8, 3.0))
    ]
    answer = samples_of(*points).find(GpuKernel(GpuTask.TOP_K, 7))
    assert isinstance(answer, Answer)
    assert answer.blend.mean == pytest.approx(3 * US)


@given(st.lists(st.integers(1, 200), min_size=2, max_size=2, unique=True), st.floats(0, 1))
def test_between_two_points_every_quantile_is_interpolated(tokens: list[int], share: float) -> None:
    low, high = sorted(tokens)
    points = [point(experts(m), [m, 2.0 * m, 5.0 * m]) for m in (low, high)]
    ends = [experts_touched(m, 384, 8) for m in (low, high)]
    found = samples_of(*points).find(experts_work(low, ends[0] + share * (ends[1] - ends[0])))
    assert isinstance(found, Answer)
    expected = [(low + share * (high - low)) * factor * US for factor in (1, 2, 5)]
    for level, wanted in zip((100, 500, 900), expected, strict=True):
        assert found.blend.seconds[level] == pytest.approx(wanted, rel=1e-6)


def test_fewer_experts_touched_take_the_time_of_fewer_tokens() -> None:
    found = samples_of(point(experts(1), [10.0]), point(experts(9), [68.3]))
    alike = found.find(experts_work(9, touched=37.15))
    assert isinstance(alike, Answer)
    # Halfway between 8 and 66.3 experts.
    assert alike.blend.mean == pytest.approx((10.0 + 68.3) / 2 * US, rel=1e-3)


@given(st.integers(1, 9), st.integers(1000, 5000))
def test_attention_lies_between_four_points(queries: int, context: int) -> None:
    found = samples_of(*(point(mla(q, c), [q + c / 100]) for q in (1, 9) for c in (1000, 5000)))
    answer = found.find(mla_work(queries, context))
    assert isinstance(answer, Answer)
    assert answer.blend.mean == pytest.approx((queries + context / 100) * US)
    assert sum(answer.blend.weights) == pytest.approx(1)


def test_a_missing_corner_is_named() -> None:
    found = samples_of(*(point(mla(q, c), [1.0]) for q, c in ((1, 1000), (9, 1000), (1, 5000))))
    assert found.find(mla_work(4, 2000)) == Silence("made_up.jsonl lacks mla at 9 queries, 5000 context")
    assert isinstance(found.find(mla_work(1, 2000)), Answer)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (mla_work(10, 1000), "mla only at 1 to 9 queries, 1000 to 5000 context"),
        (mla_work(9, 999), "mla only at 1 to 9 queries, 1000 to 5000 context"),
        (mla_work(9, 5001), "mla only at 1 to 9 queries, 1000 to 5000 context"),
    ],
)
def test_nothing_is_extrapolated(work: Work, told: str) -> None:
    found = samples_of(*(point(mla(q, c), [1.0]) for q in (1, 9) for c in (1000, 5000)))
    assert found.find(work) == Silence(f"made_up.jsonl has {told}")


def test_the_uncertainty_is_the_standard_error_or_what_the_passes_differ_by() -> None:
    noisy = point(cases.EmptyKernel(), [1.0, 3.0] * 8)
    assert sampled.relative_error(noisy) == pytest.approx(1 / 4 / 2)
    drifting = point(cases.EmptyKernel(), [1.5] * 8 + [2.5] * 8, pass_medians_us=(1.5, 2.5))
    assert sampled.relative_error(drifting) == pytest.approx(0.25)
    assert sampled.relative_error(point(cases.EmptyInterval(), [0.0])) == 0.0


def test_pickled_samples_answer_the_same() -> None:
    found = samples_of(point(experts(9), [3.0, 4.0]))
    again = pickle.loads(pickle.dumps(found)).find(experts_work(9))
    assert again.evidence == found.find(experts_work(9)).evidence  # type: ignore[union-attr]
    assert again.blend.mean == pytest.approx(3.5 * US)


@cache
def models() -> tuple[CostModel, CostModel]:
    """The same H200, with made up samples and without."""
    parts = (catalog.interconnect("nvlink4"), catalog.host("xeon_dual"), catalog.stack("sglang"))
    plain = Machine(catalog.gpu("h200_sxm"), 8, *parts)
    return CostModel(replace(plain, samples=samples_of(*kimi_points()))), CostModel(plain)


@pytest.mark.parametrize(
    ("work", "bound"),
    [
        (experts_work(9), Bound.MEMORY),
        (mla_work(9, 16384), Bound.MEMORY),
        (mla_work(1, 1024), Bound.LATENCY),
        (Gemm(9, 384, 7168, DType.BF16), Bound.LATENCY),
        (Elementwise(8 * 9 * 7168), Bound.LATENCY),
        (GpuKernel(GpuTask.TOP_K, 7), Bound.LATENCY),
        (GpuKernel(GpuTask.TREE_ACCEPT, 9), Bound.LATENCY),
        (GraphLaunch(1459), Bound.HOST),
    ],
)
def test_the_cost_model_takes_samples_first(work: Work, bound: Bound) -> None:
    found = models()[0].estimate(work)
    # One small kernel answers for all others of as many bytes.
    expected = Source.SCALED if isinstance(work, Elementwise) else Source.MEASURED
    assert (found.source, found.bound) == (expected, bound)
    assert found.blend is not None
    assert found.seconds == found.blend.mean
    assert found.spread == found.blend.relative_error > 0
    assert found.evidence.startswith("made_up.jsonl: ")


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (experts_work(64), "made_up.jsonl has experts only at 8 to 192.3"),
        (mla_work(9, 65536), "made_up.jsonl has mla only at 1 to 33 queries, 1024 to 16384 context"),
        (mla_work(9, 4096, run_tokens=64), "made_up.jsonl has mla of other sizes only"),
        (Gemm(9, 7168, 1024, DType.BF16), "made_up.jsonl has gemm of other sizes only"),
        (Elementwise(4), "made_up.jsonl has norm only at 57344 to "),
        (GraphLaunch(4001), "made_up.jsonl has graph_launch only at 1 to 4000 nodes"),
    ],
)
def test_beyond_the_samples_the_figures_answer_and_say_why(work: Work, reason: str) -> None:
    here, there = (model.estimate(work) for model in models())
    assert here.blend is None
    assert (here.seconds, here.spread, here.source, here.bound) == (
        there.seconds,
        there.spread,
        there.source,
        there.bound,
    )
    assert here.evidence.startswith(f"{there.evidence}; {reason}")


def test_works_that_no_file_has_are_what_they_were() -> None:
    works = (AllReduce(64, 8), EagerLaunch(3, False), HostWork(HostTask.SCHEDULE, 1))
    for work in works:
        assert models()[0].estimate(work) == models()[1].estimate(work)


def test_a_gpu_names_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, gpu = kimi_file(tmp_path), catalog.gpu(str(write_gpu(tmp_path)))
    assert gpu.measured == str(path)
    with pytest.raises(MeasuredFileError, match=r"emulated_gpu\.jsonl:1: times made up by 'EMULATED"):
        sampled.load(path)
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    assert isinstance(sampled.load(path).find(experts_work(9)), Answer)


def test_a_gpu_names_a_shipped_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "SHIPPED", tmp_path)
    path = kimi_file(tmp_path)
    own = tmp_path / "elsewhere"
    own.mkdir()
    assert catalog.gpu(str(write_gpu(own, measured="emulated_gpu"))).measured == str(path)
    assert catalog.measured_names() == ["emulated_gpu"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("other.jsonl", "emulated_gpu.yaml:4: measured: no such file: other.jsonl"),
        ("emulated_gp", "no such file: emulated_gp, did you mean 'emulated_gpu'?"),
    ],
)
def test_a_measured_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.setattr(catalog, "SHIPPED", tmp_path)
    kimi_file(tmp_path)
    with pytest.raises(DocumentError) as refused:
        catalog.gpu(str(write_gpu(tmp_path, measured=name)))
    assert told in str(refused.value)


def test_what_is_measured_on_one_gpu_is_not_inherited_by_another(tmp_path: Path) -> None:
    kimi_file(tmp_path)
    write_gpu(tmp_path)
    other = tmp_path / "faster.yaml"
    other.write_text("extends: emulated_gpu.yaml\nname: faster\ntitle: A faster one\n")
    assert catalog.gpu(str(other)).measured is None


@pytest.mark.parametrize("kind", Kind)
def test_an_entry_is_found_by_path_whatever_it_describes(tmp_path: Path, kind: Kind) -> None:
    name = catalog.names(kind)[0]
    path = tmp_path / "own.yaml"
    path.write_text(f"extends: {name}\nname: own\n")
    found, entry = catalog.find(str(path))
    assert (found, entry.name) == (kind, "own")


@pytest.mark.parametrize(("run_tokens", "whole"), [(4095, False), (4096, True), (4097, True)])
def test_a_cache_in_one_run_is_in_one_piece(run_tokens: int, whole: bool) -> None:
    found = samples_of(point(mla(9, 4096), [3.0])).find(mla_work(9, 4096, run_tokens=run_tokens))
    assert isinstance(found, Answer) == whole


def test_the_evidence_counts_the_samples_of_every_corner() -> None:
    points = [point(mla(q, c), [1.0] * (q + c)) for q in (1, 3) for c in (10, 20)]
    found = samples_of(*points).find(mla_work(2, 15))
    assert isinstance(found, Answer)
    places = [f"{q} queries, {c} context" for q in (1, 3) for c in (10, 20)]
    told = f"made_up.jsonl: mla at {' and '.join(places)}, 11+21+13+23 samples, cold, made up"
    assert found.evidence == told


def test_slow_outliers_keep_their_share() -> None:
    outlier = bimodal(10.0, 998) + [1000.0, 10.0]
    answer = samples_of(point(experts(9), outlier)).find(experts_work(9))
    assert isinstance(answer, Answer)
    assert answer.blend.seconds[-1] == pytest.approx(1000 * US)
    assert answer.blend.mean == pytest.approx(np.mean(outlier) * US)
