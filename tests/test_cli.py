"""The command line as its users meet it: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import sim
from texts import GOOD

ROOT = Path(__file__).parents[1]
SPREAD_KEYS = {"mean", "half_width", "p5", "p50", "p95"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(GOOD)
    return tmp_path


def test_run_reports_and_writes(folder: Path) -> None:
    done = sim("run", "small.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in ("throughput", "tok/s", "acceptance length", "routed experts", "MEASURED", "100.0 %"):
        assert words in done.stdout
    names = {path.name for path in (folder / "results" / "small").iterdir()}
    expected = {"summary.json", "report.txt", "runs.csv", "steps.csv", "costs.csv", "scenario.json"}
    assert names == expected


def test_report_fits_a_screen(folder: Path) -> None:
    lines = sim("run", "b300_strong_drafter", "--runs", "5", cwd=folder).stdout.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


def test_json_is_one_object_with_stable_keys(folder: Path) -> None:
    done = sim("run", "small.yaml", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert done.stderr == ""
    for key in ("throughput_tok_s", "step_time_ms", "acceptance_length"):
        assert found[key].keys() == SPREAD_KEYS
    assert sum(found["breakdown"].values()) == pytest.approx(1)
    assert found["sources"].keys() == {"MEASURED", "FITTED", "SCALED", "DATASHEET", "ASSUMED"}
    assert sum(found["sources"].values()) == pytest.approx(1)
    assert found["anchor"] is None
    assert (found["runs"], found["seed"], found["engine"]) == (5, 1, "batch")
    assert json.loads((folder / "results/small/summary.json").read_text()) == found


def test_both_bands_are_reported_apart(folder: Path) -> None:
    options = ("--set", "uncertain.stack.dispatch.schedule_us={uniform: [1000, 9000]}")
    found = json.loads(sim("run", "small.yaml", "--json", *options, cwd=folder).stdout)
    luck, total = found["throughput_tok_s"], found["total"]
    assert total["throughput_tok_s"].keys() == {"mean", "p5", "p50", "p95"}
    assert total["throughput_tok_s"]["p5"] < luck["p5"]
    assert total["parameters"] >= len(total["swings"]) > 3
    assert total["swings"][0]["name"] == "stack.dispatch.schedule_us"
    assert total["swings"][0]["values"] == [1400, 8600]
    slow, fast = total["swings"][0]["tok_s"][1], total["swings"][0]["tok_s"][0]
    assert slow < luck["mean"] < fast
    report = (folder / "results/changed/small/report.txt").read_text()
    assert "all drawn" in report
    assert "stack.dispatch.schedule_us, 1400 to 8600" in report


def test_without_uncertainty_there_is_luck_alone(folder: Path) -> None:
    whole = json.loads(sim("run", "small.yaml", "--json", cwd=folder).stdout)
    alone = json.loads(sim("run", "small.yaml", "--json", "--no-uncertainty", cwd=folder).stdout)
    assert whole.pop("total") is not None
    assert alone.pop("total") is None
    assert alone == whole
    assert "all drawn" not in (folder / "results/small/report.txt").read_text()


def test_a_changed_scenario_is_not_held_against_its_published_figure(folder: Path) -> None:
    options = ("--runs", "5", "--set", "load.output_tokens=40", "--set", "gpu=h200_sxm")
    done = sim("run", "b300_now", "--json", *options, "--set", "interconnect=nvlink4", cwd=folder)
    assert json.loads(done.stdout)["anchor"] is None


def test_any_scenario_becomes_plain_decoding_with_one_override(folder: Path) -> None:
    options = ("--runs", "5", "--set", "load.output_tokens=40", "--set", "tree.budget=0")
    done = sim("run", "b300_now", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "plain decoding" in done.stdout
    assert "Changed: tree.budget=0" in done.stdout


def test_anchor_is_printed_beside_the_prediction(folder: Path) -> None:
    done = sim("run", "b300_now", "--json", "--runs", "5", "--set", "load.output_tokens=40", cwd=folder)
    anchor = json.loads(done.stdout)["anchor"]
    assert anchor["published_tok_s"] == 303
    assert anchor["error"] == pytest.approx(anchor["predicted_tok_s"] / 303 - 1)
    assert anchor["source"]


def test_quiet_prints_nothing(folder: Path) -> None:
    done = sim("run", "small.yaml", "--quiet", "--out", "elsewhere", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (folder / "elsewhere/small/summary.json").is_file()


def test_options_change_the_scenario(folder: Path) -> None:
    options = ("--runs", "6", "--seed", "9", "--set", "tree.budget=5")
    done = sim("run", "small.yaml", "--json", *options, cwd=folder)
    found = json.loads(done.stdout)
    assert (found["runs"], found["seed"]) == (6, 9)
    resolved = json.loads((folder / "results/changed/small/scenario.json").read_text())
    assert resolved["tree"]["budget"] == 5
    assert found["overrides"] == ["tree.budget=5", "runs=6", "seed=9"]
    assert not (folder / "results/small").exists()


def test_a_result_is_run_again_from_its_scenario_in_another_folder(folder: Path) -> None:
    (folder / "my_gpu.yaml").write_text("extends: b300_sxm\ntitle: A B300 of my own\n")
    options = ("--quiet", "--no-uncertainty")
    sim("run", "small.yaml", "--set", "gpu=my_gpu.yaml", *options, "--out", "first", cwd=folder)
    (folder / "other").mkdir()
    again = sim("run", "../first/small/scenario.json", *options, cwd=folder / "other")
    assert (again.returncode, again.stderr) == (0, "")
    first, second = (
        json.loads((folder / place / "summary.json").read_text())
        for place in ("first/small", "other/results/scenario")
    )
    assert first["throughput_tok_s"] == second["throughput_tok_s"]
    assert first["step_time_ms"] == second["step_time_ms"]


def test_same_seed_same_bytes_whatever_the_hash_seed(folder: Path) -> None:
    outputs = []
    for hash_seed in ("0", "1", "random"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        sim("run", "small.yaml", "--quiet", "--out", f"out{hash_seed}", cwd=folder, env=env)
        files = sorted((folder / f"out{hash_seed}/small").iterdir())
        outputs.append([(path.name, path.read_bytes()) for path in files])
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nowhere.yaml"), "error: nowhere.yaml: no such file"),
        (("run", "b300_strong_draftr"), "did you mean 'b300_strong_drafter'?"),
        (("run", "small.yaml", "--runs", "0"), "runs: expected greater than or equal to 1, got 0"),
        (("run", "small.yaml", "--seed", "-1"), "seed: expected greater than or equal to 0, got -1"),
        (("run", "small.yaml", "--set", "x"), "expected key=value"),
        (("run", "b300_strong_drafter.yml"), "did you mean 'b300_strong_drafter'?"),
        (
            ("run", "small.yaml", "--set", "model=kimi_k2_6_nvfp4", "--set", "gpu=h200_sxm"),
            "no nvfp4 arithmetic",
        ),
        (("hardware", "show", "b301_sxm"), "no entry named 'b301_sxm', did you mean 'b300_sxm'?"),
        (("estimate", "small.yaml", "--set", "gpu=b200_sxm"), "no closed form for this GPU"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = sim(*arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_file_in_the_way_is_said_before_work_starts(folder: Path) -> None:
    (folder / "results").write_text("a file, not a folder")
    begin = time.monotonic()
    done = sim("run", "small.yaml", "--runs", "1000000", cwd=folder)
    assert time.monotonic() - begin < 60
    assert done.returncode == 2
    assert "results" in done.stderr


@pytest.mark.parametrize("patience_s", [(6, 20, 60)])
def test_interrupt_keeps_what_was_played(folder: Path, patience_s: tuple[int, ...]) -> None:
    # How long the first run takes depends on the machine: wait longer until there is something to keep.
    command = [sys.executable, "-m", "sim", "run", "small.yaml", "--runs", "1000000", "--json"]
    for seconds in patience_s:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode in (130, -signal.SIGINT), stderr
        if stdout:
            break
        assert "Traceback" not in stderr or process.returncode == -signal.SIGINT
    found = json.loads(stdout)
    assert found["interrupted"] is True
    assert 0 < found["runs"] < 1_000_000
    assert "Interrupted" in (folder / "results/changed/small/report.txt").read_text()


def test_a_closed_pipe_is_no_traceback(folder: Path) -> None:
    command = f"{sys.executable} -m sim hardware show b300_sxm | head -1"
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_a_terminal_without_block_characters_gets_a_report_all_the_same(folder: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = sim("run", "small.yaml", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert "throughput" in done.stdout


def test_the_batch_engine_is_checked_on_simpy_and_says_so(folder: Path) -> None:
    found = json.loads((sim("run", "small.yaml", "--json", cwd=folder)).stdout)
    replayed = found["replayed_on_simpy"]
    assert replayed["runs"] == 2
    assert replayed["steps"] > 2
    assert replayed["pieces"] > replayed["steps"]
    assert replayed["ops"] > replayed["kernel_steps"] > 0
    report = (folder / "results/small/report.txt").read_text()
    assert f"Checked on SimPy: 2 runs ({replayed['steps']:,} steps" in report


def test_all_runs_on_simpy_give_the_same_answer(folder: Path) -> None:
    by_batch = json.loads(sim("run", "small.yaml", "--json", cwd=folder).stdout)
    by_simpy = json.loads(sim("run", "small.yaml", "--json", "--engine", "simpy", cwd=folder).stdout)
    assert by_simpy.pop("engine") == "simpy"
    assert by_simpy.pop("replayed_on_simpy") is None
    assert by_simpy == {k: v for k, v in by_batch.items() if k not in ("engine", "replayed_on_simpy")}


def test_schema_of_a_sweep_is_the_committed_file(folder: Path) -> None:
    printed = sim("schema", "--sweep", cwd=folder).stdout
    assert printed == (ROOT / "scenarios/sweeps/sweep.schema.json").read_text()
    assert json.loads(printed)["properties"].keys() == {"question", "scenario", "set", "axes", "runs", "seed"}


def test_schema_is_the_committed_file(folder: Path) -> None:
    printed = sim("schema", cwd=folder).stdout
    assert printed == (ROOT / "scenarios/scenario.schema.json").read_text()
    assert json.loads(printed)["properties"].keys() >= {"question", "gpu", "tree", "acceptance", "extends"}


def test_hardware_names_every_source(folder: Path) -> None:
    listed = sim("hardware", "list", cwd=folder).stdout
    for name in ("b300_sxm", "pcie5_dual_socket", "sglang", "kimi_k2_6", "kimi_dflash", "epyc_dual"):
        assert name in listed
        shown = sim("hardware", "show", name, cwd=folder)
        assert shown.returncode == 0, shown.stderr
        assert name in shown.stdout
    assert "aiconfigurator" in sim("hardware", "show", "b300_sxm", cwd=folder).stdout


def test_estimate_prints_both_sides(folder: Path) -> None:
    printed = sim("estimate", "b300_strong_drafter", cwd=folder).stdout
    for words in ("5.29", "10.89", "does not follow", "588-784"):
        assert words in printed
    found = json.loads(sim("estimate", "b300_now", "--json", cwd=folder).stdout)
    assert found["verify_tokens"] == 9


@pytest.mark.parametrize(
    "command", [(), ("run",), ("sweep",), ("estimate",), ("bench",), ("schema",), ("hardware",)]
)
def test_every_command_has_help(folder: Path, command: tuple[str, ...]) -> None:
    done = sim(*command, "--help", cwd=folder)
    assert done.returncode == 0
    assert "Usage" in done.stdout
