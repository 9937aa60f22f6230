"""The total band as a part of an answer."""

from __future__ import annotations

from builders import full_setup

from sim import report
from sim.answer import Stage, answer
from sim.output import summary_object


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
