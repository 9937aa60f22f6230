"""AllReduce across the GPUs of one machine, each with its own memory and launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import numpy as np

from cuda import launch, reference
from cuda.device import Gpu, Memory
from cuda.launch import AnyArray, Shots
from cuda.operations import UnmeasurableError
from cuda.reference import WrongResultError
from cuda.rigs import Timing
from cuda.sampling import Queue
from hwmodels import cases
from hwmodels.cases import AllReduceAlgorithm
from hwmodels.measured import DiscardReason

SHOTS = {AllReduceAlgorithm.ONE_SHOT: Shots.ONE, AllReduceAlgorithm.TWO_SHOT: Shots.TWO}

TIMED_OUT = "timed_out"
"""The buffer in which a rank says that it gave up."""


def connect(gpus: Sequence[Gpu]) -> bool:
    """Let every GPU reach the memory of every other one; False where not all can."""
    pairs = list(permutations(gpus, 2))
    if not all(gpu.device.can_access_peer(peer.device) for gpu, peer in pairs):
        return False
    for gpu, peer in pairs:
        with gpu.active():
            gpu.context.enable_peer_access(peer.context)
    return True


class Reduction:
    """One AllReduce over all *gpus*; every execution has an epoch of its own."""

    timing = Timing.HELD

    def __init__(self, gpus: Sequence[Gpu], case: cases.Reduce, luck: np.random.Generator) -> None:
        if case.ranks != len(gpus):
            raise UnmeasurableError(case, f"there are {len(gpus)} GPUs")
        self._gpus = gpus
        self._shots = SHOTS[case.algorithm]
        self._values = case.message_bytes // 2
        self._epoch = 0
        first = self._operation(0)
        self.kernel = first.path.value
        self._inputs = reference.make_rank_inputs(first, luck)
        self._memory = self._allocate(first)

    def _operation(self, rank: int) -> launch.AllReduce:
        return launch.AllReduce(len(self._gpus), rank, self._values, self._epoch, self._shots)

    def _allocate(self, first: launch.AllReduce) -> list[Memory]:
        """Each rank's memory, which knows the addresses in everyone's."""
        flags = np.zeros(first.flag_shape, np.uint32)
        slices = np.zeros(first.slice_values, np.uint16)
        inputs = [self._put(gpu, values) for gpu, values in zip(self._gpus, self._inputs, strict=True)]
        shared = {
            "inputs": np.array(inputs, np.uint64),
            "flags": np.array([self._put(gpu, flags) for gpu in self._gpus], np.uint64),
            "slices": np.array([self._put(gpu, slices) for gpu in self._gpus], np.uint64),
        }
        found = []
        for rank, gpu in enumerate(self._gpus):
            with gpu.active():
                memory = Memory(gpu, self._operation(rank), {})
                memory.fill(shared)
                found.append(memory)
        return found

    @staticmethod
    def _put(gpu: Gpu, array: AnyArray) -> int:
        with gpu.active():
            address = gpu.allocate(array.nbytes)
            gpu.upload(address, array)
            return address

    def renew(self, luck: np.random.Generator) -> None:
        """The same message each time."""

    def queues(self) -> Sequence[Queue]:
        """One for each GPU, all of the next epoch."""
        self._epoch += 1
        pairs = enumerate(zip(self._gpus, self._memory, strict=True))
        return [
            partial(gpu.queue, self._operation(rank).launches(), memory.addresses)
            for rank, (gpu, memory) in pairs
        ]

    def fault(self) -> DiscardReason | None:
        """PEER_MISSED where a rank gave up waiting for another, which is forgotten then."""
        missed = [rank for rank in range(len(self._gpus)) if self._gave_up(rank)]
        for rank in missed:
            with self._gpus[rank].active():
                self._memory[rank].put({TIMED_OUT: np.zeros(1, np.uint32)})
        return DiscardReason.PEER_MISSED if missed else None

    def _gave_up(self, rank: int) -> bool:
        with self._gpus[rank].active():
            return bool(self._memory[rank].read(TIMED_OUT)[0])

    def verify(self) -> None:
        """Every rank has the sum, bit for bit."""
        self._load()
        self._run_once()
        self._compare()
        for gpu, memory in zip(self._gpus, self._memory, strict=True):
            with gpu.active():
                memory.poison()

    def verify_again(self) -> None:
        """What the last timed execution left is the sum too."""
        self._compare()

    def _load(self) -> None:
        """On all GPUs before any kernel is queued: loading one may wait for another that waits for it."""
        for rank, gpu in enumerate(self._gpus):
            with gpu.active():
                gpu.load(self._operation(rank).launches())

    def _run_once(self) -> None:
        for gpu, queue in zip(self._gpus, self.queues(), strict=True):
            with gpu.active():
                queue()
        for gpu in self._gpus:
            with gpu.active():
                gpu.stream.synchronize()

    def _compare(self) -> None:
        for rank in filter(self._gave_up, range(len(self._gpus))):
            raise WrongResultError(self._operation(rank), TIMED_OUT, "is set: a peer was missed")
        wanted = reference.expect_sum(self._inputs).tobytes()
        for rank, (gpu, memory) in enumerate(zip(self._gpus, self._memory, strict=True)):
            with gpu.active():
                if memory.results()["out"].tobytes() != wanted:
                    raise WrongResultError(self._operation(rank), "out", "is not the sum of the inputs")
