"""Packed experts: weights and scales are where the kernel looks, and any routing is served."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda import hostkernel, reference
from cuda.launch import EXPERT_GROUP, EXPERT_UNIT_BYTES, ExpertLayer

SMALL = ExpertLayer(tokens=4, experts=3, top_k=2, hidden=1024, intermediate=256)


@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32 - 1))
def test_packed_weights_unpack_to_themselves(experts: int, tiles: int, units: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = 16 * tiles, 256 * units
    weights = rng.integers(0, 16, (experts, rows, columns), np.uint8)
    scales = reference.to_bf16(rng.uniform(0.5, 2, (experts, rows, columns // EXPERT_GROUP)))
    packed = reference.pack_units(weights, scales)
    assert packed.shape == (experts, tiles, units, EXPERT_UNIT_BYTES)
    values = (weights.astype(float) - 8) * np.repeat(reference.from_bf16(scales), EXPERT_GROUP, axis=-1)
    for expert in range(experts):
        np.testing.assert_array_equal(reference.unpack_units(packed[expert]), values[expert])


def test_an_expert_of_kimi_is_as_large_as_its_weights_and_scales() -> None:
    layer = ExpertLayer(tokens=1)
    sizes = {buffer.name: buffer.bytes for buffer in layer.buffers()}
    assert sizes["gate_up"] + sizes["down"] == 384 * 3 * 7168 * 256 * (0.5 + 2 / 32)


@pytest.mark.usefixtures("host_tools")
@pytest.mark.parametrize("column", [0, 1, 2, 3, 4, 7, 8, 31, 32, 63, 64, 255, 256, 1023])
def test_every_column_meets_its_own_activation(column: int) -> None:
    """One weight and one activation differ from zero, so that the gate's sum is their product."""
    layer = ExpertLayer(tokens=1, experts=1, top_k=1, hidden=1024, intermediate=256)
    gate, up = np.full((2, 1, 256, 1024), 8, np.uint8)
    gate[0, :, column] = up[0, :, column] = 9 + np.arange(256) % 7
    both = reference.interleave_gate_and_up(gate, up)
    scales = np.full((1, 512, 32), reference.to_bf16(np.ones(1)))
    rng = np.random.default_rng(0)
    inputs = reference.make_inputs(layer, rng)
    x = np.zeros((1, 1024))
    x[0, column] = 1
    inputs |= {"gate_up": reference.pack_units(both, scales), "x": reference.to_bf16(x)}
    product = 1.0 + np.arange(256) % 7
    expected = product**2 / (1 + np.exp(-product))
    gated = reference.from_bf16(hostkernel.run(layer, inputs)["gated"][0])
    np.testing.assert_allclose(gated, expected, rtol=reference.BF16_ERROR)


@pytest.mark.usefixtures("host_tools")
@settings(max_examples=8)
@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_any_routing_is_served(tokens: int, seed: int) -> None:
    """Crowded experts, which take several passes, and experts without a token."""
    layer = ExpertLayer(tokens, experts=3, top_k=2, hidden=1024, intermediate=256)
    rng = np.random.default_rng(seed)
    inputs = reference.make_inputs(layer, rng)
    chosen = np.where(rng.random((tokens, 1)) < 0.9, [[0, 2]], [[1, 2]])
    inputs |= reference.sort_by_expert(layer, chosen, rng.random((tokens, 2)))
    reference.check(layer, inputs, hostkernel.run(layer, inputs, schedule=seed % 6))


@pytest.mark.usefixtures("host_tools")
def test_a_token_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    inputs = reference.make_inputs(SMALL, rng)
    before = hostkernel.run(SMALL, inputs)["out"]
    changed = inputs | {"x": inputs["x"].copy()}
    changed["x"][2] ^= np.uint16(1 << 15)
    after = hostkernel.run(SMALL, changed)["out"]
    np.testing.assert_array_equal((before != after).any(axis=1), [False, False, True, False])


@given(st.integers(1, 30), st.integers(1, 12), st.data())
def test_a_routing_names_every_slot_once(tokens: int, experts: int, data: st.DataObject) -> None:
    layer = ExpertLayer(tokens, experts, data.draw(st.integers(1, experts)))
    routing = reference.route(np.random.default_rng(data.draw(st.integers(0, 99))), layer)
    active, offset = int(routing["active"][0]), routing["offset"]
    assert offset[0] == 0
    assert offset[active] == layer.slots
    assert (np.diff(offset[: active + 1]) > 0).all()
    assert sorted(routing["slot_of"].ravel()) == list(range(layer.slots))
    for token in range(tokens):
        assert (routing["token_of_slot"][routing["slot_of"][token]] == token).all()
        np.testing.assert_allclose(routing["slot_weight"][routing["slot_of"][token]].sum(), 1, rtol=1e-5)
