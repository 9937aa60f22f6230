"""What each page says: the numbers of its results, in words and in order."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

import pytest
from pages import ASSUMED, RUNS, answered, compared, html, page, returns, study, swept
from sweeps import plan_of, result_with

from sim.answer import answer
from sim.choices import EngineName
from sim.comparison.report import times
from sim.html import levers_page, run_page, sweep_page
from sim.html.page import Page, Picture, Points, Section, Table, render
from sim.levers.kinds import Degree, Group, Lever
from sim.levers.words import change
from sim.report import number


def section(found: Page, anchor: str) -> Section:
    (one,) = (each for each in found.sections if each.anchor == anchor)
    return one


def tables(found: Page, anchor: str) -> list[Table]:
    return [block for block in section(found, anchor).blocks if isinstance(block, Table)]


def anchors(found: Page) -> list[str]:
    return [each.anchor for each in found.sections]


def described(found: Page) -> str:
    """What is said of all pictures to those who do not see them."""
    return " ".join(str(b.svg) for each in found.sections for b in each.blocks if isinstance(b, Picture))


# --- a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_a_run_says_how_fast_it_is_and_what_it_waits_for(name: str) -> None:
    summary, said = answered(name).summary, page(name).answer
    assert f"{summary.throughput_tok_s.mean:.1f}" in said[0].replace(",", "")
    first = next(iter(summary.components))
    assert f"{100 * summary.components[first]:.1f} % for {first.value}" in said[1]


def test_one_run_has_no_quantiles() -> None:
    assert page("run, once").answer[0].endswith("tokens per second in one run.")


def test_what_was_published_stands_beside_the_prediction() -> None:
    compared = answered("run, anchored").comparison
    assert compared is not None
    (table,) = tables(page("run, anchored"), "published")
    assert table.caption == "Published: an article."
    assert table.rows[0][1:3] == ("303", number(compared.predicted_tok_s))
    assert table.rows[0][3] == f"{100 * compared.error:+.1f} %"
    assert "published" not in anchors(page("run"))
    assert "from the middle" in html("run, a range")


def test_figures_come_in_the_order_in_which_they_move_the_step() -> None:
    table = tables(page("run"), "figures")[1]
    moves = [float(row[1].removesuffix(" %")) for row in table.rows]
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 0
    assert all(row[6] for row in table.rows)


def test_what_is_not_known_comes_in_the_order_in_which_it_moves_the_answer() -> None:
    total = answered("run, not known").total
    assert total is not None
    band = total.throughput_tok_s
    assert f"not known between {band.p5:.0f} and {band.p95:.0f}." in page("run, not known").answer[0]
    (table,) = tables(page("run, not known"), "unknown")
    assert [row[0] for row in table.rows] == [swing.name for swing in total.swings[:12]]
    assert [row[-1] for row in table.rows] == [swing.basis for swing in total.swings[:12]]
    assert "all drawn" in html("run, not known")
    assert "unknown" not in anchors(page("run"))


def test_the_timeline_is_of_the_step_nearest_to_the_median() -> None:
    found = answered("run")
    step = run_page.middling_step(found)
    recorded = found.experiment.in_full[0].steps.step_ns.tolist()
    assert step.step_ns == recorded[step.index]
    median = statistics.median(found.experiment.step_ns.tolist())
    assert abs(step.step_ns - median) == min(abs(each - median) for each in recorded)
    assert f"Timeline of step {step.index} of run 0" in html("run")


def test_both_engines_leave_the_same_page() -> None:
    by_simpy = answer(answered("run").setup, EngineName.SIMPY)
    same = replace(by_simpy, engine=EngineName.BATCH, replayed=answered("run").replayed)
    assert render(run_page.page(same)) == html("run")


@pytest.mark.parametrize("name", ["run", "levers", "investments"])
def test_what_was_assumed_is_told(name: str) -> None:
    (points,) = section(page(name), "assumptions").blocks
    assert points == Points((ASSUMED,))


# --- levers -----------------------------------------------------------------------------------------------


def test_levers_name_the_part_that_is_worth_most() -> None:
    found = study("small")
    parts = [effect for effect in found.effects if effect.lever.group is Group.WORK]
    most = max(parts, key=lambda effect: effect.gain(Degree.FREE, found.base.tok_s))
    first, second = page("levers").answer
    assert f"{found.base.tok_s:.1f} tokens per second as it is" in first
    assert f"{most.lever.value}, worth" in first
    for degree in (Degree.HALF, Degree.FREE):
        assert change(most.tok_s[degree] / found.base.tok_s) in first
    host = found.effect(Lever.HOST)
    assert host is not None
    assert change(host.tok_s[Degree.FREE] / found.base.tok_s) in second
    assert "overhead dominates, host work alone" in second


def test_every_lever_has_a_row_with_its_gains_under_its_group() -> None:
    found = study("small")
    table, overhead = tables(page("levers"), "levers")
    assert overhead.rows[0][0] == "small"
    rows = {row[0]: row for row in table.rows}
    assert rows.keys() == {effect.lever.value for effect in found.effects}
    for effect in found.effects:
        gains = [change(effect.tok_s[degree] / found.base.tok_s) for degree in Degree]
        assert list(rows[effect.lever.value][2:5]) == gains
        assert rows[effect.lever.value][8] == change(effect.worse_tok_s / found.base.tok_s)
    named = {effect.lever.value: effect.lever.group for effect in found.effects}
    starts = [*sorted(table.groups), len(table.rows)]
    for start, stop in pairwise(starts):
        assert len({named[row[0]] for row in table.rows[start:stop]}) == 1
        gained = [found.effect(Lever(row[0])) for row in table.rows[start:stop]]
        tok_s = [effect.tok_s[Degree.FREE] for effect in gained if effect is not None]
        assert tok_s == sorted(tok_s, reverse=True)


def test_choices_are_told_with_those_that_cannot_be_made() -> None:
    found = page("levers")
    (table,) = tables(found, "choices")
    assert [row[0] for row in table.rows] == ["budget 4", "budget 16", "stack native"]
    assert [row[2] for row in table.rows] == ["-20.0 %", "-50.0 %", "+50.0 %"]
    assert table.rows[1][-1] == "launched kernel by kernel"
    assert "not possible: GPU small (no room in memory)" in html("levers")


def test_what_is_not_known_comes_with_its_source() -> None:
    (table,) = tables(page("levers"), "unknown")
    assert [row[-1] for row in table.rows] == [
        "tables and fits of MLA attention",
        "range of the figure, SCALED",
    ]
    without = levers_page.page([replace(study("small"), drivers=None)], [])
    assert "unknown" not in anchors(without)


def test_the_step_of_levers_adds_up() -> None:
    (table,) = tables(page("levers"), "step")
    assert sum(float(row[1]) for row in table.rows) == pytest.approx(
        study("small").base.step_s * 1e3, abs=0.06
    )


def test_scenarios_stand_side_by_side_and_by_themselves() -> None:
    found = page("levers, side by side")
    assert anchors(found)[:4] == ["beside", "choices", "scenario-A", "scenario-B"]
    table, overhead = tables(found, "beside")
    assert [row[0] for row in overhead.rows] == ["small", "plain"]
    assert len(table.head) == 1 + 2 * 4
    experts = next(row for row in table.rows if row[0] == Lever.DRAFTER.value)
    assert experts[5:] == ("", "", "", "")
    own = section(found, "scenario-A")
    assert len([block for block in own.blocks if isinstance(block, Picture)]) == 2
    assert found.answer[0].count("if free") == 2


# --- investments ------------------------------------------------------------------------------------------


def test_investments_are_told_alone_and_together() -> None:
    first, second = page("investments").answer
    assert first.startswith("Alone drafter (x2.10) brings most, before hardware (x1.80) and engine (x1.30)")
    assert "All together make 491 tokens per second (442 to 541) out of 100, x4.91." in second


def test_every_combination_has_a_row() -> None:
    found = returns()
    (table,) = tables(page("investments"), "combinations")
    assert len(table.rows) == len(found.returns)
    assert table.rows[0][:2] == ("nothing", "100.0")
    assert table.rows[0][4] == "110.0"
    assert {row[0] for row in table.rows} >= {"hardware + engine", "hardware + drafter + engine"}
    assert "hardware + drafter + engine 491.4 tok/s, x4.91" in described(page("investments"))


# --- a sweep ----------------------------------------------------------------------------------------------


def test_a_sweep_names_its_best_cell_and_says_how_sure_that_is() -> None:
    first, second = page("sweep, one axis").answer
    assert first.startswith("Best is tree.budget = 20 with 900.0 +- ")
    assert second == (
        "Every other cell of those that finished, 29, is distinguishably slower;"
        " the optimum is interior along tree.budget."
    )


def test_cells_that_no_run_tells_apart_are_counted() -> None:
    plan = plan_of("tree.budget=8,16,32")
    loud = [100.0, 110.0, 90.0, 105.0, 95.0]
    alike = result_with(plan, {0: loud, 1: [value + 0.1 for value in loud[::-1]], 2: [50.0] * 5})
    assert sweep_page.page(alike).answer[1] == (
        "Of the 2 other cells that finished 1 cannot be told from it, 1 of them within 1 % of it;"
        " the optimum is not interior along tree.budget."
    )
    few = result_with(plan, {0: loud[:2], 1: loud[2:4], 2: [50.0] * 2})
    assert "too few runs" in sweep_page.page(few).answer[1]


def test_cells_are_listed_the_fastest_first() -> None:
    (table,) = tables(page("sweep"), "cells")
    assert len(table.rows) == 60 - 2
    tok_s = [float(row[4]) for row in table.rows]
    assert tok_s == sorted(tok_s, reverse=True)
    assert [row[-1] for row in table.rows] == ["best", *["yes"] * 57]
    assert table.is_long


def test_no_more_cells_are_listed_than_a_page_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_page, "MOST_CELLS", 3)
    (table,) = tables(sweep_page.page(swept("tree.budget=6..15")), "cells")
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    assert "The 7 slowest are in cells.csv only." in table.caption


def test_every_pair_of_axes_has_a_map_and_every_axis_a_curve() -> None:
    found = page("sweep")
    assert len(section(found, "maps").blocks) == 3
    assert len(section(found, "curves").blocks) == 3
    assert "best tree.budget = 10, drafter.block = 6, gpus = 4, 900 tok/s" in described(found)
    assert "maps" not in anchors(page("sweep, one axis"))
    assert "tok/s: 5 " in described(page("sweep, one axis"))


def test_cells_that_failed_are_listed_with_why() -> None:
    for name in ("sweep", "sweep, nothing finished"):
        (points,) = section(page(name), "failed").blocks
        assert isinstance(points, Points)
        assert "cell 1 fell over" in points.items[-1] or "cell 4 fell over" in points.items[-1]
    assert page("sweep, nothing finished").answer[0] == "No cell of 2 finished."


# --- a comparison -----------------------------------------------------------------------------------------


def test_a_comparison_says_how_many_times_as_fast_and_how_sure() -> None:
    (other,) = compared("As it is?", "In another engine?").others
    first, second = page("compare").answer
    assert first.startswith(f"B is faster than A: {times(other.pair.throughput_tok_s.ratio)} times as fast (")
    assert "With everything drawn that is not known" in second
    assert page("compare").question == "How much faster than scenario_0 is scenario_1?"
    assert "was not drawn" in page("compare, three").answer[1]
    assert "identical" in page("compare, itself").answer[0]


def test_the_way_from_one_step_to_the_other_is_told_component_by_component() -> None:
    (other,) = compared("As it is?", "In another engine?").others
    (table,) = tables(page("compare"), "step")
    shown = {row[0]: row for row in table.rows}
    for part in other.pair.parts:
        assert shown[part.component.value][1:3] == (f"{part.a_ms:.3f}", f"{part.b_ms:.3f}")
        assert f"{part.component.value} {part.a_ms:.3f} to {part.b_ms:.3f} ms" in described(page("compare"))


def test_keys_that_differ_are_told_or_that_none_does() -> None:
    (table,) = tables(page("compare"), "keys")
    assert {row[0]: row[1:] for row in table.rows} == {
        "stack": ("sglang", "native"),
        "tree.builder": ("host", "gpu"),
    }
    assert "A and B agree in every key that is simulated." in html("compare, itself")


def test_what_several_scenarios_assume_is_told_once() -> None:
    (points,) = section(page("compare"), "assumptions").blocks
    assert points == Points([f"A, B: {ASSUMED}"])
    assert {"against-B", "against-C"} < set(anchors(page("compare, three")))
