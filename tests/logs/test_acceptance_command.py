"""``acceptance fit`` as its users meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwmodels import catalog
from sim import cli
from sim.acceptance import AcceptanceModel
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.drafting import tree_model
from sim.quality import DrafterQuality

ROOT = Path(__file__).parents[2]
MODEL = AcceptanceModel((0.9, 0.8, 0.7, 0.75, 0.6, 0.5, 0.65), 0.4, 0.2)
VLLM = (
    "SpecDecoding metrics: Mean acceptance length: {mean:.2f}, Accepted: {accepted} tokens, Drafted:"
    " {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 50.0%\n"
)
KEYS = {
    "file",
    "engine",
    "definitions",
    "lines_used",
    "lines_ignored",
    "steps",
    "requests",
    "drafts",
    "confidence",
    "bootstrap",
    "seed",
    "mean_length",
    "rates",
    "hazard",
    "hazards",
    "request_sd",
    "step_correlation",
    "histogram",
    "checks",
    "simulated_logs",
    "notes",
    "yaml",
    "trace_yaml",
    "accuracy",
}


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """A log of 40 requests of 25 steps, in the columns of our own steps.csv."""
    generator, path = np.random.default_rng(1), tmp_path / "steps.csv"
    rows = [
        f"{run},{step},{length}"
        for run in range(40)
        for step, length in enumerate(MODEL.draw(generator, 200)[:25].tolist())
    ]
    path.write_text("run,step,acceptance_length\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """A vLLM log of 12 windows of steps with hazard 0.8, four drafted tokens a step."""
    generator, path = np.random.default_rng(1), tmp_path / "engine.log"
    lines = ["INFO started\n"]
    for _ in range(12):
        lengths = np.minimum(generator.geometric(0.2, 300), 5)
        rates = ", ".join(f"{(lengths > depth).mean():.3f}" for depth in range(1, 5))
        lines.append(
            VLLM.format(mean=lengths.mean(), accepted=(lengths - 1).sum(), drafted=4 * 300, rates=rates)
        )
    path.write_text("".join(lines))
    return path


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, in this process."""
    monkeypatch.setattr(sys, "argv", ["sim", "acceptance", "fit", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    said = capsys.readouterr()
    return int(caught.value.code or 0), said.out, said.err


@pytest.mark.parametrize("option", ["", "--constant"])
def test_the_report_says_what_was_read_and_fits_a_screen(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    code, text, errors = run(monkeypatch, capsys, str(steps), *([option] if option else []))
    assert (code, errors) == (0, "")
    for words in (
        "plain lengths",
        "1,000 steps",
        "40 requests",
        "mean acceptance length",
        "request_sd",
        "trace:",
    ):
        assert words in text
    assert ("hazard of every position" in text) == bool(option)
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.replace(str(steps), "").splitlines())) <= 110


def test_the_report_of_windows_says_what_is_missing(
    windows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(run(monkeypatch, capsys, str(windows))[1].split())
    for words in (
        "vLLM; 12 lines used, 1 other, 3,600 steps, 4 drafted tokens",
        "unconditional",
        "rates: [",
    ):
        assert words in text
    assert "request_sd and step_correlation are missing" in text
    assert "trace:" not in text


def test_json_is_one_object_with_stable_keys(
    steps: Path, windows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    single, means = (
        json.loads(run(monkeypatch, capsys, str(path), "--json", "--seed", "3", "--bootstrap", "500")[1])
        for path in (steps, windows)
    )
    assert single.keys() == means.keys() == KEYS
    assert (single["steps"], single["requests"], single["seed"], single["bootstrap"]) == (1000, 40, 3, 500)
    assert single["mean_length"]["low"] < single["mean_length"]["value"] < single["mean_length"]["high"]
    assert (means["engine"], means["lines_used"], means["lines_ignored"], means["drafts"]) == (
        "vLLM",
        12,
        1,
        4,
    )
    assert (means["request_sd"], means["trace_yaml"], single["hazard"]) == (None, None, None)
    assert len(single["rates"]) == 7
    assert sum(single["histogram"]["observed"]) == pytest.approx(1)
    assert {"name", "observed", "modelled", "low", "high", "fitted", "inside"} == single["checks"][0].keys()


def test_yaml_only_is_the_yaml_of_the_report(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, yaml, _ = run(monkeypatch, capsys, str(steps), "--yaml-only")
    assert yaml.startswith("acceptance:\n  # Fitted to steps.csv")
    assert yaml in run(monkeypatch, capsys, str(steps))[1]


def test_the_same_seed_says_the_same_and_another_one_does_not(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, other = (
        run(monkeypatch, capsys, str(steps), "--json", "--seed", seed)[1] for seed in ("1", "1", "2")
    )
    assert first == again
    intervals = [json.loads(text)["mean_length"]["low"] for text in (first, other)]
    assert intervals[0] != intervals[1]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            "accepted\n3\n",
            (),
            "log.txt:1: 'accepted' may or may not count the target's own token: say --counts",
        ),
        ("3\n0\n", (), "log.txt:2: expected a length of 1 to 256, got 0"),
        ("", (), "log.txt: nothing in it"),
        ("3\n", ("--definition", "per-drafted"), "--definition is for SGLang"),
        ("3\n", ("--json", "--yaml-only"), "give --json or --yaml-only, not both"),
        ("3\n", ("--counts", "both"), "'both' is not one of 'with-target', 'drafted-only'"),
    ],
)
def test_user_errors_say_what_and_where_and_exit_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: tuple[str, ...],
    said: str,
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    code, out, errors = run(monkeypatch, capsys, str(path), *options)
    assert (code, out) == (2, "")
    assert said in " ".join(errors.replace("│", " ").split())


def test_options_reach_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.txt"
    path.write_text("accepted\n3\n0\n2\n")
    _, text, _ = run(monkeypatch, capsys, str(path), "--counts", "drafted-only", "--drafts", "5", "--json")
    found = json.loads(text)
    assert (found["drafts"], len(found["rates"])) == (5, 5)
    assert found["mean_length"]["value"] == pytest.approx(8 / 3)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sim", "acceptance", "fit", str(tmp_path / "nowhere.csv")]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"error: {tmp_path}/nowhere.csv: No such file or directory"]


def test_a_pipe_has_no_line_for_a_trace(steps: Path) -> None:
    """Nothing could be read from it again."""
    command = [sys.executable, "-m", "sim", "acceptance", "fit", "/dev/stdin", "--bootstrap", "100"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=steps.read_text(),
        text=True,
        capture_output=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("/dev/stdin: plain lengths; 1,000 steps, 40 requests")
    assert "hazard: [" in done.stdout
    assert "trace:" not in done.stdout


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("shape", ["ddtree", "chain"])
def test_lengths_that_are_all_the_same_have_no_accuracy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    length: int,
    shape: str,
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{length}\n" * 40)
    asked = (str(path), "--drafts", "3", "--budget", "8", "--shape", shape)
    code, out, errors = run(monkeypatch, capsys, *asked)
    assert (code, out) == (2, "")
    assert errors == (
        f"error: {path}: --budget 8: every step has length {length}; an accuracy needs lengths that differ\n"
    )


def test_one_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, windows = tmp_path / "log.jsonl", tmp_path / "server.log"
    plain.write_text("[2]\n")
    windows.write_text("started\n" + VLLM.format(mean=2, accepted=1, drafted=1, rates="1.000"))
    text = " ".join(run(monkeypatch, capsys, str(plain), "--drafts", "1")[1].split())
    assert "plain lengths; 1 step, 1 request, 1 drafted token a step" in text
    assert "Fitted to log.jsonl (plain lengths), 1 step of 1 request." in text
    text = " ".join(run(monkeypatch, capsys, str(windows))[1].split())
    assert "vLLM; 1 line used, 1 other, 1 step, 1 drafted token a step" in text


def test_the_report_is_one_line_a_line_whatever_the_file_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log\n\x1b[2J.txt"
    path.write_text("3\n2\n" * 20)
    text = run(monkeypatch, capsys, str(path))[1]
    assert text.replace("\n", " ").startswith(f"{tmp_path}/log\\n\\x1b[2J.txt: plain lengths;")
    assert "\x1b[2J" not in text
    path.write_text("")
    assert run(monkeypatch, capsys, str(path))[2] == f"error: {tmp_path}/log\\n\\x1b[2J.txt: nothing in it\n"


def test_a_log_of_trees_gives_the_drafters_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it then says of another budget is what the same drafter lands there."""
    truth, tree = DrafterQuality(2.5, 0.7, 0.8, 0.03, 0.3), TreeSpec(8, 16)
    model, generator = tree_model(truth, tree), np.random.default_rng(5)
    path = tmp_path / "lengths.jsonl"
    path.write_text("".join(f"{model.draw(generator, 300).tolist()}\n" for _ in range(300)))
    _, text, _ = run(monkeypatch, capsys, str(path), "--budget", "16", "--json", "--bootstrap", "100")
    found = json.loads(text)["accuracy"]
    assert found["tree"] == {"block": 8, "budget": 16, "shape": "ddtree"}
    for predicted in found["predicted"]:
        other = TreeSpec(predicted["block"], predicted["budget"], Shape(predicted["shape"]))
        assert predicted["mean_length"] == pytest.approx(1 + truth.survival(other).sum(), rel=0.04)
    drafter = tmp_path / "mine.yaml"
    drafter.write_text("extends: kimi_dflash\n" + found["yaml"])
    known = catalog.drafter(str(drafter)).accuracy
    assert known is not None
    assert known.top1_logit == pytest.approx(found["quality"]["top1_logit"], abs=1e-3)


def test_a_chains_rates_are_its_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "server.log"
    log.write_text(VLLM.format(mean=2.94, accepted=194, drafted=300, rates="0.800, 0.640, 0.500"))
    asked = (str(log), "--budget", "3", "--shape", "chain")
    found = json.loads(run(monkeypatch, capsys, *asked, "--json")[1])["accuracy"]
    assert np.cumprod(found["quality"]["top1"]) == pytest.approx([0.8, 0.64, 0.5])
    assert (found["predicted"][0]["shape"], found["predicted"][0]["budget"]) == ("chain", 3)
    assert found["predicted"][0]["mean_length"] == pytest.approx(2.94)
    assert "would land 2.94 as a chain," in run(monkeypatch, capsys, *asked)[1]


def test_the_chain_of_a_log_lands_what_the_log_landed(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests vary in it, and may not vary twice."""
    text = run(monkeypatch, capsys, str(steps), "--budget", "7", "--shape", "chain", "--json")[1]
    found = json.loads(text)
    assert found["request_sd"]["value"] > 0.2
    predicted = found["accuracy"]["predicted"][0]["mean_length"]
    assert predicted == pytest.approx(found["mean_length"]["value"], abs=2e-3)


def test_a_tree_that_cannot_land_what_was_seen_is_refused(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = run(monkeypatch, capsys, str(steps), "--budget", "4")
    assert code == 2
    assert "lengths go to 8, but a tree of 4 lands at most 5" in errors
