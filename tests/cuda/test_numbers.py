"""bf16 and e4m3 as numpy reads them, and the largest logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cuda import hostkernel, reference
from cuda.launch import TopK


@given(st.floats(-1e30, 1e30))
def test_rounding_to_bf16_is_off_by_at_most_half_a_step(value: float) -> None:
    rounded = float(reference.from_bf16(reference.to_bf16(np.array([value])))[0])
    assert abs(rounded - value) <= abs(value) * reference.BF16_ERROR + 1e-38


@pytest.mark.parametrize(
    ("value", "bits"), [(1.0, 0x3F80), (-2.0, 0xC000), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82)]
)
def test_known_bf16(value: float, bits: int) -> None:
    assert reference.to_bf16(np.array([value]))[0] == bits


@pytest.mark.parametrize(
    ("bits", "value"), [(0x00, 0.0), (0x01, 2**-9), (0x08, 2**-6), (0x38, 1.0), (0x7E, 448.0), (0xB8, -1.0)]
)
def test_known_e4m3(bits: int, value: float) -> None:
    """Micikevicius et al., FP8 formats for deep learning, arXiv 2209.05433, table 1."""
    assert reference.from_e4m3(np.array([bits], np.uint8))[0] == value


LOGITS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(16, 300)),
    elements=st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1.0, 2.0, 3e38]) | st.floats(-100, 100, width=16),
)


@pytest.mark.usefixtures("host_tools")
@given(LOGITS, st.integers(1, 16), st.integers(1, 4), st.sampled_from(hostkernel.SCHEDULES))
def test_the_largest_logits_come_first_and_of_equals_the_lower_id(
    logits: NDArray[np.float32], k: int, parts: int, schedule: int
) -> None:
    operation = TopK(*logits.shape[:1], k, logits.shape[1], parts, first_id=1000)
    inputs = {"logits": reference.to_bf16(logits)}
    reference.check(operation, inputs, hostkernel.run(operation, inputs, schedule))
