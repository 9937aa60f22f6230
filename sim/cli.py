"""The command line: the only module that prints or exits.

Commands import what they need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sim.choices import Counts, Definition, EngineName, Shape

if TYPE_CHECKING:
    from sim.html.page import Page
    from sim.setup import Setup
    from sim.sweeps.conduct import Pool

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
    path, setup = _load(scenario, overrides)
    folder = (out or Path("results/changed" if overrides else "results")) / path.stem
    files.prepare(folder)
    _prepare_page(html)
    traced = _traced(setup, engine, trace, trace_steps, hidden=quiet or as_json)
    try:
        draws = 0 if no_uncertainty else DRAWS
        with _progress(total_runs(setup) + draws, hidden=quiet or as_json) as advance:
            heard = None if no_uncertainty else advance
            result = answer(setup, engine, (lambda _: advance(),), tuple(overrides), heard)
    except KeyboardInterrupt:
        print("interrupted before the first run ended; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = report.lines(result)
    output.write(result, text, folder)
    _write_page(lambda: run_page.page(result), html)
    if as_json:
        print(files.as_json(output.summary_object(result)))
    elif not quiet:
        print("\n".join(text))
        print(
            f"\nWritten to {folder}/: summary.json, report.txt, runs.csv, steps.csv, costs.csv, scenario.json"
        )
        print(traced, end="")
        _tell_of_page(html)
    if result.interrupted is not None:
        raise typer.Exit(EXIT_INTERRUPTED)


def _prepare_page(path: Path | None) -> None:
    """Prove that a page can be written where one is asked for."""
    if path is None:
        return
    from sim import files
    from sim.html.page import ENDINGS

    try:
        files.prepare_file(path, ENDINGS)
    except ValueError as problem:
        _fail(f"--html: {problem}")


def _write_page(make: Callable[[], Page], path: Path | None) -> None:
    """Write the page of a report, where one is asked for; everything else is on disk by then."""
    if path is None:
        return
    from sim import files
    from sim.html import page

    try:
        files.replace(path, page.render(make()))
    except KeyboardInterrupt:
        print(f"interrupted while {path} was written; everything else is there", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _tell_of_page(path: Path | None) -> None:
    if path is not None:
        print(f"Report to hand on: {path}")


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
        _fail(f"--trace: {problem}")
    try:
        with _progress(len(steps), hidden, "steps of the trace") as advance:
            written = file.write(simulation, steps, path, engine, advance)
    except KeyboardInterrupt:
        print("interrupted while the trace was written; nothing is there", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    return f"Traced {written}: {path}, to be opened at ui.perfetto.dev\n"


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
    from sim import files
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
    folder = (out or Path("results/sweeps")) / plan.name
    _prepare_page(html)
    if_stored = IfStored.RESUME if resume else IfStored.RESTART if restart else IfStored.REFUSE
    try:
        with _progress(len(plan.cells), quiet or as_json, "cells") as advance:
            result = run_sweep(plan, folder, if_stored, _pool(workers, cluster), advance)
    except KeyboardInterrupt:
        with closing(Store(folder)) as store:
            count = f"{len(store):,} of {len(plan.cells):,}"
        print(f"interrupted; {count} cells are finished in {folder}/, --resume goes on", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _write_page(lambda: sweep_page.page(result), html)
    if as_json:
        print(files.as_json(report.as_object(result)))
    elif not quiet:
        print("\n".join(report.lines(result)))
        print(
            f"\nWritten to {folder}/: cells.csv and .parquet, runs.parquet, sweep.json, report.txt, pictures"
        )
        if result.reused:
            print(f"{result.reused:,} of the cells were there from before.")
        _tell_of_page(html)
    if result.errors:
        raise typer.Exit(EXIT_CELLS_FAILED)


def _pool(workers: int | None, cluster: str | None) -> Pool:
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
    folder = (out or Path("results/validation" if whole else "results/changed/validation")) / path.stem
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
    try:
        with _progress(len(wanted), quiet or as_json, "predictions") as advance:
            found = validate(wanted, () if learn else residuals.shipped_residuals(), advance)
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if learn is not None:
        found, off = learnt(found)
        residuals.write(off, learn)
    text = report.lines(found, f"Predicted and measured tokens per second: {path.name}")
    names = report.write(found, text, folder) + pictures.write(found, folder)
    if as_json:
        print(files.as_json(report.as_object(found)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")


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
    with _progress(len(chosen), quiet or as_json, "fits") as advance:
        found = []
        for one in chosen:
            found.append(fit(one))
            advance()
    if as_json:
        print(files.as_json(fit_report.as_object(found)))
    elif not quiet:
        print("\n".join(fit_report.lines(found)))


@app.command()
def levers(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO...",
            help="Scenario files, or names of shipped ones, 6 at most; with --investments a plan.",
        ),
    ] = None,
    investments: Annotated[
        bool,
        typer.Option(
            "--investments",
            help="Instead of levers: every combination of a plan's investments; the shipped plan by default.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<scenarios>/. By default results/levers/, or results/changed/levers/"
            " where options change the scenario."
        ),
    ] = None,
    no_uncertainty: Annotated[
        bool, typer.Option("--no-uncertainty", help="Leave out what drives the uncertainty.")
    ] = False,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Show what throughput would be if each part of a step, or parameter, were better, or free.

    Every lever plays the same steps again with the same luck, so overlap and the critical path decide, not
    shares; Amdahl's bound stands beside it. Below: other blocks, budgets, engines and GPUs, and what drives
    the uncertainty (total Sobol indices).
    """
    from sim import files
    from sim.html import levers_page
    from sim.levers import objects, pictures, report
    from sim.levers.study import Task

    if investments:
        _investments(scenarios or ["articles"], out, html, as_json, quiet, set_)
        return
    if not scenarios:
        raise typer.BadParameter("give a scenario, or --investments")
    if len(scenarios) > report.MOST_SCENARIOS:
        raise typer.BadParameter(f"at most {report.MOST_SCENARIOS} scenarios share a table")
    loaded = [_load(name, set_ or []) for name in dict.fromkeys(scenarios)]
    stems = [path.stem for path, _ in loaded]
    if len(set(stems)) < len(stems):
        raise typer.BadParameter(f"scenarios need names of their own, got {', '.join(stems)}")
    folder = (out or Path("results/changed/levers" if set_ else "results/levers")) / "-".join(stems)
    files.prepare(folder)
    _prepare_page(html)
    try:
        tasks = [Task.of(path.stem, setup, not no_uncertainty) for path, setup in loaded]
        with _progress(sum(task.size for task in tasks), quiet or as_json, "levers") as advance:
            studies = [task.done(advance) for task in tasks]
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = report.lines(studies)
    names = objects.write(studies, text, folder)
    names += [] if no_pictures else pictures.write(studies, folder)
    _write_page(lambda: levers_page.page(studies, set_ or []), html)
    if as_json:
        print(files.as_json(objects.as_object(studies)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")
        _tell_of_page(html)


def _investments(
    plans: list[str], out: Path | None, html: Path | None, as_json: bool, quiet: bool, set_: list[str] | None
) -> None:
    """Play every combination of a plan's investments, and report."""
    from sim import files
    from sim.html import investments_page
    from sim.levers import investment_report
    from sim.levers.investments import find, play, prepare

    if len(plans) > 1:
        raise typer.BadParameter(f"--investments takes one plan, got {', '.join(plans)}")
    if set_:
        raise typer.BadParameter("--set changes scenarios; a plan of investments has a 'set' of its own")
    path = find(plans[0])
    prepared = prepare(path)
    folder = (out or Path("results/levers")) / f"investments-{path.stem}"
    files.prepare(folder)
    _prepare_page(html)
    try:
        with _progress(prepared.combinations, quiet or as_json, "combinations") as advance:
            found = play(prepared, advance)
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = investment_report.investment_lines(found)
    names = investment_report.write_investments(found, text, folder)
    _write_page(lambda: investments_page.page(found), html)
    if as_json:
        print(files.as_json(investment_report.investments_object(found)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")
        _tell_of_page(html)


@app.command()
def compare(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Scenario files, or names of shipped ones, 2 to 6; all others are compared with the first.",
        ),
    ],
    runs: Annotated[
        int | None, typer.Option(help="Runs of every scenario; the first one's number by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of every scenario; the first one's by default.")
    ] = None,
    independent: Annotated[
        bool,
        typer.Option("--independent", help="Give every scenario other luck: seeds that follow the first's."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<A>-<B>/. By default results/compare/, or results/changed/compare/ where"
            " options change the scenarios."
        ),
    ] = None,
    no_uncertainty: Annotated[
        bool,
        typer.Option(
            "--no-uncertainty", help="Only the luck of the runs; draw nothing of what is not known."
        ),
    ] = False,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Compare scenarios on common luck: how much faster, how sure, and where the difference arises.

    Runs are paired by their index, so that luck cancels; what is not known is drawn together where it is the
    same in both. A difference that is not distinguishable is called so. --set changes all scenarios.
    """
    from sim import files
    from sim.comparison import pictures, report
    from sim.comparison.intervals import Pairing
    from sim.comparison.study import Task, entrants
    from sim.html import compare_page
    from sim.uncertainty.total import DRAWS

    if not 2 <= len(scenarios) <= report.MOST_SCENARIOS:
        raise typer.BadParameter(f"give 2 to {report.MOST_SCENARIOS} scenarios, got {len(scenarios)}")
    pairing = Pairing.INDEPENDENT if independent else Pairing.COMMON
    changes = [("runs", runs, "--runs")] if runs is not None else []
    changes += [("seed", seed, "--seed")] if seed is not None else []
    sides = entrants(scenarios, changes, set_ or [], pairing)
    said = [*(set_ or []), *(f"{key}={value}" for key, value, _ in changes)]
    changed = bool(said) or independent
    parent = out or Path("results/changed/compare" if changed else "results/compare")
    folder = parent / "-".join(side.path.stem for side in sides)
    files.prepare(folder)
    _prepare_page(html)
    try:
        task = Task(sides, pairing, 0 if no_uncertainty else DRAWS, tuple(said))
        with _progress(task.size, quiet or as_json, "runs and draws") as advance:
            study = task.done(advance)
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = report.lines(study)
    names = report.write(study, text, folder)
    names += [] if no_pictures else pictures.write(study, folder)
    _write_page(lambda: compare_page.page(study), html)
    if as_json:
        print(files.as_json(report.as_object(study)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")
        _tell_of_page(html)


@app.command()
def calibrate(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO...", help="What to predict: scenario files, or names of shipped ones."
        ),
    ],
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Learn from: 'anchor' (the measurement that SCENARIO names), other scenarios by their"
            " anchors (b300_now,pro6000_now), or rows of a file of cases (cases.csv:C002,C113/baseline)."
            " Repeatable.",
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=64, max=16384, help="Draws of what is not known; best a power of two.")
    ] = 2048,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results go to OUT/<scenarios>/. By default results/calibrations/, or"
            " results/changed/calibrations/ where options change a scenario."
        ),
    ] = None,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Leave the pictures out.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    set_: SetOption = None,
) -> None:
    """Let published measurements teach what is not known, and predict with what they leave possible.

    Every uncertain figure has a prior from its source; so has what the model lacks, from published cases on
    other systems. Draws that agree with the measurements stay (importance sampling). Written is a posterior
    that any scenario may name (calibration: FOLDER): run then draws from it. Each measurement is also
    predicted from the others alone.
    """
    from sim.shipped import find

    paths = [find(name) for name in dict.fromkeys(scenarios)]
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        raise typer.BadParameter(f"scenarios need names of their own, got {', '.join(stems)}")
    from sim import files
    from sim.calibration import pictures, report
    from sim.calibration.observed import Predicted
    from sim.calibration.study import Task
    from sim.calibration.wanted import ANCHOR, observations
    from sim.scenario import load

    anchored = [(path.stem, load(path)) for path in paths]
    asked = [(path.stem, load(path, tuple(set_ or []))) for path in paths]
    folder = (out or Path("results/changed/calibrations" if set_ else "results/calibrations")) / "-".join(
        stems
    )
    try:
        observed = observations(to or [ANCHOR], anchored)
        files.prepare(folder)
        task = Task.of(
            observed,
            [Predicted.of(name, scenario) for name, scenario in asked],
            seed,
            draws,
            tuple(set_ or ()),
        )
        with _progress(task.size, quiet or as_json, "draws") as advance:
            found = task.done(advance)
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = report.lines(found)
    names = report.write(found, text, folder)
    names += [] if no_pictures else pictures.write(found, folder)
    if as_json:
        print(files.as_json(report.as_object(found)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")


@app.command()
def estimate(scenario: ScenarioArgument, as_json: JsonOption = False, set_: SetOption = None) -> None:
    """Show the articles' closed-form estimate beside the same lines from measured tables."""
    from sim import files, listing
    from sim.article import closed_form

    _, setup = _load(scenario, set_ or [])
    form = closed_form(setup)
    print(
        files.as_json(listing.closed_form_object(form))
        if as_json
        else "\n".join(listing.closed_form_lines(form))
    )


@app.command()
def schema(
    sweep: Annotated[bool, typer.Option("--sweep", help="Of a sweep file instead.")] = False,
) -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    from sim import files, scenario
    from sim.sweeps import plan

    print(files.as_json(plan.schema() if sweep else scenario.schema()))


@app.command()
def bench(
    scenario: ScenarioArgument = "b300_strong_drafter", as_json: JsonOption = False, set_: SetOption = None
) -> None:
    """Measure the simulator's own speed against bare SimPy, in one run."""
    from dataclasses import asdict

    from sim import files, listing
    from sim.bench import benchmark

    _, setup = _load(scenario, set_ or [])
    result = benchmark(setup)
    print(files.as_json(asdict(result)) if as_json else "\n".join(listing.benchmark_lines(result)))


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
    folder = (out or Path("results/acceptance")) / path.stem
    files.prepare(folder)
    text = report.lines(shown)
    names = report.write(shown, text, folder)
    names += [] if no_pictures else pictures.write(shown, folder)
    if as_json:
        print(files.as_json(report.as_object(shown)))
    elif not quiet:
        print("\n".join(text))
        print(f"\nWritten to {folder}/: {', '.join(names)}")


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


def _load(scenario: str, overrides: list[str]) -> tuple[Path, Setup]:
    """The scenario's path and everything it names, looked up."""
    from sim.scenario import load
    from sim.setup import resolve
    from sim.shipped import find

    path = find(scenario)
    return path, resolve(load(path, tuple(overrides)))


@contextmanager
def _progress(total: int, hidden: bool, what: str = "runs") -> Iterator[Callable[[], None]]:
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


def main() -> None:
    """Run the command line; user errors go to stderr with exit code 2."""
    from hwmodels.errors import DocumentError, HardwareError
    from sim.sweeps.errors import SweepError

    for stream in (sys.stdout, sys.stderr):
        # The report has block characters; a terminal that cannot show them gets question marks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (DocumentError, HardwareError, SweepError) as problem:
        _fail(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as problem:
        _fail(f"{problem.filename or 'output'}: {problem.strerror or problem}")


def _fail(message: str) -> NoReturn:
    from hwmodels.errors import in_one_line

    print(f"error: {in_one_line(message)}", file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)
