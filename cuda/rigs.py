"""What a case needs to be timed: its memory filled, its launches ready, its results checked.

A rig is checked against ``cuda.reference`` before anything is timed. Afterwards what the last
timed launch left must not be poison, and the same inputs must give the same bits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

import numpy as np

from cuda import launch, reference
from cuda.device import Gpu, Memory
from cuda.launch import AnyArray, ExpertLayer, Operation
from cuda.operations import UnmeasurableError, operation_of
from cuda.plan import MOST_HELD_NODES, Subject
from cuda.reference import WrongResultError
from cuda.sampling import Queue
from hwmodels import cases
from hwmodels.cases import AllReduceAlgorithm, AnyCase
from hwmodels.measured import DiscardReason, Series
from hwmodels.work import CopyDirection

CHECKED_EXPERTS = 16
"""Experts that the check of a large layer routes to: each takes numpy a tenth of a second. Chosen."""
WEIGHTS: dict[type, tuple[str, ...]] = {ExpertLayer: ("gate_up", "down"), launch.Gemm: ("weight",)}
"""Inputs that do not depend on the number of tokens: shared by all sizes of it."""
DRIVER = "driver"
COPY_ENGINE = "copy engine"


class Timing(Enum):
    """Which clock a case is read by."""

    HELD = "held"
    """Events on a stream that was held until all was queued."""
    FREE = "free"
    """Events, what the host takes to queue inside."""
    ON_HOST = "on host"
    """The host's clock around the call."""


class Rig(Protocol):
    """A case, ready to be timed."""

    kernel: str
    """The instruction path, or who does it."""
    timing: Timing

    def renew(self, luck: np.random.Generator) -> int | None:
        """Inputs for the next sample, where each has its own; the experts they touch, where they do."""

    def queues(self) -> Sequence[Queue]:
        """What queues one execution, for each GPU."""

    def fault(self) -> DiscardReason | None:
        """Why the execution just timed does not count, whatever it took."""

    def verify(self) -> None:
        """WrongResultError where the results are wrong; called before timing."""

    def verify_again(self) -> None:
        """WrongResultError where timing has left no result, or the results have changed since."""


class _Alone:
    """A rig on one GPU."""

    def fault(self) -> None:
        """It waits for no other GPU, so there is none to miss."""


class Nothing(_Alone):
    """Nothing at all, or a kernel that has no memory."""

    timing = Timing.HELD

    def __init__(self, gpu: Gpu, operation: Operation | None) -> None:
        self.kernel = DRIVER if operation is None else operation.path.value
        launches = () if operation is None else operation.launches()
        self._gpu = gpu
        self._queue: Queue = partial(gpu.queue, launches, {})

    def renew(self, luck: np.random.Generator) -> None:
        """Nothing differs between samples."""

    def queues(self) -> Sequence[Queue]:
        """One."""
        return (self._queue,)

    def verify(self) -> None:
        """There is nothing that could be wrong; but its kernel is loaded then."""
        self._queue()
        self._gpu.stream.synchronize()

    def verify_again(self) -> None:
        """There is nothing that could be wrong."""


class Kernels(_Alone):
    """An operation on one GPU."""

    timing = Timing.HELD

    def __init__(self, gpu: Gpu, operation: Operation, inputs: dict[str, AnyArray], memory: Memory) -> None:
        self.kernel = operation.path.value
        self._gpu = gpu
        self._operation = operation
        self._inputs = inputs
        self._memory = memory
        self._first: dict[str, AnyArray] = {}

    def renew(self, luck: np.random.Generator) -> int | None:
        """A fresh routing for experts."""
        if not isinstance(self._operation, ExpertLayer):
            return None
        routing = reference.route(luck, self._operation)
        self._memory.put(routing)
        return int(routing["active"][0])

    def queues(self) -> Sequence[Queue]:
        """One."""
        return (self._queue,)

    def _queue(self) -> None:
        self._gpu.queue(self._operation.launches(), self._memory.addresses)

    def verify(self) -> None:
        """Against the reference."""
        self._first = self._run_once()
        reference.check(self._operation, self._inputs, self._first)
        self._memory.poison()

    def verify_again(self) -> None:
        """Bit for bit against the results that were verified."""
        for name in self._memory.still_poisoned():
            raise WrongResultError(self._operation, name, "no timed launch has written it")
        for name, array in self._run_once().items():
            if array.tobytes() != self._first[name].tobytes():
                raise WrongResultError(self._operation, name, "changed while it was timed")

    def _run_once(self) -> dict[str, AnyArray]:
        self._memory.fill(self._inputs)
        self._queue()
        self._gpu.stream.synchronize()
        return self._memory.results()


class StandIn(Kernels):
    """The sum of several inputs on one GPU, whose addresses are an input."""

    def __init__(self, gpu: Gpu, operation: launch.AllReduceStandIn, luck: np.random.Generator) -> None:
        self._ranks = reference.make_rank_inputs(operation, luck)
        addresses = [gpu.allocate(values.nbytes) for values in self._ranks]
        for address, values in zip(addresses, self._ranks, strict=True):
            gpu.upload(address, values)
        inputs = {"inputs": np.array(addresses, np.uint64)}
        super().__init__(gpu, operation, inputs, Memory(gpu, operation, {}))

    def verify(self) -> None:
        """Bit for bit against the sum in the order of ranks."""
        self._first = self._run_once()
        if self._first["out"].tobytes() != reference.expect_sum(self._ranks).tobytes():
            raise WrongResultError(self._operation, "out", "is not the sum of the inputs")
        self._memory.poison()


class HostCopy(_Alone):
    """A pinned asynchronous copy, with what the host takes to ask for it."""

    timing = Timing.FREE
    kernel = COPY_ENGINE

    def __init__(self, gpu: Gpu, case: cases.HostCopy, luck: np.random.Generator) -> None:
        self._gpu = gpu
        self._to_host = case.direction is CopyDirection.TO_HOST
        self._sent = luck.integers(0, 256, case.size_bytes, np.uint8)
        self._pinned = gpu.driver.pycuda.pagelocked_empty(case.size_bytes, np.uint8)
        self._address = gpu.allocate(case.size_bytes)

    def renew(self, luck: np.random.Generator) -> None:
        """The same bytes each time."""

    def queues(self) -> Sequence[Queue]:
        """One."""
        return (self._copy,)

    def _copy(self) -> None:
        copies = self._gpu.driver.pycuda
        if self._to_host:
            copies.memcpy_dtoh_async(self._pinned, self._address, self._gpu.stream)
        else:
            copies.memcpy_htod_async(self._address, self._pinned, self._gpu.stream)

    def verify(self) -> None:
        """What arrives is what was sent."""
        blank = np.zeros_like(self._sent)
        self._pinned[:] = blank if self._to_host else self._sent
        self._gpu.upload(self._address, self._sent if self._to_host else blank)
        self._copy()
        self._gpu.stream.synchronize()
        self._compare()

    def verify_again(self) -> None:
        """It is still there."""
        self._compare()

    def _compare(self) -> None:
        arrived = np.empty_like(self._sent)
        self._gpu.driver.pycuda.memcpy_dtoh(arrived, self._address)
        for place in (arrived, self._pinned):
            if not np.array_equal(place, self._sent):
                raise WrongResultError(launch.Copy(len(self._sent)), "copied", "differs from what was sent")


class EmptyGraph(Nothing):
    """Replays a graph of *nodes* empty kernels, read by *timing*."""

    def __init__(self, gpu: Gpu, nodes: int, timing: Timing) -> None:
        super().__init__(gpu, launch.Empty())
        self.kernel = DRIVER
        self.timing = timing
        # A kernel loads when it is first launched, which must not happen while it is captured.
        self._queue()
        gpu.stream.synchronize()
        self._queue = gpu.graph(partial(gpu.queue, launch.Empty().launches(), {}), nodes).launch


class Repeated(_Alone):
    """*copies* of *rig*'s work in one graph."""

    def __init__(self, gpu: Gpu, rig: Rig, copies: int) -> None:
        self.kernel = rig.kernel
        self.timing = rig.timing
        self._gpu = gpu
        self._rig = rig
        self._copies = copies
        self._launches: tuple[Queue, ...] = ()

    def renew(self, luck: np.random.Generator) -> int | None:
        """As the work by itself."""
        return self._rig.renew(luck)

    def queues(self) -> Sequence[Queue]:
        """One, once it is verified."""
        return self._launches

    def verify(self) -> None:
        """As the work by itself, which is captured then: it has run, so all its kernels are loaded."""
        self._rig.verify()
        [queue] = self._rig.queues()
        self._launches = (self._gpu.graph(queue, self._copies).launch,)

    def verify_again(self) -> None:
        """As the work by itself."""
        self._rig.verify_again()


class Rigs:
    """Makes rigs on *gpu*, with *graph_copies* in a graph; what differs in tokens shares its weights."""

    def __init__(self, gpu: Gpu, seed: int, graph_copies: int) -> None:
        self._gpu = gpu
        self._seed = seed
        self._graph_copies = graph_copies
        self._weights: dict[Any, tuple[dict[str, AnyArray], dict[str, int]]] = {}

    def rig(self, subject: Subject) -> Rig:
        """A rig for *subject*; UnmeasurableError where there is none."""
        rig = self._alone(subject.case, np.random.default_rng(self._seed))
        return Repeated(self._gpu, rig, self._graph_copies) if subject.series is Series.GRAPH else rig

    def _alone(self, case: AnyCase, luck: np.random.Generator) -> Rig:
        gpu = self._gpu
        match case:
            case cases.EmptyInterval():
                return Nothing(gpu, None)
            case cases.EmptyKernel():
                return Nothing(gpu, operation_of(case, gpu.processors))
            case cases.HostCopy():
                return HostCopy(gpu, case, luck)
            case cases.GraphLaunch():
                return EmptyGraph(gpu, case.nodes, Timing.ON_HOST)
            case cases.GraphReplay() if case.nodes > MOST_HELD_NODES:
                raise UnmeasurableError(case, f"a held stream takes {MOST_HELD_NODES} nodes")
            case cases.GraphReplay():
                return EmptyGraph(gpu, case.nodes, Timing.HELD)
            case cases.ReduceStandin():
                return StandIn(gpu, _standin(case), luck)
            case _:
                return self._kernels(gpu, operation_of(case, gpu.processors), luck)

    def _kernels(self, gpu: Gpu, operation: Operation, luck: np.random.Generator) -> Rig:
        match operation:
            case ExpertLayer():
                # Checked with few experts, all tokens among them; timed with all.
                own = {"x": _activations(operation.tokens, operation.hidden, luck)}
                own |= _few_experts(operation, luck)
            case launch.Gemm():
                own = {"x": _activations(operation.tokens, operation.columns, luck)}
            case _:
                inputs = reference.make_inputs(operation, luck)
                return Kernels(gpu, operation, inputs, Memory(gpu, operation, {}))
        weights, addresses = self._shared_weights(gpu, operation, luck)
        return Kernels(gpu, operation, weights | own, Memory(gpu, operation, addresses))

    def _shared_weights(
        self, gpu: Gpu, operation: Operation, luck: np.random.Generator
    ) -> tuple[dict[str, AnyArray], dict[str, int]]:
        """The weights of *operation* and their addresses, made when first asked for."""
        buffers = {buffer.name: buffer for buffer in operation.buffers()}
        names = WEIGHTS[type(operation)]
        key = (type(operation), *(buffers[name].shape for name in names))
        if key not in self._weights:
            inputs = reference.make_inputs(operation, luck)
            arrays = {name: inputs[name] for name in names}
            addresses = {name: gpu.allocate(buffers[name].bytes) for name in names}
            for name, array in arrays.items():
                gpu.upload(addresses[name], array)
            self._weights[key] = arrays, addresses
        return self._weights[key]


def _activations(tokens: int, width: int, luck: np.random.Generator) -> AnyArray:
    return reference.to_bf16(luck.standard_normal((tokens, width)))


def _few_experts(layer: ExpertLayer, luck: np.random.Generator) -> dict[str, AnyArray]:
    """A routing of all tokens to a few experts of the layer."""
    few = luck.permutation(layer.experts)[: max(layer.top_k, CHECKED_EXPERTS)]
    chosen = np.stack([luck.choice(few, layer.top_k, replace=False) for _ in range(layer.tokens)])
    weights = luck.dirichlet(np.ones(layer.top_k), layer.tokens)
    return reference.sort_by_expert(layer, chosen, weights)


def _standin(case: cases.ReduceStandin) -> launch.AllReduceStandIn:
    if case.algorithm is not AllReduceAlgorithm.ONE_SHOT:
        raise UnmeasurableError(case, "the stand-in sums in one shot")
    return launch.AllReduceStandIn(case.ranks, case.message_bytes // 2)
