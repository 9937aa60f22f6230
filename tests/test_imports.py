"""Imports run one way: cuda -> hwmodels <- sim."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {"sim": {"sim", "hwmodels"}, "hwmodels": {"hwmodels"}, "cuda": {"cuda", "hwmodels"}}
FILES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert imported(path) & ALLOWED.keys() <= ALLOWED[package]


def test_every_package_has_files() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"sim", "hwmodels"}


def test_cuda_stays_a_namespace() -> None:
    assert not (ROOT / "cuda" / "__init__.py").exists()


def test_no_simulation_needs_pycuda() -> None:
    """Nor does reading what was measured: only ``cuda/`` drives GPUs."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != "cuda":
            assert "pycuda" not in imported(path), path
            assert "pycuda" not in path.read_text(encoding="utf-8"), path


def test_only_the_command_line_prints_or_exits() -> None:
    for path in FILES:
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {f.id for f in calls if isinstance(f, ast.Name)}
        exits = {f.attr for f in calls if isinstance(f, ast.Attribute) and f.attr in ("exit", "_exit")}
        if path.name != "cli.py":
            assert "print" not in names, path
            assert not exits, path
