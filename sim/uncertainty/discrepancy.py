"""What the model lacks altogether, as two unknowns of a setup.

No figure has a range for an effect that nobody modelled. How widely predictions are off for such reasons
is learnt from published measurements of other systems; here they are factors of a step's time, one that all
configurations of a system share and one of this configuration alone, so that an anchor can say what they
are on its system. (Kennedy and O'Hagan 2001 call it model discrepancy.)
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
from sim.uncertainty.posterior import Discrepancy, SystemKind
from sim.uncertainty.priors import Lognormal

OF_SYSTEM = "discrepancy.system"
OF_CONFIGURATION = "discrepancy.configuration"
TEXT = {key for key in FIXED if "." not in key} | {"uncertain", "calibration"}
"""Keys of a scenario that leave what is simulated as it is."""


class Unmodelled(NamedTuple):
    """A factor of a step's time."""

    name: str
    prior: Lognormal
    basis: str
    identity: str


def unmodelled(setup: Setup, discrepancy: Discrepancy) -> Iterator[Unmodelled]:
    """What stands for what the model lacks on *setup*; nothing where *discrepancy* is nothing."""
    kind = "plain" if setup.scenario.is_plain else "speculative"
    both = (
        (OF_SYSTEM, discrepancy.system_sd, f"other {kind} systems", f"{kind} {setup.system}"),
        (OF_CONFIGURATION, discrepancy.own_sd, f"other {kind} cases", _digest(setup.scenario)),
    )
    for name, sd, others, of_what in both:
        if sd:
            basis = f"what the model lacks, from {others}"
            yield Unmodelled(name, factor(sd), basis, f"{name} {of_what}")


def factor(sd: float) -> Lognormal:
    """Around 1, with *sd* of its logarithm."""
    return Lognormal(1.0, sqrt(expm1(sd * sd)))


def kind_of_system(setup: Setup) -> SystemKind:
    """What kind of system *setup* is."""
    return SystemKind(setup.scenario.is_plain, tables.are_measured(setup.machine.gpu.measured_as))


def _digest(scenario: Scenario) -> str:
    """The same for two scenarios that simulate the same."""
    said = scenario.model_dump(mode="json", exclude=TEXT)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
