"""Accuracies fitted to what was published, and to trees whose accuracy is known."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodels import catalog
from sim import quality_fit
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.quality import DrafterQuality

GSM8K_SHARES = (
    *(0.66, 3.64, 7.68, 10.05, 9.91, 9.73, 7.82, 6.32),
    *(5.43, 5.34, 4.32, 3.59, 3.34, 3.20, 2.30, 16.68),
)
"""% of 4,400 DDTree rounds that landed 1 ... 16 tokens: Qwen3-4B, block 16, budget 128 (hxri/ddtreeplus)."""
GSM8K_TREE = TreeSpec(16, 128)
GSM8K_REQUEST_SD = 0.15
RTX_3090 = {15: 7.64, 22: 8.88, 30: 8.86}
"""Mean lengths by budget: Qwen3.5-27B, block 16, HumanEval (Lucebox)."""


def of_catalog(name: str) -> DrafterQuality:
    known = catalog.drafter(name).accuracy
    assert known is not None
    assert known.top1_logit is not None
    return DrafterQuality(
        known.top1_logit,
        known.depth_slope,
        known.step_sd,
        known.easy_share,
        known.off_spine,
        known.stated_slope,
    )


def surprise(quality: DrafterQuality) -> float:
    """Mean negative log-likelihood of the published rounds."""
    shares = np.array(GSM8K_SHARES) / sum(GSM8K_SHARES)
    return float(-shares @ np.log(quality_fit.distribution(quality, GSM8K_TREE, GSM8K_REQUEST_SD)))


def test_the_catalog_has_what_the_published_rounds_say() -> None:
    fitted = quality_fit.to_histogram(GSM8K_SHARES, GSM8K_TREE, 0.3, GSM8K_REQUEST_SD)
    best, kept = surprise(fitted), surprise(of_catalog("qwen3_4b_dflash"))
    entropy = -sum(p / 100 * np.log(p / 100) for p in GSM8K_SHARES)
    assert entropy < best <= kept < best + 5e-4
    assert best - entropy < 0.01


def test_the_strong_drafter_has_the_shape_of_the_published_one() -> None:
    assert of_catalog("kimi_dflash_block16") == of_catalog("qwen3_4b_dflash")


def worst(quality: DrafterQuality) -> float:
    """The largest relative error over the published budgets."""
    means = {budget: 1 + quality.survival(TreeSpec(16, budget)).sum() for budget in RTX_3090}
    return max(abs(means[budget] / published - 1) for budget, published in RTX_3090.items())


def test_the_catalog_has_what_the_published_budgets_say() -> None:
    means = {TreeSpec(16, budget): mean for budget, mean in RTX_3090.items()}
    fitted = quality_fit.to_means(means, 0.3, 1.24)
    assert worst(fitted) <= worst(of_catalog("qwen3_5_27b_dflash")) < worst(fitted) + 0.001


def test_a_drafter_that_states_what_it_is_right_with_does_not_explain_the_published_budgets() -> None:
    means = {TreeSpec(16, budget): mean for budget, mean in RTX_3090.items()}
    assert worst(quality_fit.to_means(means, 0.3, 0.0)) > 0.05


@pytest.mark.parametrize("tree", [TreeSpec(8, 8), TreeSpec(8, 32), TreeSpec(12, 24)])
def test_a_fit_is_as_likely_as_the_truth_and_predicts_other_trees(tree: TreeSpec) -> None:
    truth = DrafterQuality(2.2, 0.6, 0.8, 0.03, 0.3)
    shares = quality_fit.distribution(truth, tree)
    fitted = quality_fit.to_histogram(shares.tolist(), tree, 0.3)
    likeliest = -float(shares @ np.log(shares))
    assert -float(shares @ np.log(quality_fit.distribution(fitted, tree))) == pytest.approx(
        likeliest, abs=1e-3
    )
    for other in (tree._replace(budget=4), tree._replace(budget=64), tree._replace(shape=Shape.CHAIN)):
        assert fitted.survival(other).sum() == pytest.approx(truth.survival(other).sum(), rel=0.05)


@pytest.mark.parametrize("counts", [[], [1, 2], [0] * 8, [1] * 9])
def test_counts_must_be_those_of_the_tree(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="expected 8 counts"):
        quality_fit.to_histogram(counts, TreeSpec(8, 8), 0.3)
