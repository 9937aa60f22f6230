"""Two sides of a comparison, point by point: measured files, or one and a GPU's published tables.

A published side has no points of its own: it is asked for the work of the other side's, as
if no file had been measured, and only for what the published tables are about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from hwmodels import cases, catalog, measured, sampled
from hwmodels.cases import AnyCase, Op, sizes
from hwmodels.catalog import Kind
from hwmodels.cost import CostModel
from hwmodels.devices import Gpu
from hwmodels.documents import did_you_mean
from hwmodels.errors import DocumentError, HardwareError
from hwmodels.machine import Machine
from hwmodels.measured import SUFFIX, MeasuredFile, Point, Series

RANKS = 8
"""The tensor parallelism that published tables are asked for; kernels depend on their sizes only."""


class Reading(NamedTuple):
    """What one side says of a point."""

    us: float
    """The median of samples beside another file's; beside a published mean the mean of samples."""
    low_us: float
    high_us: float
    """First and third quartile of samples; the published mean twice."""
    relative_error: float
    """One sigma of what is not known of the mean."""
    samples: int
    """0 where it is published."""


class Row(NamedTuple):
    """A point that both sides speak of."""

    case: AnyCase
    series: Series
    a: Reading
    b: Reading

    @property
    def ratio(self) -> float:
        """b over a."""
        return self.b.us / self.a.us

    @property
    def ratio_error(self) -> float:
        """One sigma of the ratio."""
        return float(self.ratio * np.hypot(self.a.relative_error, self.b.relative_error))


@dataclass(frozen=True)
class Comparison:
    """Every point that *a* and *b* have in common, by op."""

    a: str
    b: str
    rows: dict[Op, tuple[Row, ...]]
    left_out: tuple[str, ...]
    """What could not be compared, and why."""

    @property
    def of_means(self) -> bool:
        """Whether times are means, for a published side has no medians."""
        readings = (reading for rows in self.rows.values() for row in rows for reading in (row.a, row.b))
        return any(reading.samples == 0 for reading in readings)

    def middle(self, op: Op) -> float:
        """The median ratio of an op's points."""
        return median(row.ratio for row in self.rows[op])


@dataclass(frozen=True)
class Published:
    """The tables of a catalog GPU, asked through a stack."""

    gpu: str
    """As the user named it."""
    costs: CostModel

    @property
    def name(self) -> str:
        """As reports say it."""
        return f"{self.gpu}, published"


Side = MeasuredFile | Published


def side(name: str, stack: str) -> Side:
    """The side that *name* means: a ``.jsonl`` file, else a GPU's name or ``.yaml``, else a shipped file.

    DocumentError where it is none of them.
    """
    if name.endswith(SUFFIX):
        return measured.read(Path(name))
    if name.endswith(".yaml") or name in catalog.names(Kind.GPU):
        return Published(name, _tables(catalog.gpu(name), stack))
    if name in catalog.measured_names():
        return measured.read(catalog.measured_path(name))
    known = [*catalog.names(Kind.GPU), *catalog.measured_names()]
    raise DocumentError(name, 0, "", f"no measured file (.jsonl) and no GPU{did_you_mean(name, known)}")


def _tables(gpu: Gpu, stack: str) -> CostModel:
    # Kernels ask neither link nor host.
    link = catalog.interconnect(catalog.names(Kind.INTERCONNECT)[0])
    host = catalog.host(catalog.names(Kind.HOST)[0])
    return CostModel(Machine(gpu, RANKS, link, host, catalog.stack(stack)))


def compare(a: Side, b: Side) -> Comparison:
    """*a* beside *b*; DocumentError where neither was measured."""
    match a, b:
        case MeasuredFile(), MeasuredFile():
            return _compared(a, b, _points_of(a), _points_of(b))
        case MeasuredFile(), Published():
            return _compared(a, b, _means_of(a), _asked(b, a))
        case Published(), MeasuredFile():
            return _compared(a, b, _asked(a, b), _means_of(b))
        case _:
            raise _both_published(a, b)


def _both_published(*sides: Side) -> DocumentError:
    """Two published *sides* are refused; it names the measured files that the user may have meant."""
    published = [each for each in sides if isinstance(each, Published)]
    named = [gpu.measured for gpu in (each.costs.machine.gpu for each in published) if gpu.measured]
    meant = f", such as {' or '.join(named)}" if named else " (python -m cuda.measure writes one)"
    problem = f"both stand for published tables; one of the two must be a measured file{meant}"
    return DocumentError(" and ".join(each.gpu for each in published), 0, "", problem)


Key = tuple[AnyCase, Series]


@dataclass(frozen=True)
class _Readings:
    """What a side says, and why it is silent on the rest."""

    by_key: dict[Key, Reading]
    silent: dict[str, str] = field(default_factory=dict)


def _points_of(file: MeasuredFile) -> _Readings:
    return _Readings({(point.case, point.series): _reading(point) for point in file.points})


def _means_of(file: MeasuredFile) -> _Readings:
    """As a published table has them: samples with a tail have a mean beyond their median."""
    read = {(point.case, point.series): _reading(point) for point in file.points}
    means = {(point.case, point.series): float(np.mean(point.samples_us)) for point in file.points}
    return _Readings({key: reading._replace(us=means[key]) for key, reading in read.items()})


def _reading(point: Point) -> Reading:
    low, high = np.quantile(point.samples_us, (0.25, 0.75))
    return Reading(
        point.median_us, float(low), float(high), sampled.relative_error(point), len(point.samples_us)
    )


def _asked(tables: Published, file: MeasuredFile) -> _Readings:
    """What *tables* say of the points of *file*."""
    readings = _Readings({})
    for point in file.points:
        work = cases.work_of(point.case)
        if work is None:
            readings.silent[point.case.op.value] = "no published table"
            continue
        try:
            found = tables.costs.estimate(work)
        except HardwareError as problem:
            readings.silent[point.case.op.value] = str(problem)
        else:
            us = found.seconds * 1e6
            readings.by_key[point.case, point.series] = Reading(us, us, us, found.spread, 0)
    return readings


def _compared(a: Side, b: Side, of_a: _Readings, of_b: _Readings) -> Comparison:
    """Zero times, which an empty interval may have, are in no ratio, but counted."""
    rows: dict[Op, list[Row]] = {}
    timeless: Counter[Op] = Counter()
    in_both = [key for key in of_a.by_key if key in of_b.by_key]
    for case, series in sorted(in_both, key=_order):
        row = Row(case, series, of_a.by_key[case, series], of_b.by_key[case, series])
        if row.a.us > 0 and row.b.us > 0:
            rows.setdefault(case.op, []).append(row)
        else:
            timeless[case.op] += 1
    silent = of_a.silent | of_b.silent
    left_out = [f"{op}: {why}" for op, why in silent.items()]
    left_out += [f"{op.value}: {count} points that take no time" for op, count in timeless.items()]
    left_out += _lonely(a, of_a, of_b) + _lonely(b, of_b, of_a)
    names = (a.name, b.name) if a.name != b.name else (f"{a.name} (A)", f"{b.name} (B)")
    return Comparison(*names, {op: tuple(found) for op, found in rows.items()}, tuple(left_out))


def varying_sizes(found: Sequence[AnyCase]) -> list[str]:
    """The sizes that are not the same in all the cases *found*, which are of one op."""
    every = [sizes(case) for case in found]
    return [name for name in every[0] if len({each[name] for each in every}) > 1]


def fixed_sizes(found: Sequence[AnyCase]) -> str:
    """The other sizes of the cases *found* in words: ``n 384, k 7168``; empty where there are none."""
    varying = varying_sizes(found)
    return ", ".join(f"{name} {value}" for name, value in sizes(found[0]).items() if name not in varying)


def _order(key: Key) -> tuple[int | str, ...]:
    case, series = key
    return (*cases.order_of(case), list(Series).index(series))


def _lonely(own: Side, of_own: _Readings, of_other: _Readings) -> list[str]:
    """How many points of each op only *own* has."""
    counts: dict[str, int] = {}
    for case, series in of_own.by_key:
        if (case, series) not in of_other.by_key and case.op.value not in of_other.silent:
            counts[case.op.value] = counts.get(case.op.value, 0) + 1
    return [f"{op}: {count} points of {own.name} alone" for op, count in counts.items()]
