"""Everything about a setup that is not known exactly: names, distributions, and values drawn from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import qmc

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.entry import Entry, Figure
from hwmodels.uncertainty import unstated_spread
from hwmodels.work import Work
from sim.errors import ScenarioError
from sim.families import Family, family_of
from sim.setup import Setup
from sim.step import decode_step
from sim.uncertainty.checks import scenario_prior
from sim.uncertainty.discrepancy import kind_of_system, unmodelled
from sim.uncertainty.keys import KINDS, WORK, Where, is_luck, place_of, slug
from sim.uncertainty.posterior import NO_DISCREPANCY, Discrepancy, Posterior
from sim.uncertainty.priors import (
    Array,
    Choice,
    Column,
    Lognormal,
    Prior,
    Ranged,
    Uniform,
    Whole,
    log_sd,
    objects,
)
from sim.uncertainty.stated import Distribution, Own
from sim.uncertainty.tables import table_spreads

COUNTED = "kernels"
"""What keys of figures end in that count things: drawn as whole numbers."""


@dataclass(frozen=True)
class Parameter:
    """One thing that is not known."""

    name: str
    """A scenario key, ``<kind>.<figure>``, ``work.<family>`` or one of ``sim.uncertainty.discrepancy``."""
    where: Where
    prior: Prior
    best: Any
    """The value of the point answer."""
    basis: str
    """What the distribution rests on."""
    identity: str
    """The same for the same unknown in another scenario; another where only the name is the same."""
    label_log_sd: float | None = None
    """Of a family's factor: the log sd of work that takes exactly this factor; other work of the family
    is off by as many of its own sigmas. None where all of it takes the same factor."""


@dataclass(frozen=True, eq=False)
class Values:
    """Values of parameters, one a draw, by their names."""

    columns: dict[str, Column]
    count: int

    def __len__(self) -> int:
        return self.count

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each draw's values by name."""
        lists = {name: column.tolist() for name, column in self.columns.items()}
        for row in range(self.count):
            yield {name: values[row] for name, values in lists.items()}


@dataclass(frozen=True)
class Parameters:
    """The parameters of a setup, in the order of their names."""

    items: tuple[Parameter, ...]
    posterior: Posterior | None = None
    """What measurements have taught about some of them."""

    @classmethod
    def of(cls, setup: Setup) -> Parameters:
        """Every parameter of *setup*: what its scenario states, and what its figures and tables leave open.

        With a calibration also what the model lacks. ScenarioError where the scenario names work that its
        step does not have.
        """
        discrepancies = {} if setup.posterior is None else setup.posterior.discrepancies
        return cls.with_discrepancy(setup, discrepancies.get(kind_of_system(setup), NO_DISCREPANCY))

    @classmethod
    def with_discrepancy(cls, setup: Setup, discrepancy: Discrepancy) -> Parameters:
        """Every parameter of *setup*, whose model lacks about as much as *discrepancy* says."""
        found = [*_scenario_keys(setup), *_figures(setup), *_work(setup), *_unmodelled(setup, discrepancy)]
        items = tuple(sorted(found, key=lambda parameter: parameter.name))
        return cls(items, setup.posterior)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.items)

    def __getitem__(self, name: str) -> Parameter:
        """The parameter called *name*; KeyError where there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.items}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(parameter.name for parameter in self.items)

    def only(self, names: Collection[str]) -> Parameters:
        """Those called *names*; the others keep their best values."""
        items = tuple(parameter for parameter in self.items if parameter.name in names)
        return Parameters(items, self.posterior)

    def best(self, count: int = 1) -> Values:
        """*count* times the values of the point answer."""
        return Values({p.name: objects([p.best] * count) for p in self.items}, count)

    def draw(self, count: int, seed: int) -> Values:
        """*count* draws; see ``draws`` for those of several setups together."""
        (values,) = draws([self], count, seed)
        return values

    def levels(self, parameter: Parameter, levels: Array) -> Column:
        """The values of *parameter* at *levels* of what is known of it alone."""
        if self.posterior is not None:
            levels = self.posterior.marginal(parameter.identity, levels)
        return parameter.prior.at(levels)

    def at(self, quantiles: Array) -> Values:
        """The values at *quantiles* (draws, parameters) of the priors, in the order of the names."""
        columns = {p.name: p.prior.at(quantiles[:, index]) for index, p in enumerate(self.items)}
        return Values(columns, len(quantiles))


def draws(several: Iterable[Parameters], count: int, seed: int) -> list[Values]:
    """*count* draws for each of *several* setups, in which the same unknown has the same quantile.

    Scrambled Sobol points, one dimension for every identity, in their alphabetical order: neither the
    order of setups nor that of parameters changes a value. *count* is best a power of two. What a setup's
    posterior knows is drawn from it instead, draw i from the same row in all setups that share it.
    """
    setups = list(several)
    identities = sorted({parameter.identity for parameters in setups for parameter in parameters})
    points = sobol(count, len(identities), seed)
    place = {identity: index for index, identity in enumerate(identities)}
    found = []
    for p in setups:
        own = [parameter.identity for parameter in p]
        quantiles = points[:, [place[identity] for identity in own]]
        found.append(p.at(quantiles if p.posterior is None else p.posterior.put_into(quantiles, own, seed)))
    return found


def sobol(count: int, dimensions: int, seed: int) -> Array:
    """(count, dimensions) scrambled Sobol points."""
    if not dimensions:
        return np.empty((count, 0))
    whole = 1 << max(0, count - 1).bit_length()
    points = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed)).random(whole)
    return np.asarray(points[:count])


def _scenario_keys(setup: Setup) -> Iterator[Parameter]:
    """What the scenario says of its own keys; a range of mean lengths is uniform where it says no more."""
    scenario = setup.scenario
    for key, stated in scenario.uncertain.items():
        if place_of(key, type(scenario), scenario.entries) is Where.SCENARIO:
            prior = scenario_prior(scenario, key, stated)
            yield Parameter(key, Where.SCENARIO, prior, value_at(setup, key), "scenario", f"{key} {prior}")
    ends, key = scenario.acceptance.mean_length_range, mean_key(setup)
    if ends is not None and key not in scenario.uncertain:
        prior, basis = Uniform(*ends), "acceptance.mean_length_range"
        yield Parameter(key, Where.SCENARIO, prior, scenario.acceptance.asked_mean, basis, f"{key} {prior}")


def mean_key(setup: Setup) -> str:
    """The scenario key of the mean that acceptance is solved for."""
    inside = setup.scenario.acceptance.quality is not None
    return "acceptance.quality.mean_length" if inside else "acceptance.mean_length"


def value_at(setup: Setup, key: str) -> Any:
    """The scenario's own value of *key*; None where it leaves it to a default."""
    value: Any = setup.scenario.model_dump(mode="json")
    for part in key.split("."):
        value = None if value is None else value[part]
    return value


def entries(setup: Setup) -> dict[Kind, Entry]:
    """The catalog entries of *setup*."""
    machine = setup.machine
    return {
        Kind.GPU: machine.gpu,
        Kind.INTERCONNECT: machine.interconnect,
        Kind.HOST: machine.host,
        Kind.STACK: machine.stack,
        Kind.MODEL: setup.model,
        Kind.DRAFTER: setup.drafter,
    }


def _figures(setup: Setup) -> Iterator[Parameter]:
    """Every figure that is uncertain, or that the scenario says is."""
    held = entries(setup)
    for short, kind in KINDS.items():
        for key, figure in catalog.figures(held[kind]):
            name = f"{short}.{key}"
            prior, basis = _figure_prior(setup.scenario.uncertain.get(name), figure)
            if prior is None or is_luck(key) or _unused(setup, name):
                continue
            if key.endswith(COUNTED) and not isinstance(prior, Choice):
                prior = Whole(prior)
            identity = f"{name} {figure.value} {figure.range} {figure.source.name} {figure.ref} {prior}"
            yield Parameter(name, Where.FIGURE, prior, figure.value, basis, identity)


def _unused(setup: Setup, name: str) -> bool:
    """True for the catalog's correlations of routing where the scenario has its own."""
    asked = setup.scenario.experts.routing_correlation is not None
    asked = asked or "experts.routing_correlation" in setup.scenario.uncertain
    return asked and name in ("model.experts.routing_correlation", "model.experts.token_correlation")


def _figure_prior(stated: Distribution | None, figure: Figure) -> tuple[Prior | None, str]:
    """The distribution of *figure* and what it rests on; None where it is taken as exact."""
    if stated is not None and stated.from_ is None:
        return stated.prior, "scenario"
    if figure.range is not None:
        return Ranged(figure.value, *figure.range), f"range of the figure, {figure.source.name}"
    spread = unstated_spread(figure.source)
    if not figure.value or not spread:
        return None, ""
    return Lognormal(figure.value, spread), f"{figure.source.name} without a range"


def _work(setup: Setup) -> Iterator[Parameter]:
    """A factor for every family of work whose tables or fits leave something open."""
    stated = {key: how for key, how in setup.scenario.uncertain.items() if key.startswith(f"{WORK}.")}
    families = _by_family(setup)
    for name in stated.keys() - {f"{WORK}.{slug(family)}" for family in families}:
        raise ScenarioError("scenario", 0, f"uncertain.{name}", "no step of this scenario has such work")
    for family, works in families.items():
        name = f"{WORK}.{slug(family)}"
        how = stated.get(name)
        if how is not None and how.from_ is not Own.FIT:
            yield Parameter(name, Where.WORK, how.prior, 1.0, "scenario", f"{name} {how.prior}")
            continue
        spread = _weighted(setup, works)
        if spread:
            prior = Lognormal(1.0, spread)
            yield Parameter(
                name,
                Where.WORK,
                prior,
                1.0,
                f"tables and fits of {family}",
                f"{name} {_tables_of(setup, family)}",
                label_log_sd=float(log_sd(spread)),
            )


def _unmodelled(setup: Setup, discrepancy: Discrepancy) -> Iterator[Parameter]:
    """What the model lacks."""
    for name, prior, basis, identity in unmodelled(setup, discrepancy):
        yield Parameter(name, Where.DISCREPANCY, prior, 1.0, basis, identity)


def _by_family(setup: Setup) -> dict[Family, dict[Work, int]]:
    """How often each piece of work of a step is met by one rank, or the host, by its family."""
    found: dict[Family, dict[Work, int]] = {}
    for op in decode_step(setup).ops:
        if op.rank in (None, 0):
            counts = found.setdefault(family_of(op.work), {})
            counts[op.work] = counts.get(op.work, 0) + 1
    return found


def _weighted(setup: Setup, works: dict[Work, int]) -> float:
    """Mean uncertainty of what tables say of *works*, weighted by the time that they take."""
    spreads = table_spreads(setup.machine, list(works))
    times = np.array([setup.costs.estimate(work).seconds * count for work, count in works.items()])
    return float(spreads @ times / times.sum()) if times.sum() else 0.0


def _tables_of(setup: Setup, family: Family) -> str:
    """What tables a family takes: in two setups with the same ones it is off by the same."""
    machine = setup.machine
    parts = [family, machine.gpu.measured_as, machine.gpu.measured or "", machine.interconnect.fabric]
    parts += [machine.stack.framework, machine.expert_kernel or ""]
    routed = setup.model.experts
    return " ".join([*parts, routed.dtype.value if routed is not None and family == "routed experts" else ""])
