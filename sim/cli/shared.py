"""What all commands share: options, folders, progress, interrupts, pages, and how a result is shown.

Commands import what they need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from sim.html.page import Page
    from sim.setup import Setup

EXIT_USER_ERROR = 2
EXIT_CELLS_FAILED = 3
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
acceptance = typer.Typer(help="Look into how many tokens a step lands.", no_args_is_help=True)
app.add_typer(acceptance, name="acceptance")


ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a scenario key, such as tree.budget=16. A mapping, such as"
        " 'acceptance={mean_length: 5}', replaces all that the key has. Repeatable.",
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE.html", help="Write the report as one page with pictures, to hand on."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bar and no report; files only.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def load(scenario: str, overrides: list[str]) -> tuple[Path, Setup]:
    """The scenario's path and everything it names, looked up."""
    from sim.scenario import load
    from sim.setup import resolve
    from sim.shipped import find

    path = find(scenario)
    return path, resolve(load(path, tuple(overrides)))


def stems_of(paths: Sequence[Path]) -> list[str]:
    """Names of *paths* without endings; refused where two are the same, for results are kept by them."""
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        raise typer.BadParameter(f"scenarios need names of their own, got {', '.join(stems)}")
    return stems


def results_folder(out: Path | None, kind: str, changed: bool, name: str) -> Path:
    """Where results go: under *out*, or ``results/<kind>``, apart where options *changed* what is asked."""
    return (out or Path("results", *(["changed"] if changed else []), kind)) / name


@contextmanager
def interruptible(what: str = "interrupted; nothing is written") -> Iterator[None]:
    """Ctrl-C inside ends the program, which says *what* became of its work."""
    try:
        yield
    except KeyboardInterrupt:
        print(what, file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def progress(total: int, hidden: bool, what: str = "runs") -> Iterator[Callable[[], None]]:
    """A progress bar on stderr that the yielded function advances; nothing where *hidden*."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=hidden or not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def show(
    text: Sequence[str],
    as_object: Callable[[], object],
    written: str,
    as_json: bool,
    quiet: bool,
    html: Path | None = None,
) -> None:
    """Print a report and where it was *written*, or its object alone; nothing where *quiet*."""
    from sim import files

    if as_json:
        print(files.as_json(as_object()))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {written}")
        if html is not None:
            print(f"Report to hand on: {html}")


def prepare_page(path: Path | None) -> None:
    """Prove that a page can be written where one is asked for."""
    if path is None:
        return
    from sim import files
    from sim.html.page import ENDINGS

    try:
        files.prepare_file(path, ENDINGS)
    except ValueError as problem:
        fail(f"--html: {problem}")


def write_page(make: Callable[[], Page], path: Path | None) -> None:
    """Write the page of a report, where one is asked for; everything else is on disk by then."""
    if path is None:
        return
    from sim import files
    from sim.html import page

    with interruptible(f"interrupted while {path} was written; everything else is there"):
        files.replace(path, page.render(make()))


def fail(message: str) -> NoReturn:
    """End the program for what is wrong in the user's files or options."""
    from hwmodels.errors import in_one_line

    print(f"error: {in_one_line(message)}", file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)
