"""``acceptance show`` as its users meet it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from texts import GOOD

from sim import cli, scenario
from sim.drafting import acceptance_model
from sim.setup import resolve
from sim.trees import pictures as tree_pictures

TREE = "acceptance={quality: {mean_length: 4.4}}"
STEMS = ("tree", "lengths", "budgets", "next_node", "blocks")
TEXTS = {"acceptance.json", "report.txt"}
RATES = [0.89, 0.75, 0.57, 0.49, 0.41, 0.34, 0.28]
KINDS = {
    "length": "{length: 5}",
    "rates": f"{{rates: {RATES}}}",
    "hazard": "{hazard: 0.8}",
    "mean_length": "{mean_length: 4.4}",
    "quality": "{quality: {}}",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def show(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code, stdout and stderr of the command with some arguments, run in *folder*."""
    assert folder.is_dir()

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specdec-sim", "acceptance", "show", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        told = capsys.readouterr()
        return int(stop.value.code or 0), told.out, told.err

    return run


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_reports_and_writes(folder: Path, show: Any) -> None:
    code, out, err = show("small.yaml", "--set", TREE)
    assert (code, err) == (0, "")
    written = folder / "results/acceptance/small"
    pictures = {f"{stem}.{kind}" for stem in STEMS for kind in ("png", "svg")}
    assert names(written) == TEXTS | pictures
    report = (written / "report.txt").read_text()
    assert out.startswith(report)
    assert all(name in out.splitlines()[-1] for name in TEXTS | pictures)
    for words in (
        "kimi_dflash, block 8, budget 8 (M = 9)",
        "E[L] 4.40 of at most 8",
        "P(L >= n)",
        "next node adds",
    ):
        assert words in report


def test_json_says_what_a_run_would_draw_from(folder: Path, show: Any) -> None:
    code, out, err = show("small.yaml", "--set", TREE, "--json", "--no-pictures")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert json.loads((folder / "results/acceptance/small/acceptance.json").read_text()) == found
    setup = resolve(scenario.load(folder / "small.yaml", (TREE,)))
    model = acceptance_model(setup)
    assert found["mean_length"] == model.mean_length()
    assert found["shares"] == {str(n): share for n, share in enumerate(model.distribution().tolist(), 1)}
    assert found["cap"] == model.cap
    assert (found["block"], found["budget"], found["drafter"]) == (8, 8, "kimi_dflash")
    own = [at for at in found["tree"]["budgets"] if at["budget"] == 8]
    assert own[0]["mean_length"] == pytest.approx(model.mean_length())
    assert sum(node["chance"] for node in found["tree"]["nodes"]) + 1 == pytest.approx(
        found["tree"]["middling_length"]
    )


def test_json_has_stable_keys(show: Any) -> None:
    found = json.loads(show("small.yaml", "--set", TREE, "--json", "--no-pictures")[1])
    assert list(found) == [
        "format_version",
        "question",
        "drafter",
        "trained_block",
        "block",
        "budget",
        "acceptance",
        "mean_length",
        "cap",
        "shares",
        "at_least",
        "tree",
    ]
    assert list(found["tree"]) == [
        "accuracy",
        "log_odds_shift",
        "off_spine",
        "step_sd",
        "easy_share",
        "first_choices",
        "middling_length",
        "asked_length",
        "known_block",
        "lands_nothing_beyond",
        "nodes",
        "budgets",
        "next_nodes",
        "blocks",
        "curves",
    ]
    assert found["tree"]["nodes"][0].keys() == {"parent", "depth", "rank", "probability", "chance", "spine"}
    assert found["tree"]["accuracy"].keys() == {"source", "ref"}


@pytest.mark.parametrize(("kind", "text"), KINDS.items(), ids=KINDS)
def test_every_kind_of_acceptance_can_be_shown(folder: Path, show: Any, kind: str, text: str) -> None:
    code, out, _ = show("small.yaml", "--set", f"acceptance={text}", "--json", "--no-pictures")
    found = json.loads(out)
    assert code == 0
    assert found["acceptance"] == kind
    assert (found["tree"] is None) == (kind != "quality")
    assert names(folder / "results/acceptance/small") == TEXTS


def test_quiet_writes_and_says_nothing(folder: Path, show: Any) -> None:
    assert show("small.yaml", "--quiet", "--out", "elsewhere") == (0, "", "")
    assert names(folder / "elsewhere/small") == TEXTS | {"lengths.png", "lengths.svg"}


def test_without_pictures_none_is_made(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tree_pictures, "write")
    assert show("small.yaml", "--set", TREE, "--no-pictures")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.yaml",), "error: nowhere.yaml: no such file"),
        (("b300_nou",), "did you mean 'b300_now'?"),
        (("small.yaml", "--set", "tree.budget=0"), "--set tree.budget=0: tree.budget: 0 is plain decoding"),
        (
            ("small.yaml", "--set", "drafter.block=0"),
            "expected tree.budget of at least 1 and drafter.block of at",
        ),
        (
            ("small.yaml", "--set", "acceptance={quality: {mean_length: 9}}"),
            "block 8, budget 8 allow at most 8",
        ),
        (("small.yaml", "--set", "acceptance={qualty: {}}"), "did you mean 'quality'?"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(
    folder: Path, show: Any, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = show(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (folder / "results").exists()


def test_a_file_in_the_way_is_a_user_error(folder: Path, show: Any) -> None:
    (folder / "results").write_text("a file, not a folder")
    code, out, err = show("small.yaml")
    assert (code, out) == (2, "")
    assert "results" in err


def test_it_has_help(show: Any) -> None:
    code, out, _ = show("--help")
    assert code == 0
    assert "--no-pictures" in out
