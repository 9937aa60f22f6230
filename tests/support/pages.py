"""A page of every command that leaves one, of small simulations and of results made to measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from builders import small_setup
from sweeps import plan_of, result_with

from sim.answer import Answer, answer
from sim.comparison.study import Entrant, Task
from sim.comparison.study import Study as Comparison
from sim.html import compare_page, investments_page, levers_page, parts, run_page, sweep_page
from sim.html.page import Page, render
from sim.levers.alternatives import Alternative, Choice
from sim.levers.drivers import Driver, Drivers
from sim.levers.effects import LeverBench
from sim.levers.investments import Held, Investment, Plan, Return, Returns, Worth
from sim.levers.played import PlayedSteps
from sim.levers.report import MOST_SCENARIOS
from sim.levers.study import Study
from sim.scenario import Anchor
from sim.setup import Setup
from sim.simulate import Simulation
from sim.sweeps.result import SweepResult
from sim.uncertainty.total import Swing

NASTY = '</title><script>alert("x")</script> & <b>'
"""What a user may have written."""
ASSUMED = "The host is idle otherwise."
RUNS = {
    "run": (),
    "run, anchored": (),
    "run, a range": ("acceptance={mean_length: 4.4, mean_length_range: [3.5, 5]}",),
    "run, once": ("runs=1",),
    "run, plain batch": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4", "runs=6"),
    "run, not known": (),
    "run, one rank": ("gpus=1",),
    "run, two streams": ("model=kimi_k2_6_nvfp4",),
}
ANCHORS = {
    "run, anchored": Anchor(tok_s=303, acceptance_length=4.4, source="an article"),
    "run, a range": Anchor(tok_s_range=(575, 770), source="an estimate"),
}


def _saying(setup: Setup, **texts: object) -> Setup:
    """*setup* of a scenario that says something else."""
    return replace(setup, scenario=setup.scenario.model_copy(update=texts))


@cache
def answered(name: str) -> Answer:
    """The small run of this *name*."""
    setup = small_setup(*RUNS[name])
    heard = (lambda: None) if name == "run, not known" else None
    return answer(_saying(setup, anchor=ANCHORS.get(name), assumptions=(ASSUMED,)), advance=heard)


@cache
def study(name: str, *overrides: str, question: str = "What does a small tree wait for?") -> Study:
    """Every lever of a small scenario, and choices and drivers that nobody had to play."""
    setup = _saying(small_setup(*overrides), question=question, assumptions=(ASSUMED,))
    bench = LeverBench(PlayedSteps.of(Simulation(setup), 3, 8))
    base = bench.base.tok_s
    return Study(
        name=name,
        setup=setup,
        base=bench.base,
        effects=tuple(map(bench.effect, bench.levers)),
        alternatives=(
            Alternative(Choice("budget", "budget 4", {"tree.budget": 4}), 0.8 * base, ""),
            Alternative(
                Choice("budget", "budget 16", {"tree.budget": 16}),
                0.5 * base,
                "",
                "launched kernel by kernel",
            ),
            Alternative(Choice("engine", "stack native", {"stack": "native"}), 1.5 * base, ""),
            Alternative(Choice("GPU", "GPU small", {"gpu": "small"}), None, "needs 99 GiB"),
        ),
        drivers=_drivers(base),
    )


def _tables_of_six() -> Page:
    """The tables of as many scenarios as share one, without what is each one's own."""
    studies = [replace(study("small"), name=f"scenario_{at}") for at in range(MOST_SCENARIOS)]
    sections = [*levers_page.side_by_side(studies), parts.provenance([("seed", "1")])]
    return Page("What do six wait for?", ["Six."], ["This is one.", "This is another."], sections)


def _drivers(base: float) -> Drivers:
    swings = [
        Swing(
            "work.mla_attention", "tables and fits of MLA attention", (0.76, 1.32), (1.1 * base, 0.9 * base)
        ),
        Swing(
            "stack.dispatch.graph_launch_us_per_node", "range of the figure, SCALED", (0.6, 1.0), (base, base)
        ),
    ]
    return Drivers(tuple(Driver(swing, 0.7, 0.6) for swing in swings), 40, 0.97)


def returns(question: str = "Which of the three would bring most?", title: str = "eight of them") -> Returns:
    """A plan whose combinations multiply to made-up throughputs."""
    factors = {"hardware": 1.8, "drafter": 2.1, "engine": 1.3}
    items = tuple(
        Investment(name=name, title=f"{title}, {name}", set={"runs": at + 1})
        for at, name in enumerate(factors)
    )
    plan = Plan(
        question=question,
        base="base.yaml",
        investments=items,
        beside=Investment(name="NVFP4 experts", title=title, set={"model": "kimi_k2_6_nvfp4"}),
        assumptions=(ASSUMED,),
    )
    tok_s = {Held(): 100.0}
    for name, factor in factors.items():
        tok_s |= {held | {name}: factor * value for held, value in tok_s.items()}
    return Returns(
        plan=plan,
        base=small_setup(),
        returns={held: _return(held, value) for held, value in tok_s.items()},
        beside={held: _return(held, 1.1 * value) for held, value in tok_s.items()},
        worths=tuple(Worth(each, *3 * (factors[each.name],)) for each in items),
    )


def _return(held: Held, tok_s: float) -> Return:
    return Return(tok_s, (0.9 * tok_s, 1.1 * tok_s) if "drafter" in held else None)


def swept(
    *axes: str, missing: tuple[int, ...] = (), question: str = "Which tree suits two layers?"
) -> SweepResult:
    """A sweep whose throughput falls off from its middle cell; cells *missing* failed."""
    plan = replace(plan_of(*axes), question=question)
    middle = len(plan.cells) // 2
    found = {
        cell.index: [
            900 / (1 + 0.02 * abs(cell.index - middle)) + luck for luck in (-2.0, -1.0, 0.0, 1.0, 2.0)
        ]
        for cell in plan.cells
        if cell.index not in missing
    }
    result = result_with(plan, found)
    return replace(result, errors={index: f"{question} {error}" for index, error in result.errors.items()})


@cache
def compared(*questions: str, draws: int = 8) -> Comparison:
    """Small scenarios that ask *questions*, each with another engine or tree, against the first."""
    changes = [(), ("stack=native", "tree.builder=gpu"), ("tree.budget=4",)]
    sides = tuple(
        Entrant(
            question if question == NASTY else f"scenario_{at}",
            Path("nowhere.yaml"),
            _saying(small_setup("runs=6", *changes[at]), question=question, assumptions=(ASSUMED,)),
        )
        for at, question in enumerate(questions)
    )
    return Task(sides, draws=draws, changes=(NASTY,) if NASTY in questions else ()).done()


def compared_with_itself() -> Comparison:
    """A small scenario against itself."""
    entrant = Entrant("itself", Path("nowhere.yaml"), small_setup("runs=6"))
    return Task((entrant, entrant)).done()


GRID = ("tree.budget=4,6,8,10,12,14", "drafter.block=6,7,8,9,10", "gpus=4,8")
PAGES: dict[str, Callable[[], Page]] = {
    **{name: lambda name=name: run_page.page(answered(name)) for name in RUNS},
    "levers": lambda: levers_page.page([study("small")], ["tree.budget=8"]),
    "levers, one rank": lambda: levers_page.page([study("alone", "gpus=1")], []),
    "levers, side by side": lambda: levers_page.page([study("small"), study("plain", "tree.budget=0")], []),
    "levers, six": _tables_of_six,
    "compare": lambda: compare_page.page(compared("As it is?", "In another engine?")),
    "compare, three": lambda: compare_page.page(compared("As it is?", "Native?", "Smaller?", draws=0)),
    "compare, itself": lambda: compare_page.page(compared_with_itself()),
    "investments": lambda: investments_page.page(returns()),
    "sweep": lambda: sweep_page.page(swept(*GRID, missing=(3, 4))),
    "sweep, one axis": lambda: sweep_page.page(swept("tree.budget=5..34")),
    "sweep, one cell": lambda: sweep_page.page(swept("tree.budget=8")),
    "sweep, nothing finished": lambda: sweep_page.page(swept("tree.budget=4,8", missing=(0, 1))),
}
NASTY_PAGES: dict[str, Callable[[], Page]] = {
    "run": lambda: run_page.page(_nasty_answer()),
    "levers": lambda: levers_page.page([study(NASTY, question=NASTY)], [NASTY]),
    "levers, side by side": lambda: levers_page.page([study(NASTY, question=NASTY), study("small")], [NASTY]),
    "compare": lambda: compare_page.page(compared(NASTY, NASTY, draws=0)),
    "investments": lambda: investments_page.page(returns(NASTY, NASTY)),
    "sweep": lambda: sweep_page.page(swept("tree.budget=4,8", missing=(1,), question=NASTY)),
}
"""The same where users wrote what is none of a page's own."""


def _nasty_answer() -> Answer:
    found = answered("run")
    nasty = _saying(found.setup, question=NASTY, assumptions=(NASTY,))
    return replace(found, setup=nasty, overrides=(NASTY,))


@cache
def page(name: str) -> Page:
    """The Page of this *name*."""
    return PAGES[name]()


@cache
def html(name: str) -> str:
    """The same as a file."""
    return render(page(name))
