"""What a rented machine is told is refused before anything is installed on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cuda" / "on_gpu.sh"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "MINUTES is a whole number from 1 to 999999, not ''"),
        (("0",), "MINUTES is a whole number from 1 to 999999, not '0'"),
        (("-3",), "MINUTES is a whole number from 1 to 999999, not '-3'"),
        (("1.5",), "MINUTES is a whole number from 1 to 999999, not '1.5'"),
        (("ten",), "MINUTES is a whole number from 1 to 999999, not 'ten'"),
        (("08",), "MINUTES is a whole number from 1 to 999999, not '08'"),
        (("9" * 20,), f"MINUTES is a whole number from 1 to 999999, not '{'9' * 20}'"),
        (("5", "a/b"), "NAME is a file's name without its ending, not 'a/b'"),
        (("5", "a", "nowhere"), "WHEELS is a folder, and there is no 'nowhere'"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_made(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    environment = os.environ | {"OUT": str(tmp_path / "out")}
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{told} (see the head of cuda/on_gpu.sh)\n"
    assert list(tmp_path.iterdir()) == []
