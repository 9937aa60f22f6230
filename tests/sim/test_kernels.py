"""The target's forward pass, for every model of the catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import with_filling_experts
from texts import GOOD, scenario_from

from hwmodels import catalog
from hwmodels.roofline import weight_bytes
from hwmodels.work import (
    BatchedGemm,
    DType,
    Elementwise,
    Gemm,
    GroupedExperts,
    StreamContention,
    Work,
)
from sim.graph import Component
from sim.kernels import CudaStream, PassShape, verify_pass
from sim.memory import target_bytes_per_rank
from sim.setup import Setup, resolve

MODELS = catalog.names(catalog.Kind.MODEL)
BASE = resolve(scenario_from(GOOD))
SMALL_PASS = PassShape(1, 9, 2000)


def setup_of(model: str, ranks: int) -> Setup:
    """The base setup with another model and another number of ranks."""
    return replace(BASE, model=catalog.target_model(model), machine=replace(BASE.machine, ranks=ranks))


def weights(work: Work) -> float:
    """Bytes of weights that *work* would read with every expert touched."""
    match work:
        case Gemm(_, n, k, dtype):
            return weight_bytes(n, k, dtype)
        case BatchedGemm(batch, _, n, k, dtype):
            return batch * weight_bytes(n, k, dtype)
        case GroupedExperts():
            return work.experts * 3 * weight_bytes(work.hidden, work.intermediate, work.dtype)
        case _:
            return 0.0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_pass_reads_the_weights_that_lie_on_a_rank(name: str, ranks: int) -> None:
    setup = setup_of(name, ranks)
    read = sum(weights(kernel.work) for kernel in verify_pass(setup, PassShape(1, 1, 100)))
    embedding = weight_bytes(setup.model.vocab, setup.model.hidden, DType.BF16) / ranks
    # Absorbed MLA weights are multiplied in BF16 whatever they are stored in.
    assert read == pytest.approx(target_bytes_per_rank(setup.model, ranks) - embedding, rel=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_ends_its_mixer_and_its_mlp_with_an_allreduce(name: str) -> None:
    setup = setup_of(name, 8)
    kernels = verify_pass(setup, PassShape(1, 4, 100))
    components = [kernel.component for kernel in kernels]
    assert components.count(Component.ALLREDUCE) == 2 * setup.model.layers
    assert components.count(Component.EXPERTS) == setup.model.moe_layers


@pytest.mark.parametrize(("stack", "most"), [("vllm", 256), ("sglang", 1024)])
def test_large_passes_keep_to_one_stream(stack: str, most: int) -> None:
    setup = with_filling_experts(resolve(scenario_from(GOOD, f"stack={stack}")), False)
    for tokens, streams in ((most, 2), (most + 1, 1)):
        kernels = verify_pass(setup, PassShape(tokens, 1, 100))
        assert len({kernel.stream for kernel in kernels}) == streams


def test_experts_that_fill_the_gpu_leave_the_shared_expert_to_the_main_stream() -> None:
    beside, filled = (verify_pass(with_filling_experts(BASE, fills), SMALL_PASS) for fills in (False, True))
    assert {kernel.stream for kernel in filled} == {CudaStream.MAIN}
    assert not any(isinstance(kernel.work, StreamContention) for kernel in filled)
    # The same work, one after the other.
    works = [
        sorted(repr(k.work) for k in kernels if not isinstance(k.work, StreamContention))
        for kernels in (beside, filled)
    ]
    assert works[0] == works[1]
    first = next(i for i, kernel in enumerate(filled) if isinstance(kernel.work, GroupedExperts))
    assert [type(kernel.work) for kernel in filled[first + 1 : first + 5]] == [
        Gemm,
        Elementwise,
        Gemm,
        Elementwise,
    ]


@pytest.mark.parametrize(("kernel", "streams"), [("marlin", 1), ("trtllm_gen", 2)])
def test_marlin_leaves_no_room_beside_it(kernel: str, streams: int) -> None:
    setup = resolve(scenario_from(GOOD, f"experts.kernel={kernel}"))
    assert len({kernel.stream for kernel in verify_pass(setup, SMALL_PASS)}) == streams
