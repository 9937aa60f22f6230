"""The total band as a part of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import full_setup

from sim import report
from sim.answer import Comparison, Stage, answer
from sim.output import summary_object
from sim.report.notes import notes
from sim.scenario import Anchor


def test_an_interrupt_while_drawing_keeps_the_runs() -> None:
    heard = []

    def stop() -> None:
        heard.append(None)
        if len(heard) == 3:
            raise KeyboardInterrupt

    found = answer(full_setup(), advance=stop)
    assert (found.interrupted, found.total) == (Stage.TOTAL, None)
    assert found.summary.runs == found.setup.scenario.runs
    assert summary_object(found)["total"] is None
    text = "\n".join(report.lines(found))
    assert "Interrupted after all runs: the total band, with parameters drawn is missing." in text
    assert "all drawn" not in text


def test_nothing_is_drawn_unless_asked_for() -> None:
    assert answer(full_setup()).total is None


def test_both_bands_share_their_runs() -> None:
    found = answer(full_setup(), advance=lambda: None)
    assert found.total is not None
    assert found.total.parameters >= len(found.total.swings)
    assert answer(full_setup()).summary == found.summary
    text = "\n".join(report.lines(found))
    assert found.total.swings[0].name in text


@pytest.mark.parametrize(("published", "is_said"), [(1.0, True), (1e6, True), (None, False)])
def test_a_measurement_outside_all_that_was_drawn_is_said_to_be(
    published: float | None, is_said: bool
) -> None:
    found = answer(full_setup("runs=5"), advance=lambda: None)
    assert found.total is not None
    tok_s = found.total.throughput_tok_s.p50 if published is None else published
    anchor = Anchor(tok_s=tok_s, source="made up here")
    said = notes(replace(found, comparison=Comparison(anchor, 1.0, 0.0, None, None)))
    assert any("lies outside what was drawn" in line for line in said) == is_said
