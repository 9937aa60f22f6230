"""Bayes' rule for unknowns that a few measurements are functions of, by importance sampling.

Unknowns are standard normal before anything is measured (each stands for a quantile of its own prior), and a
measurement is a function of them, off by a normal error. Such a function is linear but for kinks, so that
the posterior of its linearisation is a good proposal: the exact posterior is that proposal, weighted. Draws
of the prior are mixed in, so that no weight explodes where the function bends (defensive mixture: Hesterberg
1995), and one proposal for each measurement left out, so that one pool of draws serves all of them (balance
heuristic: Veach and Guibas 1995).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from sim.uncertainty.parameters import sobol
from sim.uncertainty.priors import normal_at

Array = NDArray[np.float64]
Model = Callable[[Array], Array]
"""(draws, unknowns) normal values to (draws, measurements) logarithms of what is measured."""
STEP = 0.5
"""Standard deviations on either side that a slope is taken over: steps have kinks."""
ROUNDS = 2
"""Of linearisation: at the prior's middle, then at the middle that follows."""
OF_PRIOR, OF_LEFT_OUT = 0.2, 0.3
"""Shares of the pool drawn from the prior, and from posteriors that leave a measurement out."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was measured."""

    logs: Array
    """(measurements,) logarithms."""
    sds: Array
    """(measurements,) standard deviations of their errors."""


@dataclass(frozen=True, eq=False)
class Normal:
    """A multivariate normal distribution of the unknowns."""

    mean: Array
    covariance: Array

    @cached_property
    def _root(self) -> Array:
        """Lower Cholesky factor of the covariance."""
        return np.asarray(linalg.cholesky(self.covariance, lower=True))

    def at(self, normals: Array) -> Array:
        """(draws, unknowns) of standard *normals*."""
        return np.asarray(self.mean + normals @ self._root.T)

    def log_density(self, values: Array) -> Array:
        """(draws,) without the constant that all normal densities of as many unknowns share."""
        away = linalg.solve_triangular(self._root, (values - self.mean).T, lower=True)
        return np.asarray(-(away**2).sum(axis=0) / 2 - np.log(np.diag(self._root)).sum())


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A model near a point."""

    at: Array
    """(unknowns,)"""
    logs: Array
    """(measurements,) there."""
    slopes: Array
    """(measurements, unknowns)"""

    def posterior(self, evidence: Evidence, rows: Sequence[int]) -> Normal:
        """What *evidence* of the measurements *rows* leaves of standard normal unknowns."""
        slopes, count = self.slopes[list(rows)], len(self.at)
        if not len(rows):
            return Normal(np.zeros(count), np.eye(count))
        noise = np.diag(evidence.sds[list(rows)] ** 2)
        gain = linalg.solve(slopes @ slopes.T + noise, slopes, assume_a="pos").T
        missed = evidence.logs[list(rows)] - self.logs[list(rows)] + slopes @ self.at
        return Normal(gain @ missed, np.eye(count) - gain @ slopes)


def linearised(model: Model, at: Array) -> Linearisation:
    """*model* near *at* (unknowns,), by central differences."""
    moved = np.eye(len(at)) * STEP
    ahead, behind, here = np.split(
        model(np.vstack([at + moved, at - moved, at[None]])), [len(at), 2 * len(at)]
    )
    return Linearisation(at, here[0], (ahead - behind).T / (2 * STEP))


@dataclass(frozen=True, eq=False)
class ImportanceSample:
    """Draws of the unknowns that stand, weighted, for every posterior asked for."""

    values: Array
    """(draws, unknowns) standard normal where nothing was learnt."""
    logs: Array
    """(draws, measurements) what the model makes of them."""
    log_ratio: Array
    """(draws,) prior over proposal density."""
    evidence: Evidence
    near: Linearisation
    """Of the model in the middle of the posterior."""

    @cached_property
    def prior_weights(self) -> Array:
        """(draws,) adding to 1, of what was known before."""
        return np.asarray(special.softmax(self.log_ratio))

    def weights(self, left_out: int | None = None) -> Array:
        """(draws,) adding to 1, of the posterior of all measurements, or all but one."""
        off = (self.logs - self.evidence.logs) / self.evidence.sds
        likely = -(off**2) / 2
        if left_out is not None:
            likely[:, left_out] = 0
        return np.asarray(special.softmax(likely.sum(axis=1) + self.log_ratio))

    def measured(self, seed: int) -> Array:
        """(draws, measurements) *logs* as they would be measured, each with an error of its own."""
        # Not Sobol points: those would be correlated with the values, which are.
        errors = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0]).standard_normal(
            self.logs.shape
        )
        return np.asarray(self.logs + errors * self.evidence.sds)

    @cached_property
    def posterior(self) -> Normal:
        """That of the linearisation."""
        return self.near.posterior(self.evidence, range(len(self.evidence.logs)))


def importance_sample(
    model: Model, evidence: Evidence, unknowns: int, draws: int, seed: int
) -> ImportanceSample:
    """*draws* draws for the posterior of *evidence*, and for those that leave one measurement out."""
    rows = range(len(evidence.logs))
    found = linearised(model, np.zeros(unknowns))
    for _ in range(ROUNDS - 1):
        found = linearised(model, found.posterior(evidence, rows).mean)
    left_out = [found.posterior(evidence, [row for row in rows if row != left]) for left in rows]
    prior, whole = found.posterior(evidence, []), found.posterior(evidence, rows)
    others = left_out if len(rows) > 1 else []
    each = [OF_LEFT_OUT / len(others)] * len(others) if others else []
    shares = [1 - OF_PRIOR - sum(each), OF_PRIOR, *each]
    values, log_mixture = mixed([whole, prior, *others], np.array(shares), draws, seed)
    return ImportanceSample(values, model(values), prior.log_density(values) - log_mixture, evidence, found)


def mixed(parts: Sequence[Normal], shares: Array, draws: int, seed: int) -> tuple[Array, Array]:
    """(draws, unknowns) of *parts* in their *shares*, and (draws,) the log density of the mixture."""
    ends = np.rint(np.cumsum(shares) * draws).astype(int)
    counts = np.diff(ends, prepend=0)
    seeds = np.random.SeedSequence(seed).generate_state(len(parts)).tolist()
    unknowns = len(parts[0].mean)
    drawn = [
        part.at(normal_at(sobol(count, unknowns, own)))
        for part, count, own in zip(parts, counts.tolist(), seeds, strict=True)
        if count
    ]
    values = np.vstack(drawn)
    densities = np.array([part.log_density(values) for part in parts])
    return values, np.asarray(special.logsumexp(densities, axis=0, b=(counts / draws)[:, None]))


def effective_sample_size(weights: Array) -> float:
    """Kish's effective sample size."""
    return float(1 / (weights**2).sum())


def resampled(weights: Array, count: int, seed: int) -> NDArray[np.int64]:
    """*count* rows, each as often as its weight says: systematic resampling (Kitagawa 1996)."""
    at = (np.arange(count) + np.random.default_rng(seed).random()) / count
    return np.minimum(np.searchsorted(np.cumsum(weights), at), len(weights) - 1)


def quantiles(values: Array, weights: Array, levels: Array) -> Array:
    """(levels,) of *values* (draws,), which have *weights*."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) - weights[order] / 2
    return np.asarray(np.interp(levels, reached, values[order]))
