"""``sweep`` as its users meet it. Most are started in this process: each new one imports for two seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweeps import nobody, rows, sim_here, strict_json, write_tiny

from sim.sweeps import executors, plan
from sim.sweeps.store import FILE

Command = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in a folder that has the tiny scenario."""
    write_tiny(tmp_path)
    monkeypatch.chdir(tmp_path)
    return partial(sim_here, monkeypatch, capsys)


def test_a_sweep_reports_and_writes(sim: Command) -> None:
    code, out, err = sim("sweep", "tiny.yaml", "--axis", "tree.budget=8,16", "--runs", "5", "--seed", "3")
    assert (code, err) == (0, "")
    for words in ("2 cells, 5 runs each", "Best (*): tree.budget = ", "In all cells: runs=5, seed=3"):
        assert words in out
    folder = Path("results/sweeps/tiny-tree.budget")
    assert f"Written to {folder}/" in out
    assert out.startswith((folder / "report.txt").read_text())
    assert not list(folder.glob(".*"))


def test_json_is_one_object_and_nothing_else(sim: Command) -> None:
    code, out, err = sim(
        "sweep", "tiny.yaml", "--axis=tree.budget=8,16", "--axis=drafter.block=2,8", "--json"
    )
    assert (code, err) == (3, "")
    assert strict_json(out) == strict_json(
        Path("results/sweeps/tiny-tree.budget-drafter.block/sweep.json").read_text()
    )
    assert out == json.dumps(strict_json(out), indent=2) + "\n"
    code, again, _ = sim(
        "sweep", "tiny.yaml", "--axis=tree.budget=8,16", "--axis=drafter.block=2,8", "--json", "--resume"
    )
    assert (code, again) == (3, out)


def test_quiet_prints_nothing(sim: Command) -> None:
    code, out, err = sim("sweep", "tiny.yaml", "--axis=tree.budget=8", "--quiet", "--out=elsewhere")
    assert (code, out, err) == (0, "", "")
    assert Path("elsewhere/tiny-tree.budget/sweep.json").is_file()


def test_cells_that_fail_are_recorded_and_the_exit_code_says_so(sim: Command) -> None:
    code, out, err = sim("sweep", "tiny.yaml", "--axis=drafter.block=2,8")
    assert (code, err) == (3, "")
    error = "tiny.yaml: acceptance asks for 4.4 tokens per step, but block 2, budget 8 allow at most 2"
    assert error in " ".join(out.split())
    folder = Path("results/sweeps/tiny-drafter.block")
    told = strict_json((folder / "sweep.json").read_text())
    assert told["cells"][0] == {"cell": 0, "point": {"drafter.block": "2"}, "error": error}
    assert (told["failed"], told["best"]) == (1, 1)
    assert error in (folder / "cells.csv").read_text()
    code, out, _ = sim("sweep", "tiny.yaml", "--axis=drafter.block=2,3", "--out=none")
    assert code == 3
    assert "No cell finished." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny.yaml",), "a sweep needs an axis, such as --axis tree.budget=4,8,16"),
        (("tiny.yaml", "--axis=tree.bugdet=4"), "unknown key, did you mean 'budget'?"),
        (("nowhere.yaml", "--axis=tree.budget=4"), "nowhere.yaml: no such file"),
        (("b300_budget_blok",), "did you mean 'b300_budget_block'?"),
        (("tiny.yaml", "--axis=tree.budget=4", "--set=x"), "expected key=value"),
        (("tiny.yaml", "--axis=tree.budget=4", "--set=tree.bugdet=4"), "unknown key, did you mean 'budget'?"),
        (("tiny.yaml", "--axis=tree.budget=4", "--cluster=local:x"), "expected local:N or tcp://host:port"),
        (("tiny.yaml", "--axis=tree.budget=4", "--cluster=local:0"), "expected local:N or tcp://host:port"),
        (("tiny.yaml", "--axis=tree.budget=4", "--out=/proc/self/sweeps"), "/proc/self/sweeps"),
        (("tiny.yaml", "--axis=tree.budget=4", "--out=tiny.yaml"), "tiny.yaml"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(sim: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = sim("sweep", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--resume", "--restart"), "give --resume or --restart, not both"),
        (("--workers=2", "--cluster=local:2"), "--workers counts processes of this machine"),
        (("--workers=0",), "greater than or equal to 1"),
        (("--runs=0",), "greater than or equal to 1"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    sim: Command, options: tuple[str, ...], message: str
) -> None:
    code, out, err = sim("sweep", "tiny.yaml", "--axis=tree.budget=4", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("results").exists()


def test_finished_cells_are_kept_unless_the_user_says_otherwise(sim: Command) -> None:
    arguments = ("sweep", "tiny.yaml", "--axis=tree.budget=8,16", "--quiet")
    folder = Path("results/sweeps/tiny-tree.budget")
    assert sim(*arguments) == (0, "", "")
    before = rows(folder)
    code, _, err = sim(*arguments)
    assert code == 2
    assert (
        err == f"error: {folder}: has 2 finished cells; --resume goes on with them, --restart forgets them\n"
    )
    assert rows(folder) == before
    assert sim(*arguments, "--resume") == (0, "", "")
    assert rows(folder) == before
    assert sim(*arguments, "--restart") == (0, "", "")
    assert {key: row[1:] for key, row in rows(folder).items()} == {
        key: row[1:] for key, row in before.items()
    }


def test_an_interrupt_says_how_to_go_on(sim: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.sweeps.conduct.wait", interrupted)
    code, out, err = sim("sweep", "tiny.yaml", "--axis=tree.budget=8,16")
    assert (code, out) == (130, "")
    assert " cells are finished in results/sweeps/tiny-tree.budget/, --resume goes on\n" in err
    assert err.startswith("interrupted; 0 of ")


def test_an_interrupt_while_the_grid_is_laid_out_is_an_interrupt(
    sim: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "_cell", interrupted)
    code, out, err = sim("sweep", "tiny.yaml", "--axis=tree.budget=8,16")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_a_store_of_another_format_is_a_user_error(sim: Command) -> None:
    folder = Path("results/sweeps/tiny-tree.budget")
    folder.mkdir(parents=True)
    (folder / FILE).write_text("no database" * 1000)
    code, _, err = sim("sweep", "tiny.yaml", "--axis=tree.budget=8,16", "--restart")
    assert code == 2
    problem = "not a database of sweep cells (file is not a database); delete it to start over"
    assert err == f"error: {folder / FILE}: {problem}\n"


def test_the_schema_is_the_committed_file(sim: Command) -> None:
    _, out, _ = sim("schema", "--sweep")
    committed = Path(plan.__file__).parents[2] / "scenarios/sweeps/sweep.schema.json"
    assert out == committed.read_text()
    assert strict_json(out)["properties"].keys() == {"question", "scenario", "set", "axes", "runs", "seed"}


def test_shipped_sweeps_are_found_by_name_and_are_what_they_say() -> None:
    found = plan.from_target("b300_budget_block", (), ())
    assert found.name == "b300_budget_block"
    assert [axis.name for axis in found.axes] == ["tree.budget", "drafter.block"]
    assert len(found.cells) == 64
    assert not [cell.error for cell in found.cells if cell.error]


def test_workers_are_asked_for_once_and_only_where_there_is_work(
    sim: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sim("sweep", "tiny.yaml", "--axis=tree.budget=8", "--quiet")[0] == 0
    monkeypatch.setattr(executors, "cluster", lambda _: nobody())
    code, _, err = sim(
        "sweep", "tiny.yaml", "--axis=tree.budget=8", "--quiet", "--resume", "--cluster=local:2"
    )
    assert (code, err) == (0, "")
