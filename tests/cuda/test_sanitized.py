"""No kernel reads or writes where it must not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_cases import CASES

from cuda import build
from cuda.launch import Shots

pytestmark = pytest.mark.usefixtures("host_tools")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run_sanitized(argument: str) -> subprocess.CompletedProcess[str]:
    """The sanitizer must be in the process before Python's own allocations."""
    preload = subprocess.run(
        [build.find_gxx(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = os.environ | {
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]),
    }
    return subprocess.run(
        [sys.executable, str(HERE / "sanitized.py"), argument],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def compiled(host_tools: None) -> None:  # noqa: ARG001 - skips without them
    """Outside of the sanitized process, which would slow the compilers down."""
    for source in (*build.KERNELS.glob("*.cu"), HERE / "faulty" / "faulty.cu"):
        build.compile_source(source, build.Target.SANITIZED)


@pytest.mark.parametrize(("part", "runs"), [("cases", len(CASES)), ("allreduce", len(Shots))])
def test_every_run_is_clean(part: str, runs: int) -> None:
    done = run_sanitized(part)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == runs


@pytest.mark.parametrize("entry", ["write_past_the_end", "use_too_much_shared"])
def test_the_sanitizer_would_have_noticed(entry: str) -> None:
    done = run_sanitized(entry)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert "faulty.cu" in done.stderr
