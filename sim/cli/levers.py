"""``levers``: parts of a step made better, and investments combined."""

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
    load,
    prepare_page,
    progress,
    results_folder,
    show,
    stems_of,
    write_page,
)


@app.command()
def levers(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO...",
            help="Scenario files, or names of shipped ones, 6 at most; with --investments a plan.",
        ),
    ] = None,
    investments: Annotated[
        bool,
        typer.Option(
            "--investments",
            help="Instead of levers: every combination of a plan's investments; the shipped plan by default.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<scenarios>/. By default results/levers/, or results/changed/levers/"
            " where options change the scenario."
        ),
    ] = None,
    no_uncertainty: Annotated[
        bool, typer.Option("--no-uncertainty", help="Leave out what drives the uncertainty.")
    ] = False,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Show what throughput would be if each part of a step, or parameter, were better, or free.

    Every lever plays the same steps again with the same luck, so overlap and the critical path decide, not
    shares; Amdahl's bound stands beside it. Below: other blocks, budgets, engines and GPUs, and what drives
    the uncertainty (total Sobol indices).
    """
    from sim import files
    from sim.html import levers_page
    from sim.levers import objects, pictures, report
    from sim.levers.study import Task

    if investments:
        _investments(scenarios or ["articles"], out, html, as_json, quiet, set_)
        return
    if not scenarios:
        raise typer.BadParameter("give a scenario, or --investments")
    if len(scenarios) > report.MOST_SCENARIOS:
        raise typer.BadParameter(f"at most {report.MOST_SCENARIOS} scenarios share a table")
    loaded = [load(name, set_ or []) for name in dict.fromkeys(scenarios)]
    stems = stems_of([path for path, _ in loaded])
    folder = results_folder(out, "levers", bool(set_), "-".join(stems))
    files.prepare(folder)
    prepare_page(html)
    with interruptible():
        tasks = [Task.of(path.stem, setup, not no_uncertainty) for path, setup in loaded]
        with progress(sum(task.size for task in tasks), quiet or as_json, "levers") as advance:
            studies = [task.done(advance) for task in tasks]
    text = report.lines(studies)
    names = objects.write(studies, text, folder)
    names += [] if no_pictures else pictures.write(studies, folder)
    write_page(lambda: levers_page.page(studies, set_ or []), html)
    written = f"{folder}/: {', '.join(names)}"
    show(text, lambda: objects.as_object(studies), written, as_json, quiet, html)


def _investments(
    plans: list[str], out: Path | None, html: Path | None, as_json: bool, quiet: bool, set_: list[str] | None
) -> None:
    """Play every combination of a plan's investments, and report."""
    from sim import files
    from sim.html import investments_page
    from sim.levers import investment_report
    from sim.levers.investments import find, play, prepare

    if len(plans) > 1:
        raise typer.BadParameter(f"--investments takes one plan, got {', '.join(plans)}")
    if set_:
        raise typer.BadParameter("--set changes scenarios; a plan of investments has a 'set' of its own")
    path = find(plans[0])
    prepared = prepare(path)
    folder = results_folder(out, "levers", False, f"investments-{path.stem}")
    files.prepare(folder)
    prepare_page(html)
    with interruptible(), progress(prepared.combinations, quiet or as_json, "combinations") as advance:
        found = play(prepared, advance)
    text = investment_report.investment_lines(found)
    names = investment_report.write_investments(found, text, folder)
    write_page(lambda: investments_page.page(found), html)
    written = f"{folder}/: {', '.join(names)}"
    show(text, lambda: investment_report.investments_object(found), written, as_json, quiet, html)
