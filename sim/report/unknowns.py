"""What is not known, and what it moves."""

from __future__ import annotations

from sim import digests
from sim.answer import Answer
from sim.report.words import number, value, with_half_width
from sim.uncertainty.posterior import FEW, Posterior
from sim.uncertainty.total import SHOWN, Swing, Total


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
    lines = [
        f"Drawn from what measurements leave possible ({seen} tok/s;"
        f" {posterior.effective_sample_size:,.0f} effective draws); below each unknown moves by itself."
    ]
    if posterior.effective_sample_size < FEW:
        lines.append(
            "So few effective draws are not to be trusted: calibrate again, and see what it conflicts with."
        )
    if posterior.stored is not None and posterior.stored.tables_sha256 != digests.tables():
        lines.append(f"{posterior.stored.file} was made with other figures or tables: calibrate again.")
    return lines


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
    values = " to ".join(map(value, swing.values))
    tok_s = " to ".join(map(number, swing.tok_s))
    return f"{swing.name}, {values}: {tok_s} tok/s ({swing.basis})"
