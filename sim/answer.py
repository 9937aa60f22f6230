"""Everything a run of a scenario answers, before it is shown or written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hwmodels.work import EagerLaunch, GraphLaunch, LooseLaunch
from sim.causes import Explanation, explain
from sim.choices import EngineName
from sim.graph import StepGraph
from sim.records import Experiment
from sim.replay import WHOLE_RUNS, Replay, replay
from sim.scenario import Anchor
from sim.setup import LaunchMode, Setup
from sim.simulate import Listener, Simulation, play
from sim.statistics import Spread, Summary, spread, summarise
from sim.tally import Tally


class Stage(Enum):
    """The stages of an answer, as an interrupt meets them."""

    RUNS = "runs"
    RANGE = "range of mean acceptance lengths"
    CAUSES = "causes of a regression"
    REPLAY = "check on SimPy"


@dataclass(frozen=True)
class Comparison:
    """A published figure beside the prediction."""

    anchor: Anchor
    predicted_tok_s: float
    error: float
    """Predicted over published, less 1."""
    published_step_ms: float | None
    """Acceptance length over throughput, where the source gives both."""
    unexplained_ms: float | None
    """Published step less predicted step: what the model does not account for."""


@dataclass(frozen=True)
class RangeEnd:
    """Throughput at one end of the range of mean acceptance lengths."""

    mean_length: float
    throughput_tok_s: Spread


@dataclass(frozen=True)
class Answer:
    """A scenario, its experiment, and what follows from it."""

    setup: Setup
    engine: EngineName
    graph: StepGraph
    experiment: Experiment
    summary: Summary
    comparison: Comparison | None
    range_ends: tuple[RangeEnd, ...]
    explanation: Explanation | None
    """Cause by cause, where the scenario names another that it is slower than."""
    overrides: tuple[str, ...]
    """Changes to the scenario file that were asked for on the command line."""
    replayed: Replay | None
    """Runs played again on SimPy; None where they were played there anyway, or it was interrupted."""
    interrupted: Stage | None
    """What the user cut short; all that is there is intact."""


def answer(
    setup: Setup,
    engine: EngineName = EngineName.BATCH,
    listeners: tuple[Listener, ...] = (),
    overrides: tuple[str, ...] = (),
) -> Answer:
    """Run the scenario and both ends of its acceptance range.

    The first runs of the batch engine are replayed on SimPy; SimulationError where the
    two differ. An interrupt after the first run ends the work early and keeps what was
    played; before that it goes through to the caller.
    """
    simulation = Simulation(setup, engine)
    tally = Tally(simulation.graph.lanes, simulation.measured_file)
    ends: list[RangeEnd] = []
    replayed, explanation, cut = None, None, Stage.RUNS
    try:
        for run in play(simulation, setup.scenario.runs, listeners):
            tally.add(run)
        cut = Stage.RANGE
        for mean_length in setup.scenario.acceptance.mean_length_range or ():
            ends.append(_range_end(setup, engine, mean_length, listeners))
        cut = Stage.CAUSES
        explanation = explain(setup.scenario)
        cut = Stage.REPLAY
        if engine is EngineName.BATCH:
            replayed = replay(simulation, tally.experiment().in_full[:WHOLE_RUNS])
        interrupted = None
    except KeyboardInterrupt:
        if not tally:
            raise
        interrupted = cut
    experiment = tally.experiment()
    summary = summarise(experiment)
    return Answer(
        setup=setup,
        engine=engine,
        graph=simulation.graph,
        experiment=experiment,
        summary=summary,
        comparison=compare(setup.scenario.anchor, summary),
        range_ends=tuple(ends),
        explanation=explanation,
        overrides=overrides,
        replayed=replayed,
        interrupted=interrupted,
    )


def total_runs(setup: Setup) -> int:
    """How many runs ``answer`` plays, for a progress bar."""
    ends = setup.scenario.acceptance.mean_length_range or ()
    return setup.scenario.runs * (1 + len(ends))


def _range_end(
    setup: Setup, engine: EngineName, mean_length: float, listeners: tuple[Listener, ...]
) -> RangeEnd:
    """The same runs, with the same luck, at another mean length."""
    simulation = Simulation(setup, engine, mean_length)
    throughput = [run.throughput_tok_s for run in play(simulation, setup.scenario.runs, listeners)]
    return RangeEnd(mean_length, spread(throughput, throughput))


def compare(anchor: Anchor | None, summary: Summary) -> Comparison | None:
    """The prediction beside *anchor*. Nothing flows back from it."""
    if anchor is None:
        return None
    predicted = summary.throughput_tok_s.mean
    published_step = None
    if anchor.acceptance_length is not None and anchor.tok_s is not None:
        published_step = 1000 * anchor.acceptance_length / anchor.tok_s
    return Comparison(
        anchor=anchor,
        predicted_tok_s=predicted,
        error=predicted / anchor.published_tok_s - 1,
        published_step_ms=published_step,
        unexplained_ms=None if published_step is None else published_step - summary.step_time_ms.mean,
    )


def launch_counts(answer: Answer) -> tuple[int, int]:
    """Kernels of the largest graph of a step, and kernels launched one by one.

    The first is 0 where the verify pass is not one graph.
    """
    works = [op.work for op in answer.graph.ops]
    graphs = [work.nodes for work in works if isinstance(work, GraphLaunch)]
    eager = [work.kernels for work in works if isinstance(work, EagerLaunch | LooseLaunch)]
    one_graph = answer.setup.verify_launch is LaunchMode.GRAPH
    return (max(graphs, default=0) if one_graph else 0), sum(eager)
