"""Sentences about calibrations."""

from __future__ import annotations

from sim.calibration.forecast import Claim, Forecast, Interval
from sim.calibration.joint import Unknowns
from sim.calibration.learnt import Combination, Tie
from sim.report import value


def per_cent(share: float) -> str:
    """``12 %``; what is not quite nothing or everything says so."""
    if share > 1:
        # Shares are covariances: what offsets another has a negative one.
        return "all and more"
    rounded = round(100 * share)
    if share and rounded == 0:
        return "below 1 %"
    return "over 99 %" if rounded == 100 and share < 1 else f"{rounded} %"


def span(ends: tuple[float, float]) -> str:
    """``575-770``; one figure where both are the same."""
    low, high = (f"{end:.0f}" if end >= 100 else f"{end:.3g}" for end in ends)
    return low if low == high else f"{low}-{high}"


def forecast_lines(found: Forecast, unknowns: Unknowns) -> list[str]:
    """What is now known of one scenario, what was claimed, and what decides."""
    after, before = found.after, found.before
    lines = [
        f"{found.name}: {_interval(after)}; before: {_interval(before)}.",
        *([] if found.claim is None else [claim_line(found.claim, after)]),
        decides_line(found, unknowns),
    ]
    return lines


def _interval(of: Interval) -> str:
    return f"{of.p50:.0f} tok/s, 50 % {span(of.half)}, 90 % {span(of.most)}"


def claim_line(claim: Claim, after: Interval) -> str:
    """Where a published figure lies."""
    kind = "claimed" if claim.anchor.tok_s is None else "published"
    where = place(claim.ends, after)
    drawn = f"{per_cent(claim.below)} of draws below it, {per_cent(claim.above)} above"
    if claim.ends[0] < claim.ends[1]:
        drawn = f"{per_cent(claim.inside)} of draws in it, " + drawn.replace(" of draws", "", 1)
    return f"The {kind} {span(claim.ends)} lies {where}: {drawn} ({claim.anchor.source})."


def place(ends: tuple[float, float], after: Interval) -> str:
    """Where a range lies: inside the 50 % interval, the 90 % one, partly in it, or outside."""
    for name, (low, high) in (("50 %", after.half), ("90 %", after.most)):
        if low <= ends[0] and ends[1] <= high:
            return f"inside the {name} interval"
    low, high = after.most
    return (
        "outside the 90 % interval" if ends[1] < low or high < ends[0] else "partly outside the 90 % interval"
    )


def decides_line(found: Forecast, unknowns: Unknowns) -> str:
    """What a step waits for, and what holds the interval open."""
    component, share = found.largest
    text = f"A step waits longest for {component.value} ({100 * share:.1f} %)."
    if found.decides is None:
        return text
    return (
        f"{text} Of what is still open {per_cent(found.discrepancy)} is what the model lacks; of what it has"
        f" {unknowns.label(found.decides.unknown)} decides most ({per_cent(found.decides.share)})."
    )


def combination_line(found: Combination, unknowns: Unknowns) -> str:
    """``12 % as open as before: + discrepancy.system (66 %) - acceptance (10 %)``."""
    parts = (
        f"{'+' if p.rises else '-'} {unknowns.label(p.unknown)} ({per_cent(p.share)})" for p in found.parts
    )
    return f"{per_cent(found.narrowed)} as open as before: {' '.join(parts)}"


def tie_line(found: Tie, unknowns: Unknowns) -> str:
    """What one unknown says of another."""
    (low, there), (high, then) = found.ends
    first, second = unknowns.label(found.first), unknowns.label(found.second)
    return (
        f"{first} {value(low)} with {second} {value(there)}, or {value(high)} with {value(then)}"
        f" (correlation {found.correlation:+.2f})"
    )
