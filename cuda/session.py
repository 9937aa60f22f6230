"""A measuring session: the device opened, the plan looked up, an unfinished file taken up again."""

from __future__ import annotations

import hashlib
import importlib
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

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
    _check_out(options)
    driver = _driver()
    with ExitStack() as opened:
        try:
            ready = _prepared(options, _gpus(driver, options, opened))
        except (*NOT_MEASURED, driver.pycuda.Error) as problem:
            raise SessionError(f"device {options.device} cannot be measured: {problem}") from problem
        yield ready


def _check_out(options: Options) -> None:
    if options.out.suffix != measured.SUFFIX:
        raise SessionError(f"{options.out}: a measured file ends in {measured.SUFFIX}")
    if options.out.exists() and not options.resume:
        raise SessionError(f"{options.out} exists; --resume goes on with it")
    if not options.out.parent.is_dir():
        raise SessionError(f"{options.out.parent}: no such folder")


def _driver() -> Driver:
    try:
        return open_driver()
    except OSError as problem:
        raise SessionError(f"no driver of an NVIDIA GPU: {problem}{_NO_GPU}") from None
    except ImportError as problem:
        raise SessionError(f"pycuda is missing (see README, Measure your own GPU): {problem}") from None
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
    refused = f"{path} cannot be gone on with: its"
    for name in ("device", "harness", "seed", "source_sha256"):
        if getattr(before, name) != getattr(now, name):
            raise SessionError(f"{refused} {name} differs from this session's")
    for name in Software.model_fields:
        old, new = getattr(before.software, name), getattr(now.software, name)
        if old != new:
            raise SessionError(f"{refused} {name} was '{old}', this session's is '{new}'")


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
    return next((line for line in said.splitlines() if "release" in line), said.strip())


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
