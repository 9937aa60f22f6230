"""Choices instead of a scenario's own, and investments alone and combined."""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest
from builders import full_setup, scenario_with
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.errors import DocumentError
from sim import scenario as scenarios
from sim import shipped
from sim.causes import subsets
from sim.errors import ScenarioError
from sim.levers import investments
from sim.levers.alternatives import Choice, choices, evaluate
from sim.levers.drivers import MOST, drivers, total_indices
from sim.levers.investments import Held, Return, Returns
from sim.levers.played import PlayedSteps
from sim.setup import Setup, resolve
from sim.simulate import Simulation

QUALITY = "acceptance={quality: {mean_length: 4.4}}"
PLAN = """\
question: Which of the two would bring more?
base: base.yaml
investments:
  - {name: link, title: another link, set: {interconnect: nvlink4}}
  - {name: tree, title: a tree on the GPU, set: {tree.builder: gpu}}
"""
BASE = Path(__file__).parents[1] / "support" / "base.yaml"


@cache
def shipped_setup(name: str) -> Setup:
    return resolve(scenarios.load(shipped.find(name)))


def names(setup: Setup) -> set[str]:
    return {choice.name for choice in choices(setup)}


def plan_in(folder: Path, text: str = PLAN) -> Path:
    (folder / "base.yaml").write_text(BASE.read_text())
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


@cache
def articles() -> Returns:
    return investments.play(investments.prepare(investments.find("articles")))


def tok_s(setup: Setup) -> float:
    played = PlayedSteps.of(Simulation(setup))
    return played.tok_s(played.step_ns(played.unchanged))


# --- choices -------------------------------------------------------------------------------------------


def test_a_choice_that_says_what_the_scenario_says_changes_nothing() -> None:
    setup = full_setup()
    found = evaluate(setup, Choice("budget", "the same", {"tree.budget": 8}))
    assert found.tok_s == tok_s(setup)
    assert found.note == ""


def test_other_trees_keep_the_drafters_accuracy() -> None:
    """Half the budget lands less, and the mean that was asked for still holds at the scenario's own tree."""
    setup = full_setup(QUALITY)
    found = {choice.name: choice for choice in choices(setup)}
    half, twice = (evaluate(setup, found[name]) for name in ("budget 4", "budget 16"))
    assert half.tok_s is not None
    assert half.tok_s < tok_s(setup)
    assert twice.note == "launched kernel by kernel"
    assert found["budget 4"].changes["acceptance.quality.budget"] == 8


def test_trees_are_left_out_where_acceptance_does_not_follow_from_them() -> None:
    kinds = {choice.kind for choice in choices(full_setup())}
    assert not kinds & {"block", "budget", "chain"}
    assert {"block", "budget"} <= {choice.kind for choice in choices(full_setup(QUALITY))}


def test_chains_are_made_longer_and_shorter_as_a_whole() -> None:
    chain = full_setup("tree={shape: chain, budget: 4}", "drafter.block=5", QUALITY.replace("4.4", "3"))
    assert {"chain of 2", "chain of 8"} <= names(chain)
    assert not {"tree built on the GPU", "stack native, tree built on the GPU"} & names(chain)


def test_plain_decoding_has_engines_and_gpus_to_choose() -> None:
    kinds = {choice.kind for choice in choices(full_setup("tree.budget=0"))}
    assert kinds == {"engine", "experts", "GPU"}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("b300_strong_drafter", "limit on captured trees kept"),
        ("b300_strong_drafter_eager", "limit on captured trees lifted"),
        ("b300_strong_drafter_native", "tree built on the host"),
        ("b300_native_engine", "stack sglang"),
    ],
)
def test_every_choice_has_its_other_side(name: str, other: str) -> None:
    assert other in names(shipped_setup(name))


def test_a_limit_that_no_tree_breaks_is_no_choice() -> None:
    assert not any("limit" in name for name in names(shipped_setup("b300_now")))


def test_what_cannot_be_simulated_says_why() -> None:
    setup = full_setup()
    too_small = evaluate(setup, Choice("GPU", "small", {"gpu": "rtx_3090", "interconnect": "pcie4_two_gpus"}))
    assert too_small.tok_s is None
    assert "needs" in too_small.problem
    impossible = evaluate(setup, Choice("block", "block 2", {"drafter.block": 2}))
    assert impossible.tok_s is None
    assert "at most 2" in impossible.problem
    assert scenario_with() == setup.scenario


# --- investments ------------------------------------------------------------------------------------------


def test_the_articles_combinations_are_the_shipped_scenarios() -> None:
    found = articles().returns
    for made, name in {
        ("hardware",): "b300_now",
        ("hardware", "engine"): "b300_native_engine",
        ("hardware", "drafter"): "b300_strong_drafter",
        ("hardware", "drafter", "engine"): "b300_strong_drafter_native",
        ("drafter",): "pro6000_strong_drafter",
    }.items():
        assert found[Held(made)].tok_s == pytest.approx(tok_s(shipped_setup(name)), rel=0.02), name
    with_nvfp4 = articles().beside[Held(["hardware", "drafter"])].tok_s
    assert with_nvfp4 == pytest.approx(tok_s(shipped_setup("b300_strong_drafter_nvfp4")), rel=1e-9)


def test_all_combinations_are_there_and_fair_shares_multiply_to_the_whole() -> None:
    found = articles()
    assert set(found.returns) == set(found.beside) == set(subsets(found.names))
    whole = found.returns[Held(found.names)].tok_s / found.returns[Held()].tok_s
    assert prod(worth.fair for worth in found.worths) == pytest.approx(whole)
    for worth in found.worths:
        assert worth.alone > 1
        assert worth.on_top > 1


def test_both_ends_of_the_range_lie_around_the_middle() -> None:
    for held, found in articles().returns.items():
        assert (found.range_tok_s is not None) == ("drafter" in held)
        if found.range_tok_s is not None:
            assert found.range_tok_s[0] < found.tok_s < found.range_tok_s[1]


def test_a_plan_of_ones_own_starts_from_the_file_beside_it(tmp_path: Path) -> None:
    prepared = investments.prepare(plan_in(tmp_path))
    assert prepared.combinations == 4
    count = 0

    def advance() -> None:
        nonlocal count
        count += 1

    found = investments.play(prepared, advance)
    assert count == 4
    assert found.beside == {}
    assert found.returns[Held()] == Return(tok_s(full_setup()), None)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("tree.builder", "tree.buidler", "did you mean 'builder'"),
        ("nvlink4", "nvlink44", "did you mean 'nvlink4'"),
        ("name: tree", "name: link", "names of their own"),
        ("base.yaml", "b300_nwo", "did you mean 'b300_now'"),
        ("title: another link, ", "", "title"),
        ("set: {interconnect: nvlink4}", "set: {}", "set"),
        ("gpu}", "moon}", "expected 'host' or 'gpu'"),
    ],
)
def test_a_wrong_plan_is_refused_with_what_is_wrong(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    with pytest.raises(DocumentError, match=message):
        investments.prepare(plan_in(tmp_path, PLAN.replace(before, after)))


def test_a_plan_that_is_not_there_is_named() -> None:
    with pytest.raises(ScenarioError, match="nowhere: no such file"):
        investments.find("nowhere")


# --- what drives the uncertainty --------------------------------------------------------------------------


class Additive:
    """Throughput that adds up parameters with weights: each explains its weight squared."""

    def __init__(self, *weights: float) -> None:
        self.weights = np.array(weights)
        self.parameters = self
        self.names = tuple(map(str, range(len(weights))))

    def __len__(self) -> int:
        return len(self.weights)

    def at(self, quantiles: np.ndarray) -> np.ndarray:
        return quantiles

    def throughput(self, values: np.ndarray) -> np.ndarray:
        return 100 + values @ self.weights


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5))
@settings(max_examples=20)
def test_sobol_indices_of_a_sum_are_the_weights_squared(weights: list[float]) -> None:
    found = total_indices(Additive(*weights), seed=1, points=512)  # type: ignore[arg-type]
    whole = sum(weight**2 for weight in weights)
    for weight, (total, first) in zip(weights, found.values(), strict=True):
        assert total == pytest.approx(weight**2 / whole, abs=0.05)
        assert first == pytest.approx(weight**2 / whole, abs=0.12)


def test_the_length_of_a_drafter_nobody_has_drives_its_uncertainty() -> None:
    found = drivers(shipped_setup("b300_strong_drafter"))
    assert found is not None
    assert found.drivers[0].swing.name == "acceptance.quality.mean_length"
    assert found.drivers[0].total > 0.5
    totals = [driver.total for driver in found.drivers]
    assert totals == sorted(totals, reverse=True)
    assert len(totals) == MOST
    assert 0.8 < found.asked_share < 1.1
