"""What users of a batch see: tails of times between tokens, and the rates of single requests."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from builders import small_setup
from hypothesis import given
from hypothesis import strategies as st

from sim.answer import Answer, answer
from sim.choices import EngineName
from sim.output import summary_object
from sim.report import lines
from sim.statistics import tail

counted = st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 9)), min_size=1, max_size=30)


@given(counted)
def test_a_tail_is_that_of_every_observation_by_itself(observations: list[tuple[float, int]]) -> None:
    values, counts = np.array([v for v, _ in observations]), np.array([n for _, n in observations])
    found, alone = tail(values, counts), np.repeat(values, counts)
    assert found.mean == pytest.approx(alone.mean())
    expected = np.quantile(alone, [0.5, 0.95, 0.99], method="inverted_cdf")
    assert [found.p50, found.p95, found.p99] == expected.tolist()


@cache
def answered(*overrides: str) -> Answer:
    return answer(small_setup("load.concurrency=4", *overrides), EngineName.BATCH)


def test_time_between_tokens_adds_up_to_the_time_of_every_request() -> None:
    found = answered()
    steps = [run.steps for run in found.experiment.in_full]
    total_ms = sum(float(s.step_ns.sum()) for s in steps) * 4 / 1e6
    tokens = sum(int(s.lengths.sum()) for s in steps)
    assert found.summary.itl_ms.mean == pytest.approx(total_ms / tokens)


def test_with_one_token_a_step_the_time_between_tokens_is_the_step() -> None:
    summary = answered("tree.budget=0", "acceptance={length: 1}").summary
    assert summary.itl_ms.mean == pytest.approx(summary.step_time_ms.mean)
    assert summary.itl_ms.p95 == pytest.approx(summary.step_time_ms.p95, rel=0.05)


def test_users_share_the_throughput() -> None:
    summary = answered().summary
    assert summary.user_tok_s.mean == pytest.approx(summary.throughput_tok_s.mean / 4)
    assert summary.request_tok_s.p5 <= summary.request_tok_s.p50 <= summary.request_tok_s.p95
    assert summary.request_tok_s.p50 == pytest.approx(1e3 / summary.tpot_ms.p50, rel=0.05)


def test_report_and_json_say_what_users_see() -> None:
    found = summary_object(answered())
    json.dumps(found)
    assert found["tpot_ms"]["p99"] >= found["tpot_ms"]["p95"]
    assert list(found["itl_ms"]) == ["mean", "p50", "p95", "p99"]
    assert found["batch"]["decoded_together"] == found["batch"]["concurrency"] == 4
    assert not found["batch"]["capacity_limited"]
    text = "\n".join(lines(answered()))
    for said in ("tok/s per user", "tok/s of a request", "(ITL): P50", "ramp-up and drain are excluded"):
        assert said in text
    assert "apacity limited" not in text


def test_one_request_has_no_batch_to_speak_of() -> None:
    alone = answer(small_setup(), EngineName.BATCH)
    assert not {"batch", "tpot_ms", "itl_ms", "user_tok_s", "request_tok_s"} & summary_object(alone).keys()
    assert "ramp-up" not in "\n".join(lines(alone))
