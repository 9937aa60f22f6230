"""Accuracies fitted to what was published, and to trees whose accuracy is known."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodels import catalog
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.drafting import quality_of, tree_model
from sim.logs import quality_fit
from sim.quality import DrafterQuality

GSM8K_SHARES = (
    *(0.66, 3.64, 7.68, 10.05, 9.91, 9.73, 7.82, 6.32),
    *(5.43, 5.34, 4.32, 3.59, 3.34, 3.20, 2.30, 16.68),
)
"""% of 4,400 DDTree rounds that landed 1 ... 16 tokens: Qwen3-4B, block 16, budget 128 (hxri/ddtreeplus)."""
GSM8K_TREE = TreeSpec(16, 128)
GSM8K_REQUEST_SD = 0.15


def of_catalog(name: str) -> DrafterQuality:
    known = catalog.drafter(name).accuracy
    assert known is not None
    return quality_of(known)


def surprise(quality: DrafterQuality) -> float:
    """Mean negative log-likelihood of the published rounds."""
    shares = np.array(GSM8K_SHARES) / sum(GSM8K_SHARES)
    return float(-shares @ np.log(tree_model(quality, GSM8K_TREE, GSM8K_REQUEST_SD).distribution()))


def test_the_catalog_has_what_the_published_rounds_say() -> None:
    """No distribution of lengths can be less surprised than the entropy of the rounds."""
    shares = np.array(GSM8K_SHARES) / sum(GSM8K_SHARES)
    entropy = -float(shares @ np.log(shares))
    assert entropy < surprise(of_catalog("qwen3_4b_dflash")) < entropy + 0.006


def test_the_strong_drafter_has_the_shape_of_the_published_one() -> None:
    assert of_catalog("kimi_dflash_block16") == of_catalog("qwen3_4b_dflash")


def test_a_fit_is_as_likely_as_the_truth_and_predicts_other_trees() -> None:
    tree = TreeSpec(8, 16)
    truth = DrafterQuality(2.2, 0.6, 0.8, 0.03, 0.3)
    shares = tree_model(truth, tree).distribution()
    fitted = quality_fit.to_histogram(shares.tolist(), tree, 0.3)
    likeliest = -float(shares @ np.log(shares))
    assert -float(shares @ np.log(tree_model(fitted, tree).distribution())) == pytest.approx(
        likeliest, abs=1e-3
    )
    for other in (tree._replace(budget=4), tree._replace(budget=64), tree._replace(shape=Shape.CHAIN)):
        assert fitted.survival(other).sum() == pytest.approx(truth.survival(other).sum(), rel=0.05)


@pytest.mark.parametrize("counts", [[], [1, 2], [0] * 8, [1] * 9])
def test_counts_must_be_those_of_the_tree(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="expected 8 counts"):
        quality_fit.to_histogram(counts, TreeSpec(8, 8), 0.3)
