"""``calibrate``: what published measurements teach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli.shared import (
    JsonOption,
    QuietOption,
    SetOption,
    app,
    interruptible,
    progress,
    results_folder,
    show,
    stems_of,
)

if TYPE_CHECKING:
    from sim.calibration.study import Calibration


@app.command()
def calibrate(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO...", help="What to predict: scenario files, or names of shipped ones."
        ),
    ],
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Learn from: 'anchor' (the measurement that SCENARIO names), other scenarios by their"
            " anchors (b300_now,pro6000_now), or rows of a file of cases (cases.csv:C002,C113/baseline)."
            " Repeatable.",
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=64, max=16384, help="Draws of what is not known; best a power of two.")
    ] = 2048,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<scenarios>/. By default results/calibrations/, or"
            " results/changed/calibrations/ where options change a scenario."
        ),
    ] = None,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Let published measurements teach what is not known, and predict with what they leave possible.

    Every uncertain figure has a prior from its source; so has what the model lacks, from published cases on
    other systems. Draws that agree with the measurements stay (importance sampling). Written is a posterior
    that any scenario may name (calibration: FOLDER): run then draws from it. Each measurement is also
    predicted from the others alone.
    """
    from sim.shipped import find

    paths = [find(name) for name in dict.fromkeys(scenarios)]
    folder = results_folder(out, "calibrations", bool(set_), "-".join(stems_of(paths)))
    found = _calibrated(paths, to, tuple(set_ or ()), (draws, seed), folder, hidden=quiet or as_json)
    from sim.calibration import pictures, report

    text = report.lines(found)
    names = report.write(found, text, folder)
    names += [] if no_pictures else pictures.write(found, folder)
    show(text, lambda: report.as_object(found), f"{folder}/: {', '.join(names)}", as_json, quiet)


def _calibrated(
    paths: list[Path],
    to: list[str] | None,
    changes: tuple[str, ...],
    size: tuple[int, int],
    folder: Path,
    hidden: bool,
) -> Calibration:
    """What the measurements *to* teach of the scenarios at *paths*, in draws and with a seed of *size*."""
    from sim import files
    from sim.calibration.observed import Predicted
    from sim.calibration.study import Task
    from sim.calibration.wanted import ANCHOR, observations
    from sim.scenario import load

    anchored = [(path.stem, load(path)) for path in paths]
    asked = [(path.stem, load(path, changes)) for path in paths]
    draws, seed = size
    with interruptible():
        observed = observations(to or [ANCHOR], anchored)
        files.prepare(folder)
        predicted = [Predicted.of(name, scenario) for name, scenario in asked]
        task = Task.of(observed, predicted, seed, draws, changes)
        with progress(task.size, hidden, "draws") as advance:
            return task.done(advance)
