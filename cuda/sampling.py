"""One sample at a time, in nvbench's order, on one GPU or on several at once.

Flush, synchronise, hold, stamp, start event, launch, stop event, stamp, release, synchronise: all
that is timed is queued while the stream is held, so launch latency is in no interval, and the two
stamps give the clock that the SMs ran at. After NVIDIA/nvbench, ``detail/measure_cold.cuh``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from cuda import launch
from cuda.device import Gpu
from cuda.launch import Element
from hwmodels.measured import DiscardReason

FLUSHED_CACHES = 2
"""The flush reads so many times the L2 cache: it evicts, and leaves nothing to be written back. Chosen."""
SHORTEST_CLOCK_NS = 20_000
"""Stamps closer than this do not tell the clock: the timer ticks in microseconds on some GPUs. Chosen."""
STAMP_WORDS = 2
WAKE_S = 0.02
"""Of work before a point, so that the clock has been raised. Chosen."""

Queue = Callable[[], object]


class Sample(NamedTuple):
    """One execution."""

    us: float
    """The slowest GPU's."""
    sm_mhz: float | None
    """The slowest SM clock, where the stamps can tell."""
    discard: DiscardReason | None


class _Bench:
    """What timing needs on one GPU."""

    def __init__(self, gpu: Gpu, go: int) -> None:
        self.gpu = gpu
        sweep = launch.Sweep(FLUSHED_CACHES * gpu.l2_bytes // 16 * 16)
        self._sweep = sweep.launches()
        self._swept = {buffer.name: gpu.allocate(buffer.bytes) for buffer in sweep.buffers()}
        self.stamps, self._stamp = gpu.mapped(2 * STAMP_WORDS, Element.U64.dtype)
        # A stamp comes from one SM, whose clock the other stamp is told from: one block finds it.
        self._stamps = [each._replace(grid=(gpu.processors, 1, 1)) for each in launch.Stamp().launches()]
        self.timed_out, timed_out = gpu.mapped(1, Element.U32.dtype)
        self._flags = {"go": go, "timed_out": timed_out}
        self.begin, self.end = gpu.driver.pycuda.Event(), gpu.driver.pycuda.Event()

    def flush(self) -> None:
        self.gpu.queue(self._sweep, self._swept)

    def reset(self) -> None:
        """Forget the last sample, whichever way the next one is taken."""
        self.timed_out[:] = 0
        self.stamps[:] = 0

    def hold(self) -> None:
        self.gpu.queue(launch.Hold().launches(), self._flags)

    def stamp(self, place: int) -> None:
        address = self._stamp + place * STAMP_WORDS * Element.U64.dtype.itemsize
        self.gpu.queue(self._stamps, {"stamp": address})

    def timed(self, queue: Queue) -> None:
        """Queue stamps and events around what *queue* queues."""
        self.stamp(0)
        self.begin.record(self.gpu.stream)
        queue()
        self.end.record(self.gpu.stream)
        self.stamp(1)

    @property
    def us(self) -> float:
        return float(self.end.time_since(self.begin)) * 1e3

    @property
    def sm_mhz(self) -> float | None:
        begin_ns, begin_cycles, end_ns, end_cycles = (int(value) for value in self.stamps)
        unwritten = not begin_ns or not end_ns
        if unwritten or end_ns - begin_ns < SHORTEST_CLOCK_NS or end_cycles <= begin_cycles:
            return None
        return (end_cycles - begin_cycles) / (end_ns - begin_ns) * 1e3


class Stopwatch:
    """Takes samples on the first of *gpus*, as many as there are queues.

    A sample below *throttle_share* of the default SM clock does not count.
    """

    def __init__(self, gpus: Sequence[Gpu], throttle_share: float) -> None:
        self._throttle_share = throttle_share
        with gpus[0].active():
            self._go, address = gpus[0].mapped(1, Element.U32.dtype)
        self._benches: list[_Bench] = []
        for gpu in gpus:
            with gpu.active():
                self._benches.append(_Bench(gpu, address))
        self._load_support()

    def _load_support(self) -> None:
        """Modules load when first launched, which a held stream would wait for."""
        self._go[0] = 1
        for bench in self._benches:
            with bench.gpu.active():
                bench.flush()
                bench.hold()
                bench.timed(lambda: None)
                bench.gpu.stream.synchronize()

    def active(self) -> AbstractContextManager[None]:
        """The first GPU is current in here; DeviceError for whatever its driver refuses."""
        return self._benches[0].gpu.active()

    @property
    def flush_bytes(self) -> int:
        """What a flush reads on the first GPU."""
        return FLUSHED_CACHES * self._benches[0].gpu.l2_bytes // 16 * 16

    def wake(self) -> None:
        """Keep the first GPU busy for a moment: an idle one lowers its clock, and raises it again late."""
        bench, begin = self._benches[0], time.monotonic()
        while time.monotonic() - begin < WAKE_S:
            with bench.gpu.active():
                bench.flush()
                bench.gpu.stream.synchronize()

    def held(self, queues: Sequence[Queue], flush: bool) -> Sample:
        """What *queues*, one a GPU, take from the moment all are let go."""
        return self._timed(queues, flush, hold=True)

    def free(self, queues: Sequence[Queue]) -> Sample:
        """The same without holding: what the host takes to queue it is inside."""
        return self._timed(queues, flush=False, hold=False)

    def on_host(self, call: Queue) -> Sample:
        """What *call* takes until it comes back, the GPU idle before it."""
        gpu = self._benches[0].gpu
        with gpu.active():
            gpu.stream.synchronize()
            begin = time.perf_counter_ns()
            call()
            took_ns = time.perf_counter_ns() - begin
            gpu.stream.synchronize()
        return Sample(took_ns / 1e3, None, None)

    def _timed(self, queues: Sequence[Queue], flush: bool, hold: bool) -> Sample:
        benches = self._benches[: len(queues)]
        self._settle(benches, flush)
        self._go[0] = 0
        try:
            for bench, queue in zip(benches, queues, strict=True):
                bench.reset()
                with bench.gpu.active():
                    if hold:
                        bench.hold()
                    bench.timed(queue)
        finally:
            # Also where queueing failed or was interrupted: a held stream would spin until its time-out.
            self._go[0] = 1
        self._settle(benches, flush=False)
        return self._sample(benches)

    @staticmethod
    def _settle(benches: Sequence[_Bench], flush: bool) -> None:
        """Wait until all that is queued has run."""
        for bench in benches:
            with bench.gpu.active():
                if flush:
                    bench.flush()
                bench.gpu.stream.synchronize()

    def _sample(self, benches: Sequence[_Bench]) -> Sample:
        us = max(self._us(bench) for bench in benches)
        clocks = [mhz for bench in benches if (mhz := bench.sm_mhz) is not None]
        slowest = min(clocks, default=None)
        return Sample(us, slowest, self._fault(benches, slowest))

    @staticmethod
    def _us(bench: _Bench) -> float:
        with bench.gpu.active():
            return bench.us

    def _fault(self, benches: Sequence[_Bench], sm_mhz: float | None) -> DiscardReason | None:
        if any(bench.timed_out[0] for bench in benches):
            return DiscardReason.HELD_TOO_LONG
        least = self._throttle_share * benches[0].gpu.sm_mhz
        return DiscardReason.THROTTLED if sm_mhz is not None and sm_mhz < least else None
