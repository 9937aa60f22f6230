"""A calibration from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim.calibration import learnt
from sim.calibration.forecast import Forecast, forecast
from sim.calibration.groups import Moved, moved
from sim.calibration.inference import (
    ROUNDS,
    Evidence,
    ImportanceSample,
    effective_sample_size,
    importance_sample,
    quantiles,
    resampled,
)
from sim.calibration.joint import ForwardModel, Unknowns, seen
from sim.calibration.learnt import LEVELS, Combination, Learnt, Quantiles, Tie
from sim.calibration.observed import Observed, Predicted, discrepancies
from sim.uncertainty.posterior import FEW, Discrepancy, SystemKind

Array = NDArray[np.float64]
DRAWS = 2048
"""Of what is not known; a power of two, as Sobol points want it."""
KEPT = 0.5
"""Of them, as equally likely draws of the posterior."""
CONFLICT = 0.99
"""Measurements outside the prior predictive interval of this level, for all together, contradict it."""


@dataclass(frozen=True)
class LeftOut:
    """What all other measurements predict for one."""

    predicted: Quantiles
    effective_sample_size: float
    """Behind it."""


@dataclass(frozen=True)
class Fit:
    """One measurement, and what was and is predicted for it, in tok/s, its error included."""

    observed: Observed
    before: Quantiles
    after: Quantiles
    left_out: LeftOut | None
    """None where there are no others."""
    moved: tuple[Moved, ...]
    """How far each group of unknowns moves it."""
    prior_tail: float
    """Twice the share of prior predictive draws on the far side of it: small where it is a surprise."""
    is_conflict: bool
    """Whether it contradicts what was known before."""

    @property
    def is_inside(self) -> bool | None:
        """Whether the others' 90 % predictive interval has it; None without others, or with few draws."""
        if self.left_out is None or self.left_out.effective_sample_size < FEW:
            return None
        low, _, high = self.left_out.predicted
        return bool(low <= self.observed.published_tok_s <= high)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was learnt from which measurements, and what it changes."""

    seed: int
    sample: ImportanceSample
    unknowns: Unknowns
    effective_sample_size: float
    fits: tuple[Fit, ...]
    learnt: tuple[Learnt, ...]
    combinations: tuple[Combination, ...]
    ties: tuple[Tie, ...]
    forecasts: tuple[Forecast, ...]
    kept: Array
    """(draws, unknowns) equally likely draws of the posterior, normal where nothing was learnt."""
    discrepancies: Mapping[SystemKind, Discrepancy]
    changes: tuple[str, ...]
    """To what is predicted, as asked for on the command line."""

    @property
    def quantiles(self) -> Array:
        """*kept* as quantiles of the priors."""
        return np.asarray(special.ndtr(self.kept))

    @property
    def news(self) -> tuple[Learnt, ...]:
        """The unknowns of which something was learnt."""
        return tuple(one for one in self.learnt if one.is_news)

    @property
    def is_thin(self) -> bool:
        """Whether too few draws carry the posterior, or what was known before."""
        return min(self.effective_sample_size, effective_sample_size(self.sample.prior_weights)) < FEW


@dataclass(frozen=True, eq=False)
class Task:
    """A calibration ready to be done."""

    observed: Sequence[Observed]
    models: Sequence[ForwardModel]
    """Of what was observed."""
    targets: Sequence[ForwardModel]
    unknowns: Unknowns
    discrepancies: Mapping[SystemKind, Discrepancy]
    seed: int
    draws: int
    changes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        observed: Sequence[Observed],
        targets: Sequence[Predicted],
        seed: int,
        draws: int = DRAWS,
        changes: tuple[str, ...] = (),
    ) -> Task:
        """Learn from *observed*, for *targets*; their systems are left out of what the model lacks."""
        without = {one.setup.system for one in (*observed, *targets)}
        known = discrepancies(without)
        models, asked = ([ForwardModel.of(one, known) for one in ones] for ones in (observed, targets))
        every = Unknowns.of((*models, *asked))
        return cls(observed, models, asked, every, known, seed, draws, changes)

    @property
    def kept(self) -> int:
        """Equally likely draws of the posterior."""
        return round(KEPT * self.draws)

    @property
    def size(self) -> int:
        """How often progress will be told."""
        slopes = 2 * len(self.unknowns) + 1
        of_observed, of_target = ROUNDS * slopes + self.draws, self.draws + slopes
        return len(self.observed) * of_observed + len(self.targets) * of_target

    def done(self, advance: Callable[[], None] = lambda: None) -> Calibration:
        """The Calibration."""
        model, unknowns = seen(self.models, self.unknowns, advance), self.unknowns
        logs, sds = zip(*((one.log_published, one.noise_sd) for one in self.observed), strict=True)
        evidence = Evidence(np.array(logs), np.array(sds))
        found = importance_sample(model, evidence, len(unknowns), self.draws, self.seed)
        weights = found.weights()
        news = learnt.each(found, unknowns)
        return Calibration(
            seed=self.seed,
            sample=found,
            unknowns=unknowns,
            effective_sample_size=effective_sample_size(weights),
            fits=tuple(self._fits(found)),
            learnt=news,
            combinations=learnt.decided(found, unknowns),
            ties=learnt.ties(found.posterior, unknowns, news),
            forecasts=tuple(forecast(forward, found, unknowns, advance) for forward in self.targets),
            kept=found.values[resampled(weights, self.kept, self.seed)],
            discrepancies=self.discrepancies,
            changes=self.changes,
        )

    def _fits(self, found: ImportanceSample) -> Iterator[Fit]:
        """Every measurement beside its predictions, before and after, and from the others."""
        count, before, after = len(self.observed), found.prior_weights, found.weights()
        logs = found.measured(self.seed)
        for at, one in enumerate(self.observed):
            others = found.weights(at) if count > 1 else None
            share = float(before @ (logs[:, at] < one.log_published))
            tail = 2 * min(share, 1 - share)
            yield Fit(
                observed=one,
                before=_predicted(logs[:, at], before),
                after=_predicted(logs[:, at], after),
                left_out=None if others is None else _left_out(logs[:, at], others),
                moved=moved(found, self.unknowns, at),
                prior_tail=tail,
                # Bonferroni: one of many measurements is always the most surprising.
                is_conflict=tail < (1 - CONFLICT) / count,
            )


def _left_out(logs: Array, weights: Array) -> LeftOut:
    return LeftOut(_predicted(logs, weights), effective_sample_size(weights))


def _predicted(logs: Array, weights: Array) -> Quantiles:
    """Of tok/s."""
    return Quantiles(*np.exp(quantiles(logs, weights, LEVELS)).tolist())
