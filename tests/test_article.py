"""The articles' closed form, against their own figures and independent measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from texts import GOOD, scenario_from

from hwmodels.errors import HardwareError
from sim import shipped
from sim.article import QUOTED, ClosedForm, Line, article_overhead, closed_form
from sim.scenario import load
from sim.setup import resolve


def form(name: str, *overrides: str) -> ClosedForm:
    return closed_form(resolve(load(shipped.find(name), overrides)))


def line(name: str, start: str, *overrides: str) -> Line:
    return next(found for found in form(name, *overrides).lines if found.name.startswith(start))


@pytest.mark.parametrize(
    ("name", "start", "theirs"),
    [
        ("pro6000_now", "  x 60 layers", 8.85),
        ("pro6000_now", "step", 32.4),
        ("b300_now", "experts, b300_sxm", 1.97),
        ("b300_now", "step", 14.5),
        ("b300_now", "throughput at 4.4", 303),
        ("b300_strong_drafter", "  x 60 layers", 23.8),
        ("b300_strong_drafter", "experts, b300_sxm", 5.3),
        ("b300_strong_drafter", "step", 20.4),
        ("b300_strong_drafter", "throughput at 12", 588),
        ("b300_strong_drafter_native", "step", 13.3),
    ],
)
def test_their_lines_come_out_as_they_state_them(name: str, start: str, theirs: float) -> None:
    assert line(name, start).article == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize(("name", "measured_ms"), [("b300_now", 5.2), ("b300_strong_drafter", 10.9)])
def test_measured_experts_are_what_independent_tables_say(name: str, measured_ms: float) -> None:
    found = line(name, "experts, b300_sxm")
    assert found.corrected == pytest.approx(measured_ms, rel=0.01)
    # Tables and articles are of independent tokens; those of one request touch fewer experts.
    independent = line(name, "experts, b300_sxm", "experts.routing_correlation=0")
    assert independent.corrected == found.corrected
    assert independent.simulated == pytest.approx(found.corrected, rel=1e-5)
    assert found.simulated is not None
    assert found.simulated < found.corrected


def test_a_faster_gpu_is_not_as_fast_as_its_bandwidth() -> None:
    found = line("b300_now", "  b300_sxm is faster")
    assert 1.6 < found.corrected < 2.2 < found.article


def test_quoted_ranges_that_do_not_follow_are_called_out() -> None:
    assert [claim.follows for claim in QUOTED] == [False, False, False, False]
    assert form("b300_strong_drafter").quoted == QUOTED
    assert form("b300_now").quoted == form("pro6000_now").quoted == ()


def test_a_range_that_is_only_rounded_follows() -> None:
    assert replace(QUOTED[0], quoted_tok_s=(590, 780)).follows
    low, high = QUOTED[0].derived_tok_s
    assert (round(low), round(high)) == (588, 784)
    assert QUOTED[3].needed_lengths == pytest.approx((11.3, 13.0), abs=0.05)


@pytest.mark.parametrize("name", ["b300_now", "b300_strong_drafter", "pro6000_now"])
def test_parts_add_up_in_every_column(name: str) -> None:
    experts, rest, step = (line(name, start) for start in ("experts, ", "everything", "step"))
    gpu_experts = [found for found in form(name).lines if found.name.startswith("experts, ")][-1]
    assert experts is not gpu_experts
    assert step.article == pytest.approx(gpu_experts.article + rest.article)
    assert step.corrected == pytest.approx(gpu_experts.corrected + rest.corrected)
    assert step.simulated == pytest.approx((gpu_experts.simulated or 0) + (rest.simulated or 0))


def test_gpus_they_say_nothing_about_are_refused() -> None:
    setup = resolve(scenario_from(GOOD, "gpu=b200_sxm"))
    with pytest.raises(HardwareError, match="b200_sxm: the articles give no closed form"):
        closed_form(setup)


@pytest.mark.parametrize("name", ["b300_now", "b300_strong_drafter", "b300_strong_drafter_native"])
def test_their_overhead_is_the_step_of_their_closed_form_less_the_experts(name: str) -> None:
    found = article_overhead(resolve(load(shipped.find(name))))
    assert found is not None
    assert found.step_ms == pytest.approx(line(name, "step").article)
    assert found.rest_ms == pytest.approx(line(name, "everything else").article)
    assert found.share == pytest.approx(1 - line(name, "experts, b300_sxm").article / found.step_ms)


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("pro6000_now", "seed=1"),
        ("b300_now", "tree.budget=0"),
        ("b300_now", "drafter.block=4"),
        ("b300_now", "gpu=b200_sxm"),
        ("b300_now", "model=deepseek_v3"),
    ],
)
def test_of_other_steps_they_claim_no_overhead(name: str, override: str) -> None:
    assert article_overhead(resolve(load(shipped.find(name), [override]))) is None
