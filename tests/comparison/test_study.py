"""Scenarios against one another: no false alarms, enough power, common luck, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import full_setup, scenario_with, small_setup, without_noise
from numpy.typing import NDArray
from texts import GOOD

from hwmodels.work import GroupedExperts
from sim.comparison.differences import KeyDifference, differences
from sim.comparison.intervals import Certainty, Pairing
from sim.comparison.paired import Pair, Verdict, pair
from sim.comparison.report import answer
from sim.comparison.runs import Runs, play_runs
from sim.comparison.study import Entrant, Study, Task, entrants
from sim.comparison.unknown import Drawn, draw_together, unknown
from sim.draws import RandomStream
from sim.errors import ScenarioError
from sim.graph import Component, IntArray
from sim.means import MeanTimes, mean_times
from sim.setup import Setup
from sim.simulate import Simulation
from sim.uncertainty.parameters import Parameters
from sim.uncertainty.posterior import Posterior, Stored
from sim.uncertainty.response import Outcomes

TRIES = 100
RUNS = 16
FALSE_ALARMS = 8
"""Of 100 tries; at 99 % one is expected, and nine have a chance of one in a million."""
COMMON = Certainty(Pairing.COMMON, 0.99)
INDEPENDENT = Certainty(Pairing.INDEPENDENT, 0.99)


@cache
def small() -> Setup:
    return small_setup("load.output_tokens=100", "acceptance={mean_length: 4.4, request_sd: 0.4}")


def of_seed(setup: Setup, seed: int) -> Setup:
    """*setup* with other luck, and the same cost model: what it fits to tables has no seed."""
    found = replace(setup, scenario=setup.scenario.model_copy(update={"seed": seed}))
    vars(found)["costs"] = setup.costs
    return found


def study_of(*setups: Setup, pairing: Pairing = Pairing.COMMON, draws: int = 0) -> Study:
    sides = tuple(Entrant(f"scenario {at}", Path("nowhere.yaml"), setup) for at, setup in enumerate(setups))
    return Task(sides, pairing, draws).done()


class SlowExperts(Simulation):
    """A simulation whose routed experts take a tenth longer."""

    def mean_times(self, contexts: IntArray, joined: NDArray[np.float64] | None = None) -> MeanTimes:
        factors = [1.1 if isinstance(label.work, GroupedExperts) else 1.0 for label in self.pieces.labels]
        return mean_times(self.pieces, self.base.seconds(contexts, joined) * np.array(factors))


@pytest.fixture(scope="module")
def other_seeds() -> list[Runs]:
    """The same scenario under many seeds."""
    return [play_runs(Simulation(of_seed(small(), seed)), RUNS) for seed in range(2 * TRIES)]


def alarms(found: Sequence[Runs], certainty: Certainty) -> list[Pair]:
    """Comparisons of runs of the same scenario that call them different."""
    pairs = [pair(a, b, certainty) for a, b in zip(found[::2], found[1::2], strict=True)]
    return [each for each in pairs if each.verdict is not Verdict.NOT_DISTINGUISHABLE]


def test_a_scenario_is_not_distinguishable_from_itself_under_other_seeds(other_seeds: list[Runs]) -> None:
    assert len(alarms(other_seeds, INDEPENDENT)) <= FALSE_ALARMS


def test_false_alarms_are_as_rare_as_the_level_says(other_seeds: list[Runs]) -> None:
    """At four fifths every fifth try is one: the interval is no wider than it need be."""
    often = len(alarms(other_seeds, INDEPENDENT._replace(confidence=0.8)))
    assert abs(often - 0.2 * TRIES) < 4 * np.sqrt(0.2 * 0.8 * TRIES)


def test_no_component_is_called_different_more_often_than_the_whole_may(other_seeds: list[Runs]) -> None:
    pairs = [pair(a, b, INDEPENDENT) for a, b in zip(other_seeds[::2], other_seeds[1::2], strict=True)]
    wrong = [each for each in pairs if any(part.difference_ms.distinguishable for part in each.parts)]
    assert len(wrong) <= FALSE_ALARMS


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_experts_a_tenth_slower_are_found(seed: int) -> None:
    setup = of_seed(full_setup("load.output_tokens=60"), seed)
    a, b = (play_runs(simulation(setup), 8) for simulation in (Simulation, SlowExperts))
    found = pair(a, b, COMMON)
    assert found.verdict is Verdict.SLOWER
    (experts, *others) = found.parts
    assert experts.component is Component.EXPERTS
    assert experts.difference_ms.distinguishable
    assert experts.b_ms == pytest.approx(1.1 * experts.a_ms, rel=0.01)
    assert experts.log_factor == pytest.approx(found.throughput_tok_s.log_ratio.mean, rel=0.05)
    assert all(abs(part.difference_ms.mean) < 0.05 * experts.difference_ms.mean for part in others)


def test_runs_are_those_of_the_simulation() -> None:
    simulation = Simulation(small())
    found, run = play_runs(simulation, 3), simulation.run(2)
    assert found.results[2] == run.result
    assert found.component_ns[2].tolist() == run.steps.component_ns.sum(axis=0).tolist()
    assert found.component_ms.sum(axis=1) == pytest.approx(found.step_ms)


def test_common_seeds_leave_exactly_no_difference() -> None:
    (other,) = study_of(small(), small(), draws=16).others
    assert other.pair.verdict is Verdict.IDENTICAL
    assert other.pair.throughput_tok_s.difference.mean == 0
    assert not other.differences
    assert not other.other_luck
    assert other.unknown is not None
    for odds in (other.unknown.without_luck, other.unknown.with_luck):
        assert odds.ties == odds.count == 16
    assert other.unknown.shared
    assert not other.unknown.only_a + other.unknown.only_b


def test_the_same_unknown_takes_the_same_quantile_in_both() -> None:
    """Contexts differ in work alone: what is not known of both cancels in the ratio."""
    a, b = small_setup("runs=8"), small_setup("runs=8", "load.context_tokens=5000")
    (other,) = study_of(a, b, draws=64).others
    assert other.unknown is not None
    assert other.unknown.only_a == other.unknown.only_b == ()
    drawn = other.unknown.without_luck.ratios
    assert np.median(drawn) == pytest.approx(other.pair.throughput_tok_s.ratio, rel=0.01)
    outcomes = draw_together([(a, play_runs(Simulation(a), 8))], 64, 1, lambda: None)
    assert outcomes is not None
    assert (
        0 < 20 * drawn.std() < outcomes[0].outcomes.mean_tok_s.std() / outcomes[0].outcomes.mean_tok_s.mean()
    )


def test_what_is_not_known_is_drawn_only_where_asked_and_only_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for_none = study_of(small(), small())
    monkeypatch.setattr(Parameters, "of", classmethod(lambda cls, _: cls(())))
    all_known = study_of(small(), small(), draws=16)
    assert asked_for_none.others[0].unknown is all_known.others[0].unknown is None
    assert "was not drawn" in answer(asked_for_none, "B", asked_for_none.others[0])
    assert "all is known" in answer(all_known, "B", all_known.others[0])


def test_several_are_compared_more_carefully_than_one() -> None:
    others = study_of(small(), small_setup("tree.budget=6"), small_setup("tree.budget=4")).others
    assert [other.pair.certainty.confidence for other in others] == pytest.approx([0.995, 0.995])


@pytest.mark.parametrize(
    ("changes", "streams"),
    [
        (("tree.budget=6",), ()),
        (("tree.budget=32", "capture_limit=lifted"), ()),
        (("tree.budget=32",), (RandomStream.EAGER_LAUNCHES,)),
        (("drafter.block=6",), ()),
        (("load.context_tokens=9000",), ()),
        (("gpu=h200_sxm", "interconnect=nvlink4"), ()),
        (("tree.builder=gpu",), (RandomStream.OTHER_KERNELS, RandomStream.HOST)),
        (("gpus=4",), (RandomStream.VERIFY_KERNELS, RandomStream.OTHER_KERNELS)),
    ],
)
def test_steps_that_do_not_meet_the_same_luck_are_named(
    changes: tuple[str, ...], streams: tuple[RandomStream, ...]
) -> None:
    (other,) = study_of(small_setup(), small_setup(*changes)).others
    assert other.other_luck == streams


def test_luck_that_never_varies_has_no_correlation() -> None:
    setup = without_noise(small_setup("acceptance={length: 3}", "runs=6"))
    (other,) = study_of(setup, without_noise(small_setup("acceptance={length: 4}", "runs=6"))).others
    assert other.pair.correlation is None
    assert other.pair.verdict is Verdict.FASTER


def test_differences_name_keys_and_both_values() -> None:
    a = scenario_with()
    assert differences(a, scenario_with("runs=9", "seed=4", "question=Something else?")) == ()
    found = differences(a, scenario_with("tree.budget=16", "acceptance={quality: {mean_length: 5}}"))
    assert found == (
        KeyDifference("tree.budget", 8, 16),
        KeyDifference("acceptance.mean_length", 4.4, None),
        KeyDifference("acceptance.quality.mean_length", None, 5.0),
    )
    turned = differences(scenario_with("acceptance={quality: {mean_length: 5}}", "tree.budget=16"), a)
    assert {(each.key, each.b, each.a) for each in turned} == {tuple(each) for each in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("runs: 5", "runs: 9\nseed: 77"))
    return tmp_path


def loaded(folder: Path, **options: Any) -> list[tuple[int, int]]:
    names = [str(folder / name) for name in ("a.yaml", "b.yaml", "a.yaml")]
    return [(each.setup.scenario.runs, each.setup.scenario.seed) for each in entrants(names, **options)]


def test_all_have_the_runs_and_the_seed_of_the_first(folder: Path) -> None:
    assert loaded(folder) == [(5, 1), (5, 1), (5, 1)]
    assert loaded(folder, sets=["runs=3"]) == [(3, 1)] * 3
    assert loaded(folder, changes=[("runs", 4, "--runs"), ("seed", 6, "--seed")]) == [(4, 6)] * 3
    assert loaded(folder, pairing=Pairing.INDEPENDENT) == [(5, 1), (5, 2), (5, 3)]


def test_files_of_the_same_name_are_called_as_they_were_asked_for(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old/a.yaml").write_text(GOOD)
    new, old, other = str(folder / "a.yaml"), str(folder / "old/a.yaml"), str(folder / "b.yaml")
    assert [each.name for each in entrants([new, old])] == [new, old]
    assert [each.name for each in entrants([new, other, new])] == ["a", "b", "a"]


def test_mistakes_are_those_of_scenarios(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="--runs"):
        loaded(folder, changes=[("runs", 0, "--runs")])
    with pytest.raises(ScenarioError, match="did you mean 'b300_now'"):
        entrants(["b300_now", "b300_nwo"])


def test_independent_luck_is_paired_by_nothing() -> None:
    setup = small_setup("runs=20")
    (other,) = study_of(of_seed(setup, 1), of_seed(setup, 2), pairing=Pairing.INDEPENDENT).others
    assert other.pair.certainty == INDEPENDENT
    assert other.pair.correlation is not None
    assert abs(other.pair.correlation) < 0.7


def test_progress_is_as_long_as_said() -> None:
    sides = tuple(Entrant(name, Path(name), small_setup("runs=3")) for name in "ab")
    heard: list[None] = []
    task = Task(sides, draws=8)
    task.done(lambda: heard.append(None))
    assert len(heard) == task.size == 22


def test_unknowns_are_shared_only_where_both_sides_draw_them_alike() -> None:
    """From their priors, or from one posterior: what one side alone has learnt of is not shared."""
    plain = full_setup()
    names = tuple(parameter.identity for parameter in Parameters.of(plain))[:3]
    known = Posterior(
        identities=names,
        quantiles=np.full((8, 3), 0.5),
        discrepancies={},
        observations=(),
        effective_sample_size=8.0,
        stored=Stored("there.parquet", "a hash", "another"),
    )
    learnt = replace(plain, posterior=known)
    one, same = (unknown(drawn(side), drawn(learnt), 0.99) for side in (plain, learnt))
    assert len(one.only_a) == len(one.only_b) == 3
    assert not same.only_a
    assert not same.only_b


def drawn(setup: Setup) -> Drawn:
    flat = np.ones(4)
    return Drawn(Parameters.of(setup), Outcomes(flat, flat))
