"""The command line of the microbenchmarks: the only module here that prints or exits."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cuda.build import BuildError
from cuda.campaign import Failure
from cuda.device import DeviceError
from cuda.plan import PlanName
from cuda.session import Options, Session, SessionError, session
from hwmodels.cases import Op, words
from hwmodels.errors import DocumentError, in_one_line
from hwmodels.measured import Ceilings, Point

EXIT_USER_ERROR = 2
EXIT_POINTS_FAILED = 3
EXIT_DEVICE_FAILED = 4
EXIT_INTERRUPTED = 130
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a campaign with what it has."""
WRITE_EVERY = 25
"""Points after which the file is written again, so that little is lost with the machine."""

EPILOG = (
    f"Exit codes: 0 done; {EXIT_USER_ERROR} nothing could begin; {EXIT_POINTS_FAILED} some points are not"
    f" measured; {EXIT_DEVICE_FAILED} the GPU failed; {EXIT_INTERRUPTED} interrupted. What was measured"
    " before is kept."
)

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Printer:
    """Says what came of each point, and writes the file now and then."""

    def __init__(self, running: Session, bar: Progress) -> None:
        self._running = running
        self._bar = bar
        self._task = bar.add_task("points", total=running.campaign.visits_left)
        self._heard = 0

    def on_point(self, point: Point) -> None:
        line = point_line(point, self._running.header.ceilings)
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._heard += 1
        if self._heard % WRITE_EVERY == 0:
            self._running.write()
        self._bar.advance(self._task)

    def on_failure(self, failure: Failure) -> None:
        print(f"not measured: {failure.subject.series.value} {failure.reason}", file=sys.stderr)
        self._bar.update(self._task, total=self._heard + self._running.campaign.visits_left)


def point_line(point: Point, ceilings: Ceilings) -> str:
    """Median, spread, floor and achieved fraction of a point, and what its floor leaves out."""
    parts = [f"median {point.median_us:.2f} us", f"IQR {100 * point.relative_iqr:.1f} %"]
    if point.achieved is not None:
        parts += [f"floor {point.floor_us:.2f} us", f"achieved {100 * point.achieved:.0f} %"]
        parts += ["no compute ceiling"] if point.flops and ceilings.bf16_tflops is None else []
    if point.discarded:
        parts += [f"{count} {reason.value}" for reason, count in point.discarded.items()]
    counted = f"{len(point.samples_us)} samples, {point.stop.value}"
    return f"{words(point.case)}, {point.series.value}: {', '.join(parts)} ({counted})"


@app.command(epilog=EPILOG)
def measure(
    plan: Annotated[
        PlanName,
        typer.Option(help="A decode step of this model; tiny: small sizes of every op, to try a machine."),
    ],
    out: Annotated[Path, typer.Option(help="The measured file to write, such as my_gpu.jsonl.")],
    short: Annotated[
        bool, typer.Option("--short", help="About a third of the points, and fewer samples of each.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file where it is unfinished.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of inputs, routing and the order of points.")] = 1,
    device: Annotated[int, typer.Option(min=0, help="Number of the GPU, as CUDA counts.")] = 0,
    only: Annotated[
        list[Op] | None,
        typer.Option(metavar="OP", help=f"Only this op: {', '.join(op.value for op in Op)}. Repeatable."),
    ] = None,
) -> None:
    """Check the kernels on this GPU, time them, and write a measured file."""
    options = Options(plan, short, out, resume, seed, device, tuple(only or ()))
    try:
        with _every_end_an_interrupt(), session(options) as running:
            _run(running)
    except KeyboardInterrupt:
        print(_kept(out, "interrupted"), file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except DeviceError as problem:
        print(_kept(out, f"error: the device failed: {problem}"), file=sys.stderr)
        raise typer.Exit(EXIT_DEVICE_FAILED) from None
    except OSError as problem:
        why = f"{problem.filename or 'output'}: {problem.strerror or problem}"
        print(in_one_line(_kept(out, f"error: {why}")), file=sys.stderr)
        raise typer.Exit(EXIT_USER_ERROR) from None
    failures = running.campaign.failures
    print(f"Written to {out}: {len(running.campaign.points)} points")
    if failures:
        print(f"{len(failures)} points are not measured", file=sys.stderr)
        raise typer.Exit(EXIT_POINTS_FAILED)


def _run(running: Session) -> None:
    """Measure and write, whatever ends it."""
    try:
        with _progress() as bar:
            running.campaign.run(running.header.ceilings, _Printer(running, bar))
    finally:
        with _signals(dict.fromkeys(ENDS, signal.SIG_IGN)):
            running.write()


@contextmanager
def _every_end_an_interrupt() -> Iterator[None]:
    """A machine that is taken away and a line that is cut end it as Ctrl-C does; what is ignored stays so."""
    kept = {each: signal.default_int_handler for each in ENDS if signal.getsignal(each) is signal.SIG_DFL}
    with _signals(kept):
        yield


@contextmanager
def _signals(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """*handlers* are in place in here; only the main thread has any."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for each, handler in handlers.items():
                before[each] = signal.signal(each, handler)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _kept(out: Path, ended: str) -> str:
    """How it *ended*, and whether there is a file to go on with."""
    if out.exists():
        return f"{ended}; what was measured is in {out}, --resume goes on"
    return f"{ended} before the first point; nothing is written"


@contextmanager
def _progress() -> Iterator[Progress]:
    console = Console()
    columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        yield bar


def main() -> None:
    """Run the command line; what the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except (BuildError, DocumentError, SessionError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
