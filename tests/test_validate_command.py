"""``python -m sim validate`` as its users meet it: real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from published import DRAFTED, PLAIN, ROWS, text

from sim.validation.cases import COLUMNS


def validate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sim", "validate", *arguments]
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    unknown = PLAIN | {"id": "U1", "gpu": "a GPU of 2030"}
    (tmp_path / "mine.csv").write_text(text([*ROWS, unknown]), encoding="utf-8")
    return tmp_path


def test_it_reports_and_writes(folder: Path) -> None:
    done = validate("mine.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in ("measured", "predicted", "90 % interval", "MEASURED", "bias", "Skipped:", "a GPU of 2030"):
        assert words in done.stdout
    said = done.stdout.partition("\nWritten to ")[0]
    assert max(map(len, said.splitlines())) <= 100
    written = {path.name for path in (folder / "results/changed/validation/mine").iterdir()}
    assert written == {"report.txt", "validation.json", "rows.csv", "scatter.png", "scatter.svg"}


def test_json_is_one_object_and_nothing_else(folder: Path) -> None:
    done, again = (validate("mine.csv", "--json", "--out", name, cwd=folder) for name in "ab")
    assert done.stderr == ""
    assert done.stdout == again.stdout
    found = json.loads(done.stdout)
    assert found.keys() == {"rows", "skipped", "summary"}
    assert [row["id"] for row in found["rows"]] == ["P1", "D1", "D1", "O1"]
    assert [skip["id"] for skip in found["skipped"]] == ["U1"]
    assert json.loads((folder / "a/mine/validation.json").read_text()) == found


def test_one_system(folder: Path) -> None:
    found = json.loads(validate("mine.csv", "--json", "--system", "H100", cwd=folder).stdout)
    assert [row["id"] for row in found["rows"]] == ["O1"]
    assert found["skipped"] == []


def test_residuals_are_learnt_on_request(folder: Path) -> None:
    done = validate("mine.csv", "--quiet", "--learn", "residuals.csv", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len((folder / "residuals.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "wrong.csv: empty"),
        (
            text([PLAIN, DRAFTED | {"tok_s_total": "fast"}]),
            "wrong.csv:3: tok_s_total: expected a number, got 'fast'",
        ),
        (text([PLAIN, PLAIN]), "wrong.csv:3: id: 'P1' again, first on line 2"),
        (text([PLAIN], COLUMNS[:-1]), "wrong.csv:1: source: column missing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder: Path, content: str, words: str) -> None:
    (folder / "wrong.csv").write_text(content)
    done = validate("wrong.csv", cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_a_file_that_is_not_there(folder: Path) -> None:
    done = validate("none.csv", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "error: none.csv: no such file\n")


FITS = """\
fits:
- stack: sglang
  figures:
    dispatch.schedule_us: {value: 3170, source: scaled, ref: a test, range: [1500, 3800]}
  cases: {baseline: [P1, D1]}
  checks: {speculative: [D1]}
"""


@pytest.fixture
def fits(folder: Path) -> Path:
    (folder / "fits.yaml").write_text(FITS, encoding="utf-8")
    return folder


def test_refit_prints_and_writes_nothing(fits: Path) -> None:
    arguments = ("mine.csv", "--fits", "fits.yaml", "--refit")
    said = validate(*arguments, "sglang", cwd=fits)
    assert said.returncode == 0, said.stderr
    for words in (
        "fitted to 2 measurements of 2 cases",
        "dispatch.schedule_us",
        "1 sigma",
        "left out",
        "check",
    ):
        assert words in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 100
    found = json.loads(validate(*arguments, "all", "--json", cwd=fits).stdout)
    (fit,) = found["fits"]
    assert fit["stack"] == "sglang"
    assert [row["id"] for row in fit["rows"]] == ["D1", "P1"]
    assert [row["kind"] for row in fit["checks"]] == ["speculative"]
    errors = fit["mean_absolute_error"]
    assert errors["fitted"] < errors["prior"]
    assert sorted(path.name for path in fits.iterdir()) == ["fits.yaml", "mine.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--refit", "vllm", "--fits", "fits.yaml"), "fits.yaml: no fit of a stack 'vllm'"),
        (("--refit", "sglang"), "no case 'C113'"),
        (("--refit", "sglang", "--fits", "none.yaml"), "none.yaml: no such file"),
        (("--refit", "sglang", "--system", "b200"), "takes none of --system"),
        (("--fits", "fits.yaml"), "without --refit"),
    ],
)
def test_a_refit_that_cannot_be_is_exit_code_2(fits: Path, arguments: tuple[str, ...], words: str) -> None:
    done = validate("mine.csv", *arguments, cwd=fits)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_help_names_every_column(folder: Path) -> None:
    said = validate("--help", cwd=folder).stdout
    assert all(name in said for name in COLUMNS)


def test_an_interrupt_leaves_nothing_behind(folder: Path) -> None:
    many = [PLAIN | {"id": str(n), "context_tokens": str(1000 + n)} for n in range(2000)]
    (folder / "many.csv").write_text(text(many), encoding="utf-8")
    command = [sys.executable, "-m", "sim", "validate", "many.csv"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "results/changed/validation/many").is_dir():
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "interrupted; nothing is written\n"
    assert list((folder / "results/changed/validation/many").iterdir()) == []
