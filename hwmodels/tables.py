"""Measured latency tables: loading, monotone smoothing, log-log interpolation.

All latencies are microseconds as published; repeats of one point are averaged.
GEMM and attention tables are made monotone in every size (see ``fits.monotone``),
because single published means carry noise that would put false optima into
sweeps; the AllReduce table is not, because algorithm switches are real.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from hwmodels.catalog import TABLES
from hwmodels.errors import HardwareError
from hwmodels.fits import AffineFit, affine_fit, monotone
from hwmodels.stacks import Selector
from hwmodels.work import DType

Array = NDArray[np.float64]

WARM_ROWS_MAX_TOKENS = 4
"""Expert rows up to this many tokens may be served from L2 (repeated weights in one graph)."""
LEAST_ROWS = 3
"""A line is fitted through no fewer rows."""
GLITCH_FACTOR = 20.0
"""A cell this many times its neighbours is a broken measurement."""


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """The rows of the table *name* (a file under ``hwmodels/data/tables``)."""
    return read_rows(TABLES / f"{name}.csv")


def read_rows(path: Path) -> tuple[dict[str, str], ...]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@dataclass(frozen=True, eq=False)
class Grid:
    """Latencies on a full grid, interpolated linearly in the logarithms of sizes and time."""

    name: str
    axes: tuple[Array, ...]
    latency_us: Array
    smoothing: float
    """Median relative change that making the table monotone brought."""
    framework: str
    """The engine whose kernel was measured."""
    measured: NDArray[np.bool_] | None = None
    """False in cells that were not measured but extended; None where all were."""

    def __call__(self, *sizes: float) -> float:
        """The latency in us at *sizes*, each clamped to its measured range."""
        # A grid is asked for the same few sizes again and again while figures beside it are drawn.
        if sizes not in self._known:
            self._known[sizes] = float(np.exp(self._interpolate(np.log(self.clamp(*sizes)))[0]))
        return self._known[sizes]

    @cached_property
    def _known(self) -> dict[tuple[float, ...], float]:
        """Latencies in us that were asked for."""
        return {}

    @cached_property
    def _interpolate(self) -> RegularGridInterpolator:
        return RegularGridInterpolator([np.log(axis) for axis in self.axes], np.log(self.latency_us))

    def clamp(self, *sizes: float) -> list[float]:
        """*sizes* moved to the nearest measured ones where they lie outside."""
        return [float(np.clip(size, axis[0], axis[-1])) for size, axis in zip(sizes, self.axes, strict=True)]

    def covers(self, *sizes: float) -> bool:
        """True where no size lies above the measured range."""
        if not all(size <= axis[-1] for size, axis in zip(sizes, self.axes, strict=True)):
            return False
        corner = tuple(int(np.searchsorted(axis, size)) for size, axis in zip(sizes, self.axes, strict=True))
        return self.measured is None or bool(self.measured[corner])


Points = dict[tuple[float, ...], list[float]]
"""Latencies in us of one table, by its sizes; repeats of one point are kept."""


def _grid(name: str, points: Points, framework: str) -> Grid:
    """A Grid from *points*; HardwareError where a cell is missing."""
    axes, raw = _cells(points)
    if np.isnan(raw).any():
        raise HardwareError(name, f"the table has {len(points)} of {raw.size} cells")
    smooth = monotone(_without_glitches(raw))
    return Grid(name, axes, smooth, float(np.median(np.abs(smooth / raw - 1))), framework)


def extended_grid(name: str, points: Points, framework: str) -> Grid:
    """A Grid from *points*, whose last axis ends sooner the larger the other sizes are.

    Benchmarks stop where the cache no longer fits. Beyond, time is in proportion to the last
    axis: at those ends a kernel is bound by bytes.
    """
    axes, raw = _cells(points)
    measured = ~np.isnan(raw)
    for column in range(1, raw.shape[-1]):
        longer = axes[-1][column] / axes[-1][column - 1]
        raw[..., column] = np.where(measured[..., column], raw[..., column], raw[..., column - 1] * longer)
    if np.isnan(raw).any():
        raise HardwareError(name, f"a row of the table lacks its {axes[-1][0]:g} cell")
    smooth = monotone(_without_glitches(raw))
    change = np.abs(smooth / raw - 1)[measured]
    return Grid(name, axes, smooth, float(np.median(change)), framework, measured)


def _cells(points: Points) -> tuple[tuple[Array, ...], Array]:
    """The axes of *points*, and their means on them; NaN where there is none."""
    axes = tuple(np.array(sorted(set(axis))) for axis in zip(*points, strict=True))
    raw = np.full(tuple(len(axis) for axis in axes), np.nan)
    for key, values in points.items():
        index = tuple(int(np.searchsorted(axis, k)) for axis, k in zip(axes, key, strict=True))
        raw[index] = np.mean(values)
    return axes, raw


def _without_glitches(values: Array) -> Array:
    """Replace cells that tower over both neighbours along the last axis by their mean."""
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(1, 1)], mode="reflect")
    neighbours = (padded[..., :-2] + padded[..., 2:]) / 2
    return np.where(values > GLITCH_FACTOR * neighbours, neighbours, values)


@cache
def gemm(gpu: str, dtype: DType) -> Grid | None:
    """Dense GEMM latency over (n, k, m) for one rank's weight slice; None where nothing was measured."""
    points: Points = defaultdict(list)
    frameworks = set()
    for row in rows("gemm"):
        if row["gpu"] == gpu and row["dtype"] == dtype.value:
            frameworks.add(row["framework"])
            for tokens, latency_us in _sizes(row, "m"):
                points[float(row["n"]), float(row["k"]), tokens].append(latency_us)
    if not points:
        return None
    if len(frameworks) > 1:
        raise HardwareError(
            gpu, f"{dtype.value} GEMM rows of several engines: {', '.join(sorted(frameworks))}"
        )
    return _grid(f"gemm.csv {gpu} {dtype.value}", points, frameworks.pop())


def are_measured(gpu: str) -> bool:
    """Whether *gpu* has tables of its own; else the roofline answers for it."""
    return any(row["gpu"] == gpu for row in rows("gemm"))


def _sizes(row: dict[str, str], prefix: str) -> list[tuple[float, float]]:
    """(size, us) of each filled column ``<prefix><size>_us`` of *row*."""
    return [
        (float(column[len(prefix) : -len("_us")]), float(value))
        for column, value in row.items()
        if column.startswith(prefix) and column.endswith("_us") and value
    ]


@cache
def mla_decode(gpu: str, kernel: Selector, heads: int, dtype: DType) -> Grid | None:
    """MLA decode latency over (batch, context), one query per request; None where nothing was measured."""
    points = _one_query("mla_decode", gpu, kernel, heads=str(heads), kv_dtype=dtype.value)
    name = f"mla_decode.csv {gpu} {kernel.kernel} {heads} heads {dtype.value}"
    return _grid(name, points, kernel.framework) if points else None


@cache
def mla_heads(gpu: str, kernel: Selector, dtype: DType) -> tuple[int, ...]:
    """The heads per rank that *kernel* was measured with over a cache of *dtype*, rising."""
    found = [r for r in rows("mla_decode") if _matches(r, gpu, kernel, kv_dtype=dtype.value)]
    return tuple(sorted({int(row["heads"]) for row in found}))


class HeadShape(NamedTuple):
    """Grouped-query attention on one rank."""

    heads: int
    kv_heads: int
    head_dim: int


@cache
def gqa_decode(gpu: str, kernel: Selector, shape: HeadShape, dtype: DType) -> Grid | None:
    """GQA decode latency over (batch, context), one query per request; None where nothing was measured."""
    wanted = {name: str(value) for name, value in shape._asdict().items()}
    points = _one_query("gqa_decode", gpu, kernel, kv_dtype=dtype.value, **wanted)
    sizes = f"{shape.heads}/{shape.kv_heads}/{shape.head_dim}"
    name = f"gqa_decode.csv {gpu} {kernel.kernel} {sizes} {dtype.value}"
    return extended_grid(name, points, kernel.framework) if points else None


@cache
def gqa_shapes(gpu: str, kernel: Selector, dtype: DType) -> tuple[HeadShape, ...]:
    """The shapes that *kernel* was measured with over a cache of *dtype*, rising."""
    found = [r for r in rows("gqa_decode") if _matches(r, gpu, kernel, kv_dtype=dtype.value)]
    return tuple(sorted({HeadShape(*(int(row[name]) for name in HeadShape._fields)) for row in found}))


def _one_query(table: str, gpu: str, kernel: Selector, **wanted: str) -> Points:
    """us by (batch, context) in the rows of *kernel* that have the *wanted* values."""
    points: Points = defaultdict(list)
    for row in rows(table):
        if _matches(row, gpu, kernel, **wanted):
            for context, latency_us in _sizes(row, "ctx"):
                points[float(row["batch"]), context].append(latency_us)
    return points


def _matches(row: dict[str, str], gpu: str, kernel: Selector, **wanted: str) -> bool:
    return (
        row["gpu"] == gpu
        and row["framework"] == kernel.framework
        and row["version"] == kernel.version
        and row["kernel"] == kernel.kernel
        and all(row[column] == value for column, value in wanted.items())
    )


class ExpertShape(NamedTuple):
    """The routed experts of one rank.

    Experts spread whole over ranks (expert parallel) are fewer here, and each token
    reaches fewer of them.
    """

    experts: int
    hidden: int
    intermediate: int
    top_k: int

    @property
    def values(self) -> int:
        """Weights of one expert."""
        return 3 * self.hidden * self.intermediate


@dataclass(frozen=True)
class ExpertsLine:
    """Expert-layer time as a line in the experts touched, and what few or many tokens add.

    ``max(a + b U, least(U)) + crowd(tokens)``.
    """

    shape: ExpertShape
    fit: AffineFit
    """us against distinct experts, from balanced rows that read DRAM."""
    warm_touched: Array
    warm_us: Array
    """us against distinct experts in rows of few tokens, possibly L2-warm: lower bounds."""
    crowd_tokens: Array
    crowd_us: Array
    """What rows of many tokens take beyond reading all experts, from 0 where all are first touched."""
    name: str

    def __call__(self, touched: float, tokens: float) -> float:
        """us for *tokens* tokens that reach *touched* distinct experts."""
        return max(self.fit(touched), self.least(touched)) + self.crowd(tokens)

    def least(self, touched: float) -> float:
        """us that *touched* distinct experts take at least, by the rows of few tokens."""
        return float(np.interp(touched, self.warm_touched, self.warm_us))

    def crowd(self, tokens: float) -> float:
        """us that *tokens* tokens take beyond the bytes; in proportion to them beyond the rows."""
        beyond = max(1.0, tokens / self.crowd_tokens[-1])
        return float(beyond * np.interp(tokens, self.crowd_tokens, self.crowd_us))


@cache
def expert_lines(gpu: str, kernel: Selector, dtype: DType) -> tuple[ExpertsLine, ...]:
    """The line of every shape that *kernel* was measured with, by rising size of an expert."""
    found: dict[ExpertShape, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows("experts"):
        spread = int(row["moe_ep"])
        if _matches(row, gpu, kernel, dtype=dtype.value) and int(row["top_k"]) % spread == 0:
            shape = ExpertShape(
                int(row["experts"]) // spread,
                int(row["hidden"]),
                int(row["intermediate"]) // int(row["moe_tp"]),
                int(row["top_k"]) // spread,
            )
            for tokens, latency_us in _sizes(row, "t"):
                found[shape][int(tokens)].append(latency_us)
    name = f"experts.csv {gpu} {kernel.framework} {kernel.version} {kernel.kernel} {dtype.value}"
    means = {s: {t: float(np.mean(us)) for t, us in sorted(p.items())} for s, p in found.items()}
    lines = [experts_line(shape, mean, name) for shape, mean in means.items()]
    return tuple(sorted(lines, key=lambda line: (line.shape.values, line.shape)))


@cache
def expert_lines_of_other_builds(gpu: str, kernel: Selector, dtype: DType) -> tuple[ExpertsLine, ...]:
    """Lines of the same kernel in other versions and engines: this engine's come first, newest first."""
    builds = {
        (row["framework"], row["version"])
        for row in rows("experts")
        if (row["gpu"], row["kernel"], row["dtype"]) == (gpu, kernel.kernel, dtype.value)
    }
    builds.discard((kernel.framework, kernel.version))
    newest = sorted(
        builds, key=lambda build: (build[0] == kernel.framework, _version(build[1])), reverse=True
    )
    others = [kernel.model_copy(update={"framework": f, "version": v}) for f, v in newest]
    return tuple(line for other in others for line in expert_lines(gpu, other, dtype))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def experts_line(shape: ExpertShape, mean: dict[int, float], name: str) -> ExpertsLine:
    """The line through *mean* us by rising tokens; ValueError where too few were measured.

    Balanced rows give every token top_k experts of its own, so
    U = min(experts, top_k * tokens). The fit uses those between the L2-warm ones and
    the first in which every expert is touched; three rows at least.
    """
    touched = {t: min(shape.experts, shape.top_k * t) for t in mean}
    warm = [t for t in mean if t <= WARM_ROWS_MAX_TOKENS]
    full = min((t for t in mean if touched[t] == shape.experts), default=max(mean))
    cold = [t for t in mean if t > WARM_ROWS_MAX_TOKENS]
    cold = cold[: max(LEAST_ROWS, sum(t <= full for t in cold))]
    fit = affine_fit([touched[t] for t in cold], [mean[t] for t in cold])
    crowd = [t for t in mean if t >= full]
    extra = [0.0] + [mean[t] - fit(touched[t]) for t in crowd[1:]]
    return ExpertsLine(
        shape,
        fit,
        np.array([touched[t] for t in warm], dtype=float),
        np.maximum.accumulate([mean[t] for t in warm]),
        np.array(crowd, dtype=float),
        np.maximum.accumulate(extra),
        f"{name} {shape.experts} x {shape.hidden} x {shape.intermediate} top-{shape.top_k}",
    )


def scaled_experts(lines: Sequence[ExpertsLine], values: int, touched: float, tokens: float) -> float:
    """us for experts of *values* weights each, from *lines* of other sizes.

    Between two measured sizes linear in both logarithms; outside them all but the fixed
    part in proportion to the bytes. A larger expert never takes less: a line below that
    of a smaller expert counts as its equal.
    """
    times = np.maximum.accumulate([line(touched, tokens) for line in lines])
    longest = {float(line.shape.values): (us, line) for us, line in zip(times, lines, strict=True)}
    sizes = np.array(list(longest))
    if sizes[0] < values < sizes[-1]:
        logs = np.log([us for us, _ in longest.values()])
        return float(np.exp(np.interp(np.log(values), np.log(sizes), logs)))
    end = sizes[0] if values <= sizes[0] else sizes[-1]
    us, line = longest[end]
    fixed = min(line.fit.intercept, us)
    return float(fixed + (us - fixed) * values / end)


@dataclass(frozen=True)
class Curve:
    """AllReduce latency by message size, interpolated linearly in both logarithms."""

    name: str
    measured_on: str
    """The GPU that ran it."""
    size_bytes: Array
    latency_us: Array

    def on_side_of(self, cutoff_bytes: float, size_bytes: float) -> Curve:
        """The rows below *cutoff_bytes*, or those from there on: where *size_bytes* lies.

        Rows below are continued up to the cutoff as they rise between the last two.
        """
        below = self.size_bytes < cutoff_bytes
        if size_bytes >= cutoff_bytes or not below.any():
            rows = self.size_bytes >= cutoff_bytes if (~below).any() else below
            return replace(self, size_bytes=self.size_bytes[rows], latency_us=self.latency_us[rows])
        sizes, latency = self.size_bytes[below], self.latency_us[below]
        (s0, s1), (t0, t1) = sizes[-2:], latency[-2:]
        end = t1 + max(0.0, t1 - t0) / (s1 - s0) * (cutoff_bytes - s1)
        return replace(self, size_bytes=np.append(sizes, cutoff_bytes), latency_us=np.append(latency, end))

    def __call__(self, size_bytes: float) -> float:
        """us for *size_bytes*, held constant outside the measured sizes."""
        return float(np.exp(np.interp(np.log(size_bytes), np.log(self.size_bytes), np.log(self.latency_us))))


@cache
def allreduce(fabric: str, gpu: str, ranks: int, algorithm: str) -> Curve | None:
    """The AllReduce curve of *algorithm*, measured on *gpu* or else on another GPU of this fabric.

    Of several others the first by name. None where nothing was measured for this many ranks.
    """
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows("allreduce"):
        if (row["fabric"], row["ranks"], row["algorithm"]) == (fabric, str(ranks), algorithm):
            found[row["gpu"]][int(row["message_bytes"])].append(float(row["latency_us"]))
    if not found:
        return None
    measured_on = gpu if gpu in found else min(found)
    sizes = sorted(found[measured_on])
    latency = [float(np.mean(found[measured_on][size])) for size in sizes]
    name = f"allreduce.csv {fabric} {measured_on} {algorithm} x{ranks}"
    return Curve(name, measured_on, np.array(sizes, dtype=float), np.array(latency))
