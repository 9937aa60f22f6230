"""Cells are scenarios with a few keys changed, and are known by all that their numbers depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import with_dispatch, with_figures
from hypothesis import given
from hypothesis import strategies as st
from sweeps import plan_of, tiny, write_tiny

from hwmodels import catalog
from hwmodels.errors import DocumentError, HardwareError
from sim import digests, scenario
from sim.errors import ScenarioError
from sim.scenario import Scenario
from sim.setup import Setup, resolve
from sim.sweeps import plan
from sim.sweeps.plan import MAX_CELLS, from_target, key_of
from sim.sweeps.result import index_of, positions_of

CHOICES: dict[str, list[Any]] = {
    "tree.budget": [0, 2, 4, 8, 16],
    "drafter.block": [0, 2, 6, 8],
    "gpus": [3, 4, 8],
    "acceptance": ["{mean_length: 4.4}", "{length: 3}", "{hazard: 0.5}"],
    "load.concurrency": [1, 2],
    "stack": ["sglang", "vllm"],
    "seed": [1, 2],
}
NUMBERS = [
    "runs=6",
    "seed=2",
    "tree.budget=9",
    "tree.builder=gpu",
    "drafter.block=7",
    "load.output_tokens=41",
    "load.context_tokens=4097",
    "acceptance.mean_length=4.5",
    "acceptance.request_sd=0.1",
    "acceptance={mean_length: 4.4, mean_length_range: [4, 5]}",
    "kv.dtype=fp8",
    "kv.run_tokens=64",
    "experts.routing_correlation=0.1",
    "capture_limit=lifted",
    "gpus=4",
    "gpu=b200_sxm",
    "host=epyc_dual",
    "stack=vllm",
    "model=kimi_k2_6",
    "drafter.model=kimi_dflash",
]
WORDS = [
    "question=What else could one ask of this?",
    "assumptions=[nothing is known]",
    "anchor={tok_s: 300, source: a friend}",
]


def base(*overrides: str) -> Setup:
    return resolve(scenario.load(tiny(), overrides))


def with_gpu(setup: Setup) -> Setup:
    faster = with_figures(setup.machine.gpu, achieved_bandwidth_gb_s=7001.0)
    return replace(setup, machine=replace(setup.machine, gpu=faster))


def with_interconnect(setup: Setup) -> Setup:
    changed = with_figures(setup.machine.interconnect, alpha_us=1.5)
    return replace(setup, machine=replace(setup.machine, interconnect=changed))


def with_host(setup: Setup) -> Setup:
    changed = with_figures(setup.machine.host, heap_us_per_operation=1.5)
    return replace(setup, machine=replace(setup.machine, host=changed))


ENTRIES: dict[str, Callable[[Setup], Setup]] = {
    "gpu": with_gpu,
    "interconnect": with_interconnect,
    "host": with_host,
    "stack": lambda setup: with_dispatch(setup, schedule_us=123.0),
    "model": lambda setup: replace(setup, model=setup.model.model_copy(update={"hidden": 4096})),
    "drafter": lambda setup: replace(setup, drafter=setup.drafter.model_copy(update={"window": 64})),
}


def loaded(overrides: tuple[str, ...]) -> tuple[Scenario | None, str]:
    """The tiny scenario with *overrides*, or what is wrong with it."""
    try:
        return resolve(scenario.load(tiny(), overrides)).scenario, ""
    except (DocumentError, HardwareError) as problem:
        return None, problem.problem


@given(st.data())
def test_every_cell_is_the_scenario_with_the_same_overrides(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=3, unique=True))
    drawn = [data.draw(st.sets(st.sampled_from(CHOICES[name]), min_size=1, max_size=3)) for name in names]
    values = {name: sorted(some, key=CHOICES[name].index) for name, some in zip(names, drawn, strict=True)}
    found = plan_of(*(f"{name}={','.join(map(str, values[name]))}" for name in names))
    for cell in found.cells:
        at = positions_of(found, cell.index)
        overrides = tuple(f"{name}={values[name][i]}" for name, i in zip(names, at, strict=True))
        expected, problem = loaded(overrides)
        assert (cell.setup.scenario if cell.setup else None) == expected
        assert (cell.error or "").endswith(problem)
        assert bool(cell.error) == (expected is None)
        assert bool(cell.key) == (expected is not None)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_cells_lie_in_the_order_of_the_axes_the_last_one_fastest(sizes: list[int]) -> None:
    names = ["seed", "runs", "tree.budget", "drafter.block"][: len(sizes)]
    found = plan_of(*(f"{name}={5}..{4 + size}" for name, size in zip(names, sizes, strict=True)))
    assert [cell.index for cell in found.cells] == list(range(len(found.cells)))
    order = [tuple(int(value.label) for value in cell.point) for cell in found.cells]
    assert order == sorted(order)
    for cell in found.cells:
        assert index_of(found, positions_of(found, cell.index)) == cell.index
        assert [
            axis.values[at] for axis, at in zip(found.axes, positions_of(found, cell.index), strict=True)
        ] == list(cell.point)


def test_what_is_changed_in_all_cells_is_changed_in_all_cells_and_said() -> None:
    found = plan_of("tree.budget=4,8", load__output_tokens=9, seed=7)
    scenarios = [cell.setup.scenario for cell in found.cells if cell.setup]
    assert {(one.load.output_tokens, one.seed) for one in scenarios} == {(9, 7)}
    assert found.changes == ("load.output_tokens=9", "seed=7")


def test_a_change_that_replaces_the_one_of_the_file_is_said_alone(tmp_path: Path) -> None:
    text = "question: Which budget suits this machine best?\nscenario: tiny.yaml\n"
    write_tiny(tmp_path, sweep=f"{text}set: {{drafter.block: 6}}\nruns: 256\naxes: {{seed: [1]}}\n")
    found = from_target(str(tmp_path / "sweep.yaml"), (), [("runs", 24, "--runs")])
    assert [cell.setup.scenario.runs for cell in found.cells if cell.setup] == [24]
    assert sorted(found.changes) == ["drafter.block=6", "runs=24"]


def test_what_an_axis_sets_is_set_by_nothing_else() -> None:
    with pytest.raises(ScenarioError, match=r"tree.budget: is set by here too"):
        plan_of("tree.budget=4,8", tree__budget=16)


def test_every_cell_has_a_key_of_its_own_and_the_same_one_in_any_sweep() -> None:
    grid = plan_of("tree.budget=4,8,16", "drafter.block=6,8")
    turned = plan_of("drafter.block=8,6,7", "tree.budget=8,4,16")
    keys = {(str(c.point[0].label), str(c.point[1].label)): c.key for c in grid.cells}
    again = {(str(c.point[1].label), str(c.point[0].label)): c.key for c in turned.cells}
    assert len(set(keys.values())) == 6
    assert keys.items() <= again.items()


def test_the_numbers_of_a_scenario_change_its_key_each_in_its_own_way() -> None:
    assert len({key_of(base()), *(key_of(base(change)) for change in NUMBERS)}) == 1 + len(NUMBERS)


@pytest.mark.parametrize("change", WORDS)
def test_words_do_not_change_the_key(change: str) -> None:
    assert key_of(base(change)) == key_of(base())


@pytest.mark.parametrize("entry", ENTRIES)
def test_figures_of_every_catalog_entry_change_the_key(entry: str) -> None:
    changed = ENTRIES[entry](base())
    assert changed != base()
    assert key_of(changed) != key_of(base())


def test_a_figure_in_a_file_of_ones_own_changes_the_key(tmp_path: Path) -> None:
    keys = []
    for bandwidth in (7000, 7001, 7000):
        catalog.entry.cache_clear()  # As a new process would begin.
        figure = (
            f"achieved_bandwidth_gb_s: {{value: {bandwidth}, source: assumed, ref: made up, range: null}}"
        )
        path = write_tiny(tmp_path, mine=f"extends: b300_sxm\nname: mine\ntitle: Mine\n{figure}\n")
        (cell,) = plan_of(f"gpu={tmp_path}/mine.yaml", path=path).cells
        assert cell.setup is not None, cell.error
        assert cell.setup.machine.gpu.achieved_bandwidth_gb_s.value == bandwidth
        keys.append(cell.key)
    assert keys[0] == keys[2] != keys[1]


def test_other_code_gives_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(base())
    monkeypatch.setattr(digests, "code", lambda: "another version")
    assert key_of(base()) != before


def test_too_many_cells_are_refused_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_cell", None)
    with pytest.raises(ScenarioError, match=r"1,000,000 cells; the most is 100,000"):
        plan_of("seed=1..1000", "runs=1..1000")
    assert MAX_CELLS == 100_000


def test_a_sweep_needs_an_axis() -> None:
    with pytest.raises(ScenarioError, match="a sweep needs an axis, such as --axis"):
        plan_of()


def test_a_wrong_scenario_is_an_error_of_the_whole_sweep(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        plan_of("tree.budget=4", path=tmp_path / "nowhere.yaml")
    path = write_tiny(tmp_path, tiny="question: [")
    with pytest.raises(ScenarioError, match="not valid YAML"):
        plan_of("tree.budget=4", path=path)
