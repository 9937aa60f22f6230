"""Measured tables: smoothing, interpolation, and that every row and selector leads somewhere."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from hwmodels import catalog, documents, fits, tables
from hwmodels.catalog import Kind
from hwmodels.errors import HardwareError
from hwmodels.stacks import AttentionKernel, ExpertKernel, Selector, Stack
from hwmodels.tables import Curve, ExpertsLine, Grid, HeadShape
from hwmodels.work import DType

Array = NDArray[np.float64]
Point = tuple[float, ...]

GPUS = catalog.names(Kind.GPU)
NAMES = ["allreduce", "experts", "gemm", "gqa_decode", "mla_decode"]
TRTLLM = Selector(gpus=(), framework="trtllm", version="1.3.0rc20", kernel="default")
TABLE_HEADS = [8, 16, 32, 64]


def stacks() -> list[Stack]:
    return [catalog.stack(name) for name in catalog.names(Kind.STACK)]


def attention_kernels() -> list[tuple[str, AttentionKernel]]:
    """Every (GPU, attention kernel) that a shipped stack names."""
    return [(gpu, kernel) for stack in stacks() for kernel in stack.attention for gpu in kernel.gpus]


def grouped_kernels() -> list[tuple[str, AttentionKernel]]:
    """Every (GPU, grouped-query attention kernel) that a shipped stack names."""
    return [(gpu, kernel) for stack in stacks() for kernel in stack.grouped_attention for gpu in kernel.gpus]


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
                if column.startswith(prefix) and column.endswith("_us") and row[column]:
                    size = float(column.removeprefix(prefix).removesuffix("_us"))
                    found[*(float(row[key]) for key in keys), size].append(float(row[column]))
    return {point: sum(values) / len(values) for point, values in found.items()}


def selected(kernel: Selector) -> dict[str, str]:
    return {"framework": kernel.framework, "version": kernel.version, "kernel": kernel.kernel}


def attention_case(
    gpu: str, kernel: AttentionKernel, heads: int, dtype: DType
) -> tuple[Grid | None, dict[Point, float]]:
    wanted = {"gpu": gpu, "heads": str(heads), "kv_dtype": dtype.value, **selected(kernel)}
    grid = tables.mla_decode(gpu, kernel, heads, dtype)
    return grid, points_of("mla_decode", "ctx", ("batch",), **wanted)


def grouped_case(
    gpu: str, kernel: AttentionKernel, shape: HeadShape, dtype: DType
) -> tuple[Grid | None, dict[Point, float]]:
    sizes = {name: str(value) for name, value in shape._asdict().items()}
    wanted = {"gpu": gpu, "kv_dtype": dtype.value, **sizes, **selected(kernel)}
    grid = tables.gqa_decode(gpu, kernel, shape, dtype)
    return grid, points_of("gqa_decode", "ctx", ("batch",), **wanted)


def gemm_case(gpu: str, dtype: DType) -> tuple[Grid | None, dict[Point, float]]:
    return tables.gemm(gpu, dtype), points_of("gemm", "m", ("n", "k"), gpu=gpu, dtype=dtype.value)


def shipped() -> dict[str, Callable[[], tuple[Grid | None, dict[Point, float]]]]:
    """Every grid that a shipped stack can ask for, by name, with what builds it and its published points."""
    found: dict[str, Callable[[], tuple[Grid | None, dict[Point, float]]]] = {}
    for gpu, name in sorted({(row["gpu"], row["dtype"]) for row in tables.rows("gemm")}):
        found[f"gemm {gpu} {name}"] = partial(gemm_case, gpu, DType(name))
    for gpu, kernel in attention_kernels():
        for dtype in (DType.BF16, DType.FP8):
            for heads in tables.mla_heads(gpu, kernel, dtype):
                name = f"mla {gpu} {kernel.framework} {kernel.kernel} {heads} {dtype.value}"
                found[name] = partial(attention_case, gpu, kernel, heads, dtype)
    for gpu, kernel in grouped_kernels():
        for dtype in (DType.BF16, DType.FP8):
            for shape in tables.gqa_shapes(gpu, kernel, dtype):
                name = f"gqa {gpu} {kernel.framework} {kernel.kernel} {tuple(shape)} {dtype.value}"
                found[name] = partial(grouped_case, gpu, kernel, shape, dtype)
    return found


SHIPPED = shipped()


@cache
def case_of(name: str) -> tuple[Grid, dict[Point, float]]:
    grid, points = SHIPPED[name]()
    assert grid is not None
    return grid, points


def raw_array(grid: Grid, points: dict[Point, float]) -> Array:
    """Published cells on the axes of *grid*; what *grid* itself says where there are none."""
    shape = tuple(len(axis) for axis in grid.axes)
    cells = [points.get(point, grid(*point)) for point in itertools.product(*grid.axes)]
    return np.array(cells).reshape(shape)


def rising(raw: Array) -> NDArray[np.bool_]:
    """True in cells that no smaller size exceeds and no larger size undercuts."""
    upper, lower = raw, raw
    for axis in range(raw.ndim):
        upper = np.maximum.accumulate(upper, axis)
        lower = np.flip(np.minimum.accumulate(np.flip(lower, axis), axis), axis)
    return np.asarray((upper == raw) & (lower == raw))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_grid_is_exact_where_its_measurements_rise(name: str) -> None:
    grid, points = case_of(name)
    kept = np.argwhere(rising(raw_array(grid, points)))
    sizes = [tuple(float(a[i]) for a, i in zip(grid.axes, index, strict=True)) for index in kept]
    measured = [point for point in sizes if point in points][-60:]
    ratios = np.array([grid(*point) / points[point] for point in measured])
    # A cell that rises itself may lie between two that were pooled, and move with them.
    assert (np.abs(ratios - 1) < 1e-6).mean() >= 0.95
    assert np.abs(ratios - 1).max() < 0.06
    assert len(measured) > 3


def test_every_measured_grid_was_looked_at() -> None:
    assert {name.split()[0] for name in SHIPPED} == {"gemm", "mla", "gqa"}
    looked_at = sum(len(case_of(name)[1]) for name in SHIPPED if name.startswith("gemm"))
    assert looked_at == sum(len([v for c, v in r.items() if c.endswith("_us")]) for r in tables.rows("gemm"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_grid_rises_along_every_axis(name: str) -> None:
    grid = case_of(name)[0]
    steps = [np.diff(grid.latency_us, axis=axis) for axis in range(grid.latency_us.ndim)]
    assert all(step.min() >= -1e-9 for step in steps)


@pytest.mark.parametrize("name", SHIPPED)
def test_smoothing_changes_little(name: str) -> None:
    # GEMM libraries choose kernels by shape, so their tables fall and rise more than attention's.
    assert case_of(name)[0].smoothing < (0.08 if name.startswith("gemm") else 0.05)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith("gqa")])
def test_beyond_its_last_measurement_a_context_takes_time_in_proportion(name: str) -> None:
    grid, points = case_of(name)
    batches, contexts = grid.axes
    for batch in batches:
        last = max(context for b, context in points if b == batch)
        assert grid.covers(batch, last)
        for context in contexts[contexts > last]:
            assert not grid.covers(batch, context)
            # Smoothing may lift both.
            assert grid(batch, context) == pytest.approx(grid(batch, last) * context / last, rel=0.1)


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
    assert grid is not None
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
    cells = [float(v) for row in tables.rows(name) for key, v in row.items() if key.endswith("_us") and v]
    assert 0 < min(cells) <= max(cells) < 1e6


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_every_column(name: str) -> None:
    rows = tables.rows(name)
    assert all(list(row) == list(rows[0]) and None not in row.values() for row in rows)


@pytest.mark.parametrize(("gpu", "kernel"), expert_kernels())
def test_every_expert_kernel_of_a_stack_has_rows(gpu: str, kernel: ExpertKernel) -> None:
    lines = tables.expert_lines(gpu, kernel, kernel.dtype)
    assert all(line.fit.slope > 0 for line in lines)
    assert all(line.fit.max_relative_error < 0.2 for line in lines)
    assert lines


@pytest.mark.parametrize(("gpu", "kernel"), attention_kernels())
def test_every_attention_kernel_of_a_stack_has_rows(gpu: str, kernel: AttentionKernel) -> None:
    assert set(TABLE_HEADS) <= set(tables.mla_heads(gpu, kernel, DType.BF16))
    assert all(case_of(n)[0].covers(128, 131_072) for n in SHIPPED if n.startswith(f"mla {gpu}"))


@pytest.mark.parametrize(("gpu", "kernel"), grouped_kernels())
def test_every_grouped_kernel_of_a_stack_has_rows(gpu: str, kernel: AttentionKernel) -> None:
    shapes = [tables.gqa_shapes(gpu, kernel, dtype) for dtype in (DType.BF16, DType.FP8)]
    assert any(shapes)


@pytest.mark.parametrize("stack", stacks(), ids=lambda stack: stack.name)
def test_every_allreduce_of_a_stack_has_rows(stack: Stack) -> None:
    rows = {(r["fabric"], r["algorithm"]) for r in tables.rows("allreduce") if r["ranks"] == "8"}
    measured = {fabric for fabric, _ in rows}
    chosen = {(f, a) for c in stack.allreduce for f in c.fabrics for a in (c.large, c.small) if a}
    assert {pair for pair in chosen if pair[0] in measured} <= rows
    assert {fabric for fabric, _ in chosen} - measured == {"pcie4_two_gpus"}


LINES = list(
    {
        line.name: line
        for gpu, kernel in expert_kernels()
        for line in tables.expert_lines(gpu, kernel, kernel.dtype)
    }.values()
)
lines = st.sampled_from(LINES)
touches = st.floats(0, 512)
crowds = st.floats(1, 4096)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_experts_cost_what_the_fit_says(line: ExpertsLine) -> None:
    tokens = line.crowd_tokens[0]
    enough = [u for u in (0, 60, 200, 384) if line.fit(u) >= line.least(u)]
    assert [line(u, tokens) for u in enough] == [line.fit(u) for u in enough]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_few_tokens_take_at_least_what_was_measured(line: ExpertsLine) -> None:
    least = [line.least(touched) for touched in line.warm_touched]
    assert least == pytest.approx(list(line.warm_us))
    assert line.least(1000) == pytest.approx(line.warm_us[-1])


@given(lines, touches, crowds, st.floats(0, 512), st.floats(0, 4096))
def test_experts_take_no_less_for_more(
    line: ExpertsLine, touched: float, tokens: float, more_touched: float, more_tokens: float
) -> None:
    assert line(touched + more_touched, tokens + more_tokens) >= line(touched, tokens)


# Rows in which all experts are touched, with many tokens to each: the crowd reproduces them, made rising.
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_crowd_costs_what_was_measured(line: ExpertsLine) -> None:
    everyone = [line(line.shape.experts, tokens) for tokens in line.crowd_tokens]
    assert everyone == sorted(everyone)
    assert line.crowd_us[0] == 0
    assert line.crowd(2 * line.crowd_tokens[-1]) == pytest.approx(2 * line.crowd_us[-1])


FAMILIES = [
    family
    for gpu, kernel in expert_kernels()
    if len(family := tables.expert_lines(gpu, kernel, kernel.dtype)) > 1
]
families = st.sampled_from(FAMILIES)
values = st.integers(10_000, 200_000_000)


@given(families, touches, crowds, values, values)
def test_larger_experts_take_no_less(
    family: tuple[ExpertsLine, ...], touched: float, tokens: float, small: int, more: int
) -> None:
    times = [tables.scaled_experts(family, v, touched, tokens) for v in (small, small + more)]
    assert times[0] <= times[1] * (1 + 1e-12)


@given(families, touches, crowds)
def test_a_measured_size_takes_no_less_than_its_own_line(
    family: tuple[ExpertsLine, ...], touched: float, tokens: float
) -> None:
    for line in family:
        scaled = tables.scaled_experts(family, line.shape.values, touched, tokens)
        assert scaled >= line(touched, tokens) * (1 - 1e-12)


@given(families, crowds, st.floats(1, 512), st.floats(1, 100))
def test_the_fixed_part_of_a_larger_expert_does_not_grow(
    family: tuple[ExpertsLine, ...], tokens: float, touched: float, factor: float
) -> None:
    last = family[-1].shape.values
    base = tables.scaled_experts(family, last, touched, tokens)
    grown = tables.scaled_experts(family, int(last * factor), touched, tokens)
    assert grown <= base * factor * (1 + 1e-6)
    fixed = min(family[-1].fit.intercept, base)
    assert grown - fixed == pytest.approx((base - fixed) * int(last * factor) / last, abs=1e-6)


def test_experts_over_ranks_are_fewer_and_whole() -> None:
    b200 = next(k for gpu, k in expert_kernels() if gpu == "b200_sxm" and k.dtype is DType.NVFP4)
    shapes = {tuple(line.shape) for line in tables.expert_lines("b200_sxm", b200, DType.NVFP4)}
    assert {(384, 7168, 256, 8), (384, 7168, 512, 8), (48, 7168, 2048, 1), (96, 7168, 2048, 2)} <= shapes


BUILDS = (
    "gpu,framework,version,kernel,dtype,experts,hidden,intermediate,top_k,moe_tp,moe_ep,t1_us,t8_us,t16_us,t32_us\n"
    + "".join(
        f"g,{framework},{version},{kernel},int4_wo,64,1024,256,2,1,1,{us},{us},{us},{us}\n"
        for framework, version, kernel, us in [
            ("vllm", "0.9.0", "marlin", 1),
            ("vllm", "0.24.0", "marlin", 2),
            ("sglang", "0.5.9", "marlin", 3),
            ("sglang", "0.5.10", "marlin", 4),
            ("sglang", "0.5.14", "marlin", 5),
            ("sglang", "0.5.20", "triton", 6),
        ]
    )
)


@pytest.mark.parametrize(
    ("framework", "version", "order"),
    [
        ("sglang", "0.5.14", [4, 3, 2, 1]),
        ("sglang", "0.5.9", [5, 4, 2, 1]),
        ("vllm", "0.24.0", [1, 5, 4, 3]),
        ("vllm", "1.0.0", [2, 1, 5, 4, 3]),
    ],
)
def test_other_builds_of_a_kernel_are_this_engines_first_and_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, version: str, order: list[int]
) -> None:
    use(tmp_path, monkeypatch, BUILDS)
    monkeypatch.setattr(tables, "expert_lines", tables.expert_lines.__wrapped__)
    kernel = Selector(gpus=(), framework=framework, version=version, kernel="marlin")
    found = tables.expert_lines_of_other_builds.__wrapped__("g", kernel, DType.INT4)
    assert [line(64, 8) for line in found] == pytest.approx(order)


def test_other_builds_are_of_the_same_gpu_kernel_and_weights() -> None:
    kernel = next(k for gpu, k in expert_kernels() if k.kernel == "marlin" and gpu == "h100_sxm")
    found = tables.expert_lines_of_other_builds("h100_sxm", kernel, DType.INT4)
    assert found
    assert {tuple(line.name.split()[i] for i in (1, 4, 5)) for line in found} == {
        ("h100_sxm", "marlin", "int4_wo")
    }
    own = {line.name for line in tables.expert_lines("h100_sxm", kernel, DType.INT4)}
    assert own
    assert not own & {line.name for line in found}


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


def test_what_was_not_measured_has_no_table() -> None:
    kernel = catalog.stack("sglang").grouped_attention[0]
    assert tables.gemm("v100", DType.BF16) is None
    assert tables.mla_decode("b300_sxm", TRTLLM, 7, DType.FP8) is None
    assert tables.mla_heads("v100", TRTLLM, DType.BF16) == ()
    assert tables.gqa_decode("b300_sxm", kernel, HeadShape(7, 7, 7), DType.BF16) is None
    assert tables.expert_lines("b300_sxm", TRTLLM, DType.INT4) == ()


GROUPED = (
    "gpu,framework,version,kernel,heads,kv_heads,head_dim,kv_dtype,batch,ctx128_us,ctx256_us,ctx512_us\n"
    "g,f,v,k,8,1,64,bfloat16,1,4,5,6\ng,f,v,k,8,1,64,bfloat16,2,5,7,\n"
)


def test_an_empty_cell_is_extended_and_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch, GROUPED)
    kernel = Selector(gpus=(), framework="f", version="v", kernel="k")
    grid = tables.gqa_decode.__wrapped__("g", kernel, HeadShape(8, 1, 64), DType.BF16)
    assert grid is not None
    assert grid.latency_us.tolist() == [[4, 5, 6], [5, 7, 14]]
    assert [grid.covers(b, c) for b, c in ((1, 512), (1.5, 256), (2, 256), (2, 300), (3, 128))] == [
        True,
        True,
        True,
        False,
        False,
    ]


# Cells of the parquet files of aiconfigurator-core 0.12.0 (latency in ms there), as read from it.
@pytest.mark.parametrize(
    ("name", "column", "latency_us", "wanted"),
    [
        ("gemm", "m512_us", 20.364445116784836, "gpu=b200_sxm dtype=bfloat16 n=4096 k=4096"),
        ("gemm", "m8_us", 11.03911134931776, "gpu=rtx_pro_6000_server dtype=nvfp4 n=5120 k=2048"),
        ("gemm", "m1_us", 7.59822212987476, "gpu=gb200 dtype=fp8 n=7168 k=2048"),
        (
            "mla_decode",
            "ctx16384_us",
            21.012799441814423,
            "gpu=gb200 kernel=trtllm_mla heads=16 kv_dtype=fp8 batch=4",
        ),
        (
            "gqa_decode",
            "ctx8192_us",
            56.23840093612671,
            "gpu=h100_sxm kernel=fa3 heads=32 kv_heads=4 head_dim=128 kv_dtype=bfloat16 batch=8",
        ),
        (
            "gqa_decode",
            "ctx2048_us",
            13.066666821638742,
            "gpu=rtx_pro_6000_server framework=vllm heads=8 kv_heads=1 head_dim=256 kv_dtype=fp8 batch=1",
        ),
        (
            "experts",
            "t16_us",
            219.76640701293942,
            "gpu=h100_sxm framework=sglang dtype=bfloat16 experts=128 hidden=2048 intermediate=768 moe_tp=2",
        ),
        (
            "experts",
            "t4_us",
            45.79967975616455,
            "gpu=gb200 framework=sglang dtype=nvfp4 experts=384 moe_tp=4 moe_ep=1",
        ),
        (
            "allreduce",
            "latency_us",
            5.31391978263855,
            "gpu=gb200 ranks=4 algorithm=sglang_custom message_bytes=131072",
        ),
    ],
)
def test_cells_are_those_of_the_source(name: str, column: str, latency_us: float, wanted: str) -> None:
    keys = dict(part.split("=") for part in wanted.split())
    found = [row[column] for row in tables.rows(name) if all(row[k] == v for k, v in keys.items())]
    assert any(float(cell) == pytest.approx(latency_us, rel=1e-3) for cell in found)
