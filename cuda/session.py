"""A measuring session: the device opened, the plan looked up, an unfinished file taken up again."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import BaseModel

from cuda import build, plan
from cuda.build import MissingToolError
from cuda.campaign import NOT_MEASURED, Campaign, Parameters
from cuda.criterion import Rule
from cuda.device import Gpu
from cuda.driver import Driver, open_driver
from cuda.peers import Reduction, connect
from cuda.plan import PlanName, Subject
from cuda.rigs import Rig, Rigs
from cuda.sampling import Stopwatch
from hwmodels import cases, measured
from hwmodels.cases import Op
from hwmodels.errors import in_one_line
from hwmodels.measured import EMULATED_PREFIX, Ceilings, Harness, Header, Software

THROTTLE_SHARE = 0.75
"""nvbench's: below this share of the default SM clock a sample is discarded."""
PASSES = 2
"""Chosen: the fewest that show drift."""
WARM_UPS = 3
"""Chosen."""
GRAPH_COPIES = 20
"""Chosen: the launch of the graph is a small part of what its copies take."""
FULL_RULE = Rule(min_samples=100, max_samples=2000, min_gpu_time_s=2e-4, max_noise=0.005, timeout_s=15.0)
SHORT_RULE = Rule(min_samples=100, max_samples=1000, min_gpu_time_s=2e-4, max_noise=0.005, timeout_s=5.0)
"""Of each pass; a point has the samples of both. The noise is nvbench's, the least GPU time is not:
its half second is out of reach for kernels of some us. The rest is chosen."""
TINY_RULE = Rule(min_samples=6, max_samples=8, min_gpu_time_s=0.0, max_noise=0.005, timeout_s=5.0)
_NO_GPU = "; measure where nvidia-smi lists a GPU (without one `make cuda-test` checks the kernels)"


class SessionError(Exception):
    """The session cannot begin: *problem*, and what would help."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)

    def __str__(self) -> str:
        return in_one_line(str(self.args[0]))


@dataclass(frozen=True)
class Options:
    """What the user asks for."""

    plan: PlanName
    short: bool
    out: Path
    resume: bool
    seed: int
    device: int
    only: tuple[Op, ...]

    @property
    def rule(self) -> Rule:
        """When a pass over a point ends."""
        if self.plan is PlanName.TINY:
            return TINY_RULE
        return SHORT_RULE if self.short else FULL_RULE


@dataclass(frozen=True)
class Session:
    """A campaign on an open device, and the header of its file."""

    options: Options
    campaign: Campaign
    header: Header

    def write(self) -> None:
        """Put all points so far into the file."""
        measured.write(self.options.out, self.header, self.campaign.points)


@contextmanager
def session(options: Options) -> Iterator[Session]:
    """Open the device and take up the file where there is one.

    SessionError, BuildError or MeasuredFileError where that fails.
    """
    with ExitStack() as opened:
        opened.enter_context(_claimed(options))
        driver = _driver()
        try:
            ready = _prepared(options, _gpus(driver, options, opened))
        except (*NOT_MEASURED, driver.pycuda.Error) as problem:
            raise SessionError(f"device {options.device} cannot be measured: {problem}") from problem
        yield ready


@contextmanager
def _claimed(options: Options) -> Iterator[None]:
    """The file is this session's in here; SessionError where it cannot be.

    Two sessions would write over each other's points, and what cannot be written in the end need not
    be measured.
    """
    out = options.out
    if out.suffix != measured.SUFFIX:
        raise SessionError(f"{out}: a measured file ends in {measured.SUFFIX}")
    if not out.parent.is_dir():
        raise SessionError(f"{out.parent}: no such folder")
    lock = out.with_name(f".{out.name}.lock")
    try:
        measured.temporary_of(out).touch()
        measured.temporary_of(out).unlink()
        held = _locked(lock)
    except BlockingIOError:
        raise SessionError(f"{out} is being written by another session") from None
    except OSError as problem:
        raise SessionError(f"{out} cannot be written: {problem.strerror}") from None
    with held:
        try:
            # Only now: another session may have made it until just before.
            if out.exists() and not options.resume:
                raise SessionError(f"{out} exists; --resume goes on with it")
            yield
        finally:
            with suppress(OSError):
                lock.unlink(missing_ok=True)


def _locked(path: Path) -> IO[str]:
    """The file at *path*, made if need be, locked as long as it is open; BlockingIOError for another's."""
    while True:
        file = path.open("w", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
        except OSError:
            file.close()
            raise
        # Its last owner took it away between our opening and locking it.
        file.close()


def _driver() -> Driver:
    try:
        return open_driver()
    except OSError as problem:
        raise SessionError(f"no driver of an NVIDIA GPU: {problem}{_NO_GPU}") from None
    except ImportError as problem:
        raise SessionError(f"pycuda is missing (cuda/README.md, Measure your own GPU): {problem}") from None
    # Looked up when something was raised: pycuda has been imported by then.
    except importlib.import_module("pycuda.driver").Error as problem:
        raise SessionError(f"the driver finds no GPU: {problem}{_NO_GPU}") from None


def _gpus(driver: Driver, options: Options, opened: ExitStack) -> list[Gpu]:
    """The device asked for, entered in *opened*.

    The others follow it where an AllReduce is wanted and all reach one another's memory.
    """
    count = driver.pycuda.Device.count()
    if not 0 <= options.device < count:
        raise SessionError(f"there is no device {options.device}; there are {count}")
    first = _opened(driver, options.device, opened)
    if not any(isinstance(subject.case, cases.Reduce) for subject in _wanted(options, count)):
        return [first]
    with ExitStack() as peers:
        others = (number for number in range(count) if number != options.device)
        gpus = [first, *(_opened(driver, number, peers) for number in others)]
        if not connect(gpus):
            return [first]
        opened.enter_context(peers.pop_all())
    return gpus


def _opened(driver: Driver, number: int, opened: ExitStack) -> Gpu:
    try:
        gpu = Gpu(driver, number)
    except driver.pycuda.Error as problem:
        raise SessionError(f"device {number} cannot be opened: {problem}") from problem
    opened.callback(gpu.close)
    return gpu


def _wanted(options: Options, devices: int) -> list[Subject]:
    """Points of the plan that the user asks for."""
    whole = plan.subjects(options.plan, options.short, devices)
    return [subject for subject in whole if not options.only or subject.case.op in options.only]


def _prepared(options: Options, gpus: Sequence[Gpu]) -> Session:
    parameters = Parameters(options.rule, PASSES, WARM_UPS, GRAPH_COPIES, options.seed)
    whole = plan.subjects(options.plan, options.short, len(gpus))
    wanted = _wanted(options, len(gpus))
    if not wanted:
        asked = ", ".join(op.value for op in options.only)
        known = ", ".join(dict.fromkeys(subject.case.op.value for subject in whole))
        raise SessionError(
            f"{options.plan.value} on {len(gpus)} GPU has no point of {asked} (known: {known})"
        )
    found = measured.read(options.out, allow_emulated=True) if options.out.exists() else None
    stopwatch, rigs = Stopwatch(gpus, THROTTLE_SHARE), Rigs(gpus[0], options.seed, GRAPH_COPIES)
    points = () if found is None else found.points
    campaign = Campaign(wanted, parameters, partial(_rig, rigs, gpus, options.seed), stopwatch, points)
    if found is None:
        ceilings = Ceilings(copy_bandwidth_gb_s=campaign.bandwidth_gb_s(_largest_copy(whole)))
        return Session(options, campaign, _header(options, gpus[0], stopwatch.flush_bytes, ceilings))
    header = _header(options, gpus[0], stopwatch.flush_bytes, found.header.ceilings)
    _check_same(options.out, found.header, header)
    return Session(options, campaign, found.header)


def _rig(rigs: Rigs, gpus: Sequence[Gpu], seed: int, subject: Subject) -> Rig:
    if isinstance(subject.case, cases.Reduce):
        return Reduction(gpus, subject.case, np.random.default_rng(seed))
    return rigs.rig(subject)


def _largest_copy(subjects: Sequence[Subject]) -> Subject:
    sizes = {s: s.case.size_bytes for s in subjects if isinstance(s.case, cases.DeviceCopy)}
    return max(sizes, key=lambda subject: sizes[subject])


def _check_same(path: Path, before: Header, now: Header) -> None:
    """Refuse to mix what was measured under other conditions."""
    then, today = _conditions(before), _conditions(now)
    for name in dict.fromkeys((*then, *today)):
        old, new = (each.get(name, "nothing") for each in (then, today))
        if old != new:
            raise SessionError(
                f"{path} cannot be gone on with: its {name} was {old}, this session's is {new}"
            )


def _conditions(header: Header) -> dict[str, str]:
    """All that samples depend on, by its key in the file, in words."""
    found = {"seed": repr(header.seed)}
    parts: tuple[tuple[str, BaseModel], ...] = (
        ("device", header.device),
        ("software", header.software),
        ("harness", header.harness),
    )
    for part, values in parts:
        found |= {f"{part}.{name}": repr(value) for name, value in values}
    return found | {f"source_sha256.{name}": digest for name, digest in header.source_sha256.items()}


def _header(options: Options, gpu: Gpu, flush_bytes: int, ceilings: Ceilings) -> Header:
    device, rule = gpu.describe(), options.rule
    return Header(
        schema_version=measured.SCHEMA_VERSION,
        # Told from the device, never by the user.
        emulated=device.name.startswith(EMULATED_PREFIX),
        device=device,
        software=_software(gpu.driver),
        harness=Harness(
            plan=options.plan.value,
            short=options.short,
            min_samples=rule.min_samples,
            max_samples=rule.max_samples,
            min_gpu_time_s=rule.min_gpu_time_s,
            max_noise=rule.max_noise,
            timeout_s=rule.timeout_s,
            throttle_share=THROTTLE_SHARE,
            passes=PASSES,
            warm_ups=WARM_UPS,
            flush_bytes=flush_bytes,
            graph_copies=GRAPH_COPIES,
        ),
        ceilings=ceilings,
        seed=options.seed,
        source_sha256=_sources(),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _sources() -> dict[str, str]:
    """Hashes of the kernels and of what they include."""
    paths = sorted([*build.KERNELS.glob("*.cu"), *build.KERNELS.glob("*.cuh")])
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _software(driver: Driver) -> Software:
    return Software(
        driver=_driver_version(driver),
        nvcc=_nvcc_version(),
        nvcc_flags=_nvcc_flags(),
        python=platform.python_version(),
        numpy=np.__version__,
        launcher=f"pycuda {_pycuda_version()}",
        git_commit=_git_commit(),
    )


def _driver_version(driver: Driver) -> str:
    """NVML's, where nvidia-ml-py is installed; else the CUDA version that the driver supports."""
    supported = "CUDA {}.{}".format(*divmod(driver.pycuda.get_driver_version() // 10, 100))
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return f"{nvml.nvmlSystemGetDriverVersion()} ({supported})"
    except ImportError:
        return supported
    except nvml.NVMLError:
        return supported


def _nvcc_version() -> str:
    try:
        said = build.tool_version(build.find_nvcc())
    except MissingToolError:
        return "none"
    return next((line for line in said.splitlines() if "release" in line), " ".join(said.split()))


def _nvcc_flags() -> str:
    """Without the folder of the kernels, which their hashes stand for."""
    try:
        command = build.gpu_command()
    except MissingToolError:
        return "none"
    return " ".join(command[1 : command.index("-I")])


def _pycuda_version() -> str:
    version: Any = importlib.import_module("pycuda")
    return str(version.VERSION_TEXT)


def _git_commit() -> str:
    """The commit of the sources, ``-dirty`` where they differ from it; ``unknown`` outside git."""
    command = ["git", "-C", str(build.SOURCES), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
