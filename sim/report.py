"""The terminal report: an Answer as lines of text. Nothing here prints."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from math import exp, log

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from hwmodels.estimate import Source
from sim.answer import Answer, Comparison, Stage, launch_counts
from sim.causes import Explanation
from sim.choices import Shape
from sim.drafting import REACHED, drafter_quality, required_accuracy
from sim.graph import Lane
from sim.replay import Replay
from sim.scenario import CapturePolicy
from sim.setup import LaunchMode, Setup
from sim.statistics import MIN_RUNS, Spread, Summary
from sim.uncertainty.posterior import Posterior
from sim.uncertainty.total import SHOWN, Swing, Total

WIDTH = 100
BAR_WIDTH = 12
SHOWN_POSITIONS = (1, 2, 4, 8)
QUANTILES = ("mean", "P5", "P50", "P95")
THROUGHPUT = "throughput"
BLOCKS = " ▁▂▃▄▅▆▇█"


def lines(answer: Answer) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(headline(answer)),
        Text(),
        quantities(answer.summary, answer.total),
        *(Text(line) for line in latency_lines(answer.summary)),
        *(Text(line) for line in range_lines(answer)),
        *(Text(line) for line in calibrated_lines(answer.setup.posterior)),
        *(Text(line) for line in total_lines(answer.total)),
        Text(histogram(answer.summary)),
        Text(),
        side_by_side(breakdown(answer.summary), utilisation(answer.summary)),
        *causes(answer),
        Text(),
        *(Text(line) for line in notes(answer)),
    ]
    return render(parts)


def render(parts: Iterable[RenderableType], width: int = WIDTH) -> list[str]:
    """Rich renderables as plain lines of at most *width* columns."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


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


def drafting_line(setup: Setup) -> str:
    """What drafts, how much, and in what shape."""
    scenario = setup.scenario
    several = setup.requests > 1
    requests = f", {setup.requests} requests in lock-step; tok/s of all" if several else ""
    requests += f"; {capacity_line(setup)}" if setup.capacity_limited else ""
    if scenario.is_plain:
        return f"plain decoding (acceptance is not used){requests}"
    spec, tokens = scenario.drafted, f"(M = {scenario.verify_tokens})"
    match spec.shape:
        case Shape.DDTREE:
            drafted = f"budget {spec.budget} {tokens}, tree on {scenario.tree.builder.value}"
        case Shape.CHAIN:
            drafted = f"chain of {spec.nodes} {tokens}"
        case Shape.EAGLE:
            drafted = f"EAGLE tree of {spec.nodes}, top {spec.top_k} {tokens}"
    return f"{setup.drafter.name}, block {spec.block}, {drafted}{requests}"


def capacity_line(setup: Setup) -> str:
    """How many requests of the load the cache holds."""
    return f"capacity limited: {setup.requests} of {setup.scenario.load.concurrency} requests fit"


def quantities(summary: Summary, total: Total | None = None) -> Table:
    """Throughput, step time and acceptance length with their intervals and quantiles; the *total* beside."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    for name in QUANTILES:
        table.add_column(name, justify="right")
    table.add_column("")
    for row in quantity_rows(summary):
        table.add_row(*row)
        if total is not None and row[0] == THROUGHPUT:
            band = total.throughput_tok_s
            shown = map(number, (band.mean, band.p5, band.p50, band.p95))
            table.add_row("  all drawn", *shown, "tok/s, luck and what is not known")
    return table


def quantity_rows(summary: Summary) -> list[tuple[str, ...]]:
    """For each quantity its name, its mean with interval, P5, P50, P95, and its unit."""
    rows = [
        (THROUGHPUT, summary.throughput_tok_s, "tok/s, over runs"),
        ("step time", summary.step_time_ms, "ms, over steps"),
        ("acceptance length", summary.acceptance_length, "tokens, over steps"),
    ]
    if summary.requests > 1:
        rows += [
            ("tok/s per user", summary.user_tok_s, "tok/s, over runs"),
            ("tok/s of a request", summary.request_tok_s, "tok/s, over requests"),
            ("time per token (TPOT)", summary.tpot_ms, "ms, over requests"),
        ]
    return [
        (name, with_half_width(value), *(number(q) for q in (value.p5, value.p50, value.p95)), unit)
        for name, value, unit in rows
    ]


def latency_lines(summary: Summary) -> list[str]:
    """The tails of what users wait for; nothing for one request."""
    if summary.requests == 1:
        return []
    return [
        f"{name}: P50 {number(tail.p50)}, P95 {number(tail.p95)}, P99 {number(tail.p99)} ms, over {over}."
        for name, tail, over in (
            ("Time per token (TPOT)", summary.tpot_tail_ms, "requests"),
            ("Between tokens (ITL)", summary.itl_ms, "tokens; those of one step share its time"),
        )
    ]


def with_half_width(value: Spread) -> str:
    """``607.1 +- 5.2``, or the mean alone where no interval exists."""
    if value.half_width is None:
        return number(value.mean)
    return f"{number(value.mean)} +- {value.half_width:.{decimals(value.mean)}f}"


def number(value: float) -> str:
    """Enough digits to tell neighbours apart, and no more."""
    return f"{value:.{decimals(value)}f}"


def decimals(value: float) -> int:
    """Decimal places that leave about four significant digits."""
    return 1 if abs(value) >= 100 else 2


def range_lines(answer: Answer) -> list[str]:
    """Throughput at both ends of what is not known about the mean acceptance length."""
    if not answer.range_ends:
        return []
    first, *others = answer.range_ends
    ends = [f"{with_half_width(first.throughput_tok_s)} tok/s at {first.mean_length:g} tokens a step"]
    ends += [f"{with_half_width(end.throughput_tok_s)} at {end.mean_length:g}" for end in others]
    return [f"Not luck but not known: {', '.join(ends)}."]


def calibrated_lines(posterior: Posterior | None) -> list[str]:
    """What the draws have learnt, where they have."""
    if posterior is None:
        return []
    seen = ", ".join(f"{one.name} {one.tok_s:.4g}" for one in posterior.observations)
    return [f"Drawn from {posterior.file}: what is left possible by measurements ({seen} tok/s)."]


def total_lines(total: Total | None) -> list[str]:
    """What was drawn, and what moves the answer most."""
    if total is None:
        return []
    several = f"{total.parameters} parameters drawn {total.draws} times; {len(total.swings)} move it alone"
    if not total.swings:
        return [f"{several}."]
    return [f"{several}, most of all:", *(f"  {swing_line(swing)}" for swing in total.swings[:SHOWN])]


def swing_line(swing: Swing) -> str:
    """What one parameter does alone."""
    values = " to ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in swing.values)
    tok_s = " to ".join(map(number, swing.tok_s))
    return f"{swing.name}, {values}: {tok_s} tok/s ({swing.basis})"


def histogram(summary: Summary) -> str:
    """Shares of steps by tokens committed, one block character each."""
    highest = max(summary.length_shares)
    bars = "".join(
        BLOCKS[max(1, round(share / highest * (len(BLOCKS) - 1)))] if share else BLOCKS[0]
        for share in summary.length_shares
    )
    full = summary.length_shares[-1]
    top = len(summary.length_shares)
    return f"tokens a step 1-{top}: [{bars}]  {top} tokens in {percent(full)} of steps"


def percent(share: float) -> str:
    """``12.3 %``."""
    return f"{100 * share:.1f} %"


def side_by_side(left: RenderableType, right: RenderableType) -> Table:
    """Two tables beside each other."""
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_row(left, right)
    return grid


def breakdown(summary: Summary) -> Table:
    """Where the step goes: the critical path by component."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("critical path of the step", no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("ms", justify="right")
    table.add_column("")
    largest = max(summary.components.values())
    for component, share in summary.components.items():
        bar = "█" * round(BAR_WIDTH * share / largest)
        table.add_row(component.value, percent(share), f"{share * summary.step_time_ms.mean:.2f}", bar)
    table.add_row("sum", percent(sum(summary.components.values())), f"{summary.step_time_ms.mean:.2f}", "")
    return table


def utilisation(summary: Summary) -> Table:
    """How busy each kind of lane is; for GPUs the mean and the extremes over ranks."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("lanes")
    table.add_column("busy", justify="right")
    table.add_column("over ranks", justify="right")
    for row in lane_rows(summary):
        table.add_row(*row)
    table.add_row("", "", "")
    table.add_row("AllReduce a step", f"{summary.allreduce_transfer_ms:.2f} ms", "transfer")
    table.add_row("", f"{summary.allreduce_wait_ms:.2f} ms", "waiting")
    return table


def lane_rows(summary: Summary) -> list[tuple[str, str, str]]:
    """For each kind of lane its name, how busy it is, and the extremes over ranks."""
    rows = []
    for name, values in _by_kind(summary.utilisation).items():
        mean = sum(values) / len(values)
        ranks = f"{100 * min(values):.1f}-{100 * max(values):.1f}" if len(values) > 1 else ""
        rows.append((name, percent(mean), ranks))
    return rows


def causes(answer: Answer) -> list[RenderableType]:
    """Why this scenario is slower than another, cause by cause; empty where it does not ask."""
    if answer.explanation is None:
        return []
    head, rows = cause_rows(answer, answer.explanation)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(head[0])
    for name in head[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    anchored = (
        answer.setup.scenario.anchor is not None and answer.explanation.since_published_tok_s is not None
    )
    return [Text(), table, *(Text(line) for line in causes_legend(answer.explanation, anchored))]


def cause_rows(
    answer: Answer, explained: Explanation
) -> tuple[tuple[str, str, str], list[tuple[str, str, str]]]:
    """Head and rows of a table of the causes in *explained*."""
    anchor = answer.setup.scenario.anchor
    published = None if anchor is None else fall(explained, anchor.published_tok_s)
    share = "share of the published fall" if published else "factor"
    rows = [
        (cause.name, number(cause.alone_tok_s), _part(cause.log_change, published))
        for cause in explained.causes
    ]
    whole = explained.predicted_log_change
    rows.append(("all of these together", number(explained.tok_s), _part(whole, published)))
    if published is not None:
        rows.append(("unexplained", f"x{exp(published - whole):.2f}", _part(published - whole, published)))
    for other in explained.candidates:
        more = _part(log(other.tok_s / explained.tok_s), published)
        rows.append((f"all, and {other.name} *", number(other.tok_s), f"{more} more"))
    name = f"slower than {explained.since} ({number(explained.since_tok_s)} tok/s), because of"
    return (name, "tok/s a request", share), rows


def causes_legend(explained: Explanation, shares: bool) -> Iterator[str]:
    """What the columns of the causes hold."""
    what = "shares are of the logarithm of tok/s, so they add up" if shares else "factors multiply"
    yield f"tok/s: with that cause alone; {what}."
    if explained.candidates:
        yield "* not in the source: what it would do beside all causes."


def fall(explained: Explanation, published_tok_s: float) -> float | None:
    """Logarithm of the published change; None where the other scenario has no published figure."""
    before = explained.since_published_tok_s
    return None if before is None or before == published_tok_s else log(published_tok_s / before)


def _part(log_change: float, published: float | None) -> str:
    return f"x{exp(log_change):.2f}" if published is None else percent(log_change / published)


def _by_kind(lanes: dict[Lane, float]) -> dict[str, list[float]]:
    """Utilisations by lane, the ranks of one queue together."""
    kinds: dict[str, list[float]] = {}
    for lane, value in lanes.items():
        device = lane.device.rstrip("0123456789") if lane.device.startswith("gpu") else lane.device
        kinds.setdefault(f"{device}/{lane.queue}", []).append(value)
    return kinds


def notes(answer: Answer) -> list[str]:
    """What the number rests on, how it was launched, what was published, what is assumed."""
    compared = [] if answer.comparison is None else comparison_lines(answer.comparison)
    assumed = [f"Assumed: {assumption}" for assumption in answer.setup.scenario.assumptions]
    return [rests_on(answer.summary), *played_notes(answer), *compared, *reading_notes(answer), *assumed]


def played_notes(answer: Answer) -> list[str]:
    """How the step was launched, and what was checked."""
    return [launch_line(answer), *replay_lines(answer.replayed)]


def reading_notes(answer: Answer) -> list[str]:
    """What a reader of the numbers must know."""
    found = []
    if answer.interrupted is Stage.RUNS:
        found.append(f"Interrupted: {answer.summary.runs} of {answer.setup.scenario.runs} runs were played.")
    elif answer.interrupted is not None:
        found.append(f"Interrupted after all runs: the {answer.interrupted.value} is missing.")
    if answer.summary.throughput_tok_s.half_width is None:
        found.append(f"Fewer than {MIN_RUNS} runs: no interval is given.")
    elif answer.total is None:
        found.append("+- is the luck of the runs; what the figures themselves may be off by is not in it.")
    else:
        lacking = "not with" if answer.setup.posterior is None else "and with"
        found.append(
            f"+- is the luck of the runs. All drawn: with what figures, tables and fits leave open, {lacking}"
            " what the model lacks; a figure at one end of its range is off to the other side alone."
        )
    return found + batch_notes(answer.setup) + drafting_notes(answer.setup)


def batch_notes(setup: Setup) -> list[str]:
    """What the batch is and is not; nothing for one request alone."""
    if setup.scenario.load.concurrency == 1:
        return []
    found = ["The batch is full from the first step to the last: ramp-up and drain are excluded."]
    if setup.capacity_limited:
        blocks, each = setup.capacity
        found.append(
            f"Capacity limited: {blocks:,} cache blocks on each GPU, {each:,} for a request's whole life;"
            " the others wait, which no figure here counts."
        )
    return found


def drafting_notes(setup: Setup) -> list[str]:
    """What a reader must know about drafter and acceptance; nothing for plain decoding."""
    if setup.scenario.is_plain:
        return []
    found = acceptance_notes(setup)
    block, trained = setup.scenario.drafter.block, setup.drafter.longest_block
    if trained is not None and block > trained:
        found.append(
            f"{setup.drafter.name} was trained at block {trained}; at block {block} it may gain nothing."
        )
    if setup.drafter.targets and setup.model.name not in setup.drafter.targets:
        trained_for = ", ".join(setup.drafter.targets)
        found.append(f"{setup.drafter.name} was trained for {trained_for}, not for {setup.model.name}.")
    if setup.drafter.hypothetical:
        found.append(f"Hypothesis: {setup.drafter.title}.")
    return found


def replay_lines(replayed: Replay | None) -> list[str]:
    """What was played again on the SimPy engine."""
    if replayed is None:
        return []
    return [
        f"Checked on SimPy: {replayed.runs} runs ({replayed.steps:,} steps, {replayed.pieces:,} pieces),"
        f" {replayed.kernel_steps} steps kernel by kernel ({replayed.ops:,} ops): the same ns."
    ]


def acceptance_notes(setup: Setup) -> list[str]:
    """Where acceptance comes from; how good the drafter must be where it follows from the tree."""
    given, accuracy = setup.scenario.acceptance, setup.drafter.accuracy
    if given.trace is not None:
        return [f"Acceptance is drawn from {given.trace}, request by request, whatever block and budget."]
    if given.quality is None or accuracy is None:
        return ["Acceptance is what the scenario says; block and budget cap it but do not change it."]
    quality = drafter_quality(setup, given.asked_mean)
    return [
        f"Acceptance follows from the tree: accuracy of {setup.drafter.name} ({accuracy.source.name}),"
        f" log-odds {quality.shift:+.2f}, off the spine x{quality.off_spine:g}.",
        _accuracy_line(setup),
    ]


def _accuracy_line(setup: Setup) -> str:
    """How often the first choice must be right at some positions."""
    last = setup.scenario.drafted.positions
    positions = [*(position for position in SHOWN_POSITIONS if position < last), last]
    shown = []
    for mean, _, landed, top1 in required_accuracy(setup):
        label = "in the catalog" if mean is None else f"for {mean:g} tokens"
        if mean is not None and abs(landed - mean) > REACHED:
            label += f" (the nearest is {landed:.2f})"
        shown.append(f"{label} " + " ".join(f"{100 * top1[position - 1]:.3g}" for position in positions))
    where = " ".join(map(str, positions))
    return f"First choice right, %, at positions {where}, steps of middling difficulty: {'; '.join(shown)}."


def rests_on(summary: Summary) -> str:
    """Shares of the step by the source of its figures, and what of it rests on a measured file."""
    shares = ", ".join(f"{s.name} {percent(summary.sources.get(s, 0.0))}" for s in Source)
    files = "".join(f"; on {name} {percent(share)}" for name, share in summary.measured_files.items())
    return f"The step rests on: {shares}{files}"


def launch_line(answer: Answer) -> str:
    """How the verify pass reaches the GPU, and why."""
    setup = answer.setup
    nodes, launches = launch_counts(answer)
    limit = setup.broken_limit
    how = f"Launch: one graph of {nodes:,} kernels" if nodes else f"Launch: {launches:,} kernels one by one"
    if setup.verify_launch is LaunchMode.PIECEWISE:
        how += ", the others as graphs between attentions"
    if limit is None:
        return f"{how}{captured_note(setup)}."
    budget, capability = limit.max_tree_budget, limit.compute_capability
    if setup.verify_launch is LaunchMode.EAGER:
        return f"{how}: budgets above {budget} cannot be captured on {capability} ({limit.ref})."
    assert setup.scenario.capture_limit is CapturePolicy.LIFTED
    return f"{how}, as if {capability} could capture budgets above {budget} ({limit.ref})."


def captured_note(setup: Setup) -> str:
    """Which captured batch the verify pass takes, where it is not its own size."""
    dispatch = setup.machine.stack.dispatch
    if setup.verify_padding:
        return f", captured for {setup.requests + setup.verify_padding} requests"
    if dispatch.graphs and setup.verify_launch is not LaunchMode.GRAPH:
        asked = f"{setup.requests} requests of {setup.scenario.verify_tokens} tokens"
        return f": no graph is captured for {asked} ({dispatch.captured.ref})"
    return ""


def comparison_lines(comparison: Comparison) -> list[str]:
    """The published figure beside the prediction, and what stays unexplained."""
    anchor = comparison.anchor
    predicted = comparison.predicted_tok_s
    if anchor.tok_s_range is None:
        published, verdict = f"{anchor.tok_s:g}", f"{100 * comparison.error:+.1f} %"
    else:
        low, high = anchor.tok_s_range
        inside = "inside the range" if low <= predicted <= high else "outside the range"
        published = f"{low:g}-{high:g}"
        verdict = f"{inside}, {100 * comparison.error:+.1f} % from its middle"
    found = [f"Published: {published} tok/s ({anchor.source}). Predicted: {predicted:.1f} ({verdict})."]
    if comparison.unexplained_ms is not None and comparison.published_step_ms is not None:
        step_ms = comparison.published_step_ms - comparison.unexplained_ms
        found.append(
            f"Published step: {comparison.published_step_ms:.1f} ms; predicted {step_ms:.1f} ms;"
            f" unexplained {comparison.unexplained_ms:+.1f} ms."
        )
    return found
