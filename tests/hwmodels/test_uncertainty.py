"""What is taken for uncertain where nothing is stated."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog
from hwmodels.cost import CostModel
from hwmodels.devices import Gpu
from hwmodels.errors import HardwareError
from hwmodels.estimate import Estimate, Source
from hwmodels.machine import Machine
from hwmodels.uncertainty import carried_spread, unstated, unstated_spread
from hwmodels.work import (
    AllReduce,
    DType,
    Gemm,
    GqaAttention,
    GroupedExperts,
    MlaAttention,
    Work,
    experts_touched,
)

GPUS = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "rtx_pro_6000_server")
SHAPES = ((2112, 7168), (1536, 1536), (7168, 1024), (4608, 7168), (7168, 2304), (20480, 7168))
TOKENS = (1, 9, 33, 128)
REQUESTS, CONTEXTS = (1, 8, 32), (1024, 4096, 16384, 65536)


def experts(tokens: int, dtype: DType) -> GroupedExperts:
    touched = experts_touched(tokens, 384, 8)
    sizes = {"experts": 384, "top_k": 8, "hidden": 7168, "intermediate": 256}
    return GroupedExperts(tokens=tokens, touched=touched, dtype=dtype, **sizes)


def latent(requests: int, context: int) -> MlaAttention:
    sizes = {"queries": 1, "heads": 8, "latent": 576, "run_tokens": 10**6}
    return MlaAttention(requests=requests, context=context, dtype=DType.BF16, **sizes)


def grouped(requests: int, context: int) -> GqaAttention:
    sizes = {"queries": 1, "heads": 8, "kv_heads": 1, "head_dim": 128}
    return GqaAttention(requests=requests, context=context, window=None, dtype=DType.BF16, **sizes)


WORKS: dict[str, tuple[int, list[Work]]] = {
    "gemms": (435, [Gemm(m, n, k, DType.BF16) for m in TOKENS for n, k in SHAPES]),
    "experts": (104, [experts(m, dtype) for m in TOKENS for dtype in (DType.INT4, DType.NVFP4)]),
    "latent_attention": (240, [latent(b, c) for b in REQUESTS for c in CONTEXTS]),
    "grouped_attention": (240, [grouped(b, c) for b in REQUESTS for c in CONTEXTS]),
}
"""Work of each kind that is carried over, and how many points its tables give."""


def costs(gpu: Gpu) -> CostModel:
    link, host, stack = catalog.interconnect("nvlink5"), catalog.host("xeon_dual"), catalog.stack("sglang")
    return CostModel(Machine(gpu, 8, link, host, stack))


class Prediction(NamedTuple):
    """Work on one GPU from the table of another."""

    work: Work
    bandwidth_ratio: float
    log_error: float


def estimated(gpu: CostModel, work: Work) -> Estimate | None:
    """None where the stack has no such kernel."""
    try:
        return gpu.estimate(work)
    except HardwareError:
        return None


@cache
def predictions(kind: str) -> list[Prediction]:
    """Work of *kind* on each GPU, as carried over from every other that has a table."""
    found = []
    for here, there in permutations(GPUS, 2):
        own = costs(catalog.gpu(here))
        carried = costs(catalog.gpu(here).model_copy(update={"measured_as": there}))
        for work in WORKS[kind][1]:
            known, guessed = estimated(own, work), estimated(carried, work)
            if known is None or guessed is None or guessed.source is not Source.SCALED:
                continue
            if known.source in (Source.MEASURED, Source.FITTED):
                error = float(np.log(guessed.seconds / known.seconds))
                found.append(Prediction(work, carried.bandwidth_ratio, error))
    return found


def test_scaled_tables_are_as_uncertain_as_they_prove_to_be() -> None:
    errors = [each.log_error for each in predictions("gemms")]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(unstated_spread(Source.SCALED), abs=0.005)


@pytest.mark.parametrize("kind", WORKS)
def test_tables_of_other_gpus_are_the_more_uncertain_the_further_these_are_apart(kind: str) -> None:
    """The shipped figures are the least-squares lines through the origin."""
    found = predictions(kind)
    assert len(found) == WORKS[kind][0]
    errors = np.array([each.log_error for each in found])
    apart = np.log([each.bandwidth_ratio for each in found])
    slope = np.sqrt(np.sum(errors**2) / np.sum(apart**2))
    assert getattr(unstated().carried, kind).value == pytest.approx(slope, abs=0.005)


@pytest.mark.parametrize("kind", WORKS)
def test_two_sigma_hold_nearly_all_of_what_carried_tables_are_off_by(kind: str) -> None:
    least = unstated_spread(Source.SCALED)
    inside = [
        abs(each.log_error) < 2 * max(least, carried_spread(each.work, each.bandwidth_ratio))
        for each in predictions(kind)
    ]
    assert np.mean(inside) >= 0.95


@given(st.floats(0.05, 20), st.sampled_from([works[0] for _, works in WORKS.values()]))
def test_a_carried_table_is_as_uncertain_up_as_down_and_not_at_all_at_home(ratio: float, work: Work) -> None:
    assert carried_spread(work, ratio) == pytest.approx(carried_spread(work, 1 / ratio), abs=1e-12)
    assert carried_spread(work, 1.0) == 0
    assert carried_spread(AllReduce(1024, 8), ratio) == 0


def test_the_less_is_known_the_wider() -> None:
    spreads = [unstated_spread(source) for source in (Source.MEASURED, Source.DATASHEET, Source.ASSUMED)]
    assert spreads == sorted(spreads)
    assert unstated_spread(Source.FITTED) <= unstated_spread(Source.SCALED) <= unstated_spread(Source.ASSUMED)


def test_every_source_has_one_with_its_reference() -> None:
    for source in Source:
        figure = getattr(unstated(), source.value)
        assert 0 < figure.value < 1
        assert len(figure.ref) > 20
