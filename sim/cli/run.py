"""``run``: one scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.choices import EngineName
from sim.cli.shared import (
    EXIT_INTERRUPTED,
    HtmlOption,
    JsonOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
    app,
    fail,
    interruptible,
    load,
    prepare_page,
    progress,
    results_folder,
    show,
    write_page,
)

if TYPE_CHECKING:
    from sim.setup import Setup


@app.command()
def run(
    scenario: ScenarioArgument,
    runs: Annotated[
        int | None, typer.Option(help="Independent runs; the scenario's number by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; the scenario's by default.")] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="batch: compiled, the first runs played again on SimPy; simpy: all runs there."),
    ] = EngineName.BATCH,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<scenario>/. By default results/, or results/changed/ where options"
            " change the scenario."
        ),
    ] = None,
    no_uncertainty: Annotated[
        bool,
        typer.Option(
            "--no-uncertainty", help="Only the luck of the runs; draw nothing of what is not known."
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write every kernel of some steps of run 0, for ui.perfetto.dev; .gz is packed.",
        ),
    ] = None,
    trace_steps: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:STOP", help="Steps of the trace, such as 0:4 (the default) or 7 for one alone."
        ),
    ] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Simulate whole decode runs of a scenario and report the distribution of throughput.

    Once at the best values of everything, and once with everything drawn that is not known exactly.
    """
    from sim import files, output, report
    from sim.answer import answer, total_runs
    from sim.html import run_page
    from sim.uncertainty.total import DRAWS

    overrides = [*(set_ or [])]
    overrides += [f"runs={runs}"] if runs is not None else []
    overrides += [f"seed={seed}"] if seed is not None else []
    path, setup = load(scenario, overrides)
    folder = results_folder(out, "", bool(overrides), path.stem)
    files.prepare(folder)
    prepare_page(html)
    traced = _traced(setup, engine, trace, trace_steps, hidden=quiet or as_json)
    draws = 0 if no_uncertainty else DRAWS
    with (
        interruptible("interrupted before the first run ended; nothing is written"),
        progress(total_runs(setup) + draws, hidden=quiet or as_json) as advance,
    ):
        heard = None if no_uncertainty else advance
        result = answer(setup, engine, (lambda _: advance(),), tuple(overrides), heard)
    text = report.lines(result)
    output.write(result, text, folder)
    write_page(lambda: run_page.page(result), html)
    written = f"{folder}/: summary.json, report.txt, runs.csv, steps.csv, costs.csv, scenario.json{traced}"
    show(text, lambda: output.summary_object(result), written, as_json, quiet, html)
    if result.interrupted is not None:
        raise typer.Exit(EXIT_INTERRUPTED)


def _traced(setup: Setup, engine: EngineName, path: Path | None, asked: str | None, hidden: bool) -> str:
    """What to say about the trace that was written first: nothing where none was asked for."""
    if path is None:
        if asked is not None:
            raise typer.BadParameter("--trace-steps speaks of the trace of --trace FILE")
        return ""
    from sim import files
    from sim.op_steps import steps_of
    from sim.simulate import Simulation
    from sim.tracing import chosen, file

    simulation = Simulation(setup, engine)
    try:
        files.prepare_file(path, file.ENDINGS)
        steps = chosen.of_run(asked, steps_of(simulation, file.RUN))
    except ValueError as problem:
        fail(f"--trace: {problem}")
    with (
        interruptible("interrupted while the trace was written; nothing is there"),
        progress(len(steps), hidden, "steps of the trace") as advance,
    ):
        written = file.write(simulation, steps, path, engine, advance)
    return f"\nTraced {written}: {path}, to be opened at ui.perfetto.dev"
