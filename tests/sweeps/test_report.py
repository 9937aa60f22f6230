"""The report names the best cell and its equals, and says what is and what is not an optimum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import cell_result, plan_of, result_with, strict_json, template, write_tiny

from sim import files
from sim.sweeps import report
from sim.sweeps.plan import Plan, from_target
from sim.sweeps.result import SweepResult

LUCK = (-20.0, -10.0, 0.0, 10.0, 20.0)
NOISE = (-1.0, 2.0, -2.0, 0.0, 1.0)


def levels(*tok_s: float | None) -> dict[int, Sequence[float]]:
    """Runs of cells that reach *tok_s*; 0.5 tok/s apart is too little to tell, 5 are enough."""
    return {
        index: [level + luck + (index % 2) * noise for luck, noise in zip(LUCK, NOISE, strict=True)]
        for index, level in enumerate(tok_s)
        if level is not None
    }


def curve(option: str, *tok_s: float | None) -> SweepResult:
    """The axis *option* whose values, as they are listed there, reach *tok_s*."""
    plan = plan_of(option)
    given = dict(zip(option.partition("=")[2].split(","), tok_s, strict=True))
    return result_with(plan, levels(*(given[cell.point[0].label] for cell in plan.cells)))


def told(result: SweepResult) -> str:
    """The report with its line breaks taken out."""
    return " ".join(" ".join(report.lines(result)).split())


def test_the_best_is_named_and_its_equals_and_those_that_lose_little() -> None:
    text = told(curve("tree.budget=4,8,16,32", 900.0, 999.5, 1000.0, 992.0))
    assert "Best (*): tree.budget = 16: 1000.0 +- 19.6 tok/s." in text
    assert "Within 1% of it: tree.budget = 8; tree.budget = 32." in text
    assert "Not distinguishable from it (=; paired runs, 95 % for all together): tree.budget = 8." in text
    assert "4 cells, 5 runs each" in text


def test_where_the_best_stands_alone_that_is_said() -> None:
    text = told(curve("tree.budget=4,8,16", 900.0, 1000.0, 800.0))
    assert "Every other cell is distinguishably slower (paired runs, 95 % for all together)." in text
    assert "Within 1%" not in text
    assert "Not distinguishable" not in text


def test_too_few_runs_are_said_to_be_too_few() -> None:
    result = result_with(plan_of("tree.budget=4,8"), {0: [900.0, 910, 920, 930], 1: [800.0, 810, 820, 830]})
    text = told(result)
    assert "Too few runs to say which cells are distinguishable from it." in text
    assert "istinguishably slower" not in text


@pytest.mark.parametrize(
    ("option", "tok_s", "said"),
    [
        ("tree.budget=4,8,16", (900, 1000, 900), "interior optimum at 8."),
        (
            "tree.budget=4,8,16",
            (1000, 900, 800),
            "no interior optimum: best at 4, the lowest value that ran.",
        ),
        (
            "tree.budget=4,8,16",
            (800, 900, 1000),
            "no interior optimum: best at 16, the highest value that ran.",
        ),
        (
            "tree.budget=16,8,4",
            (800, 900, 1000),
            "no interior optimum: best at 4, the lowest value that ran.",
        ),
        ("tree.budget=16,8,4", (900, 1000, 900), "interior optimum at 8."),
        (
            "tree.budget=8,4,16",
            (900, 1000, 800),
            "no interior optimum: best at 4, the lowest value that ran.",
        ),
        (
            "tree.budget=4,16,8",
            (900, 1000, 800),
            "no interior optimum: best at 16, the highest value that ran.",
        ),
        ("tree.budget=4,16,8", (900, 800, 1000), "interior optimum at 8."),
        (
            "tree.budget=4,8,16",
            (999.5, 1000, 900),
            "no interior optimum: best at 8, flat below it; about as good: 4.",
        ),
        (
            "tree.budget=4,8,16",
            (900, 1000, 999.5),
            "no interior optimum: best at 8, flat above it; about as good: 16.",
        ),
        (
            "tree.budget=4,8,16,32",
            (900, 1000, 999.5, 900),
            "interior optimum at 8; about as good: 16.",
        ),
        (
            "tree.budget=4,8,16",
            (None, 1000, 900),
            "no interior optimum: best at 8, the lowest value that ran.",
        ),
        (
            "tree.budget=4,8,16",
            (900, 1000, None),
            "no interior optimum: best at 8, the highest value that ran.",
        ),
        ("tree.budget=4,8,16,32", (900, None, 1000, 900), "interior optimum at 16."),
        ("tree.budget=4,8,16", (None, 1000, None), "no optimum to be seen: best at 8."),
        (
            "tree.budget=4,8,16",
            (999.5, 1000, 999.5),
            "no optimum to be seen: best at 8; about as good: 4, 16.",
        ),
        (
            "tree.budget=3,4,8,16",
            (None, 999.5, 1000, 900),
            "no interior optimum: best at 8, flat below it; about as good: 4.",
        ),
        ("tree.builder=host,gpu", (900, 1000), "best is gpu."),
        # Surely slower, and yet not worth a word.
        ("tree.budget=4,8,16,32", (900, 1000, 995, 900), "interior optimum at 8; about as good: 16."),
    ],
)
def test_an_optimum_is_an_optimum_where_slower_cells_lie_on_both_sides(
    option: str, tok_s: tuple[float | None, ...], said: str
) -> None:
    assert f"{option.partition('=')[0]}: {said}" in told(curve(option, *tok_s))


@given(st.permutations([4, 5, 8, 16]), st.data())
def test_an_optimum_does_not_depend_on_the_order_in_which_values_are_given(
    order: list[int], data: st.DataObject
) -> None:
    ran = data.draw(st.sets(st.sampled_from(order), min_size=1))
    best = data.draw(st.sampled_from(sorted(ran)))
    heights = [(1000.0 if value == best else 900.0) if value in ran else None for value in order]
    text = told(curve(f"tree.budget={','.join(map(str, order))}", *heights))
    inside = min(ran) < best < max(ran)
    assert (f"tree.budget: interior optimum at {best}." in text) == inside
    assert ("no interior optimum" in text or "no optimum to be seen" in text) == (not inside)


def test_next_cells_say_what_they_cost_and_why() -> None:
    plan = plan_of("tree.budget=8,16")
    step, slower = template().summary["step_time_ms"], dict(template().summary["step_time_ms"])
    slower["mean"] = step["mean"] + 1.0
    shares = template().summary["breakdown"]
    longer = {name: share * step["mean"] / slower["mean"] for name, share in shares.items()}
    longer["launch"] += 1.0 / slower["mean"]
    result = result_with(plan, levels(1000, 900))
    result.results[1] = cell_result(levels(1000, 900)[1], step_time_ms=slower, breakdown=longer)
    text = told(result)
    assert "to 16: -100.0 tok/s; step +1.00 ms (launches +1.00); tokens a step +0.00" in text
    assert "; its kernels are launched one by one, not as a graph" in text


def test_a_single_cell_is_best_without_a_word_on_others() -> None:
    text = told(curve("tree.budget=8", 900.0))
    assert "Best (*): tree.budget = 8: 900.0 +- 19.6 tok/s." in text
    assert "optimum" not in text
    assert "istinguishabl" not in text


def test_grids_mark_best_equals_and_failures() -> None:
    plan = plan_of("tree.budget=4,8", "drafter.block=6,8")
    lines = report.lines(result_with(plan, levels(1000, 999.4, 900, None)))
    head = next(at for at, line in enumerate(lines) if line.startswith("tree.budget \\ drafter.block"))
    grid = [line.split() for line in lines[head : head + 3]]
    assert grid == [
        ["tree.budget", "\\", "drafter.block", "6", "8"],
        ["4", "1000*", "999="],
        ["8", "900", "-"],
    ]


def test_failures_of_one_cause_are_told_together() -> None:
    plan = plan_of("tree.budget=4,8", "seed=1..6", "drafter.block=2,8")
    result = result_with(plan, {i: levels(900, 900)[i % 2] for i in range(1, 24, 2)})
    result.errors.update(dict.fromkeys(range(0, 24, 2), "one and the same"))
    text = told(result)
    assert "24 cells, 12 failed, 5 runs each" in text
    assert "Failed: tree.budget = 4, seed = 1, drafter.block = 2 and 11 more: one and the same" in text


def test_many_causes_are_counted() -> None:
    text = told(result_with(plan_of("seed=1..12"), {}))
    assert "... and 4 other causes; see cells.csv." in text
    assert "No cell finished." in text
    assert "Best" not in text


@pytest.mark.parametrize("option", ["tree.budget=1..20", "tree.budget=1..100", "seed=1..70"])
def test_a_report_is_no_wider_than_a_screen(option: str) -> None:
    plan = plan_of(option, "drafter.block=2..16", acceptance={"length": 1})
    lines = report.lines(result_with(plan, {i: [900.0 + i % 7] * 5 for i in range(len(plan.cells))}))
    assert max(map(len, lines)) <= 120
    assert len(lines) < 100


def bundles(tmp_path: Path, label: str) -> Plan:
    text = "question: Which of these is the better one?\nscenario: tiny.yaml\n"
    text += f'axes: {{engine: {{small: {{tree.budget: 4}}, "{label}": {{tree.budget: 16}}}}}}\n'
    write_tiny(tmp_path, sweep=text)
    return from_target(str(tmp_path / "sweep.yaml"), (), ())


@pytest.mark.parametrize("label", ["[fast]", "[/fast]", "large :smile:", "$5"])
def test_labels_are_printed_as_they_are(tmp_path: Path, label: str) -> None:
    plan = bundles(tmp_path, label)
    lines = report.lines(result_with(plan, levels(900, 1000)))
    assert [line for line in lines if line.strip().startswith(label)], "no row of the table"
    assert f"Best (*): engine = {label}:" in told(result_with(plan, levels(900, 1000)))


@given(st.lists(st.none() | st.floats(1, 1e4), min_size=4, max_size=4), st.integers(1, 6))
def test_the_object_is_strict_json_and_says_what_was_found(means: list[float | None], runs: int) -> None:
    plan = plan_of("tree.budget=4,8", "tree.builder=host,gpu", load__output_tokens=9)
    found = {i: [mean + j for j in range(runs)] for i, mean in enumerate(means) if mean is not None}
    result = result_with(plan, found)
    told_object = strict_json(files.as_json(report.as_object(result)))
    assert told_object["axes"] == {"tree.budget": ["4", "8"], "tree.builder": ["host", "gpu"]}
    assert told_object["changes"] == ["load.output_tokens=9"]
    assert told_object["failed"] == 4 - len(found)
    assert [cell["cell"] for cell in told_object["cells"]] == [0, 1, 2, 3]
    for index, cell in enumerate(told_object["cells"]):
        assert cell["point"] == {
            "tree.budget": ["4", "8"][index // 2],
            "tree.builder": ["host", "gpu"][index % 2],
        }
        if index in found:
            assert cell.items() >= strict_json(files.as_json(result.results[index].summary)).items()
            assert cell["distinguishable_from_best"] == (
                index not in (told_object["best"], *told_object["not_distinguishable_from_best"])
            )
        else:
            assert cell == {"cell": index, "point": cell["point"], "error": f"cell {index} fell over"}
    if not found:
        assert (told_object["best"], told_object["not_distinguishable_from_best"]) == (None, [])


@pytest.mark.parametrize(
    ("option", "acceptance", "warned"),
    [
        ("tree.budget=4,8", {"mean_length": 2.0}, True),
        ("drafter.block=6,8", {"mean_length": 2.0}, True),
        ("tree.budget=4,8", {"hazard": 0.8}, False),
        ("gpus=4,8", {"mean_length": 2.0}, False),
    ],
)
def test_a_mean_that_every_cell_is_given_is_warned_of(
    option: str, acceptance: dict[str, float], warned: bool
) -> None:
    plan = plan_of(option, acceptance=acceptance)
    text = told(result_with(plan, {cell.index: [900.0] * 5 for cell in plan.cells}))
    assert ("to compare trees, say at which block" in text) is warned
    assert ("Acceptance is what the scenario says" in text) is not warned
