"""The command line: the only module that prints or exits.

Commands import what they need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.choices import EngineName

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.setup import Setup

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

app = typer.Typer(
    name="specdec-sim",
    help="Simulate multi-GPU speculative decoding: how many tokens per second, how sure, and what bounds it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
hardware = typer.Typer(help="Look into the hardware catalog.", no_args_is_help=True)
app.add_typer(hardware, name="hardware")


ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a scenario key, such as tree.budget=16. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


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
    as_json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar and no report; files only.")
    ] = False,
    set_: SetOption = None,
) -> None:
    """Simulate whole decode runs of a scenario and report the distribution of throughput."""
    from sim import output, report
    from sim.answer import answer, total_runs

    overrides = [*(set_ or [])]
    overrides += [f"runs={runs}"] if runs is not None else []
    overrides += [f"seed={seed}"] if seed is not None else []
    path, setup = _load(scenario, overrides)
    folder = (out or Path("results/changed" if overrides else "results")) / path.stem
    output.prepare(folder)
    try:
        with _progress(total_runs(setup), hidden=quiet or as_json) as advance:
            result = answer(setup, engine, (lambda _: advance(),), tuple(overrides))
    except KeyboardInterrupt:
        print("interrupted before the first run ended; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = report.lines(result)
    output.write(result, text, folder)
    if as_json:
        print(output.as_json(output.summary_object(result)))
    elif not quiet:
        print("\n".join(text))
        print(
            f"\nWritten to {folder}/: summary.json, report.txt, runs.csv, steps.csv, costs.csv, scenario.json"
        )
    if result.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def estimate(scenario: ScenarioArgument, as_json: JsonOption = False, set_: SetOption = None) -> None:
    """Show the articles' closed-form estimate beside the same lines from measured tables."""
    from sim import listing, output
    from sim.article import closed_form

    _, setup = _load(scenario, set_ or [])
    form = closed_form(setup)
    print(
        output.as_json(listing.closed_form_object(form))
        if as_json
        else "\n".join(listing.closed_form_lines(form))
    )


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    from sim import output
    from sim.scenario import schema as scenario_schema

    print(output.as_json(scenario_schema()))


@app.command()
def bench(
    scenario: ScenarioArgument = "b300_strong_drafter", as_json: JsonOption = False, set_: SetOption = None
) -> None:
    """Measure the simulator's own speed against bare SimPy, in one run."""
    from dataclasses import asdict

    from sim import listing, output
    from sim.bench import benchmark

    _, setup = _load(scenario, set_ or [])
    result = benchmark(setup)
    print(output.as_json(asdict(result)) if as_json else "\n".join(listing.benchmark_lines(result)))


@hardware.command("list")
def hardware_list() -> None:
    """List every catalog entry."""
    from sim import listing

    print("\n".join(listing.hardware_list()))


@hardware.command("show")
def hardware_show(
    name: Annotated[str, typer.Argument(help="An entry's name, such as b300_sxm.")],
    as_json: JsonOption = False,
) -> None:
    """Print one catalog entry with the source of every figure."""
    from hwmodels import catalog
    from sim import listing

    kind, entry = catalog.find(name)
    print(entry.model_dump_json(indent=2) if as_json else "\n".join(listing.hardware_entry(kind, entry)))


def _load(scenario: str, overrides: list[str]) -> tuple[Path, Setup]:
    """The scenario's path and everything it names, looked up."""
    from sim.scenario import load
    from sim.setup import resolve
    from sim.shipped import find

    path = find(scenario)
    return path, resolve(load(path, tuple(overrides)))


@contextmanager
def _progress(total: int, hidden: bool) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr that the yielded function advances; nothing where *hidden*."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=hidden or not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda: bar.advance(task)


def main() -> None:
    """Run the command line; user errors go to stderr with exit code 2."""
    from hwmodels.errors import DocumentError, HardwareError

    for stream in (sys.stdout, sys.stderr):
        # The report has block characters; a terminal that cannot show them gets question marks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (DocumentError, HardwareError) as problem:
        _fail(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as problem:
        _fail(f"{problem.filename or 'file'}: {problem.strerror or problem}")


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)
