"""Commands as their users meet them: real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def sim(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    command = [sys.executable, "-m", "sim", *arguments]
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False, **options)


def interrupted(
    *arguments: str, cwd: Path, there: Path, after_s: float = 0.2
) -> subprocess.CompletedProcess[str]:
    """A command that hears Ctrl-C *after_s* after its work began, when it makes the folder *there*."""
    command = [sys.executable, "-m", "sim", *arguments]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not there.exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
