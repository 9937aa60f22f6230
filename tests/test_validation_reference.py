"""The shipped cases against the simulator as it is now."""

from __future__ import annotations

import math

import pytest

from sim.validation import residuals, shipped
from sim.validation.cases import read
from sim.validation.run import learnt, validate, wishes
from sim.validation.verdicts import Validation, score


@pytest.fixture(scope="module")
def validation() -> Validation:
    return validate(wishes(read(shipped.cases())), residuals.shipped_residuals())


def test_what_the_model_lacks_is_as_shipped(validation: Validation) -> None:
    """After a change of figures or of the model: ``make results``."""
    _, found = learnt(validation)
    known = residuals.shipped_residuals()
    assert [row[:4] for row in found] == [row[:4] for row in known]
    for now, then in zip(found, known, strict=True):
        assert now.log_error == pytest.approx(then.log_error, abs=1e-4), now.id
        assert now.log_sd == pytest.approx(then.log_sd, abs=1e-4), now.id


def test_only_what_cannot_be_known_is_skipped(validation: Validation) -> None:
    assert {skip.reason.partition(":")[0] for skip in validation.skipped} == {
        "no acceptance_length",
        "a live service",
    }


def test_intervals_cover_what_they_promise(validation: Validation) -> None:
    found = score(validation.rows)
    assert found is not None
    assert 0.8 <= found.inside <= 0.98


def test_no_interval_says_nothing(validation: Validation) -> None:
    """Wider than a factor of six from end to end is no prediction."""
    assert all(math.log(row.interval[1] / row.interval[0]) < math.log(6) for row in validation.rows)
