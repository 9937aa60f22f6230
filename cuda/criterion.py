"""When a measurement has enough samples: nvbench's rule, as a pure function of a stream of samples.

After NVIDIA/nvbench, ``detail/stdrel_criterion.cxx``: the goal is a relative standard deviation
below a target. A stream that stays noisy ends once its noise has become steady, one whose samples
are all discarded ends after a fixed number of them, and nothing lasts longer than a time-out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from hwmodels.measured import StopReason

MIN_SAMPLES_FOR_NOISE = 5
"""Below these the noise is taken to be infinite."""
NOISE_WINDOW = 512
"""Estimates of the noise that are looked at to see whether it still changes."""
MIN_ESTIMATES = 64
"""Fewer estimates than this never count as steady."""
CHECK_EVERY = 16
"""Samples between two looks: the look costs more than a sample."""
STEADY = 0.05
"""The noise is steady when its estimates vary by less than this share of their mean."""
MOST_DISCARDED = 64
"""Samples discarded in a row before the stream is given up."""


@dataclass(frozen=True)
class Rule:
    """What is asked of a stream of samples."""

    min_samples: int
    max_samples: int
    min_gpu_time_s: float
    """Sum of the samples that a verdict on their noise needs."""
    max_noise: float
    """Relative standard deviation to get below."""
    timeout_s: float
    """Wall time after which it ends whatever the noise."""


class Criterion:
    """Watches one stream of samples against *rule*."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._count = 0
        self._mean_us = 0.0
        self._squares = 0.0
        self._discarded_in_a_row = 0
        self._noise: deque[float] = deque(maxlen=NOISE_WINDOW)

    def add(self, sample_us: float) -> None:
        """A sample that counts."""
        self._discarded_in_a_row = 0
        self._count += 1
        # Welford's update of mean and sum of squared deviations.
        before = sample_us - self._mean_us
        self._mean_us += before / self._count
        self._squares += before * (sample_us - self._mean_us)
        if self._count >= MIN_SAMPLES_FOR_NOISE:
            self._noise.append(self.noise)

    def discard(self) -> None:
        """A sample that does not count."""
        self._discarded_in_a_row += 1

    @property
    def noise(self) -> float:
        """Relative standard deviation so far; infinite for too few samples, or where the mean is zero."""
        if self._count < MIN_SAMPLES_FOR_NOISE or not self._mean_us:
            return math.inf
        return math.sqrt(self._squares / (self._count - 1)) / self._mean_us

    def verdict(self, elapsed_s: float) -> StopReason | None:
        """Why the stream may end after *elapsed_s* of wall time; None where it goes on."""
        rule = self._rule
        gpu_time_s = self._count * self._mean_us * 1e-6
        if self._count >= rule.min_samples and gpu_time_s >= rule.min_gpu_time_s:
            if self.noise < rule.max_noise:
                return StopReason.NOISE
            if self._is_steady():
                return StopReason.STEADY_NOISE
        if self._count >= rule.max_samples:
            return StopReason.ENOUGH
        if self._discarded_in_a_row >= MOST_DISCARDED:
            return StopReason.INVALID
        return StopReason.TIMEOUT if elapsed_s >= rule.timeout_s else None

    def _is_steady(self) -> bool:
        if len(self._noise) <= MIN_ESTIMATES or self._count % CHECK_EVERY:
            return False
        estimates = np.array(self._noise)
        finite = bool(np.isfinite(estimates).all())
        return finite and bool(estimates.std() < STEADY * estimates.mean())
