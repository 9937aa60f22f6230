"""Reference results: there for every shipped scenario, and reproduced to the byte for one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sim import shipped

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", shipped.names())
def test_every_scenario_has_its_reference(name: str) -> None:
    summary = json.loads((ROOT / f"results/{name}/summary.json").read_text())
    report = (ROOT / f"results/{name}/report.txt").read_text()
    assert report.startswith(summary["question"])
    assert summary["overrides"] == []
    assert sum(summary["breakdown"].values()) == pytest.approx(1)
    assert 1 <= summary["acceptance_length"]["mean"] <= len(summary["acceptance_histogram"])


def test_the_compared_scenarios_are_simulated_as_they_are_run() -> None:
    folder = ROOT / "results/compare/b300_now-b300_strong_drafter-b300_native_engine"
    found = json.loads((folder / "compare.json").read_text())
    assert folder.name == "-".join(side["name"] for side in found["scenarios"])
    for side in found["scenarios"]:
        summary = json.loads((ROOT / f"results/{side['name']}/summary.json").read_text())
        for quantity in ("throughput_tok_s", "step_time_ms", "acceptance_length"):
            assert side[quantity] == summary[quantity]["mean"]
    report = " ".join((folder / "report.txt").read_text().split())
    assert all(one["answer"] in report for one in found["comparisons"])


def test_one_reference_is_reproduced_to_the_byte(tmp_path: Path) -> None:
    name = "b300_strong_drafter"
    command = [
        sys.executable,
        "-m",
        "sim",
        "run",
        f"scenarios/{name}.yaml",
        "--quiet",
        "--out",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    for file in ("summary.json", "report.txt"):
        assert (tmp_path / name / file).read_bytes() == (ROOT / "results" / name / file).read_bytes()


def test_levers_are_pulled_at_what_is_run() -> None:
    folder = ROOT / "results/levers/b300_now-b300_strong_drafter"
    found = json.loads((folder / "levers.json").read_text())
    for one in found["scenarios"]:
        summary = json.loads((ROOT / f"results/{one['name']}/summary.json").read_text())
        assert one["tok_s"] == pytest.approx(summary["throughput_tok_s"]["mean"], rel=0.02)
        for name, share in summary["breakdown"].items():
            assert one["critical_path"].get(name, 0) == pytest.approx(share, abs=0.01)


def test_what_is_claimed_of_the_calibration_is_what_was_found() -> None:
    folder = ROOT / "results/calibrations/b300_strong_drafter-b300_strong_drafter_native"
    found = json.loads((folder / "calibration.json").read_text())
    readme = (ROOT / "README.md").read_text()
    for one in found["forecasts"]:
        after = one["after"]
        (row,) = [
            line
            for line in readme.splitlines()
            if line.startswith(f"| `{one['name']}` | {one['predicted_tok_s']:.0f}")
        ]
        for text in (
            f"{after['p50']:.0f}",
            f"{after['p25']:.0f}-{after['p75']:.0f}",
            f"{after['p5']:.0f}-{after['p95']:.0f}",
            f"{100 * one['claim']['inside']:.0f} %",
        ):
            assert f"| {text} |" in row
        assert one["claim"]["lies"].removesuffix(" interval") in row
        summary = json.loads((ROOT / f"results/{one['name']}/summary.json").read_text())
        assert one["predicted_tok_s"] == pytest.approx(summary["throughput_tok_s"]["mean"], rel=0.02)
    for one in found["measurements"]:
        ends = one["by_the_others"]
        assert one["inside"] is True
        assert f"{one['published_tok_s']:g} " in readme
        assert f"{ends['p5']:.0f}-{ends['p95']:.0f}" in readme
