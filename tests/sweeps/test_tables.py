"""Tables say what was found in the types that programs expect, and CSV says the same as Parquet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import plan_of, result_with, write_tiny

from sim.sweeps import tables
from sim.sweeps.plan import from_target
from sim.sweeps.result import SweepResult

FAST, SLOW = [950.0, 955, 960, 952, 951], [900.0, 905, 910, 902, 901]
TYPES = {
    "tree.budget=4,8": (pa.int64(), [4, 8]),
    "tree.budget=4.0,8": (pa.int64(), [4, 8]),
    "acceptance.mean_length=4,4.5": (pa.float64(), [4.0, 4.5]),
    "tree.builder=host,gpu": (pa.string(), ["host", "gpu"]),
    "acceptance={mean_length: 4},{length: 3}": (pa.string(), ["{'mean_length': 4}", "{'length': 3}"]),
    "experts.kernel=null,marlin": (pa.string(), ["None", "marlin"]),
    "acceptance.hazard=0.8,[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]": (
        pa.string(),
        ["0.8", "[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]"],
    ),
}


@pytest.fixture(scope="module")
def mixed() -> SweepResult:
    """Six cells, two of which failed."""
    plan = plan_of("tree.budget=4,8,16", "tree.builder=host,gpu")
    return result_with(plan, {0: SLOW, 1: FAST, 3: SLOW, 5: FAST[::-1]})


def as_csv(value: Any) -> str:
    """A value of a Parquet table as CSV has it."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("option", TYPES)
def test_axes_are_columns_of_their_type(option: str) -> None:
    table = tables.cell_table(result_with(plan_of(option), {0: SLOW, 1: FAST}))
    name = option.partition("=")[0]
    assert (table.schema.field(name).type, table[name].to_pylist()) == TYPES[option]
    assert table.column_names[:3] == ["cell", name, "error"]


def test_columns_have_the_types_that_programs_expect(mixed: SweepResult) -> None:
    schema = tables.cell_table(mixed).schema
    whole, text, truth = {"cell", "tree.budget", "runs", "steps"}, {"tree.builder", "error"}, set()
    truth = {"best", "distinguishable_from_best"}
    for name in schema.names:
        kind = pa.int64() if name in whole else pa.string() if name in text else pa.float64()
        assert schema.field(name).type == (pa.bool_() if name in truth else kind), name
    for name in ("throughput_tok_s_half_width", "step_time_ms_p95", "breakdown_experts", "sources_measured"):
        assert name in schema.names
    kinds = {field.name: field.type for field in tables.run_table(mixed).schema}
    assert kinds.pop("throughput_tok_s") == pa.float64()
    assert kinds == dict.fromkeys(("cell", "run", "steps", "tokens", "duration_ns"), pa.int64())


def test_a_failed_cell_is_a_row_with_its_error_and_nothing_else(mixed: SweepResult) -> None:
    rows = tables.cell_table(mixed).to_pylist()
    assert [row["cell"] for row in rows] == list(range(6))
    point = {"cell", "tree.budget", "tree.builder", "error"}
    for row in rows:
        missing = {name for name, value in row.items() if value is None}
        if row["cell"] in (2, 4):
            assert row["error"] == f"cell {row['cell']} fell over"
            assert missing == row.keys() - point
        else:
            assert row["error"] == ""
            assert not missing


def test_rows_say_how_far_from_the_best_they_are(mixed: SweepResult) -> None:
    rows = tables.cell_table(mixed).to_pylist()
    assert [row["best"] for row in rows] == [False, True, None, False, None, False]
    assert [row["distinguishable_from_best"] for row in rows] == [True, False, None, True, None, False]
    assert rows[0]["from_best_tok_s"] == pytest.approx(-50, abs=1e-3)
    assert rows[1]["from_best_tok_s"] == rows[1]["from_best_half_width"] == 0


def test_csv_agrees_with_parquet(mixed: SweepResult, tmp_path: Path) -> None:
    assert tables.write(mixed, tmp_path) == ["cells.csv", "cells.parquet", "runs.parquet"]
    assert {path.name for path in tmp_path.iterdir()} == {"cells.csv", "cells.parquet", "runs.parquet"}
    parquet = pq.read_table(tmp_path / "cells.parquet")
    with (tmp_path / "cells.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == parquet.column_names
    assert rows == [[as_csv(value) for value in row.values()] for row in parquet.to_pylist()]


@given(st.lists(st.lists(st.floats(1, 1e4), min_size=1, max_size=7), min_size=1, max_size=4))
def test_runs_add_up_to_their_cells(rates: list[list[float]]) -> None:
    result = result_with(plan_of("seed=0..4"), dict(enumerate(rates)))
    runs = tables.run_table(result).to_pylist()
    for row in tables.cell_table(result).to_pylist():
        own = [run for run in runs if run["cell"] == row["cell"]]
        assert [run["run"] for run in own] == list(range(len(own)))
        if row["cell"] >= len(rates):
            assert not own
            continue
        assert (len(own), sum(run["steps"] for run in own)) == (row["runs"], row["steps"])
        reached = [run["throughput_tok_s"] for run in own]
        assert reached == [run["tokens"] / (run["duration_ns"] / 1e9) for run in own]
        assert sum(reached) / len(own) == pytest.approx(row["throughput_tok_s_mean"], rel=1e-9)


def test_where_all_failed_there_are_tables_all_the_same(tmp_path: Path) -> None:
    tables.write(result_with(plan_of("tree.budget=4,8"), {}), tmp_path)
    cells, runs = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("cells", "runs"))
    assert cells.column_names == ["cell", "tree.budget", "error"]
    assert cells.num_rows == 2
    assert (runs.num_rows, runs.schema.field("duration_ns").type) == (0, pa.int64())


def test_too_few_runs_leave_a_column_of_missing_numbers() -> None:
    table = tables.cell_table(result_with(plan_of("tree.budget=4,8"), {0: [900.0], 1: [910.0]}))
    assert table.schema.field("throughput_tok_s_half_width").type == pa.float64()
    assert table["from_best_half_width"].to_pylist() == [None, None]


@pytest.mark.parametrize("name", ["error", "cell", "best", "runs", "throughput_tok_s_mean"])
def test_a_bundle_may_be_called_like_a_column(tmp_path: Path, name: str) -> None:
    """Or is refused when the sweep is read."""
    write_tiny(
        tmp_path,
        sweep="question: Which of these two is the better one?\nscenario: tiny.yaml\n"
        f"axes: {{{name}: {{small: {{tree.budget: 4}}, large: {{tree.budget: 16}}}}}}\n",
    )
    try:
        plan = from_target(str(tmp_path / "sweep.yaml"), (), ())
    except Exception as refused:
        assert name in str(refused)  # noqa: PT017
        return
    table = tables.cell_table(result_with(plan, {0: SLOW}))
    assert ["small", "large"] in [column.to_pylist() for column in table.columns]
    assert table["cell"].to_pylist() == [0, 1]
    assert table["error"].to_pylist() == ["", "cell 1 fell over"]
