"""AllReduce: ranks are threads of this process, each running its kernel at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from cuda_node import Node

from cuda import hostkernel, reference
from cuda.build import Target
from cuda.launch import AllReduce, AllReduceStandIn, Shots

pytestmark = pytest.mark.usefixtures("host_tools")

LATE_SECONDS = 0.03


def be_late(late: int) -> Callable[[int], None]:
    return lambda rank: time.sleep(LATE_SECONDS if rank == late else 0)


@pytest.mark.parametrize("shots", Shots)
@pytest.mark.parametrize("schedule", [0, 1, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_gets_the_sum_whoever_is_late(ranks: int, schedule: int, shots: Shots) -> None:
    node = Node(ranks, 8 * 1001, shots)
    for late in range(ranks):
        data = reference.make_rank_inputs(node.operation(0), np.random.default_rng(late))
        results = node.call(data, be_late(late), schedule)
        for result in results:
            np.testing.assert_array_equal(result, reference.expect_sum(data))


@pytest.mark.parametrize("shots", Shots)
def test_eight_ranks(shots: Shots) -> None:
    node = Node(8, 8 * 100, shots, blocks=1)
    data = reference.make_rank_inputs(node.operation(0), np.random.default_rng(0))
    for result in node.call(data, be_late(5), 0):
        np.testing.assert_array_equal(result, reference.expect_sum(data))


def test_an_input_may_be_overwritten_once_its_rank_is_done() -> None:
    """One shot: rank 1 reads for long, rank 0 is done at once and spoils what it gave."""
    node = Node(2, 8 * 40_000, Shots.ONE, blocks=1)
    data = reference.make_rank_inputs(node.operation(0), np.random.default_rng(0))
    for result in node.call(data, be_late(1), 0):
        np.testing.assert_array_equal(result, reference.expect_sum(data))


@pytest.mark.parametrize("shots", Shots)
def test_a_peer_that_never_comes_is_reported(shots: Shots) -> None:
    node = Node(2, 8 * 10, shots, blocks=1)
    node.epoch = 1
    assert node.run(0, limit_ns=2_000_000)["timed_out"][0] == 1


@pytest.mark.parametrize("schedule", [0, 3, 4])
@pytest.mark.parametrize(("ranks", "values"), [(1, 8), (2, 8 * 77), (8, 8 * 900)])
def test_the_standin_sums_its_own_memory(ranks: int, values: int, schedule: int) -> None:
    operation = AllReduceStandIn(ranks, values, blocks=2)
    data = reference.make_rank_inputs(operation, np.random.default_rng(ranks))
    addresses = {"inputs": np.array([row.ctypes.data for row in data])}
    results = hostkernel.run(operation, addresses, schedule, target=Target.HOST)
    np.testing.assert_array_equal(results["out"], reference.expect_sum(data))


@pytest.mark.parametrize(
    ("values", "one_shot", "two_shot"), [(8, 1, 1), (7168, 4, 1), (9 * 7168, 32, 4), (33 * 7168, 36, 15)]
)
def test_a_sum_has_a_thread_for_each_vector_up_to_36_blocks(
    values: int, one_shot: int, two_shot: int
) -> None:
    blocks = {shots: AllReduce(8, 0, values, 1, shots).launches()[0].grid[0] for shots in Shots}
    assert blocks == {Shots.ONE: one_shot, Shots.TWO: two_shot}
    assert AllReduceStandIn(8, values).launches()[0].grid[0] == one_shot
    for shots in Shots:
        assert AllReduce(8, 0, values, 1, shots).flag_shape == (2, blocks[shots], 8)


def test_the_standin_is_not_called_an_allreduce_of_links() -> None:
    standin = AllReduceStandIn(8, 8).launches()[0].entry
    real = {AllReduce(8, 0, 8, 1, shots).launches()[0].entry for shots in Shots}
    assert standin == "allreduce_standin"
    assert real == {"allreduce_one_shot", "allreduce_two_shot"}
