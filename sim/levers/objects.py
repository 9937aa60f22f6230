"""Levers as an object and as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim import digests, files
from sim.article import article_overhead
from sim.levers.drivers import Drivers
from sim.levers.effects import Effect
from sim.levers.kinds import Degree
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study

FORMAT_VERSION = 1
"""1 (2026-12): first."""
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


def as_object(studies: Sequence[Study]) -> dict[str, Any]:
    """Everything, for other programs."""
    return {
        "format_version": FORMAT_VERSION,
        "runs": RUNS,
        "steps_per_run": STEPS,
        "scenarios": [_study_object(study) for study in studies],
        "provenance": digests.provenance(),
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
