"""The terminal report, in rooms by what they report, and the words that other reports share."""

from sim.report.causes import cause_rows
from sim.report.drafting import drafting_line, drafting_notes
from sim.report.notes import captured_note, played_notes, reading_notes
from sim.report.tables import QUANTILES, lane_rows, latency_lines, quantities
from sim.report.unknowns import range_lines
from sim.report.whole import headline, lines
from sim.report.words import BAR_WIDTH, number, percent, render, value, with_half_width

__all__ = [
    "BAR_WIDTH",
    "QUANTILES",
    "captured_note",
    "cause_rows",
    "drafting_line",
    "drafting_notes",
    "headline",
    "lane_rows",
    "latency_lines",
    "lines",
    "number",
    "percent",
    "played_notes",
    "quantities",
    "range_lines",
    "reading_notes",
    "render",
    "value",
    "with_half_width",
]
