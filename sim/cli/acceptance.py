"""``acceptance``: what a tree is worth, and lengths from logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.choices import Counts, Definition, Shape
from sim.cli.shared import (
    JsonOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
    acceptance,
    results_folder,
    show,
)


@acceptance.command("show")
def acceptance_show(
    scenario: ScenarioArgument,
    out: Annotated[
        Path | None, typer.Option(help="Results go to OUT/<scenario>/; results/acceptance/ by default.")
    ] = None,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Show what a draft tree is worth: acceptance lengths, and what budgets and blocks would change."""
    from sim import files
    from sim.shipped import find
    from sim.trees import pictures, report, view

    path = find(scenario)
    shown = view.of(view.load(path, tuple(set_ or [])))
    folder = results_folder(out, "acceptance", False, path.stem)
    files.prepare(folder)
    text = report.lines(shown)
    names = report.write(shown, text, folder)
    names += [] if no_pictures else pictures.write(shown, folder)
    show(text, lambda: report.as_object(shown), f"{folder}/: {', '.join(names)}", as_json, quiet)


@acceptance.command("fit")
def acceptance_fit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A log of vLLM, SGLang or llama.cpp, or lengths step by step: CSV or JSON lines, or our own"
            " steps.csv.",
        ),
    ],
    drafts: Annotated[
        int | None,
        typer.Option(min=1, max=255, help="Tokens that a step drafts, where the log does not say."),
    ] = None,
    definition: Annotated[
        Definition | None, typer.Option(help="What SGLang's accept rate is a share of, where several fit.")
    ] = None,
    counts: Annotated[
        Counts | None, typer.Option(help="Whether plain lengths count the target's own token.")
    ] = None,
    constant: Annotated[
        bool, typer.Option("--constant", help="One hazard for all positions instead of one for each.")
    ] = False,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Nodes of the tree that landed them: fits the drafter's accuracy too."
        ),
    ] = None,
    shape: Annotated[Shape | None, typer.Option(help="Shape of that tree; ddtree by default.")] = None,
    off_spine: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="What a chance keeps off the first choices; 0.3 if unsaid."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of intervals and simulated logs.")] = 1,
    bootstrap: Annotated[
        int, typer.Option(min=100, max=100_000, help="Logs drawn anew for the intervals.")
    ] = 2000,
    as_json: JsonOption = False,
    yaml_only: Annotated[
        bool, typer.Option("--yaml-only", help="Print the lines for a scenario and nothing else.")
    ] = False,
) -> None:
    """Fit the acceptance model to a log: how sure it is, how well it fits, what to write in a scenario."""
    from sim import files
    from sim.logs import report
    from sim.logs.accuracy import LandedBy, fit_accuracy
    from sim.logs.checks import check
    from sim.logs.fit import fit
    from sim.logs.fitted import Settings
    from sim.logs.observed import Options
    from sim.logs.reading import read

    if as_json and yaml_only:
        raise typer.BadParameter("give --json or --yaml-only, not both")
    if budget is None and (shape is not None or off_spine is not None):
        raise typer.BadParameter("--shape and --off-spine speak of the tree of --budget")
    if budget is not None and yaml_only:
        raise typer.BadParameter("--yaml-only prints the lines of a scenario; with --budget say --json")
    fitted = fit(read(file, Options(drafts, definition, counts)), Settings(constant, bootstrap, seed))
    if yaml_only:
        print(fitted.as_yaml(), end="")
        return
    checks = check(fitted)
    accuracy = None if budget is None else fit_accuracy(fitted, LandedBy.of(budget, shape, off_spine))
    print(
        files.as_json(report.as_object(fitted, checks, accuracy))
        if as_json
        else "\n".join(report.lines(fitted, checks, accuracy))
    )
