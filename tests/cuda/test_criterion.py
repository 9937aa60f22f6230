"""The stopping rule on streams whose verdict is known."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda import session
from cuda.criterion import CHECK_EVERY, MIN_ESTIMATES, MIN_SAMPLES_FOR_NOISE, MOST_DISCARDED, Criterion, Rule
from hwmodels.measured import StopReason

RULE = Rule(min_samples=20, max_samples=2000, min_gpu_time_s=0.0, max_noise=0.01, timeout_s=60.0)
SECONDS_A_SAMPLE = 0.001


def run(stream: Iterable[float | None], rule: Rule = RULE) -> tuple[StopReason | None, int]:
    """The verdict on *stream*, in which None is a discarded sample, and how many samples it took."""
    criterion, seen = Criterion(rule), 0
    for seen, sample in enumerate(stream, start=1):
        if sample is None:
            criterion.discard()
        else:
            criterion.add(sample)
        verdict = criterion.verdict(seen * SECONDS_A_SAMPLE)
        if verdict is not None:
            return verdict, seen
    return None, seen


def noisy(cv: float, seed: int = 1, count: int = 10_000) -> list[float]:
    return (100 * (1 + cv * np.random.default_rng(seed).standard_normal(count))).tolist()


@given(st.integers(MIN_SAMPLES_FOR_NOISE, 100), st.floats(0.5, 1e5))
def test_a_constant_stream_ends_after_the_fewest_samples(fewest: int, us: float) -> None:
    assert run(itertools.repeat(us), replace(RULE, min_samples=fewest)) == (StopReason.NOISE, fewest)


def test_no_noise_is_believed_below_five_samples() -> None:
    rule = replace(RULE, min_samples=1)
    assert run(itertools.repeat(1.0), rule) == (StopReason.NOISE, MIN_SAMPLES_FOR_NOISE)
    assert run([1.0] * (MIN_SAMPLES_FOR_NOISE - 1), rule) == (None, MIN_SAMPLES_FOR_NOISE - 1)


@pytest.mark.parametrize(("cv", "quiet"), [(0.005, True), (0.02, False)])
def test_the_target_separates_quiet_from_loud(cv: float, quiet: bool) -> None:
    verdict, seen = run(noisy(cv)[:40])
    assert (verdict is StopReason.NOISE) == quiet
    assert (seen == RULE.min_samples) == quiet


def test_a_stream_that_stays_noisy_ends_when_its_noise_is_steady() -> None:
    verdict, seen = run(noisy(0.2))
    assert verdict is StopReason.STEADY_NOISE
    assert MIN_ESTIMATES < seen < RULE.max_samples
    assert seen % CHECK_EVERY == 0


@given(st.integers(0, 1000))
def test_steady_noise_is_never_seen_in_a_few_estimates(seed: int) -> None:
    verdict, _ = run(noisy(0.2, seed)[: MIN_ESTIMATES + MIN_SAMPLES_FOR_NOISE - 1])
    assert verdict is None


def expected_steady_end(stream: list[float]) -> int:
    """The first look, every sixteenth sample, at which more than 64 noises vary by less than 5 %."""
    noises = [np.std(stream[:n], ddof=1) / np.mean(stream[:n]) for n in range(5, len(stream) + 1)]
    for n in range(80, len(stream) + 1, 16):
        last = noises[: n - 4][-512:]
        if np.std(last) < 0.05 * np.mean(last):
            return n
    return len(stream)


@pytest.mark.parametrize("growth", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_noise_is_steady_when_its_last_estimates_vary_by_less_than_five_percent(
    seed: int, growth: float
) -> None:
    stream = (100 * (1 + 0.1 * np.random.default_rng(seed).standard_normal(900))).tolist()
    stream = [us * (1 + growth * place / 900) for place, us in enumerate(stream)]
    assert run(stream)[1] == expected_steady_end(stream)


def test_noise_that_still_grows_is_not_steady() -> None:
    growing = [100 * (1 + 1e-3 * n**1.5) for n in range(300)]
    assert run(growing) == (None, 300)


def test_noise_that_becomes_quiet_ends_at_its_target() -> None:
    # It falls as 1 over the root of the count, too fast for its last 512 estimates to look steady.
    settling = noisy(0.1)[:30] + [100.0] * 100_000
    rule = replace(RULE, max_samples=10**6, max_noise=0.05, timeout_s=1e9)
    verdict, seen = run(settling, rule)
    assert verdict is StopReason.NOISE
    assert seen > 30


SHIPPED = {"full": session.FULL_RULE, "short": session.SHORT_RULE}


@pytest.mark.parametrize("rule", SHIPPED.values(), ids=SHIPPED)
@pytest.mark.parametrize(
    ("cv", "stop"), [(0.0, StopReason.NOISE), (0.004, StopReason.NOISE), (0.1, StopReason.STEADY_NOISE)]
)
def test_a_kernel_of_5_us_can_end_each_shipped_rule_by_its_noise(
    rule: Rule, cv: float, stop: StopReason
) -> None:
    verdict, seen = run([us / 20 for us in noisy(cv)], rule)
    assert verdict is stop
    assert rule.min_samples <= seen < rule.max_samples


@pytest.mark.parametrize("good", [0, 3, 200])
def test_a_stream_of_discarded_samples_ends(good: int) -> None:
    rule = replace(RULE, min_samples=1000)
    stream: list[float | None] = [1.0] * good
    assert run(itertools.chain(stream, itertools.repeat(None)), rule) == (
        StopReason.INVALID,
        good + MOST_DISCARDED,
    )


def test_a_good_sample_forgives_discarded_ones() -> None:
    stream: list[float | None] = ([None] * (MOST_DISCARDED - 1) + [1.0]) * 5
    assert run(stream) == (None, len(stream))


def test_a_stream_that_never_settles_ends_at_the_time_out() -> None:
    rule = replace(RULE, timeout_s=0.5, min_gpu_time_s=1e9)
    verdict, seen = run(itertools.repeat(1.0), rule)
    assert (verdict, seen) == (StopReason.TIMEOUT, 500)


def test_the_most_samples_are_enough() -> None:
    rule = replace(RULE, max_samples=300, min_gpu_time_s=1e9)
    assert run(itertools.repeat(1.0), rule) == (StopReason.ENOUGH, 300)


def test_quiet_samples_must_add_up_to_the_least_gpu_time() -> None:
    rule = replace(RULE, min_gpu_time_s=0.01005, max_samples=10_000)
    assert run(itertools.repeat(100.0), rule) == (StopReason.NOISE, 101)


def test_zero_times_have_no_noise_that_could_be_small() -> None:
    assert run(itertools.repeat(0.0), replace(RULE, max_samples=100)) == (StopReason.ENOUGH, 100)


@given(st.lists(st.floats(1.0, 1e6), min_size=MIN_SAMPLES_FOR_NOISE, max_size=200))
def test_the_noise_is_the_relative_standard_deviation(samples: list[float]) -> None:
    criterion = Criterion(RULE)
    for sample in samples:
        criterion.add(sample)
    assert criterion.noise == pytest.approx(np.std(samples, ddof=1) / np.mean(samples), rel=1e-6, abs=1e-9)


@given(st.lists(st.none() | st.floats(0.1, 100), max_size=300))
def test_every_stream_is_judged_by_its_past_alone(stream: list[float | None]) -> None:
    whole = run(stream)
    if whole[0] is not None:
        assert run(stream[: whole[1]]) == whole
        assert run([*stream[: whole[1]], 1e9]) == whole
