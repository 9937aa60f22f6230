"""Goes through a plan: every point checked, then timed in random order, once for each pass.

Two passes far apart show drift as a difference of medians. Whatever ends the campaign early, what
was measured is kept; a later one goes on with the points and passes that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from pydantic import ValidationError

from cuda.criterion import Criterion, Rule
from cuda.device import DeviceError, DeviceMemoryError
from cuda.operations import UnmeasurableError
from cuda.plan import Subject
from cuda.reference import WrongResultError
from cuda.rigs import Rig, Timing
from cuda.sampling import Sample, Stopwatch
from hwmodels import cases, roofline
from hwmodels.measured import Ceilings, DiscardReason, Point, Series, StopReason
from hwmodels.work import GroupedExperts

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
PAUSE_GROWTH = 1.5
"""A throttled GPU is given time, more of it each time in a row. All three are chosen."""
US_DIGITS = 4
"""Decimals of a sample in us: finer than any clock here."""


@dataclass(frozen=True)
class Parameters:
    """How samples are taken."""

    rule: Rule
    passes: int
    warm_ups: int
    graph_copies: int
    seed: int


class Failure(NamedTuple):
    """A point that is not measured, and why."""

    subject: Subject
    reason: str


NOT_MEASURED = (DeviceError, DeviceMemoryError, UnmeasurableError, WrongResultError)
"""What keeps one point from being measured, and not the next one."""


class Listener(Protocol):
    """Hears how a campaign gets on."""

    def on_point(self, point: Point) -> None:
        """A pass over a point ended; *point* has all its passes so far."""

    def on_failure(self, failure: Failure) -> None:
        """A point will not be measured."""


class _Taken(NamedTuple):
    """The samples of one pass over one point."""

    us: list[float]
    touched: list[int]
    mhz: list[float]
    discarded: dict[DiscardReason, int]
    stop: StopReason

    def add(self, sample: Sample, copies: int, touched: int | None) -> None:
        """Enter *sample*, which was of so many *copies*."""
        self.us.append(round(sample.us / copies, US_DIGITS))
        self.touched.extend([] if touched is None else [touched])
        self.mhz.extend([] if sample.sm_mhz is None else [sample.sm_mhz])


class Campaign:
    """Measures *subjects*; *points* are those that there are already, finished or not."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        parameters: Parameters,
        make_rig: Callable[[Subject], Rig],
        stopwatch: Stopwatch,
        points: Sequence[Point] = (),
    ) -> None:
        self.subjects = subjects
        self.failures: list[Failure] = []
        self._parameters = parameters
        self._make_rig = make_rig
        self._stopwatch = stopwatch
        self._points = {Subject(point.case, point.series): point for point in points}
        self._rigs: dict[Subject, Rig] = {}

    @property
    def points(self) -> list[Point]:
        """Every point so far."""
        return list(self._points.values())

    @property
    def visits_left(self) -> int:
        """Passes over points that are still to come."""
        failed = {failure.subject for failure in self.failures}
        left = (subject for subject in self.subjects if subject not in failed)
        return sum(self._parameters.passes - self._passes(subject) for subject in left)

    def run(self, ceilings: Ceilings, listener: Listener) -> None:
        """All passes over all points that lack them; floors are computed with *ceilings*.

        DeviceError where the device has failed for good.
        """
        for number, subject in self._visits():
            try:
                with self._stopwatch.active():
                    point = self._measured(subject, number, ceilings)
            except NOT_MEASURED as problem:
                # What a wrong kernel took before is not worth more; other passes stand as they were.
                if isinstance(problem, WrongResultError):
                    self._points.pop(subject, None)
                self.failures.append(Failure(subject, str(problem)))
                listener.on_failure(self.failures[-1])
                # A device that cannot even do this will not do another point.
                self._stopwatch.wake()
            else:
                self._points[subject] = point
                listener.on_point(point)

    def bandwidth_gb_s(self, copy: Subject) -> float:
        """Bytes that *copy* reads and writes in a second, the cache flushed before it."""
        with self._stopwatch.active():
            taken = self._taken(copy, np.random.default_rng(self._parameters.seed))
        return float(demand_of(copy, None).bytes / np.median(taken.us) / 1e3)

    def _visits(self) -> Iterator[tuple[int, Subject]]:
        """Passes and points, in random order inside a pass; a point that failed is not tried again."""
        for number in range(self._parameters.passes):
            for place in self._luck(number, len(self.subjects)).permutation(len(self.subjects)):
                subject = self.subjects[place]
                failed = any(failure.subject == subject for failure in self.failures)
                if not failed and self._passes(subject) == number:
                    yield number, subject

    def _passes(self, subject: Subject) -> int:
        return len(self._points[subject].pass_medians_us) if subject in self._points else 0

    def _luck(self, number: int, place: int) -> np.random.Generator:
        return np.random.default_rng([self._parameters.seed, number, place])

    def _measured(self, subject: Subject, number: int, ceilings: Ceilings) -> Point:
        """The point of *subject* with pass *number* over it added."""
        place = self.subjects.index(subject)
        taken = self._taken(subject, self._luck(number, place))
        try:
            added = _point(subject, self._rig(subject).kernel, taken, ceilings)
        except ValidationError as problem:
            # Times that no file takes, such as none at all, end one point and not the campaign.
            raise UnmeasurableError(
                subject.case, problem.errors()[0]["msg"].removeprefix("Value error, ")
            ) from None
        before = self._points.get(subject)
        return added if before is None else _joined(before, added, ceilings)

    def _taken(self, subject: Subject, luck: np.random.Generator) -> _Taken:
        """Samples of *subject*, one that counts at least, its results checked before and after."""
        rig = self._rig(subject)
        taken = self._take(rig, subject, luck)
        rig.verify_again()
        if not taken.us:
            why = ", ".join(f"{count} {reason.value}" for reason, count in taken.discarded.items())
            raise UnmeasurableError(subject.case, f"no sample counts ({why})")
        return taken

    def _rig(self, subject: Subject) -> Rig:
        """The rig of *subject*, checked before it is first timed."""
        if subject not in self._rigs:
            rig = self._make_rig(subject)
            rig.verify()
            self._rigs[subject] = rig
        return self._rigs[subject]

    def _take(self, rig: Rig, subject: Subject, luck: np.random.Generator) -> _Taken:
        taken = _Taken([], [], [], {}, StopReason.TIMEOUT)
        criterion, pause_s = Criterion(self._parameters.rule), FIRST_PAUSE_S
        copies = self._parameters.graph_copies if subject.series is Series.GRAPH else 1
        self._warm_up(rig, luck)
        begin = time.monotonic()
        while (verdict := criterion.verdict(time.monotonic() - begin)) is None:
            touched = rig.renew(luck)
            sample = self._sample(rig, subject.series)
            sample = sample._replace(discard=rig.fault() or sample.discard)
            if sample.discard is None:
                criterion.add(sample.us / copies)
                taken.add(sample, copies, touched)
                pause_s = FIRST_PAUSE_S
            else:
                criterion.discard()
                taken.discarded[sample.discard] = taken.discarded.get(sample.discard, 0) + 1
                time.sleep(pause_s)
                self._stopwatch.wake()
                pause_s = min(LONGEST_PAUSE_S, PAUSE_GROWTH * pause_s)
        return taken._replace(stop=verdict)

    def _warm_up(self, rig: Rig, luck: np.random.Generator) -> None:
        """Not held: modules load when first launched, which a held stream would wait for."""
        self._stopwatch.wake()
        for _ in range(self._parameters.warm_ups):
            rig.renew(luck)
            self._stopwatch.free(rig.queues())

    def _sample(self, rig: Rig, series: Series) -> Sample:
        match rig.timing:
            case Timing.HELD:
                return self._stopwatch.held(rig.queues(), flush=series is Series.COLD)
            case Timing.FREE:
                return self._stopwatch.free(rig.queues())
            case Timing.ON_HOST:
                return self._stopwatch.on_host(rig.queues()[0])


class Demand(NamedTuple):
    """What a point needs of the GPU's memory and arithmetic; 0 where neither bounds it."""

    bytes: int
    flops: int


def demand_of(subject: Subject, touched: float | None) -> Demand:
    """The Demand of *subject*, whose samples touched so many experts on average."""
    case, work = subject.case, cases.work_of(subject.case)
    if isinstance(work, GroupedExperts) and touched is not None:
        work = replace(work, touched=touched)
    if work is not None:
        need = roofline.demand(work)
        return Demand(round(need.bytes), round(need.flops))
    match case:
        case cases.DeviceCopy():
            return Demand(2 * case.size_bytes, 0)
        case cases.ReduceStandin():
            return Demand((case.ranks + 1) * case.message_bytes, 0)
        case _:
            return Demand(0, 0)


def floor_us(need: Demand, series: Series, ceilings: Ceilings) -> float:
    """What *need* takes at *ceilings*; 0 where the cache may have had it, or nothing is known."""
    if series is not Series.COLD:
        return 0.0
    memory_us = need.bytes / ceilings.copy_bandwidth_gb_s / 1e3
    compute_us = need.flops / ceilings.bf16_tflops / 1e6 if ceilings.bf16_tflops else 0.0
    return float(round(max(memory_us, compute_us), US_DIGITS))


class _Floor(NamedTuple):
    """What a point needs, under the names that files have for it."""

    bytes: int
    flops: int
    floor_us: float


def _floor(subject: Subject, touched: Sequence[int], ceilings: Ceilings) -> _Floor:
    need = demand_of(subject, float(np.mean(touched)) if touched else None)
    return _Floor(*need, floor_us(need, subject.series, ceilings))


def _point(subject: Subject, kernel: str, taken: _Taken, ceilings: Ceilings) -> Point:
    clock_mhz = float(np.median(taken.mhz)) if taken.mhz else None
    return Point(
        case=subject.case,
        series=subject.series,
        kernel=kernel,
        samples_us=tuple(taken.us),
        touched_experts=tuple(taken.touched) or None,
        discarded=taken.discarded,
        stop=taken.stop,
        **_floor(subject, taken.touched, ceilings)._asdict(),
        pass_medians_us=(float(np.median(taken.us)),),
        pass_stops=(taken.stop,),
        sm_clock_mhz=clock_mhz,
        pass_clocks_mhz=(clock_mhz,),
        clocked_samples=len(taken.mhz),
    )


def _joined(before: Point, added: Point, ceilings: Ceilings) -> Point:
    """Both passes over one point, and what all its samples need."""
    reasons = [reason for reason in DiscardReason if reason in before.discarded | added.discarded]
    touched = (before.touched_experts or ()) + (added.touched_experts or ())
    return added.model_copy(
        update={
            "samples_us": before.samples_us + added.samples_us,
            "touched_experts": touched or None,
            "discarded": {r: before.discarded.get(r, 0) + added.discarded.get(r, 0) for r in reasons},
            "pass_medians_us": before.pass_medians_us + added.pass_medians_us,
            "pass_stops": before.pass_stops + added.pass_stops,
            "pass_clocks_mhz": before.pass_clocks_mhz + added.pass_clocks_mhz,
            "clocked_samples": before.clocked_samples + added.clocked_samples,
            **_floor(Subject(added.case, added.series), touched, ceilings)._asdict(),
        }
    )
