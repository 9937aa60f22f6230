"""``sweep``: a grid of scenarios."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli.shared import (
    EXIT_CELLS_FAILED,
    EXIT_INTERRUPTED,
    HtmlOption,
    JsonOption,
    QuietOption,
    SetOption,
    app,
    prepare_page,
    progress,
    results_folder,
    show,
    write_page,
)

if TYPE_CHECKING:
    from sim.sweeps.conduct import Pool


@app.command()
def sweep(
    target: Annotated[
        str,
        typer.Argument(metavar="SCENARIO", help="A scenario or a sweep file, or the name of a shipped one."),
    ],
    axis: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="A scenario key and its values: 4,8,16 or 4..64*2 (doubling) or 2..16:2 (steps of 2) or"
            " names. A mapping replaces all that the key has. Repeatable.",
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Independent runs of every cell.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed, the same in every cell.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of this machine; one per core by default.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler (tcp://host:port), or local:N to start one with N workers."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results go to OUT/<sweep>/; results/sweeps/ by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the cells that OUT has.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Run again what OUT has.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Run a grid of scenarios on common luck; find the best cell and what it owes its place to.

    Finished cells are kept at once: after Ctrl-C, a crash or a power cut, --resume goes on.
    Exit code 3 says that some cells failed; they are listed, and the others are complete.
    """
    from sim.html import sweep_page
    from sim.scenario import parse_override
    from sim.sweeps import report
    from sim.sweeps.plan import from_target
    from sim.sweeps.run import IfStored
    from sim.sweeps.run import sweep as run_sweep
    from sim.sweeps.store import Store

    if resume and restart:
        raise typer.BadParameter("give --resume or --restart, not both")
    if cluster is not None and workers is not None:
        raise typer.BadParameter("--workers counts processes of this machine; with --cluster say local:N")
    changes = [parse_override(text) for text in set_ or []]
    changes += [("runs", runs, "--runs")] if runs is not None else []
    changes += [("seed", seed, "--seed")] if seed is not None else []
    plan = from_target(target, axis or [], changes)
    folder = results_folder(out, "sweeps", False, plan.name)
    prepare_page(html)
    if_stored = IfStored.RESUME if resume else IfStored.RESTART if restart else IfStored.REFUSE
    try:
        with progress(len(plan.cells), quiet or as_json, "cells") as advance:
            result = run_sweep(plan, folder, if_stored, pool_of(workers, cluster), advance)
    except KeyboardInterrupt:
        with closing(Store(folder)) as store:
            count = f"{len(store):,} of {len(plan.cells):,}"
        print(f"interrupted; {count} cells are finished in {folder}/, --resume goes on", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    write_page(lambda: sweep_page.page(result), html)
    written = f"{folder}/: cells.csv and .parquet, runs.parquet, sweep.json, report.txt, pictures"
    if result.reused:
        written += f"\n{result.reused:,} of the cells were there from before."
    show(report.lines(result), lambda: report.as_object(result), written, as_json, quiet, html)
    if result.errors:
        raise typer.Exit(EXIT_CELLS_FAILED)


def pool_of(workers: int | None, cluster: str | None) -> Pool:
    """How to get the workers that were asked for."""
    from sim.sweeps import executors

    if cluster is not None:
        return lambda: executors.cluster(cluster)
    count = workers or _cores()
    return lambda: executors.processes(count)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
