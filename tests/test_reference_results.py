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
