"""``levers`` as its users meet it: real processes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from commands import interrupted, sim
from texts import GOOD

SMALL = GOOD.replace("  mean_length: 4.4", "  quality: {mean_length: 4.4}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "plain.yaml").write_text(SMALL.replace("budget: 8", "budget: 0"))
    return tmp_path


def test_one_scenario_is_reported_drawn_and_written(folder: Path) -> None:
    done = sim("levers", "small.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in (
        "expert GEMM",
        "AllReduce latency",
        "HBM bandwidth",
        "Amdahl",
        "budget 16",
        "NVFP4 experts",
    ):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 110
    there = folder / "results/levers/small"
    names = {path.name for path in there.iterdir()}
    tables = {"report.txt", "levers.json", "levers.csv", "alternatives.csv"}
    assert names == tables | {"tornado.png", "tornado.svg"}
    with (there / "levers.csv").open() as stream:
        rows = {row["lever"]: row for row in csv.DictReader(stream)}
    assert float(rows["expert GEMM"]["tok_s_free"]) > float(rows["expert GEMM"]["tok_s_tenth"])


def test_several_scenarios_share_a_table_and_changes_have_a_folder_of_their_own(folder: Path) -> None:
    options = ("--no-pictures", "--no-uncertainty", "--set", "tree.budget=0")
    done = sim("levers", "small.yaml", "plain.yaml", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "B of step" in words
    assert "verhead d" in words
    assert "…" not in words
    there = folder / "results/changed/levers/small-plain"
    assert {path.suffix for path in there.iterdir()} == {".txt", ".json", ".csv"}


def test_whether_overhead_dominates_is_answered_beside_what_the_articles_say(folder: Path) -> None:
    """Of eight B300 with today's drafter they say that 12.5 of 14.5 ms are not experts."""
    done = sim("levers", "small.yaml", "plain.yaml", "--no-pictures", "--no-uncertainty", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    head = next(at for at, line in enumerate(said) if line.startswith("does overhead dominate?"))
    small, plain = (line.split() for line in said[head + 1 : head + 3])
    assert (small[0], plain[0]) == ("small", "plain")
    assert said[head + 1].endswith("86.4 % (12.5 of 14.5 ms)")
    assert "ms" not in plain
    scenarios = json.loads((folder / "results/levers/small-plain/levers.json").read_text())["scenarios"]
    for row, found in zip((small, plain), scenarios, strict=True):
        levers = {lever["name"]: lever for lever in found["levers"]}
        for at, name in ((1, "host"), (5, "experts"), (9, "rest")):
            assert float(row[at]) == pytest.approx(100 * levers[name]["critical_share"], abs=0.051)
            assert float(row[at + 2]) == pytest.approx(100 * levers[name]["gain"]["free"], abs=0.051)
    assert scenarios[0]["articles_overhead"]["rest_ms"] == 12.5
    assert scenarios[1]["articles_overhead"] is None


def test_json_is_one_object_and_the_same_twice(folder: Path) -> None:
    first, second = (
        sim("levers", "plain.yaml", "--json", "--no-pictures", "--no-uncertainty", "--out", name, cwd=folder)
        for name in "ab"
    )
    assert first.stdout == second.stdout
    assert first.stderr == ""
    (found,) = json.loads(first.stdout)["scenarios"]
    base = found["tok_s"]
    for lever in found["levers"]:
        gains = [lever["gain"][name] for name in ("tenth", "half", "free")]
        assert gains == sorted(gains)
        assert lever["tok_s"]["free"] == pytest.approx(base * (1 + gains[2]))
    assert sum(found["critical_path"].values()) == pytest.approx(1)


def test_investments_are_combined(folder: Path) -> None:
    (folder / "plan.yaml").write_text(
        "question: Which of the two would bring more?\nbase: small.yaml\ninvestments:\n"
        "  - {name: engine, title: a native engine, set: {stack: native}}\n"
        "  - {name: builder, title: a tree on the GPU, set: {tree.builder: gpu}}\n"
    )
    done = sim("levers", "--investments", "plan.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "engine + builder" in done.stdout
    found = json.loads((folder / "results/levers/investments-plan/investments.json").read_text())
    assert [each["made"] for each in found["combinations"]] == [
        [],
        ["engine"],
        ["builder"],
        ["engine", "builder"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("levers",), "give a scenario, or --investments"),
        (("levers", "b300_nwo"), "did you mean 'b300_now'"),
        (("levers", "small.yaml", "--set", "tree.budgte=3"), "budgte"),
        (("levers", "small.yaml", "./sub/small.yaml"), "names of their own"),
        (("levers", *(f"s{n}.yaml" for n in range(7))), "at most 6"),
        (("levers", "--investments", "nowhere"), "no such file"),
        (("levers", "--investments", "a", "b"), "takes one plan"),
        (("levers", "--investments", "--set", "runs=2"), "'set' of its own"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "small.yaml").write_text(SMALL)
    done = sim(*arguments, cwd=folder)
    assert done.returncode == 2
    # A terminal's frame breaks lines and adds bars.
    said = " ".join(done.stderr.replace("│", " ").split())
    assert message in said
    assert "Traceback" not in done.stderr
    assert not (folder / "results").exists()


@pytest.mark.parametrize("arguments", [("b300_strong_drafter_eager", "b300_now"), ("--investments",)])
def test_an_interrupt_writes_nothing(folder: Path, arguments: tuple[str, ...]) -> None:
    there = folder / "results/levers"
    done = interrupted("levers", *arguments, "--no-pictures", cwd=folder, there=there)
    assert done.returncode == 130, done.stderr
    assert "nothing is written" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not [path for path in there.rglob("*") if path.is_file()]
