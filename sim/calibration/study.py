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
from sim.calibration.inference import ROUNDS, Evidence, Pool, effective, pool, quantiles, resampled
from sim.calibration.joint import Sight, Unknowns, seen
from sim.calibration.learnt import Combination, Learnt, Tie
from sim.calibration.observed import Observed, Predicted, lacks
from sim.uncertainty.parameters import sobol
from sim.uncertainty.posterior import Lack, Sort
from sim.uncertainty.priors import normal_at

Array = NDArray[np.float64]
DRAWS = 2048
"""Of the pool; a power of two, as Sobol points want it."""
KEPT = 0.5
"""Of the pool, as equally likely draws of the posterior."""
LEVELS = np.array([0.05, 0.5, 0.95])
CONFLICT = 0.99
"""A measurement outside this prior predictive interval contradicts what was known."""
FEW = 100
"""Effective draws below which the posterior is not to be trusted."""


@dataclass(frozen=True)
class Fit:
    """One measurement, and the P5, P50 and P95 of what was and is predicted for it, its error included."""

    observed: Observed
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    left_out: tuple[float, float, float] | None
    """Predicted from all other measurements; None where there are none."""
    left_out_effective: float
    """Effective sample size behind that."""
    moved: tuple[Moved, ...]
    """How far each group of unknowns moves it."""
    prior_tail: float
    """Twice the share of prior predictive draws on the far side of it: small where it is a surprise."""

    @property
    def is_conflict(self) -> bool:
        """Whether it contradicts what was known before."""
        return self.prior_tail < 1 - CONFLICT

    @property
    def is_inside(self) -> bool | None:
        """Whether the others' 90 % predictive interval has it; None without others."""
        if self.left_out is None:
            return None
        return self.left_out[0] <= self.observed.published_tok_s <= self.left_out[2]


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was learnt from which measurements, and what it changes."""

    seed: int
    pool: Pool
    unknowns: Unknowns
    effective: float
    fits: tuple[Fit, ...]
    learnt: tuple[Learnt, ...]
    combinations: tuple[Combination, ...]
    ties: tuple[Tie, ...]
    forecasts: tuple[Forecast, ...]
    kept: Array
    """(draws, unknowns) equally likely draws of the posterior, normal where nothing was learnt."""
    lacks: Mapping[Sort, Lack]

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
        """Whether too few draws carry the posterior."""
        return self.effective < FEW


@dataclass(frozen=True, eq=False)
class Task:
    """A calibration ready to be done."""

    observed: Sequence[Sight]
    targets: Sequence[Sight]
    unknowns: Unknowns
    lacks: Mapping[Sort, Lack]
    seed: int
    draws: int

    @classmethod
    def of(
        cls, observed: Sequence[Observed], targets: Sequence[Predicted], seed: int, draws: int = DRAWS
    ) -> Task:
        """Learn from *observed*, for *targets*; their systems are left out of what the model lacks."""
        without = {one.system for one in (*observed, *targets)}
        known = lacks(without)
        sights, asked = ([Sight.of(one, known) for one in ones] for ones in (observed, targets))
        every = Unknowns.of((*sights, *asked))
        return cls(sights, asked, every, known, seed, draws)

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
        model, unknowns = seen(self.observed, self.unknowns, advance), self.unknowns
        seen_here = [sight.predicted for sight in self.observed]
        observed = [one for one in seen_here if isinstance(one, Observed)]
        evidence = Evidence(
            np.array([one.log_published for one in observed]), np.array([one.noise_sd for one in observed])
        )
        found = pool(model, evidence, len(unknowns), self.draws, self.seed)
        weights = found.weights()
        news = learnt.each(found, weights, unknowns)
        return Calibration(
            seed=self.seed,
            pool=found,
            unknowns=unknowns,
            effective=effective(weights),
            fits=tuple(self._fits(found, observed)),
            learnt=news,
            combinations=learnt.decided(found, unknowns),
            ties=learnt.ties(found.posterior, unknowns, news),
            forecasts=tuple(forecast(sight, found, unknowns, advance) for sight in self.targets),
            kept=found.values[resampled(weights, self.kept, self.seed)],
            lacks=self.lacks,
        )

    def _fits(self, found: Pool, observed: Sequence[Observed]) -> Iterator[Fit]:
        """Every measurement beside its predictions, before and after, and from the others."""
        count, before, after = len(observed), found.prior_weights, found.weights()
        errors = normal_at(sobol(len(found.values), count, self.seed)) * found.evidence.sds
        logs = found.logs + errors
        for at, one in enumerate(observed):
            others = found.weights(at) if count > 1 else None
            share = float(before @ (logs[:, at] < one.log_published))
            yield Fit(
                observed=one,
                before=_three(logs[:, at], before),
                after=_three(logs[:, at], after),
                left_out=None if others is None else _three(logs[:, at], others),
                left_out_effective=0.0 if others is None else effective(others),
                moved=moved(found, self.unknowns, at),
                prior_tail=2 * min(share, 1 - share),
            )


def _three(logs: Array, weights: Array) -> tuple[float, float, float]:
    low, middle, high = np.exp(quantiles(logs, weights, LEVELS)).tolist()
    return low, middle, high
