"""What is taken for uncertain where nothing is stated."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from hwmodels import catalog
from hwmodels.cost import CostModel
from hwmodels.devices import Gpu
from hwmodels.estimate import Source
from hwmodels.machine import Machine
from hwmodels.uncertainty import unstated, unstated_spread
from hwmodels.work import DType, Gemm

GPUS = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "rtx_pro_6000_server")
SHAPES = ((2112, 7168), (1536, 1536), (7168, 1024), (4608, 7168), (7168, 2304), (20480, 7168))
WORKS = [Gemm(m, n, k, DType.BF16) for m in (1, 9, 33, 128) for n, k in SHAPES]


def costs(gpu: Gpu) -> CostModel:
    link, host, stack = catalog.interconnect("nvlink5"), catalog.host("xeon_dual"), catalog.stack("sglang")
    return CostModel(Machine(gpu, 8, link, host, stack))


def log_errors() -> list[float]:
    """Of dense GEMMs on each GPU, as carried over from every other that has a table."""
    found = []
    for here, there in permutations(GPUS, 2):
        own = costs(catalog.gpu(here))
        carried = costs(catalog.gpu(here).model_copy(update={"measured_as": there}))
        for work in WORKS:
            known, guessed = own.estimate(work), carried.estimate(work)
            if known.source is Source.MEASURED and guessed.source is Source.SCALED:
                found.append(float(np.log(guessed.seconds / known.seconds)))
    return found


def test_scaled_tables_are_as_uncertain_as_they_prove_to_be() -> None:
    errors = log_errors()
    assert len(errors) == 435
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(unstated_spread(Source.SCALED), abs=0.005)


def test_the_less_is_known_the_wider() -> None:
    spreads = [unstated_spread(source) for source in (Source.MEASURED, Source.DATASHEET, Source.ASSUMED)]
    assert spreads == sorted(spreads)
    assert unstated_spread(Source.FITTED) <= unstated_spread(Source.SCALED) <= unstated_spread(Source.ASSUMED)


def test_every_source_has_one_with_its_reference() -> None:
    for source in Source:
        figure = getattr(unstated(), source.value)
        assert 0 < figure.value < 1
        assert len(figure.ref) > 20
