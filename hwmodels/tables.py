"""Measured latency tables: loading, monotone smoothing, log-log interpolation.

All latencies are microseconds as published; repeats of one point are averaged.
GEMM and attention tables are made monotone in every size (see ``fits.monotone``),
because single published means carry noise that would put false optima into
sweeps; the AllReduce table is not, because algorithm switches are real.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from hwmodels.catalog import TABLES, Selector
from hwmodels.errors import HardwareError
from hwmodels.fits import AffineFit, affine_fit, monotone
from hwmodels.work import DType

Array = NDArray[np.float64]

WARM_ROWS_MAX_TOKENS = 4
"""Expert rows up to this many tokens may be served from L2 (repeated weights in one graph)."""
TABLE_TOP_K = 8
"""Experts per token in every row of the expert table."""
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

    def __call__(self, *sizes: float) -> float:
        """The latency in us at *sizes*, each clamped to its measured range."""
        return float(np.exp(self._interpolate(np.log(self.clamp(*sizes)))[0]))

    @cached_property
    def _interpolate(self) -> RegularGridInterpolator:
        return RegularGridInterpolator([np.log(axis) for axis in self.axes], np.log(self.latency_us))

    def clamp(self, *sizes: float) -> list[float]:
        """*sizes* moved to the nearest measured ones where they lie outside."""
        return [float(np.clip(size, axis[0], axis[-1])) for size, axis in zip(sizes, self.axes, strict=True)]

    def covers(self, *sizes: float) -> bool:
        """True where no size lies above the measured range."""
        return all(size <= axis[-1] for size, axis in zip(sizes, self.axes, strict=True))


def _grid(name: str, points: dict[tuple[float, ...], list[float]], framework: str) -> Grid:
    """A Grid from *points*; HardwareError where a cell is missing."""
    axes = tuple(np.array(sorted(set(axis))) for axis in zip(*points, strict=True))
    shape = tuple(len(axis) for axis in axes)
    if len(points) != int(np.prod(shape)):
        raise HardwareError(name, f"the table has {len(points)} of {int(np.prod(shape))} cells")
    raw = np.empty(shape)
    for key, values in points.items():
        index = tuple(int(np.searchsorted(axis, k)) for axis, k in zip(axes, key, strict=True))
        raw[index] = np.mean(values)
    smooth = monotone(_without_glitches(raw))
    return Grid(name, axes, smooth, float(np.median(np.abs(smooth / raw - 1))), framework)


def _without_glitches(values: Array) -> Array:
    """Replace cells that tower over both neighbours along the last axis by their mean."""
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(1, 1)], mode="reflect")
    neighbours = (padded[..., :-2] + padded[..., 2:]) / 2
    return np.where(values > GLITCH_FACTOR * neighbours, neighbours, values)


@cache
def gemm(gpu: str, dtype: DType) -> Grid:
    """Dense GEMM latency over (n, k, m) for one rank's weight slice."""
    points: dict[tuple[float, ...], list[float]] = defaultdict(list)
    frameworks = set()
    for row in rows("gemm"):
        if row["gpu"] == gpu and row["dtype"] == dtype.value:
            frameworks.add(row["framework"])
            for column, value in row.items():
                if column.startswith("m") and column.endswith("_us"):
                    key = (float(row["n"]), float(row["k"]), float(column[1:-3]))
                    points[key].append(float(value))
    if not points:
        raise HardwareError(gpu, f"no measured {dtype.value} GEMM table")
    if len(frameworks) > 1:
        raise HardwareError(
            gpu, f"{dtype.value} GEMM rows of several engines: {', '.join(sorted(frameworks))}"
        )
    return _grid(f"gemm.csv {gpu} {dtype.value}", points, frameworks.pop())


@cache
def mla_heads(gpu: str, kernel: Selector, heads: int, dtype: DType) -> int:
    """Which rows serve *heads* heads a rank: the next more that were measured, else the most.

    *heads* itself where nothing was measured at all.
    """
    found = {
        int(row["heads"]) for row in rows("mla_decode") if _matches(row, gpu, kernel, kv_dtype=dtype.value)
    }
    return min((more for more in found if more >= heads), default=max(found, default=heads))


@cache
def mla_decode(gpu: str, kernel: Selector, heads: int, dtype: DType) -> Grid:
    """MLA decode latency over (batch, context), one query per request."""
    points: dict[tuple[float, ...], list[float]] = defaultdict(list)
    for row in rows("mla_decode"):
        if _matches(row, gpu, kernel, heads=str(heads), kv_dtype=dtype.value):
            for column, value in row.items():
                if column.startswith("ctx"):
                    key = (float(row["batch"]), float(column[3:-3]))
                    points[key].append(float(value))
    if not points:
        wanted = f"{kernel.framework} {kernel.version} {kernel.kernel}"
        raise HardwareError(gpu, f"no MLA table for {wanted}, {heads} heads per rank, {dtype.value} KV cache")
    name = f"mla_decode.csv {gpu} {kernel.kernel} {heads} heads {dtype.value}"
    return _grid(name, points, kernel.framework)


def _matches(row: dict[str, str], gpu: str, kernel: Selector, **wanted: str) -> bool:
    return (
        row["gpu"] == gpu
        and row["framework"] == kernel.framework
        and row["version"] == kernel.version
        and row["kernel"] == kernel.kernel
        and all(row[column] == value for column, value in wanted.items())
    )


@dataclass(frozen=True)
class ExpertsLine:
    """Expert-layer time as a line in the experts touched, and what small batches cannot undercut."""

    fit: AffineFit
    """us against distinct experts, from balanced rows that read DRAM."""
    warm_tokens: Array
    warm_us: Array
    """Rows of few tokens, possibly L2-warm: lower bounds."""
    name: str

    def __call__(self, touched: float) -> float:
        """us for *touched* distinct experts of the measured size, by the fit."""
        return self.fit(touched)

    def least(self, tokens: float) -> float:
        """us that *tokens* tokens take at least, by the rows of few tokens."""
        return float(np.interp(tokens, self.warm_tokens, self.warm_us))


@cache
def experts(gpu: str, kernel: Selector, dtype: DType, count: int, ranks: int) -> ExpertsLine:
    """The fitted expert line of *kernel* for *count* experts sliced over *ranks* (us).

    Balanced rows give every token TABLE_TOP_K experts of its own, so
    U = min(count, TABLE_TOP_K * tokens); the fit uses those between the L2-warm ones
    and saturation.
    """
    points: dict[int, list[float]] = defaultdict(list)
    wanted = {"dtype": dtype.value, "experts": str(count), "moe_tp": str(ranks), "routing": "balanced"}
    for row in rows("experts"):
        if _matches(row, gpu, kernel, **wanted):
            points[int(row["tokens"])].append(float(row["latency_us"]))
    name = f"experts.csv {gpu} {kernel.framework} {kernel.version} {kernel.kernel} {dtype.value}"
    if not points:
        raise HardwareError(gpu, f"no expert rows: {name}, {count} experts over {ranks} ranks")
    mean = {tokens: float(np.mean(values)) for tokens, values in sorted(points.items())}
    cold = [t for t in mean if WARM_ROWS_MAX_TOKENS < t <= count // TABLE_TOP_K]
    warm = [t for t in mean if t <= WARM_ROWS_MAX_TOKENS]
    fit = affine_fit([TABLE_TOP_K * t for t in cold], [mean[t] for t in cold])
    warm_us = np.maximum.accumulate([mean[t] for t in warm])
    return ExpertsLine(fit, np.array(warm, dtype=float), warm_us, name)


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
