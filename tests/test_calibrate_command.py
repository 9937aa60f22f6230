"""``calibrate`` as its users meet it: real processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import interrupted, sim
from texts import GOOD

SMALL = GOOD + "anchor: {tok_s: 300, source: a measurement made up here}\n"
QUICK = ("--draws", "64", "--no-pictures")


def written(folder: Path) -> None:
    (folder / "small.yaml").write_text(SMALL)
    (folder / "bare.yaml").write_text(GOOD)
    (folder / "claimed.yaml").write_text(
        GOOD + "anchor: {tok_s_range: [200, 300], source: somebody's guess}\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    there = tmp_path_factory.mktemp("calibrated")
    written(there)
    return there, sim("calibrate", "small.yaml", "--draws", "64", cwd=there)


Calibrated = tuple[Path, subprocess.CompletedProcess[str]]


def test_a_scenario_learns_from_its_own_anchor(calibrated: Calibrated) -> None:
    folder, done = calibrated
    assert done.returncode == 0, done.stderr
    for words in (
        "Learnt from 1 published measurement",
        "small",
        "300.0",
        "host costs",
        "discrepancy.",
    ):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 110
    there = folder / "results/calibrations/small"
    pictures = {f"{name}.{kind}" for name in ("measured", "forecast") for kind in ("png", "svg")}
    assert {path.name for path in there.iterdir()} == {
        "posterior.parquet",
        "report.txt",
        "calibration.json",
        *pictures,
    }
    found = json.loads((there / "calibration.json").read_text())
    (forecast,) = found["forecasts"]
    assert forecast["after"]["p5"] < 300 < forecast["after"]["p95"]
    assert (
        forecast["after"]["p95"] - forecast["after"]["p5"]
        < forecast["before"]["p95"] - forecast["before"]["p5"]
    )


def test_a_run_draws_from_what_was_learnt(calibrated: Calibrated) -> None:
    folder, _ = calibrated
    spread = []
    for options in ((), ("--set", "calibration=results/calibrations/small")):
        done = sim("run", "small.yaml", "--runs", "5", "--json", *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        band = found["total"]["without_luck_tok_s"]
        spread.append(band["p95"] - band["p5"])
        assert ("calibration" in found) == bool(options)
    assert spread[1] != spread[0]
    assert found["calibration"]["measurements"] == [{"name": "small", "tok_s": 300.0}]
    # The published figure stays beside the prediction: nothing simulated has changed.
    assert found["anchor"]["published_tok_s"] == 300
    assert abs(band["p50"] / 300 - 1) < 0.05


def test_a_file_names_its_calibration_from_where_it_lies(calibrated: Calibrated) -> None:
    folder, _ = calibrated
    (folder / "inside").mkdir(exist_ok=True)
    text = SMALL + "calibration: ../results/calibrations/small\n"
    (folder / "inside" / "own.yaml").write_text(text)
    done = sim("run", "inside/own.yaml", "--runs", "5", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Drawn from what measurements leave possible (small 300 tok/s;" in said
    assert "and with what the model lacks" in said


def test_json_is_one_object_and_the_same_twice(folder: Path) -> None:
    first, second = (
        sim("calibrate", "small.yaml", *QUICK, "--json", "--out", name, cwd=folder) for name in "ab"
    )
    assert first.stdout == second.stdout
    assert first.stderr == ""
    assert json.loads(first.stdout) == json.loads((folder / "a/small/calibration.json").read_text())
    parts = ("report.txt", "calibration.json", "posterior.parquet")
    for name in parts:
        assert (folder / "a/small" / name).read_bytes() == (folder / "b/small" / name).read_bytes()


def test_cases_teach_too(folder: Path) -> None:
    done = sim("calibrate", "bare.yaml", "--to", "cases.csv:C113", *QUICK, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    names = [one["name"] for one in json.loads(done.stdout)["measurements"]]
    assert names == ["C113/baseline", "C113/speculative"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("b300_nwo",), "did you mean 'b300_now'"),
        (("bare.yaml",), "names no published measurement"),
        (("claimed.yaml",), "a claim, not a measurement"),
        (("small.yaml", "--to", "b300_nwo"), "did you mean 'b300_now'"),
        (("small.yaml", "--to", "cases.csv:C0002"), "no case 'C0002'"),
        (("small.yaml", "--to", "none.csv:C002"), "no such file"),
        (("small.yaml", "--to", "cases.csv:C002/baseline"), "measured nothing of that kind"),
        (("small.yaml", "--to", "anchor,small.yaml"), "named twice"),
        (("b300_now", "--to", "anchor", "--to", "cases.csv:C002"), "are the same measurement (303 tok/s"),
        (("small.yaml", "--to", "cases.csv"), "name rows of it: cases.csv:ID"),
        (("small.yaml", "--to", ","), "names nothing to learn from"),
        (("small.yaml", "./sub/small.yaml"), "names of their own"),
        (("small.yaml", "--set", "tree.budgte=3"), "budgte"),
        (("small.yaml", "--draws", "3"), "equal to 64"),
        (("small.yaml", "--set", "calibration=nowhere"), "no such file"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "small.yaml").write_text(SMALL)
    done = sim("calibrate", *arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    # A terminal's frame breaks lines and adds bars.
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not (folder / "results").exists()


def test_an_interrupt_writes_nothing(folder: Path) -> None:
    there = folder / "results/calibrations/b300_now"
    done = interrupted("calibrate", "b300_now", "--draws", "16384", cwd=folder, there=there)
    assert done.returncode == 130, done.stderr
    assert "nothing is written" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list(there.iterdir())
