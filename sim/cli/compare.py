"""``compare``: scenarios against one another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared import (
    HtmlOption,
    JsonOption,
    QuietOption,
    SetOption,
    app,
    interruptible,
    prepare_page,
    progress,
    results_folder,
    show,
    write_page,
)


@app.command()
def compare(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Scenario files, or names of shipped ones, 2 to 6; all others are compared with the first.",
        ),
    ],
    runs: Annotated[
        int | None, typer.Option(help="Runs of every scenario; the first one's number by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of every scenario; the first one's by default.")
    ] = None,
    independent: Annotated[
        bool,
        typer.Option("--independent", help="Give every scenario other luck: seeds that follow the first's."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<A>-<B>/. By default results/compare/, or results/changed/compare/ where"
            " options change the scenarios."
        ),
    ] = None,
    no_uncertainty: Annotated[
        bool,
        typer.Option(
            "--no-uncertainty", help="Only the luck of the runs; draw nothing of what is not known."
        ),
    ] = False,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Compare scenarios on common luck: how much faster, how sure, and where the difference arises.

    Runs are paired by their index, so that luck cancels; what is not known is drawn together where it is the
    same in both. A difference that is not distinguishable is called so. --set changes all scenarios.
    """
    from sim import files
    from sim.comparison import pictures, report
    from sim.comparison.intervals import Pairing
    from sim.comparison.study import Task, entrants
    from sim.html import compare_page
    from sim.uncertainty.total import DRAWS

    if not 2 <= len(scenarios) <= report.MOST_SCENARIOS:
        raise typer.BadParameter(f"give 2 to {report.MOST_SCENARIOS} scenarios, got {len(scenarios)}")
    pairing = Pairing.INDEPENDENT if independent else Pairing.COMMON
    changes = [("runs", runs, "--runs")] if runs is not None else []
    changes += [("seed", seed, "--seed")] if seed is not None else []
    sides = entrants(scenarios, changes, set_ or [], pairing)
    said = [*(set_ or []), *(f"{key}={value}" for key, value, _ in changes)]
    changed = bool(said) or independent
    folder = results_folder(out, "compare", changed, "-".join(side.path.stem for side in sides))
    files.prepare(folder)
    prepare_page(html)
    task = Task(sides, pairing, 0 if no_uncertainty else DRAWS, tuple(said))
    with interruptible(), progress(task.size, quiet or as_json, "runs and draws") as advance:
        study = task.done(advance)
    text = report.lines(study)
    names = report.write(study, text, folder)
    names += [] if no_pictures else pictures.write(study, folder)
    write_page(lambda: compare_page.page(study), html)
    written = f"{folder}/: {', '.join(names)}"
    show(text, lambda: report.as_object(study), written, as_json, quiet, html)
