"""Posteriors as files, and as what scenarios draw from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import full_setup
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.uncertainty import posterior_file
from sim.uncertainty.discrepancy import OF_CONFIGURATION, OF_SYSTEM
from sim.uncertainty.keys import Where
from sim.uncertainty.parameters import Parameters, draws
from sim.uncertainty.posterior import NO_DISCREPANCY, Discrepancy, Observation, Posterior, SystemKind
from sim.uncertainty.response import Response

KINDS = [SystemKind(plain, tabled) for plain in (False, True) for tabled in (False, True)]


def posterior(
    identities: tuple[str, ...], rows: int = 32, discrepancy: Discrepancy = NO_DISCREPANCY
) -> Posterior:
    rng = np.random.default_rng(3)
    return Posterior(
        identities=identities,
        quantiles=rng.random((rows, len(identities))),
        discrepancies=dict.fromkeys(KINDS, discrepancy),
        observations=(Observation("b300_now", 303.0),),
        effective_sample_size=20.5,
    )


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    one = posterior(
        ("work.routed_experts of some tables", "gpu.l2_mib (1.0, 2.0)"), discrepancy=Discrepancy(0.1, 0.2)
    )
    posterior_file.write(one, tmp_path / posterior_file.NAME, {"specdec_sim": "1"})
    for name in (str(tmp_path), str(tmp_path / posterior_file.NAME)):
        found = posterior_file.read(name)
        assert (found.identities, found.discrepancies, found.observations) == (
            one.identities,
            one.discrepancies,
            one.observations,
        )
        assert found.effective_sample_size == one.effective_sample_size
        assert np.array_equal(found.quantiles, one.quantiles)
        assert found.stored is not None
        assert len(found.stored.sha256) == 64


def test_the_same_posterior_leaves_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        posterior_file.write(posterior(("x", "y")), tmp_path / name, {"specdec_sim": "1"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def refused(path: Path) -> str:
    with pytest.raises(ScenarioError) as problem:
        posterior_file.read(str(path))
    return str(problem.value)


def test_what_is_no_posterior_is_refused_by_name(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.parquet")
    assert "no such file" in refused(tmp_path)
    (tmp_path / "text").write_text("posterior?")
    assert "not a posterior" in refused(tmp_path / "text")
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "table")
    assert "not a posterior" in refused(tmp_path / "table")
    wrong = replace(posterior(("x",)), quantiles=np.array([[1.5]]))
    posterior_file.write(wrong, tmp_path / "wrong", {})
    assert "no quantiles" in refused(tmp_path / "wrong")
    missing = replace(posterior(("x",)), quantiles=np.array([[np.nan]]))
    posterior_file.write(missing, tmp_path / "missing", {})
    assert "no quantiles" in refused(tmp_path / "missing")
    empty = replace(posterior(("x",)), quantiles=np.empty((0, 1)))
    posterior_file.write(empty, tmp_path / "empty", {})
    assert "no quantiles" in refused(tmp_path / "empty")


def damaged(path: Path, **about: object) -> str:
    """What is said of a posterior that states something else."""
    posterior_file.write(posterior(("x",)), path, {})
    table = pq.read_table(path)
    said = json.loads(table.schema.metadata[posterior_file.ABOUT]) | about
    pq.write_table(table.replace_schema_metadata({posterior_file.ABOUT: json.dumps(said)}), path)
    return refused(path)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for wrong in (-0.1, 1e9, "wide", None):
        assert "not a posterior" in damaged(tmp_path / "p", discrepancies=[[[True, True], [wrong, 0.1]]])
    for wrong in (-1, 0, "many"):
        assert "not a posterior" in damaged(tmp_path / "p", effective_sample_size=wrong)
    assert "format 2" in damaged(tmp_path / "p", format_version=2, discrepancies="all new")
    posterior_file.write(posterior(("x",)), tmp_path / "p", {})
    known = pq.read_table(tmp_path / "p").schema.metadata
    pq.write_table(pa.table({"x": ["text"]}).replace_schema_metadata(known), tmp_path / "p")
    assert "not a posterior" in refused(tmp_path / "p")


@given(share=st.floats(0, 0.999))
def test_a_torn_file_is_refused(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("torn") / "p"
    posterior_file.write(posterior(("x", "y")), path, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "not a posterior" in refused(path)


def test_a_file_of_another_format_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior_file, "FORMAT_VERSION", 99)
    posterior_file.write(posterior(("x",)), tmp_path / "new", {})
    monkeypatch.undo()
    assert "format 99" in refused(tmp_path / "new")


PLAIN = full_setup()
KNOWN = tuple(parameter.identity for parameter in Parameters.of(PLAIN))[:4]


def test_known_unknowns_are_drawn_together_and_others_as_before() -> None:
    """Draw i takes one row of the posterior in every column."""
    known = posterior(KNOWN)
    before = Parameters.of(PLAIN)
    after = Parameters.of(replace(PLAIN, posterior=known))
    assert after.names == before.names
    drawn, earlier = after.draw(16, 5), before.draw(16, 5)
    rows = known._rows(16, 5)
    assert len(set(rows.tolist())) == 16
    for parameter in after:
        column = drawn.columns[parameter.name]
        if parameter.identity in KNOWN:
            own = known.quantiles[rows, KNOWN.index(parameter.identity)]
            assert column.tolist() == parameter.prior.at(own).tolist()
        else:
            assert column.tolist() == earlier.columns[parameter.name].tolist()


def test_two_setups_meet_the_same_row() -> None:
    known = posterior(KNOWN)
    setups = [replace(full_setup(f"tree.budget={budget}"), posterior=known) for budget in (4, 8)]
    one, other = (values.columns for values in draws([Parameters.of(s) for s in setups], 16, 1))
    for name in {p.name for p in Parameters.of(PLAIN) if p.identity in KNOWN}:
        assert one[name].tolist() == other[name].tolist()


def test_more_draws_than_rows_begin_again() -> None:
    known = posterior(("x",), rows=8)
    counts = np.bincount(known._rows(20, 1), minlength=8)
    assert counts.min() >= 2
    assert counts.max() <= 3


def test_what_is_known_of_one_alone_moves_its_ends() -> None:
    known = replace(posterior(KNOWN), quantiles=np.full((8, len(KNOWN)), 0.25))
    parameters = Parameters.of(replace(PLAIN, posterior=known))
    for parameter in parameters:
        found = parameters.levels(parameter, np.array([0.05, 0.95]))
        at = [0.25, 0.25] if parameter.identity in KNOWN else [0.05, 0.95]
        assert found.tolist() == parameter.prior.at(np.array(at)).tolist()


def test_a_calibration_draws_what_the_model_lacks_too() -> None:
    calibrated = replace(PLAIN, posterior=posterior(("x",), discrepancy=Discrepancy(0.1, 0.05)))
    parameters = Parameters.of(calibrated)
    assert {p.name for p in parameters if p.where is Where.DISCREPANCY} == {OF_SYSTEM, OF_CONFIGURATION}
    assert not any(p.where is Where.DISCREPANCY for p in Parameters.of(PLAIN))


@given(st.floats(0.5, 2), st.floats(0.5, 2))
def test_what_the_model_lacks_makes_the_whole_step_longer(system: float, own: float) -> None:
    parameters = LACKING.parameters
    values = parameters.best()
    values.columns[OF_SYSTEM][0], values.columns[OF_CONFIGURATION][0] = system, own
    found, best = LACKING.throughput(values)[0], LACKING.throughput(parameters.best())[0]
    assert found == pytest.approx(best / (system * own), rel=1e-9)


LACKING = Response(
    PLAIN, Parameters.with_discrepancy(PLAIN, Discrepancy(0.1, 0.05)).only({OF_SYSTEM, OF_CONFIGURATION})
)
