"""Acceptance lengths are read as they were written, or refused with line and value."""

from __future__ import annotations

import json
import pickle
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import files, scenario, traces
from sim.choices import Counts
from sim.errors import LogError
from sim.output import step_columns
from sim.traces import Trace

lengths = st.lists(st.integers(1, traces.LONGEST), min_size=1, max_size=20)
request_lists = st.lists(lengths, min_size=1, max_size=6)


def read(text: str, counts: Counts | None = None) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_text(text, encoding="utf-8")
        return traces.read(path, counts)


def as_tuples(requests: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, requests))


@given(request_lists, st.randoms())
def test_requests_come_back_however_their_rows_are_mixed(requests: list[list[int]], luck: object) -> None:
    waiting = [list(steps) for steps in requests]
    rows = [f"0,{steps.pop(0)},r0" for steps in waiting[:1]]
    while any(waiting):
        at = luck.choice([at for at, steps in enumerate(waiting) if steps])  # type: ignore[attr-defined]
        rows.append(f"0,{waiting[at].pop(0)},r{at}")
    found = read("\n".join(["other,Length,request_id", *rows]))
    assert sorted(found.requests) == sorted(as_tuples(requests))
    assert found.grouped


@given(request_lists)
def test_every_format_says_the_same(requests: list[list[int]]) -> None:
    texts = {
        "csv": "run,acceptance_length\n"
        + "".join(f"{r},{n}\n" for r, row in enumerate(requests) for n in row),
        "objects": "".join(f'{{"run": {r}, "length": {n}}}\n' for r, row in enumerate(requests) for n in row),
        "lists": "".join(json.dumps(row) + "\n" for row in requests),
        "keyed": "".join(json.dumps({"lengths": row}) + "\n\n" for row in requests),
    }
    found = {name: read(text) for name, text in texts.items()}
    assert set(found.values()) == {Trace(as_tuples(requests), grouped=True)}


@given(lengths)
def test_lengths_alone_are_one_request_that_is_not_grouped(steps: list[int]) -> None:
    rows = "\n".join(map(str, steps))
    expected = Trace((tuple(steps),), grouped=False)
    assert read(rows) == read(f"length\n{rows}\n") == read(f"\ufefflength\r\n{rows}") == expected


@given(lengths)
def test_drafted_tokens_are_one_less_than_lengths(steps: list[int]) -> None:
    rows = "\n".join(str(length - 1) for length in steps)
    assert read(f"accepted\n{rows}", Counts.DRAFTED_ONLY).requests == (tuple(steps),)


def test_our_own_steps_read_as_they_are() -> None:
    rows = [
        [run, step, 2000, 1 + step, *[0] * (len(step_columns(1)) - 4)] for run in (0, 1) for step in (0, 1)
    ]
    found = read(files.csv_text(step_columns(1), rows))
    assert found == Trace(((1, 2), (1, 2)), grouped=True)


def test_the_longest_length_is_the_largest_block() -> None:
    assert traces.LONGEST == scenario.MAX_BLOCK


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "nothing in it"),
        ("\n\n", 0, "nothing in it"),
        ("length\n", 0, "no steps in it"),
        (
            "3\n0\n",
            2,
            "expected a length of 1 to 256, got 0; if drafted tokens alone are counted, say --counts",
        ),
        ("3\n-1\n", 2, "expected a length of 1 to 256, got -1"),
        ("3\n\n257\n", 3, "expected a length of 1 to 256, got 257"),
        ("3\n2.5\n", 2, "expected a whole number of tokens, got '2.5'"),
        ("length\nNaN\n", 2, "expected a whole number of tokens, got 'NaN'"),
        ("length\nfour\n", 2, "got 'four'"),
        ("1_0\n", 1, "no column of lengths among 1_0"),
        (
            "accepted\n3\n",
            1,
            "'accepted' may or may not count the target's own token: say --counts with-target",
        ),
        ("lenght,run\n3,1\n", 1, "no column of lengths among lenght, run, did you mean 'length'?"),
        ("3,1\n", 1, "2 columns of numbers and no header: name them, lengths as length"),
        ("length,run\n3,1\n4\n", 3, "expected 2 columns, got 1 cell"),
        ("length,run\n3, \n", 2, "no run is given"),
        ("length,accept_length\n3,3\n", 1, "expected one of length, acceptance_length, accept_length, acc"),
        ("length,run,request\n3,3,1\n", 1, "got run and request"),
        ('length\n"' + "3" * 200_000 + '"\n', 2, "no CSV: field larger than"),
        ("[1, 2]\n[3, NaN]\n", 2, "got 'NaN'"),
        ("[1, 2]\n[true]\n", 2, "got 'true'"),
        ("[1, 2]\n[]\n", 2, "expected a list of one length or more, got '[]'"),
        ("[1, 2]\n3\n", 2, "expected a list of lengths as in the lines before, got a length"),
        ("[1, 2]\nabc\n", 2, "expected one JSON value a line, got 'abc'"),
        (
            '{"length": 3}\n{"length": 3, "run": 1}\n',
            2,
            "expected an object with length as in the lines before",
        ),
        ('{"length": 3, "run": 1}\n{"lengths": [3], "run": 1}\n', 2, "got an object with lengths and run"),
        ('{"length": 3, "run": null}\n', 1, "expected a name or a number as run, got 'null'"),
        ('{"length": 3, "run": " "}\n', 1, "no run is given"),
        ('{"lengths": 3}\n', 1, "expected a list of one length or more, got '3'"),
        ('{"lenght": 3}\n', 1, "no key of lengths among lenght, did you mean 'length'?"),
        ('{"accepted_tokens": 3}\n', 1, "'accepted_tokens' may or may not count"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(LogError, match=re.escape(said)) as caught:
        read(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        'length\n"4\n5"\n',
        "length\n\x1b[2J\n",
        "length\n3\u20284\n",
        '"lenght\nof it",run\n3,1\n',
        '{"len\\ngth": 3}\n',
        '{"length": "3\\n\\u001b[2J"}\n',
        "[1, 2]\n\x07\n",
        "[1, 2]\n[" + "9" * 4000 + "]\n",
    ],
)
def test_what_is_quoted_from_a_file_stays_in_its_line(text: str) -> None:
    with pytest.raises(LogError) as caught:
        read(text)
    assert str(caught.value).isprintable()
    assert len(caught.value.problem) < 200


def test_a_number_and_its_text_name_the_same_request() -> None:
    rows = '{"run": 1, "length": 3}\n{"run": "1", "length": 2}\n{"run": " 2", "length": 5}\n'
    assert read(rows) == read("run,length\n1,3\n1,2\n2,5\n") == Trace(((3, 2), (5,)), grouped=True)


def test_too_many_drafted_tokens_are_refused_as_they_stand() -> None:
    with pytest.raises(LogError, match=r"expected 0 to 255 drafted tokens, got 256"):
        read("accepted\n256\n", Counts.DRAFTED_ONLY)


def test_errors_survive_a_process_pool() -> None:
    error = LogError("log.csv", 3, "no steps in it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "log.csv:3: no steps in it"
