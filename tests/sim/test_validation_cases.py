"""Reading a file of published cases: what is refused, and where the problem is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from published import DRAFTED, PLAIN, ROWS, cases, text

from sim.validation.cases import COLUMNS, NEEDED, THROUGHPUTS, read
from sim.validation.errors import CasesError


def refused(folder: Path, content: str | bytes) -> CasesError:
    path = folder / "wrong.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(CasesError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_row_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (case,) = cases(tmp_path, [DRAFTED])
    assert (case.line, case.id, case.model, case.gpu) == (2, "D1", "Qwen3-8B", "B200")
    assert (case.n_gpu, case.block_size, case.verify_M_per_req, case.tree_budget) == (1, 16, 16, None)
    assert (case.acceptance_length, case.tok_s_total, case.baseline_tok_s_total) == (8.01, 1175.0, 231.0)
    assert case.notes == ""


def test_whole_numbers_may_have_a_point(tmp_path: Path) -> None:
    (case,) = cases(tmp_path, [PLAIN | {"n_gpu": "8.0", "concurrency": " 4.0 "}])
    assert (case.n_gpu, case.concurrency) == (8, 4)
    assert isinstance(case.n_gpu, int)


def test_columns_may_come_in_any_order_and_others_are_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("﻿" + text([PLAIN | {"mine": "x"}], [*reversed(COLUMNS), "mine"]), encoding="utf-8")
    assert read(path) == cases(tmp_path, [PLAIN])


def test_blank_lines_and_line_ends_inside_quotes_keep_line_numbers_right(tmp_path: Path) -> None:
    first, second = PLAIN | {"notes": "two\nlines"}, DRAFTED | {"tok_s_total": "fast"}
    wrong = refused(tmp_path, text([first]) + "\n" + text([second]).split("\n", 1)[1])
    # The header, a row of two lines, a blank line, and the row that is wrong.
    assert (wrong.line, wrong.key) == (5, "tok_s_total")


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("tok_s_total", "fast", "expected a number, got 'fast'"),
        ("tok_s_total", "nan", "finite"),
        ("tok_s_total", "inf", "finite"),
        ("tok_s_total", "0", "above 0"),
        ("tok_s_total", "-3", "above 0"),
        ("tok_s_total", "1e300", "at most"),
        ("tok_s_total", "5e-324", "at least 1e-09"),
        ("n_gpu", "1e30", "at most"),
        ("parallelism", "TP" + "9" * 5000, "5,002 characters"),
        ("tok_s_total", "1_000", "expected a number"),
        ("baseline_tok_s_total", "-1", "above 0"),
        ("acceptance_length", "0.99", "at least 1"),
        ("acceptance_length", "NaN", "finite"),
        ("concurrency", "0", "at least 1"),
        ("concurrency", "1.5", "whole"),
        ("n_gpu", "eight", "expected a number"),
        ("n_gpu", "0", "at least 1"),
        ("block_size", "-1", "at least 0"),
        ("num_draft_tokens", "2.5", "whole"),
        ("tree_budget", "-8", "at least 0"),
        ("topk", "x", "expected a number"),
        ("verify_M_per_req", "0", "at least 1"),
        ("temperature", "-0.1", "at least 0"),
        ("context_tokens", "-5", "at least 0"),
        ("context_tokens", "nan", "finite"),
        ("id", " ", "blank"),
    ],
)
def test_malformed_values_are_named_with_line_and_column(
    tmp_path: Path, column: str, value: str, words: str
) -> None:
    wrong = refused(tmp_path, text([PLAIN, DRAFTED | {column: value}]))
    assert (wrong.line, wrong.key) == (3, column)
    assert words in wrong.problem


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NEEDED])
def test_a_column_that_is_left_out_is_blank(tmp_path: Path, name: str) -> None:
    rows = [DRAFTED | {"notes": "mine", "temperature": "1"}]
    (tmp_path / "less.csv").write_text(text(rows, [column for column in COLUMNS if column != name]))
    assert read(tmp_path / "less.csv") == cases(tmp_path, [rows[0] | {name: ""}])


@pytest.mark.parametrize("name", NEEDED)
def test_some_columns_are_needed(tmp_path: Path, name: str) -> None:
    wrong = refused(tmp_path, text([PLAIN], [column for column in COLUMNS if column != name]))
    assert (wrong.line, wrong.key) == (1, name)


def test_a_throughput_is_needed(tmp_path: Path) -> None:
    wrong = refused(tmp_path, text([PLAIN], [column for column in COLUMNS if column not in THROUGHPUTS]))
    assert (wrong.line, wrong.key) == (1, "tok_s_total")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_mistyped_column_is_recognised(tmp_path: Path, name: str) -> None:
    slip = name[:-1] + name[-1] * 2
    others = [slip if column == name else column for column in COLUMNS]
    wrong = refused(tmp_path, text([PLAIN], others))
    assert (wrong.line, wrong.key) == (1, slip)
    assert f"'{name}'" in wrong.problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        (text([]), "no rows"),
        (text([PLAIN]).replace("id,", "id,id,"), "twice"),
        (text([PLAIN, PLAIN]), "first on line 2"),
        (text([PLAIN]) + "a,b,c\n", "3 cells under 26"),
        (b"\xff\xfe\x00", "UTF-8"),
        (text([PLAIN]) + '"open', "not CSV"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in refused(tmp_path, content).problem


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(CasesError):
            read(path)


def test_rows_keep_their_order(tmp_path: Path) -> None:
    assert [case.id for case in cases(tmp_path, ROWS)] == ["P1", "D1", "O1"]
