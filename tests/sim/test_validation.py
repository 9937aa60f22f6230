"""Predictions beside measurements: laws of the whole, intervals, blame, report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import DRAFTED, OTHER, PLAIN, ROWS, cases

from hwmodels import catalog
from sim.validation import pictures, report, residuals, shipped
from sim.validation.blame import blame
from sim.validation.cases import read
from sim.validation.residuals import QUANTILE, Residual, discrepancy_sd
from sim.validation.run import learnt, validate, wishes
from sim.validation.translation import CaseKind
from sim.validation.uncertainty import length_sd
from sim.validation.verdicts import Ground, Row, Validation, score

KNOWN = (Residual("X", CaseKind.BASELINE, Ground.TABLES, "another system", 0.1, 0.02),)


def validated(folder: Path, rows: Sequence[Mapping[str, str]], system: str = "") -> Validation:
    return validate(wishes(cases(folder, rows), system), KNOWN)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    return validated(tmp_path_factory.mktemp("base"), ROWS)


def by_key(validation: Validation) -> dict[tuple[str, CaseKind], Row]:
    return {(row.id, row.kind): row for row in validation.rows}


def same(a: Row, b: Row) -> bool:
    return (a.predicted, a.interval, a.prediction.sources) == (b.predicted, b.interval, b.prediction.sources)


def test_every_measurement_is_predicted(base: Validation) -> None:
    keys = [("P1", "baseline"), ("D1", "baseline"), ("D1", "speculative"), ("O1", "baseline")]
    assert [(row.id, row.kind) for row in base.rows] == keys
    assert base.skipped == ()
    for row in base.rows:
        low, high = row.interval
        assert 0 < low < row.predicted < high < math.inf
        assert sum(row.prediction.sources.values()) == pytest.approx(1)
        assert sum(row.prediction.components.values()) == pytest.approx(row.prediction.step_s)


def test_the_order_of_rows_changes_nothing(base: Validation, tmp_path: Path) -> None:
    turned = by_key(validated(tmp_path, ROWS[::-1]))
    assert turned.keys() == by_key(base).keys()
    assert all(same(row, turned[key]) for key, row in by_key(base).items())


def test_a_row_again_is_predicted_again_the_same(base: Validation, tmp_path: Path) -> None:
    again = validated(tmp_path, [*ROWS, PLAIN | {"id": "again"}])
    assert same(by_key(again)["again", CaseKind.BASELINE], by_key(base)["P1", CaseKind.BASELINE])


def test_a_row_that_nobody_knows_stops_no_other(base: Validation, tmp_path: Path) -> None:
    unknown = [
        PLAIN | {"id": "gpu", "gpu": "a GPU of 2030"},
        PLAIN | {"id": "engine", "engine": "mine"},
        PLAIN | {"id": "nothing", "tok_s_total": ""},
        PLAIN | {"id": "kernel", "model": "Kimi-K2.6", "quantisation": "NVFP4", "gpu": "H200", "n_gpu": "8"},
        DRAFTED | {"id": "length", "acceptance_length": "", "baseline_tok_s_total": ""},
    ]
    unknown[3]["parallelism"] = "TP8"
    found = validated(tmp_path, [unknown[0], *ROWS, *unknown[1:]])
    assert by_key(found).keys() == by_key(base).keys()
    assert all(same(row, by_key(found)[key]) for key, row in by_key(base).items())
    reasons = {skip.id: skip.reason for skip in found.skipped}
    assert list(reasons) == ["gpu", "engine", "nothing", "kernel", "length"]
    assert "a GPU of 2030" in reasons["gpu"]
    assert "mine" in reasons["engine"]
    assert "tok_s_total" in reasons["nothing"]
    assert "nvfp4" in reasons["kernel"]
    assert "acceptance_length" in reasons["length"]


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_measurements_times_c_divide_the_ratio_by_c(base: Validation, tmp_path: Path, factor: float) -> None:
    columns = ("tok_s_total", "baseline_tok_s_total")
    scaled = [row | {c: str(float(row[c]) * factor) for c in columns if row.get(c)} for row in ROWS]
    found = by_key(validated(tmp_path, scaled))
    for key, row in by_key(base).items():
        assert same(row, found[key])
        assert 1 + found[key].error == pytest.approx((1 + row.error) / factor)


def test_throughput_is_proportional_to_the_acceptance_length(tmp_path: Path) -> None:
    """Of decoding alone: where prompts are counted, longer steps of tokens bring them sooner."""
    alone = DRAFTED | {"workload": "decode bench", "context_tokens": "1000"}
    rows = [alone | {"id": length, "acceptance_length": length} for length in ("2", "8", "16")]
    found = by_key(validated(tmp_path, rows))
    each = [found[length, CaseKind.SPECULATIVE].predicted / float(length) for length in ("2", "8", "16")]
    assert each == pytest.approx([each[0]] * 3)


def test_prompts_of_newcomers_cost_something(base: Validation, tmp_path: Path) -> None:
    alone = [row | {"workload": "bench_one_batch"} for row in ROWS]
    found = by_key(validated(tmp_path, alone))
    assert all(found[key].predicted > row.predicted for key, row in by_key(base).items())


def test_more_requests_give_more_and_a_longer_context_less(base: Validation, tmp_path: Path) -> None:
    rows = [PLAIN | {"id": "many", "concurrency": "8"}, PLAIN | {"id": "long", "context_tokens": "30000"}]
    found, one = by_key(validated(tmp_path, rows)), by_key(base)["P1", CaseKind.BASELINE]
    assert found["many", CaseKind.BASELINE].predicted > one.predicted
    assert found["long", CaseKind.BASELINE].predicted < one.predicted


def test_what_does_not_fit_into_the_cache_waits(tmp_path: Path) -> None:
    crowd = PLAIN | {"concurrency": "400", "context_tokens": "30k in/1k out"}
    found = validated(tmp_path, [crowd])
    assert 1 <= found.rows[0].prediction.requests < 400
    assert any("others wait" in line for line in report.lines(found, "title"))


@pytest.mark.parametrize(("system", "ids"), [("h100", {"O1"}), ("b200 sglang", {"P1", "D1"}), ("tpu", set())])
def test_a_system_is_picked_by_words(tmp_path: Path, base: Validation, system: str, ids: set[str]) -> None:
    found = validated(tmp_path, ROWS, system)
    assert {row.id for row in found.rows} == ids
    assert all(same(row, by_key(base)[key]) for key, row in by_key(found).items())


def test_a_mean_step_grows_with_every_family(base: Validation) -> None:
    for row in base.rows:
        model = row.prediction.model
        factors = np.array([0.5, 1.0, 2.0, 4.0])
        for index in range(len(model.families)):
            assert (np.diff(model.scaled(index, factors)) >= 0).all()
        slower = model.step_s(np.full((1, len(model.spreads)), 2.0))[0]
        assert slower == pytest.approx(2 * model.step_s(np.ones((1, len(model.spreads))))[0], rel=1e-3)


def test_noise_and_waiting_only_add_a_little(base: Validation) -> None:
    for row in base.rows:
        mean = row.prediction.model.step_s(np.ones((1, len(row.prediction.model.spreads))))[0]
        assert 1.0 < row.prediction.step_s / mean < 1.1


def test_an_interval_widens_with_what_the_model_lacks(base: Validation) -> None:
    row = base.rows[0]
    widths = [replace(row, discrepancy_sd=sd).interval for sd in (0.0, 0.05, 0.2)]
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in pairwise(widths))


def test_an_interval_without_discrepancy_is_that_of_its_draws(base: Validation) -> None:
    """The draws are near to lognormal, so their own deviation gives the interval."""
    for row in base.rows:
        low, high = replace(row, discrepancy_sd=0.0).interval
        half = QUANTILE * row.draws.log_sd
        assert math.log(high / low) == pytest.approx(2 * half, rel=0.15)


def test_lengths_are_as_sure_as_their_origin(tmp_path: Path) -> None:
    origins = ["reported", "derived 1+3*rate", "article (approx)"]
    rows = [DRAFTED | {"id": origin, "acceptance_length_origin": origin} for origin in origins]
    found = [length_sd(case, CaseKind.SPECULATIVE) for case in cases(tmp_path, rows)]
    assert 0 < found[0] < found[1] < found[2]
    assert all(length_sd(case, CaseKind.BASELINE) == 0 for case in cases(tmp_path, rows))
    assert found[0] == pytest.approx(0.01 / math.sqrt(12) / 8.01)


def residual(
    system: str,
    log_error: float,
    log_sd: float = 0.0,
    kind: CaseKind = CaseKind.BASELINE,
    ground: Ground = Ground.TABLES,
) -> Residual:
    return Residual("x", kind, ground, system, log_error, log_sd)


def test_a_system_says_nothing_of_itself(base: Validation) -> None:
    row = base.rows[0]
    own, other = residual(row.system, 1.0), residual("another", 0.1)
    assert discrepancy_sd([own, other], row) == pytest.approx(0.1 / QUANTILE)
    assert discrepancy_sd([own], row) == 0
    assert discrepancy_sd([residual("another", 1.0, kind=CaseKind.SPECULATIVE)], row) == 0


def test_gpus_with_tables_are_told_apart_where_enough_are_known(base: Validation) -> None:
    row = base.rows[0]
    assert row.ground is Ground.TABLES
    bounds = [residual(system, 1.0, ground=Ground.ROOFLINE) for system in "xyz"]
    measured = [residual(system, 0.1) for system in "abc"]
    assert discrepancy_sd(bounds + measured, row) == pytest.approx(0.1 / QUANTILE)
    assert discrepancy_sd(bounds + measured[:2], row) == pytest.approx(1.0 / QUANTILE)


def test_what_an_interval_explains_is_not_lacking(base: Validation) -> None:
    row = base.rows[0]
    assert discrepancy_sd([residual("a", 0.1, 0.2)], row) == 0
    some = discrepancy_sd([residual("a", 0.5, 0.1)], row)
    assert some == pytest.approx(math.sqrt((0.5 / QUANTILE) ** 2 - 0.01))


@pytest.fixture(scope="module")
def lacking(base: Validation) -> Callable[[Sequence[Residual]], float]:
    """The discrepancy of the first row, as a function of residuals: drawn examples print it, not the row."""
    return lambda found: discrepancy_sd(found, base.rows[0])


# A residual is a logarithm of two rates: below a billionth it is a rounding of them.
errors = st.floats(-2, 2).filter(lambda error: error == 0 or abs(error) > 1e-9)


@given(rows=st.lists(st.tuples(st.sampled_from("abcd"), errors, st.floats(0, 0.5)), min_size=1))
def test_the_discrepancy_covers_nine_rows_in_ten(
    lacking: Callable[[Sequence[Residual]], float], rows: list[tuple[str, float, float]]
) -> None:
    found = [residual(*each) for each in rows]
    sd = lacking(found)
    per_system = {r.system: sum(o.system == r.system for o in found) for r in found}
    weights = [1 / per_system[r.system] for r in found]
    inside = [abs(r.log_error) <= QUANTILE * math.hypot(r.log_sd, sd) * (1 + 1e-9) for r in found]
    assert sum(w for w, ok in zip(weights, inside, strict=True) if ok) >= 0.9 * sum(weights) - 1e-9
    assert lacking(found[::-1]) == sd


def test_residuals_go_into_a_file_and_come_back(base: Validation, tmp_path: Path) -> None:
    widened, found = learnt(base)
    residuals.write(found, tmp_path / "residuals.csv")
    assert residuals.read(tmp_path / "residuals.csv") == found
    assert [row.predicted for row in widened.rows] == [row.predicted for row in base.rows]
    for row, off in zip(widened.rows, found, strict=True):
        assert off.log_error == pytest.approx(math.log(row.predicted / row.measured), abs=1e-5)
        assert row.discrepancy_sd == discrepancy_sd(found, row)


def test_blame_closes_the_gap(base: Validation) -> None:
    for row in base.rows:
        model, found = row.prediction.model, blame(row)
        wanted = model.step_s(np.ones((1, len(model.spreads))))[0] * row.predicted / row.measured
        assert found.most_likely in found.suspects
        for suspect in found.suspects:
            if suspect.factor is not None:
                index = model.families.index(suspect.family)
                assert model.scaled(index, np.array([suspect.factor]))[0] == pytest.approx(wanted, rel=0.01)
        if found.most_likely.could_close_it:
            assert found.most_likely.sigmas == min(s.sigmas for s in found.suspects)


def test_nothing_is_to_blame_where_the_prediction_is_right(base: Validation) -> None:
    row = base.rows[0]
    exact = replace(row.question.case, tok_s_total=row.predicted)
    right = replace(row, question=replace(row.question, case=exact))
    assert all(s.factor == pytest.approx(1, abs=0.01) for s in blame(right).suspects if s.factor is not None)


def test_scores_are_what_they_say(base: Validation) -> None:
    errors = [row.error for row in base.rows]
    found = score(base.rows)
    assert found is not None
    assert found.rows == len(errors)
    assert found.bias == pytest.approx(sum(errors) / len(errors))
    assert found.mean_absolute_error == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert found.median_absolute_error == pytest.approx(float(np.median(np.abs(errors))))
    assert found.inside == sum(row.is_inside for row in base.rows) / len(errors)
    assert score([]) is None


def test_json_has_what_is_promised_and_matches_the_text(base: Validation, tmp_path: Path) -> None:
    found = report.as_object(base)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == {"rows", "skipped", "summary"}
    keys = {"id", "kind", "measured_tok_s", "predicted_tok_s", "error", "low", "high", "rests_on"}
    text = report.lines(base, "title")
    for row in found["rows"]:
        assert row.keys() == keys
        assert row["error"] == pytest.approx(row["predicted_tok_s"] / row["measured_tok_s"] - 1, abs=1e-4)
        (line,) = [
            x for x in text if x.startswith(f"{row['id']} ") and f" {row['kind']} " in x and "ms" not in x
        ]
        assert report.tok_s_text(row["predicted_tok_s"]) in line
        assert report.signed(row["error"]) in line
    assert found["summary"]["overall"]["rows"] == 4
    assert sum(part["rows"] for part in found["summary"]["systems"].values()) == 4
    assert report.write(base, text, tmp_path) == ["report.txt", "validation.json", "rows.csv"]
    assert json.loads((tmp_path / "validation.json").read_text()) == found


def test_the_report_fits_a_hundred_columns(base: Validation, tmp_path: Path) -> None:
    unknown = [PLAIN | {"id": f"unknown {i}", "gpu": "a GPU of a very long name " * 5} for i in range(30)]
    for validation in (base, validated(tmp_path, unknown)):
        assert max(map(len, report.lines(validation, "title"))) <= report.WIDTH


def test_whether_speculation_pays_is_told(base: Validation) -> None:
    (sign,) = base.signs
    assert sign.id == "D1"
    assert sign.measured_gain == pytest.approx(1175 / 231)
    assert sign.is_right
    assert not sign._replace(measured_gain=0.9).is_right


def test_nothing_predicted_is_reported_too(tmp_path: Path) -> None:
    nothing = validated(tmp_path, [PLAIN | {"gpu": "none such"}])
    assert report.as_object(nothing)["summary"] == {"overall": None, "systems": {}}
    assert any("Skipped" in line for line in report.lines(nothing, "title"))
    assert pictures.write(nothing, tmp_path) == []


def test_pictures_are_the_same_bytes(base: Validation, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        assert pictures.write(base, folder) == ["scatter.png", "scatter.svg"]
    for name in ("scatter.png", "scatter.svg"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_usual_fabrics_and_hosts_exist() -> None:
    for name in catalog.names(catalog.Kind.GPU):
        gpu = catalog.gpu(name)
        assert gpu.usual_host in catalog.names(catalog.Kind.HOST)
        assert gpu.usual_interconnect in catalog.names(catalog.Kind.INTERCONNECT)


def test_the_shipped_cases_are_read() -> None:
    found = read(shipped.cases())
    assert len(found) > 70
    assert all(case.source for case in found)
    assert OTHER["gpu"] in catalog.names(catalog.Kind.GPU)
