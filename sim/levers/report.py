"""Levers as lines of text, as an object and as tables. Nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import __version__, digests, files
from sim.levers import words
from sim.levers.alternatives import Alternative
from sim.levers.drivers import Drivers
from sim.levers.effects import Effect
from sim.levers.investments import Held, Return, Returns
from sim.levers.kinds import Degree
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study
from sim.report import render

FORMAT_VERSION = 1
"""1 (2026-12): first."""
MOST_IN_FULL = 2
"""Scenarios beside one another whose every degree is shown."""
MOST_WITH_SHARES = 3
"""Whose shares of the step, and throughputs, are."""
MOST_SCENARIOS = 6
"""That fit beside one another at all."""
REPORT_WIDTH = 110
"""Columns: two scenarios side by side need so many."""


def lines(studies: Sequence[Study]) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(line)
        for letter, study in zip(ascii_uppercase, studies, strict=False)
        for line in words.head(study, f"{letter}  " if len(studies) > 1 else "")
    ]
    parts.append(Text(words.LUCK_NOTE))
    parts += [Text(), _single(studies[0]) if len(studies) == 1 else _beside(studies), Text()]
    parts += [Text(line) for study in studies for line in words.overhead(study)]
    parts += [Text(line) for study in studies for line in words.overlapped(study)]
    parts += [Text(), _alternatives(studies)]
    parts += [Text(line) for study in studies for line in words.impossible(study, len(studies) > 1)]
    for study in studies:
        parts += _drivers(study, len(studies) > 1)
    parts += [Text(), *(Text(line) for line in words.notes(studies))]
    return render(parts, REPORT_WIDTH)


def _drivers(study: Study, named: bool) -> list[RenderableType]:
    """What drives the uncertainty of one scenario."""
    found = study.drivers
    if found is None:
        return []
    where = f"{study.name}: " if named else ""
    table = _table(f"{where}not known", "total index", "alone", "P5", "tok/s", "P95", "tok/s")
    for driver in found.drivers:
        swing = driver.swing
        ends = [
            cell
            for value, tok_s in zip(swing.values, swing.tok_s, strict=True)
            for cell in (words.value(value), f"{tok_s:.1f}")
        ]
        table.add_row(Text(swing.name), f"{driver.total:.2f}", f"{driver.first:.2f}", *map(Text, ends))
    return [Text(), table, Text(words.drivers_note(found))]


def _table(*columns: str, gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(Text(columns[0]), no_wrap=True)
    for name in columns[1:]:
        table.add_column(Text(name, justify="right"), justify="right", no_wrap=True)
    return table


def _single(study: Study) -> Table:
    """One scenario's levers, the largest of each group first."""
    table = _table("tok/s if it were", "of step", *(d.title for d in Degree), "Amdahl", "elasticity")
    for lever in words.in_order([study]):
        if lever is None:
            table.add_row("")
            continue
        effect = study.effect(lever)
        assert effect is not None
        table.add_row(
            Text(lever.value),
            words.share(effect),
            *(f"{effect.tok_s[d]:.1f} {words.gain(study, effect, d):>7}" for d in Degree),
            words.bound(study, effect),
            f"{effect.elasticity:.3f}",
        )
    return table


def _beside(studies: Sequence[Study]) -> Table:
    """The same levers of several scenarios."""
    count = len(studies)
    shown = tuple(Degree) if count <= MOST_IN_FULL else (Degree.FREE,)
    shares = ["of step"] if count <= MOST_WITH_SHARES else []
    names = [*shares, *(words.DEGREE_NAMES[degree] for degree in shown)]
    heads = [f"{at} {name}" if name == names[0] else name for at in ascii_uppercase[:count] for name in names]
    table = _table("tok/s if it were", *heads, gap=1)
    for lever in words.in_order(studies):
        if lever is None:
            table.add_row("")
            continue
        cells: list[str] = []
        for study in studies:
            effect = study.effect(lever)
            gains = ["" for _ in names]
            if effect is not None:
                gains = [
                    *(words.share(effect) for _ in shares),
                    *(words.gain(study, effect, d) for d in shown),
                ]
            cells += gains
        table.add_row(Text(lever.value), *cells)
    return table


def _alternatives(studies: Sequence[Study]) -> Table:
    """Choices, each instead of what the scenario has."""
    count = len(studies)
    in_full = count <= MOST_WITH_SHARES
    letters = ascii_uppercase[:count] if count > 1 else " "
    heads = [head for at in letters for head in ((f"{at} tok/s".strip(), "") if in_full else (at,))]
    table = _table("instead", *heads, *([""] if count <= MOST_IN_FULL else []))
    for key in words.choice_keys(studies):
        found = [words.chosen(study, key) for study in studies]
        pairs = [_chosen_cells(study, each) for study, each in zip(studies, found, strict=True)]
        cells = [cell for pair in pairs for cell in (pair if in_full else pair[1:])]
        notes = dict.fromkeys(each.note for each in found if each is not None and each.note)
        table.add_row(Text(key[1]), *cells, *([Text("; ".join(notes))] if count <= MOST_IN_FULL else []))
    return table


def _chosen_cells(study: Study, alternative: Alternative | None) -> list[str]:
    if alternative is None or alternative.tok_s is None:
        return ["", ""]
    return [f"{alternative.tok_s:.1f}", words.change(alternative.tok_s / study.base.tok_s)]


def as_object(studies: Sequence[Study]) -> dict[str, Any]:
    """Everything, for other programs."""
    return {
        "format_version": FORMAT_VERSION,
        "runs": RUNS,
        "steps_per_run": STEPS,
        "scenarios": [_study_object(study) for study in studies],
        "provenance": {"specdec_sim": __version__, "tables_sha256": digests.tables()},
    }


def _study_object(study: Study) -> dict[str, Any]:
    base = study.base
    return {
        "name": study.name,
        "question": study.setup.scenario.question,
        "seed": study.setup.scenario.seed,
        "tok_s": base.tok_s,
        "step_ms": base.step_s * 1e3,
        "mean_length": base.mean_length,
        "critical_path": {c.name.lower(): seconds / base.step_s for c, seconds in base.components.items()},
        "levers": [_effect_object(study, effect) for effect in study.effects],
        "alternatives": [
            {
                "kind": a.choice.kind,
                "name": a.choice.name,
                "changes": dict(a.choice.changes),
                "tok_s": a.tok_s,
                "problem": a.problem,
                "note": a.note,
            }
            for a in study.alternatives
        ],
        "drivers": None if study.drivers is None else _drivers_object(study.drivers),
    }


def _drivers_object(found: Drivers) -> dict[str, Any]:
    return {
        "parameters": found.parameters,
        "asked_share_of_variance": found.asked_share,
        "sobol_indices": [
            {
                "name": driver.swing.name,
                "basis": driver.swing.basis,
                "total": driver.total,
                "first": driver.first,
                "values": list(driver.swing.values),
                "tok_s": list(driver.swing.tok_s),
            }
            for driver in found.drivers
        ],
    }


def _effect_object(study: Study, effect: Effect) -> dict[str, Any]:
    bounds = effect.bound_tok_s
    return {
        "name": effect.lever.name.lower(),
        "title": effect.lever.value,
        "group": effect.lever.group.name.lower(),
        "critical_share": effect.share,
        "tok_s": {d.name.lower(): effect.tok_s[d] for d in Degree},
        "gain": {d.name.lower(): effect.gain(d, study.base.tok_s) for d in Degree},
        "worse_tok_s": effect.worse_tok_s,
        "amdahl_tok_s": None if bounds is None else {d.name.lower(): bounds[d] for d in Degree},
        "elasticity": effect.elasticity,
        "gain_half_width": effect.half_width,
    }


COLUMNS = (
    "scenario",
    "lever",
    "group",
    "critical_share",
    *(f"tok_s_{degree.name.lower()}" for degree in Degree),
    "tok_s_half_worse",
    *(f"amdahl_tok_s_{degree.name.lower()}" for degree in Degree),
    "elasticity",
)


def write(studies: Sequence[Study], text: Sequence[str], folder: Path) -> list[str]:
    """The report and its tables in *folder*; the names of the files."""
    rows = [_row(study, effect) for study in studies for effect in study.effects]
    choices = [
        (study.name, a.choice.kind, a.choice.name, a.tok_s, a.problem or a.note)
        for study in studies
        for a in study.alternatives
    ]
    texts = {
        "report.txt": "\n".join(text) + "\n",
        "levers.json": files.as_json(as_object(studies)) + "\n",
        "levers.csv": files.csv_text(COLUMNS, rows),
        "alternatives.csv": files.csv_text(("scenario", "kind", "name", "tok_s", "note"), choices),
    }
    for name, content in texts.items():
        files.replace(folder / name, content)
    return list(texts)


def _row(study: Study, effect: Effect) -> tuple[object, ...]:
    bounds = effect.bound_tok_s or dict.fromkeys(Degree)
    return (
        study.name,
        effect.lever.value,
        effect.lever.group.value,
        effect.share,
        *(effect.tok_s[degree] for degree in Degree),
        effect.worse_tok_s,
        *(bounds[degree] for degree in Degree),
        effect.elasticity,
    )


def investment_lines(found: Returns) -> list[str]:
    """The combinations of a plan, and what each investment is worth."""
    parts: list[RenderableType] = [Text(found.plan.question), Text()]
    parts += [_combinations(found), Text(), _worths(found), Text()]
    parts += [Text(f"{each.name}: {each.title}") for each in found.plan.investments]
    if found.plan.beside is not None:
        parts.append(Text(f"{found.plan.beside.name}: {found.plan.beside.title}"))
    parts.append(Text(words.FAIR_NOTE))
    parts += [Text(f"Assumed: {assumption}") for assumption in found.plan.assumptions]
    return render(parts)


def _combinations(found: Returns) -> Table:
    beside = found.plan.beside
    table = _table("made", "tok/s", "", "", *([] if beside is None else [f"with {beside.name}", "", ""]))
    for held, each in found.returns.items():
        name = " + ".join(name for name in found.names if name in held) or "nothing"
        cells = _return_cells(found, each)
        cells += [] if beside is None else _return_cells(found, found.beside[held])
        table.add_row(Text(name), *cells)
    return table


def _return_cells(found: Returns, each: Return) -> list[str]:
    ends = each.range_tok_s
    between = "" if ends is None else f"({ends[0]:.0f}-{ends[1]:.0f})"
    return [f"{each.tok_s:.1f}", between, f"x{each.tok_s / found.returns[Held()].tok_s:.2f}"]


def _worths(found: Returns) -> Table:
    table = _table("worth", "alone", "on top of the others", "fair")
    for worth in found.worths:
        table.add_row(
            Text(worth.investment.name), *(f"x{v:.2f}" for v in (worth.alone, worth.on_top, worth.fair))
        )
    beside = found.plan.beside
    if beside is not None:
        everything = Held(found.names)
        ratios = [found.beside[held].tok_s / found.returns[held].tok_s for held in (Held(), everything)]
        table.add_row(Text(beside.name), *(f"x{ratio:.2f}" for ratio in ratios), "")
    return table


def investments_object(found: Returns) -> dict[str, Any]:
    """The same for other programs."""
    return {
        "format_version": FORMAT_VERSION,
        "question": found.plan.question,
        "base": found.plan.base,
        "combinations": [
            {
                "made": [name for name in found.names if name in held],
                "tok_s": each.tok_s,
                "range_tok_s": each.range_tok_s,
                "beside": None if not found.beside else found.beside[held].tok_s,
                "beside_range_tok_s": None if not found.beside else found.beside[held].range_tok_s,
            }
            for held, each in found.returns.items()
        ],
        "investments": [
            {"name": w.investment.name, "alone": w.alone, "on_top": w.on_top, "fair": w.fair}
            for w in found.worths
        ],
        "beside": None if found.plan.beside is None else found.plan.beside.name,
        "assumptions": list(found.plan.assumptions),
        "provenance": {"specdec_sim": __version__, "tables_sha256": digests.tables()},
    }


def write_investments(found: Returns, text: Sequence[str], folder: Path) -> list[str]:
    """The report and its object in *folder*; the names of the files."""
    files.replace(folder / "report.txt", "\n".join(text) + "\n")
    files.replace(folder / "investments.json", files.as_json(investments_object(found)) + "\n")
    return ["report.txt", "investments.json"]
