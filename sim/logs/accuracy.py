"""A drafter's accuracy from lengths that its trees landed: what its other trees would land."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim import quality_fit
from sim.acceptance import AcceptanceModel, hazards_from_rates
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.drafting import tree_hazards
from sim.errors import LogError
from sim.logs.fitted import Fit
from sim.quality import DrafterQuality

BUDGETS = (4, 8, 16, 32, 64, 128)
"""Trees whose mean length is predicted, beside the log's own and the chain."""


class Tree(NamedTuple):
    """What drafted the lengths of a log."""

    budget: int
    shape: Shape
    off_spine: float
    """Given, not fitted: lengths alone say little about it."""


class FittedAccuracy(NamedTuple):
    """The likeliest accuracy, and the mean lengths that follow from it."""

    tree: TreeSpec
    quality: DrafterQuality
    mean_lengths: tuple[tuple[TreeSpec, float], ...]
    ref: str

    def as_yaml(self) -> str:
        """Lines for a drafter's file."""
        quality = self.quality
        if quality.top1:
            rates = ", ".join(f"{rate:.4f}" for rate in np.cumprod(quality.top1))
            shown = {"rates": f"[{rates}]"}
        else:
            names = ("top1_logit", "depth_slope", "step_sd", "easy_share")
            shown = {name: f"{getattr(quality, name):.4f}" for name in names}
        shown |= {"off_spine": f"{quality.off_spine:g}", "source": "fitted", "ref": f'"{self.ref}"'}
        return "\n".join(["accuracy:", *(f"  {name}: {value}" for name, value in shown.items())]) + "\n"


def fit_accuracy(fit: Fit, tree: Tree) -> FittedAccuracy:
    """The accuracy of the drafter whose *tree* landed the lengths of *fit*.

    A chain's lengths are its accuracy. LogError where the log has means only, or lengths
    that the tree cannot land.
    """
    file = str(fit.observed.path)
    if not fit.rates or fit.model is None:
        raise LogError(file, 0, "an accuracy needs rates by position or single steps, not means alone")
    spec = TreeSpec(len(fit.rates) + 1, tree.budget, tree.shape)
    if spec.cap < spec.block:
        longest = f"lengths go to {spec.block}, but a tree of {tree.budget} lands at most {spec.cap}"
        raise LogError(file, 0, f"--budget {tree.budget}: {longest}")
    rates = [rate.value for rate in fit.rates]
    if tree.shape is Shape.CHAIN:
        quality = DrafterQuality(top1=hazards_from_rates(tuple(rates)), off_spine=tree.off_spine)
    else:
        shares = -np.diff([1.0, *rates, 0.0])
        quality = quality_fit.to_histogram(shares.tolist(), spec, tree.off_spine, fit.model.request_sd)
    means = tuple((other, _mean_length(quality, other, fit.model.request_sd)) for other in _others(spec))
    steps = "steps not counted" if fit.steps is None else f"{fit.steps:,} steps"
    source = f"{fit.observed.path.name} ({fit.observed.engine.value})"
    ref = f"{source}, {steps}; block {spec.block}, {named(spec)}"
    return FittedAccuracy(spec, quality, means, ref)


def _others(spec: TreeSpec) -> list[TreeSpec]:
    """The chain, and trees of several budgets, the log's own among them."""
    budgets = sorted({*BUDGETS, spec.budget} if spec.shape is Shape.DDTREE else {*BUDGETS})
    chain = TreeSpec(spec.block, spec.positions, Shape.CHAIN)
    return [chain, *(TreeSpec(spec.block, budget) for budget in budgets)]


def _mean_length(quality: DrafterQuality, spec: TreeSpec, request_sd: float) -> float:
    return AcceptanceModel(tree_hazards(quality, spec), request_sd).mean_length()


def named(spec: TreeSpec) -> str:
    """The tree in words."""
    return "a chain" if spec.shape is Shape.CHAIN else f"budget {spec.budget}"
