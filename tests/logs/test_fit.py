"""Fits: what they keep of a log, how often their intervals hold, and what they put into a scenario."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import files
from sim.acceptance import AcceptanceModel, hazards_from_rates, solve_constant_hazard
from sim.choices import Counts
from sim.drafting import acceptance_model
from sim.logs import checks, report
from sim.logs.checks import Checks, check, simulate
from sim.logs.fit import fit
from sim.logs.fitted import Fit, Quoted, Settings
from sim.logs.intervals import Column, Scale, together
from sim.logs.observed import Engine, Observed, Options, Windows
from sim.logs.reading import read as read_log
from sim.logs.sums import same_output, steps_of
from sim.scenario import load
from sim.setup import resolve
from sim.traces import Trace

HAZARDS = (0.9, 0.8, 0.7, 0.75, 0.6, 0.5, 0.65)
KIMI_RATES = (0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28)
"""Unconditional rates of Kimi K2.6 DFlash on K2.7, 30k prompt (local-inference-lab/rtx6kpro)."""
QUICK = Settings(draws=200)

request_lists = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=30), min_size=1, max_size=12).map(
    lambda requests: tuple(map(tuple, requests))
)


def of_trace(trace: Trace, settings: Settings = QUICK, drafts: int | None = 7) -> Fit:
    return fit(Observed(Path("log.csv"), Engine.PLAIN, (), trace, drafts, None, 1, 0), settings)


def of_windows(windows: Windows, settings: Settings = QUICK, drafts: int | None = 7) -> Fit:
    return fit(Observed(Path("log.txt"), Engine.VLLM, (), windows, drafts, None, 1, 0), settings)


def drawn(model: AcceptanceModel, requests: int, steps: int, seed: int) -> Trace:
    generator = np.random.default_rng(seed)
    lengths = [model.draw(generator, steps * model.cap)[:steps].tolist() for _ in range(requests)]
    return Trace(tuple(map(tuple, lengths)), grouped=True)


def holds(quoted: Quoted | None, value: float) -> bool:
    assert quoted is not None
    assert quoted.interval is not None
    return quoted.interval.low <= value <= quoted.interval.high


def shares(lengths: Sequence[int]) -> np.ndarray:
    """Of lengths 1 to 8."""
    return np.bincount(lengths, minlength=9)[1:] / len(lengths)


def expected_shares(trace: Trace) -> np.ndarray:
    """Every request counts the same where they are told apart; else every step."""
    if not trace.grouped or len(trace.requests) < 8:
        return shares(sum(trace.requests, ()))
    left = slice(None, -1 if same_output(steps_of(trace)) else None)
    return np.mean([shares(request[left]) for request in trace.requests], axis=0)


@given(request_lists, st.booleans())
def test_hazards_give_the_histogram_whatever_varies(
    requests: tuple[tuple[int, ...], ...], grouped: bool
) -> None:
    trace = Trace(requests if grouped else (sum(requests, ()),), grouped)
    found = of_trace(trace)
    assert found.model is not None
    assert found.model.distribution() == pytest.approx(expected_shares(trace), abs=1e-6)
    assert quick_check(found).observed == pytest.approx(expected_shares(trace))
    assert found.mean_length.value == pytest.approx(found.model.mean_length(), abs=1e-6)
    assert (found.request_sd is None) >= (len(requests) < 8 or not grouped)


@given(request_lists, st.booleans())
def test_every_figure_lies_in_its_interval(requests: tuple[tuple[int, ...], ...], constant: bool) -> None:
    found = of_trace(Trace(requests, grouped=True), Settings(constant, draws=200))
    figures = (found.mean_length, found.hazard, found.request_sd, found.step_correlation, *found.rates)
    for quoted in figures:
        if quoted is not None and quoted.interval is not None:
            assert quoted.interval.low - 1e-9 <= quoted.value <= quoted.interval.high + 1e-9


@given(request_lists)
def test_one_hazard_gives_the_mean(requests: tuple[tuple[int, ...], ...]) -> None:
    trace = Trace(requests, grouped=True)
    found = of_trace(trace, Settings(constant=True, draws=200))
    assert found.model is not None
    assert found.hazard is not None
    assert set(found.model.hazards) == {found.hazard.value}
    assert found.model.mean_length() == pytest.approx(expected_shares(trace) @ np.arange(1, 9), abs=1e-6)


@given(request_lists, st.randoms())
def test_the_order_of_requests_does_not_matter(requests: tuple[tuple[int, ...], ...], luck: object) -> None:
    mixed = list(requests)
    luck.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = (of_trace(Trace(tuple(order), grouped=True)) for order in (requests, mixed))
    assert one.model is not None
    assert other.model is not None
    assert one.model.request_sd == pytest.approx(other.model.request_sd, abs=1e-4)
    if len(requests) >= 8:
        assert one.model.step_correlation == pytest.approx(other.model.step_correlation, abs=1e-4)


@pytest.mark.parametrize(("sd", "correlation"), [(0.0, 0.0), (0.4, 0.2), (1.0, 0.5)])
def test_a_long_log_gives_back_what_it_was_drawn_from(sd: float, correlation: float) -> None:
    model = AcceptanceModel(HAZARDS, sd, correlation)
    found = of_trace(drawn(model, 800, 60, seed=4), Settings())
    assert found.model is not None
    assert found.model.request_sd == pytest.approx(sd, abs=0.1)
    assert found.model.step_correlation == pytest.approx(correlation, abs=0.03)
    assert found.model.hazards == pytest.approx(HAZARDS, abs=0.03)


def all_hold(found: Fit, model: AcceptanceModel) -> bool:
    survival = 1 - np.cumsum(model.distribution())[:-1]
    return (
        holds(found.mean_length, model.mean_length())
        and all(holds(rate, chance) for rate, chance in zip(found.rates, survival, strict=True))
        and (found.request_sd is None or holds(found.request_sd, model.request_sd))
        and holds(found.step_correlation, model.step_correlation)
        and (found.hazard is None or holds(found.hazard, model.hazards[0]))
    )


@pytest.mark.parametrize(
    ("model", "requests", "settings", "seeds"),
    [
        (AcceptanceModel(HAZARDS, 0.4, 0.2), 60, Settings(draws=1000), 100),
        (AcceptanceModel(HAZARDS), 12, Settings(draws=1000), 30),
        (AcceptanceModel((solve_constant_hazard(4.4, 8, 0.4),) * 7, 0.4, 0.2), 40, Settings(True, 1000), 30),
    ],
    ids=["60 requests", "12 alike requests", "one hazard"],
)
def test_all_intervals_hold_at_once_in_nine_of_ten_logs(
    model: AcceptanceModel, requests: int, settings: Settings, seeds: int
) -> None:
    logs = (drawn(model, requests, 30, seed) for seed in range(seeds))
    assert sum(all_hold(of_trace(log, settings), model) for log in logs) >= 0.9 * seeds


def of_outputs(model: AcceptanceModel, requests: int, tokens: int, seed: int) -> Trace:
    """Requests that stop at an output, as a simulation writes them: slow ones have more steps."""
    generator = np.random.default_rng(seed)
    rows = [model.draw(generator, tokens).tolist() for _ in range(requests)]
    return Trace(tuple(map(tuple, rows)), grouped=True)


@pytest.mark.parametrize(
    ("sd", "correlation", "requests", "seeds"),
    [(0.4, 0.2, 60, 100), (0.4, 0.2, 300, 20), (1.0, 0.2, 100, 30), (0.0, 0.0, 60, 30)],
)
def test_all_intervals_hold_at_once_where_requests_stop_at_an_output(
    sd: float, correlation: float, requests: int, seeds: int
) -> None:
    model = AcceptanceModel(HAZARDS, sd, correlation)
    logs = (of_outputs(model, requests, 600, seed) for seed in range(seeds))
    assert sum(all_hold(of_trace(log, Settings(draws=1000)), model) for log in logs) >= 0.9 * seeds


@pytest.mark.parametrize(("sd", "tokens"), [(1.5, 600), (0.4, 60)])
def test_the_mean_is_over_requests_not_over_steps(sd: float, tokens: int) -> None:
    model = AcceptanceModel(HAZARDS, sd)
    logs = [of_outputs(model, 400, tokens, seed) for seed in range(8)]
    found = np.mean([of_trace(log, Settings(draws=100)).mean_length.value for log in logs])
    assert found == pytest.approx(model.mean_length(), abs=0.06)
    if sd == 1.5:
        pooled = np.mean([np.mean(sum(log.requests, ())) for log in logs])
        assert pooled < model.mean_length() - 0.8


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (
            drawn(AcceptanceModel(HAZARDS), 20, 30, 1),
            "Every request counts the same, however many steps it took.",
        ),
        (
            of_outputs(AcceptanceModel(HAZARDS), 20, 300, 1),
            "the step that ends a request is longer than most",
        ),
        (Trace(((3, 2, 1) * 40,), grouped=False), "Every step counts the same."),
        (Trace(((3, 2, 1),) * 7, grouped=True), "Every step counts the same."),
    ],
)
def test_the_report_says_what_counts_the_same(trace: Trace, said: str) -> None:
    assert sum(said in note for note in of_trace(trace).notes) == 1


def test_a_good_model_passes_its_checks_where_requests_stop_at_an_output() -> None:
    """Slow requests have more steps, also in the simulated logs."""
    model, held, total = AcceptanceModel(HAZARDS, 1.0, 0.2), 0, 0
    for seed in range(3):
        found = check(of_trace(of_outputs(model, 80, 300, seed)))
        held += sum(one.inside for one in found.checks)
        total += len(found.checks)
    assert held >= total - 1


def test_intervals_hold_where_requests_are_not_told_apart() -> None:
    model = AcceptanceModel(HAZARDS, 0.0, 0.5)
    logs = (drawn(model, 1, 1800, seed).requests for seed in range(40))
    found = [of_trace(Trace(log, grouped=False), Settings(draws=1000)) for log in logs]
    assert sum(all_hold(one, model) for one in found) >= 36
    assert all(one.request_sd is None for one in found)
    assert "does not say which request" in found[0].notes[0]


def test_intervals_are_no_wider_than_they_need_to_be() -> None:
    """Four times the requests halve them."""
    model = AcceptanceModel(HAZARDS, 0.4, 0.2)
    small, large = (of_trace(drawn(model, requests, 30, 1)) for requests in (100, 400))
    for name in ("mean_length", "request_sd", "step_correlation"):
        one, other = (getattr(found, name).interval for found in (small, large))
        assert 1.4 < (one.high - one.low) / (other.high - other.low) < 2.9, name
    assert large.mean_length.interval is not None
    assert large.mean_length.interval.high - large.mean_length.interval.low < 0.25


def test_a_rate_that_never_was_has_an_upper_bound() -> None:
    found = of_trace(drawn(AcceptanceModel((0.9, 0.5)), 40, 30, 1))
    assert found.rates[2].value == 0
    assert found.rates[2].interval is not None
    assert found.rates[2].interval.low == 0
    assert 1 / 1200 < found.rates[2].interval.high < 0.01


@pytest.mark.parametrize("units", [1, 7])
def test_few_units_have_no_interval(units: int) -> None:
    pulls = np.arange(units) - (units - 1) / 2
    assert together([Column(1.0, pulls, Scale.PLAIN)], 100, np.random.default_rng(1)) is None


def test_units_of_which_one_alone_differs_have_no_interval() -> None:
    pulls = np.where(np.arange(40) == 0, 39.0, -1.0)
    rare = Column(0.001, pulls, Scale.PLAIN)
    assert together([rare], 400, np.random.default_rng(1)) is None


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("request_", [(3, 1, 2, 4, 4), (1, 8) * 9, (5,) * 5], ids=str)
def test_requests_that_are_all_alike_have_no_interval(request_: tuple[int, ...], constant: bool) -> None:
    """And no division by zero."""
    found = of_trace(Trace((request_,) * 12, grouped=True), Settings(constant, draws=200))
    figures = [found.mean_length, *found.rates, found.request_sd, found.step_correlation, found.hazard]
    assert all(one.interval is None for one in figures if one is not None)
    assert "Intervals are missing: 12 pieces of log, 8 or more that differ are needed." in found.notes


@given(st.integers(8, 60), st.integers(0, 2**32))
def test_an_interval_holds_its_figure_and_is_wider_than_for_it_alone(units: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(5, 1, (3, units))
    columns = [Column(row.mean(), (row - row.mean()) / units, Scale.PLAIN) for row in values]
    alone = together(columns[:1], 2000, np.random.default_rng(1))
    three = together(columns, 2000, np.random.default_rng(1))
    if alone is None or three is None:
        # Rarely the least numbers of units would need more standard errors than an interval may have.
        assert units < 12
        return
    for column, interval in zip(columns, three, strict=True):
        assert interval.low < column.value < interval.high
    assert three[0].high - three[0].low >= alone[0].high - alone[0].low


def test_many_units_are_as_sure_in_batches() -> None:
    values = np.random.default_rng(1).normal(5, 1, 20_000)
    [interval] = together(
        [Column(values.mean(), (values - values.mean()) / len(values), Scale.PLAIN)],
        2000,
        np.random.default_rng(1),
    ) or [None]
    assert interval is not None
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / np.sqrt(20_000), rel=0.12)


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (Trace(((3, 2, 1),) * 7, grouped=True), "7 requests are too few to tell how they differ (8 needed)"),
        (
            Trace(((3, 2), (1, 4)) * 9, grouped=True),
            "requests are too short to tell them from correlated steps",
        ),
        (Trace(((3, 2, 1) * 40,), grouped=False), "does not say which request a step belongs to"),
        (Trace(((3, 1) * 40,), grouped=False), "less alike than by chance"),
        (Trace(((3,) * 40,), grouped=False), "missing: every step has the same length"),
        (Trace(((3,), (2,)) * 40, grouped=True), "missing: no request has two steps"),
        (Trace(((3, 2, 1),), grouped=False), "Intervals are missing: 1 piece of log, 8 or more"),
    ],
)
def test_what_a_log_cannot_say_is_said(trace: Trace, said: str) -> None:
    found = of_trace(trace)
    assert any(said in note for note in found.notes), found.notes
    assert found.model is not None
    assert found.model.request_sd == 0


def test_the_cap_is_the_longest_length_unless_told() -> None:
    trace = drawn(AcceptanceModel((0.9, 0.5)), 10, 30, 1)
    alone, told = of_trace(trace, drafts=None), of_trace(trace)
    assert (len(alone.rates), len(told.rates)) == (2, 7)
    assert "The longest length found, 3, is taken as the cap" in alone.notes[0]
    assert not any("cap" in note for note in told.notes)


windows_strategy = st.lists(st.tuples(st.integers(1, 500), st.floats(0.05, 0.95)), min_size=1, max_size=20)


@given(windows_strategy)
def test_windows_are_pooled_by_weight(drafted: list[tuple[int, float]]) -> None:
    rates = np.array([[hazard**depth for depth in range(1, 8)] for _, hazard in drafted])
    weight = np.array([float(steps) for steps, _ in drafted])
    found = of_windows(Windows(1 + rates.sum(axis=1), weight, rates))
    pooled = (weight[:, None] * rates).sum(axis=0) / weight.sum()
    assert [rate.value for rate in found.rates] == pytest.approx(pooled)
    assert found.model is not None
    assert (
        found.mean_length.value == pytest.approx(1 + pooled.sum()) == pytest.approx(found.model.mean_length())
    )
    assert (found.request_sd, found.step_correlation) == (None, None)


def test_intervals_of_windows_hold() -> None:
    model, held = AcceptanceModel(hazards_from_rates(KIMI_RATES)), 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        steps = generator.integers(50, 400, 30)
        lengths = [generator.choice(np.arange(1, 9), size, p=model.distribution()) for size in steps]
        rates = np.array([[(row > depth).mean() for depth in range(1, 8)] for row in lengths])
        found = of_windows(Windows(np.array([row.mean() for row in lengths]), steps.astype(float), rates))
        held += holds(found.mean_length, 4.73) and all(
            holds(rate, true) for rate, true in zip(found.rates, KIMI_RATES, strict=True)
        )
    assert held >= 54


def test_dispersion_tells_windows_that_differ_from_windows_that_do_not() -> None:
    model, generator = AcceptanceModel(hazards_from_rates(KIMI_RATES)), np.random.default_rng(2)
    steps = np.full(40, 300.0)
    noise = np.sqrt(model.distribution() @ np.arange(1, 9) ** 2 - 4.73**2) / np.sqrt(300)
    rates = np.tile(KIMI_RATES, (40, 1))
    alike, apart = (
        check(of_windows(Windows(4.73 + generator.normal(0, scale, 40), steps, rates)))
        for scale in (noise, 3 * noise)
    )
    assert alike.checks[0].inside
    assert not apart.checks[0].inside
    assert apart.checks[0].observed == pytest.approx(9, rel=0.5)


def test_a_good_model_passes_its_checks_and_a_bad_one_does_not() -> None:
    model = AcceptanceModel(HAZARDS, 0.4, 0.2)
    trace = drawn(model, 200, 60, 3)
    good, bad = check(of_trace(trace)), check(of_trace(trace, Settings(constant=True, draws=200)))
    assert all(one.inside for one in good.checks), good.checks
    assert sum(not one.inside for one in bad.checks) >= 2
    assert good.histogram_p == 1
    assert bad.histogram_p is not None
    assert bad.histogram_p < 0.01
    assert sum(good.observed) == pytest.approx(1)
    assert good.observed == pytest.approx(good.modelled, abs=1e-6)


def quick_check(found: Fit) -> Checks:
    """The checks against very few simulated logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "MOST_LOGS", 4)
        patch.setattr(checks, "FEWEST_LOGS", 4)
        return check(found)


@given(request_lists, st.booleans(), st.booleans(), st.sampled_from([None, 7, 40]))
def test_any_log_has_a_report_and_an_object(
    requests: tuple[tuple[int, ...], ...], grouped: bool, constant: bool, drafts: int | None
) -> None:
    trace = Trace(requests if grouped else (sum(requests, ()),), grouped)
    found = of_trace(trace, Settings(constant, draws=100), drafts)
    checked = quick_check(found)
    text = report.lines(found, checked)
    assert len(text) <= 64
    assert found.as_yaml().splitlines()[0] in text
    assert json.loads(files.as_json(report.as_object(found, checked)))["yaml"] == found.as_yaml()


@given(request_lists)
def test_checks_of_a_log_are_those_of_every_pair(requests: tuple[tuple[int, ...], ...]) -> None:
    trace = Trace(requests, grouped=True)
    assume(not same_output(steps_of(trace)))
    found = quick_check(of_trace(trace))
    by_name = {one.name: one.observed for one in found.checks}
    chance, lengths = expected_shares(trace), np.arange(1, 9)
    mean = chance @ lengths
    variance = chance @ (lengths - mean) ** 2
    for lag, name in ((1, "correlation of neighbours"), (2, "correlation of steps 2 apart")):
        off = [np.array(request) - mean for request in requests]
        products = [[one[at] * one[at + lag] for at in range(len(one) - lag)] for one in off]
        by_request = [np.mean(row) for row in products if row]
        every = np.concatenate(products)
        assert (name in by_name) <= bool(len(every) and variance > 1e-12)
        if name in by_name:
            expected = np.mean(by_request if len(requests) >= 8 else every) / variance
            assert by_name[name] == pytest.approx(expected, abs=1e-9)
    runs = [
        len(run) for request in requests for run in "".join("x" if n == 8 else " " for n in request).split()
    ]
    assert by_name["longest run of full blocks"] == max(runs, default=0)


def test_simulated_requests_begin_like_they_go_on() -> None:
    model = AcceptanceModel(HAZARDS, 0.0, 0.9)
    first = simulate(model, np.ones(40_000, dtype=np.int64), np.random.default_rng(1)).lengths
    shares = np.bincount(first, minlength=9)[1:] / len(first)
    assert shares == pytest.approx(model.distribution(), abs=0.01)


def test_steps_that_lean_on_the_one_before_the_last_are_seen() -> None:
    """Every other step repeats: no AR(1) model has correlation at lag 2 without any at lag 1."""
    generator = np.random.default_rng(1)
    odd, even = (np.repeat(generator.integers(1, 9, (100, 10)), 3, axis=1) for _ in "ab")
    requests = np.stack([odd, even], axis=2).reshape(100, 60)
    found = check(of_trace(Trace(tuple(map(tuple, requests.tolist())), grouped=True)))
    by_name = {one.name: one for one in found.checks}
    assert not by_name["correlation of steps 2 apart"].inside
    assert by_name["correlation of steps 2 apart"].observed > by_name["correlation of steps 2 apart"].high


def scenario_mean(yaml: str, *keys: str) -> AcceptanceModel:
    """The acceptance model of a scenario with this block, at block 8 and budget 8."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.yaml"
        text = f"question: What does the fitted log give?\nextends: b300_now\n{yaml}"
        path.write_text(text, encoding="utf-8")
        found = acceptance_model(resolve(load(path, keys)))
        assert isinstance(found, AcceptanceModel)
        return found


RATES = np.tile(KIMI_RATES, (30, 1)) + np.random.default_rng(1).normal(0, 0.001, (30, 1))


@pytest.mark.parametrize(
    "found",
    [
        of_trace(drawn(AcceptanceModel(HAZARDS, 0.4, 0.2), 60, 30, 1)),
        of_trace(drawn(AcceptanceModel(HAZARDS, 0.4, 0.2), 60, 30, 1), Settings(constant=True, draws=200)),
        of_trace(Trace((drawn(AcceptanceModel(HAZARDS), 1, 900, 1).requests[0],), grouped=False)),
        of_trace(Trace(((1,) * 20,), grouped=False)),
        of_trace(Trace(((8,) * 20,), grouped=False)),
        of_trace(Trace(((3, 1, 2),), grouped=False)),
        of_windows(Windows(1 + RATES.sum(axis=1), np.ones(30), RATES)),
        of_windows(Windows(1 + RATES.sum(axis=1), np.ones(30))),
        of_windows(Windows(1 + RATES.sum(axis=1), np.ones(30)), drafts=None),
        of_windows(Windows(1 + RATES.sum(axis=1), np.ones(30)), Settings(constant=True)),
        of_windows(Windows(np.array([4.4]), np.ones(1))),
    ],
    ids=lambda found: found.as_yaml().splitlines()[-1].strip().partition(":")[0],
)
def test_the_yaml_loads_and_gives_the_mean_and_the_variation_back(found: Fit) -> None:
    model = scenario_mean(found.as_yaml())
    assert model.mean_length() == pytest.approx(found.mean_length.value, abs=6e-4)
    assert max(map(len, found.as_yaml().splitlines())) <= 100
    if found.model is not None and isinstance(found.observed.data, Trace):
        assert model.request_sd == pytest.approx(found.model.request_sd, abs=1e-6)
        assert model.step_correlation == pytest.approx(found.model.step_correlation, abs=1e-6)


def test_the_range_of_a_mean_is_its_interval() -> None:
    found = of_windows(Windows(1 + RATES.sum(axis=1), np.ones(30)))
    assert found.mean_length.interval is not None
    text = found.as_yaml().partition("mean_length_range: [")[2].partition("]")[0]
    low, high = map(float, text.split(", "))
    assert low <= found.mean_length.interval.low < low + 0.001
    assert high - 0.001 < found.mean_length.interval.high <= high


def test_the_yaml_says_where_it_comes_from() -> None:
    found = of_trace(drawn(AcceptanceModel(HAZARDS, 0.4, 0.2), 60, 30, 1))
    lines = found.as_yaml().splitlines()
    assert lines[:2] == ["acceptance:", "  # Fitted to log.csv (plain lengths), 1,800 steps of 60 requests."]
    assert "Needs drafter.block: 8, and tree.budget: 7 or more" in lines[2]


@pytest.mark.parametrize("counts", [None, *Counts])
def test_the_line_for_a_trace_loads_from_any_folder_into_a_scenario_that_varies(
    tmp_path: Path, counts: Counts | None
) -> None:
    log, mine = tmp_path / "lengths of mine.csv", tmp_path / "elsewhere" / "mine.yaml"
    log.write_text("request,length\n" + "".join(f"{i % 9},{1 + i % 7}\n" for i in range(90)))
    found = fit(read_log(log, Options(counts=counts)))
    mine.parent.mkdir()
    mine.write_text(f"question: What does my own log give?\nextends: b300_now\n{found.trace_yaml}\n")
    model = acceptance_model(resolve(load(mine)))
    assert model.mean_length() == pytest.approx(np.mean([n for r in trace_of(found) for n in r]))


def trace_of(found: Fit) -> tuple[tuple[int, ...], ...]:
    assert isinstance(found.observed.data, Trace)
    return found.observed.data.requests
