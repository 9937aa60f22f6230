"""What may be written for an axis, and what it becomes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import ONE_LAYER, TINY, plan_of, write_tiny

from sim.errors import ScenarioError
from sim.scenario import parse_override
from sim.sweeps.axes import MAX_VALUES, Axis, from_option, from_values
from sim.sweeps.plan import from_target

BUNDLES = """\
question: Which engine serves this model best?
scenario: tiny.yaml
axes:
  engine:
    SGLang today: {stack: sglang}
    vLLM, larger tree: {stack: vllm, tree.budget: 16, drafter.model: one_layer.yaml}
"""


def settings(axis: Axis) -> list[object]:
    """What each value sets the axis' own key to."""
    assert all([key for key, _ in value.changes] == [axis.name] for value in axis.values)
    return [value.changes[0][1] for value in axis.values]


def number(hundredths: int) -> str:
    return str(Decimal(hundredths) / 100)


@given(st.integers(-50, 50), st.integers(0, 20), st.integers(1, 9), st.data())
def test_a_range_steps_from_end_to_end(first: int, count: int, step: int, data: st.DataObject) -> None:
    beyond = data.draw(st.integers(0, step - 1))
    found = settings(from_option(f"tree.budget={first}..{first + count * step + beyond}:{step}"))
    assert found == [first + i * step for i in range(count + 1)]
    assert {type(value) for value in found} == {int}


@given(st.integers(1, 50), st.integers(0, 6), st.integers(2, 5), st.data())
def test_a_range_multiplies_from_end_to_end(first: int, count: int, factor: int, data: st.DataObject) -> None:
    last = first * factor**count
    beyond = data.draw(st.integers(0, last * (factor - 1) - 1))
    found = settings(from_option(f"tree.budget={first}..{last + beyond}*{factor}"))
    assert found == [first * factor**i for i in range(count + 1)]
    assert {type(value) for value in found} == {int}


@given(st.integers(0, 300), st.integers(0, 30), st.integers(1, 99))
def test_a_range_of_fractions_has_the_values_as_they_would_be_typed(
    first: int, count: int, step: int
) -> None:
    last = first + count * step
    found = settings(from_option(f"acceptance.mean_length={number(first)}..{number(last)}:{number(step)}"))
    assert found == [float(number(first + i * step)) for i in range(count + 1)]


@given(st.integers(1, 300), st.integers(0, 40))
def test_a_range_without_a_step_goes_by_ones(first: int, count: int) -> None:
    assert settings(from_option(f"tree.budget={first}..{first + count}")) == list(
        range(first, first + count + 1)
    )


@given(
    st.lists(st.integers(0, 10**6) | st.sampled_from([0.5, 1.25, 4.4]), min_size=1, max_size=8, unique=True)
)
def test_numbers_are_taken_as_they_are_in_their_own_order(values: list[float]) -> None:
    axis = from_option(f"acceptance.mean_length={','.join(map(str, values))}")
    ordered = sorted(values)
    assert settings(axis) == ordered
    assert [type(value) for value in settings(axis)] == [type(value) for value in ordered]
    assert [value.number for value in axis.values] == [float(value) for value in ordered]
    assert axis.numeric


def test_ranges_and_values_mix() -> None:
    axis = from_option("tree.budget = 1, 4..16*2, 20..24:2 ")
    assert settings(axis) == [1, 4, 8, 16, 20, 22, 24]
    assert [value.label for value in axis.values] == ["1", "4", "8", "16", "20", "22", "24"]
    assert axis.title == "tree.budget (nodes)"


def test_a_file_gives_the_same_axis_as_the_option() -> None:
    for given_values in ([1, "4..16*2"], "4..16*2", 7, [0.5, "1..2:0.25"]):
        listed = given_values if isinstance(given_values, list) else [given_values]
        option = from_option(f"acceptance.mean_length={','.join(map(str, listed))}")
        assert from_values("acceptance.mean_length", given_values, "here", Path()).values == option.values


def test_commas_inside_braces_and_brackets_do_not_separate_values() -> None:
    axis = from_option("acceptance={mean_length: 4.4, request_sd: 0.5},{length: 3}")
    assert settings(axis) == [{"mean_length": 4.4, "request_sd": 0.5}, {"length": 3}]
    assert not axis.numeric
    listed = from_option("acceptance.hazard=[0.9, 0.8],[0.7, 0.6],0.5")
    assert settings(listed) == [[0.9, 0.8], [0.7, 0.6], 0.5]
    assert not listed.numeric


def test_names_are_labels_and_no_numbers() -> None:
    axis = from_option("gpu=b300_sxm,b200_sxm")
    assert [value.label for value in axis.values] == ["b300_sxm", "b200_sxm"]
    assert not axis.numeric
    assert axis.title == "gpu"


def test_whether_a_switch_is_true_is_no_number() -> None:
    assert not from_option("tree.builder=true,false").numeric


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("tree.bugdet=4,8", "tree.bugdet: unknown key, did you mean 'budget'?"),
        ("trees.budget=4", "trees.budget: unknown key, did you mean 'tree'?"),
        ("tree.budget=4,8,4", "tree.budget: 4 is given twice"),
        ("tree.budget=4..8,6", "tree.budget: 6 is given twice"),
        ("acceptance.mean_length=4,4.0", "acceptance.mean_length: 4.0 is given twice"),
        ("tree.budget=", "expected key=values, such as"),
        ("tree.budget= ", "expected key=values, such as"),
        ("=4", "expected key=values, such as"),
        ("tree.budget", "expected key=values, such as"),
        ("tree.budget=[", "not valid YAML"),
        ("tree.budget=.nan", "must be a finite number"),
        ("tree.budget=8..4", "a range goes up"),
        ("tree.budget=4..8:0", "a range goes up"),
        ("tree.budget=4..8:-2", "a range goes up"),
        ("tree.budget=4..8*1", "a range goes up"),
        ("tree.budget=0..8*2", "a range goes up"),
        ("tree.budget=-4..8*2", "a range goes up"),
        ("tree.budget=4..8*2:2", "not a range: 4..8*2:2"),
        ("tree.budget=a..z", "not a range: a..z"),
        ("tree.budget=1.2.3..4", "not a range of numbers: 1.2.3..4"),
        (f"tree.budget=1..{MAX_VALUES + 1}", f"1..{MAX_VALUES + 1} has more than 1,000 values"),
        ("tree.budget=1..1e9", "not a range: 1..1e9"),
        ("gpu=b300_sxm,b301_sxm", "gpu: no gpu named 'b301_sxm', did you mean 'b300_sxm'?"),
        (
            "drafter.model=kimi_dflsh",
            "drafter.model: no drafter named 'kimi_dflsh', did you mean 'kimi_dflash'?",
        ),
        ("gpu=mine.yaml", "gpu: no such file: mine.yaml"),
    ],
)
def test_a_wrong_axis_is_refused_with_the_words_that_help(option: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        from_option(option)
    assert message in str(refused.value)
    assert f"--axis {option}" in str(refused.value)


def test_the_longest_range_that_is_allowed_is() -> None:
    assert len(from_option(f"tree.budget=1..{MAX_VALUES}").values) == MAX_VALUES


@pytest.mark.parametrize(("name", "values"), [("tree.budget", []), ("engine", {})])
def test_an_empty_axis_is_refused(name: str, values: object) -> None:
    with pytest.raises(ScenarioError, match="an axis needs at least one value"):
        from_values(name, values, "here", Path())


@pytest.mark.parametrize("name", ["engine/drafter", "../engine", "", "error", "cell", "best", "1st", "a b"])
def test_a_bundle_has_a_name_that_can_be_a_column_and_a_file(name: str) -> None:
    with pytest.raises(ScenarioError, match="the name of a bundle is a word that is no column"):
        from_values(name, {"fast": {"tree.budget": 4}}, "here", Path())


@pytest.mark.parametrize("changes", [{}, 4, None, ["tree.budget"]])
def test_a_bundle_changes_something(changes: object) -> None:
    with pytest.raises(ScenarioError, match=r"engine.fast: expected a mapping of scenario keys to values"):
        from_values("engine", {"fast": changes}, "here", Path())


def test_a_bundle_changes_only_what_a_scenario_has() -> None:
    with pytest.raises(ScenarioError, match=r"tree.bugdet: unknown key, did you mean 'budget'"):
        from_values("engine", {"fast": {"tree.bugdet": 4}}, "here", Path())


def test_a_bundle_changes_several_keys_at_once(tmp_path: Path) -> None:
    write_tiny(tmp_path, bundles=BUNDLES)
    plan = from_target(str(tmp_path / "bundles.yaml"), (), ())
    (axis,) = plan.axes
    assert [value.label for value in axis.values] == ["SGLang today", "vLLM, larger tree"]
    assert not axis.numeric
    today, later = (cell.setup.scenario for cell in plan.cells if cell.setup is not None)
    assert (today.stack, today.tree.budget) == ("sglang", 8)
    assert (later.stack, later.tree.budget) == ("vllm", 16)


def test_files_are_looked_for_beside_a_sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = "question: Which of two drafters is the faster one?\nscenario: tiny.yaml\n"
    sweep += "axes:\n  drafter.model: [one_layer.yaml, more/same.yaml, kimi_dflash]\n"
    write_tiny(tmp_path / "deep", sweep=sweep)
    (tmp_path / "deep/more").mkdir()
    (tmp_path / "deep/more/same.yaml").write_text(ONE_LAYER)
    plan = from_target("deep/sweep.yaml", (), ())
    assert [value.label for value in plan.axes[0].values] == ["one_layer", "same", "kimi_dflash"]
    assert [cell.setup and cell.setup.drafter.layers for cell in plan.cells][:2] == [1, 1]
    assert [cell.error for cell in plan.cells] == [None, None, None]


def test_files_are_looked_for_beside_a_sweep_file_in_what_all_cells_change(tmp_path: Path) -> None:
    sweep = "question: Is the other drafter the faster one?\nscenario: tiny.yaml\n"
    sweep += "set: {drafter.model: other.yaml}\naxes: {tree.budget: [4]}\n"
    write_tiny(tmp_path, sweep=sweep, other=ONE_LAYER)
    (cell,) = from_target(str(tmp_path / "sweep.yaml"), (), ()).cells
    assert cell.error is None


def test_files_of_an_option_are_looked_for_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "deep")
    (tmp_path / "mine.yaml").write_text(ONE_LAYER)
    monkeypatch.chdir(tmp_path)
    plan = from_target(str(path), ["drafter.model=mine.yaml,deep/one_layer.yaml"], ())
    assert [cell.error for cell in plan.cells] == [None, None]
    with pytest.raises(ScenarioError, match=r"no such file: one_layer.yaml"):
        from_target(str(path), ["drafter.model=one_layer.yaml"], ())


def test_an_option_replaces_the_axis_of_the_same_name_and_adds_others(tmp_path: Path) -> None:
    sweep = "question: Which budget suits this machine best?\nscenario: tiny.yaml\n"
    sweep += "axes: {tree.budget: [4, 8], drafter.block: [6, 8]}\nruns: 6\nseed: 3\n"
    write_tiny(tmp_path, sweep=sweep)
    plan = from_target(
        str(tmp_path / "sweep.yaml"), ["tree.budget=5", "gpus=4,8"], [parse_override("runs=7")]
    )
    labels = {axis.name: [value.label for value in axis.values] for axis in plan.axes}
    assert labels == {"tree.budget": ["5"], "drafter.block": ["6", "8"], "gpus": ["4", "8"]}
    assert {(cell.setup.scenario.runs, cell.setup.scenario.seed) for cell in plan.cells if cell.setup} == {
        (7, 3)
    }


def test_two_axes_of_one_key_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"=8: tree.budget: is set by --axis tree.budget=4 too"):
        plan_of("tree.budget=4", "tree.budget=8")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("axes: {}", "sweep.yaml:3: axes"),
        ("axes: {tree.bugdet: [4]}", "unknown key, did you mean 'budget'?"),
        ("axes: {tree.budget: [4, 4]}", "sweep.yaml:3: tree.budget: 4 is given twice"),
        (
            "axes: {tree.budget: [4]}\nset: {tree.bugdet: 4}",
            "tree.bugdet: unknown key, did you mean 'budget'?",
        ),
        ("axis: {tree.budget: [4]}\naxes: {tree.budget: [4]}", "axis: unknown key, did you mean 'axes'?"),
        ("axes: {tree.budget: [4]}\nruns: 0", "runs: expected greater than or equal to 1, got 0"),
        ("axes: {gpu: [b301_sxm]}", "sweep.yaml:3: gpu: no gpu named 'b301_sxm', did you mean 'b300_sxm'?"),
    ],
)
def test_a_wrong_sweep_file_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    text = f"question: Which budget suits this machine best?\nscenario: tiny.yaml\n{line}\n"
    write_tiny(tmp_path, sweep=text)
    with pytest.raises(ScenarioError) as refused:
        from_target(str(tmp_path / "sweep.yaml"), (), ())
    assert message in str(refused.value)


def test_a_scenario_is_one_in_whatever_folder_it_lies(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "sweeps")
    assert path.read_text() == TINY
    assert len(from_target(str(path), ["tree.budget=4,8"], ()).cells) == 2
