"""What the number rests on, how it was launched, what was published, what is assumed."""

from __future__ import annotations

from hwmodels.estimate import Source
from sim.answer import Answer, Comparison, Stage, launch_counts
from sim.replay import Replay
from sim.report.drafting import batch_notes, drafting_notes
from sim.report.words import number, percent
from sim.scenario import CapturePolicy
from sim.setup import LaunchMode, Setup
from sim.statistics import MIN_RUNS, Summary


def notes(answer: Answer) -> list[str]:
    """What the number rests on, how it was launched, what was published, what is assumed."""
    compared = [] if answer.comparison is None else comparison_lines(answer.comparison)
    compared += outside_lines(answer)
    assumed = [f"Assumed: {assumption}" for assumption in answer.setup.scenario.assumptions]
    return [rests_on(answer.summary), *played_notes(answer), *compared, *reading_notes(answer), *assumed]


def played_notes(answer: Answer) -> list[str]:
    """How the step was launched, and what was checked."""
    return [launch_line(answer), *replay_lines(answer.replayed)]


def outside_lines(answer: Answer) -> list[str]:
    """A published measurement that lies outside all that was drawn."""
    if answer.comparison is None or answer.total is None or answer.comparison.anchor.tok_s is None:
        return []
    published, band = answer.comparison.anchor.tok_s, answer.total.throughput_tok_s
    if band.p5 <= published <= band.p95:
        return []
    what = "neither figures nor luck explain" if answer.setup.posterior is None else "nothing here explains"
    return [
        f"The published {published:g} lies outside what was drawn ({number(band.p5)} to {number(band.p95)},"
        f" P5 to P95): {what} it."
    ]


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


def replay_lines(replayed: Replay | None) -> list[str]:
    """What was played again on the SimPy engine."""
    if replayed is None:
        return []
    return [
        f"Checked on SimPy: {replayed.runs} runs ({replayed.steps:,} steps, {replayed.pieces:,} pieces),"
        f" {replayed.kernel_steps} steps kernel by kernel ({replayed.ops:,} ops): the same ns."
    ]


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
