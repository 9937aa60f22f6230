"""Works answered from a measured file: points found, and quantile functions between them.

``question_of`` says what a work must have in common with points (op and fixed sizes) and
where it lies among them (one coordinate, or two). Between measured coordinates quantile
functions are interpolated linearly, slice by slice; outside them there is no answer but a
reason, for times are never extrapolated.

Not answered: AllReduces, because a GPU's file knows nothing of the fabric of the machine,
and launches one by one, because those are the Python of an engine.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod, sqrt
from pathlib import Path
from typing import NamedTuple, assert_never

import numpy as np

from hwmodels import cases, measured
from hwmodels.cases import AnyCase, Op
from hwmodels.measured import MeasuredFile, Point, Series
from hwmodels.quantiles import Blend, Quantiles
from hwmodels.work import (
    Copy,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GraphLaunch,
    GroupedExperts,
    MlaAttention,
    Work,
    experts_touched,
)

US = 1e-6

SERIES: dict[Op, tuple[Series, ...]] = {
    Op.EXPERTS: (Series.COLD,),
    Op.MLA: (Series.COLD,),
    Op.GEMM: (Series.COLD,),
    Op.NORM: (Series.GRAPH, Series.WARM),
    Op.TOP_K: (Series.WARM,),
    Op.TREE_BUILD: (Series.WARM,),
    Op.TREE_ACCEPT: (Series.WARM,),
    Op.HOST_COPY: (Series.WARM,),
    Op.GRAPH_LAUNCH: (Series.WARM,),
}
"""The series that a decode step meets, best first: weights and cache come from DRAM, small kernels find
what was just written, and norms run inside a graph."""

Coordinates = tuple[float, ...]


class Question(NamedTuple):
    """*op* with the sizes that points must share, and a place among them."""

    op: Op
    fixed: tuple[object, ...]
    axes: tuple[str, ...]
    """Names of the coordinates."""
    at: Coordinates


class _Entry(NamedTuple):
    """A point, ready to be drawn from."""

    quantiles: Quantiles
    samples: int
    note: str


class _Spot(NamedTuple):
    """A measured coordinate and its weight."""

    value: float
    weight: float


@dataclass(frozen=True)
class Answer:
    """What a file says of a work."""

    blend: Blend
    evidence: str


@dataclass(frozen=True)
class Silence:
    """Why a file says nothing of a work that it could have measured."""

    reason: str


Group = dict[Coordinates, _Entry]


class Samples:
    """The samples of *file*, found by work. Compared by identity."""

    def __init__(self, file: MeasuredFile) -> None:
        self.name = file.name
        self.sha256 = file.sha256
        self.device = file.header.device
        self._groups = _groups(file.points)
        self._ops = {op for op, _ in self._groups}

    def find(self, work: Work) -> Answer | Silence | None:
        """What the file says of *work*; None where no file could say anything."""
        asked = question_of(work)
        if asked is None:
            return None
        if asked.op not in self._ops:
            series = " or ".join(each.value for each in SERIES[asked.op])
            return Silence(f"{self.name} has no {asked.op} ({series})")
        group = self._groups.get((asked.op, asked.fixed))
        if group is None:
            return Silence(f"{self.name} has {asked.op} of other sizes only")
        axes = [sorted(set(axis)) for axis in zip(*group, strict=True)]
        spots = [_spots(axis, at) for axis, at in zip(axes, asked.at, strict=True)]
        if not all(spots):
            return Silence(f"{self.name} has {asked.op} only at {_ranges(asked.axes, axes)}")
        return self._between(asked, group, spots)

    def _between(self, asked: Question, group: Group, spots: list[list[_Spot]]) -> Answer | Silence:
        corners = list(product(*spots))
        places = [tuple(spot.value for spot in corner) for corner in corners]
        names = [_place(asked.axes, place) for place in places]
        for place, name in zip(places, names, strict=True):
            if place not in group:
                return Silence(f"{self.name} lacks {asked.op} at {name}")
        entries = [group[place] for place in places]
        weights = tuple(prod(spot.weight for spot in corner) for corner in corners)
        blend = Blend(self.name, tuple(entry.quantiles for entry in entries), weights)
        counts = "+".join(str(entry.samples) for entry in entries)
        where = " and ".join(names)
        return Answer(blend, f"{self.name}: {asked.op} at {where}, {counts} samples, {entries[0].note}")


@cache
def load(path: Path) -> Samples:
    """The Samples of the measured file at *path*, read once; MeasuredFileError where it is wrong."""
    return Samples(measured.read(path))


def question_of(work: Work) -> Question | None:
    """What *work* asks a measured file; None where no file can answer it."""
    match work:
        case GroupedExperts():
            shape = (work.experts, work.top_k, work.hidden, work.intermediate, work.dtype)
            return Question(Op.EXPERTS, shape, ("experts touched",), (work.touched,))
        case MlaAttention():
            whole = work.run_tokens >= work.seen
            cache = (work.requests, work.heads, work.latent, work.dtype, whole)
            return Question(Op.MLA, cache, ("queries", "context"), (work.queries, work.seen))
        case Gemm(m, n, k, dtype):
            return Question(Op.GEMM, (n, k, dtype), ("M",), (m,))
        case Elementwise(size_bytes):
            return Question(Op.NORM, (), ("bytes",), (size_bytes,))
        case GpuKernel():
            return _of_task(work)
        case Copy(size_bytes, direction):
            return Question(Op.HOST_COPY, (direction,), ("bytes",), (size_bytes,))
        case GraphLaunch(nodes):
            return Question(Op.GRAPH_LAUNCH, (), ("nodes",), (nodes,))
        case _:
            return None


def _of_task(work: GpuKernel) -> Question | None:
    match work.task:
        case GpuTask.TOP_K:
            return Question(Op.TOP_K, (), ("rows",), (work.items,))
        case GpuTask.TREE_BUILD:
            return Question(Op.TREE_BUILD, (), ("nodes",), (work.items,))
        case GpuTask.TREE_ACCEPT:
            return Question(Op.TREE_ACCEPT, (), ("tokens",), (work.items,))
        case GpuTask.TREE_SELECT | GpuTask.LOOSE:
            return None
        case _:
            assert_never(work.task)


class _Filed(NamedTuple):
    """Where a point is filed: by the fixed sizes of its question, and *beside* them those it leaves open."""

    fixed: tuple[object, ...]
    at: Coordinates
    beside: tuple[int, ...] = ()


def _filed(case: AnyCase) -> _Filed | None:
    """The place of *case*, as ``question_of`` asks for it; None for what no work asks for."""
    match case:
        case cases.Experts():
            shape = (case.experts, case.top_k, case.hidden, case.intermediate, case.dtype)
            return _Filed(shape, (experts_touched(case.tokens, case.experts, case.top_k),))
        case cases.Mla():
            # The cache lies in one piece.
            cache = (case.requests, case.heads, case.latent, case.dtype, True)
            return _Filed(cache, (case.queries, case.context_tokens))
        case cases.DenseGemm():
            return _Filed((case.n, case.k, case.dtype), (case.tokens,))
        case cases.Norm():
            return _Filed((), (case.moved_bytes,))
        case cases.TopK():
            return _Filed((), (case.rows,), (case.vocabulary, case.k))
        case cases.TreeBuild():
            return _Filed((), (case.nodes,), (case.positions, case.candidates))
        case cases.TreeAccept():
            return _Filed((), (case.tokens,))
        case cases.HostCopy():
            return _Filed((case.direction,), (case.size_bytes,))
        case cases.GraphLaunch():
            return _Filed((), (case.nodes,))
        case _:
            return None


def _groups(points: tuple[Point, ...]) -> dict[tuple[Op, tuple[object, ...]], Group]:
    """Points that answer the same question: of the best series, with the largest sizes beside it."""
    found: dict[tuple[Op, tuple[object, ...]], dict[tuple[int, tuple[int, ...]], Group]] = {}
    for point in points:
        filed, series = _filed(point.case), SERIES.get(point.case.op, ())
        if filed is not None and point.series in series:
            rank = (-series.index(point.series), filed.beside)
            groups = found.setdefault((point.case.op, filed.fixed), {})
            groups.setdefault(rank, {})[filed.at] = _entry(point)
    return {key: groups[max(groups)] for key, groups in found.items()}


def _entry(point: Point) -> _Entry:
    quantiles = Quantiles.of(np.array(point.samples_us) * US, relative_error(point))
    return _Entry(quantiles, len(point.samples_us), f"{point.series.value}, {point.kernel}")


def relative_error(point: Point) -> float:
    """What is not known of a point's mean: its standard error, or half of what its passes differ by."""
    mean, count = float(np.mean(point.samples_us)), len(point.samples_us)
    if not mean:
        return 0.0
    error = float(np.std(point.samples_us)) / sqrt(count) / mean
    return max(error, float(np.ptp(point.pass_medians_us or (0.0,))) / 2 / mean)


def _spots(axis: list[float], at: float) -> list[_Spot]:
    """The measured neighbours of *at* on a sorted *axis*; one where it is measured, none outside."""
    after = bisect_left(axis, at)
    if after == len(axis) or (after == 0 and axis[0] != at):
        return []
    if axis[after] == at:
        return [_Spot(at, 1.0)]
    low, high = axis[after - 1], axis[after]
    share = (at - low) / (high - low)
    return [_Spot(low, 1 - share), _Spot(high, share)]


def _place(axes: tuple[str, ...], place: Coordinates) -> str:
    return ", ".join(f"{value:g} {name}" for name, value in zip(axes, place, strict=True))


def _ranges(names: tuple[str, ...], axes: list[list[float]]) -> str:
    return ", ".join(f"{axis[0]:g} to {axis[-1]:g} {name}" for name, axis in zip(names, axes, strict=True))
