"""What the model lacks altogether, as two unknowns of a setup.

No figure has a range for an effect that nobody modelled. How widely predictions are off for such reasons
is learnt from published measurements of other systems; here they are factors of a step's time, one that all
configurations of a system share and one of this configuration alone, so that an anchor can say what they
are on its system.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from math import expm1, sqrt
from typing import NamedTuple

from hwmodels import tables
from sim.scenario import Scenario
from sim.setup import Setup
from sim.uncertainty.keys import FIXED
from sim.uncertainty.posterior import Lack, Sort
from sim.uncertainty.priors import Lognormal

OF_SYSTEM = "lacking.system"
OF_CONFIGURATION = "lacking.configuration"
TEXT = {key for key in FIXED if "." not in key} | {"uncertain", "calibration"}
"""Keys of a scenario that leave what is simulated as it is."""


class Missing(NamedTuple):
    """A factor of a step's time."""

    name: str
    prior: Lognormal
    basis: str
    identity: str


def missing(setup: Setup, lack: Lack) -> Iterator[Missing]:
    """The unknowns that stand for what the model lacks on *setup*; those that *lack* knows are left out."""
    scenario, sort = setup.scenario, sort_of(setup)
    kind = "plain" if sort.plain else "speculative"
    where = f"{scenario.gpus}x {setup.machine.gpu.name}, {setup.machine.stack.name}"
    both = (
        (OF_SYSTEM, lack.system_sd, f"other {kind} systems", f"{OF_SYSTEM} {kind} {where}"),
        (OF_CONFIGURATION, lack.own_sd, f"other {kind} cases", f"{OF_CONFIGURATION} {_digest(scenario)}"),
    )
    for name, sd, others, identity in both:
        if sd:
            yield Missing(name, factor(sd), f"what the model lacks, from {others}", identity)


def factor(sd: float) -> Lognormal:
    """Around 1, with *sd* of its logarithm."""
    return Lognormal(1.0, sqrt(expm1(sd * sd)))


def sort_of(setup: Setup) -> Sort:
    """What sort of system *setup* is."""
    return Sort(setup.scenario.is_plain, tables.are_measured(setup.machine.gpu.measured_as))


def _digest(scenario: Scenario) -> str:
    """The same for two scenarios that simulate the same."""
    said = scenario.model_dump(mode="json", exclude=TEXT)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
