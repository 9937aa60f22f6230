"""A drafter's accuracy from lengths that its trees landed: what its other trees would land."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.drafting import landed, tree_model
from sim.errors import LogError
from sim.logs import quality_fit
from sim.logs.fitted import Fit
from sim.quality import OFF_SPINE, DrafterQuality
from sim.traces import number_of

BUDGETS = (4, 8, 16, 32, 64, 128)
"""Trees whose mean length is predicted, beside the log's own and the chain."""

SAME = 1e-9
"""Share of steps; a log in which fewer differ has one length."""


class LandedBy(NamedTuple):
    """What drafted the lengths of a log."""

    budget: int
    shape: Shape
    off_spine: float
    """Given, not fitted: lengths alone say little about it."""

    @classmethod
    def of(cls, budget: int, shape: Shape | None, off_spine: float | None) -> LandedBy:
        """A tree, and the published penalty, where nothing else is said."""
        return cls(budget, shape or Shape.DDTREE, OFF_SPINE if off_spine is None else off_spine)


class FittedAccuracy(NamedTuple):
    """The likeliest accuracy, and the mean lengths that follow from it."""

    tree: TreeSpec
    quality: DrafterQuality
    landed: float
    """Mean length of the log's own tree with it."""
    worst: float
    """Largest difference between the shares of a length, log and model."""
    mean_lengths: tuple[tuple[TreeSpec, float], ...]
    ref: str

    def as_yaml(self) -> str:
        """Lines for a drafter's file, also for one that extends another."""
        quality = self.quality
        names = ("top1_logit", "depth_slope", "step_sd", "easy_share")
        if quality.top1:
            rates = ", ".join(f"{rate:.4f}" for rate in np.cumprod(quality.top1))
            shown = {"rates": f"[{rates}]", "top1_logit": "null", **dict.fromkeys(names[1:], "0")}
        else:
            shown = {"rates": "null", **{name: f"{getattr(quality, name):.3f}" for name in names}}
        shown |= {"off_spine": f"{quality.off_spine:g}", "stated_slope": "0"}
        shown |= {"source": "fitted", "ref": json.dumps(self.ref)}
        lines = [f"trained_block: {self.tree.block}", "accuracy:"]
        return "\n".join([*lines, *(f"  {name}: {value}" for name, value in shown.items())]) + "\n"


def fit_accuracy(fit: Fit, tree: LandedBy) -> FittedAccuracy:
    """The accuracy of the drafter whose *tree* landed the lengths of *fit*.

    A chain's lengths are its accuracy. LogError where the log has means only, or lengths
    that the tree cannot land, or lengths that are all the same.
    """
    file = str(fit.observed.path)
    if not fit.rates or fit.model is None:
        raise LogError(file, 0, "an accuracy needs rates by position or single steps, not means alone")
    spec = TreeSpec(len(fit.rates) + 1, tree.budget, tree.shape)
    if spec.cap < spec.block:
        longest = f"lengths go to {spec.block}, but a tree of {tree.budget} lands at most {spec.cap}"
        raise LogError(file, 0, f"--budget {tree.budget}: {longest}")
    shares = -np.diff([1.0, *(rate.value for rate in fit.rates), 0.0])
    if shares.max() > 1 - SAME:
        only = f"every step has length {1 + int(shares.argmax())}"
        raise LogError(file, 0, f"--budget {tree.budget}: {only}; an accuracy needs lengths that differ")
    request_sd = fit.model.request_sd
    if tree.shape is Shape.CHAIN:
        # Those of a request like any other: the variation between requests is not in them.
        quality = DrafterQuality(top1=fit.model.hazards, off_spine=tree.off_spine)
    else:
        quality = quality_fit.to_histogram(shares.tolist(), spec, tree.off_spine, request_sd)
    model = tree_model(quality, spec, request_sd)
    return FittedAccuracy(
        tree=spec,
        quality=quality,
        landed=model.mean_length(),
        worst=float(np.abs(model.distribution() - shares).max()),
        mean_lengths=tuple((other, landed(quality, other, request_sd)) for other in _others(spec)),
        ref=f"{_source(fit)}; {spec}; off_spine given, not fitted",
    )


def _source(fit: Fit) -> str:
    steps = "steps not counted" if fit.steps is None else number_of(fit.steps, "step")
    return f"{fit.observed.path.name} ({fit.observed.engine.value}), {steps}"


def _others(spec: TreeSpec) -> list[TreeSpec]:
    """The chain, and trees of several budgets, the log's own among them."""
    budgets = sorted({*BUDGETS, spec.budget} if spec.shape is Shape.DDTREE else {*BUDGETS})
    chain = TreeSpec(spec.block, spec.positions, Shape.CHAIN)
    return [chain, *(TreeSpec(spec.block, budget) for budget in budgets)]


def named(spec: TreeSpec) -> str:
    """The tree in words."""
    return "as a chain" if spec.shape is Shape.CHAIN else f"at budget {spec.budget}"
