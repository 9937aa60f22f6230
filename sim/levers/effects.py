"""What every lever of a scenario does, by playing its steps again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import numpy as np
from numpy.typing import NDArray

from hwmodels.devices import Gpu
from hwmodels.entry import Figure
from hwmodels.estimate import Bound
from sim.graph import Component, IntArray
from sim.levers.kinds import WORSE, Degree, Group, Lever, acts_on
from sim.levers.played import PlayedSteps, joining
from sim.means import BaseTimes
from sim.setup import Setup
from sim.statistics import half_width

Array = NDArray[np.float64]
US = 1e-6


@dataclass(frozen=True)
class Effect:
    """What one lever does."""

    lever: Lever
    share: float | None
    """Of the critical path; None where no time on it belongs to the lever."""
    tok_s: Mapping[Degree, float]
    """Throughput of all requests."""
    worse_tok_s: float
    """The same where it is 50 % worse."""
    bound_tok_s: Mapping[Degree, float] | None
    """Amdahl's bound: the critical path, shortened, and nothing else in the way."""
    elasticity: float
    """Per cent of throughput for a per cent of what the lever improves, over the first 10 %."""
    half_width: float
    """Of throughput over the scenario's with the lever free, relative to it, by the luck of the runs."""

    def gain(self, degree: Degree, base_tok_s: float) -> float:
        """Relative change of throughput."""
        return self.tok_s[degree] / base_tok_s - 1


@dataclass(frozen=True)
class Base:
    """The scenario as it is."""

    tok_s: float
    step_s: float
    mean_length: float
    components: Mapping[Component, float]
    """Seconds of the critical path; they add up to the step."""


class LeverBench:
    """Asks one scenario's steps about levers."""

    def __init__(self, played: PlayedSteps) -> None:
        self.played = played
        self.setup = played.simulation.setup
        self._acts_on = acts_on(self.setup, played.simulation.pieces.labels)
        self._critical_s = played.critical_s()
        self._base_ns = played.step_ns(played.unchanged)

    @cached_property
    def base(self) -> Base:
        """The scenario as it is."""
        labels, components = self.played.simulation.pieces.labels, dict.fromkeys(Component, 0.0)
        for label, seconds in zip(labels, self._critical_s.tolist(), strict=True):
            components[label.component] += seconds
        return Base(
            tok_s=self.played.tok_s(self._base_ns),
            step_s=float(self._base_ns.mean()) * 1e-9,
            mean_length=self.played.simulation.acceptance.mean_length(),
            components=components,
        )

    @property
    def levers(self) -> list[Lever]:
        """Those that act on something here."""
        plain, ranks = self.setup.scenario.is_plain, self.setup.machine.ranks
        absent = {Lever.ACCEPTANCE} if plain else set()
        absent |= {Lever.ARRIVAL_SKEW} if ranks == 1 else set()
        return [
            lever
            for lever in Lever
            if lever in self._acts_on or (lever.group is Group.PARAMETER and lever not in absent)
        ]

    def effect(self, lever: Lever) -> Effect:
        """What *lever* does."""
        if lever is Lever.ACCEPTANCE:
            return self._of_acceptance()
        if lever is Lever.ARRIVAL_SKEW:
            return self._of_skew()
        return self._of_times(lever)

    def factors(self, lever: Lever, kept: float) -> Array:
        """(labels,) how long each piece of work takes where *lever* leaves *kept* of the time it acts on."""
        if lever is Lever.HBM_BANDWIDTH:
            return memory_factors(self.played, np.inf if kept == 0 else 1 / kept)
        return np.asarray(1 - self._acts_on[lever] * (1 - kept))

    def _of_times(self, lever: Lever) -> Effect:
        factors = {degree: self.factors(lever, lever.kept(degree)) for degree in Degree}
        whole = float(self._critical_s.sum())
        left = {degree: float(self._critical_s @ found) for degree, found in factors.items()}
        share = 1 - left[Degree.FREE] / whole
        bounds = {degree: self._tok_s_of_step(seconds) for degree, seconds in left.items()}
        return self._effect(lever, lambda kept: self.played.step_ns(self.factors(lever, kept)), share, bounds)

    def _of_skew(self) -> Effect:
        ones = self.played.unchanged
        return self._effect(Lever.ARRIVAL_SKEW, lambda kept: self.played.step_ns(ones, skew=kept))

    def _of_acceptance(self) -> Effect:
        """The gap between the mean length and the longest one closed by 10 %, 50 %, altogether."""
        model = self.played.simulation.acceptance
        mean, gap = model.mean_length(), model.cap - model.mean_length()
        lengths = {degree: mean + degree.value * gap for degree in Degree}
        tok_s = {degree: self._with_length(length) for degree, length in lengths.items()}
        tenth = Degree.TENTH
        grown = log(lengths[tenth] / mean)
        return Effect(
            lever=Lever.ACCEPTANCE,
            share=None,
            tok_s=tok_s,
            worse_tok_s=self._with_length(mean - Degree.HALF.value * (mean - 1)),
            bound_tok_s=None,
            elasticity=log(tok_s[tenth] / self.base.tok_s) / grown if grown else 0.0,
            half_width=0.0,
        )

    def _with_length(self, length: float) -> float:
        """Throughput at another mean length: requests stay shorter, so that more join in a step."""
        if not self.setup.scenario.load.prefill:
            return self.played.tok_s(self._base_ns, length)
        ratio = length / self.played.simulation.acceptance.mean_length()
        labels = self.played.simulation.pieces.labels
        longer = [ratio if label.component is Component.PREFILL else 1.0 for label in labels]
        return self.played.tok_s(self.played.step_ns(np.array(longer)), length)

    def _effect(
        self,
        lever: Lever,
        step_ns: Callable[[float], IntArray],
        share: float | None = None,
        bounds: Mapping[Degree, float] | None = None,
    ) -> Effect:
        played = {degree: step_ns(lever.kept(degree)) for degree in Degree}
        tok_s = {degree: self.played.tok_s(found) for degree, found in played.items()}
        faster = 1 + Degree.TENTH.value if lever.is_rate else 1 / (1 - Degree.TENTH.value)
        return Effect(
            lever=lever,
            share=share,
            tok_s=tok_s,
            worse_tok_s=self.played.tok_s(step_ns(WORSE)),
            bound_tok_s=bounds,
            elasticity=log(tok_s[Degree.TENTH] / self.base.tok_s) / log(faster),
            half_width=self._luck(played[Degree.FREE]),
        )

    def _luck(self, step_ns: IntArray) -> float:
        """Half width of the ratio of throughputs, relative to it."""
        ratios = self._base_ns.mean(axis=1) / step_ns.mean(axis=1)
        return (half_width(ratios) or 0.0) / float(ratios.mean())

    def _tok_s_of_step(self, seconds: float) -> float:
        """Of steps that take *seconds*; at least a nanosecond, where nothing is left of one."""
        return self.played.tok_s(np.array([[max(1, round(seconds * 1e9))]]))


def memory_factors(played: PlayedSteps, times: float) -> Array:
    """(labels,) what *times* the HBM bandwidth, peak and achieved, leaves of each piece of work's time."""
    simulation = played.simulation
    setup = _with_memory(simulation.setup, times)
    joined = np.array([joining(simulation)])
    faster_s = BaseTimes(setup, simulation.pieces).seconds(played.contexts[:1], joined)[0]
    factors: Array = np.divide(faster_s, played.label_s, out=played.unchanged, where=played.label_s > 0)
    if setup.machine.samples is not None:
        _scale_samples(factors, played, times)
    return factors


def _with_memory(setup: Setup, times: float) -> Setup:
    """*setup* with GPUs whose memory has *times* the bandwidth."""
    gpu: Gpu = setup.machine.gpu
    faster = gpu.model_copy(
        update={
            "memory_bandwidth_gb_s": _raised(gpu.memory_bandwidth_gb_s, times),
            "achieved_bandwidth_gb_s": _raised(gpu.achieved_bandwidth_gb_s, times),
        }
    )
    return replace(setup, machine=replace(setup.machine, gpu=faster))


def _raised(figure: Figure, times: float) -> Figure:
    return figure.model_copy(update={"value": figure.value * times, "range": None})


def _scale_samples(factors: Array, played: PlayedSteps, times: float) -> None:
    """Samples do not follow a GPU's figures: what memory bounds of them follows by the rule of tables."""
    setup = played.simulation.setup
    floor_s = setup.machine.gpu.kernel_floor_us.value * US
    for at, label in enumerate(played.simulation.pieces.labels):
        estimate, seconds = setup.costs.estimate(label.work), float(played.label_s[at])
        if estimate.blend is not None and estimate.bound is Bound.MEMORY and seconds > floor_s:
            factors[at] = (floor_s + (seconds - floor_s) / times) / seconds
