"""``hardware``: the catalog, and measured files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared import (
    JsonOption,
    hardware,
)


@hardware.command("list")
def hardware_list() -> None:
    """List every catalog entry."""
    from sim import listing

    print("\n".join(listing.hardware_list()))


@hardware.command("show")
def hardware_show(
    name: Annotated[
        str, typer.Argument(help="An entry's name, such as b300_sxm, or a file: .yaml, or measured .jsonl.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Print one catalog entry with the source of every figure, or the points of a measured file."""
    from hwmodels import catalog, measured
    from sim import files, listing
    from sim.hardware import report

    if name.endswith(measured.SUFFIX):
        file = measured.read(Path(name))
        print(files.as_json(report.file_object(file)) if as_json else "\n".join(report.file_lines(file)))
        return
    kind, entry = catalog.find(name)
    print(entry.model_dump_json(indent=2) if as_json else "\n".join(listing.hardware_entry(kind, entry)))


@hardware.command("compare")
def hardware_compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A measured file, or a GPU (its published tables).")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; one of the two must be a measured file.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the pictures; results/hardware/<A>-<B>/ by default.")
    ] = None,
    stack: Annotated[str, typer.Option(help="Whose kernels published tables are asked for.")] = "sglang",
    as_json: JsonOption = False,
) -> None:
    """Set two measured files, or one and a GPU's published tables, side by side."""
    from sim import files
    from sim.hardware import comparison, pictures, report

    result = comparison.compare(comparison.side(a, stack), comparison.side(b, stack))
    folder = out or Path("results/hardware") / f"{Path(a).stem}-{Path(b).stem}"
    files.prepare(folder)
    names = pictures.write(result, folder)
    if as_json:
        print(files.as_json(report.comparison_object(result)))
        return
    print("\n".join(report.comparison_lines(result)))
    if names:
        print(f"\nWritten to {folder}/: {', '.join(names)}")
