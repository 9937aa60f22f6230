"""Levers as lines of text, as an object and as tables. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import __version__, digests, files
from sim.article import Overhead, article_overhead
from sim.levers.alternatives import Alternative, follows_from_tree
from sim.levers.drivers import Drivers
from sim.levers.effects import Effect
from sim.levers.investments import Held, Return, Returns
from sim.levers.kinds import Degree, Group, Lever
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study
from sim.report import drafting_line, render

FORMAT_VERSION = 1
"""1 (2026-12): first."""
MOST_IN_FULL = 2
"""Scenarios beside one another whose every degree is shown."""
MOST_WITH_SHARES = 3
"""Whose shares of the step, and throughputs, are."""
MOST_SCENARIOS = 6
"""That fit beside one another at all."""
DEGREE_NAMES = {Degree.TENTH: "10 %", Degree.HALF: "50 %", Degree.FREE: "free"}
SMALL_GAIN = 0.005
"""Gains below this are not worth a word."""
HIDDEN = 0.75
"""A lever whose gain is less than this share of Amdahl's bound is called overlapped."""
NO_BOUND = 1e4
"""A bound beyond this says that nothing else is on the critical path."""
REPORT_WIDTH = 110
"""Columns: two scenarios side by side need so many."""
ALIKE = 1.1
"""Two gains within this factor of one another are called alike."""
DEGREES_NOTE = (
    "10 or 50 % better: a time that much shorter, a bandwidth that much higher, the gap between mean"
    " acceptance length and the longest one closed by so much. Free: no time, endless bandwidth, all ranks in"
    " step, the longest length every time."
)
LUCK_NOTE = f"Means of {RUNS} runs of {STEPS} steps, played again with the same luck for every lever."
TRANSFER_NOTE = (
    "AllReduce latency is what the smallest message takes on the same GPUs, bandwidth what is left; both"
    " levers hold for the drafter's AllReduces too."
)
AMDAHL_NOTE = (
    "Amdahl: the critical path without what is free, and nothing else in the way; elasticity: per cent of"
    " throughput for a per cent better. HBM bandwidth is a GPU's achieved and peak bandwidth together."
)
OVERHEAD_NOTE = (
    "Shares are of the step; host: Python scheduling, launches, copies and synchronisation, tree build; the"
    " rest: all but the experts."
)
ARTICLES_NOTE = " The articles call that overhead; their figures are of their own closed form."


def lines(studies: Sequence[Study]) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(line)
        for letter, study in zip(ascii_uppercase, studies, strict=False)
        for line in _head(study, f"{letter}  " if len(studies) > 1 else "")
    ]
    parts.append(Text(LUCK_NOTE))
    parts += [Text(), _single(studies[0]) if len(studies) == 1 else _beside(studies), Text()]
    parts += [*_overhead(studies), Text()]
    parts += [Text(line) for study in studies for line in _overlapped(study)]
    parts += [Text(), _alternatives(studies)]
    parts += [Text(line) for study in studies for line in _impossible(study, len(studies) > 1)]
    for study in studies:
        parts += _drivers(study, len(studies) > 1)
    parts += [Text(), *(Text(line) for line in _notes(studies))]
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
            for cell in (_value(value), f"{tok_s:.1f}")
        ]
        table.add_row(Text(swing.name), f"{driver.total:.2f}", f"{driver.first:.2f}", *map(Text, ends))
    asked = per_cent(min(1.0, found.asked_share))
    note = (
        "Total Sobol indices: the share of throughput's variance that stays when all but this is known; of"
        f" {found.parameters} unknowns the {len(found.drivers)} that move it most alone hold {asked} of it."
        " tok/s are of the mean step, without noise."
    )
    return [Text(), table, Text(note)]


def _value(value: object) -> str:
    """A drawn value, in few digits where it is a number."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _head(study: Study, letter: str) -> list[str]:
    setup, base = study.setup, study.base
    machine = setup.machine
    requests = "" if setup.requests == 1 else f"{setup.requests} x "
    return [
        f"{letter}{setup.scenario.question}",
        f"{study.name}: {machine.ranks}x {machine.gpu.name}, {machine.interconnect.name},"
        f" {machine.host.name}, {machine.stack.name}; {setup.model.name}; {drafting_line(setup)}",
        f"{base.tok_s:.1f} tok/s = {requests}{base.mean_length:.2f} tokens / {base.step_s * 1e3:.2f} ms",
    ]


def _table(*columns: str, gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(Text(columns[0]), no_wrap=True)
    for name in columns[1:]:
        table.add_column(Text(name, justify="right"), justify="right", no_wrap=True)
    return table


def _single(study: Study) -> Table:
    """One scenario's levers, the largest of each group first."""
    table = _table("tok/s if it were", "of step", *(d.title for d in Degree), "Amdahl", "elasticity")
    for lever in _in_order([study]):
        if lever is None:
            table.add_row("")
            continue
        effect = study.effect(lever)
        assert effect is not None
        table.add_row(
            Text(lever.value),
            _share(effect),
            *(f"{effect.tok_s[d]:.1f} {_gain(study, effect, d):>7}" for d in Degree),
            _bound(study, effect),
            f"{effect.elasticity:.3f}",
        )
    return table


def _beside(studies: Sequence[Study]) -> Table:
    """The same levers of several scenarios."""
    count = len(studies)
    shown = tuple(Degree) if count <= MOST_IN_FULL else (Degree.FREE,)
    shares = ["of step"] if count <= MOST_WITH_SHARES else []
    names = [*shares, *(DEGREE_NAMES[degree] for degree in shown)]
    heads = [f"{at} {name}" if name == names[0] else name for at in ascii_uppercase[:count] for name in names]
    table = _table("tok/s if it were", *heads, gap=1)
    for lever in _in_order(studies):
        if lever is None:
            table.add_row("")
            continue
        cells: list[str] = []
        for study in studies:
            effect = study.effect(lever)
            gains = ["" for _ in names]
            if effect is not None:
                gains = [*(_share(effect) for _ in shares), *(_gain(study, effect, d) for d in shown)]
            cells += gains
        table.add_row(Text(lever.value), *cells)
    return table


def _in_order(studies: Sequence[Study]) -> list[Lever | None]:
    """Levers group by group, the largest first by the first scenario that has it; None between groups."""
    found: list[Lever | None] = []
    for group in Group:
        own = [lever for lever in Lever if lever.group is group and any(s.effect(lever) for s in studies)]
        found += [*([None] if found else []), *sorted(own, key=lambda lever: -_largest(studies, lever))]
    return found


def _largest(studies: Sequence[Study], lever: Lever) -> float:
    for study in studies:
        effect = study.effect(lever)
        if effect is not None:
            return effect.tok_s[Degree.FREE] / study.base.tok_s
    return 0.0


def _share(effect: Effect) -> str:
    return "" if effect.share is None else per_cent(effect.share)


def _gain(study: Study, effect: Effect, degree: Degree) -> str:
    return change(effect.tok_s[degree] / study.base.tok_s)


def _bound(study: Study, effect: Effect) -> str:
    if effect.bound_tok_s is None:
        return ""
    ratio = effect.bound_tok_s[Degree.FREE] / study.base.tok_s
    return "no bound" if ratio > NO_BOUND else change(ratio)


def per_cent(value: float) -> str:
    """A share with one decimal, never -0.0."""
    return f"{abs(value) if abs(value) < 0.0005 else value:.1%}".replace("%", " %")


def change(ratio: float) -> str:
    """A ratio of throughputs as a change; as a factor from 10 on."""
    if ratio >= 10:
        return f"x{ratio:.1f}"
    value = ratio - 1
    return f"{0.0 if abs(value) < 0.0005 else value:+.1%}".replace("%", " %")


def _overhead(studies: Sequence[Study]) -> list[RenderableType]:
    """Whether overhead dominates: a row a scenario, the articles' own count beside it."""
    compared = [found for study in studies if (found := _weighed_parts(study)) is not None]
    if not compared:
        return []
    claims = [article_overhead(parts.study.setup) for parts in compared]
    head = ("does overhead dominate?", "host", "if free", "experts", "if free", "the rest", "if free")
    table = _table(*head, *(["in the articles"] if any(claims) else []))
    for parts, claim in zip(compared, claims, strict=True):
        cells = [
            cell
            for effect in (parts.host, parts.experts, parts.rest)
            for cell in (_share(effect), _gain(parts.study, effect, Degree.FREE))
        ]
        table.add_row(Text(parts.study.name), *cells, "" if claim is None else _claimed(claim))
    verdicts = [
        Text(f"{parts.study.name}: {_weighed(parts)} {_dominates(parts.host, parts.rest)}")
        for parts in compared
    ]
    return [table, Text(OVERHEAD_NOTE + (ARTICLES_NOTE if any(claims) else "")), *verdicts]


class WeighedParts(NamedTuple):
    """The parts of a step that are set against one another."""

    study: Study
    host: Effect
    experts: Effect
    rest: Effect
    """All but the experts."""


def _weighed_parts(study: Study) -> WeighedParts | None:
    """None for a model without experts."""
    host, experts, rest = (study.effect(lever) for lever in (Lever.HOST, Lever.EXPERTS, Lever.REST))
    if host is None or experts is None or rest is None:
        return None
    return WeighedParts(study, host, experts, rest)


def _claimed(claim: Overhead) -> str:
    """``86.4 % (12.5 of 14.5 ms)``."""
    return f"{per_cent(claim.share)} ({claim.rest_ms:.1f} of {claim.step_ms:.1f} ms)"


def _weighed(parts: WeighedParts) -> str:
    """Which of the two brings more when free."""
    base = parts.study.base.tok_s
    of_host, of_experts = (log(effect.tok_s[Degree.FREE] / base) for effect in (parts.host, parts.experts))
    if of_host > ALIKE * of_experts:
        return "The host weighs more than the experts."
    if of_experts > ALIKE * of_host:
        return "The experts weigh more than the host."
    return "Host and experts weigh about the same."


def _dominates(host: Effect, rest: Effect) -> str:
    """Whether overhead is more than half of the step, counted as host work, or as the articles do."""
    if (host.share or 0.0) > 0.5:
        return "Overhead dominates, host work alone."
    if (rest.share or 0.0) > 0.5:
        return "Overhead dominates as the articles count it, all but the experts, but not as host work."
    return "Overhead does not dominate, however it is counted."


def _overlapped(study: Study) -> list[str]:
    """Levers that others run beside: the critical path promises more than there is."""
    base, found = study.base.tok_s, []
    for effect in study.effects:
        if effect.bound_tok_s is None or effect.lever.group is Group.TOGETHER:
            continue
        bound = effect.bound_tok_s[Degree.FREE] / base - 1
        gain = effect.gain(Degree.FREE, base)
        if bound > SMALL_GAIN and gain < HIDDEN * bound:
            found.append(f"{effect.lever.value} {change(1 + gain)} of {change(1 + bound)}")
    return [f"{study.name}: overlap takes back what Amdahl promises for {', '.join(found)}."] if found else []


def _alternatives(studies: Sequence[Study]) -> Table:
    """Choices, each instead of what the scenario has."""
    count = len(studies)
    in_full = count <= MOST_WITH_SHARES
    letters = ascii_uppercase[:count] if count > 1 else " "
    heads = [head for at in letters for head in ((f"{at} tok/s".strip(), "") if in_full else (at,))]
    table = _table("instead", *heads, *([""] if count <= MOST_IN_FULL else []))
    names = dict.fromkeys(
        (alternative.choice.kind, alternative.choice.name)
        for study in studies
        for alternative in study.alternatives
        if alternative.tok_s is not None
    )
    kinds = list(dict.fromkeys(kind for kind, _ in names))
    for key in sorted(names, key=lambda key: kinds.index(key[0])):
        found = [_chosen(study, key) for study in studies]
        pairs = [_chosen_cells(study, each) for study, each in zip(studies, found, strict=True)]
        cells = [cell for pair in pairs for cell in (pair if in_full else pair[1:])]
        notes = dict.fromkeys(each.note for each in found if each is not None and each.note)
        table.add_row(Text(key[1]), *cells, *([Text("; ".join(notes))] if count <= MOST_IN_FULL else []))
    return table


def _chosen(study: Study, key: tuple[str, str]) -> Alternative | None:
    return next((a for a in study.alternatives if (a.choice.kind, a.choice.name) == key), None)


def _chosen_cells(study: Study, alternative: Alternative | None) -> list[str]:
    if alternative is None or alternative.tok_s is None:
        return ["", ""]
    return [f"{alternative.tok_s:.1f}", change(alternative.tok_s / study.base.tok_s)]


def _impossible(study: Study, named: bool) -> list[str]:
    """Choices that cannot be simulated, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for alternative in study.alternatives:
        if alternative.tok_s is None:
            reason = "no room in memory" if "needs" in alternative.problem else alternative.problem
            by_reason.setdefault(reason, []).append(alternative.choice.name.split(",")[0])
    where = f"{study.name}: " if named else ""
    return [f"{where}not possible: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]


def _notes(studies: Sequence[Study]) -> Iterator[str]:
    yield DEGREES_NOTE
    yield TRANSFER_NOTE
    yield AMDAHL_NOTE
    widest = max(effect.half_width for study in studies for effect in study.effects)
    yield f"What luck is left in these throughputs over the scenario's is {per_cent(widest)} or less (95 %)."
    if all(follows_from_tree(study.setup.scenario) for study in studies):
        yield "Other blocks and budgets land what a drafter of the same accuracy lands with them."
    else:
        yield "Other blocks and budgets are left out where acceptance does not follow from the tree."


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
    base, claim = study.base, article_overhead(study.setup)
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
        "articles_overhead": None if claim is None else claim._asdict() | {"share": claim.share},
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
    parts.append(
        Text(
            "fair: the mean over all orders in which they may be made (Shapley), so that these multiply to"
            " the whole; brackets: both ends of the range of acceptance lengths. What they cost is not in it."
        )
    )
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
