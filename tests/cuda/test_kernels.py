"""Every kernel gives what numpy gives in double precision, in whatever order its threads run."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_cases import CASES, name_of

from cuda import hostkernel, reference
from cuda.build import Target
from cuda.launch import Operation, Role

pytestmark = pytest.mark.usefixtures("host_tools")


@pytest.mark.parametrize("schedule", hostkernel.SCHEDULES)
@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_a_kernel_gives_the_answer_under_every_schedule(operation: Operation, schedule: int) -> None:
    inputs = reference.make_inputs(operation, np.random.default_rng(schedule))
    reference.check(operation, inputs, hostkernel.run(operation, inputs, schedule))


@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_a_run_repeats_bit_for_bit(operation: Operation) -> None:
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    first = hostkernel.run(operation, inputs, schedule=0)
    again = hostkernel.run(operation, inputs, schedule=4, workers=2)
    for name, array in first.items():
        assert array.tobytes() == again[name].tobytes(), name


@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_what_a_kernel_only_reads_stays_as_it_was(operation: Operation) -> None:
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    memory = hostkernel.make_memory(operation, inputs)
    hostkernel.run_in(operation, memory, 0, 1, Target.HOST)
    updated = {buffer.name for buffer in operation.buffers() if buffer.role is Role.UPDATED}
    for name in inputs.keys() - updated:
        np.testing.assert_array_equal(memory[name], inputs[name])


@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_what_must_be_zero_for_the_next_launch_is(operation: Operation) -> None:
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    results = hostkernel.run(operation, inputs)
    for buffer in operation.buffers():
        if buffer.role is Role.ZEROED:
            assert not results[buffer.name].any(), buffer.name


@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_a_wrong_result_is_noticed(operation: Operation) -> None:
    """The comparison itself: one output after another loses its last row, as if never written."""
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    answers = reference.expect(operation, inputs)
    for buffer in operation.buffers():
        if buffer.name not in answers:
            continue
        results = hostkernel.run(operation, inputs)
        results[buffer.name][-1:] = buffer.poisoned()[-1:]
        with pytest.raises(reference.WrongResultError, match=f"^{buffer.name} of "):
            reference.check(operation, inputs, results)
