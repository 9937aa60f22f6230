"""What the model discrepancies: how widely, and whose it is."""

from __future__ import annotations

import numpy as np
import pytest
from builders import full_setup
from hypothesis import given
from hypothesis import strategies as st

from sim.setup import resolve
from sim.uncertainty.discrepancy import OF_CONFIGURATION, OF_SYSTEM, factor, unmodelled
from sim.uncertainty.posterior import NO_DISCREPANCY, Discrepancy
from sim.uncertainty.priors import log_sd
from sim.validation import cases, shipped
from sim.validation.residuals import Residual, random_effects
from sim.validation.translation import CaseKind, question
from sim.validation.verdicts import Ground

SOME = Discrepancy(0.1, 0.2)


def identities(*overrides: str) -> dict[str, str]:
    return {one.name: one.identity for one in unmodelled(full_setup(*overrides), SOME)}


@pytest.mark.parametrize(
    "change",
    ["question=Is this another question?", "runs=3", "seed=9", "uncertain.tree.budget={choice: [4, 8]}"],
)
def test_what_changes_no_simulation_leaves_a_configuration_what_it_is(change: str) -> None:
    assert identities() == identities(change)


@pytest.mark.parametrize("change", ["tree.budget=4", "load.context_tokens=9000", "acceptance.mean_length=3"])
def test_other_configurations_of_a_system_share_what_it_lacks(change: str) -> None:
    before, after = identities(), identities(change)
    assert before[OF_SYSTEM] == after[OF_SYSTEM]
    assert before[OF_CONFIGURATION] != after[OF_CONFIGURATION]


@pytest.mark.parametrize("change", ["stack=native", "gpus=4", "drafter.block=0", "gpu=b200_sxm"])
def test_another_system_lacks_something_else(change: str) -> None:
    assert identities()[OF_SYSTEM] != identities(change)[OF_SYSTEM]


@given(st.floats(0.001, 0.5))
def test_a_factor_is_as_wide_as_it_says(sd: float) -> None:
    assert float(log_sd(factor(sd).spread)) == pytest.approx(sd)


def test_what_is_known_is_no_unknown() -> None:
    assert list(unmodelled(full_setup(), NO_DISCREPANCY)) == []
    assert [one.name for one in unmodelled(full_setup(), Discrepancy(0.0, 0.1))] == [OF_CONFIGURATION]


def residuals(system_sd: float, own_sd: float, known_sd: float, systems: int, rows: int) -> list[Residual]:
    rng = np.random.default_rng(11)
    found = []
    for system in range(systems):
        # Tables are off alike for all that a system decodes.
        shared = rng.normal(0, system_sd) + rng.normal(0, known_sd)
        for _ in range(rows):
            error = shared + rng.normal(0, own_sd)
            found.append(
                Residual("C", CaseKind.SPECULATIVE, Ground.TABLES, f"system {system}", error, known_sd)
            )
    return found


def of(known: list[Residual], without: tuple[str, ...] = ()) -> Discrepancy:
    return random_effects(known, CaseKind.SPECULATIVE, Ground.TABLES, without)


@pytest.mark.parametrize(("system_sd", "own_sd"), [(0.15, 0.05), (0.05, 0.15), (0.1, 0.1)])
def test_both_deviations_are_found_again(system_sd: float, own_sd: float) -> None:
    found = of(residuals(system_sd, own_sd, known_sd=0.04, systems=150, rows=5))
    assert found.system_sd == pytest.approx(system_sd, rel=0.2)
    assert found.own_sd == pytest.approx(own_sd, rel=0.1)


def test_what_is_known_not_to_be_known_explains_what_it_can() -> None:
    """Errors as wide as predictions expect leave nothing that the model lacks."""
    found = of(residuals(0.0, 0.0, known_sd=0.1, systems=150, rows=5))
    assert found.system_sd < 0.03
    assert found.own_sd < 0.01


def test_a_system_teaches_nothing_of_itself() -> None:
    known = residuals(0.1, 0.1, known_sd=0.04, systems=6, rows=3)
    own = [one._replace(log_error=5.0) if one.system == "system 0" else one for one in known]
    assert of(own, ("system 0",)) == of(known, ("system 0",))
    assert of(own).system_sd > 2 * of(known).system_sd


def test_too_few_systems_alike_are_joined_by_the_others_of_their_kind() -> None:
    """Quantiles systems on the same ground are enough; two are not."""
    known = residuals(0.1, 0.1, known_sd=0.04, systems=8, rows=3)
    few = [
        one._replace(ground=Ground.ROOFLINE) if one.system in ("system 0", "system 1") else one
        for one in known
    ]
    assert random_effects(few, CaseKind.SPECULATIVE, Ground.ROOFLINE) == of(known)
    assert random_effects(few, CaseKind.SPECULATIVE, Ground.TABLES) != of(known)
    assert random_effects(few, CaseKind.BASELINE, Ground.TABLES) == NO_DISCREPANCY


def test_a_setup_calls_its_system_what_published_cases_call_it() -> None:
    """A system that is left out by its name must be left out under both names."""
    known = {case.id: case for case in cases.read(shipped.cases())}
    for name, kind in (
        ("C002", CaseKind.SPECULATIVE),
        ("C113", CaseKind.BASELINE),
        ("C001", CaseKind.SPECULATIVE),
    ):
        asked = question(known[name], kind)
        assert resolve(asked.scenario).system == asked.system
