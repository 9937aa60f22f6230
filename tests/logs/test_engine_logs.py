"""Logs of engines: what their figures mean is found on the figures, or the log is refused."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.choices import Counts, Definition
from sim.errors import LogError
from sim.logs.observed import Engine, Observed, Options, Windows
from sim.logs.reading import read
from sim.traces import Trace

NOISE = "INFO 08-04 [loggers.py:310] Engine 000: Running: 1 reqs, GPU KV cache usage: 0.0%"
MEAN_FIRST = (
    "(APIServer pid=7) INFO [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {mean}, Accepted"
    " throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: {accepted} tokens,"
    " Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 35.5%"
)
RATE_FIRST = (
    "INFO SpecDecoding metrics: Draft acceptance rate: 35.5%, Mean acceptance length: {mean}, Accepted:"
    " {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rates}"
)
OLD = "SpecDecoding metrics: Draft acceptance rate: 88.8%, Accepted: 262 tokens, Drafted: 295 tokens"
V0 = (
    "Speculative metrics: Draft acceptance rate: 0.607, System efficiency: {efficiency}, Number of"
    " speculative tokens: 4, Number of accepted tokens: 32594, Number of draft tokens: 53716, Number of"
    " emitted tokens: 34244."
)
SGLANG = (
    "[2025-06-01 10:00:00 TP0] Decode batch{stop} #running-req: {running}, #token: 37217, token usage: 0.13,"
    " accept len: {length}, {rate}cuda graph: True, gen throughput (token/s): 171.01, #queue-req: 0"
)
LLAMA = (
    "0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259"
    " generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
)
LLAMA_2 = (
    "draft acceptance = 0.62008 ( 1797 accepted /  2898 generated), mean acceptance length =  2.24,"
    " acceptance rate per position = (0.727, 0.513)"
)


def observed(*lines: str, options: Options | None = None) -> Observed:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read(path, options)


def windows(*lines: str, options: Options | None = None) -> Windows:
    data = observed(*lines, options=options).data
    assert isinstance(data, Windows)
    return data


def vllm(mean: str, accepted: int, drafted: int, rates: str, text: str = MEAN_FIRST) -> str:
    return text.format(mean=mean, accepted=accepted, drafted=drafted, rates=rates)


def vllm_of(lengths: list[int], drafts: int, text: str = MEAN_FIRST, conditional: bool = False) -> str:
    """The line that vLLM prints of these lengths."""
    steps = np.array(lengths)
    reached = np.array([(steps > depth).sum() for depth in range(drafts + 1)], dtype=float)
    rates = reached[1:] / (np.maximum(reached[:-1], 1) if conditional else len(steps))
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    return vllm(f"{steps.mean():.2f}", int((steps - 1).sum()), drafts * len(steps), shown, text)


def sglang(length: str, rate: str | None = None, running: int = 8, stop: str = ".") -> str:
    shown = f"accept rate: {rate}, " if rate else ""
    return SGLANG.format(length=length, rate=shown, running=running, stop=stop)


drafts_and_lengths = st.integers(1, 15).flatmap(
    lambda drafts: st.tuples(
        st.just(drafts),
        st.lists(
            st.lists(st.integers(1, drafts + 1), min_size=2, max_size=200).filter(
                lambda steps: max(steps) > 1
            ),
            min_size=1,
            max_size=5,
        ),
    )
)


@given(drafts_and_lengths, st.sampled_from([MEAN_FIRST, RATE_FIRST]))
def test_vllm_windows_are_the_steps_behind_them(logged: tuple[int, list[list[int]]], text: str) -> None:
    drafts, stretches = logged
    found = observed(NOISE, *(vllm_of(steps, drafts, text) for steps in stretches), NOISE)
    assert (found.engine, found.drafts, found.used, found.ignored) == (Engine.VLLM, drafts, len(stretches), 2)
    assert isinstance(found.data, Windows)
    assert found.data.rates is not None
    assert found.data.weight.tolist() == [len(steps) for steps in stretches]
    assert found.data.mean_length == pytest.approx([np.mean(steps) for steps in stretches])
    exact = [[np.mean(np.array(steps) > depth) for depth in range(1, drafts + 1)] for steps in stretches]
    assert found.data.rates == pytest.approx(np.array(exact), abs=0.0006)


def test_conditional_rates_are_told_from_unconditional_ones_and_multiplied() -> None:
    lengths = [1, 2, 3, 3, 4, 4, 4, 4, 2, 4]
    plain, conditional = (observed(vllm_of(lengths, 3, conditional=flag)) for flag in (False, True))
    assert plain.found[0].startswith(
        "Rates per position are unconditional, L = 1 + their sum: checked on 1 line."
    )
    assert conditional.found[0].startswith("Rates per position are conditional on all positions before")
    assert isinstance(plain.data, Windows)
    assert isinstance(conditional.data, Windows)
    assert plain.data.rates == pytest.approx(np.array([[0.9, 0.7, 0.5]]))
    assert conditional.data.rates == pytest.approx(plain.data.rates, abs=0.001)


def test_with_one_draft_token_either_reading_is_the_same() -> None:
    assert "other readings fit as well" in observed(vllm_of([1, 2, 2], 1)).found[0]


@pytest.mark.parametrize(
    ("line", "drafts", "steps"),
    [
        (vllm("3.49", 92, 259, "0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054"), 7, 37),
        (vllm("7.24", 231, 259, "1.000, 1.000, 0.973, 0.973, 0.892, 0.784, 0.622"), 7, 37),
        (vllm("2.77", 626, 1062, "0.802, 0.551, 0.415"), 3, 354),
        (LLAMA, 3, 87),
        (LLAMA_2, 2, 1449),
    ],
)
def test_published_lines_give_their_steps(line: str, drafts: int, steps: int) -> None:
    found = observed(line)
    assert found.drafts == drafts
    assert isinstance(found.data, Windows)
    assert found.data.weight.tolist() == [steps]


def test_llama_cpp_has_a_window_per_request_and_says_when_drafts_were_shorter() -> None:
    found = observed(NOISE, LLAMA)
    assert found.engine is Engine.LLAMA_CPP
    assert isinstance(found.data, Windows)
    assert found.data.mean_length == pytest.approx([1 + 167 / 87])
    assert "accepted / (length - 1) where some drafts were shorter: 1 of 1 line" in found.found[1]


def test_short_drafts_are_counted_by_what_was_accepted() -> None:
    """Fifty full drafts could hold 200 tokens; 100 accepted at a length of 2.00 are 100 steps."""
    found = windows(vllm("2.00", 100, 200, "0.600, 0.250, 0.100, 0.050"))
    assert found.weight.tolist() == [100]
    assert found.mean_length.tolist() == [2.0]


def test_old_vllm_lines_need_the_number_of_drafts() -> None:
    with pytest.raises(LogError, match="does not say how many tokens a step drafts: say --drafts K"):
        observed(OLD)
    found = windows(OLD, options=Options(drafts=5))
    assert found.rates is None
    assert found.mean_length == pytest.approx([1 + 262 / 59])


def test_totals_of_vllm_v0_are_its_last_line() -> None:
    first = V0.format(efficiency="0.510").replace("34244", "1")
    found = observed(first, NOISE, V0.format(efficiency="0.510"))
    assert (found.engine, found.drafts, found.used) == (Engine.VLLM_V0, 4, 1)
    assert isinstance(found.data, Windows)
    assert found.data.mean_length == pytest.approx([34244 / (53716 / 4)])
    assert found.data.mean_length[0] == pytest.approx(2.55, abs=0.001)
    assert "L = emitted / (drafted / 4) = 2.550" in found.found[0]


@pytest.mark.parametrize(
    ("lines", "said", "drafts"),
    [
        ((sglang("2.94", "0.65"),), "(L - 1) / 3 (per-drafted, k = 3)", 3),
        ((sglang("1.52", "0.51"), sglang("2.20", "0.73")), "L / 3 (per-verified, k = 2)", 2),
        ((sglang("1.00", "0.11", stop=","),), "L / 9 (per-verified, k = 8)", 8),
        ((sglang("3.93", "74.6%"),), "(L - 1) / L (per-committed, any k)", None),
    ],
)
def test_published_accept_rates_have_one_reading(
    lines: tuple[str, ...], said: str, drafts: int | None
) -> None:
    found = observed(NOISE, *lines)
    assert (found.engine, found.drafts) == (Engine.SGLANG, drafts)
    assert found.found[0].startswith(f"The accept rate is {said}:")


@given(
    st.sampled_from(Definition),
    st.integers(1, 15),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 30)), min_size=1, max_size=40),
)
def test_the_true_reading_of_an_accept_rate_is_never_ruled_out(
    definition: Definition, drafts: int, logged: list[tuple[float, int]]
) -> None:
    lengths = [1 + share * drafts for share, _ in logged]
    rate = {
        Definition.PER_DRAFTED: lambda length: (length - 1) / drafts,
        Definition.PER_VERIFIED: lambda length: length / (drafts + 1),
        Definition.PER_COMMITTED: lambda length: (length - 1) / length,
    }[definition]
    lines = [
        sglang(f"{length:.2f}", f"{rate(length):.2f}", running)
        for length, (_, running) in zip(lengths, logged, strict=True)
    ]
    found = windows(*lines, options=Options(drafts, definition))
    assert found.mean_length == pytest.approx(lengths, abs=0.0051)
    assert found.weight.tolist() == [running for _, running in logged]
    assert not found.weight_is_steps


@given(st.integers(1, 15), st.integers(0, 2**32))
def test_a_varied_log_leaves_one_reading(drafts: int, seed: int) -> None:
    lengths = 1 + drafts * np.random.default_rng(seed).uniform(0, 1, 300)
    assume(np.ptp(lengths) > 0.9 * drafts)
    lines = [sglang(f"{length:.2f}", f"{(length - 1) / drafts:.2f}") for length in lengths.tolist()]
    assert observed(*lines).drafts == drafts


def test_without_a_rate_the_cap_is_what_the_user_says() -> None:
    assert observed(sglang("2.94")).drafts is None
    assert observed(sglang("2.94"), options=Options(drafts=3)).drafts == 3


def test_lines_without_a_running_request_are_ignored() -> None:
    found = observed(sglang("2.94", "0.65"), sglang("9.99", "0.01", running=0))
    assert (found.used, found.ignored) == (1, 1)


def test_plain_lengths_are_read_where_no_engine_speaks() -> None:
    found = observed("run,acceptance_length", "a,3", "b,2", "a,1")
    assert (found.engine, found.data) == (Engine.PLAIN, Trace(((3, 1), (2,)), grouped=True))
    told = observed("accepted", "0", "2", options=Options(counts=Counts.DRAFTED_ONLY, drafts=5))
    assert (told.data, told.drafts) == (Trace(((1, 3),), grouped=False), 5)
    assert "drafted tokens alone" in told.found[0]


FOUR = vllm_of([1, 2, 3, 4], 3)


@pytest.mark.parametrize(
    ("lines", "options", "line", "said"),
    [
        ((FOUR, vllm_of([1, 2], 2)), None, 2, "2 rates per position, but 3 in line 1"),
        ((FOUR,), Options(drafts=4), 1, "3 rates per position, but --drafts says 4"),
        (
            (FOUR,),
            Options(counts=Counts.WITH_TARGET),
            0,
            "--counts is for plain lengths, and this log is of vLLM",
        ),
        ((FOUR,), Options(definition=Definition.PER_DRAFTED), 0, "--definition is for SGLang"),
        (("1", "2"), Options(definition=Definition.PER_DRAFTED), 0, "this log is of plain lengths"),
        ((FOUR, LLAMA), None, 2, "lines of vLLM (line 1) and llama.cpp (line 2) in one file"),
        (
            (FOUR, vllm("2.90", 6, 12, "0.750, 0.500, 0.250")),
            None,
            2,
            "6 accepted of 12 drafted at 3 a step give at most a length of 2.500, but 2.9 is printed",
        ),
        (
            (FOUR, vllm("2.50", 6, 12, "0.750, 0.500, 0.600")),
            None,
            2,
            "the rates do not give the mean acceptance length 2.5: they mean 2.8",
        ),
        (
            (FOUR, vllm("2.50", 6, 12, "0.500, 0.750, 0.250")),
            None,
            2,
            "rates cannot rise, but position 2 has 0.750 after 0.500",
        ),
        (
            (FOUR, vllm_of([1, 2, 3, 4, 4], 3, conditional=True)),
            None,
            2,
            "if conditional on all positions before, L = 1 + the sum of their running products; the lines"
            " before were unconditional",
        ),
        (
            (FOUR.replace("Drafted: 12 tokens", ""),),
            None,
            1,
            "expected 'Drafted: .. tokens' in a line of metrics",
        ),
        ((vllm("nan", 0, 0, "nan"),), None, 1, "no window in which anything was drafted"),
        ((V0.format(efficiency="0.610"),), None, 1, "a system efficiency of 0.510, but 0.61 is printed"),
        ((V0.format(efficiency="0.510"),), Options(drafts=3), 1, "4 speculative tokens, but --drafts says 3"),
        ((LLAMA.partition(", mean")[0],), None, 1, "no 'mean acceptance length': drafts vary in length"),
        (
            (sglang("2.94", "0.65"), sglang("2.94", "0.75")),
            None,
            2,
            "fits none of (L - 1) / 3 (per-drafted, k = 3)",
        ),
        (
            (sglang("2.94", "0.65"),),
            Options(drafts=4),
            1,
            "fits none of (L - 1) / 4 (per-drafted, k = 4), L / 5",
        ),
        ((sglang("1.00", "0.02"),), None, 1, "may be L / 40 (per-verified, k = 39) or L / 41"),
        ((sglang("0.50"),), None, 1, "expected an accept len of 1 or more, got 0.50"),
        ((sglang("4.50"),), Options(drafts=3), 1, "accept len 4.5, but 3 drafted tokens a step: at most 4"),
        (
            (sglang("2.00"),),
            Options(definition=Definition.PER_DRAFTED),
            0,
            "--definition has nothing to define",
        ),
        (("1", "5"), Options(drafts=3), 0, "a length of 5, but --drafts 3 allows at most 4"),
        (("hello world", "foo"), None, 1, "no line has 'SpecDecoding metrics:' (vLLM)"),
        (("hello world", "foo"), None, 1, "it begins 'hello world'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    lines: tuple[str, ...], options: Options | None, line: int, said: str
) -> None:
    with pytest.raises(LogError, match=re.escape(said)) as caught:
        observed(*lines, options=options)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("lines", "options", "line", "said"),
    [
        ((FOUR, vllm("1.00", 0, 12, "0.004, 0.000, 0.000")), None, 2, "the rates do not give the mean"),
        ((FOUR, vllm("1.00", 0, 10, "0.004, 0.000, 0.000")), None, 2, "the rates do not give the mean"),
        ((FOUR, vllm("1.50", 0, 12, "0.500, 0.000, 0.000")), None, 2, "at most a length of 1.000, but 1.5"),
        ((FOUR, vllm("5.25", 13, 12, "1.0, 1.0, 1.0")), None, 2, "13 tokens accepted, but 12 drafted"),
        ((OLD.replace("262", "296"),), Options(drafts=5), 1, "296 tokens accepted, but 295 drafted"),
        ((OLD, OLD.replace("295", "0")), Options(drafts=5), 2, "262 tokens accepted, but 0 drafted"),
        ((LLAMA.replace("  167", "  267"),), None, 1, "267 tokens accepted, but 259 drafted"),
        (
            (FOUR, vllm("2.50", 6, 12, "1.100, 0.300, 0.100")),
            None,
            2,
            "expected a rate of 0 to 1, got 1.1 for position 1",
        ),
        (
            (FOUR, vllm("2.50", 6, 12, "0.500, 0.501, 0.499")),
            None,
            2,
            "rates cannot rise, but position 2 has 0.501 after 0.500",
        ),
        (
            (FOUR, vllm("2.30", 6, 12, "0.800, 0.300, 0.200")),
            None,
            2,
            "6 accepted of 12 drafted at 3 a step give a length of 2.3, which is printed, for no whole",
        ),
        (
            (FOUR, vllm("1.10", 6, 12, "0.100, 0.000, 0.000")),
            None,
            2,
            "give at least a length of 1.500, but 1.1 is printed",
        ),
        (
            (V0.format(efficiency="0.510").replace("tokens: 4,", "tokens: 0,"),),
            None,
            1,
            "expected 1 to 255 speculative tokens, got 0",
        ),
        (
            (V0.format(efficiency="1.100").replace("34244", "73860"),),
            None,
            1,
            "are 5.500 tokens a step, expected 1 to 5",
        ),
        (
            (V0.format(efficiency="0.001").replace("34244", "67"),),
            None,
            1,
            "are 0.005 tokens a step, expected 1 to 5",
        ),
        ((sglang("2.94"), sglang("300.00")), None, 2, "expected an accept len of 256 at most, got 300"),
        ((sglang("2.94", "1.65"),), None, 1, "expected an accept rate of 0 to 1, got 1.65"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(
    lines: tuple[str, ...], options: Options | None, line: int, said: str
) -> None:
    test_what_cannot_be_read_is_refused_with_its_line(lines, options, line, said)


@pytest.mark.parametrize(
    "token", ["1e3", "2...00", ".", "..", "+2", "0x2", "2.00s", "-1", "1" * 400, "\x1b[2J"]
)
@pytest.mark.parametrize(
    "text",
    [
        sglang("@"),
        sglang("2.94", "@"),
        sglang("2.94").replace("8,", "@,"),
        vllm("@", 6, 12, "0.750, 0.500, 0.250"),
        vllm("2.50", 6, 12, "0.750, @, 0.250"),
        vllm("2.50", 6, 12, "0.750, 0.500, 0.250").replace("6 tokens", "@ tokens"),
        vllm("2.50", 6, 12, "0.750, 0.500, 0.250").replace("12 tokens", "@ tokens"),
        LLAMA.replace("  167", "@"),
        LLAMA.replace("2.92", "@"),
        LLAMA.replace("0.632", "@"),
        V0.format(efficiency="@"),
        V0.format(efficiency="0.510").replace("34244", "@"),
        V0.format(efficiency="0.510").replace(" 4,", " @,"),
    ],
)
def test_a_number_is_all_of_what_is_written_together(text: str, token: str) -> None:
    """Not what it begins with, and never a traceback."""
    with pytest.raises(LogError, match=r"expected a (whole )?number") as caught:
        observed(NOISE, text.replace("@", token))
    assert caught.value.line == 2
    assert str(caught.value).isprintable()


def test_a_pipe_is_read_like_a_file() -> None:
    """Once: what was read is gone."""
    for text, engine in ((f"{NOISE}\n{FOUR}\n", Engine.VLLM), ("length,run\n3,1\n2,2\n", Engine.PLAIN)):
        with piped(text) as path:
            found = read(path)
        assert found.engine is engine
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "log.txt").write_text(text)
            assert replace(read(Path(folder) / "log.txt"), path=path) == replace(found, data=ANY)
    with piped("hello\n") as path, pytest.raises(LogError, match="it begins 'hello'"):
        read(path)


@contextmanager
def piped(text: str) -> Iterator[Path]:
    """A pipe with *text* in it, as a shell hands over."""
    end, start = os.pipe()
    try:
        os.write(start, text.encode())
        os.close(start)
        yield Path(f"/dev/fd/{end}")
    finally:
        os.close(end)


def test_a_dot_may_end_a_sentence() -> None:
    lines = (sglang("2.94."), "Decode batch. #running-req: 3. accept len: 2.00.")
    assert windows(*lines).mean_length.tolist() == [2.94, 2.0]


def test_readings_that_differ_are_not_one() -> None:
    """One draft was shorter, so the mean is known to two digits only: both readings fit it."""
    line = vllm("2.49", 14900, 19999, "0.990, 0.500")
    with pytest.raises(
        LogError, match=re.escape("P(L > 2) is 0.500 or 0.495; lines of more drafts would tell")
    ):
        observed(line)
    fewer = observed(vllm("2.49", 149, 199, "0.990, 0.500"))
    assert fewer.found[0].startswith(
        "Rates per position are unconditional, L = 1 + their sum: checked on 1 line."
    )


def test_several_readings_ask_for_the_option_that_decides() -> None:
    line = sglang("2.00", "0.50")
    with pytest.raises(LogError, match=re.escape("(L - 1) / 2 (per-drafted, k = 2) or")) as caught:
        observed(line)
    assert str(caught.value).endswith("say --drafts K")
    with pytest.raises(LogError, match="say --definition NAME"):
        observed(line, options=Options(drafts=2))
    found = observed(line, options=Options(2, Definition.PER_COMMITTED))
    assert found.drafts == 2
