"""Real pycuda on the emulated driver: what will drive a GPU is tested without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cuda_cases import CASES, name_of

from cuda import build

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

KERNEL_US = (4.9, 9.3)
"""The emulated driver's made-up time of a kernel lies in here."""


def run_program(site: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    folders = [site, ROOT, ROOT / "tests" / "support"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))} | settings
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def run_emulated(site: Path, **settings: str) -> dict[str, Any]:
    driver = build.build_emulated_driver()
    done = run_program(site, str(HERE / "emulated.py"), str(driver), **settings)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def one_device(pycuda_site: Path) -> dict[str, Any]:
    return run_emulated(pycuda_site)


@pytest.fixture(scope="module")
def two_devices(pycuda_site: Path) -> dict[str, Any]:
    return run_emulated(pycuda_site, EMULATED_DEVICES="2", EMULATED_SCHEDULE="3")


@pytest.mark.parametrize("operation", CASES, ids=name_of)
def test_a_kernel_launched_by_pycuda_gives_numpys_answer(operation: Any, one_device: dict[str, Any]) -> None:
    assert one_device[name_of(operation)] == "right"


@pytest.mark.parametrize("law", ["masks", "trees", "crowding"])
def test_the_laws_that_a_gpu_is_asked_for_hold_here(law: str, one_device: dict[str, Any]) -> None:
    assert one_device[law] == "right"


def test_a_graph_runs_when_it_is_launched_and_not_when_captured(one_device: dict[str, Any]) -> None:
    graph = one_device["graph"]
    assert graph["captured"] == 0
    assert graph["replayed"] == 20
    assert 20 * KERNEL_US[0] < graph["us"] < 20 * KERNEL_US[1]


def test_a_held_stream_runs_when_it_is_released(one_device: dict[str, Any]) -> None:
    held = one_device["held"]
    assert held["early"] is False
    assert held["timed_out"] == 0
    assert KERNEL_US[0] < held["us"] < KERNEL_US[1]
    assert held["ghz"] == pytest.approx(1.98, rel=0.01)


def test_a_stream_that_is_never_released_gives_up_and_says_so(one_device: dict[str, Any]) -> None:
    assert one_device["never released"]["timed_out"] == 1


def test_the_emulated_driver_refuses_what_a_driver_refuses(one_device: dict[str, Any]) -> None:
    assert one_device["name"].startswith("EMULATED")
    assert one_device["misuse"] == {
        "copy past the end": "cuMemcpyHtoD failed: CUDA_ERROR_INVALID_VALUE",
        "shared memory not asked for": "cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE",
        "more than there is": "cuFuncSetAttribute failed: CUDA_ERROR_INVALID_VALUE",
        "an unknown module": "cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_IMAGE - ",
        "an unknown kernel": "cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND",
    }


@pytest.mark.parametrize("part", ["one_shot", "two_shot", "copy"])
def test_two_devices_read_each_others_memory(part: str, two_devices: dict[str, Any]) -> None:
    assert two_devices[part] == "right"


def test_peer_access_is_enabled_once(two_devices: dict[str, Any]) -> None:
    message = "cuCtxEnablePeerAccess failed: CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
    assert two_devices["enabled twice"] == message


def test_throttled_kernels_show_in_the_stamps(pycuda_site: Path) -> None:
    held = run_emulated(pycuda_site, EMULATED_THROTTLE_EVERY="1")["held"]
    assert held["ghz"] == pytest.approx(0.99, rel=0.01)
    assert held["us"] > 2 * KERNEL_US[0]


IMPORT = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import pycuda.driver as driver
try:
    driver.init()
except driver.Error as error:
    print(driver.get_version(), error)
"""


def test_on_the_stub_pycuda_imports_and_finds_no_device(pycuda_site: Path) -> None:
    stub = build.build_stub() / "libcuda.so.1"
    done = run_program(pycuda_site, "-c", IMPORT, str(stub))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(13, 0, 0) cuInit failed: no CUDA-capable device is detected")
