"""Two sides are compared point by point, shown in words and pictures, and nothing is made up in between."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from matplotlib import image
from measuring import experts, kimi_file, kimi_points, mla, point, some_cases, some_files, write, write_gpu
from sweeps import sim_here

from hwmodels import cases, catalog, measured
from hwmodels.cases import AnyCase, Op, sizes, work_of
from hwmodels.cost import CostModel
from hwmodels.errors import DocumentError
from hwmodels.measured import LONGEST_US, SHORTEST_US, MeasuredFile, Point, Series
from hwmodels.work import DType
from sim.hardware import pictures, report
from sim.hardware.comparison import Comparison, Published, compare, side, varying_sizes


def file_of(*points: Point, name: str = "made_up.jsonl") -> MeasuredFile:
    with TemporaryDirectory() as folder:
        return measured.read(write(Path(folder) / name, *points), allow_emulated=True)


@cache
def kimi() -> MeasuredFile:
    return file_of(*kimi_points())


@cache
def h200() -> Published:
    found = side("h200_sxm", "sglang")
    assert isinstance(found, Published)
    return found


def scaled(points: list[Point], factor: float) -> list[Point]:
    return [
        point(p.case, [factor * us for us in p.samples_us], p.series, touched_experts=p.touched_experts)
        for p in points
    ]


def ratios(found: Comparison) -> list[float]:
    return [row.ratio for rows in found.rows.values() for row in rows]


@given(some_files, st.floats(0.1, 10))
def test_a_file_so_many_times_as_slow_is_so_many_times_as_slow(points: list[Point], factor: float) -> None:
    times = [factor * us for p in points for us in p.samples_us if us]
    assume(all(SHORTEST_US <= us <= LONGEST_US for us in times))
    found = compare(file_of(*points), file_of(*scaled(points, factor)))
    with_time = [p for p in points if p.median_us > 0 and factor * p.median_us > 0]
    assert ratios(found) == pytest.approx([factor] * len(with_time))
    assert all(found.middle(op) == pytest.approx(factor) for op in found.rows)
    assert len(ratios(found)) + counted(found) == len(points)


def counted(found: Comparison) -> int:
    """Points that are left out."""
    return sum(int(line.split()[1]) for line in found.left_out)


@given(some_files, some_files)
def test_the_other_way_round_every_ratio_is_turned_over(first: list[Point], second: list[Point]) -> None:
    there, back = compare(file_of(*first), file_of(*second)), compare(file_of(*second), file_of(*first))
    assert ratios(there) == pytest.approx([1 / ratio for ratio in ratios(back)])
    assert sorted(there.left_out) == sorted(back.left_out)


@given(some_files, some_files)
def test_every_point_is_compared_or_counted_as_left_out(first: list[Point], second: list[Point]) -> None:
    files = [file_of(*p, name=f"{n}.jsonl") for n, p in (("a", first), ("b", second))]
    found = compare(*files)
    keys = [{(p.case, p.series) for p in points if p.median_us > 0} for points in (first, second)]
    assert {(row.case, row.series) for rows in found.rows.values() for row in rows} == keys[0] & keys[1]
    every = [{(p.case, p.series) for p in points} for points in (first, second)]
    assert len(ratios(found)) + counted(found) == len(every[0] | every[1])


def test_files_of_one_name_are_told_apart() -> None:
    found = compare(kimi(), kimi())
    assert (found.a, found.b) == ("made_up.jsonl (A)", "made_up.jsonl (B)")


def test_published_tables_answer_for_what_they_are_about() -> None:
    found = compare(h200(), kimi())
    assert list(found.rows) == [Op.EXPERTS, Op.MLA, Op.GEMM, Op.NORM]
    for rows in found.rows.values():
        for row in rows:
            work = work_of(row.case)
            assert work is not None
            assert row.a.us == h200().costs.estimate(work).seconds * 1e6
            samples = next(p.samples_us for p in kimi().points if p.case == row.case)
            assert row.b.us == pytest.approx(np.mean(samples))
    told = ["graph_launch: no published table", "top_k: no published table"]
    assert sorted(found.left_out) == [*told, "tree_accept: no published table"]


def test_published_tables_may_stand_on_either_side() -> None:
    assert ratios(compare(kimi(), h200())) == pytest.approx([1 / r for r in ratios(compare(h200(), kimi()))])


def test_work_that_a_gpu_cannot_do_is_left_out_with_the_reason() -> None:
    odd = file_of(point(experts(9).model_copy(update={"dtype": DType.NVFP4}), [1.0]))
    found = compare(h200(), odd)
    assert found.rows == {}
    assert found.left_out == ("experts: h200_sxm: no nvfp4 arithmetic",)
    assert "They have no point in common." in report.comparison_lines(found)


def test_published_tables_are_not_those_of_a_file_that_the_gpu_names(tmp_path: Path) -> None:
    kimi_file(tmp_path)
    found = side(str(write_gpu(tmp_path)), "sglang")
    assert isinstance(found, Published)
    assert isinstance(found.costs, CostModel)
    assert found.costs.machine.samples is None


def test_two_published_sides_are_refused() -> None:
    with pytest.raises(DocumentError) as refused:
        compare(h200(), h200())
    told = "h200_sxm and h200_sxm: both stand for published tables; one of the two must be a measured file"
    assert str(refused.value) == f"{told} (python -m cuda.measure writes one)"


def test_the_file_that_a_refused_gpu_names_is_proposed(tmp_path: Path) -> None:
    path = kimi_file(tmp_path)
    with pytest.raises(DocumentError) as refused:
        compare(side(str(write_gpu(tmp_path)), "sglang"), h200())
    assert str(refused.value).endswith(f"must be a measured file, such as {path}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("h200_sx", "no measured file (.jsonl) and no GPU, did you mean 'h200_sxm'?"),
        ("nowhere.jsonl", "nowhere.jsonl: no such file; expected a measured file"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
    ],
)
def test_an_unknown_side_is_named(name: str, told: str) -> None:
    with pytest.raises(DocumentError) as refused:
        side(name, "sglang")
    assert told in str(refused.value)


def test_a_shipped_file_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    monkeypatch.setattr(catalog, "SHIPPED", tmp_path)
    kimi_file(tmp_path)
    assert side("emulated_gpu", "sglang").name == "emulated_gpu.jsonl"


@given(some_cases)
def test_every_op_that_has_a_size_has_one_it_grows_with(case: AnyCase) -> None:
    assert (case.op in pictures.GROWS_WITH) == bool(sizes(case))
    if sizes(case):
        assert pictures.GROWS_WITH[case.op] in sizes(case)


def test_sizes_vary_where_two_cases_differ() -> None:
    assert varying_sizes([mla(1, 4096), mla(9, 4096)]) == ["queries"]
    assert varying_sizes([mla(1, 4096)]) == []


def test_a_panel_has_the_points_that_differ_in_one_size_only() -> None:
    found = compare(kimi(), kimi())
    panels = list(pictures._panels(Op.MLA, found.rows[Op.MLA]))
    assert [panel.title for panel in panels] == [f"queries {q}" for q in (1, 2, 4, 8, 9, 16, 17, 33)]
    assert {len(panel.rows) for panel in panels} == {3}


def test_pictures_are_the_same_bytes_again(tmp_path: Path) -> None:
    points = [point(cases.DeviceCopy(size_bytes=n), [n / 1e3], s) for n in (1024, 4096) for s in Series]
    found = compare(file_of(*points), file_of(*scaled(points, 2)))
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        names = pictures.write(found, tmp_path / name)
        written.append([(tmp_path / name / file).read_bytes() for file in names])
    assert names == ["compare_device_copy.png", "compare_device_copy.svg"]
    assert written[0] == written[1]
    assert image.imread(tmp_path / "first" / names[0]).std() > 0.05


def test_a_published_side_is_one_line_whatever_the_series() -> None:
    points = [point(experts(m), [10.0 + m], s) for m in (1, 9) for s in (Series.COLD, Series.WARM)]
    figure = pictures.plot(compare(h200(), file_of(*points)), Op.EXPERTS)
    assert len(figure.axes[0].lines) == 3
    legend = [text.get_text() for text in figure.legends[0].texts]
    assert legend == ["h200_sxm, published", "made_up.jsonl, cold", "made_up.jsonl, warm"]


def test_an_op_without_sizes_is_compared_but_not_plotted(tmp_path: Path) -> None:
    empty = file_of(point(cases.EmptyKernel(), [2.0]))
    assert pictures.write(compare(empty, empty), tmp_path) == []
    assert "empty_kernel: B/A 1.00 in the median of 1 points" in report.comparison_lines(
        compare(empty, empty)
    )


@pytest.mark.parametrize("contexts", [(0,), (0, 1024), (0, 1024, 4096), (1, cases.LARGEST)])
def test_any_size_has_its_place_in_a_picture(tmp_path: Path, contexts: tuple[int, ...]) -> None:
    found = file_of(*(point(mla(1, context), [2.0]) for context in contexts))
    for figure in (
        pictures.plot(compare(found, found), Op.MLA),
        pictures.plot(compare(h200(), found), Op.MLA),
    ):
        [axes] = figure.axes
        places = axes.transData.transform([(context, 2.0) for context in contexts])[:, 0]
        low, high = axes.bbox.x0, axes.bbox.x1
        assert np.isfinite(places).all()
        assert all(low <= place <= high for place in places)
        assert (np.diff(places) > 0).all()
        assert [tick for tick in axes.get_xticks() if tick in contexts] == list(axes.get_xticks())
    assert len(pictures.write(compare(found, found), tmp_path)) == 2


@pytest.mark.parametrize(("low_us", "high_us"), [(1e-6, 1e8), (1e8, 1e-6)])
def test_the_longest_beside_the_shortest_time_is_a_ratio_like_any_other(
    tmp_path: Path, low_us: float, high_us: float
) -> None:
    points = [[point(experts(m), [us] * 3) for m in (1, 9)] for us in (low_us, high_us)]
    found = compare(*(file_of(*each) for each in points))
    assert ratios(found) == pytest.approx([high_us / low_us] * 2)
    json.dumps(report.comparison_object(found), allow_nan=False)
    assert len(pictures.write(found, tmp_path)) == 2


def test_words_and_json_say_the_same() -> None:
    found = compare(h200(), kimi())
    lines, told = "\n".join(report.comparison_lines(found)), report.comparison_object(found)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    for op, what in told["ops"].items():
        assert f"B/A {what['median_ratio']:.2f} in the median of {len(what['points'])} points" in lines
        assert op in lines
    assert "experts (experts 384, top_k 8, hidden 7168, intermediate 256, dtype int4_wo)" in lines
    assert max(map(len, lines.splitlines())) <= report.WIDTH


def test_times_beside_published_ones_are_called_means() -> None:
    for found, middle in ((compare(h200(), kimi()), "means"), (compare(kimi(), kimi()), "medians")):
        assert report.comparison_lines(found)[2].startswith(f"Times are {middle}")
        assert report.comparison_object(found)["times"] == middle
        title = pictures.plot(found, Op.GEMM).get_suptitle()
        assert title.startswith(f"gemm: {middle.removesuffix('s')} time")
        assert title.endswith("\nn 384, k 7168, dtype bfloat16")


# Up to the longest time that a file may state.
@given(st.floats(1e-2, 0.99 * LONGEST_US / 1e4), st.floats(1.1, 1e4))
def test_a_picture_has_two_times_to_read_off_and_one_scale(shortest: float, range_: float) -> None:
    points = [point(mla(q, c), [shortest * t]) for q, c, t in ((1, 1024, 1), (1, 2048, range_), (9, 1024, 1))]
    left, right = pictures.plot(compare(file_of(*points), file_of(*points)), Op.MLA).axes
    low, high = left.get_ylim()
    assert (low, high) == right.get_ylim()
    assert sum(low <= tick <= high for tick in left.get_yticks()) >= 2


def test_a_measured_file_is_shown_point_by_point() -> None:
    found = file_of(
        point(experts(9), [30.0, 50.0], floor_us=20.0, bytes=7), point(cases.EmptyKernel(), [2.0])
    )
    lines = "\n".join(report.file_lines(found))
    assert "EMULATED device of a test" in lines
    assert "50.0 %" in lines
    told = report.file_object(found)
    assert [p["median_us"] for p in told["points"]] == [40.0, 2.0]
    assert "samples_us" not in told["points"][0]
    assert told["header"]["emulated"] is True


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(measured, "read", partial(measured.read, allow_emulated=True))
    found: Any = sim_here(monkeypatch, capsys, "hardware", *arguments)
    return found


def test_the_command_writes_pictures_and_prints_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", *(point(experts(m), [10.0 + m]) for m in (1, 9)))
    code, out, err = command(monkeypatch, capsys, "compare", "h200_sxm", "a.jsonl")
    assert (code, err) == (0, "")
    assert "Written to results/hardware/h200_sxm-a/: compare_experts.png, compare_experts.svg" in out
    names = {path.name for path in (tmp_path / "results/hardware/h200_sxm-a").iterdir()}
    assert names == {"compare_experts.png", "compare_experts.svg"}


def test_the_command_prints_one_object_with_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path / "a.jsonl", point(experts(9), [10.0])))
    out_folder = str(tmp_path / "out")
    code, out, _ = command(monkeypatch, capsys, "compare", path, path, "--json", "--out", out_folder)
    assert code == 0
    assert json.loads(out)["ops"]["experts"]["median_ratio"] == 1


def test_own_files_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, gpu = kimi_file(tmp_path), write_gpu(tmp_path)
    code, out, _ = command(monkeypatch, capsys, "show", str(path))
    assert (code, "EMULATED device of a test" in out) == (0, True)
    code, out, _ = command(monkeypatch, capsys, "show", str(path), "--json")
    assert json.loads(out)["name"] == "emulated_gpu.jsonl"
    code, out, _ = command(monkeypatch, capsys, "show", str(gpu))
    assert (code, str(path) in "".join(out.split())) == (0, True)


def test_showing_what_is_not_there_is_a_user_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("nowhere.jsonl", "nowhere.yaml"):
        code, out, err = command(monkeypatch, capsys, "show", name)
        assert (code, out) == (2, "")
        assert f"{name}: no such file" in err
