"""A sweep is its cells, each as ``run`` would have it, whoever ran them and in whatever order."""

from __future__ import annotations

import json
import random
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweeps import (
    cell_result,
    files,
    nobody,
    plan_of,
    rows,
    scripted,
    sim_here,
    strict_json,
    swept,
    threads,
    tiny,
)

from sim import digests, simulate
from sim.sweeps import conduct, report
from sim.sweeps.cell import Task, run_cell
from sim.sweeps.conduct import Done
from sim.sweeps.result import result_of
from sim.sweeps.run import IfStored
from sim.sweeps.store import Store

GRID = ("tree.budget=4,8", "drafter.block=2,6,8")
OWN = {
    "cell",
    "point",
    "difference_from_best_tok_s",
    "difference_half_width_tok_s",
    "distinguishable_from_best",
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "tree": {},
    "range": {"acceptance": {"mean_length": 4.4, "mean_length_range": [4.0, 5.0], "request_sd": 0.3}},
    "plain": {"tree.budget": 0, "load.concurrency": 2, "seed": 5},
    "few": {"runs": 2, "gpus": 4, "tree.builder": "gpu"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the grid, run by one thread in the order of its cells."""
    folder = tmp_path_factory.mktemp("whole")
    swept(plan_of(*GRID), folder)
    return files(folder)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_sweep_of_one_cell_is_a_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [f"--set={key}={json.dumps(value)}" for key, value in SCENARIOS[name].items()]
    here = partial(sim_here, monkeypatch, capsys)
    code, one, _ = here("run", str(tiny()), *changes, "--json", f"--out={tmp_path}/run")
    assert code == 0
    code, many, _ = here(
        "sweep", str(tiny()), "--axis=drafter.block=8", *changes, "--json", f"--out={tmp_path}"
    )
    assert code == 0
    run, (cell,) = strict_json(one), strict_json(many)["cells"]
    assert json.loads((tmp_path / "run/tiny/summary.json").read_text()) == run
    shared = cell.keys() - OWN
    assert shared >= {
        "throughput_tok_s",
        "step_time_ms",
        "acceptance_length",
        "breakdown",
        "sources",
        "steps",
    }
    for key in shared:
        assert json.dumps(cell[key]) == json.dumps(run[key]), key
    own = {
        "format_version",
        "question",
        "acceptance_range",
        "required_accuracy",
        "launch",
        "total",
        "anchor",
        "assumptions",
        "seed",
        "engine",
    }
    of_a_batch = {"batch"} if SCENARIOS[name].get("load.concurrency", 1) > 1 else set()
    whole_run = {"replayed_on_simpy", "overrides", "interrupted", "provenance"}
    assert run.keys() - shared == own | of_a_batch | whole_run


def test_a_sweep_leaves_these_files(whole: dict[str, bytes]) -> None:
    pictures = {"map_tree.budget_drafter.block", "curve_tree.budget", "curve_drafter.block"}
    assert whole.keys() == {
        *(f"{name}.{kind}" for name in pictures for kind in ("png", "svg")),
        *("cells.csv", "cells.parquet", "runs.parquet", "sweep.json", "report.txt"),
    }
    told = strict_json(whole["sweep.json"].decode())
    assert told["failed"] == 2
    for index in (0, 3):
        assert "acceptance asks for 4.4 tokens per step, but block 2" in told["cells"][index]["error"]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_in_which_cells_end_changes_no_byte(
    seed: int, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(seed)
    monkeypatch.setattr(conduct, "AHEAD", luck.randint(1, 3))
    monkeypatch.setattr(simulate, "CHUNK_DURATIONS", luck.choice([1, 500, 1200, 10**6]))
    plan, deadly = plan_of(*GRID), {0, 1, 2, 3, 4, 5}

    def once(_: Any) -> bool:
        """The first cell that is met takes its worker with it, once."""
        if not deadly:
            return False
        deadly.clear()
        return True

    pool = scripted(monkeypatch, luck.randint(1, 3), luck.randrange, run_cell, once)
    before = luck.sample([cell for cell in plan.cells if cell.setup], 2)
    with closing(Store(tmp_path)) as store:
        for cell in before:
            assert cell.setup is not None
            store.add(
                cell.key, "from before", run_cell(Task(cell.index, cell.setup, digests.code())).result, None
            )
    swept(plan, tmp_path, pool, IfStored.RESUME)
    assert not deadly
    assert files(tmp_path) == whole


def test_the_order_in_which_cells_were_gathered_changes_no_word() -> None:
    plan = plan_of("seed=1..4")
    results = {index: json.dumps(cell_result([900.0 + index] * 5)._asdict()) for index in (0, 2)}
    errors = {1: "one fell over", 3: "another one fell over"}
    backwards = Done(dict(reversed(results.items())), dict(reversed(errors.items())), 0)
    one, other = result_of(plan, Done(results, errors, 0)), result_of(plan, backwards)
    assert report.lines(one) == report.lines(other)
    assert report.as_object(one) == report.as_object(other)
    assert (list(other.results), list(other.errors)) == ([0, 2], [1, 3])


def test_all_stored_is_written_again_to_the_byte(whole: dict[str, bytes], tmp_path: Path) -> None:
    swept(plan_of(*GRID), tmp_path)
    for name in whole:
        (tmp_path / name).unlink()
    swept(plan_of(*GRID), tmp_path, nobody, IfStored.RESUME)
    assert files(tmp_path) == whole


def test_the_order_of_axes_and_values_moves_cells_and_changes_none(tmp_path: Path) -> None:
    swept(plan_of(*GRID), tmp_path / "one")
    swept(plan_of("drafter.block=8,2,6", "tree.budget=8,4"), tmp_path / "other")
    one, other = (strict_json((tmp_path / name / "sweep.json").read_text()) for name in ("one", "other"))

    def by_point(told: Any) -> dict[str, Any]:
        point = [dict(sorted(cell.pop("point").items())) for cell in told["cells"]]
        cells = [{k: v for k, v in cell.items() if k not in ("cell", "error")} for cell in told["cells"]]
        return {str(where): cell for where, cell in zip(point, cells, strict=True)}

    places = [[str(dict(sorted(cell["point"].items()))) for cell in told["cells"]] for told in (one, other)]
    assert places[0][one["best"]] == places[1][other["best"]]
    assert by_point(one) == by_point(other)
    results = [{key: row[2] for key, row in rows(tmp_path / name).items()} for name in ("one", "other")]
    assert results[0] == results[1]


def test_threads_at_once_change_no_byte(whole: dict[str, bytes], tmp_path: Path) -> None:
    swept(plan_of(*GRID), tmp_path, partial(threads, 3))
    assert files(tmp_path) == whole


def test_what_an_earlier_sweep_left_does_not_stay(tmp_path: Path) -> None:
    """A picture of axes that are no more, or of cells that all failed, would be taken for this sweep's."""
    swept(plan_of("tree.budget=4,8", runs=2), tmp_path)
    swept(plan_of("tree.budget=4,8", runs=2, drafter__block=2), tmp_path, threads, IfStored.RESTART)
    assert not list(tmp_path.glob("curve_*"))
