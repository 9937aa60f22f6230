"""Every seeded bug can still be made, and one was caught when all were last tried."""

from __future__ import annotations

import pytest
from mutations import MUTATIONS, VERDICTS, Mutation

from cuda.build import KERNELS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_seeded_bug_replaces_occurs_once(mutation: Mutation) -> None:
    text = (KERNELS / f"{mutation.file}.cu").read_text(encoding="utf-8")
    assert text.count(mutation.before) == 1
    assert mutation.after != mutation.before


def test_there_is_a_verdict_on_every_seeded_bug_and_none_was_missed() -> None:
    lines = VERDICTS.read_text(encoding="utf-8").splitlines()
    judged, caught = zip(*(line.rsplit(": ", 1) for line in lines), strict=True)
    assert list(judged) == [mutation.name for mutation in MUTATIONS]
    assert [line for line in caught if not line.startswith("caught, ")] == []
