"""A campaign visits every point once a pass, keeps what it has, and says what it could not measure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import experts, mla, point

from cuda import campaign
from cuda.campaign import Campaign, Demand, Failure, Parameters, demand_of, floor_us
from cuda.criterion import MOST_DISCARDED, Rule
from cuda.device import DeviceError, DeviceMemoryError
from cuda.launch import Empty
from cuda.operations import UnmeasurableError
from cuda.plan import PlanName, Subject, subjects
from cuda.reference import WrongResultError
from cuda.rigs import Timing
from cuda.sampling import Sample
from hwmodels import cases
from hwmodels.cases import AllReduceAlgorithm
from hwmodels.measured import Ceilings, DiscardReason, Point, Series, StopReason

RULE = Rule(min_samples=6, max_samples=9, min_gpu_time_s=0.0, max_noise=0.01, timeout_s=60.0)
PARAMETERS = Parameters(RULE, passes=2, warm_ups=2, graph_copies=4, seed=7)
CEILINGS = Ceilings(copy_bandwidth_gb_s=100.0)
NORM = Subject(cases.Norm(tokens=1, hidden=1024), Series.GRAPH)
EXPERTS = Subject(experts(1), Series.COLD)
COPY = Subject(cases.DeviceCopy(size_bytes=10**6), Series.COLD)
EMPTY = Subject(cases.EmptyKernel(), Series.WARM)
LAUNCH = Subject(cases.GraphLaunch(nodes=3), Series.WARM)
SUBJECTS = [EXPERTS, NORM, COPY, LAUNCH, EMPTY]


class Script:
    """Rigs and a stopwatch that do as told and write down what they were asked."""

    def __init__(self, times: Callable[[Subject], Iterator[Sample]]) -> None:
        self.log: list[tuple[str, Subject]] = []
        self.broken: dict[tuple[str, Subject], Exception] = {}
        self._times = times
        self._streams: dict[Subject, Iterator[Sample]] = {}
        self.woken = 0
        self.is_dead = False
        self.faults: Iterator[DiscardReason | None] = itertools.repeat(None)

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    def rig(self, subject: Subject) -> Any:
        self._note("make", subject)
        timing = Timing.ON_HOST if subject is LAUNCH else Timing.HELD

        def renew(_: np.random.Generator) -> int | None:
            self._note("renew", subject)
            return 8 if isinstance(subject.case, cases.Experts) else None

        return SimpleNamespace(
            kernel="scripted",
            timing=timing,
            renew=renew,
            queues=lambda: (subject,),
            fault=lambda: next(self.faults),
            verify=lambda: self._note("verify", subject),
            verify_again=lambda: self._note("verify again", subject),
        )

    def _note(self, what: str, subject: Subject) -> None:
        self.log.append((what, subject))
        if (what, subject) in self.broken:
            raise self.broken[what, subject]

    def _sample(self, how: str, subject: Subject) -> Sample:
        self._note(how, subject)
        return next(self._streams.setdefault(subject, self._times(subject)))

    def held(self, queues: Sequence[Subject], flush: bool) -> Sample:
        return self._sample("held, flushed" if flush else "held", queues[0])

    def wake(self) -> None:
        if self.is_dead:
            raise DeviceError("it is gone")
        self.woken += 1

    def free(self, queues: Sequence[Subject]) -> Sample:
        self._note("free", queues[0])
        return Sample(1.0, None, None)

    def on_host(self, call: Subject) -> Sample:
        return self._sample("on host", call)

    def asked(self, subject: Subject) -> list[str]:
        return [what for what, whom in self.log if whom == subject]


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.failures: list[Failure] = []
        self.on_point = self.points.append
        self.on_failure = self.failures.append


def steady(us: float = 8.0) -> Callable[[Subject], Iterator[Sample]]:
    return lambda _: itertools.repeat(Sample(us, 1500.0, None))


def campaign_of(
    script: Script, wanted: Sequence[Subject] = SUBJECTS, points: Sequence[Point] = (), **changes: Any
) -> Campaign:
    stopwatch: Any = script
    return Campaign(wanted, replace(PARAMETERS, **changes), script.rig, stopwatch, points)


def run(script: Script, **options: Any) -> tuple[Campaign, Heard]:
    found, heard = campaign_of(script, **options), Heard()
    found.run(CEILINGS, heard)
    return found, heard


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(campaign.time, "sleep", slept.append)
    return slept


def test_every_point_is_visited_once_a_pass_and_checked_before_it_is_timed() -> None:
    script = Script(steady())
    found, heard = run(script)
    assert {Subject(p.case, p.series) for p in found.points} == set(SUBJECTS)
    assert all(len(p.pass_medians_us) == 2 for p in found.points)
    assert len(heard.points) == 2 * len(SUBJECTS)
    assert found.visits_left == 0
    for subject in SUBJECTS:
        asked = script.asked(subject)
        assert asked[:2] == ["make", "verify"]
        assert asked.count("make") == asked.count("verify") == 1
        assert asked.count("verify again") == 2
        assert asked[-1] == "verify again"


def test_a_point_is_warmed_up_then_timed_by_its_own_clock() -> None:
    script = Script(steady())
    run(script)
    wanted = {EXPERTS: "held, flushed", COPY: "held, flushed", NORM: "held", EMPTY: "held", LAUNCH: "on host"}
    for subject, how in wanted.items():
        one_pass = ["renew", "free"] * 2 + ["renew", how] * RULE.min_samples + ["verify again"]
        assert script.asked(subject) == ["make", "verify", *one_pass, *one_pass]


def test_a_sample_of_a_graph_is_shared_among_its_copies() -> None:
    found, _ = run(Script(steady(8.0)), wanted=[NORM, EMPTY])
    medians = {Subject(p.case, p.series): p.median_us for p in found.points}
    assert medians == {NORM: 2.0, EMPTY: 8.0}


def test_passes_are_joined_in_order() -> None:
    times = itertools.chain(
        [Sample(float(n), None, None) for n in range(1, 10)], itertools.repeat(Sample(50.0, None, None))
    )
    found, heard = run(Script(lambda _: times), wanted=[EMPTY])
    [joined] = found.points
    assert joined.samples_us == (*map(float, range(1, 10)), *[50.0] * 6)
    assert joined.pass_medians_us == (5.0, 50.0)
    assert joined.stop is StopReason.NOISE
    assert [p.stop for p in heard.points] == [StopReason.ENOUGH, StopReason.NOISE]
    assert joined.pass_stops == (StopReason.ENOUGH, StopReason.NOISE)


def test_the_clock_of_each_pass_is_kept_and_the_samples_that_had_one_are_counted() -> None:
    first = [Sample(8.0, 1500.0 if n % 2 else None, None) for n in range(6)]
    times = itertools.chain(first, itertools.repeat(Sample(8.0, 1600.0, None)))
    [joined] = run(Script(lambda _: times), wanted=[EMPTY])[0].points
    assert joined.pass_clocks_mhz == (1500.0, 1600.0)
    assert joined.clocked_samples == 3 + 6


def test_what_experts_need_is_told_from_the_samples_of_both_passes() -> None:
    wide = Subject(experts(4), Series.COLD)
    counts = itertools.chain([29] * 8, [31] * 8)
    script = Script(steady())
    make = script.rig

    def rig(subject: Subject) -> Any:
        made = make(subject)
        made.renew = lambda _: next(counts)
        return made

    stopwatch: Any = script
    found = Campaign([wide], PARAMETERS, rig, stopwatch)
    found.run(CEILINGS, Heard())
    [joined] = found.points
    # Two warm-ups of each pass use counts too.
    assert np.mean(joined.touched_experts or ()) == 30.0
    need = demand_of(wide, 30.0)
    assert (joined.bytes, joined.flops) == need
    assert joined.floor_us == floor_us(need, Series.COLD, CEILINGS)


def test_experts_are_counted_sample_by_sample() -> None:
    found, _ = run(Script(steady()), wanted=[EXPERTS])
    [p] = found.points
    assert p.touched_experts == (8,) * 12
    assert p.sm_clock_mhz == 1500.0


@given(st.integers(0, 10**6))
def test_passes_go_through_the_points_in_orders_of_their_own(seed: int) -> None:
    wanted = [Subject(mla(1, context), Series.COLD) for context in range(12)]
    orders = []
    for _ in range(2):
        _, heard = run(Script(steady()), wanted=wanted, seed=seed)
        orders.append([p.case for p in heard.points])
    assert orders[0] == orders[1]
    first, second = orders[0][:12], orders[0][12:]
    assert set(first) == set(second) == {s.case for s in wanted}
    assert first != second
    assert first != [s.case for s in wanted]


def test_throttled_samples_are_discarded_counted_and_given_time(no_pauses: list[float]) -> None:
    bad = Sample(99.0, 500.0, DiscardReason.THROTTLED)
    times = itertools.chain([bad] * 4, itertools.repeat(Sample(8.0, 1500.0, None)))
    found, _ = run(Script(lambda _: times), wanted=[EMPTY])
    [p] = found.points
    assert p.discarded == {DiscardReason.THROTTLED: 4}
    assert set(p.samples_us) == {8.0}
    assert no_pauses == pytest.approx([0.05, 0.075, 0.1125, 0.16875])


def test_the_gpu_is_woken_before_each_point_and_after_each_pause() -> None:
    times = itertools.chain([Sample(9.0, 1.0, DiscardReason.THROTTLED)] * 3, steady()(EMPTY))
    script = Script(lambda _: times)
    run(script, wanted=[EMPTY])
    assert script.woken == PARAMETERS.passes + 3


def test_a_sample_that_counts_makes_the_next_pause_short_again(no_pauses: list[float]) -> None:
    bad, good = Sample(9.0, 1.0, DiscardReason.THROTTLED), Sample(8.0, None, None)
    times = itertools.chain([bad, bad, good, bad], itertools.repeat(good))
    run(Script(lambda _: times), wanted=[EMPTY])
    assert no_pauses == pytest.approx([0.05, 0.075, 0.05])


def test_the_least_gpu_time_is_that_of_a_copy_and_not_of_a_graph() -> None:
    rule = replace(RULE, min_gpu_time_s=19e-6, max_samples=100)
    [found] = run(Script(steady(8.0)), wanted=[NORM], rule=rule)[0].points
    # Of 2 us each, twice over.
    assert len(found.samples_us) == PARAMETERS.passes * 10


def test_a_missed_peer_is_why_a_sample_does_not_count_whatever_else_was_wrong() -> None:
    bad = Sample(9.0, 1.0, DiscardReason.HELD_TOO_LONG)
    script = Script(lambda _: itertools.chain([bad] * 2, itertools.repeat(Sample(8.0, None, None))))
    script.faults = itertools.chain([DiscardReason.PEER_MISSED], itertools.repeat(None))
    [found] = run(script, wanted=[EMPTY])[0].points
    assert found.discarded == {DiscardReason.PEER_MISSED: 1, DiscardReason.HELD_TOO_LONG: 1}


def test_pauses_have_an_end(no_pauses: list[float]) -> None:
    times = itertools.chain(
        [Sample(9.0, 1.0, DiscardReason.THROTTLED)] * 30, itertools.repeat(Sample(8.0, None, None))
    )
    run(Script(lambda _: times), wanted=[EMPTY])
    assert max(no_pauses) == campaign.LONGEST_PAUSE_S


def test_a_point_of_which_no_sample_counts_is_not_measured() -> None:
    script = Script(lambda _: itertools.repeat(Sample(9.0, None, DiscardReason.HELD_TOO_LONG)))
    found, heard = run(script, wanted=[EMPTY])
    assert found.points == []
    [failure] = heard.failures
    assert failure.reason == f"empty_kernel: no sample counts ({MOST_DISCARDED} held too long)"


def test_a_point_that_finds_no_room_is_not_measured() -> None:
    script = Script(steady())
    script.broken["make", COPY] = DeviceMemoryError(10**12)
    found, _ = run(script)
    [failure] = found.failures
    assert failure.reason == "the device has no room for 1,000,000,000,000 bytes more"


def test_a_call_that_the_driver_refuses_ends_its_point_alone() -> None:
    script = Script(steady())
    script.broken["verify", NORM] = DeviceError("cuLaunchKernel failed")
    found, _ = run(script)
    assert found.failures == [Failure(NORM, "cuLaunchKernel failed")]
    assert {Subject(p.case, p.series) for p in found.points} == set(SUBJECTS) - {NORM}
    assert script.woken == PARAMETERS.passes * (len(SUBJECTS) - 1) + 1


def test_a_device_that_has_failed_for_good_ends_the_campaign_with_what_there_is() -> None:
    script, heard = Script(steady()), Heard()
    found = campaign_of(script)

    def die(seen: Point) -> None:
        heard.points.append(seen)
        script.is_dead = True

    heard.on_point = die
    with pytest.raises(DeviceError, match="it is gone"):
        found.run(CEILINGS, heard)
    assert len(heard.points) == len(found.points) == len(heard.failures) == 1


def test_points_that_failed_are_not_still_to_come() -> None:
    script, left = Script(steady()), []
    script.broken["verify", NORM] = DeviceError("cuLaunchKernel failed")
    found, heard = campaign_of(script), Heard()
    heard.on_failure = lambda _: left.append(found.visits_left + len(heard.points))
    found.run(CEILINGS, heard)
    assert left == [PARAMETERS.passes * (len(SUBJECTS) - 1)]
    assert found.visits_left == 0


def test_a_sample_whose_peer_was_missed_does_not_count() -> None:
    script = Script(steady())
    script.faults = itertools.chain([DiscardReason.PEER_MISSED] * 3, itertools.repeat(None))
    [found] = run(script, wanted=[EMPTY])[0].points
    assert found.discarded == {DiscardReason.PEER_MISSED: 3}
    assert len(found.samples_us) == PARAMETERS.passes * RULE.min_samples


@pytest.mark.parametrize(("stage", "visits"), [("make", 1), ("verify", 1), ("renew", 1), ("verify again", 1)])
def test_a_wrong_kernel_is_never_timed_again_and_leaves_no_point(stage: str, visits: int) -> None:
    script = Script(steady())
    script.broken[stage, NORM] = WrongResultError(Empty(), "out", "is wrong")
    found, heard = run(script)
    assert [f.subject for f in heard.failures] == [NORM] * visits == [f.subject for f in found.failures]
    assert "out of Empty(): is wrong" in heard.failures[0].reason
    assert {Subject(p.case, p.series) for p in found.points} == set(SUBJECTS) - {NORM}


def test_a_kernel_that_fails_in_its_second_pass_takes_its_first_one_with_it() -> None:
    script, heard = Script(steady()), Heard()
    found = campaign_of(script, [EMPTY])

    def break_it(seen: Point) -> None:
        heard.points.append(seen)
        script.broken["verify again", EMPTY] = WrongResultError(Empty(), "out", "has changed")

    heard.on_point = break_it
    found.run(CEILINGS, heard)
    assert len(heard.points) == len(heard.failures) == 1
    assert found.points == []


@pytest.mark.parametrize("stage", ["renew", "held", "verify again"])
@pytest.mark.parametrize(
    "problem",
    [DeviceError("a time-out"), DeviceMemoryError(10**9), UnmeasurableError(EMPTY.case, "throttled")],
)
def test_what_fails_in_its_second_pass_keeps_its_first_one_where_the_kernel_was_right(
    stage: str, problem: Exception
) -> None:
    script, heard = Script(steady()), Heard()
    found = campaign_of(script, [EMPTY])

    def break_it(seen: Point) -> None:
        heard.points.append(seen)
        script.broken[stage, EMPTY] = problem

    heard.on_point = break_it
    found.run(CEILINGS, heard)
    assert [failure.subject for failure in heard.failures] == [EMPTY]
    assert found.points == heard.points
    assert len(found.points[0].pass_medians_us) == 1
    again, _ = run(Script(steady()), wanted=[EMPTY], points=found.points)
    assert [len(p.pass_medians_us) for p in again.points] == [2]


@pytest.mark.parametrize(
    ("us", "told"),
    [
        (0.0, "samples_us are all 0, which no empty_kernel takes"),
        (1e9, "samples_us[0] is no time of a kernel: 1e+09"),
        (-1.0, "samples_us[0] is negative: -1.0"),
    ],
)
def test_times_that_no_file_takes_end_their_point_alone(us: float, told: str) -> None:
    script = Script(lambda subject: itertools.repeat(Sample(us if subject is EMPTY else 8.0, None, None)))
    found, _ = run(script)
    assert found.failures == [Failure(EMPTY, f"empty_kernel: {told}")]
    assert {Subject(p.case, p.series) for p in found.points} == set(SUBJECTS) - {EMPTY}


def test_what_no_kernel_does_is_a_failure_and_the_rest_goes_on() -> None:
    script = Script(steady())
    script.broken["make", COPY] = UnmeasurableError(COPY.case, "not today")
    found, _ = run(script)
    assert [str(f.reason) for f in found.failures] == ["device_copy size_bytes=1000000: not today"]
    assert len(found.points) == len(SUBJECTS) - 1


@pytest.mark.parametrize("visits", range(2 * len(SUBJECTS) + 1))
def test_a_campaign_cut_anywhere_goes_on_to_the_same_points(visits: int) -> None:
    whole, _ = run(Script(steady()))
    cut, heard = campaign_of(Script(steady())), Heard()

    def stop(_: Point) -> None:
        heard.points.append(_)
        if len(heard.points) == visits:
            raise KeyboardInterrupt

    heard.on_point = stop
    if visits:
        with pytest.raises(KeyboardInterrupt):
            cut.run(CEILINGS, heard)
    assert cut.visits_left == 2 * len(SUBJECTS) - visits
    script = Script(steady())
    rest, after = run(script, points=cut.points)
    assert len(after.points) == 2 * len(SUBJECTS) - visits
    key: Any = lambda p: p.order  # noqa: E731
    assert sorted(rest.points, key=key) == sorted(whole.points, key=key)


def test_an_interrupt_keeps_every_finished_pass() -> None:
    script, heard = Script(steady()), Heard()
    script.broken["held, flushed", COPY] = KeyboardInterrupt()  # type: ignore[assignment]
    found = campaign_of(script)
    with pytest.raises(KeyboardInterrupt):
        found.run(CEILINGS, heard)
    assert found.points == heard.points


def test_the_bandwidth_counts_bytes_read_and_written() -> None:
    found = campaign_of(Script(steady(20.0)))
    assert found.bandwidth_gb_s(COPY) == pytest.approx(100.0)


def test_the_bandwidth_is_measured_as_a_point_is() -> None:
    bad = Sample(999.0, 1.0, DiscardReason.THROTTLED)
    times = itertools.chain([bad] * 3, itertools.repeat(Sample(20.0, None, None)))
    script = Script(lambda _: times)
    assert campaign_of(script).bandwidth_gb_s(COPY) == pytest.approx(100.0)
    warm_up, timed = ["renew", "free"], ["renew", "held, flushed"]
    asked = warm_up * PARAMETERS.warm_ups + timed * (3 + RULE.min_samples)
    assert script.asked(COPY) == ["make", "verify", *asked, "verify again"]
    assert script.woken == 1 + 3


def test_there_is_no_bandwidth_where_no_sample_counts() -> None:
    script = Script(lambda _: itertools.repeat(Sample(9.0, None, DiscardReason.THROTTLED)))
    with pytest.raises(UnmeasurableError, match=f"no sample counts .{MOST_DISCARDED} throttled"):
        campaign_of(script).bandwidth_gb_s(COPY)


def test_needs_are_those_of_the_cost_model() -> None:
    expert_bytes = 3 * 7168 * 256 * 4.5 / 8
    assert demand_of(EXPERTS, None).bytes == pytest.approx(8 * expert_bytes)
    assert demand_of(EXPERTS, 5.0).bytes == pytest.approx(5 * expert_bytes)
    assert demand_of(Subject(mla(1, 1000), Series.COLD), None).bytes == 1000 * 576 * 2
    assert demand_of(COPY, None) == Demand(2 * 10**6, 0)
    assert demand_of(EMPTY, None) == Demand(0, 0)
    one_shot = AllReduceAlgorithm.ONE_SHOT
    standin = cases.ReduceStandin(message_bytes=100, ranks=8, algorithm=one_shot)
    # Eight messages are read and one is written.
    assert demand_of(Subject(standin, Series.WARM), None) == Demand(900, 0)


@pytest.mark.parametrize(
    ("need", "series", "ceilings", "expected"),
    [
        (Demand(10**6, 0), Series.COLD, CEILINGS, 10.0),
        (Demand(10**6, 10**9), Series.COLD, CEILINGS, 10.0),
        (Demand(10**6, 10**9), Series.COLD, Ceilings(copy_bandwidth_gb_s=100.0, bf16_tflops=50.0), 20.0),
        (Demand(10**6, 0), Series.WARM, CEILINGS, 0.0),
        (Demand(10**6, 0), Series.GRAPH, CEILINGS, 0.0),
        (Demand(0, 0), Series.COLD, CEILINGS, 0.0),
    ],
)
def test_the_floor_is_bytes_or_flops_at_the_measured_ceilings(
    need: Demand, series: Series, ceilings: Ceilings, expected: float
) -> None:
    assert floor_us(need, series, ceilings) == pytest.approx(expected)


def test_points_of_a_file_are_those_of_the_campaign() -> None:
    earlier = point(EMPTY.case, [1.0, 2.0], EMPTY.series, pass_medians_us=(1.0, 2.0))
    found, heard = run(Script(steady()), wanted=[EMPTY], points=[earlier])
    assert heard.points == []
    assert found.points == [earlier]


def test_the_tiny_plan_can_be_scripted_from_end_to_end() -> None:
    wanted = [s for s in subjects(PlanName.TINY, True, 1) if not isinstance(s.case, cases.Experts)]
    found, _ = run(Script(steady()), wanted=wanted)
    assert len(found.points) == len(wanted)
