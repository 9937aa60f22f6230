"""``--html`` as its users meet it, the same on every command that has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sweeps import sim_here, write_tiny

PLAN = """\
question: Which of the two would bring more?
base: tiny.yaml
investments:
  - {name: engine, title: a native engine, set: {stack: native}}
  - {name: builder, title: a tree on the GPU, set: {tree.builder: gpu}}
"""
QUESTION = "How fast does a small tree decode on two layers?"
COMMANDS = {
    "run": ("run", "tiny.yaml", "--no-uncertainty"),
    "levers": ("levers", "tiny.yaml", "--no-uncertainty", "--no-pictures"),
    "investments": ("levers", "--investments", "plan.yaml"),
    "sweep": ("sweep", "tiny.yaml", "--axis", "tree.budget=4,8"),
    "compare": ("compare", "tiny.yaml", "other.yaml", "--no-uncertainty", "--no-pictures"),
}
HEADINGS = {
    "run": QUESTION,
    "levers": QUESTION,
    "investments": "Which of the two would bring more?",
    "sweep": QUESTION,
    "compare": "How much faster than tiny is other?",
}
WORK = {
    "run": "sim.answer.answer",
    "levers": "sim.levers.study.Task.of",
    "investments": "sim.levers.investments.play",
    "sweep": "sim.sweeps.run.sweep",
    "compare": "sim.comparison.study.Task.done",
}
"""What takes long in each."""
any_command = pytest.mark.parametrize("name", COMMANDS)
Command = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in a folder that has small scenarios and a plan."""
    tiny = write_tiny(tmp_path, plan=PLAN)
    (tmp_path / "other.yaml").write_text(tiny.read_text().replace("budget: 8", "budget: 4"))
    (tmp_path / "a_file").write_text("")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    return partial(sim_here, monkeypatch, capsys)


@any_command
def test_a_page_is_written_and_named(sim: Command, name: str) -> None:
    code, out, err = sim(*COMMANDS[name], "--html", "new/page.html")
    assert (code, err) == (0, "")
    assert out.endswith("Report to hand on: new/page.html\n")
    page = Path("new/page.html").read_text()
    assert f"<h1>{HEADINGS[name]}</h1>" in page
    assert str(Path.cwd()) not in page
    assert [path.name for path in Path("new").iterdir()] == ["page.html"]


@pytest.mark.parametrize("name", ["sweep", "compare", "investments"])
def test_json_and_quiet_write_the_same_page_and_say_nothing_of_it(sim: Command, name: str) -> None:
    _, out, err = sim(*COMMANDS[name], "--json", "--out", "a", "--html", "a.html")
    assert err == ""
    assert json.loads(out)
    assert sim(*COMMANDS[name], "--quiet", "--out", "b", "--html", "b.html") == (0, "", "")
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


@any_command
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("page.pdf", "--html: page.pdf: expected a name that ends in .html or .htm"),
        ("there", "--html: there: expected a name"),
        ("a_file/page.html", "a_file is a file, not a folder"),
    ],
)
def test_what_cannot_be_a_page_is_refused_before_the_work(
    sim: Command, monkeypatch: pytest.MonkeyPatch, name: str, path: str, problem: str
) -> None:
    monkeypatch.setattr(WORK[name], nobody)
    code, out, err = sim(*COMMANDS[name], "--html", path)
    assert (code, out) == (2, "")
    assert problem in err
    assert len(err.splitlines()) == 1


def nobody(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the work has begun")


def test_a_sweep_with_failed_cells_leaves_a_page(sim: Command) -> None:
    code, out, _ = sim("sweep", "tiny.yaml", "--axis", "drafter.block=2,8", "--html", "page.html")
    assert code == 3
    assert out.endswith("Report to hand on: page.html\n")
    assert "Cells that failed" in Path("page.html").read_text()


@pytest.mark.parametrize("name", ["sweep", "compare", "investments"])
def test_an_interrupt_while_a_page_is_written_leaves_the_rest(
    sim: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupted(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.html.page.render", interrupted)
    code, _, err = sim(*COMMANDS[name], "--html", "page.html")
    assert code == 130
    assert "interrupted while page.html was written; everything else is there" in err
    assert not Path("page.html").exists()
    assert list(Path().rglob("report.txt"))
