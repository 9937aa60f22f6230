"""Measured files come back as they were written, and nothing else is read as one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import experts, header, mla, point, routed, some_files, write
from pydantic import ValidationError

from hwmodels import cases, measured
from hwmodels.cases import Op
from hwmodels.errors import DocumentError, MeasuredFileError
from hwmodels.measured import MeasuredFile, Point, Series, StopReason

Lines = list[dict[str, Any]]

GOOD = (
    point(experts(1), [10.0, 12.0, 11.0]),
    point(experts(9), [20.0, 21.0]),
    point(cases.EmptyKernel(), [2.0], Series.WARM),
)


def read_back(points: tuple[Point, ...] | list[Point], **changes: Any) -> MeasuredFile:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "made_up.jsonl", *points, **changes)
        return measured.read(path, allow_emulated=True)


def complaint(folder: Path, edit: Callable[[Lines], Any]) -> str:
    """What the reader says of a good file whose lines *edit* has changed, without the file's folder."""
    path = write(folder / "made_up.jsonl", *GOOD)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edited = edit(lines) or lines
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in edited))
    with pytest.raises(MeasuredFileError) as refused:
        measured.read(path, allow_emulated=True)
    assert isinstance(refused.value, DocumentError)
    return str(refused.value).removeprefix(f"{folder}/")


@given(some_files, st.integers(0, 2**32))
def test_what_is_written_is_read_in_the_order_of_the_format(points: list[Point], seed: int) -> None:
    found = read_back(points, seed=seed)
    assert found.header == header(seed=seed)
    assert list(found.points) == sorted(points, key=lambda each: each.order)


@given(some_files)
def test_the_order_of_writing_changes_no_byte(points: list[Point]) -> None:
    assert read_back(points).sha256 == read_back(points[::-1]).sha256


@given(some_files.filter(bool), st.data())
def test_a_file_cut_anywhere_is_refused(points: list[Point], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "made_up.jsonl", *points)
        whole = path.read_bytes()
        # Without its last newline nothing is lost.
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 2))])
        with pytest.raises(MeasuredFileError):
            measured.read(path, allow_emulated=True)


@given(some_files.filter(lambda points: len(points) > 1), st.data())
def test_any_two_lines_exchanged_are_refused(points: list[Point], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "made_up.jsonl", *points)
        lines = path.read_text().splitlines()
        first = data.draw(st.integers(0, len(lines) - 2))
        second = data.draw(st.integers(first + 1, len(lines) - 1))
        lines[first], lines[second] = lines[second], lines[first]
        path.write_text("\n".join(lines))
        with pytest.raises(MeasuredFileError):
            measured.read(path, allow_emulated=True)


def test_an_emulated_file_is_refused_unless_a_test_asks(tmp_path: Path) -> None:
    path = write(tmp_path / "made_up.jsonl", *GOOD)
    with pytest.raises(MeasuredFileError) as refused:
        measured.read(path)
    told = "made_up.jsonl:1: times made up by 'EMULATED device of a test'; expected a file measured on a GPU"
    assert str(refused.value).endswith(told)
    assert measured.read(path, allow_emulated=True).points == GOOD


def test_an_emulated_device_cannot_be_passed_off_as_a_real_one() -> None:
    with pytest.raises(ValidationError, match="emulated is false, but the device is called 'EMULATED"):
        header(emulated=False)
    real = header().device.model_copy(update={"name": "A GPU"})
    with pytest.raises(ValidationError, match="emulated is true, but the device is called 'A GPU'"):
        header(device=real)


def edited(line: int, **changes: Any) -> Callable[[Lines], None]:
    return lambda lines: lines[line].update(changes)


def inside(line: int, key: str, **changes: Any) -> Callable[[Lines], None]:
    """Changes to the mapping at *key* of a line."""
    return lambda lines: lines[line][key].update(changes)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda lines: lines[:-1], "4: the file ends here; expected a line that counts the points"),
        (lambda lines: lines[1:], "1: a line of kind 'point'; expected the kind 'header'"),
        (lambda lines: lines[:2] + lines[3:], "4: 2 points; expected the 3 that the last line counts"),
        (edited(-1, points=2), "5: 3 points; expected the 2 that the last line counts"),
        (lambda lines: [*lines, lines[-1]], "5: a line of kind 'end'; expected the kind 'point'"),
        (lambda lines: ["{", *lines[1:]], "1: Expecting property name enclosed in double quotes"),
        (lambda lines: ["[]", *lines[1:]], "1: a list; expected one JSON object a line"),
        (edited(0, schema_version=2), "1: schema_version 2; expected version 1"),
        (edited(0, emulated=False), "1: emulated is false, but the device is called 'EMULATED"),
        (edited(0, measured_at="today"), '1: measured_at: "today"; expected '),
        (edited(1, samples_us=[1.0, float("nan")]), "2: NaN, which is no number; expected one JSON object"),
        (edited(1, samples_us=[1.0, float("inf")]), "2: Infinity, which is no number"),
        (edited(1, samples_us=[3.0, -1.0, 2.0]), "2: samples_us[1] is negative: -1.0; expected a point"),
        (edited(1, samples_us=[]), "2: samples_us: []; expected "),
        (edited(1, samples_us=["1"] * 3), '2: samples_us.0: "1"; expected number'),
        (edited(1, samples_us=[1.0]), "2: 3 touched_experts for 1 samples_us; expected a point"),
        (edited(1, touched_experts=None), "2: touched_experts goes with the op experts, and with nothing"),
        (edited(1, touched_experts=[8, 9, 8]), "2: touched_experts run from 8 to 9, outside 8 to 8"),
        (edited(2, touched_experts=[7, 66]), "3: touched_experts run from 7 to 66, outside 8 to 72"),
        (edited(2, touched_experts=[20, 20]), "3: touched_experts average 20.0, where uniform routing"),
        (edited(3, touched_experts=[8]), "4: touched_experts goes with the op experts, and with nothing"),
        (edited(1, series="luke-warm"), "2: series: \"luke-warm\"; expected 'cold', 'warm' or 'graph'"),
        (edited(1, pass_stops=["noise"] * 2), "2: 2 pass_stops for 1 pass_medians_us; expected a point"),
        (edited(1, pass_clocks_mhz=[1.0, None]), "2: 2 pass_clocks_mhz for 1 pass_medians_us; expected"),
        (edited(1, clocked_samples=4), "2: 4 clocked_samples of 3 samples_us; expected a point"),
        (edited(1, speed=3), "2: speed: unknown key; expected a key of this schema version (known: "),
        (
            edited(1, sample_us=[1.0]),
            "2: sample_us: unknown key; expected a key of this schema version, did you",
        ),
        (edited(1, norm=3), "2: norm: unknown key; expected a key of this schema version"),
        (
            inside(0, "harness", pases=1),
            "1: harness.pases: unknown key; expected a key of this schema version, did you mean 'passes'?",
        ),
        (
            inside(0, "harness", min_samples=9, max_samples=8),
            "1: harness: min_samples is 9, but max_samples is 8",
        ),
        (
            inside(0, "harness", plan="a\nb"),
            '1: harness.plan: "a\\nb" has characters that do not print; expected',
        ),
        (
            inside(0, "device", name="EMULATED \x1b[2J"),
            '1: device.name: "EMULATED \\u001b[2J" has characters',
        ),
        (inside(0, "source_sha256", norm=3), "1: source_sha256.norm: 3; expected string"),
        (
            edited(0, measured_at="2000-02-30T00:00:00Z"),
            "1: measured_at is no time of any day: 2000-02-30T00:00",
        ),
        (
            inside(1, "case", expert=1),
            "2: case.expert: unknown key; expected a key of this schema version, did you mean 'experts'?",
        ),
        (inside(1, "case", experts="x"), '2: case.experts: "x"; expected integer'),
        (inside(1, "case", tokens=10**400), "2: case.tokens: 1000"),
        (
            inside(1, "case", tokens=cases.LARGEST + 1),
            "2: case.tokens: 9007199254740993; expected less than or ",
        ),
        (
            edited(3, samples_us=[0.0]),
            "4: samples_us are all 0, which no empty_kernel takes; expected a point",
        ),
        (
            edited(3, samples_us=[2.0, 1e-7]),
            "4: samples_us[1] is no time of a kernel: 1e-07; expected a point",
        ),
        (edited(3, samples_us=[2.0, 1.1e8]), "4: samples_us[1] is no time of a kernel: 1.1e+08; expected"),
        (edited(3, pass_medians_us=[2.0, -2.0]), "4: pass_medians_us[1] is -2, outside samples_us, 2 to 2;"),
        (edited(3, pass_medians_us=[1.9]), "4: pass_medians_us[0] is 1.9, outside samples_us, 2 to 2;"),
        (edited(3, pass_medians_us=[2.1]), "4: pass_medians_us[0] is 2.1, outside samples_us, 2 to 2;"),
        (
            edited(3, discarded={"throttled": -1}),
            "4: discarded.throttled: -1; expected greater than or equal",
        ),
        (edited(3, discarded={"tired": 1}), '4: discarded.tired.[key]: "tired"; expected '),
        (edited(3, pass_clocks_mhz=[-1.0]), "4: pass_clocks_mhz.0: -1.0; expected greater than 0"),
        (edited(3, floor_us=1e9), "4: floor_us: 1000000000.0; expected less than or equal"),
        (lambda lines: lines[1].pop("bytes") and None, "2: bytes: nothing; expected a value"),
        (edited(1, case={"op": "expert"}), "2: case: op \"expert\"; expected an op, did you mean 'experts'?"),
        (edited(1, case={"op": "norm", "tokens": 0, "hidden": 1}), "2: case.tokens: 0; expected greater"),
        (lambda lines: lines[1].update(lines[2]), "3: experts tokens=9 experts=384 top_k=8 hidden=7168"),
        (lambda lines: lines[:1] + lines[2:0:-1] + lines[3:], "3: experts tokens=1 experts=384"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_was_expected(
    tmp_path: Path, edit: Callable[[Lines], Any], told: str
) -> None:
    assert f"made_up.jsonl:{told}" in complaint(tmp_path, edit)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    def edit(lines: Lines) -> list[Any]:
        return [lines[0], json.dumps(lines[1])[:-1] + ', "stop": "noise"}', *lines[2:]]

    assert "made_up.jsonl:2: the key 'stop' twice; expected one JSON object a line" in complaint(
        tmp_path, edit
    )


def test_a_key_given_twice_among_very_many_is_found_at_once(tmp_path: Path) -> None:
    def edit(lines: Lines) -> list[Any]:
        many = ", ".join(f'"k{number}": 1' for number in range(100_000))
        return [lines[0], f'{{{many}, "k99999": 2}}', *lines[2:]]

    begin = time.monotonic()
    assert "made_up.jsonl:2: the key 'k99999' twice" in complaint(tmp_path, edit)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("key", ["a\nerror: b", "\x1b[31m", "\u2028"])
def test_every_complaint_is_one_line(tmp_path: Path, key: str) -> None:
    assert complaint(tmp_path, edited(1, **{key: 1})).isprintable()
    with pytest.raises(MeasuredFileError) as refused:
        measured.read(tmp_path / f"{key.replace('/', '')}.jsonl")
    assert str(refused.value).isprintable()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "made_up.jsonl")
    with pytest.raises(MeasuredFileError, match=r"made_up\.jsonl: no regular file; expected a measured file"):
        measured.read(tmp_path / "made_up.jsonl")


def test_a_file_too_large_for_any_plan_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "made_up.jsonl", *GOOD)
    os.truncate(path, measured.MOST_BYTES + 1)
    with pytest.raises(MeasuredFileError, match="1,073,741,825 bytes; expected 1,073,741,824 at most"):
        measured.read(path, allow_emulated=True)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "made_up.jsonl").mkdir()
    with pytest.raises(MeasuredFileError, match="Is a directory; expected a readable file"):
        measured.read(tmp_path / "made_up.jsonl")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "made_up.jsonl", *GOOD)
    path.write_bytes(path.read_bytes().replace(b"mad", b"\xff\xff\xff", 1))
    with pytest.raises(MeasuredFileError, match="bytes that are no UTF-8"):
        measured.read(path, allow_emulated=True)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "made_up.jsonl").write_text(content)
    with pytest.raises(MeasuredFileError, match="an empty file; expected a header"):
        measured.read(tmp_path / "made_up.jsonl")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeasuredFileError, match=r"nowhere\.jsonl: no such file; expected a measured file"):
        measured.read(tmp_path / "nowhere.jsonl")


def test_two_points_of_one_case_and_series_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(MeasuredFileError, match="empty_kernel, warm a second time"):
        write(tmp_path / "made_up.jsonl", GOOD[2], GOOD[2])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = write(tmp_path / "made_up.jsonl", *GOOD)
    before = path.read_bytes()
    with pytest.raises(MeasuredFileError):
        write(path, GOOD[2], GOOD[2])
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]


def test_a_write_that_cannot_finish_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "made_up.jsonl", *GOOD)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write(path, GOOD[2])
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]


def test_points_are_sorted_by_op_then_sizes_then_series() -> None:
    points = [
        point(mla(9, 4096), [1.0]),
        point(experts(33), [1.0]),
        point(experts(9), [1.0], Series.WARM),
        point(experts(9), [1.0], Series.COLD),
        point(mla(1, 65536), [1.0]),
    ]
    assert list(read_back(points).points) == [points[3], points[2], points[1], points[4], points[0]]


def test_statistics_are_those_of_the_samples() -> None:
    found = point(cases.EmptyKernel(), [4.0, 1.0, 2.0, 3.0, 5.0], floor_us=1.5)
    assert (found.median_us, found.relative_iqr, found.achieved) == (3.0, pytest.approx(2 / 3), 0.5)
    tailed = point(cases.EmptyKernel(), [1.0, 2.0, 30.0], floor_us=1.0)
    assert (tailed.median_us, tailed.achieved) == (2.0, 0.5)
    assert point(cases.EmptyKernel(), [3.0]).achieved is None
    assert point(cases.EmptyInterval(), [0.0], floor_us=1.0).achieved is None


def test_what_each_pass_said_comes_back() -> None:
    passes = {
        "pass_medians_us": (1.0, 2.0),
        "pass_stops": (StopReason.NOISE, StopReason.ENOUGH),
        "pass_clocks_mhz": (None, 1500.0),
        "clocked_samples": 1,
    }
    found = point(cases.EmptyKernel(), [1.0, 2.0], Series.WARM, **passes)
    assert read_back([found]).points == (found,)


@given(st.integers(1, 40), st.integers(1, 60))
def test_uniform_routing_is_always_believed(tokens: int, samples: int) -> None:
    case = experts(tokens)
    assert point(case, [1.0] * samples, touched_experts=routed(case, samples)).case == case


def test_every_op_has_one_case() -> None:
    found = [case.model_fields["op"].default for case in cases.AnyCase.__args__]
    assert found == list(Op)


def test_a_norm_reads_and_writes_hidden_state_and_residual() -> None:
    assert cases.Norm(tokens=3, hidden=100).moved_bytes == 3 * 100 * 2 * (2 + 2)


def test_the_made_up_router_touches_what_a_closed_form_says() -> None:
    assert np.mean(routed(experts(33), 200)) == pytest.approx(192.3, abs=2)
