"""A measuring session: the device opened, the plan looked up, an unfinished file taken up again."""

from __future__ import annotations

import hashlib
import importlib
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cuda import build, plan
from cuda.build import MissingToolError
from cuda.campaign import Campaign, Parameters
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
WARM_UPS = 3
GRAPH_COPIES = 20
FULL_RULE = Rule(min_samples=100, max_samples=500, min_gpu_time_s=0.25, max_noise=0.005, timeout_s=15.0)
SHORT_RULE = Rule(min_samples=100, max_samples=250, min_gpu_time_s=0.05, max_noise=0.005, timeout_s=5.0)
"""Of each pass; a point has the samples of both."""
TINY_RULE = Rule(min_samples=6, max_samples=8, min_gpu_time_s=0.0, max_noise=0.005, timeout_s=5.0)


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
    gpus = _gpus(driver, options.device)
    try:
        with gpus[0].active():
            yield _prepared(options, gpus)
    finally:
        for gpu in gpus:
            gpu.close()


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
        raise SessionError(f"no driver of an NVIDIA GPU: {problem}") from None
    except ImportError as problem:
        raise SessionError(f"pycuda is missing (see README, Measure your own GPU): {problem}") from None


def _gpus(driver: Driver, first: int) -> list[Gpu]:
    """All devices, the *first* one first; it alone where they cannot reach one another's memory."""
    count = driver.pycuda.Device.count()
    if not 0 <= first < count:
        raise SessionError(f"there is no device {first}; there are {count}")
    gpus = [Gpu(driver, number) for number in [first, *(n for n in range(count) if n != first)]]
    if not connect(gpus):
        for gpu in gpus[1:]:
            gpu.close()
        return gpus[:1]
    return gpus


def _prepared(options: Options, gpus: Sequence[Gpu]) -> Session:
    parameters = Parameters(options.rule, PASSES, WARM_UPS, GRAPH_COPIES, options.seed)
    whole = plan.subjects(options.plan, options.short, len(gpus))
    wanted = [subject for subject in whole if not options.only or subject.case.op in options.only]
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
    for name in ("device", "harness", "seed", "source_sha256"):
        if getattr(before, name) != getattr(now, name):
            raise SessionError(f"{path} cannot be gone on with: its {name} differs from this session's")


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
