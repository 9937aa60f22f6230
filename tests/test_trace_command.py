"""``run --trace`` as its users meet it: real processes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import traces
from texts import GOOD


def sim(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sim", "run", "small.yaml", *arguments]
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(GOOD)
    (tmp_path / "a_file").write_text("not a folder")
    return tmp_path


def test_a_trace_is_written_beside_the_results_and_agrees_with_steps_csv(folder: Path) -> None:
    done = sim("--trace", "there/trace.json.gz", "--trace-steps", "1:3", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Traced steps 1 to 2 of run 0" in done.stdout
    text = gzip.decompress((folder / "there/trace.json.gz").read_bytes()).decode()
    found = traces.read(traces.loads(text))
    header, *rows = (folder / "results/small/steps.csv").read_text().splitlines()
    column = header.split(",").index("step_ns")
    recorded = [int(row.split(",")[column]) for row in rows[1:3]]
    assert [step.end - step.start for step in found.steps] == recorded


def test_engines_leave_the_same_trace_and_json_stays_one_object(folder: Path) -> None:
    traced = []
    for engine in ("batch", "simpy"):
        done = sim("--json", "--engine", engine, "--trace", f"{engine}.json", cwd=folder)
        assert json.loads(done.stdout)["engine"] == engine
        assert done.stderr == ""
        traced.append((folder / f"{engine}.json").read_bytes())
    assert traced[0] == traced[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--trace", "trace.txt"),
            "error: --trace: trace.txt: expected a name that ends in .json or .gz",
        ),
        (("--trace", "t.json", "--trace-steps", "a"), "'a' is no FIRST:STOP, such as 0:4"),
        (("--trace", "t.json", "--trace-steps", "2:2"), "2:2 has no step"),
        (("--trace", "t.json", "--trace-steps", "0:999"), "0:999 is more than there is: the run has"),
        (("--trace", "a_file/t.json"), "a_file is a file, not a folder"),
        (("--trace", "a_file/b/t.json"), "error: a_file/b"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_before_anything_runs(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = sim("--runs", "1000000", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "t.json").exists()
    assert not list(folder.rglob("summary.json"))


def test_steps_without_a_trace_are_refused(folder: Path) -> None:
    done = sim("--trace-steps", "0:2", cwd=folder)
    assert done.returncode == 2
    assert "--trace-steps speaks of the trace of --trace FILE" in done.stderr
