"""What is not known about a setup, and how it is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import full_setup, small_setup
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hwmodels import catalog
from hwmodels.cost import CostModel
from hwmodels.estimate import Source
from hwmodels.uncertainty import carried_spread, unstated_spread
from hwmodels.work import GroupedExperts
from sim import shipped
from sim.errors import ScenarioError
from sim.scenario import load
from sim.setup import resolve
from sim.step import decode_step
from sim.uncertainty.keys import KINDS, Where, is_luck
from sim.uncertainty.parameters import Parameters, draws, entries
from sim.uncertainty.priors import Choice, Lognormal, Normal, Ranged, Uniform
from sim.uncertainty.tables import TABLED, table_spreads

STRONG = resolve(load(shipped.find("b300_strong_drafter")))
OF_STRONG = Parameters.of(STRONG)


def uncertain(key: str, stated: str) -> Parameters:
    return Parameters.of(full_setup(f"uncertain.{key}={stated}"))


def test_every_uncertain_figure_is_a_parameter_but_for_the_size_of_luck() -> None:
    held = entries(STRONG)
    for short, kind in KINDS.items():
        for key, figure in catalog.figures(held[kind]):
            known = f"{short}.{key}" in OF_STRONG.names
            unsure = figure.range is not None or (figure.value > 0 and unstated_spread(figure.source) > 0)
            assert known == (unsure and not is_luck(key)), key


def test_ranges_are_taken_from_the_figures() -> None:
    for parameter in OF_STRONG:
        if isinstance(parameter.prior, Ranged):
            short, _, key = parameter.name.partition(".")
            figure = dict(catalog.figures(entries(STRONG)[KINDS[short]]))[key]
            assert figure.range == (parameter.prior.low, parameter.prior.high)
            assert parameter.best == figure.value == parameter.prior.value


def test_a_figure_without_a_range_is_as_uncertain_as_its_source() -> None:
    dispatch = STRONG.machine.stack.dispatch
    assert dispatch.graph_launch_fixed_us.range is None
    found = OF_STRONG["stack.dispatch.graph_launch_fixed_us"]
    assert found.prior == Lognormal(15.0, unstated_spread(Source.SCALED))
    assumed = dispatch.schedule_us.model_copy(update={"range": None, "source": Source.ASSUMED})
    changed = dispatch.model_copy(update={"schedule_us": assumed})
    stack = STRONG.machine.stack.model_copy(update={"dispatch": changed})
    wide = Parameters.of(replace(STRONG, machine=replace(STRONG.machine, stack=stack)))
    assert wide["stack.dispatch.schedule_us"].prior == Lognormal(assumed.value, 0.35)


def test_a_table_of_another_gpu_is_as_uncertain_as_tables_prove_to_be_when_carried_so_far() -> None:
    setup = full_setup()
    works = list(decode_step(setup).works)
    spreads = {}
    for there in ("b300_sxm", "b200_sxm", "rtx_pro_6000_server"):
        gpu = setup.machine.gpu.model_copy(update={"measured_as": there})
        machine = replace(setup.machine, gpu=gpu)
        costs = CostModel(machine)
        assert costs.bandwidth_ratio == pytest.approx(
            gpu.achieved_bandwidth_gb_s.value / catalog.gpu(there).achieved_bandwidth_gb_s.value
        )
        spreads[there] = table_spreads(machine, works)
        for work, spread in zip(works, spreads[there].tolist(), strict=True):
            if costs.estimate(work).source is Source.SCALED and isinstance(work, TABLED):
                assert spread >= carried_spread(work, costs.bandwidth_ratio)
                assert spread >= unstated_spread(Source.SCALED)
    experts = [at for at, work in enumerate(works) if isinstance(work, GroupedExperts)]
    own, near, far = (spreads[gpu][experts] for gpu in spreads)
    assert (own < near).all()
    assert near == pytest.approx(unstated_spread(Source.SCALED))
    assert (far > 0.7).all()


def test_a_range_of_mean_lengths_is_uniform_unless_the_scenario_says_more() -> None:
    assert OF_STRONG["acceptance.quality.mean_length"].prior == Uniform(12, 16)
    path = shipped.find("b300_strong_drafter")
    stated = load(path, ("uncertain.acceptance.quality.mean_length={uniform: [13, 14.5]}",))
    assert Parameters.of(resolve(stated))["acceptance.quality.mean_length"].prior == Uniform(13, 14.5)


def test_a_scenario_replaces_what_a_figure_states() -> None:
    key = "stack.dispatch.schedule_us"
    assert uncertain(key, "{normal: [3000, 100]}")[key].prior == Normal(3000, 100)
    assert uncertain(key, "{choice: [3170]}")[key].prior == Choice((3170,))
    for own in ("range", "fit"):
        assert uncertain(key, f"{{from: {own}}}")[key] == Parameters.of(full_setup())[key]


def test_work_that_no_step_has_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"work\.prefill: no step of this scenario has such work"):
        uncertain("work.prefill", "{lognormal: [1, 0.1]}")


def test_figures_of_tables_are_not_counted_twice() -> None:
    """A tree build in Python rests on figures alone: there is no table to be off."""
    assert "work.tree_build" not in OF_STRONG.names
    assert "work.routed_experts" in OF_STRONG.names


@given(st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_the_order_of_parameters_changes_no_draw(random: object) -> None:
    items = list(OF_STRONG.items)
    random.shuffle(items)  # type: ignore[attr-defined]
    there, here = Parameters(tuple(items)).draw(64, 5), OF_STRONG.draw(64, 5)
    for name in OF_STRONG.names:
        assert there.columns[name].tolist() == here.columns[name].tolist()


def test_the_same_unknown_is_drawn_together_in_two_setups() -> None:
    """Host costs of one stack are the same in both; two GPUs have nothing in common."""
    other = Parameters.of(resolve(load(shipped.find("pro6000_strong_drafter"))))
    for both in (draws([OF_STRONG, other], 64, 1), draws([other, OF_STRONG], 64, 1)[::-1]):
        here, there = (values.columns for values in both)
        for name in ("stack.dispatch.schedule_us", "model.experts.routing_correlation"):
            assert here[name].tolist() == there[name].tolist()
        a, b = here["gpu.achieved_bandwidth_gb_s"], there["gpu.achieved_bandwidth_gb_s"]
        assert abs(stats.spearmanr(a, b).statistic) < 0.5
        a, b = here["work.routed_experts"], there["work.routed_experts"]
        assert abs(stats.spearmanr(a, b).statistic) < 0.5


def test_draws_have_the_stated_quantiles() -> None:
    values = OF_STRONG.draw(1024, 2)
    quantiles = np.linspace(0.05, 0.95, 19)
    for parameter in OF_STRONG:
        drawn = values.columns[parameter.name].astype(float)
        if parameter.where is Where.FIGURE and parameter.name.endswith("kernels"):
            continue
        # A point of 1,024 stratified ones may lie a stratum off.
        low, high = parameter.prior.at(quantiles - 0.002), parameter.prior.at(quantiles + 0.002)
        found = np.quantile(drawn, quantiles)
        assert (low - 1e-9 <= found).all(), parameter.name
        assert (found <= high + 1e-9).all(), parameter.name


def test_another_seed_draws_other_values() -> None:
    one, same, other = (OF_STRONG.draw(16, seed).columns for seed in (1, 1, 2))
    name = "gpu.kernel_floor_us"
    assert one[name].tolist() == same[name].tolist()
    assert one[name].tolist() != other[name].tolist()


def test_what_is_left_out_keeps_its_best_value() -> None:
    few = OF_STRONG.only(["work.routed_experts"])
    assert few.names == ("work.routed_experts",)
    assert set(few.draw(4, 1).columns) == {"work.routed_experts"}


def test_small_models_have_parameters_too() -> None:
    assert "work.mla_attention" in Parameters.of(small_setup()).names
