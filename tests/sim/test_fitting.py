"""Host costs fitted to cases: what was put in comes out, leaving out is never kinder, nonsense is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from published import PLAIN, cases

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.estimate import Source
from sim import batch
from sim.setup import resolve
from sim.validation import fit_report, fits, fitting, shipped
from sim.validation.cases import Case, read
from sim.validation.errors import FitsError
from sim.validation.fits import Fit, with_values
from sim.validation.fitting import Fitted, FittedRow, Measurement
from sim.validation.prediction import NS, Predictions, StepModel
from sim.validation.translation import CaseKind, Question, question

SCHEDULE, REQUEST = "dispatch.schedule_us", "dispatch.request_us"
TRUTH = {SCHEDULE: 4500.0, REQUEST: 60.0}
ROWS = [PLAIN | {"id": f"P{count:02}", "concurrency": str(count)} for count in (1, 8, 16, 32)]
NAMES = [row["id"] for row in ROWS]
FIGURES = {
    SCHEDULE: "{value: 3170, source: scaled, ref: a test}",
    REQUEST: "{value: 35, source: scaled, ref: a test}",
}


def fits_text(
    baseline: Sequence[str], figures: Mapping[str, str] = FIGURES, stack: str = "sglang", more: str = ""
) -> str:
    lines = [f"    {key}: {figure}" for key, figure in figures.items()]
    return "\n".join(
        [
            "fits:",
            f"- stack: {stack}",
            "  figures:",
            *lines,
            "  cases:",
            f"    baseline: [{', '.join(baseline)}]",
            more,
        ]
    )


def read_fits(folder: Path, text: str, known: Sequence[Case]) -> tuple[Fit, ...]:
    path = folder / "fits.yaml"
    path.write_text(text, encoding="utf-8")
    return fits.read(path, known)


def rebuilt_s(asked: Question, values: Mapping[str, float]) -> float:
    """The mean step with the stack rebuilt around *values*, luck and all."""
    setup = resolve(asked.scenario)
    machine = replace(setup.machine, stack=with_values(setup.machine.stack, values))
    model = StepModel.of(replace(setup, machine=machine), asked.contexts.middle)
    return float(batch.play(model.simulation.pieces.graph, model.played_ns()).max(axis=1).mean() * NS)


def measured_with(folder: Path, values: Mapping[str, float], off: Sequence[float] = ()) -> tuple[Case, ...]:
    """ROWS as a machine with *values* would have them, each too fast by its factor of *off*."""
    rows = []
    for case, row, factor in zip(cases(folder, ROWS), ROWS, off or [1.0] * len(ROWS), strict=True):
        assert case.concurrency is not None
        step_s = rebuilt_s(question(case, CaseKind.BASELINE), values)
        rows.append(row | {"tok_s_total": repr(case.concurrency / step_s * factor)})
    return cases(folder, rows)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    return measured_with(tmp_path_factory.mktemp("truth"), TRUTH)


def fitted(folder: Path, known: Sequence[Case], names: Sequence[str] = NAMES, **changes: str) -> Fitted:
    (fit,) = read_fits(folder, fits_text(names, FIGURES | changes), known)
    return fitting.run(fit)


def test_what_was_put_in_comes_out(tmp_path: Path, known: tuple[Case, ...]) -> None:
    found = fitted(tmp_path, known)
    assert {one.key: one.value for one in found.figures} == pytest.approx(TRUTH, rel=0.03)
    for row in found.rows:
        assert abs(row.fitted) < 0.005
        assert row.left_out is not None
        assert abs(row.left_out) < 0.02
        assert row.prior > 0.05


def test_with_the_shipped_figures_it_is_what_validate_predicts() -> None:
    """Luck and the drain of a benchmark included."""
    wanted = {("C113", CaseKind.SPECULATIVE), ("C117", CaseKind.BASELINE), ("C139", CaseKind.SPECULATIVE)}
    shipped_cases = {case.id: case for case in read(shipped.cases())}
    keys = (SCHEDULE, REQUEST, "dispatch.eager_launch_us")
    priors = {key: fits.figure(catalog.stack("sglang"), key) for key in keys}
    for name, kind in sorted(wanted):
        asked = question(shipped_cases[name], kind)
        predicted = Predictions().of(asked).tok_s(asked)
        now = np.array([prior.value for prior in priors.values()])
        error = math.exp(-Measurement(asked, priors).log_error(now)) - 1
        assert error == pytest.approx(predicted / asked.measured_tok_s - 1, abs=1e-6)


@settings(max_examples=8, deadline=None)
@example(schedule=5943.0, request=8.0)
@given(schedule=st.floats(800, 9000), request=st.floats(8, 150))
def test_a_step_with_other_figures_is_that_of_a_stack_that_has_them(
    known: tuple[Case, ...], schedule: float, request: float
) -> None:
    asked = question(known[2], CaseKind.BASELINE)
    priors = {key: fits.figure(catalog.stack("sglang"), key) for key in TRUTH}
    quick = Measurement(asked, priors).step_s(np.array([schedule, request]))
    # Luck is drawn at the priors; how widely host work varies changes a little with it.
    assert quick == pytest.approx(rebuilt_s(asked, {SCHEDULE: schedule, REQUEST: request}), rel=0.015)


@settings(max_examples=3, deadline=None)
@given(off=st.lists(st.floats(0.8, 1.25), min_size=len(ROWS), max_size=len(ROWS)))
def test_leaving_a_case_out_never_predicts_it_better(
    tmp_path_factory: pytest.TempPathFactory, off: list[float]
) -> None:
    """Of a minimum of a sum of squares: else swapping the two results would lower it."""
    folder = tmp_path_factory.mktemp("law")
    found = fitted(folder, measured_with(folder, TRUTH, off))
    for row in found.rows:
        assert _squared(row.left_out) >= _squared(row.fitted) - 2e-4


def _squared(error: float | None) -> float:
    assert error is not None
    return math.log1p(error) ** 2


def test_the_order_of_cases_changes_nothing(tmp_path: Path, known: tuple[Case, ...]) -> None:
    assert fitted(tmp_path, known[::-1], NAMES[::-1]) == fitted(tmp_path, known)


def test_a_measurement_with_two_names_counts_once(tmp_path: Path, known: tuple[Case, ...]) -> None:
    again = replace(known[0], id="P01b")
    found = fitted(tmp_path, (*known, again), [*NAMES, "P01b"])
    assert [row.id for row in found.rows] == NAMES
    assert found == fitted(tmp_path, known)


def test_a_prior_holds_back_and_a_conflict_is_said(tmp_path: Path, known: tuple[Case, ...]) -> None:
    narrow = {
        SCHEDULE: "{value: 3170, source: scaled, ref: a test, range: [2800, 3540]}",
        REQUEST: "{value: 60, source: scaled, ref: a test, range: [58, 62]}",
    }
    free, held = fitted(tmp_path, known), fitted(tmp_path, known, **narrow)
    assert 3540 < held.figures[0].value < free.figures[0].value
    assert held.figures[0].is_outside
    assert not free.figures[0].is_outside
    assert "CONFLICT" in "\n".join(fit_report.lines([held]))
    assert "CONFLICT" not in "\n".join(fit_report.lines([free]))


def test_a_figure_that_nothing_depends_on_is_undecided(tmp_path: Path, known: tuple[Case, ...]) -> None:
    plain = {"dispatch.tree_dispatch_us": "{value: 429, source: scaled, ref: a test}"}
    found = fitted(tmp_path, known, **plain)
    figure = found.figures[2]
    assert (figure.sigma, figure.influence) == (math.inf, 0)
    assert "dispatch.tree_dispatch_us: no step here depends on it" in "\n".join(fit_report.lines([found]))
    assert fit_report.as_object([found])["fits"][0]["figures"][2]["sigma"] is None
    assert all(math.isfinite(one.sigma) for one in found.figures[:2])


def test_checks_are_predicted_and_not_fitted_to(tmp_path: Path, known: tuple[Case, ...]) -> None:
    (fit,) = read_fits(tmp_path, fits_text(NAMES[:3], more="  checks: {baseline: [P32]}"), known)
    found = fitting.run(fit)
    assert [row.id for row in found.rows] == NAMES[:3]
    (check,) = found.checks
    assert check.left_out is None
    assert abs(check.fitted) < 0.02


REFUSED: dict[str, tuple[str, int, str, str]] = {
    "a stack": (fits_text(NAMES, stack="sglan"), 2, "fits[0].stack", "did you mean 'sglang'?"),
    "a figure": (
        fits_text(NAMES, {"dispatch.shedule_us": FIGURES[SCHEDULE]}),
        4,
        "fits[0].figures.dispatch.shedule_us",
        "did you mean 'dispatch.schedule_us'?",
    ),
    "a count": (
        fits_text(NAMES, {"drafting.loose_kernels": FIGURES[SCHEDULE]}),
        4,
        "fits[0].figures.drafting.loose_kernels",
        "no such host cost",
    ),
    "nothing to begin with": (
        fits_text(NAMES, {SCHEDULE: "{value: 0, source: scaled, ref: a test}"}),
        4,
        "fits[0].figures.dispatch.schedule_us.value",
        "must be above 0",
    ),
    "a case": (
        fits_text([*NAMES, "P33"]),
        7,
        "fits[0].cases.baseline[4]",
        "no case 'P33', did you mean 'P32'?",
    ),
    "a case twice": (fits_text([*NAMES, "P08"]), 7, "fits[0].cases.baseline[4]", "given twice"),
    "what was not measured": (
        fits_text(NAMES, more="    speculative: [P01]"),
        8,
        "fits[0].cases.speculative[0]",
        "measured nothing speculative",
    ),
    "another stack's case": (fits_text([*NAMES, "V1"]), 7, "fits[0].cases.baseline[4]", "ran on vllm"),
    "an unknown GPU": (fits_text([*NAMES, "U1"]), 7, "fits[0].cases.baseline[4]", "a GPU of 2030"),
    "too few cases": (fits_text(NAMES[:2]), 6, "fits[0].cases", "2 figures need more cases than 2"),
    "a check that is none": (
        fits_text(NAMES, more="  checks: {baseline: [P16]}"),
        8,
        "fits[0].checks.baseline[0]",
        "checks nothing",
    ),
    "a kind": (fits_text(NAMES, more="    speculativ: [P01]"), 8, "fits[0].cases.speculativ", "did you mean"),
    "a figure twice": (
        fits_text(NAMES) + "\n" + fits_text(NAMES).removeprefix("fits:\n"),
        11,
        "fits[1].figures.dispatch.schedule_us",
        "first in fits[0]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_where_it_is(tmp_path: Path, name: str) -> None:
    text, line, key, problem = REFUSED[name]
    more = [PLAIN | {"id": "V1", "engine": "vLLM"}, PLAIN | {"id": "U1", "gpu": "a GPU of 2030"}]
    with pytest.raises(FitsError) as caught:
        read_fits(tmp_path, text, cases(tmp_path, [*ROWS, *more]))
    error = caught.value
    assert (error.file, error.line, error.key) == (str(tmp_path / "fits.yaml"), line, key)
    assert problem in error.problem


def test_a_stack_is_chosen_by_name(tmp_path: Path, known: tuple[Case, ...]) -> None:
    found = read_fits(tmp_path, fits_text(NAMES), known)
    path = tmp_path / "fits.yaml"
    assert fits.of_stack(path, found, "sglang") == fits.of_stack(path, found, "all") == found
    with pytest.raises(FitsError, match="did you mean 'sglang'"):
        fits.of_stack(path, found, "sglan")


def test_host_costs_are_those_that_have_a_time() -> None:
    for name in catalog.names(Kind.STACK):
        stack = catalog.stack(name)
        keys = fits.figure_keys(stack)
        assert {SCHEDULE, "dispatch.graph_launch_us_per_node", "drafting.pass_us"} <= set(keys)
        changed = with_values(stack, dict.fromkeys(keys, 1e6))
        assert all(fits.figure(changed, key).value == 1e6 for key in keys)


@pytest.fixture(scope="module")
def shipped_fits() -> tuple[Fit, ...]:
    return fits.read(shipped.fits(), read(shipped.cases()))


def test_rows_kept_for_checks_are_never_fitted_to(shipped_fits: tuple[Fit, ...]) -> None:
    assert all(not one.case.id.startswith("R") for fit in shipped_fits for one in fit.fitted_to)


def test_the_catalog_has_what_the_fits_say(shipped_fits: tuple[Fit, ...]) -> None:
    """After a change of figures or of the model: ``python -m sim validate --refit all``."""
    for found in map(fitting.run, shipped_fits):
        stack = catalog.stack(found.stack)
        sources = {one.key: fits.figure(stack, one.key).source for one in found.figures}
        assert Source.FITTED in sources.values()
        for one in found.figures:
            # What is not taken over stays as it was, and may not contradict the fit.
            assert sources[one.key] is Source.FITTED or one.shipped == one.prior.value, one.key
            assert abs(one.shipped - one.value) < one.sigma / 2, one.key
            assert not one.is_outside, one.key
        assert _mean(found.rows, "fitted") < _mean(found.rows, "left_out") < _mean(found.rows, "prior")
        assert _mean(found.checks, "fitted") < _mean(found.checks, "prior")


def _mean(rows: Sequence[FittedRow], name: str) -> float:
    return float(np.mean([abs(getattr(row, name)) for row in rows]))
