"""The file of a trace: JSON, gzip where its name says so; whole or not there at all."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from sim import __version__, files
from sim.choices import EngineName
from sim.op_steps import op_steps
from sim.simulate import Simulation
from sim.tracing.events import Event, Events

ENDINGS = (".json", ".gz")
"""Of a name; the second is packed."""
RUN = 0
"""The run that is traced."""


class Written(NamedTuple):
    """What a trace has."""

    steps: range
    events: int

    def __str__(self) -> str:
        first, last = self.steps.start, self.steps.stop - 1
        shown = f"step {first}" if first == last else f"steps {first} to {last}"
        return f"{shown} of run {RUN}, {self.events:,} events"


def write(
    simulation: Simulation,
    steps: range,
    path: Path,
    engine: EngineName = EngineName.BATCH,
    advance: Callable[[], None] = lambda: None,
) -> Written:
    """Write *steps* of the first run of *simulation* to *path*; *advance* hears of each step."""
    scenario, written = simulation.setup.scenario, 0
    about = {
        "question": scenario.question,
        "run": RUN,
        "steps": [steps.start, steps.stop],
        "seed": scenario.seed,
        "specdec_sim": __version__,
    }
    with files.replacing(path) as temporary, _opened(temporary, path.suffix == ".gz") as stream:
        stream.write(f'{{"otherData":{_json(about)},"traceEvents":[')
        for event in _events(simulation, steps, engine, advance):
            stream.write(f"{',' if written else ''}\n{_json(event)}")
            written += 1
        stream.write("\n]}\n")
    return Written(steps, written)


def _events(
    simulation: Simulation, steps: range, engine: EngineName, advance: Callable[[], None]
) -> Iterator[Event]:
    events = Events(simulation.pieces, simulation.base.sources(), RUN)
    yield from events.names()
    for step in op_steps(simulation, RUN, steps, engine):
        yield from events.of_step(step)
        advance()


def _json(value: object) -> str:
    """Compact and strict."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[IO[str]]:
    """*path* for writing text; packed with neither name nor time, so that its bytes say only the trace."""
    with path.open("wb") as raw:
        if not packed:
            with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream:
                yield stream
            return
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as whole,
            io.TextIOWrapper(whole, encoding="utf-8", newline="\n") as stream,
        ):
            yield stream
