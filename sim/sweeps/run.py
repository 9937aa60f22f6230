"""A sweep from plan to files."""

from __future__ import annotations

from contextlib import closing
from enum import Enum
from pathlib import Path

from sim import files
from sim.sweeps import pictures, report, tables
from sim.sweeps.conduct import Pool, Progress, conduct
from sim.sweeps.errors import SweepError
from sim.sweeps.plan import Plan
from sim.sweeps.result import SweepResult, result_of
from sim.sweeps.store import Store


class IfStored(Enum):
    """What to do with cells that the folder has from before."""

    REFUSE = "refuse"
    RESUME = "resume"
    RESTART = "restart"


def sweep(plan: Plan, folder: Path, if_stored: IfStored, pool: Pool, progress: Progress) -> SweepResult:
    """Run *plan*, or what is left of it, and write every file into *folder*.

    OSError or SweepError before any work where *folder* cannot be written to.
    """
    files.prepare(folder)
    with closing(Store(folder)) as store:
        if len(store) and if_stored is IfStored.REFUSE:
            raise SweepError(
                str(folder),
                f"has {len(store):,} finished cells; --resume goes on with them, --restart forgets them",
            )
        known = store.results() if if_stored is IfStored.RESUME else {}
        done = conduct(plan, known, store, pool, progress)
    result = result_of(plan, done)
    write(result, folder)
    return result


def write(result: SweepResult, folder: Path) -> list[str]:
    """Write tables, pictures, report and JSON of *result*; the names of the files."""
    names = tables.write(result, folder)
    names += pictures.write(result, folder)
    for path in [*folder.glob("map_*"), *folder.glob("curve_*")]:
        # Of an axis that this sweep no longer has.
        if path.name not in names:
            path.unlink()
    files.replace(folder / "report.txt", "\n".join(report.lines(result)) + "\n")
    files.replace(folder / "sweep.json", files.as_json(report.as_object(result)) + "\n")
    return [*names, "report.txt", "sweep.json"]
