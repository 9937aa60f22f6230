"""Find scenario files: by path, or shipped ones by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from sim.errors import ScenarioError


def folder() -> Path:
    """Where the shipped scenarios are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "scenarios"
    return installed if installed.is_dir() else package.parent / "scenarios"


def names() -> list[str]:
    """The names of the shipped scenarios, sorted."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def sweeps_folder() -> Path:
    """Where the shipped sweep files are."""
    return folder() / "sweeps"


def find(scenario: str, sweeps: bool = False) -> Path:
    """The file that *scenario* names; ScenarioError with the nearest name where there is none.

    With *sweeps* the shipped sweeps count among the names that may have been meant.
    """
    known = names() + (sorted(path.stem for path in sweeps_folder().glob("*.yaml")) if sweeps else [])
    path = Path(scenario)
    if path.suffix or path.exists():
        if path.is_file():
            return path
        raise ScenarioError(scenario, 0, "", f"no such file{_hint(path.stem, known)}")
    if scenario in names():
        return folder() / f"{scenario}.yaml"
    raise ScenarioError(scenario, 0, "", f"no such file, nor a shipped scenario{_hint(scenario, known)}")


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f", did you mean '{near[0]}'?" if near else f" (shipped: {', '.join(known)})"
