"""``python -m cuda.measure`` from end to end, on the emulated driver through real pycuda."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from measuring import MADE_UP, header, mla, point, write
from typer.testing import CliRunner

from cuda import build, cli, session
from cuda.campaign import Failure
from cuda.device import DeviceError
from cuda.plan import PlanName, Subject, subjects
from cuda.session import Options, SessionError
from hwmodels import cases, measured
from hwmodels.cases import Experts, Op
from hwmodels.errors import MeasuredFileError
from hwmodels.measured import Ceilings, MeasuredFile, Point, Series

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
    for found in file.points:
        if found.case.op in kernels:
            count = kernels[found.case.op]
            low, high = (count * us for us in KERNEL_US)
            assert low < np.min(found.samples_us) <= np.max(found.samples_us) < high
        if found.case.op is Op.EMPTY_INTERVAL:
            assert set(found.samples_us) == {0.0}


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
    for before in kept.points:
        now = finished[before.case, before.series]
        assert now.samples_us[: len(before.samples_us)] == before.samples_us
    quick = [p for p in finished.values() if p.case.op.value in QUICK]
    assert len(quick) == 2 + 2 + 2
    assert all(len(p.pass_medians_us) == 2 for p in quick)
    passes_before = sum(len(p.pass_medians_us) for p in kept.points if p.case.op.value in QUICK)
    assert len(out.splitlines()) == 2 * len(quick) - passes_before + 1

    again = path.read_bytes()
    code, out, _ = machine.measure("--out", str(path), "--resume", *QUICK)
    assert (code, len(out.splitlines())) == (0, 1)
    assert path.read_bytes() == again


def test_a_session_that_would_go_on_with_nothing_begins(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, _, err = machine.measure("--out", str(path), "--resume", "--only", "empty_kernel")
    assert (code, err, len(read(path).points)) == (0, "", 2)


def test_throttled_samples_are_discarded_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, out, _ = machine.measure("--out", str(path), "--only", "top_k", EMULATED_THROTTLE_EVERY="3")
    assert code == 0
    assert any(found.discarded for found in read(path).points)
    assert " throttled (" in out


def test_no_session_begins_where_no_ceiling_can_be_measured(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    code, out, err = machine.measure("--out", str(path), EMULATED_THROTTLE_EVERY="1")
    assert (code, out) == (2, "")
    told = "error: device 0 cannot be measured: device_copy size_bytes=65536: no sample counts ("
    assert err.startswith(told)
    assert err.endswith(" throttled)\n")
    assert not path.exists()


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
        (
            ("--out", "x.jsonl", "--only", "allreduce"),
            "error: tiny on 1 GPU has no point of allreduce (known: experts, mla, gemm, norm, top_k,"
            " tree_build, tree_accept, allreduce_standin, device_copy, host_copy, graph_launch,"
            " graph_replay, empty_kernel, empty_interval)",
        ),
        (("--out", "/proc/x.jsonl"), "error: /proc/x.jsonl cannot be written: No such file or directory"),
        (("--out", "x\ny.json"), "error: x\\ny.json: a measured file ends in .jsonl"),
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
    refused = f"error: {path} cannot be gone on with: its"
    assert (code, err) == (2, f"{refused} seed was 1, this session's is 2\n")
    code, _, err = machine.measure("--out", str(path), "--resume", *only, EMULATED_CC="103")
    told = f"{refused} device.compute_capability was 'sm_90', this session's is 'sm_103'\n"
    assert (code, err) == (2, told)
    code, _, err = machine.measure("--out", str(path), "--resume", "--plan", "kimi_k2_6", "--short", *only)
    assert (code, err) == (2, f"{refused} harness.plan was 'tiny', this session's is 'kimi_k2_6'\n")


def test_of_two_sessions_on_one_file_the_second_is_refused(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "emulated.jsonl"
    first = machine.start("--out", str(path))
    assert first.stdout is not None
    assert first.stdout.readline()
    code, out, err = machine.measure("--out", str(path), "--resume")
    assert (code, out, err) == (2, "", f"error: {path} is being written by another session\n")
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert len(read(path).points) >= 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_machine_that_is_taken_away_ends_it_as_an_interrupt_does(
    machine: Machine, tmp_path: Path, end: signal.Signals
) -> None:
    path = tmp_path / "emulated.jsonl"
    process = machine.start("--out", str(path))
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(end)
    _, err = process.communicate(timeout=60)
    told = f"interrupted; what was measured is in {path}, --resume goes on\n"
    assert (process.returncode, err) == (130, told)
    assert len(read(path).points) >= 1


def test_without_a_driver_or_pycuda_it_says_what_is_missing(tmp_path: Path) -> None:
    """Where there are both, the GPU is hidden from them."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "cuda.measure", "--plan", "tiny", "--out", str(tmp_path / "x.jsonl")]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    missing = ("no driver of an NVIDIA GPU", "pycuda is missing", "the driver finds no GPU")
    assert done.stderr.startswith(tuple(f"error: {each}" for each in missing))
    assert time.monotonic() - begin < 30


def test_a_driver_that_finds_no_gpu_says_so_in_one_line(
    host_tools: None,  # noqa: ARG001
    pycuda_site: Path,
    tmp_path: Path,
) -> None:
    found = Machine(pycuda_site)
    found.environment |= {"LD_LIBRARY_PATH": str(build.build_stub())}
    code, out, err = found.measure("--out", str(tmp_path / "x.jsonl"))
    told = "error: the driver finds no GPU: cuInit failed: no CUDA-capable device is detected"
    assert (code, out) == (2, "")
    assert err.startswith(f"{told} (stub libcuda); measure where nvidia-smi lists a GPU")
    assert err.count("\n") == 1


class BusyError(Exception):
    """What a driver raises."""


class FakeGpu:
    """Notes when it is opened and closed; *busy* ones cannot be opened."""

    log: list[str]
    busy: tuple[int, ...] = ()

    def __init__(self, _: Any, number: int) -> None:
        if number in self.busy:
            raise BusyError("exclusive")
        self.number = number
        self.log.append(f"open {number}")

    def close(self) -> None:
        self.log.append(f"close {self.number}")


def options(path: Path, device: int = 0, *only: Op) -> Options:
    return Options(PlanName.TINY, short=True, out=path, resume=False, seed=1, device=device, only=only)


@pytest.fixture
def open_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[list[int], list[str]]]:
    """The GPUs of a machine with three that a session opens, and all that was done."""
    pycuda = SimpleNamespace(Error=BusyError, Device=SimpleNamespace(count=lambda: 3))
    driver: Any = SimpleNamespace(pycuda=pycuda)
    monkeypatch.setattr(session, "Gpu", FakeGpu)

    def run(
        *only: Op, device: int = 0, busy: Sequence[int] = (), reach: bool = True
    ) -> tuple[list[int], list[str]]:
        FakeGpu.log, FakeGpu.busy = [], tuple(busy)
        monkeypatch.setattr(session, "connect", lambda _: reach)
        with ExitStack() as opened:
            gpus: Any = session._gpus(driver, options(tmp_path, device, *only), opened)
            found = [gpu.number for gpu in gpus]
            FakeGpu.log.append("measure")
        return found, FakeGpu.log

    return run


def test_no_gpu_but_the_one_asked_for_is_touched_without_an_allreduce(open_gpus: Any) -> None:
    assert open_gpus(Op.NORM, device=1, busy=[0]) == ([1], ["open 1", "measure", "close 1"])


def test_all_gpus_are_opened_for_an_allreduce_the_one_asked_for_first(open_gpus: Any) -> None:
    found, log = open_gpus(device=1)
    assert found == [1, 0, 2]
    assert log == ["open 1", "open 0", "open 2", "measure", "close 2", "close 0", "close 1"]


def test_gpus_that_do_not_reach_one_another_are_closed_again(open_gpus: Any) -> None:
    found, log = open_gpus(reach=False)
    assert found == [0]
    assert log == ["open 0", "open 1", "open 2", "close 2", "close 1", "measure", "close 0"]


def test_a_busy_gpu_is_named_and_the_others_are_closed(open_gpus: Any) -> None:
    with pytest.raises(SessionError, match="device 2 cannot be opened: exclusive"):
        open_gpus(busy=[2])
    assert FakeGpu.log == ["open 0", "open 1", "close 1", "close 0"]


@pytest.mark.parametrize("field", list(measured.Software.model_fields))
def test_no_other_software_goes_on_with_a_file(field: str) -> None:
    other = header(software=MADE_UP.model_copy(update={field: "another"}))
    was = getattr(MADE_UP, field)
    told = f"x.jsonl cannot be gone on with: its software.{field} was '{was}', this session's is 'another'"
    with pytest.raises(SessionError) as refused:
        session._check_same(Path("x.jsonl"), header(), other)
    assert str(refused.value) == told
    session._check_same(Path("x.jsonl"), header(), header(measured_at="2001-01-01T00:00:00Z"))


CONDITIONS = [
    *(("device", name) for name in measured.Device.model_fields if name != "name"),
    *(("harness", name) for name in measured.Harness.model_fields),
]


@pytest.mark.parametrize(("part", "field"), CONDITIONS)
def test_no_other_gpu_and_no_other_plan_goes_on_with_a_file(part: str, field: str) -> None:
    was = getattr(header(), part)
    other = header().model_copy(update={part: was.model_copy(update={field: "another"})})
    before, name = repr(getattr(was, field)), f"{part}.{field}"
    told = f"x.jsonl cannot be gone on with: its {name} was {before}, this session's is 'another'"
    with pytest.raises(SessionError) as refused:
        session._check_same(Path("x.jsonl"), header(), other)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"a.cu": "12"}, {"a.cu": "34"}, "its source_sha256.a.cu was 12, this session's is 34"),
        ({"a.cu": "12"}, {}, "its source_sha256.a.cu was 12, this session's is nothing"),
        ({}, {"b.cu": "34"}, "its source_sha256.b.cu was nothing, this session's is 34"),
    ],
)
def test_no_other_kernels_go_on_with_a_file(before: Any, now: Any, told: str) -> None:
    with pytest.raises(SessionError) as refused:
        session._check_same(Path("x.jsonl"), header(source_sha256=before), header(source_sha256=now))
    assert str(refused.value) == f"x.jsonl cannot be gone on with: {told}"


def test_a_file_is_one_sessions_until_it_ends_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for _ in range(2):
        with session._claimed(options(path)):
            with pytest.raises(SessionError) as refused, session._claimed(options(path)):
                pass
            assert str(refused.value) == f"{path} is being written by another session"
            with session._claimed(options(tmp_path / "y.jsonl")):
                pass
        assert list(tmp_path.iterdir()) == []


def test_a_lock_that_a_killed_session_left_keeps_no_one_out(tmp_path: Path) -> None:
    (tmp_path / ".x.jsonl.lock").touch()
    with session._claimed(options(tmp_path / "x.jsonl")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_was_taken_away_meanwhile_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is where the other session ends between our opening and locking it."""
    path, lock = tmp_path / "x.jsonl.lock", session.fcntl.flock
    tries = []

    def late(file: Any, how: int) -> None:
        tries.append(how)
        if len(tries) == 1:
            path.unlink()
        lock(file, how)

    monkeypatch.setattr(session.fcntl, "flock", late)
    with session._locked(path) as held:
        assert len(tries) == 2
        assert os.path.samestat(os.fstat(held.fileno()), path.stat())


@pytest.mark.parametrize("letters", range(230, 260))
def test_a_name_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, letters: int
) -> None:
    path = tmp_path / f"{'x' * (letters - 6)}.jsonl"
    told = f"^{path} cannot be written: File name too long$"
    # Where a lock and a file to be moved there have longer names: the process's number is in one.
    fits = letters + max(len(".-") + len(str(os.getpid())), len("..lock")) <= 255
    with nullcontext() if fits else pytest.raises(SessionError, match=told), session._claimed(options(path)):
        write(path, POINT)
    assert list(tmp_path.iterdir()) == ([path] if fits else [])


Script = Callable[[Any, Any], None]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str, Path]]:
    """The command with a campaign that does as told: exit code, stderr and the file."""

    def run(script: Script, closing: BaseException | None = None) -> tuple[int, str, Path]:
        path = tmp_path / "emulated.jsonl"
        campaign = SimpleNamespace(failures=[], points=[], visits_left=4)
        campaign.run = lambda _, listener: script(campaign, listener)
        running = SimpleNamespace(
            campaign=campaign, header=header(), write=lambda: write(path, *campaign.points)
        )

        @contextmanager
        def opened(_: Options) -> Iterator[Any]:
            yield running
            if closing:
                raise closing

        monkeypatch.setattr(cli, "session", opened)
        done = CliRunner().invoke(cli.app, ["--plan", "tiny", "--out", str(path)])
        return done.exit_code, done.stderr, path

    return run


POINT = point(cases.EmptyKernel(), [2.0], Series.WARM)


def measure_one(campaign: Any, listener: Any) -> None:
    campaign.points.append(POINT)
    listener.on_point(POINT)


def test_a_device_that_fails_leaves_the_file_and_one_line(scripted: Any) -> None:
    def fail(campaign: Any, listener: Any) -> None:
        measure_one(campaign, listener)
        raise DeviceError("cuCtxSynchronize failed: an illegal memory access")

    code, err, path = scripted(fail)
    told = "error: the device failed: cuCtxSynchronize failed: an illegal memory access"
    assert (code, err) == (4, f"{told}; what was measured is in {path}, --resume goes on\n")
    assert read(path).points == (POINT,)


@pytest.mark.parametrize("end", cli.ENDS)
def test_a_second_interrupt_does_not_break_the_writing_off(tmp_path: Path, end: signal.Signals) -> None:
    path = tmp_path / "emulated.jsonl"

    def write_and_be_interrupted() -> None:
        os.kill(os.getpid(), end)
        write(path, POINT)

    campaign = SimpleNamespace(visits_left=1, run=lambda *_: os.kill(os.getpid(), end))
    running: Any = SimpleNamespace(campaign=campaign, header=header(), write=write_and_be_interrupted)
    before = [signal.getsignal(each) for each in cli.ENDS]
    with pytest.raises(KeyboardInterrupt), cli._every_end_an_interrupt():
        cli._run(running)
    assert read(path).points == (POINT,)
    assert [signal.getsignal(each) for each in cli.ENDS] == before


def test_a_hang_up_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cli._every_end_an_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_disk_that_fills_up_leaves_the_file_and_one_line(scripted: Any) -> None:
    def fill(campaign: Any, listener: Any) -> None:
        measure_one(campaign, listener)
        raise OSError(28, "No space left on device", "x.jsonl")

    code, err, path = scripted(fill)
    told = "error: x.jsonl: No space left on device"
    assert (code, err) == (2, f"{told}; what was measured is in {path}, --resume goes on\n")
    assert read(path).points == (POINT,)


def test_an_interrupt_while_the_device_is_given_back_does_not_deny_the_file(scripted: Any) -> None:
    code, err, path = scripted(measure_one, closing=KeyboardInterrupt())
    assert (code, err) == (130, f"interrupted; what was measured is in {path}, --resume goes on\n")
    assert read(path).points == (POINT,)


def test_points_that_failed_are_counted_at_the_end(scripted: Any) -> None:
    def fail(campaign: Any, listener: Any) -> None:
        measure_one(campaign, listener)
        campaign.failures.append(Failure(Subject(cases.EmptyKernel(), Series.GRAPH), "it is wrong"))
        listener.on_failure(campaign.failures[-1])

    code, err, _ = scripted(fail)
    assert (code, err) == (3, "not measured: graph it is wrong\n1 points are not measured\n")


def test_the_bar_ends_at_what_is_done_and_left() -> None:
    said: dict[str, int] = {}
    bar: Any = SimpleNamespace(
        add_task=lambda _, total: said.update(total=total),
        update=lambda _, total: said.update(total=total),
        advance=lambda _: None,
        console=SimpleNamespace(print=lambda *_, **__: None),
    )
    running: Any = SimpleNamespace(campaign=SimpleNamespace(visits_left=4), header=header())
    printer = cli._Printer(running, bar)
    assert said == {"total": 4}
    printer.on_point(POINT)
    running.campaign.visits_left = 1
    printer.on_failure(Failure(Subject(POINT.case, POINT.series), "it is wrong"))
    assert said == {"total": 2}


@pytest.mark.parametrize(
    ("flops", "ceilings", "says"),
    [
        (10**9, Ceilings(copy_bandwidth_gb_s=1.0), True),
        (10**9, Ceilings(copy_bandwidth_gb_s=1.0, bf16_tflops=1.0), False),
        (0, Ceilings(copy_bandwidth_gb_s=1.0), False),
    ],
)
def test_a_floor_that_leaves_the_arithmetic_out_says_so(flops: int, ceilings: Ceilings, says: bool) -> None:
    found: Point = point(mla(33, 1024), [8.0], floor_us=4.0, flops=flops)
    line = cli.point_line(found, ceilings)
    assert "floor 4.00 us, achieved 50 %" in line
    assert ("no compute ceiling" in line) == says
