"""``python -m cuda.measure`` from end to end, on the emulated driver through real pycuda."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cuda import build
from cuda.plan import PlanName, Subject, subjects
from hwmodels import measured
from hwmodels.cases import Experts, Op
from hwmodels.errors import MeasuredFileError
from hwmodels.measured import MeasuredFile

ROOT = Path(__file__).parents[2]
QUICK = ("--only", "norm", "--only", "tree_build", "--only", "graph_launch")
KERNEL_US = (4.9, 9.3)
"""The emulated driver's made-up time of a kernel lies in here."""


class Machine:
    """Where the command runs: pycuda and the emulated driver, and settings of the latter."""

    def __init__(self, site: Path) -> None:
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
            "LD_LIBRARY_PATH": str(build.build_emulated_driver().parent),
        }

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cuda.measure", "--plan", "tiny", *arguments]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def measure(self, *arguments: str, **settings: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **settings)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def machine(host_tools: None, pycuda_site: Path) -> Machine:  # noqa: ARG001
    return Machine(pycuda_site)


def read(path: Path) -> MeasuredFile:
    return measured.read(path, allow_emulated=True)


def test_the_tiny_plan_is_measured_from_end_to_end(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, out, err = machine.measure("--out", str(path))
    assert (code, err) == (0, "")
    with pytest.raises(MeasuredFileError, match=r"times made up by 'EMULATED \(CPU\)'"):
        measured.read(path)
    file = read(path)
    assert [Subject(p.case, p.series) for p in file.points] == list(subjects(PlanName.TINY, False, 1))
    assert all(len(p.pass_medians_us) == 2 for p in file.points)
    assert len(file.header.source_sha256) == len([*build.KERNELS.glob("*.cu*")])
    assert_times_are_of_the_emulated_clock(file)
    assert_experts_meet_a_fresh_routing_each_sample(file)
    assert_every_pass_was_printed(file, out)


def assert_times_are_of_the_emulated_clock(file: MeasuredFile) -> None:
    kernels = {Op.EXPERTS: 3, Op.MLA: 2, Op.TOP_K: 2, Op.GEMM: 1, Op.NORM: 1, Op.EMPTY_KERNEL: 1}
    for point in file.points:
        if point.case.op in kernels:
            count = kernels[point.case.op]
            low, high = (count * us for us in KERNEL_US)
            assert low < np.min(point.samples_us) <= np.max(point.samples_us) < high
        if point.case.op is Op.EMPTY_INTERVAL:
            assert set(point.samples_us) == {0.0}


def assert_experts_meet_a_fresh_routing_each_sample(file: MeasuredFile) -> None:
    layers = ((p.case, p.touched_experts) for p in file.points)
    touched = {case.tokens: counts for case, counts in layers if isinstance(case, Experts)}
    assert set(touched[1] or ()) == {2}
    assert len(set(touched[3] or ())) > 1


def assert_every_pass_was_printed(file: MeasuredFile, out: str) -> None:
    lines = out.splitlines()
    assert len(lines) == 2 * len(file.points) + 1
    assert lines[-1].endswith(f"{len(file.points)} points")
    [gemm, _] = [line for line in lines if line.startswith("gemm ")]
    for word in ("tokens=3", "cold", "median", "us", "IQR", "floor", "achieved", "samples"):
        assert word in gemm


def test_an_interrupted_campaign_keeps_what_it_has_and_goes_on_later(
    machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "emulated.jsonl"
    process = machine.start("--out", str(path))
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"interrupted; what was measured is in {path}, --resume goes on\n"
    kept = read(path)
    assert 3 <= len(kept.points) < len(subjects(PlanName.TINY, False, 1))

    code, out, err = machine.measure("--out", str(path), "--resume", *QUICK)
    assert (code, err) == (0, "")
    finished = {(p.case, p.series): p for p in read(path).points}
    for point in kept.points:
        now = finished[point.case, point.series]
        assert now.samples_us[: len(point.samples_us)] == point.samples_us
    quick = [p for p in finished.values() if p.case.op.value in QUICK]
    assert len(quick) == 2 + 2 + 2
    assert all(len(p.pass_medians_us) == 2 for p in quick)
    passes_before = sum(len(p.pass_medians_us) for p in kept.points if p.case.op.value in QUICK)
    assert len(out.splitlines()) == 2 * len(quick) - passes_before + 1

    again = path.read_bytes()
    code, out, _ = machine.measure("--out", str(path), "--resume", *QUICK)
    assert (code, len(out.splitlines())) == (0, 1)
    assert path.read_bytes() == again


def test_throttled_samples_are_discarded_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, _, err = machine.measure("--out", str(path), "--only", "top_k", EMULATED_THROTTLE_EVERY="1")
    assert code == 3
    assert read(path).points == ()
    told = "not measured: warm top_k rows=2 vocabulary=1024 k=4: no sample counts"
    assert err.startswith(told)
    assert "throttled)" in err.splitlines()[0]


def test_several_gpus_reduce_among_themselves(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, _, err = machine.measure("--out", str(path), "--only", "allreduce", EMULATED_DEVICES="2")
    assert (code, err) == (0, "")
    assert [p.case.op for p in read(path).points] == [Op.ALLREDUCE] * 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--out", "x.json"), "error: x.json: a measured file ends in .jsonl"),
        (("--out", "nowhere/x.jsonl"), "error: nowhere: no such folder"),
        (("--out", "x.jsonl", "--device", "1"), "error: there is no device 1; there are 1"),
    ],
)
def test_what_the_user_can_mend_is_one_line(machine: Machine, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = machine.measure(*arguments)
    assert (code, out, err) == (2, "", f"{told}\n")


def test_a_file_in_the_way_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    path.write_text("mine")
    code, _, err = machine.measure("--out", str(path))
    assert (code, err) == (2, f"error: {path} exists; --resume goes on with it\n")
    code, _, err = machine.measure("--out", str(path), "--resume")
    assert code == 2
    assert "expected one JSON object a line" in err
    assert path.read_text() == "mine"


def test_what_was_measured_otherwise_is_not_mixed_in(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    only = ("--only", "empty_kernel")
    assert machine.measure("--out", str(path), *only)[0] == 0
    code, _, err = machine.measure("--out", str(path), "--resume", "--seed", "2", *only)
    assert (code, err) == (
        2,
        f"error: {path} cannot be gone on with: its seed differs from this session's\n",
    )
    _, _, err = machine.measure("--out", str(path), "--resume", *only, EMULATED_CC="103")
    assert "its device differs" in err


def test_without_a_driver_or_pycuda_it_says_what_is_missing(tmp_path: Path) -> None:
    """On a machine that has neither; where there is a driver, pycuda's absence is said."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "cuda.measure", "--plan", "tiny", "--out", str(tmp_path / "x.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        pytest.skip("this machine has a GPU and pycuda")
    assert done.returncode == 2
    assert done.stderr.startswith(("error: no driver of an NVIDIA GPU", "error: pycuda is missing"))
    assert time.monotonic() - begin < 30
