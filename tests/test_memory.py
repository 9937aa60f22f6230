"""What fits into a GPU, against published sizes."""

from __future__ import annotations

import pytest
from texts import GOOD, scenario_from

from hwmodels import catalog
from hwmodels.errors import HardwareError
from hwmodels.work import DType
from sim.memory import GIB, cache_bytes, drafter_bytes_per_rank, target_bytes_per_rank
from sim.setup import resolve


def test_kimi_weights_are_what_its_checkpoint_takes() -> None:
    # 554.3 GiB on disk, 72.33 GB reported per GPU at TP-8 (magik6k/glm-kimi-sm120-rtx6000bw).
    kimi = catalog.target_model("kimi_k2_6")
    assert target_bytes_per_rank(kimi, 1) / GIB == pytest.approx(554.3, rel=0.01)
    assert target_bytes_per_rank(kimi, 8) / GIB == pytest.approx(72.33, rel=0.03)


def test_a_cached_token_is_what_the_model_card_implies() -> None:
    # 576 values x 61 layers x 1 byte.
    assert cache_bytes(catalog.target_model("kimi_k2_6"), 1, DType.FP8, 8) == 576 * 61


def test_drafter_is_its_checkpoint() -> None:
    # 6.48 GiB in BF16 (freakyskittle/kimi-k2.5-dflash.gguf).
    assert drafter_bytes_per_rank(catalog.drafter("kimi_dflash"), 1) / GIB == pytest.approx(6.48, rel=0.01)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_more_ranks_hold_less_each_but_no_less_together(ranks: int) -> None:
    for name in catalog.names(catalog.Kind.MODEL):
        model = catalog.target_model(name)
        few, many = target_bytes_per_rank(model, ranks), target_bytes_per_rank(model, 2 * ranks)
        assert many < few <= 2 * many


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(HardwareError, match=r"kimi_k2_6 on 4 GPUs .* needs 14\d\.\d GiB on each"):
        resolve(scenario_from(GOOD, "gpu=h200_sxm", "gpus=4"))
    with pytest.raises(HardwareError, match="cached tokens needs"):
        resolve(scenario_from(GOOD, "gpu=rtx_pro_6000_server", "load.context_tokens=900000"))
