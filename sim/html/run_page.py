"""The report of a run as a page: question, answer, and everything it rests on."""

from __future__ import annotations

import numpy as np

from hwmodels.estimate import Source
from sim import report, timeline
from sim.answer import Answer, Comparison
from sim.html import figures, parts
from sim.html.page import Page, Paragraph, Picture, Section, Table
from sim.html.svg import inline
from sim.op_steps import OpStep, op_steps
from sim.output import StepCost, step_costs
from sim.report import number, percent, value, with_half_width
from sim.simulate import Simulation
from sim.statistics import Summary
from sim.uncertainty.total import Swing

MOST_COSTS = 12
"""Rows of the table of figures: those that move the step most."""
MOST_SWINGS = 12
MOST_LENGTHS = 32
LEADING = 2
"""Components that the answer names."""


def page(answer: Answer) -> Page:
    """The Page of *answer*."""
    head = report.headline(answer).splitlines()
    return Page(
        question=head[0],
        about=head[1:],
        answer=[_how_fast(answer), _why(answer.summary)],
        sections=[
            _throughput(answer),
            *_published(answer),
            *_slower(answer),
            _breakdown(answer.summary),
            _lanes(answer),
            _accepted(answer.summary),
            *_not_known(answer),
            _figures(answer),
            *parts.assumptions(answer.setup.scenario.assumptions),
            parts.notes(report.reading_notes(answer) + report.played_notes(answer)),
            _provenance(answer),
        ],
    )


def _how_fast(answer: Answer) -> str:
    """The first sentence: throughput, its luck, and what is not known about it."""
    value = answer.summary.throughput_tok_s
    return f"{with_half_width(value)} tokens per second {_over(answer.summary)}{_unknown(answer)}."


def _unknown(answer: Answer) -> str:
    """What becomes of it where what is not known is drawn, or where the mean length is at its ends."""
    if answer.total is not None:
        band = answer.total.throughput_tok_s
        return f"; with everything drawn that is not known between {band.p5:.0f} and {band.p95:.0f}"
    if not answer.range_ends:
        return ""
    low, high = answer.range_ends[0], answer.range_ends[-1]
    return (
        f"; at {low.mean_length:g} to {high.mean_length:g} tokens a step it would be"
        f" {low.throughput_tok_s.mean:.0f} to {high.throughput_tok_s.mean:.0f}"
    )


def _over(summary: Summary) -> str:
    if summary.runs == 1:
        return "in one run"
    value = summary.throughput_tok_s
    return f"over {summary.runs:,} runs, nine in ten of them between {value.p5:.0f} and {value.p95:.0f}"


def _why(summary: Summary) -> str:
    """The second sentence: what a step is, and what holds it up."""
    leading = list(summary.components.items())[:LEADING]
    holds = " and ".join(f"{percent(share)} for {component.value}" for component, share in leading)
    return (
        f"A step takes {number(summary.step_time_ms.mean)} ms and lands"
        f" {number(summary.acceptance_length.mean)} tokens a request; of its time it waits {holds}."
    )


def _throughput(answer: Answer) -> Section:
    summary = answer.summary
    anchor = answer.setup.scenario.anchor
    spread = summary.throughput_tok_s
    said = (
        f"Mean {with_half_width(spread)}, P5 {number(spread.p5)}, median {number(spread.p50)},"
        f" P95 {number(spread.p95)} tokens per second over {summary.runs} runs."
    )
    picture = inline(
        lambda: figures.throughput(answer.experiment, summary, anchor),
        "throughput",
        "Histogram of the throughput of all runs",
        said,
    )
    words = [Paragraph(line) for line in report.range_lines(answer) + report.latency_lines(summary)]
    return Section(
        "distribution",
        "How fast, and how much of it is luck",
        [
            Picture(picture, f"Throughput of {summary.runs:,} independent runs."),
            parts.from_terminal(
                report.quantities(summary, answer.total),
                "Means with their 95 % intervals, and quantiles.",
                ["quantity", *report.QUANTILES, "unit"],
                words=[5],
            ),
            *words,
        ],
    )


def _published(answer: Answer) -> list[Section]:
    """The prediction beside what was published; nothing where nothing was."""
    compared = answer.comparison
    if compared is None:
        return []
    rows = [("throughput, tok/s", _said(compared), number(compared.predicted_tok_s), _difference(compared))]
    if compared.published_step_ms is not None and compared.unexplained_ms is not None:
        predicted = compared.published_step_ms - compared.unexplained_ms
        unexplained = f"{compared.unexplained_ms:+.1f} ms unexplained"
        rows.append(("step, ms", number(compared.published_step_ms), number(predicted), unexplained))
    table = Table(
        f"Published: {compared.anchor.source}.", ["quantity", "published", "predicted", "difference"], rows
    )
    return [Section("published", "Published beside predicted", [table])]


def _said(compared: Comparison) -> str:
    anchor = compared.anchor
    if anchor.tok_s_range is None:
        return f"{anchor.published_tok_s:g}"
    return f"{anchor.tok_s_range[0]:g}-{anchor.tok_s_range[1]:g}"


def _difference(compared: Comparison) -> str:
    of = "" if compared.anchor.tok_s_range is None else " from the middle"
    return f"{100 * compared.error:+.1f} %{of}"


def _slower(answer: Answer) -> list[Section]:
    """Why it is slower than another scenario; nothing where it does not ask."""
    if answer.explanation is None:
        return []
    head, rows = report.cause_rows(answer, answer.explanation)
    table = Table("Each cause alone, and its share in all of them together.", head, rows)
    return [Section("causes", f"Why it is slower than {answer.explanation.since}", [table])]


def _breakdown(summary: Summary) -> Section:
    waits = (
        f"AllReduce, all passes: {summary.allreduce_transfer_ms:.2f} ms of transfer, and"
        f" {summary.allreduce_wait_ms:.2f} ms in which a rank waits for the last one."
    )
    return Section(
        "breakdown",
        "Where the step goes",
        [
            *parts.step(summary.step_time_ms.mean, summary.components),
            Table(
                "How busy lanes are; for GPUs in the mean, and the extremes over ranks.",
                ["lanes", "busy", "over ranks, %"],
                report.lane_rows(summary),
            ),
            Paragraph(waits),
        ],
    )


def middling_step(answer: Answer) -> OpStep:
    """The step of run 0 that took most nearly as long as the median of all steps."""
    recorded = answer.experiment.in_full[0].steps.step_ns
    median = np.median(answer.experiment.step_ns)
    number_of_step = int(np.argmin(np.abs(recorded - median)))
    simulation = Simulation(answer.setup, answer.engine)
    return next(op_steps(simulation, 0, range(number_of_step, number_of_step + 1), answer.engine))


def _lanes(answer: Answer) -> Section:
    step = middling_step(answer)
    held = timeline.by_lane(answer.graph, step)
    busy = (
        f"{name} {percent(float((each.end - each.start).sum()) / step.step_ns)}"
        for name, each in held.items()
    )
    picture = inline(
        lambda: timeline.figure(answer.graph, step),
        "timeline",
        f"Timeline of step {step.index} of run 0 over {len(held)} lanes",
        f"The step takes {step.step_ns / 1e6:.2f} ms. Lanes are busy: {', '.join(busy)}.",
    )
    caption = (
        f"Step {step.index} of run 0, the one nearest to the median step time. Above, colours fill a lane's"
        " height as far as it is busy; below, every kernel by itself."
    )
    return Section("timeline", "One step over all lanes", [Picture(picture, caption)])


def _accepted(summary: Summary) -> Section:
    shares = summary.length_shares
    mean = number(summary.acceptance_length.mean)
    said = f"Mean {mean} tokens; {len(shares)} in {percent(shares[-1])} of steps."
    picture = inline(
        lambda: figures.lengths(summary), "lengths", "Histogram of the tokens that a step lands", said
    )
    blocks: list[Picture | Table] = [Picture(picture, said)]
    if len(shares) <= MOST_LENGTHS:
        rows = [(str(length), percent(share)) for length, share in enumerate(shares, 1)]
        blocks.append(Table("Share of steps by tokens landed.", ["tokens", "steps"], rows))
    return Section("acceptance", "Tokens a step", blocks)


def _not_known(answer: Answer) -> list[Section]:
    """What moves throughput of all that is not known, the most first, with where it comes from."""
    if answer.total is None:
        return []
    found = answer.total
    shown = found.swings[:MOST_SWINGS]
    caption = (
        f"{found.parameters} parameters are not known exactly, {len(found.swings)} of them move throughput"
        f" alone; the {len(shown)} that move it most, each from its P5 to its P95, the others at their best."
    )
    head = ["not known", "P5", "tok/s there", "P95", "tok/s there", "source"]
    rows = [_swing_row(swing) for swing in shown]
    table = Table(caption, head, rows, words=[1, 3, 5])
    return [Section("unknown", "What is not known, by how much it moves the answer", [table])] if rows else []


def _swing_row(swing: Swing) -> tuple[str, ...]:
    ends = zip(swing.values, swing.tok_s, strict=True)
    return (
        swing.name,
        *(cell for drawn, tok_s in ends for cell in (value(drawn), number(tok_s))),
        swing.basis,
    )


def _figures(answer: Answer) -> Section:
    """The figures behind the step, first those whose uncertainty moves it most."""
    step_s = answer.summary.step_time_ms.mean / 1e3
    costs = sorted(step_costs(answer), key=_moves, reverse=True)
    rows = [_cost_row(cost, step_s) for cost in costs[:MOST_COSTS]]
    shares = [(source.name, percent(answer.summary.sources.get(source, 0.0))) for source in Source]
    caption = (
        f"The {len(rows)} of {len(costs)} figures that may move the step most, as one rank meets them when"
        " decoding begins. The second column is one sigma of what is not known about the figure, as a share"
        " of the step: an upper bound, for what runs beside other work moves it less."
    )
    return Section(
        "figures",
        "What the step rests on",
        [
            Table("The critical path by the source of its figures.", ["source", "share"], shares),
            Table(
                caption,
                ["component", "± of step", "of step", "times", "mean, µs", "source", "evidence"],
                rows,
                words=[5, 6],
            ),
        ],
    )


def _moves(cost: StepCost) -> float:
    """Seconds of a step that one sigma of the figure is worth, were all of it on the critical path."""
    return cost.times * cost.estimate.seconds * cost.estimate.spread


def _cost_row(cost: StepCost, step_s: float) -> tuple[str, ...]:
    estimate = cost.estimate
    return (
        f"{cost.op.component.value} ({cost.op.phase.value})",
        percent(_moves(cost) / step_s),
        percent(cost.times * estimate.seconds / step_s),
        f"{cost.times:,}",
        f"{1e6 * estimate.seconds:.2f}",
        estimate.source.name,
        estimate.evidence,
    )


def _provenance(answer: Answer) -> Section:
    scenario, samples = answer.setup.scenario, answer.setup.machine.samples
    rows = [
        ("seed", str(scenario.seed)),
        ("engine", answer.engine.value),
        ("runs and steps", f"{answer.summary.runs:,} and {answer.summary.steps:,}"),
        ("changes to the scenario", "; ".join(answer.overrides) or "none"),
        *([("SHA-256 of the measured file", samples.sha256)] if samples is not None else []),
    ]
    return parts.provenance(rows, [parts.resolved(scenario)])
