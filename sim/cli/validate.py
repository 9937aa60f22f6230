"""``validate``: published measurements, predicted."""

from __future__ import annotations

import os
from errno import EISDIR
from pathlib import Path
from typing import Annotated

import typer

from sim.cli.shared import (
    JsonOption,
    QuietOption,
    app,
    interruptible,
    progress,
    results_folder,
    show,
)


@app.command()
def validate(
    cases: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CASES.csv]", help="Published measurements, one a row; those shipped by default."
        ),
    ] = None,
    system: Annotated[
        str, typer.Option(help="Only rows whose GPU, engine or system has these words, such as 'b200 vllm'.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<cases>/. By default results/validation/, or results/changed/validation/"
            " where not all shipped cases are asked for."
        ),
    ] = None,
    learn: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write how far these rows are off to FILE, and take the model's own uncertainty from it"
            " instead of the shipped file.",
        ),
    ] = None,
    refit: Annotated[
        str | None,
        typer.Option(
            metavar="STACK",
            help="Instead of predicting, fit the host costs of STACK ('all': of every one) to the cases that"
            " FITS names, leaving each out in turn. Prints, and changes no file.",
        ),
    ] = None,
    fits: Annotated[
        Path | None,
        typer.Option(
            metavar="FITS.yaml", help="What --refit fits to what; the fits of the shipped stacks by default."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict published measurements and show the error.

    CASES.csv has the columns id, model, drafter, method, gpu, n_gpu,
    interconnect, parallelism, quantisation, kv_dtype, engine, block_size,
    num_draft_tokens, tree_budget, topk, verify_M_per_req, concurrency,
    context_tokens, workload, temperature, acceptance_length,
    acceptance_length_origin, tok_s_total, baseline_tok_s_total, notes
    and source, in any order; validation/README.md says what they mean.
    tok_s_total is with the row's method and baseline_tok_s_total without
    speculation, both of all requests together. A row that names what nobody here knows is
    listed with the reason; the others are predicted.
    """
    from sim.validation import shipped

    path = cases or shipped.cases()
    if refit is not None:
        if system or learn or out:
            raise typer.BadParameter("--refit prints, and takes none of --system, --learn and --out")
        _refit(refit, fits or shipped.fits(), path, as_json, quiet)
        return
    if fits is not None:
        raise typer.BadParameter("--fits says what --refit fits; without --refit it means nothing")
    whole = cases is None and not system
    folder = results_folder(out, "validation", not whole, path.stem)
    _predict(path, system, folder, learn, as_json, quiet)


def _predict(path: Path, system: str, folder: Path, learn: Path | None, as_json: bool, quiet: bool) -> None:
    """Predict the cases in *path* that ran on *system*, write what comes of it to *folder* and show it."""
    from sim import files
    from sim.validation import pictures, report, residuals
    from sim.validation.cases import read
    from sim.validation.run import learnt, validate, wishes

    wanted = wishes(read(path), system)
    if not wanted:
        raise typer.BadParameter(f"no row of {path} has all of '{system}' in its GPU, engine or system")
    if learn is not None:
        _check_can_write(learn)
    files.prepare(folder)
    with interruptible(), progress(len(wanted), quiet or as_json, "predictions") as advance:
        found = validate(wanted, () if learn else residuals.shipped_residuals(), advance)
    if learn is not None:
        found, off = learnt(found)
        residuals.write(off, learn)
    text = report.lines(found, f"Predicted and measured tokens per second: {path.name}")
    names = report.write(found, text, folder) + pictures.write(found, folder)
    show(text, lambda: report.as_object(found), f"{folder}/: {', '.join(names)}", as_json, quiet)


def _check_can_write(path: Path) -> None:
    """OSError where no file can be put at *path*: better known before the work than after."""
    from sim import files

    if path.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    files.prepare(path.parent)


def _refit(stack: str, path: Path, cases: Path, as_json: bool, quiet: bool) -> None:
    """Fit the host costs of *stack*, or of all, as the file at *path* says, and print what that comes to."""
    from sim import files
    from sim.validation import fit_report, fits
    from sim.validation.cases import read
    from sim.validation.fitting import run as fit

    chosen = fits.of_stack(path, fits.read(path, read(cases)), stack)
    with progress(len(chosen), quiet or as_json, "fits") as advance:
        found = []
        for one in chosen:
            found.append(fit(one))
            advance()
    if as_json:
        print(files.as_json(fit_report.as_object(found)))
    elif not quiet:
        print("\n".join(fit_report.lines(found)))
