"""Every seeded bug can still be made, and none was missed when all were last tried."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from cuda.build import KERNELS

PROGRAM: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("mutations.py")))
MUTATIONS = PROGRAM["MUTATIONS"]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_seeded_bug_replaces_occurs_once(mutation: Any) -> None:
    text = (KERNELS / f"{mutation.file}.cu").read_text(encoding="utf-8")
    assert text.count(mutation.before) == 1
    assert mutation.after != mutation.before


def test_there_is_a_verdict_on_every_seeded_bug_and_none_was_missed() -> None:
    lines = PROGRAM["VERDICTS"].read_text(encoding="utf-8").splitlines()
    assert [line.rsplit(": ", 1)[0] for line in lines] == [mutation.name for mutation in MUTATIONS]
    assert [line for line in lines if ": caught, " not in line] == []
