"""``compare`` as its users meet it: real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import interrupted, sim
from texts import GOOD

QUICK = ("--no-uncertainty", "--no-pictures")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(GOOD)
    (tmp_path / "native.yaml").write_text(
        GOOD.replace("stack: sglang", "stack: native").replace("budget: 8", "budget: 8\n  builder: gpu")
    )
    (tmp_path / "long.yaml").write_text(GOOD.replace("context_tokens: 2000", "context_tokens: 9000"))
    return tmp_path


def compared(folder: Path, *arguments: str) -> dict[str, Any]:
    done = sim("compare", *arguments, "--json", "--no-pictures", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_two_scenarios_are_reported_drawn_and_written(folder: Path) -> None:
    done = sim("compare", "small.yaml", "native.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    for said in (
        "B is faster than A: 1.",
        "99 % over paired runs",
        "With everything drawn that is not known",
        "Python scheduling",
        "product: throughput",
        "They differ in 2 keys A B stack sglang native tree.builder host gpu",
        "do not meet the same luck one by one",
    ):
        assert said in words
    assert "…" not in words
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 100
    there = folder / "results/compare/small-native"
    pictures = {f"{name}.{kind}" for name in ("waterfall", "ratio") for kind in ("png", "svg")}
    assert {path.name for path in there.iterdir()} == {"report.txt", "compare.json"} | pictures
    assert done.stdout.startswith((there / "report.txt").read_text())
    assert not (folder / "results/changed").exists()


def test_a_scenario_against_itself_differs_by_exactly_nothing(folder: Path) -> None:
    found = compared(folder, "small.yaml", "small.yaml")
    (one,) = found["comparisons"]
    assert one["verdict"] == "identical"
    assert "not distinguishable" in one["answer"]
    for quantity in ("throughput_tok_s", "step_time_ms", "acceptance_length"):
        assert (one[quantity]["difference"], one[quantity]["ratio"]) == (0, 1)
    assert all(part["difference_ms"] == part["log_throughput"] == 0 for part in one["components"].values())
    assert one["unknown"]["without_luck"]["ties"] == found["draws"] == 256
    assert one["differences"] == []


def test_the_object_adds_up(folder: Path) -> None:
    found = compared(folder, "small.yaml", "native.yaml", "long.yaml", "--no-uncertainty")
    a, b, c = found["scenarios"]
    assert (a["name"], b["name"], c["name"]) == ("small", "native", "long")
    assert found["pairing"] == "common"
    for one, side in zip(found["comparisons"], (b, c), strict=True):
        parts = one["components"].values()
        step, throughput = one["step_time_ms"], one["throughput_tok_s"]
        assert sum(part["difference_ms"] for part in parts) == pytest.approx(step["difference"])
        assert sum(part["a_ms"] for part in parts) == pytest.approx(a["step_time_ms"])
        assert throughput["difference"] == pytest.approx(
            side["throughput_tok_s"] - a["throughput_tok_s"], rel=1e-6
        )
        terms = one["log_throughput"]
        assert sum(part["log_throughput"] for part in parts) == pytest.approx(terms["step_time"])
        total = terms["requests"] + terms["acceptance_length"] + terms["step_time"]
        assert total == pytest.approx(terms["sum"])
        assert one["against"] == "small"
    assert found["comparisons"][1]["verdict"] == "slower"
    assert found["comparisons"][1]["differences"] == [{"key": "load.context_tokens", "a": 2000, "b": 9000}]


def test_options_change_all_scenarios_and_go_to_a_folder_of_their_own(folder: Path) -> None:
    options = ("--runs", "6", "--seed", "9", "--set", "tree.budget=0", *QUICK)
    done = sim("compare", "small.yaml", "native.yaml", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Changed in all: tree.budget=0" in done.stdout
    assert "What is not known was not drawn." in " ".join(done.stdout.split())
    found = json.loads((folder / "results/changed/compare/small-native/compare.json").read_text())
    assert (found["runs"], found["draws"]) == (6, 0)
    assert found["overrides"] == ["tree.budget=0", "runs=6", "seed=9"]
    assert {side["seed"] for side in found["scenarios"]} == {9}
    assert found["comparisons"][0]["unknown"] is None


def test_other_luck_in_each_is_not_told_apart(folder: Path) -> None:
    found = compared(folder, "small.yaml", "small.yaml", "--independent", "--runs", "8", "--no-uncertainty")
    (one,) = found["comparisons"]
    assert found["pairing"] == "independent"
    assert [side["seed"] for side in found["scenarios"]] == [1, 2]
    assert one["verdict"] == "not distinguishable"
    assert one["throughput_tok_s"]["difference"] != 0


def test_too_few_runs_decide_nothing(folder: Path) -> None:
    done = sim("compare", "small.yaml", "native.yaml", "--runs", "2", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "undecided" in done.stdout
    assert "fewer than 5 runs" in " ".join(done.stdout.split())
    assert "+-" not in done.stdout.split("+- and brackets")[0]


def test_the_same_twice_is_the_same_to_the_byte(folder: Path) -> None:
    for name in "ab":
        options = ("--out", name, "--quiet", "--no-uncertainty")
        assert sim("compare", "small.yaml", "long.yaml", *options, cwd=folder).stdout == ""
    written = sorted(path.name for path in (folder / "a/small-long").iterdir())
    assert len(written) == 6
    for name in written:
        assert (folder / "a/small-long" / name).read_bytes() == (folder / "b/small-long" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument"),
        (("small.yaml",), "give 2 to 6 scenarios, got 1"),
        (("small.yaml", "b300_nwo"), "did you mean 'b300_now'"),
        (("small.yaml", "native.yaml", "--set", "tree.budgte=3"), "budgte"),
        (("small.yaml", "native.yaml", "--runs", "0"), "--runs"),
        (("small.yaml", "native.yaml", "--set", "gpus=3"), "gpus"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = sim("compare", *arguments, cwd=folder)
    assert done.returncode == 2
    # A terminal's frame breaks lines and adds bars.
    said = " ".join(done.stderr.replace("│", " ").split())
    assert message in said
    assert "Traceback" not in done.stderr
    assert not (folder / "results").exists()


def test_an_interrupt_writes_nothing(folder: Path) -> None:
    there = folder / "results/compare"
    done = interrupted("compare", "b300_strong_drafter_eager", "b300_now", cwd=folder, there=there, after_s=1)
    assert done.returncode == 130, done.stderr
    assert "nothing is written" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not [path for path in there.rglob("*") if path.is_file()]
