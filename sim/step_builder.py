"""Ways in which ops are added to the graph of a step: per rank, collective, host, copies, whole passes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import assert_never

from hwmodels.work import (
    ContextWork,
    Copy,
    CopyDirection,
    EagerLaunch,
    GraphLaunch,
    HostTask,
    HostWork,
    LinkWork,
    LooseLaunch,
    Work,
)
from sim.graph import Component, GraphBuilder, Lane, Phase, StepGraph
from sim.kernels import CudaStream, Kernel
from sim.setup import LaunchMode, Setup

PYTHON = Lane("host", "python")
RANK_0_COPY = Lane("gpu0", "copy")


def _graph_of(kernels: list[Kernel]) -> GraphLaunch:
    return GraphLaunch(sum(kernel.launches for kernel in kernels))


def _attends(kernel: Kernel) -> bool:
    """True for what cannot be captured with the rest: attention of target and drafter."""
    return kernel.component is Component.ATTENTION or isinstance(kernel.work, ContextWork)


class StepBuilder:
    """The graph of a step of *setup* under construction.

    A step that is launched *ahead* was launched while the one before it ran: its kernels wait
    for no launch, and the host works beside the GPUs.
    """

    def __init__(self, setup: Setup, ahead: bool = False) -> None:
        self.setup = setup
        self.ahead = ahead
        self.ranks = setup.machine.ranks
        self._builder = GraphBuilder()
        self._link = Lane(setup.machine.interconnect.link, "root0")
        self._last: dict[CudaStream, list[int]] = {stream: [] for stream in CudaStream}
        self._newest = CudaStream.MAIN

    def build(self) -> StepGraph:
        """The graph so far."""
        return self._builder.build()

    @property
    def newest(self) -> list[int]:
        """The last op of every rank's main stream."""
        return self._last[CudaStream.MAIN]

    def add(
        self,
        phase: Phase,
        component: Component,
        work: Work,
        lanes: list[Lane],
        after: Iterable[int] = (),
        rank: int | None = None,
    ) -> int:
        """Append one op."""
        return self._builder.add(phase, component, work, lanes, after, rank)

    def host(
        self,
        phase: Phase,
        component: Component,
        task: HostTask,
        after: Iterable[int] = (),
        items: int = 1,
    ) -> int:
        """Work of the Python thread."""
        return self.add(phase, component, HostWork(task, items), [PYTHON], after)

    def launch(self, phase: Phase, kernels: int) -> list[int]:
        """Launch *kernels* between two graphs; what they wait for."""
        op = self.add(phase, Component.LAUNCH, LooseLaunch(kernels), [PYTHON])
        return [] if self.ahead else [op]

    def copy(self, phase: Phase, size_bytes: int, direction: CopyDirection, after: Iterable[int]) -> int:
        """A copy on rank 0's copy engine, or on every rank's towards the devices."""
        lanes = [RANK_0_COPY]
        if direction is CopyDirection.TO_DEVICE:
            lanes = [Lane(f"gpu{rank}", "copy") for rank in range(self.ranks)]
        return self.add(phase, Component.COPIES, Copy(size_bytes, direction), lanes, after)

    def per_rank(
        self, phase: Phase, component: Component, work: Work, after: Iterable[int] = ()
    ) -> list[int]:
        """The same work on every rank's main stream."""
        return self._on_ranks(phase, component, work, CudaStream.MAIN, [tuple(after)] * self.ranks)

    def collective(self, phase: Phase, component: Component, work: Work, after: Iterable[int] = ()) -> int:
        """One op on every rank's main stream and the link."""
        lanes = [Lane(f"gpu{rank}", CudaStream.MAIN.value) for rank in range(self.ranks)]
        op = self.add(phase, component, work, [*lanes, self._link], after)
        self._last[CudaStream.MAIN] = [op] * self.ranks
        self._newest = CudaStream.MAIN
        return op

    def forward(
        self,
        phase: Phase,
        kernels: list[Kernel],
        mode: LaunchMode,
        launch_after: Iterable[int],
        kernels_after: Iterable[int] = (),
    ) -> None:
        """Launch and run *kernels* on every rank.

        *launch_after* holds up the first launch, *kernels_after* the first kernels.
        """
        waits = tuple(kernels_after)
        match mode:
            case LaunchMode.GRAPH:
                launch = self._launch(phase, _graph_of(kernels), launch_after)
                self._run_all(phase, kernels, waits if self.ahead else (*waits, launch))
            case LaunchMode.EAGER:
                self._run_eagerly(phase, kernels, launch_after, waits)
            case LaunchMode.PIECEWISE:
                self._run_piecewise(phase, kernels, launch_after, waits)
            case _:
                assert_never(mode)

    def _run_piecewise(
        self,
        phase: Phase,
        kernels: list[Kernel],
        launch_after: Iterable[int],
        waits: tuple[int, ...],
    ) -> None:
        """A graph of what lies between two attentions, each attention by itself; launches queue."""
        for attends, group in groupby(kernels, _attends):
            part = list(group)
            if attends:
                self._run_eagerly(phase, part, launch_after, waits)
            else:
                launch = self._launch(phase, _graph_of(part), launch_after)
                self._run_all(phase, part, (*waits, launch))
            launch_after, waits = (), ()

    def _run_all(self, phase: Phase, kernels: list[Kernel], waits: tuple[int, ...]) -> None:
        for kernel in kernels:
            self._run(phase, kernel, waits)
            waits = ()

    def _run_eagerly(
        self,
        phase: Phase,
        kernels: list[Kernel],
        launch_after: Iterable[int],
        waits: tuple[int, ...],
    ) -> None:
        """Every kernel waits for its own launch; the launches queue on the host."""
        for kernel in kernels:
            if kernel.launches:
                collective = isinstance(kernel.work, LinkWork)
                work = EagerLaunch(kernel.launches, collective)
                waits = (*waits, self._launch(phase, work, launch_after))
                launch_after = ()
            self._run(phase, kernel, waits)
            waits = ()

    def _launch(self, phase: Phase, work: Work, after: Iterable[int]) -> int:
        where = Phase.DISPATCH if phase is Phase.VERIFY else phase
        return self.add(where, Component.LAUNCH, work, [PYTHON], after)

    def _run(self, phase: Phase, kernel: Kernel, waits: tuple[int, ...]) -> None:
        if isinstance(kernel.work, LinkWork):
            self.collective(phase, kernel.component, kernel.work, waits)
            return
        other_stream = self._other_stream(kernel)
        after = [(*waits, op) for op in other_stream] if other_stream else [waits] * self.ranks
        self._on_ranks(phase, kernel.component, kernel.work, kernel.stream, after)

    def _other_stream(self, kernel: Kernel) -> list[int]:
        """Per rank the op of the other stream that *kernel* waits for; empty where none."""
        if kernel.joins:
            return self._last[CudaStream.SIDE]
        if kernel.stream is CudaStream.SIDE and self._newest is CudaStream.MAIN:
            return self._last[CudaStream.MAIN]
        return []

    def _on_ranks(
        self,
        phase: Phase,
        component: Component,
        work: Work,
        stream: CudaStream,
        after: list[tuple[int, ...]],
    ) -> list[int]:
        ops = [
            self.add(phase, component, work, [Lane(f"gpu{rank}", stream.value)], after[rank], rank)
            for rank in range(self.ranks)
        ]
        self._last[stream] = ops
        self._newest = stream
        return ops
