"""The reader of NVIDIA AIConfigurator's parquet files: on files made here, and on the package where it is."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from hwmodels import catalog, perfdb, tables
from hwmodels.cost import CostModel
from hwmodels.errors import HardwareError
from hwmodels.estimate import Source
from hwmodels.machine import Machine
from hwmodels.perfdb import Database
from hwmodels.tables import ExpertShape, HeadShape
from hwmodels.work import DType, Gemm, GqaAttention, GroupedExperts, MlaAttention, Work

CONTEXTS = (1, 128, 1024)
GQA = HeadShape(12, 3, 80)
KERNELS = {"slow": 2.0, "fast": 1.0}


def write(folder: Path, place: str, rows: Iterable[dict[str, Any]]) -> None:
    """*rows* as the parquet file at *place*."""
    path = folder / f"{place}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def gemm_row(m: int, n: int, k: int, ms: float) -> dict[str, Any]:
    return {"kernel_source": "dense", "gemm_dtype": "fp8", "m": m, "n": n, "k": k, "latency": ms}


def gqa_rows(scale: float) -> Iterable[dict[str, Any]]:
    """Time in proportion to the cached tokens; the largest batch lacks its longest context."""
    for kernel, factor in KERNELS.items():
        for batch in (1, 4):
            for context in CONTEXTS if batch == 1 else CONTEXTS[:-1]:
                yield {
                    "kernel_source": kernel,
                    "num_heads": GQA.heads,
                    "num_key_value_heads": GQA.kv_heads,
                    "head_dim": GQA.head_dim,
                    "kv_cache_dtype": "bfloat16",
                    "window_size": 0,
                    "batch_size": batch,
                    "isl": 1,
                    "step": context - 1,
                    "latency": scale * factor * (10 + batch * context) / 1000,
                }


def mla_rows() -> Iterable[dict[str, Any]]:
    for batch in (1, 2):
        for context in CONTEXTS:
            yield {
                "kernel_source": "latent",
                "num_heads": 5,
                "kv_cache_dtype": "fp8",
                "batch_size": batch,
                "isl": 1,
                "step": context - 1,
                "latency": (7 + batch * context) / 1000,
            }


def moe_rows() -> Iterable[dict[str, Any]]:
    """30 us and 2 us an expert, over four ranks that share 64 experts of 1024."""
    for tokens in (1, 2, 4, 8, 16, 32, 128):
        touched = min(16, tokens)
        row = {
            "kernel_source": "experts",
            "moe_dtype": "bfloat16",
            "num_tokens": tokens,
            "hidden_size": 2048,
            "inter_size": 1024,
            "topk": 4,
            "num_experts": 64,
            "moe_tp_size": 1,
            "moe_ep_size": 4,
            "distribution": "balanced",
            "latency": (30 + 2 * touched) / 1000,
        }
        yield row
        yield row | {"distribution": "power_law_1.01", "latency": 1.0}
        yield row | {"kernel_source": "moe_torch_flow_min_latency", "latency": 0.001}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """A system with a few rows of everything."""
    folder = tmp_path_factory.mktemp("systems") / "a100_sxm"
    square = [
        gemm_row(m, n, k, (m + n * k / 256) / 1e6) for m in (1, 8) for n in (256, 512) for k in (256, 512)
    ]
    holes = [gemm_row(1, 1024, 256, 0.5), gemm_row(64, 256, 256, 0.5), gemm_row(1, 16, 256, 0.5)]
    write(folder, "gemm/vllm/0.24.0/gemm_perf", square + holes)
    write(folder, "gemm/sglang/0.5.14/gemm_perf", [gemm_row(1, 16, 16, 0.5)])
    write(folder, "attention/sglang/0.5.9/generation_attention_perf", gqa_rows(100))
    write(folder, "attention/sglang/0.5.14/generation_attention_perf", gqa_rows(1))
    write(folder, "mla/trtllm/1.3.0rc20/generation_mla_perf", mla_rows())
    write(folder, "moe/sglang/0.5.14/moe_perf", moe_rows())
    return Database(folder)


def test_of_several_versions_the_newest_is_read_and_of_kernels_the_fastest(files: Database) -> None:
    grid = files.grouped_attention("sglang", GQA, DType.BF16)
    assert grid is not None
    assert (grid.name, grid.framework) == ("aiconfigurator_core a100_sxm sglang fast", "sglang")
    assert [grid(1, c) for c in CONTEXTS] == pytest.approx([10 + c for c in CONTEXTS])


def test_what_did_not_fit_is_extended_in_proportion(files: Database) -> None:
    grid = files.grouped_attention("sglang", GQA, DType.BF16)
    assert grid is not None
    assert (grid.covers(4, 128), grid.covers(4, 1024)) == (True, False)
    assert grid(4, 1024) == pytest.approx(8 * grid(4, 128))


def test_latent_attention_is_read_by_heads_and_cache(files: Database) -> None:
    grid = files.latent_attention("trtllm", 5, DType.FP8)
    assert grid is not None
    assert grid(2, 1024) == pytest.approx(7 + 2048)
    assert files.latent_attention("trtllm", 5, DType.BF16) is None
    assert files.latent_attention("sglang", 5, DType.FP8) is None


def test_gemms_keep_the_sizes_that_leave_no_hole(files: Database) -> None:
    grid = files.gemm("vllm", DType.FP8)
    assert grid is not None
    assert [axis.tolist() for axis in grid.axes] == [[256, 512], [256, 512], [1]]
    assert grid(512, 256, 1) == pytest.approx(0.513)


def test_gemms_of_small_weights_alone_are_no_table(files: Database) -> None:
    assert files.gemm("sglang", DType.FP8) is None


def test_experts_are_those_of_one_rank(files: Database) -> None:
    line = files.experts("sglang", DType.BF16, ExpertShape(16, 2048, 1024, 1))
    assert line is not None
    assert [line.fit.intercept, line.fit.slope] == pytest.approx([30, 2])
    assert line.crowd(128) == pytest.approx(0, abs=1e-9)
    assert files.experts("sglang", DType.BF16, ExpertShape(64, 2048, 1024, 4)) is None


rectangles = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1)


@given(rectangles)
def test_a_rectangle_is_full_and_made_of_its_rows(rows: set[tuple[int, int]]) -> None:
    points: set[tuple[float, ...]] = {(float(a), float(b)) for a, b in rows}
    kept = perfdb._rectangle(points)
    sides = [{row[i] for row in kept} for i in (0, 1)]
    assert kept
    assert len(kept) == len(sides[0]) * len(sides[1])
    assert kept <= rows


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9), min_size=1))
def test_a_full_rectangle_is_kept(first: set[int], second: set[int]) -> None:
    rows: set[tuple[float, ...]] = {(float(a), float(b)) for a in first for b in second}
    assert perfdb._rectangle(rows) == rows


def machine(monkeypatch: pytest.MonkeyPatch, files: Database | None, gpu: str = "a100_sxm") -> CostModel:
    """A GPU that no shipped table knows, or *gpu* where it is one, beside *files*."""
    monkeypatch.setattr(perfdb, "database", lambda _: files)
    known = catalog.gpu("b200_sxm" if gpu == "a100_sxm" else gpu)
    own = known.model_copy(update={"name": gpu, "measured_as": gpu, "perfdb": "a100_sxm"})
    parts = (catalog.interconnect("nvlink4"), catalog.host("xeon_dual"), catalog.stack("sglang"))
    return CostModel(Machine(own, 1, *parts))


ATTENTION = GqaAttention(
    queries=1,
    context=1024,
    window=None,
    heads=GQA.heads,
    kv_heads=GQA.kv_heads,
    head_dim=GQA.head_dim,
    dtype=DType.BF16,
)
EXPERTS = GroupedExperts(
    tokens=8, touched=8, experts=16, top_k=1, hidden=2048, intermediate=1024, dtype=DType.BF16
)
LATENT = MlaAttention(
    requests=1, queries=1, context=1024, heads=5, latent=576, dtype=DType.FP8, run_tokens=10**6
)
ASKED: list[tuple[Work, float, Source]] = [
    (ATTENTION, 1034, Source.MEASURED),
    (EXPERTS, 46, Source.FITTED),
    # Kernels of another engine.
    (LATENT, 1031, Source.SCALED),
]


@pytest.mark.parametrize(("work", "us", "source"), ASKED)
def test_a_gpu_without_tables_asks_the_database(
    files: Database, monkeypatch: pytest.MonkeyPatch, work: Work, us: float, source: Source
) -> None:
    found = machine(monkeypatch, files).estimate(work)
    assert found.seconds * 1e6 == pytest.approx(us)
    assert found.source is source
    assert "aiconfigurator_core a100_sxm" in found.evidence


@pytest.mark.parametrize("work", [work for work, _, _ in ASKED] + [Gemm(1, 512, 512, DType.FP8)])
def test_without_the_package_the_roofline_answers(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    assert "the shortest kernel + bytes at" in machine(monkeypatch, None).estimate(work).evidence


@given(st.integers(1, 64), st.integers(1, 100_000))
def test_what_a_shipped_table_has_is_not_asked_of_the_database(requests: int, context: int) -> None:
    work = GqaAttention(
        requests=requests,
        queries=1,
        context=context,
        window=None,
        heads=32,
        kv_heads=8,
        head_dim=128,
        dtype=DType.BF16,
    )
    with pytest.MonkeyPatch.context() as patch:
        # A folder that does not exist would answer nothing; it is not even looked at.
        asked = machine(patch, Database(Path("nowhere")), "h200_sxm").estimate(work)
        plain = machine(patch, None, "h200_sxm").estimate(work)
    assert asked == plain


def test_nothing_is_read_where_no_system_is_asked_for() -> None:
    assert perfdb.database(None) is None
    assert all(catalog.gpu(name).perfdb is None for name in catalog.names(catalog.Kind.GPU))


def test_an_unknown_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a100_sxm").mkdir()
    monkeypatch.setattr(perfdb, "installed", lambda: tmp_path)
    assert perfdb.database("a100_sxm") == Database(tmp_path / "a100_sxm")
    with pytest.raises(HardwareError) as caught:
        perfdb.database("v100")
    assert str(caught.value) == "v100: aiconfigurator_core has no such system (known: a100_sxm)"


def test_a_missing_package_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfdb, "find_spec", lambda _: None)
    assert perfdb.installed() is None
    assert perfdb.database("b200_sxm") is None


needs_package = pytest.mark.skipif(perfdb.installed() is None, reason="aiconfigurator-core is not installed")


@needs_package
@pytest.mark.parametrize("gpu", ["b200_sxm", "h100_sxm", "gb200", "rtx_pro_6000_server"])
def test_the_package_says_what_the_shipped_tables_say(gpu: str) -> None:
    more = perfdb.database(gpu)
    assert more is not None
    for kernel in catalog.stack("sglang").grouped_attention:
        for shape in tables.gqa_shapes(gpu, kernel, DType.BF16) if gpu in kernel.gpus else ():
            own, theirs = (
                tables.gqa_decode(gpu, kernel, shape, DType.BF16),
                more.grouped_attention(kernel.framework, shape, DType.BF16),
            )
            assert own is not None
            assert theirs is not None
            # Theirs is the faster of two kernels.
            assert theirs(8, 2048) <= own(8, 2048) * 1.05
    for experts in catalog.stack("vllm").experts:
        for line in tables.expert_lines(gpu, experts, experts.dtype) if gpu in experts.gpus else ():
            found = more.experts(experts.framework, experts.dtype, line.shape)
            assert found is None or found.fit.slope == pytest.approx(line.fit.slope, rel=0.15)


@needs_package
@given(st.sampled_from([1, 8, 64]), st.sampled_from([256, 4096, 65_536]))
def test_shapes_beyond_the_shipped_ones_come_from_the_package(requests: int, context: int) -> None:
    b200 = catalog.gpu("b200_sxm").model_copy(update={"perfdb": "b200_sxm"})
    parts = (catalog.interconnect("nvlink5"), catalog.host("xeon_dual"), catalog.stack("sglang"))
    model = CostModel(Machine(b200, 1, *parts))
    work = replace(ATTENTION, requests=requests, context=context, heads=96, kv_heads=8, head_dim=128)
    assert "aiconfigurator_core b200_sxm sglang" in model.estimate(work).evidence
