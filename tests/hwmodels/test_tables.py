"""Measured tables: smoothing, interpolation, and that every row and selector leads somewhere."""

import itertools
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from hwmodels import catalog, documents, fits, tables
from hwmodels.catalog import AttentionKernel, ExpertKernel, Kind, Selector, Stack
from hwmodels.errors import HardwareError
from hwmodels.tables import Curve, ExpertsLine, Grid
from hwmodels.work import DType

Array = NDArray[np.float64]
Point = tuple[float, ...]

GPUS = catalog.names(Kind.GPU)
NAMES = ["allreduce", "experts", "gemm", "mla_decode"]
TRTLLM = Selector(gpus=(), framework="trtllm", version="1.3.0rc20", kernel="default")
TABLE_HEADS = [8, 16]


def stacks() -> list[Stack]:
    return [catalog.stack(name) for name in catalog.names(Kind.STACK)]


def attention_kernels() -> list[tuple[str, AttentionKernel]]:
    """Every (GPU, attention kernel) that a shipped stack names."""
    return [(gpu, kernel) for stack in stacks() for kernel in stack.attention for gpu in kernel.gpus]


def expert_kernels() -> list[tuple[str, ExpertKernel]]:
    """Every (GPU, expert kernel) that a shipped stack names."""
    return [(gpu, kernel) for stack in stacks() for kernel in stack.experts for gpu in kernel.gpus]


def measured_as(gpu: str) -> str:
    return catalog.gpu(gpu).measured_as


def points_of(table: str, prefix: str, keys: tuple[str, ...], **wanted: str) -> dict[Point, float]:
    """Mean latency by (*keys*, column size) of the rows that have the *wanted* values."""
    found: dict[Point, list[float]] = defaultdict(list)
    for row in tables.rows(table):
        if all(row[column] == value for column, value in wanted.items()):
            for column in row:
                if column.startswith(prefix) and column.endswith("_us"):
                    size = float(column.removeprefix(prefix).removesuffix("_us"))
                    found[*(float(row[key]) for key in keys), size].append(float(row[column]))
    return {point: sum(values) / len(values) for point, values in found.items()}


def attention_case(gpu: str, kernel: AttentionKernel, heads: int) -> tuple[Grid, dict[Point, float]]:
    selected = {"framework": kernel.framework, "version": kernel.version, "kernel": kernel.kernel}
    wanted = {"gpu": gpu, "heads": str(heads), "kv_dtype": DType.BF16.value, **selected}
    grid = tables.mla_decode(gpu, kernel, heads, DType.BF16)
    return grid, points_of("mla_decode", "ctx", ("batch",), **wanted)


def gemm_case(gpu: str, dtype: DType) -> tuple[Grid, dict[Point, float]]:
    return tables.gemm(gpu, dtype), points_of("gemm", "m", ("n", "k"), gpu=gpu, dtype=dtype.value)


@cache
def shipped() -> list[tuple[Grid, dict[Point, float]]]:
    """Every grid that a shipped stack can ask for, with its published points."""
    gemms = [gemm_case(measured_as(g), d) for g in GPUS for d in (DType.BF16, DType.FP8_BLOCK)]
    kernels = {measured_as(gpu): kernel for gpu, kernel in attention_kernels()}
    return gemms + [attention_case(g, k, h) for g, k in kernels.items() for h in TABLE_HEADS]


def raw_array(grid: Grid, points: dict[Point, float]) -> Array:
    shape = tuple(len(axis) for axis in grid.axes)
    return np.array([points[point] for point in itertools.product(*grid.axes)]).reshape(shape)


def rising(raw: Array) -> NDArray[np.bool_]:
    """True in cells that no smaller size exceeds and no larger size undercuts."""
    upper, lower = raw, raw
    for axis in range(raw.ndim):
        upper = np.maximum.accumulate(upper, axis)
        lower = np.flip(np.minimum.accumulate(np.flip(lower, axis), axis), axis)
    return np.asarray((upper == raw) & (lower == raw))


@pytest.mark.parametrize("case", range(20))
def test_a_shipped_grid_is_exact_where_its_measurements_rise(case: int) -> None:
    grid, points = shipped()[case]
    kept = np.argwhere(rising(raw_array(grid, points)))[-60:]
    sizes = [tuple(float(a[i]) for a, i in zip(grid.axes, index, strict=True)) for index in kept]
    assert [grid(*point) for point in sizes] == pytest.approx([points[point] for point in sizes])
    assert len(sizes) > 3


def test_every_shipped_grid_was_looked_at() -> None:
    assert len(shipped()) == 20


@pytest.mark.parametrize("case", range(20))
def test_a_shipped_grid_rises_along_every_axis(case: int) -> None:
    grid = shipped()[case][0]
    steps = [np.diff(grid.latency_us, axis=axis) for axis in range(grid.latency_us.ndim)]
    assert all(step.min() >= -1e-9 for step in steps)


@pytest.mark.parametrize("case", range(20))
def test_smoothing_changes_little(case: int) -> None:
    grid = shipped()[case][0]
    # GEMM libraries choose kernels by shape, so their tables fall and rise more than attention's.
    assert grid.smoothing < (0.08 if grid.name.startswith("gemm") else 0.05)


small_arrays = st.integers(1, 3).flatmap(
    lambda ndim: st.tuples(*[st.integers(1, 4)] * ndim).flatmap(
        lambda shape: st.lists(
            st.floats(0.1, 1e4), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
        ).map(lambda values: np.array(values).reshape(shape))
    )
)


def dominated(array: Array, index: tuple[int, ...]) -> Array:
    """Values at sizes up to *index* on every axis."""
    return array[tuple(slice(0, i + 1) for i in index)]


def dominating(array: Array, index: tuple[int, ...]) -> Array:
    """Values at sizes from *index* up on every axis."""
    return array[tuple(slice(i, None) for i in index)]


@given(small_arrays)
def test_envelope_is_the_middle_of_minorant_and_majorant(values: Array) -> None:
    for index, got in np.ndenumerate(fits.envelope(values)):
        ends = dominated(values, index).max() * dominating(values, index).min()
        assert got == pytest.approx(np.sqrt(ends))


@given(small_arrays)
def test_monotone_rises_between_the_smallest_and_the_largest(values: Array) -> None:
    smooth = fits.monotone(values)
    assert all((np.diff(smooth, axis=axis) >= 0).all() for axis in range(values.ndim))
    assert values.min() * (1 - 1e-9) <= smooth.min()
    assert smooth.max() <= values.max() * (1 + 1e-9)


@given(small_arrays)
def test_monotone_is_nearer_than_the_envelope_and_keeps_the_mean(values: Array) -> None:
    logs, near, far = (np.log(a) for a in (values, fits.monotone(values), fits.envelope(values)))
    assert ((near - logs) ** 2).sum() <= ((far - logs) ** 2).sum() * (1 + 1e-6) + 1e-9
    # Dykstra's rounds end early; the envelope that closes the last gap may shift the mean a little.
    assert near.mean() == pytest.approx(logs.mean(), abs=0.05 * (1 + np.ptp(logs)))


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=20))
def test_along_one_axis_monotone_is_isotonic_regression(values: list[float]) -> None:
    expected = np.exp(isotonic_regression(np.log(values)).x)
    assert fits.monotone(np.array(values)) == pytest.approx(expected)


@given(small_arrays)
def test_monotone_leaves_a_rising_table_alone(values: Array) -> None:
    table = values
    for axis in range(values.ndim):
        table = np.cumsum(table, axis=axis)
    assert fits.monotone(table) == pytest.approx(table)


@given(small_arrays)
def test_smoothing_twice_changes_nothing_more(values: Array) -> None:
    once = fits.monotone(values)
    assert fits.monotone(once) == pytest.approx(once)


def grid_of(latency: list[float]) -> Grid:
    """A grid over 3 x 4 sizes, doubling."""
    axes = (np.array([1.0, 2, 4]), np.array([16.0, 32, 64, 128]))
    return Grid("made up", axes, np.array(latency).reshape(3, 4), 0.0, "test")


grids = st.lists(st.floats(0.1, 1e4), min_size=12, max_size=12).map(grid_of)


@given(grids)
def test_a_grid_is_exact_at_its_points(grid: Grid) -> None:
    got = [grid(*point) for point in itertools.product(*grid.axes)]
    assert got == pytest.approx(grid.latency_us.ravel().tolist())


@given(grids, st.floats(1, 4), st.floats(16, 128))
def test_a_grid_stays_within_its_measurements(grid: Grid, first: float, second: float) -> None:
    got = grid(first, second)
    assert grid.latency_us.min() * (1 - 1e-9) <= got <= grid.latency_us.max() * (1 + 1e-9)


@given(grids, st.floats(0.01, 1000), st.floats(0.01, 1e5))
def test_a_grid_holds_its_edge_outside(grid: Grid, first: float, second: float) -> None:
    inside = grid.clamp(first, second)
    assert grid(first, second) == grid(*inside)
    assert grid.covers(first, second) == (first <= 4 and second <= 128)


@given(st.floats(0.5, 2), st.floats(-1, 1), st.floats(1, 4), st.floats(16, 128))
def test_a_power_law_is_interpolated_exactly(scale: float, power: float, first: float, second: float) -> None:
    corners = itertools.product([1.0, 2, 4], [16.0, 32, 64, 128])
    grid = grid_of([scale * a * b**power for a, b in corners])
    assert grid(first, second) == pytest.approx(scale * first * second**power)


# Single cells that the source publishes in milliseconds between neighbours of about 14 us
# (ai-dynamo/aiconfigurator@095f58a, TensorRT-LLM 1.3.0rc20, context 4).
@pytest.mark.parametrize(
    ("gpu", "heads", "dtype", "batch"),
    [("h200_sxm", 16, DType.BF16, 32), ("h100_sxm", 16, DType.FP8, 8)],
)
def test_broken_cells_are_replaced(gpu: str, heads: int, dtype: DType, batch: int) -> None:
    wanted = {"gpu": gpu, "framework": "trtllm", "heads": str(heads), "kv_dtype": dtype.value}
    assert points_of("mla_decode", "ctx", ("batch",), **wanted)[batch, 4] > 1000
    grid = tables.mla_decode(gpu, TRTLLM, heads, dtype)
    assert grid(batch, 2) <= grid(batch, 4) <= grid(batch, 8) < 30


@pytest.mark.parametrize("name", NAMES)
def test_every_row_names_a_source_that_is_described(name: str) -> None:
    described = documents.read(catalog.DATA / "sources.yaml").data
    assert {row["source"] for row in tables.rows(name)} <= set(described)


def test_every_source_is_used() -> None:
    used = {row["source"] for name in NAMES for row in tables.rows(name)}
    assert used == set(documents.read(catalog.DATA / "sources.yaml").data)


@pytest.mark.parametrize("name", NAMES)
def test_every_latency_is_a_positive_time(name: str) -> None:
    cells = [float(v) for row in tables.rows(name) for key, v in row.items() if key.endswith("_us")]
    assert 0 < min(cells) <= max(cells) < 1e6


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_every_column(name: str) -> None:
    rows = tables.rows(name)
    assert all(list(row) == list(rows[0]) and None not in row.values() for row in rows)


@pytest.mark.parametrize(("gpu", "kernel"), expert_kernels())
def test_every_expert_kernel_of_a_stack_has_rows(gpu: str, kernel: ExpertKernel) -> None:
    line = tables.experts(measured_as(gpu), kernel, kernel.dtype, 384, 8)
    assert line.fit.slope > 0
    assert line.fit.max_relative_error < 0.06


@pytest.mark.parametrize(("gpu", "kernel"), attention_kernels())
@pytest.mark.parametrize("heads", TABLE_HEADS)
def test_every_attention_kernel_of_a_stack_has_rows(gpu: str, kernel: AttentionKernel, heads: int) -> None:
    grid = tables.mla_decode(measured_as(gpu), kernel, heads, DType.BF16)
    assert grid.covers(128, 131_072)


@pytest.mark.parametrize("stack", stacks(), ids=lambda stack: stack.name)
def test_every_allreduce_of_a_stack_has_rows(stack: Stack) -> None:
    rows = {(r["fabric"], r["algorithm"]) for r in tables.rows("allreduce") if r["ranks"] == "8"}
    chosen = {(f, a) for c in stack.allreduce for f in c.fabrics for a in (c.large, c.small) if a}
    assert chosen <= rows


LINES = [tables.experts(measured_as(gpu), kernel, kernel.dtype, 384, 8) for gpu, kernel in expert_kernels()]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_experts_cost_what_the_fit_says(line: ExpertsLine) -> None:
    assert [line(u) for u in (0, 60, 200, 384)] == [line.fit(u) for u in (0, 60, 200, 384)]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_few_tokens_take_at_least_what_was_measured(line: ExpertsLine) -> None:
    least = [line.least(tokens) for tokens in line.warm_tokens]
    assert least == pytest.approx(list(line.warm_us))
    assert line.least(100) == pytest.approx(line.warm_us[-1])


curves = st.lists(st.floats(0.1, 1e4), min_size=5, max_size=5).map(
    lambda us: Curve("made up", "nothing", np.array([2.0**e for e in (8, 12, 14, 20, 23)]), np.array(us))
)


@given(curves)
def test_a_curve_is_exact_at_its_points(curve: Curve) -> None:
    got = [curve(size) for size in curve.size_bytes]
    assert got == pytest.approx(curve.latency_us.tolist())


@given(curves, st.floats(1, 2**8), st.floats(2**23, 2**30))
def test_a_curve_is_held_outside_its_points(curve: Curve, below: float, above: float) -> None:
    assert [curve(below), curve(above)] == pytest.approx([curve.latency_us[0], curve.latency_us[-1]])


@given(st.floats(0.1, 10), st.floats(-1, 1), st.floats(2**8, 2**23))
def test_a_curve_follows_a_power_law(scale: float, power: float, size: float) -> None:
    sizes = np.array([2.0**8, 2.0**14, 2.0**23])
    assert Curve("made up", "nothing", sizes, scale * sizes**power)(size) == pytest.approx(
        scale * size**power
    )


def test_allreduce_prefers_rows_of_its_own_gpu_and_says_whose_it_took() -> None:
    assert tables.allreduce("nvlink5", "b300_sxm", 8, "sglang_custom").measured_on == "b300_sxm"  # type: ignore[union-attr]
    own = tables.allreduce("nvlink5", "b200_sxm", 8, "sglang_custom")
    other = tables.allreduce("nvlink5", "nothing", 8, "sglang_custom")
    assert own is not None
    assert other is not None
    assert (own.measured_on, other.measured_on) == ("b200_sxm", "b200_sxm")


def test_allreduce_knows_nothing_of_three_ranks() -> None:
    assert tables.allreduce("nvlink5", "b300_sxm", 3, "sglang_custom") is None


def test_repeats_of_one_point_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "fabric,gpu,ranks,algorithm,message_bytes,latency_us\nf,g,2,a,8,1\nf,g,2,a,8,3\nf,g,2,a,9,5\n"
    use(tmp_path, monkeypatch, text)
    curve = tables.allreduce.__wrapped__("f", "g", 2, "a")
    assert curve is not None
    assert curve.latency_us.tolist() == [2, 5]


def use(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let *text* be every table."""
    (folder / "t.csv").write_text(text)
    rows = tables.read_rows(folder / "t.csv")
    monkeypatch.setattr(tables, "rows", lambda _: rows)


GEMM_WITH_A_HOLE = (
    "gpu,framework,version,kernel,dtype,n,k,m1_us\n"
    "g,f,v,x,bfloat16,1,1,5\ng,f,v,x,bfloat16,2,1,5\ng,f,v,x,bfloat16,1,2,5\n"
)


def test_a_table_with_a_hole_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch, GEMM_WITH_A_HOLE)
    with pytest.raises(HardwareError, match=r"gemm\.csv g bfloat16: the table has 3 of 4 cells"):
        tables.gemm.__wrapped__("g", DType.BF16)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tables.gemm("v100", DType.BF16), "v100: no measured bfloat16 GEMM table"),
        (
            lambda: tables.mla_decode("b300_sxm", TRTLLM, 64, DType.FP8),
            "b300_sxm: no MLA table for trtllm 1.3.0rc20 default, 64 heads per rank, fp8 KV cache",
        ),
        (
            lambda: tables.experts("b300_sxm", TRTLLM, DType.INT4, 256, 4),
            "b300_sxm: no expert rows: experts.csv b300_sxm trtllm 1.3.0rc20 default int4_wo, "
            "256 experts over 4 ranks",
        ),
    ],
)
def test_what_was_not_measured_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(HardwareError) as caught:
        ask()
    assert str(caught.value) == message
