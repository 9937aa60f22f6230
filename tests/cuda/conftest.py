"""What the tests of kernels need, or why it is not there; and how long each part took."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from cuda import build

BUILDS = "CUDA_TEST_BUILDS"
"""Set by ``make cuda-test``: build pycuda where it is missing, compile for every GPU."""

seconds: dict[str, float] = defaultdict(float)


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def need_host_tools() -> None:
    need("g++")
    try:
        build.cuda_root()
    except build.MissingToolError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def host_tools() -> None:
    need_host_tools()


@pytest.fixture(scope="session")
def gpu_tools() -> None:
    need("nvcc")


@pytest.fixture(scope="session")
def whole() -> bool:
    """Whether this is ``make cuda-test``, which has more time than ``make test``."""
    return bool(os.environ.get(BUILDS))


@pytest.fixture(scope="session")
def pycuda_site(whole: bool) -> Path:
    """The folder that has pycuda, built if asked for."""
    need_host_tools()
    if whole:
        return build.build_pycuda_site()
    site = build.find_pycuda_site()
    if site is None:
        pytest.skip("pycuda is not built; make cuda-test builds it")
    return site


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = Path(report.nodeid.split("::")[0]).stem
    part = "building for" if report.when == "setup" else "running"
    seconds[f"{part} {name}"] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not os.environ.get(BUILDS):
        return
    terminalreporter.section("seconds of each part, all workers together")
    for part, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if spent >= 0.1 and "test_" in part:
            terminalreporter.write_line(f"{spent:7.1f}  {part}")
