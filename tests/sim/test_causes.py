"""Why a scenario is slower than another, cause by cause."""

from __future__ import annotations

from itertools import permutations
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import GOOD

from sim import scenario as scenarios
from sim.causes import Explanation, explain, shapley, subsets
from sim.errors import ScenarioError

NAMES = ("a", "b", "c")
throughputs = st.lists(st.floats(1.0, 1e4), min_size=8, max_size=8).map(
    lambda values: dict(zip(subsets(NAMES), values, strict=True))
)

CAUSES = {
    "fewer tokens": "{name: fewer tokens, keys: [acceptance]}",
    "longer context": "{name: longer context, keys: [load.context_tokens]}",
    "nothing at all": "{name: nothing at all, keys: [kv.dtype]}",
}


def explained(folder: Path, causes: tuple[str, ...] = tuple(CAUSES), more: str = "") -> Explanation:
    """The explanation of a scenario that differs from GOOD in acceptance and context."""
    (folder / "before.yaml").write_text(GOOD)
    text = (
        "extends: before.yaml\nquestion: Why is this one slower?\nruns: 2\n"
        "acceptance: {mean_length: 2}\nload: {context_tokens: 60000, output_tokens: 64}\n"
        f"regression:\n  since: before.yaml\n  causes: [{', '.join(CAUSES[name] for name in causes)}]\n{more}"
    )
    path = folder / "after.yaml"
    path.write_text(text)
    found = explain(scenarios.load(path))
    assert found is not None
    return found


@given(throughputs)
def test_shares_add_up_to_the_whole_change(tok_s: dict[frozenset[str], float]) -> None:
    whole = log(tok_s[frozenset(NAMES)] / tok_s[frozenset()])
    assert sum(shapley(name, NAMES, tok_s) for name in NAMES) == pytest.approx(whole, abs=1e-9)


@given(throughputs)
def test_a_share_is_the_mean_over_all_orders(tok_s: dict[frozenset[str], float]) -> None:
    steps = []
    for order in permutations(NAMES):
        before = frozenset(order[: order.index("b")])
        steps.append(log(tok_s[before | {"b"}] / tok_s[before]))
    assert shapley("b", NAMES, tok_s) == pytest.approx(sum(steps) / len(steps), abs=1e-9)


def test_every_cause_that_slows_down_has_its_share_and_one_without_effect_has_none(tmp_path: Path) -> None:
    found = explained(tmp_path)
    fewer, longer, nothing = found.causes
    assert fewer.log_change < longer.log_change < 0
    assert nothing.log_change == pytest.approx(0, abs=1e-12)
    assert nothing.alone_tok_s == found.since_tok_s
    assert sum(cause.log_change for cause in found.causes) == pytest.approx(found.predicted_log_change)


def test_the_order_of_the_causes_does_not_matter(tmp_path: Path) -> None:
    one, other = explained(tmp_path), explained(tmp_path, tuple(reversed(CAUSES)))
    assert sorted(one.causes, key=str) == pytest.approx(sorted(other.causes, key=str))


def test_a_candidate_comes_on_top_of_all_causes(tmp_path: Path) -> None:
    more = "  candidates: [{name: company, changes: {load.concurrency: 4}}]\n"
    found = explained(tmp_path, more=more)
    assert found.candidates[0].tok_s < found.tok_s


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kv.dtype", "kv.dtpye", "kv.dtpye: unknown key, did you mean 'dtype'?"),
        ("since: before.yaml", "since: gone.yaml", "regression.since: no such file"),
        ("keys: [acceptance]", "keys: []", "regression.causes[0].keys: expected"),
    ],
)
def test_what_it_cannot_work_with_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    explained(tmp_path)
    path = tmp_path / "after.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        scenarios.load(path)
    assert expected in str(caught.value)


def test_a_scenario_without_the_key_asks_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(GOOD)
    assert explain(scenarios.load(path)) is None
