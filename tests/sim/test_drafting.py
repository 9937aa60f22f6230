"""What a setup drafts and what lands of it: kinds of acceptance, trees, chains, traces."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import oracle
import pytest
from builders import full_setup, scenario_with
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from sim import ddtree, scenario
from sim.acceptance import Acceptance, AcceptanceModel, TraceModel
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.drafting import (
    acceptance_model,
    drafter_quality,
    heap_operations,
    landed,
    required_accuracy,
)
from sim.errors import LogError, ScenarioError
from sim.graph import IntArray
from sim.quality import DrafterQuality
from sim.scenario import Quality
from sim.traces import Trace

PUBLISHED_RATES = (0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28)
"""sjug/rtx6kpro@738985b models/kimi-k27-code_v2.md."""
HAZARDS = (0.9, 0.8, 0.7, 0.75, 0.6, 0.5, 0.65)


def sample(model: Acceptance, tokens: int, seed: int = 7) -> IntArray:
    """Lengths of one request of *tokens* tokens."""
    return model.draw(np.random.default_rng(seed), tokens)


KINDS = {
    "a mean": ("{mean_length: 4.4}", 4.4),
    "a fixed length": ("{length: 5}", 5.0),
    "one hazard": ("{hazard: 0.819}", 4.4),
    "a hazard of one": ("{hazard: 1}", 8.0),
    "rates": (f"{{rates: {list(PUBLISHED_RATES)}}}", 4.73),
    "a hazard per position": (f"{{hazard: {list(HAZARDS)}}}", oracle.mean_length(HAZARDS)),
    "a mean over varied requests": ("{mean_length: 4.4, request_sd: 1.0}", 4.4),
}


@pytest.mark.parametrize(("text", "mean"), KINDS.values(), ids=KINDS.keys())
def test_a_scenario_gets_the_mean_it_asks_for(text: str, mean: float) -> None:
    model = acceptance_model(full_setup(f"acceptance={text}"))
    assert model.cap == 8
    assert model.mean_length() == pytest.approx(mean, abs=0.01)


def test_a_fixed_length_never_varies() -> None:
    model = acceptance_model(full_setup("acceptance={length: 5}"))
    assert set(sample(model, 300).tolist()) == {5}


def test_a_scenario_passes_variation_correlation_and_decay_on() -> None:
    text = "acceptance={hazard: 0.8, request_sd: 0.5, step_correlation: 0.2, decay_per_1k_context: 0.1}"
    assert acceptance_model(full_setup(text)) == AcceptanceModel((0.8,) * 7, 0.5, 0.2, 0.1)


def test_another_mean_may_replace_the_one_a_scenario_names() -> None:
    model = acceptance_model(full_setup(), mean_length=5.3)
    assert model.mean_length() == pytest.approx(5.3, abs=1e-9)


@pytest.mark.parametrize("budget", [1, 3, 7, 8, 64])
def test_the_budget_and_the_block_cap_the_length(budget: int) -> None:
    text = f"acceptance={{hazard: {list(HAZARDS)}}}"
    model = acceptance_model(full_setup(f"tree.budget={budget}", text))
    assert isinstance(model, AcceptanceModel)
    assert model.hazards == HAZARDS[: min(7, budget)]


@pytest.mark.parametrize("off", ["tree.budget=0", "drafter.block=0", "drafter.block=1"])
def test_without_a_draft_every_step_commits_one_token(off: str) -> None:
    model = acceptance_model(full_setup(off, "acceptance={hazard: 0.9}"))
    assert (model.cap, model.mean_length()) == (1, 1.0)
    assert model.distribution().tolist() == [1.0]
    assert sample(model, 20).tolist() == [1] * 20


@pytest.mark.parametrize(
    "asked", ["{mean_length: 8.5}", "{length: 9}", "{mean_length: 4, mean_length_range: [3, 9]}"]
)
def test_a_scenario_that_asks_for_more_than_the_block_is_refused(asked: str) -> None:
    with pytest.raises(ScenarioError, match="block 8, budget 8 allow at most 8"):
        scenario_with(f"acceptance={asked}")


def test_a_small_budget_caps_what_may_be_asked_for() -> None:
    with pytest.raises(
        ScenarioError, match=r"asks for 4\.4 tokens per step, but block 8, budget 2 allow at most 3"
    ):
        scenario_with("tree.budget=2")


QUALITY = "acceptance={quality: {mean_length: 4.4, block: 8, budget: 8, off_spine: %s}}"


def tree_model(*overrides: str, off_spine: float = 0.3, mean_length: float | None = None) -> AcceptanceModel:
    """The base scenario with acceptance that follows from the tree."""
    model = acceptance_model(full_setup(*overrides, QUALITY % off_spine), mean_length)
    assert isinstance(model, AcceptanceModel)
    return model


def test_a_tree_lands_the_mean_that_was_asked_for_where_it_was_asked_for() -> None:
    assert tree_model("tree.budget=8").mean_length() == pytest.approx(4.4, abs=1e-4)
    assert tree_model("tree.budget=32", mean_length=5.0).mean_length() > 5.0


def test_a_larger_budget_and_a_longer_block_land_more() -> None:
    by_budget = [tree_model(f"tree.budget={budget}").mean_length() for budget in (1, 2, 4, 8, 16, 64)]
    assert all(a < b for a, b in pairwise(by_budget))
    by_block = [tree_model(f"drafter.block={block}").mean_length() for block in (2, 4, 6, 8)]
    assert all(a < b for a, b in pairwise(by_block))


def test_a_catalog_drafter_is_as_good_as_its_published_rates() -> None:
    model = acceptance_model(full_setup("tree.budget=7", "acceptance={quality: {}}"))
    assert model.mean_length() == pytest.approx(4.73, abs=1e-9)


@given(st.integers(0, 2**32))
def test_with_the_same_luck_a_larger_tree_never_lands_less(seed: int) -> None:
    small, large = (tree_model(f"tree.budget={budget}", off_spine=1.0) for budget in (8, 32))
    count = 200
    first, second = (model.draw(np.random.default_rng(seed), count * 8)[:count] for model in (small, large))
    assert (second >= first).all()


def test_a_drafter_of_unknown_accuracy_is_refused() -> None:
    setup = full_setup("acceptance={quality: {}}")
    unknown = replace(setup, drafter=setup.drafter.model_copy(update={"accuracy": None}))
    with pytest.raises(HardwareError, match="kimi_dflash: no accuracy is known for it"):
        acceptance_model(unknown)


@pytest.mark.parametrize("mean", [12.0, 14.0, 16.0])
def test_the_strong_drafter_reaches_any_mean_up_to_its_block(mean: float) -> None:
    text = f"acceptance={{quality: {{mean_length: {mean}}}}}"
    block = ("drafter={model: kimi_dflash_block16, block: 16}", "tree.budget=32", "capture_limit=lifted")
    model = acceptance_model(full_setup(*block, text))
    assert model.mean_length() == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{quality: {mean_length: 9}}",
            "acceptance asks for 9 tokens per step, but block 8, budget 8 allow at most 8",
        ),
        ("{quality: {mean_length: 6, budget: 4}}", "block 8, budget 4 allow at most 5"),
        ("{quality: {}, hazard: 0.8}", "give exactly one of"),
        ("{quality: {}, mean_length_range: [4, 5]}", "mean_length_range goes with mean_length"),
        ("{quality: {off_spine: 2}}", "less than or equal to 1"),
    ],
)
def test_an_impossible_quality_is_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(said)):
        scenario_with(f"acceptance={text}")


@pytest.mark.parametrize(
    ("drafter", "asked", "ends"),
    [
        ("kimi_dflash", "{mean_length: 9, block: 16, budget: 32}", "1.00 to 8.00"),
        ("kimi_dflash_block16", "{mean_length: 1, block: 16, budget: 32}", "1.67 to 16.00"),
    ],
)
def test_a_mean_beyond_what_a_drafter_can_land_is_refused(drafter: str, asked: str, ends: str) -> None:
    setup = full_setup(f"drafter={{model: {drafter}, block: 16}}", f"acceptance={{quality: {asked}}}")
    with pytest.raises(ScenarioError, match=f"cannot be landed with block 16, budget 32: only {ends}"):
        acceptance_model(setup)


@given(st.floats(1.2, 7.8))
def test_a_shift_lands_the_mean_or_sits_where_the_tree_jumps(mean: float) -> None:
    """The smallest step of log-odds on either side brackets what was asked for."""
    setup = full_setup(f"acceptance={{quality: {{mean_length: {mean}}}}}")
    quality, spec = drafter_quality(setup, mean), setup.scenario.asked_at
    below, above = (landed(quality.shifted(step), spec, 0.0) for step in (-1e-5, 1e-5))
    assert below - 1e-9 <= mean <= above + 1e-9


def test_the_chain_of_published_rates_is_the_published_mean() -> None:
    model = acceptance_model(full_setup("tree={shape: chain, budget: 7}", "acceptance={quality: {}}"))
    assert model.mean_length() == pytest.approx(1 + sum(PUBLISHED_RATES), abs=1e-9)


@given(st.integers(2, 16), st.integers(1, 40))
def test_a_chain_has_no_more_nodes_than_positions(block: int, budget: int) -> None:
    setup = full_setup(
        f"tree={{shape: chain, budget: {budget}}}", f"drafter.block={block}", "acceptance={hazard: 0.8}"
    )
    assert setup.scenario.verify_tokens == min(budget, block - 1) + 1
    assert setup.scenario.max_acceptance_length == setup.scenario.verify_tokens
    assert heap_operations(setup) == 0


def test_a_tree_lands_more_than_the_chain_of_as_many_nodes_unless_it_is_modest() -> None:
    sure, modest = (DrafterQuality(2.0, 0.3, off_spine=0.3, stated_slope=slope) for slope in (0.0, 1.5))
    chain, tree = (TreeSpec(16, 15, shape) for shape in (Shape.CHAIN, Shape.DDTREE))
    assert sure.survival(chain).sum() < sure.survival(tree).sum()
    assert modest.survival(tree).sum() < modest.survival(chain).sum()


def test_the_sm_103_limit_is_one_on_trees() -> None:
    asked = ("drafter.block=16", "acceptance={hazard: 0.8}")
    assert (
        full_setup("gpu=b300_sxm", "interconnect=nvlink5", "tree={budget: 15}", *asked).broken_limit
        is not None
    )
    chain = full_setup("gpu=b300_sxm", "interconnect=nvlink5", "tree={budget: 15, shape: chain}", *asked)
    assert chain.broken_limit is None


@pytest.mark.parametrize("budget", [4, 8, 32])
def test_heap_operations_are_counted_on_the_tree_or_bounded(budget: int) -> None:
    unknown = full_setup(f"tree.budget={budget}", "acceptance={hazard: 0.8}")
    known = full_setup(f"tree.budget={budget}", "acceptance={quality: {}}")
    quality = drafter_quality(known, None)
    tree = quality.draft(quality.top1_by_depth(7), TreeSpec(8, budget))
    assert heap_operations(known) == tree.heap_operations
    assert 2 * budget <= heap_operations(known) <= heap_operations(unknown) == ddtree.most_operations(budget)


RTX_3090 = {15: 7.64, 20: 8.64, 22: 8.88, 30: 8.86}
"""Mean lengths by budget: Qwen3.5-27B and its DFlash drafter, block 16, HumanEval, one RTX 3090 (Lucebox)."""


@pytest.mark.parametrize(("budget", "published"), list(RTX_3090.items()))
def test_one_parameter_set_gives_the_published_series_of_budgets(budget: int, published: float) -> None:
    text = (
        "drafter={model: qwen3_5_27b_dflash, block: 16}",
        f"tree.budget={budget}",
        "acceptance={quality: {}}",
    )
    mean = acceptance_model(full_setup(*text)).mean_length()
    assert mean == pytest.approx(published, rel=0.05)


traces = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=9).map(tuple), min_size=1, max_size=6).map(
    lambda requests: TraceModel(Trace(tuple(requests), True), 8)
)


@given(traces, st.integers(1, 60), st.integers(0, 2**32))
def test_a_drawn_trace_ends_with_the_step_that_reaches_the_output(
    model: TraceModel, tokens: int, seed: int
) -> None:
    lengths = model.draw(np.random.default_rng(seed), tokens)
    assert lengths[:-1].sum() < tokens <= lengths.sum()


@given(traces, st.integers(0, 2**32))
def test_neighbours_in_a_draw_were_neighbours_in_the_trace(model: TraceModel, seed: int) -> None:
    """The first steps, until a request has been gone round."""
    shortest = min(map(len, model.trace.requests))
    drawn = model.draw(np.random.default_rng(seed), 100)[:shortest].tolist()
    circles = [request + request for request in model.trace.requests]
    assert any(
        list(circle[at : at + len(drawn)]) == drawn for circle in circles for at in range(len(circle) // 2)
    )


def test_every_observed_step_is_met_equally_often() -> None:
    model = TraceModel(Trace(((1, 2), (3, 4, 5, 6, 7, 8)), True), 8)
    generator = np.random.default_rng(3)
    firsts = Counter(int(model.draw(generator, 1)[0]) for _ in range(8000))
    assert all(abs(firsts[length] - 1000) < 5 * 30 for length in range(1, 9))
    assert model.mean_length() == 4.5
    assert model.distribution().tolist() == [0.125] * 8


def test_a_trace_keeps_the_correlation_of_a_model_it_was_drawn_from() -> None:
    source = AcceptanceModel((0.85,) * 7, request_sd=0.6, step_correlation=0.5)
    generator = np.random.default_rng(11)
    requests = tuple(tuple(source.draw(generator, 160).tolist()) for _ in range(400))
    again = TraceModel(Trace(requests, True), 8).draw(generator, 200_000)
    observed = [_lag_1(np.array(request)) for request in (np.concatenate(requests), again)]
    assert observed[0] == pytest.approx(observed[1], abs=0.02)


def _lag_1(lengths: np.ndarray) -> float:
    return float(np.corrcoef(lengths[:-1], lengths[1:])[0, 1])


def trace_file(folder: Path, *lengths: int) -> Path:
    path = folder / "lengths.csv"
    path.write_text("request,length\n" + "".join(f"{i % 2},{n}\n" for i, n in enumerate(lengths)))
    return path


def test_a_scenario_draws_from_the_trace_it_names(tmp_path: Path) -> None:
    path = trace_file(tmp_path, 1, 8, 3, 8)
    model = acceptance_model(full_setup(f"acceptance={{trace: {path}}}"))
    assert set(sample(model, 500).tolist()) == {1, 3, 8}
    assert model.mean_length() == 5.0


def test_a_trace_is_looked_for_beside_the_file_that_names_it(tmp_path: Path) -> None:
    trace_file(tmp_path, 2, 2)
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "question: What does my own log give?\nextends: b300_now\n"
        "acceptance: {trace: lengths.csv, step_correlation: null}\n"
    )
    assert scenario.load(mine).acceptance.trace == str(tmp_path / "lengths.csv")


def test_what_a_trace_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"acceptance\.trace: no such file: nowhere\.csv"):
        full_setup("acceptance={trace: nowhere.csv}")
    path = trace_file(tmp_path, 1, 12)
    with pytest.raises(ScenarioError, match="has a length of 12, but block 8, budget 8 allow at most 8"):
        full_setup(f"acceptance={{trace: {path}}}")
    with pytest.raises(ScenarioError, match="trace has its own variation: take away request_sd"):
        full_setup(f"acceptance={{trace: {path}, request_sd: 0.5}}")
    path.write_text("length\n3\nthree\n")
    with pytest.raises(LogError, match=r"lengths\.csv:3: expected a whole number"):
        full_setup(f"acceptance={{trace: {path}}}")


def test_plain_decoding_needs_no_trace(tmp_path: Path) -> None:
    path = trace_file(tmp_path, 1, 12)
    assert acceptance_model(full_setup(f"acceptance={{trace: {path}}}", "tree.budget=0")).cap == 1


def test_one_key_of_a_quality_may_be_changed_and_a_quality_replaces_another() -> None:
    base = "acceptance={quality: {mean_length: 4.4, block: 8, budget: 8}, mean_length_range: [4, 5]}"
    one = scenario_with(base, "acceptance.quality.off_spine=0.5").acceptance
    assert one.quality == Quality(mean_length=4.4, block=8, budget=8, off_spine=0.5)
    assert scenario_with(base, "acceptance.quality.mean_length=null").acceptance.quality == Quality(
        block=8, budget=8
    )
    assert scenario_with(base, "acceptance={quality: {}}").acceptance.quality == Quality()
    assert scenario_with(base, "acceptance.quality={}").acceptance.quality == Quality()
    other = scenario_with(base, "acceptance.hazard=0.5").acceptance
    assert (other.quality, other.hazard, other.mean_length_range) == (None, 0.5, None)


@pytest.mark.parametrize("kind", ["rates", "hazard"])
@pytest.mark.parametrize("vector", ["[]", "[0.5]"])
def test_a_vector_of_the_wrong_length_is_refused_even_if_empty(kind: str, vector: str) -> None:
    with pytest.raises(ScenarioError, match=r"positions for a block of 8 \(needs 7\)"):
        scenario_with(f"acceptance={{{kind}: {vector}}}")


def test_a_range_without_its_mean_is_told_why_it_is_not_enough() -> None:
    with pytest.raises(ScenarioError, match="say its mean again"):
        scenario_with("acceptance={mean_length_range: [3, 5]}")


@pytest.mark.parametrize("mean", [3.0, 5.0])
def test_a_quality_has_its_mean_over_requests_that_vary(mean: float) -> None:
    text = (
        f"acceptance={{quality: {{mean_length: {mean}, block: 8, budget: 8, off_spine: 1}}, request_sd: 1.5}}"
    )
    assert acceptance_model(full_setup(text)).mean_length() == pytest.approx(mean, abs=1e-3)


def test_off_spine_0_is_not_the_catalogs() -> None:
    """Two branches that go on: the tree of 32 has tokens behind other choices."""
    means = [
        acceptance_model(
            full_setup("tree.budget=32", f"acceptance={{quality: {{off_spine: {k}}}}}")
        ).mean_length()
        for k in (0, 0.3, 1)
    ]
    assert means[0] < means[1] < means[2]


def test_the_heap_serves_the_drafter_that_was_asked_for() -> None:
    """A sure drafter's tree is a chain: its nodes at the last position push no child."""
    counts = [
        heap_operations(full_setup("tree.budget=32", f"acceptance={{quality: {{mean_length: {mean}}}}}"))
        for mean in (1.5, 7.9)
    ]
    assert counts[0] != counts[1]


def test_what_is_landed_is_told_for_the_tree_that_was_asked_about() -> None:
    setup = full_setup("tree.budget=32", "acceptance={quality: {mean_length: 4.4, block: 8, budget: 8}}")
    asked = next(required for required in required_accuracy(setup) if required.mean_length == 4.4)
    assert asked.landed == pytest.approx(4.4, abs=1e-3)
