"""A sample is taken in nvbench's order, and counts only where the clock and the hold were right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuda.launch import Hold, Launch, Stamp, Sweep
from cuda.sampling import FLUSHED_CACHES, SHORTEST_CLOCK_NS, WAKE_S, Stopwatch
from hwmodels.measured import DiscardReason

ENTRIES = {type_().launches()[0].entry: type_.__name__.lower() for type_ in (Hold, Stamp)}
ENTRIES[Sweep(16).launches()[0].entry] = "flush"
L2_BYTES = 1 << 20


class Log(list[str]):
    """What a machine was asked to do, in order."""


class FakeGpu:
    """Writes down what is queued; its kernels take *us*, its stamps say *mhz*."""

    sm_mhz = 2000.0
    processors = 5
    l2_bytes = L2_BYTES

    def __init__(self, log: Log, name: str = "", us: float = 40.0, mhz: float = 2000.0) -> None:
        self.log, self.name, self.us, self.mhz = log, name, us, mhz
        self.stamps: Any = None
        self.stamp_ns = 2 * SHORTEST_CLOCK_NS
        self.skew_cycles = 0
        self.silent: set[int] = set()
        self._now_ns, self._cycles = 10**15, 10**13
        self.go: Any = None
        self.times_out = False
        self.timed_out: Any = None
        self.stream = SimpleNamespace(synchronize=self._ran)
        self.driver = SimpleNamespace(pycuda=SimpleNamespace(Event=self._event))
        self._events = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def _note(self, what: str) -> None:
        self.log.append(f"{self.name}{what}")

    def _ran(self) -> None:
        self._note("synchronise" if self.go is None or self.go[0] else "synchronise while held")

    def _event(self) -> Any:
        self._events += 1
        word = "start event" if self._events == 1 else "stop event"
        return SimpleNamespace(record=lambda _: self._note(word), time_since=lambda _: self.us / 1e3)

    def mapped(self, count: int, dtype: Any) -> tuple[Any, int]:
        array = np.zeros(count, dtype)
        if count == 4:
            self.stamps = array
        elif self.go is None:
            self.go = array
        else:
            self.timed_out = array
        return array, 0

    def allocate(self, size: int) -> int:
        self._note(f"allocate {size}")
        return 0

    def _stamp(self, place: int) -> None:
        """The second one is of another SM where there is a skew; one that is silent writes nothing."""
        if place:
            self._now_ns += self.stamp_ns
            self._cycles += round(self.stamp_ns * self.mhz / 1e3)
        if place not in self.silent:
            self.stamps[2 * place :][:2] = [self._now_ns, self._cycles + place * self.skew_cycles]

    def queue(self, launches: tuple[Launch, ...], addresses: Any) -> None:
        what = ENTRIES[launches[0].entry]
        if what == "stamp":
            assert launches[0].grid == (self.processors, 1, 1)
            self._stamp(addresses["stamp"] // 16)
        if what == "hold":
            assert not self.timed_out[0]
            self.timed_out[0] = self.times_out
        self._note(what)


def stopwatch(*gpus: FakeGpu, throttle_share: float = 0.75) -> Stopwatch:
    for gpu in gpus[1:]:
        # They are held by the flag of the first.
        gpu.go = np.ones(1)
    machines: Any = gpus
    found = Stopwatch(machines, throttle_share)
    gpus[0].log.clear()
    return found


COLD = [
    *("flush", "synchronise", "hold", "stamp", "start event"),
    *("kernel", "stop event", "stamp", "synchronise"),
]


def test_a_cold_sample_is_taken_in_nvbenchs_order() -> None:
    log = Log()
    gpu = FakeGpu(log)
    sample = stopwatch(gpu).held([lambda: log.append("kernel")], flush=True)
    assert log == COLD
    assert sample == (40.0, 2000.0, None)
    assert gpu.go[0] == 1


def test_a_warm_sample_leaves_the_cache_alone_and_a_free_one_the_stream() -> None:
    log = Log()
    watch = stopwatch(FakeGpu(log))
    watch.held([lambda: log.append("kernel")], flush=False)
    assert log == COLD[1:]
    log.clear()
    watch.free([lambda: log.append("kernel")])
    assert log == [step for step in COLD[1:] if step != "hold"]


def test_the_stream_is_held_while_the_kernel_is_queued_and_let_go_before_waiting() -> None:
    gpu = FakeGpu(Log())
    flags = []
    stopwatch(gpu).held([lambda: flags.append(int(gpu.go[0]))], flush=False)
    assert flags == [0]
    assert "synchronise while held" not in gpu.log


def test_a_kernel_that_cannot_be_queued_lets_the_stream_go() -> None:
    gpu = FakeGpu(Log())

    def fail() -> None:
        raise KeyboardInterrupt

    watch = stopwatch(gpu)
    with pytest.raises(KeyboardInterrupt):
        watch.held([fail], flush=False)
    assert gpu.go[0] == 1


def test_modules_are_loaded_before_any_stream_is_held() -> None:
    gpu = FakeGpu(Log())
    machines: Any = [gpu]
    Stopwatch(machines, 0.75)
    kinds = [step for step in gpu.log if not step.startswith("allocate")]
    assert kinds == ["flush", "hold", "stamp", "start event", "stop event", "stamp", "synchronise"]


def test_waking_keeps_the_gpu_busy_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    log, ticks = Log(), iter([0.0, 0.001, WAKE_S / 2, WAKE_S])
    watch = stopwatch(FakeGpu(log))
    monkeypatch.setattr("cuda.sampling.time.monotonic", lambda: next(ticks))
    watch.wake()
    assert log == ["flush", "synchronise"] * 2


def test_the_flush_reads_more_than_the_cache_holds() -> None:
    gpu = FakeGpu(Log())
    machines: Any = [gpu]
    assert Stopwatch(machines, 0.75).flush_bytes == FLUSHED_CACHES * L2_BYTES > L2_BYTES
    assert f"allocate {FLUSHED_CACHES * L2_BYTES}" in gpu.log


@pytest.mark.parametrize(
    ("mhz", "counts"), [(2000.0, True), (1501.0, True), (1500.0, True), (1499.0, False), (900.0, False)]
)
def test_a_sample_below_its_share_of_the_clock_does_not_count(mhz: float, counts: bool) -> None:
    sample = stopwatch(FakeGpu(Log(), mhz=mhz)).held([lambda: None], flush=False)
    assert (sample.discard is None) == counts
    assert counts or sample.discard is DiscardReason.THROTTLED
    assert sample.sm_mhz == pytest.approx(mhz, rel=1e-3)


def test_stamps_too_close_together_say_nothing_of_the_clock() -> None:
    gpu = FakeGpu(Log(), mhz=1.0)
    gpu.stamp_ns = SHORTEST_CLOCK_NS - 1
    sample = stopwatch(gpu).held([lambda: None], flush=False)
    assert (sample.sm_mhz, sample.discard) == (None, None)


@pytest.mark.parametrize("skew_cycles", [-(10**9), -80_000])
def test_clocks_that_go_backwards_say_nothing(skew_cycles: int) -> None:
    gpu = FakeGpu(Log())
    gpu.skew_cycles = skew_cycles
    sample = stopwatch(gpu).held([lambda: None], flush=False)
    assert (sample.sm_mhz, sample.discard) == (None, None)


@pytest.mark.parametrize("place", [0, 1])
def test_a_stamp_that_was_not_written_says_nothing_and_no_older_one_is_taken_for_it(place: int) -> None:
    gpu = FakeGpu(Log())
    watch = stopwatch(gpu)
    assert watch.held([lambda: None], flush=False).sm_mhz == 2000.0
    gpu.silent = {place}
    assert watch.held([lambda: None], flush=False).sm_mhz is None


def test_a_hold_that_timed_out_is_not_held_against_a_free_sample() -> None:
    gpu = FakeGpu(Log())
    watch = stopwatch(gpu)
    gpu.times_out = True
    assert watch.held([lambda: None], flush=False).discard is DiscardReason.HELD_TOO_LONG
    assert watch.free([lambda: None]).discard is None


def test_a_hold_that_timed_out_does_not_count_and_is_forgotten() -> None:
    gpu = FakeGpu(Log())
    watch = stopwatch(gpu)
    gpu.times_out = True
    assert watch.held([lambda: None], flush=False).discard is DiscardReason.HELD_TOO_LONG
    gpu.times_out = False
    assert watch.held([lambda: None], flush=False).discard is None


def test_of_several_gpus_the_slowest_counts_and_all_are_held_before_any_is_let_go() -> None:
    log = Log()
    first, second = FakeGpu(log, "a ", us=30.0, mhz=1900.0), FakeGpu(log, "b ", us=50.0, mhz=1800.0)
    watch = stopwatch(first, second)
    sample = watch.held([lambda: log.append("a kernel"), lambda: log.append("b kernel")], flush=True)
    assert sample == (50.0, 1800.0, None)
    assert [step for step in log if step.startswith("a ")] == [f"a {step}" for step in COLD]
    assert [step for step in log if step.startswith("b ")] == [f"b {step}" for step in COLD]
    assert log.index("b hold") < max(i for i, step in enumerate(log) if step == "a synchronise")


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_hold_that_timed_out_on_any_gpu_does_not_count(late: int) -> None:
    gpus = [FakeGpu(Log()) for _ in range(3)]
    watch = stopwatch(*gpus)
    gpus[late].times_out = True
    assert watch.held([lambda: None] * 3, flush=False).discard is DiscardReason.HELD_TOO_LONG
    gpus[late].times_out = False
    assert watch.held([lambda: None] * 3, flush=False).discard is None


def test_one_queue_takes_the_first_gpu_alone() -> None:
    log = Log()
    watch = stopwatch(FakeGpu(log, "a ", us=30.0), FakeGpu(log, "b ", us=50.0))
    assert watch.held([lambda: None], flush=True).us == 30.0
    assert not [step for step in log if step.startswith("b ")]


def test_a_call_is_timed_on_an_idle_gpu_by_the_hosts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    watch = stopwatch(FakeGpu(log))
    ticks = iter([1_000, 8_500])
    monkeypatch.setattr("cuda.sampling.time.perf_counter_ns", lambda: next(ticks))
    assert watch.on_host(lambda: log.append("call")) == (7.5, None, None)
    assert log == ["synchronise", "call", "synchronise"]
