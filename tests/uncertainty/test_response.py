"""Throughput as a function of parameters, against whole setups and as laws."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import full_setup, small_setup
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.work import GroupedExperts
from sim import shipped
from sim.drafting import acceptance_model
from sim.records import RunResult
from sim.scenario import load
from sim.setup import Setup, resolve
from sim.simulate import Simulation, play
from sim.uncertainty.applied import with_figures, with_scenario_keys
from sim.uncertainty.keys import Where
from sim.uncertainty.lengths import Lengths
from sim.uncertainty.parameters import Parameters, Values
from sim.uncertainty.priors import Choice, Lognormal, Prior, Ranged, objects
from sim.uncertainty.response import Response, half_way
from sim.uncertainty.total import total
from sim.validation.prediction import StepModel

RUNS = 6
EAGLE = (
    "drafter={model: kimi_eagle3_mla, block: 4}",
    "tree={shape: chain, budget: 3}",
    "acceptance={mean_length: 2.5}",
)


@cache
def setup_of(name: str, *overrides: str) -> Setup:
    return resolve(load(shipped.find(name), (f"runs={RUNS}", "load.output_tokens=256", *overrides)))


@cache
def runs_of(name: str, *overrides: str) -> tuple[RunResult, ...]:
    return tuple(run.result for run in play(Simulation(setup_of(name, *overrides)), RUNS))


@cache
def response_of(name: str, *overrides: str) -> Response:
    return Response(setup_of(name, *overrides), runs=runs_of(name, *overrides))


def with_values(response: Response, name: str, values: list[float]) -> Values:
    best = response.parameters.best(len(values)).columns
    return Values({**best, name: objects(values)}, len(values))


def in_full(setup: Setup) -> float:
    """The mean step of *setup*, built and costed anew."""
    model = StepModel.of(setup, half_way(setup.scenario))
    return float(model.step_s(np.ones((1, len(model.label_s))))[0])


SETUPS = {
    "graphs": small_setup,
    "eager": lambda: small_setup("capture_limit=kept", "tree.budget=16"),
    "sequential drafter": lambda: small_setup(*EAGLE),
    "a batch": lambda: small_setup("load.concurrency=4"),
    "plain": lambda: small_setup("tree.budget=0"),
}


@pytest.mark.parametrize("kind", SETUPS)
def test_moving_a_figure_is_what_a_setup_with_that_figure_does(kind: str) -> None:
    setup = SETUPS[kind]()
    response = Response(setup)
    figures = [p for p in response.parameters if p.where is Where.FIGURE]
    quantiles = np.array([0.03, 0.95])
    changed = 0
    for parameter in figures:
        values = parameter.prior.at(quantiles).tolist()
        found = response.step_seconds(with_values(response, parameter.name, values))
        wanted = [in_full(with_figures(setup, {parameter.name: value})) for value in values]
        assert found == pytest.approx(wanted, abs=1.5e-9), parameter.name
        changed += abs(wanted[0] - wanted[1]) > 1e-9
    assert changed >= 5


def test_moving_all_figures_at_once_too() -> None:
    setup = small_setup()
    response = Response(setup)
    figures = response.parameters.only([p.name for p in response.parameters if p.where is Where.FIGURE])
    values = figures.draw(4, 3)
    whole = [in_full(with_figures(setup, row)) for row in values.rows()]
    best = response.parameters.best(4).columns
    assert response.step_seconds(Values({**best, **values.columns}, 4)) == pytest.approx(whole, abs=1.5e-9)


@pytest.mark.parametrize(
    ("key", "stated", "value"),
    [
        ("tree.builder", "{choice: [host, gpu]}", "gpu"),
        ("tree.budget", "{uniform: [4, 8]}", 6.0),
        ("experts.routing_correlation", "{uniform: [0, 0.4]}", 0.3),
        ("kv.run_tokens", "{choice: [64, 1000000]}", 64),
    ],
)
def test_moving_a_scenario_key_is_what_that_scenario_does(key: str, stated: str, value: object) -> None:
    setup = full_setup(f"uncertain.{key}={stated}")
    response = Response(setup)
    found = response.step_seconds(with_values(response, key, [value]))  # type: ignore[list-item]
    other = with_scenario_keys(setup, {key: value})
    assert found[0] == pytest.approx(in_full(other), abs=1.5e-9)
    assert found[0] != pytest.approx(in_full(setup), abs=1.5e-9)


def test_a_measured_table_does_not_move_with_the_bandwidth_of_its_own_gpu() -> None:
    setup = small_setup()
    slower = with_figures(setup, {"gpu.achieved_bandwidth_gb_s": 3000.0})
    works = [label.work for label in Simulation(setup).pieces.labels]
    experts = [work for work in works if isinstance(work, GroupedExperts)]
    assert experts
    for work in experts:
        assert slower.costs.estimate(work).seconds == setup.costs.estimate(work).seconds


def test_all_work_of_a_family_may_take_the_same_factor() -> None:
    setup = full_setup("uncertain.work.routed_experts={uniform: [1, 2]}")
    response = Response(setup)
    model = StepModel.of(setup, half_way(setup.scenario))
    family = model.families.index("routed experts")
    found = response.step_seconds(with_values(response, "work.routed_experts", [1.0, 1.5, 2.0]))
    assert found == pytest.approx(model.scaled(family, np.array([1.0, 1.5, 2.0])), abs=1.5e-9)


@pytest.mark.parametrize("name", ["b300_now", "b300_strong_drafter"])
def test_nothing_drawn_is_the_run_itself(name: str) -> None:
    """Distributions of no width give the point answer, run by run."""
    setup = setup_of(name)
    parameters = Parameters.of(setup)
    narrow = Parameters(tuple(replace(p, prior=Choice((p.best,))) for p in parameters))
    response = Response(setup, narrow, runs_of(name))
    outcomes = response.outcomes(narrow.draw(2 * RUNS, 1))
    played = [run.throughput_tok_s for run in runs_of(name)]
    assert outcomes.run_tok_s == pytest.approx(2 * played, rel=1e-12)
    assert outcomes.mean_tok_s == pytest.approx(np.full(2 * RUNS, np.mean(played)), rel=1e-12)


@pytest.mark.parametrize("mean", [12.5, 15.0])
def test_another_acceptance_length_is_what_its_runs_do(mean: float) -> None:
    setup, response = setup_of("b300_strong_drafter"), response_of("b300_strong_drafter")
    rows = with_values(response, "acceptance.quality.mean_length", [mean] * RUNS)
    played = [run.throughput_tok_s for run in play(Simulation(setup, mean_length=mean), RUNS)]
    assert response.with_luck(rows) == pytest.approx(played, rel=0.01)


@given(st.floats(12, 16))
@settings(max_examples=20)
def test_interpolated_lengths_have_the_mean_that_is_asked_for(mean: float) -> None:
    setup = setup_of("b300_strong_drafter")
    found = lengths_of_strong().model(mean)
    assert found.mean_length() == pytest.approx(mean, abs=0.01)
    assert found.cap == acceptance_model(setup).cap


@cache
def lengths_of_strong() -> Lengths:
    return Lengths(setup_of("b300_strong_drafter"), 12, 16)


def test_interpolated_lengths_are_near_those_solved_for() -> None:
    setup = setup_of("b300_strong_drafter")
    for mean in (12.7, 14.3, 15.9):
        solved, found = acceptance_model(setup, mean), lengths_of_strong().model(mean)
        assert abs(np.cumsum(solved.distribution() - found.distribution())).max() < 0.004


LAWS = small_setup()
OF_LAWS = Response(LAWS)
COSTS = [p.name for p in OF_LAWS.parameters if "_us" in p.name or p.where is Where.WORK]
RATES = [p.name for p in OF_LAWS.parameters if p.name.endswith("_gb_s")]
pairs = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@given(st.sampled_from(COSTS), pairs)
def test_what_costs_more_never_makes_a_step_faster(name: str, quantiles: list[float]) -> None:
    values = OF_LAWS.parameters[name].prior.at(np.array(quantiles)).tolist()
    low, high = OF_LAWS.throughput(with_values(OF_LAWS, name, values)).tolist()
    assert high <= low


@given(st.sampled_from(RATES), pairs)
def test_what_is_faster_never_makes_a_step_slower(name: str, quantiles: list[float]) -> None:
    values = OF_LAWS.parameters[name].prior.at(np.array(quantiles)).tolist()
    low, high = OF_LAWS.throughput(with_values(OF_LAWS, name, values)).tolist()
    assert low <= high


def widened(prior: Prior, times: float) -> Prior:
    """*prior*, *times* as far from its median."""
    match prior:
        case Ranged(value, low, high):
            return Ranged(value, max(0.0, value - (value - low) * times), value + (high - value) * times)
        case Lognormal(median, spread):
            return Lognormal(median, spread * times)
        case _:
            raise AssertionError(prior)


@given(st.sampled_from(COSTS), st.floats(1, 3))
@settings(max_examples=15)
def test_a_wider_distribution_never_narrows_the_band(name: str, times: float) -> None:
    """Of one parameter that throughput is monotone in: every quantile moves outwards, or stays."""
    before = OF_LAWS.parameters[name].prior
    quantiles = (np.arange(32) + 0.5) / 32
    narrow, wide = (
        np.sort(OF_LAWS.throughput(with_values(OF_LAWS, name, prior.at(quantiles).tolist())))
        for prior in (before, widened(before, times))
    )
    assert (wide[:16] <= narrow[:16]).all()
    assert (wide[16:] >= narrow[16:]).all()


def test_luck_and_ignorance_add_up() -> None:
    """Over all pairs of runs and draws the variance of the logarithm is the sum of both.

    So what is drawn can only widen the luck, as long as it leaves acceptance alone.
    """
    response = response_of("b300_now")
    drawn = response.parameters.draw(16, 1)
    pairs = Values({name: np.repeat(column, RUNS) for name, column in drawn.columns.items()}, 16 * RUNS)
    whole = np.log(response.with_luck(pairs))
    luck = np.log([run.throughput_tok_s for run in runs_of("b300_now")])
    ignorance = np.log(response.throughput(drawn))
    assert whole.var() == pytest.approx(luck.var() + ignorance.var(), rel=1e-6)
    assert whole.var() > luck.var()


def test_what_does_not_fit_decodes_nothing() -> None:
    response = response_of("pro6000_now", "uncertain.stack.memory.fraction={uniform: [0.1, 0.9]}")
    outcomes = response.outcomes(with_values(response, "stack.memory.fraction", [0.2, 0.88]))
    assert outcomes.mean_tok_s[0] == outcomes.run_tok_s[0] == 0
    assert min(outcomes.mean_tok_s[1], outcomes.run_tok_s[1]) > 0


def test_a_total_names_what_moves_it_most() -> None:
    name = "b300_strong_drafter"
    heard: list[None] = []
    found = total(setup_of(name), runs_of(name), lambda: heard.append(None), count=32)
    assert found is not None
    assert len(heard) == found.draws == 32
    assert found.swings[0].name == "acceptance.quality.mean_length"
    assert found.swings[0].values == pytest.approx((12.2, 15.8))
    widths = [swing.width for swing in found.swings]
    assert widths == sorted(widths, reverse=True)
    band = found.throughput_tok_s
    assert band.p5 < band.p50 < band.p95


def test_the_total_is_wider_than_luck_in_every_reference_question() -> None:
    for name in ("b300_now", "b300_strong_drafter"):
        found = total(setup_of(name), runs_of(name), count=64)
        assert found is not None
        luck = np.quantile([run.throughput_tok_s for run in runs_of(name)], [0.05, 0.95])
        assert found.throughput_tok_s.p95 / found.throughput_tok_s.p5 > luck[1] / luck[0]
