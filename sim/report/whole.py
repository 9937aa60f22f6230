"""The terminal report: an Answer as lines of text. Nothing here prints."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from sim.answer import Answer
from sim.report.causes import causes
from sim.report.drafting import drafting_line
from sim.report.notes import notes
from sim.report.tables import breakdown, histogram, latency_lines, quantities, utilisation
from sim.report.unknowns import range_lines, total_lines
from sim.report.words import render, side_by_side


def lines(answer: Answer) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(headline(answer)),
        Text(),
        quantities(answer.summary, answer.total),
        *(Text(line) for line in latency_lines(answer.summary)),
        *(Text(line) for line in range_lines(answer)),
        *(Text(line) for line in total_lines(answer.total)),
        Text(histogram(answer.summary)),
        Text(),
        side_by_side(breakdown(answer.summary), utilisation(answer.summary)),
        *causes(answer),
        Text(),
        *(Text(line) for line in notes(answer)),
    ]
    return render(parts)


def headline(answer: Answer) -> str:
    """The question and what was simulated to answer it."""
    setup, scenario = answer.setup, answer.setup.scenario
    machine = setup.machine
    return "\n".join(
        [
            scenario.question,
            *(f"Changed: {override}" for override in answer.overrides),
            f"{scenario.gpus}x {machine.gpu.name}, {machine.interconnect.name}, {machine.host.name},"
            f" {machine.stack.name}; {setup.model.name}",
            drafting_line(setup),
            f"context {scenario.load.context_tokens:,}, {scenario.load.output_tokens:,} tokens a run;"
            f" {answer.summary.runs} runs, {answer.summary.steps:,} steps,"
            f" engine {answer.engine}, seed {scenario.seed}",
        ]
    )
