"""How many tokens each step commits.

The acceptance length L counts the target's own token: 1 <= L <= cap, where cap is
min(block, budget + 1). A *hazard* h_d is the chance that draft position d is
accepted once all before it were; P(L > d) = h_1 ... h_d. Variation between requests
shifts the log-odds of the hazards; correlation between steps comes from an AR(1)
Gaussian latent pushed through the inverse distribution, so each step's own
distribution is untouched by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from hwmodels.catalog import Drafter
from hwmodels.errors import HardwareError
from sim.compiled import compiled
from sim.graph import IntArray
from sim.quality import DrafterQuality
from sim.scenario import Scenario

Array = NDArray[np.float64]

QUADRATURE_NODES = 41
"""Gauss-Hermite nodes for means over requests: error below 1e-11 up to request_sd 1, 1e-3 at 5."""

LARGEST_SHIFT = 30.0
"""Log-odds; beyond this a drafter is always right, or never."""
DRAW_AHEAD = 64
"""Steps drawn at once. The stream serves nothing else, so drawing too many does no harm."""


@dataclass(frozen=True)
class AcceptanceModel:
    """Draws acceptance lengths from *hazards* (one per draft position, cap - 1 of them)."""

    hazards: tuple[float, ...]
    request_sd: float = 0.0
    step_correlation: float = 0.0
    decay_per_1k_context: float = 0.0

    @property
    def cap(self) -> int:
        """The longest length."""
        return len(self.hazards) + 1

    def mean_length(self) -> float:
        """E[L] over requests, at the context where decoding begins."""
        nodes, weights = _request_quadrature(self.request_sd)
        survival = _survival(_logits(self.hazards)[None, :] + nodes[:, None])
        return float(1.0 + weights @ survival.sum(axis=1))

    def distribution(self) -> Array:
        """P(L = 1 ... cap) over requests, at the context where decoding begins."""
        nodes, weights = _request_quadrature(self.request_sd)
        survival = _survival(_logits(self.hazards)[None, :] + nodes[:, None])
        ones, zeros = np.ones((len(nodes), 1)), np.zeros((len(nodes), 1))
        at_least = np.hstack([ones, survival, zeros])
        return np.asarray(weights @ (at_least[:, :-1] - at_least[:, 1:]))

    def draw(self, generator: np.random.Generator, output_tokens: int) -> IntArray:
        """Lengths of one request's steps until their sum reaches *output_tokens* (at least 1)."""
        logits = _logits(self.hazards) + self.request_sd * generator.standard_normal()
        parts: list[IntArray] = []
        committed, latent = 0, None
        while committed < output_tokens:
            latents = self._latents(generator, latent)
            lengths = self._lengths(logits, special.ndtr(latents), committed)
            totals = committed + np.cumsum(lengths)
            # The step that reaches the output is the last one.
            needed = 1 + int(np.searchsorted(totals, output_tokens))
            parts.append(lengths[:needed])
            committed, latent = int(totals[-1]), float(latents[-1])
        return np.concatenate(parts)

    def _latents(self, generator: np.random.Generator, last: float | None) -> Array:
        """The next ``DRAW_AHEAD`` values of the AR(1) latent, each standard normal."""
        latents = generator.standard_normal(DRAW_AHEAD)
        if last is not None:
            latents[0] = _follow(last, latents[0], self.step_correlation)
        _chain(latents, self.step_correlation)
        return latents

    def _lengths(self, logits: Array, uniforms: Array, committed: int) -> IntArray:
        """Lengths by inversion: long ones for high *uniforms*."""
        if self.decay_per_1k_context == 0:
            survival = _survival(logits)
            # Falling in depth, so that the count of entries above a level is a search.
            return 1 + len(survival) - np.searchsorted(survival[::-1], 1.0 - uniforms, side="right")
        lengths = []
        for uniform in uniforms.tolist():
            survival = _survival(logits - self.decay_per_1k_context * committed / 1000.0)
            lengths.append(1 + int(np.count_nonzero(survival > 1.0 - uniform)))
            committed += lengths[-1]
        return np.array(lengths, dtype=np.int64)


@compiled
def _follow(last: float, innovation: float, correlation: float) -> float:
    """The next value of an AR(1) process whose every value is standard normal."""
    return float(correlation * last + np.sqrt(1.0 - correlation**2) * innovation)


@compiled
def _chain(latents: Array, correlation: float) -> None:
    """Turn innovations into the process, in place; the first entry stays."""
    for at in range(1, len(latents)):
        latents[at] = _follow(latents[at - 1], latents[at], correlation)


def _logits(hazards: tuple[float, ...]) -> Array:
    """Log-odds; hazards of exactly 0 and 1 stay so under any finite shift."""
    return np.asarray(special.logit(np.array(hazards, dtype=float)))


def _survival(logits: Array) -> Array:
    """P(L > d) for d = 1 ... along the last axis."""
    return np.asarray(np.cumprod(special.expit(logits), axis=-1))


def _request_quadrature(request_sd: float) -> tuple[Array, Array]:
    """Nodes and weights of the normal distribution of request offsets."""
    if request_sd == 0:
        return np.zeros(1), np.ones(1)
    nodes, weights = special.roots_hermitenorm(QUADRATURE_NODES)
    return request_sd * nodes, weights / weights.sum()


def solve_constant_hazard(mean_length: float, cap: int, request_sd: float = 0.0) -> float:
    """The constant hazard whose E[L] is *mean_length*, for 1 <= mean_length <= cap."""
    if not 1 <= mean_length <= cap:
        raise ValueError(f"mean_length must lie in [1, {cap}], got {mean_length}")
    if mean_length == 1:
        return 0.0
    if mean_length == cap:
        return 1.0

    def excess(logit: float) -> float:
        hazard = float(special.expit(logit))
        return AcceptanceModel((hazard,) * (cap - 1), request_sd).mean_length() - mean_length

    return float(special.expit(optimize.brentq(excess, -40.0, 40.0, xtol=1e-12)))


def hazards_from_rates(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Hazards from unconditional rates; a position after a rate of 0 is never reached."""
    before = (1.0, *rates[:-1])
    return tuple(rate / prior if prior > 0 else 0.0 for rate, prior in zip(rates, before, strict=True))


def acceptance_model(
    scenario: Scenario, drafter: Drafter | None = None, mean_length: float | None = None
) -> AcceptanceModel:
    """The model that *scenario* asks for; *mean_length* replaces the one it names."""
    given, cap = scenario.acceptance, scenario.max_acceptance_length
    if cap == 1:
        return AcceptanceModel(())
    if given.length is not None:
        return AcceptanceModel((1.0,) * (given.length - 1) + (0.0,) * (cap - given.length))
    variation = (given.request_sd, given.step_correlation, given.decay_per_1k_context)
    return AcceptanceModel(_hazards(scenario, drafter, mean_length), *variation)


def _hazards(scenario: Scenario, drafter: Drafter | None, mean_length: float | None) -> tuple[float, ...]:
    """One hazard per position that a step of *scenario* can land."""
    given, cap = scenario.acceptance, scenario.max_acceptance_length
    target = mean_length if mean_length is not None else given.asked_mean
    if given.quality is not None:
        quality = tree_quality(scenario, drafter, target)
        return _of_tree(quality, scenario.drafter.block, scenario.tree.budget)[: cap - 1]
    if target is not None:
        return (solve_constant_hazard(target, cap, given.request_sd),) * (cap - 1)
    if given.rates is not None:
        return hazards_from_rates(given.rates)[: cap - 1]
    vector = given.hazard_vector
    assert vector is not None
    return vector * (cap - 1) if isinstance(given.hazard, float) else vector[: cap - 1]


def tree_quality(scenario: Scenario, drafter: Drafter | None, mean_length: float | None) -> DrafterQuality:
    """How good the drafter of *scenario* is: the catalog's accuracy, shifted to *mean_length* where given.

    HardwareError where the catalog knows no accuracy of it.
    """
    given = scenario.acceptance.quality
    assert given is not None
    if drafter is None or drafter.accuracy is None:
        name = "drafter" if drafter is None else drafter.name
        raise HardwareError(name, "no accuracy is known for it: give mean_length, hazard or rates")
    known = drafter.accuracy
    quality = DrafterQuality(
        top1_logit=known.top1_logit or 0.0,
        depth_slope=known.depth_slope,
        step_sd=known.step_sd,
        easy_share=known.easy_share,
        off_spine=known.off_spine if given.off_spine is None else given.off_spine,
        top1=hazards_from_rates(known.rates) if known.rates else (),
    )
    if mean_length is None:
        return quality
    return _shifted_to(quality, mean_length, *scenario.asked_at, scenario.acceptance.request_sd)


def _shifted_to(
    quality: DrafterQuality, mean_length: float, block: int, budget: int, request_sd: float
) -> DrafterQuality:
    """*quality* with other log-odds, so that its tree lands *mean_length* at *block* and *budget*."""

    def excess(shift: float) -> float:
        hazards = _of_tree(quality.shifted(shift), block, budget)
        return AcceptanceModel(hazards, request_sd).mean_length() - mean_length

    low, high = -LARGEST_SHIFT, LARGEST_SHIFT
    if excess(high) <= 0:
        return quality.shifted(high)
    if excess(low) >= 0:
        return quality.shifted(low)
    return quality.shifted(float(optimize.brentq(excess, low, high, xtol=1e-6)))


def _of_tree(quality: DrafterQuality, block: int, budget: int) -> tuple[float, ...]:
    """Hazards of the tree of *budget* nodes over the block, one per position."""
    return hazards_from_rates(tuple(quality.survival(block - 1, budget).tolist()))
