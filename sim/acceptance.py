"""How many tokens each step commits.

The acceptance length L counts the target's own token: 1 <= L <= cap, where cap is
min(block, budget + 1). A *hazard* h_d is the chance that draft position d is
accepted once all before it were; P(L > d) = h_1 ... h_d. Variation between requests
shifts the log-odds of the hazards; correlation between steps comes from an AR(1)
Gaussian latent pushed through the inverse distribution, so each step's own
distribution is untouched by it. Observed lengths may be drawn instead, request by request.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from sim.compiled import compiled
from sim.graph import IntArray
from sim.traces import Trace

Array = NDArray[np.float64]

QUADRATURE_NODES = 41
"""Gauss-Hermite nodes for means over requests: error below 1e-11 up to request_sd 1, 1e-3 at 5."""

DRAW_AHEAD = 64
"""Steps drawn at once. The stream serves nothing else, so drawing too many does no harm."""


class Acceptance(Protocol):
    """Draws the acceptance lengths of requests."""

    @property
    def cap(self) -> int:
        """The longest length."""

    def mean_length(self) -> float:
        """E[L] over requests, at the context where decoding begins."""

    def distribution(self) -> Array:
        """P(L = 1 ... cap) over requests, at the context where decoding begins."""

    def draw(self, generator: np.random.Generator, output_tokens: int) -> IntArray:
        """Lengths of one request's steps until their sum reaches *output_tokens* (at least 1)."""


@dataclass(frozen=True)
class TraceModel:
    """Draws observed lengths: a block bootstrap whose blocks are requests, so that correlation survives.

    Each request is met as often as it has steps, entered at any of them, and followed around to the
    step before: then every step has the distribution of all observed ones.
    """

    trace: Trace
    cap: int

    @cached_property
    def _requests(self) -> list[IntArray]:
        return [np.array(request, dtype=np.int64) for request in self.trace.requests]

    @cached_property
    def _first_steps(self) -> IntArray:
        """Where each request begins among all observed steps, and their number."""
        return np.cumsum([0, *map(len, self._requests)])

    def mean_length(self) -> float:
        """The mean of all observed lengths."""
        return float(np.concatenate(self._requests).mean())

    def distribution(self) -> Array:
        """Shares of the observed lengths 1 ... cap."""
        observed = np.concatenate(self._requests)
        return np.bincount(observed, minlength=self.cap + 1)[1:] / len(observed)

    def draw(self, generator: np.random.Generator, output_tokens: int) -> IntArray:
        """Lengths of steps until their sum reaches *output_tokens* (at least 1)."""
        first_steps = self._first_steps
        parts: list[IntArray] = []
        committed = 0
        while committed < output_tokens:
            step = int(generator.integers(first_steps[-1]))
            request = int(np.searchsorted(first_steps, step, side="right")) - 1
            lengths = np.roll(self._requests[request], first_steps[request] - step)
            totals = committed + np.cumsum(lengths)
            parts.append(lengths[: 1 + int(np.searchsorted(totals, output_tokens))])
            committed = int(totals[-1])
        return np.concatenate(parts)


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
        nodes, weights = request_quadrature(self.request_sd)
        survival = _survival(_logits(self.hazards)[None, :] + nodes[:, None])
        return float(1.0 + weights @ survival.sum(axis=1))

    def distribution(self) -> Array:
        """P(L = 1 ... cap) over requests, at the context where decoding begins."""
        nodes, weights = request_quadrature(self.request_sd)
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


def request_quadrature(request_sd: float) -> tuple[Array, Array]:
    """Offsets of requests in log-odds, and their weights: nodes of the normal distribution."""
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
