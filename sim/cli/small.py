"""Commands of a few lines: ``estimate``, ``schema``, ``bench``."""

from __future__ import annotations

from typing import Annotated

import typer

from sim.cli.shared import (
    JsonOption,
    ScenarioArgument,
    SetOption,
    app,
    load,
)


@app.command()
def estimate(scenario: ScenarioArgument, as_json: JsonOption = False, set_: SetOption = None) -> None:
    """Show the articles' closed-form estimate beside the same lines from measured tables."""
    from sim import files, listing
    from sim.article import closed_form

    _, setup = load(scenario, set_ or [])
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

    _, setup = load(scenario, set_ or [])
    result = benchmark(setup)
    print(files.as_json(asdict(result)) if as_json else "\n".join(listing.benchmark_lines(result)))
