"""What was measured in the runs: quantities, tails, the step, the lanes."""

from __future__ import annotations

from rich.table import Table

from sim.graph import Lane
from sim.report.words import BAR_WIDTH, number, percent, with_half_width
from sim.statistics import Summary
from sim.uncertainty.total import Total

QUANTILES = ("mean", "P5", "P50", "P95")
THROUGHPUT = "throughput"
BLOCKS = " ▁▂▃▄▅▆▇█"


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


def _by_kind(lanes: dict[Lane, float]) -> dict[str, list[float]]:
    """Utilisations by lane, the ranks of one queue together."""
    kinds: dict[str, list[float]] = {}
    for lane, value in lanes.items():
        device = lane.device.rstrip("0123456789") if lane.device.startswith("gpu") else lane.device
        kinds.setdefault(f"{device}/{lane.queue}", []).append(value)
    return kinds
