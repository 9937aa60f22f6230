"""Imports run one way: cuda -> hwmodels <- sim."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from sim import digests

ROOT = Path(__file__).parents[1]
ALLOWED = {"sim": {"sim", "hwmodels"}, "hwmodels": {"hwmodels"}, "cuda": {"cuda", "hwmodels"}}
FILES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def modules(path: Path) -> set[str]:
    """Every module that *path* imports, or imports something from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imported(path: Path) -> set[str]:
    return {module.split(".")[0] for module in modules(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert imported(path) & ALLOWED.keys() <= ALLOWED[package]


@pytest.mark.parametrize("package", sorted(digests.BESIDE))
def test_no_simulation_uses_what_leaves_stored_results_valid(package: str) -> None:
    users = {path for path in FILES if any(m.startswith(f"sim.{package}") for m in modules(path))}
    assert users
    assert all(path.relative_to(ROOT / "sim").parts[0] in {*digests.BESIDE, "cli"} for path in users)


def test_every_package_has_files() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"sim", "hwmodels"}


def test_an_installed_package_has_every_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("sim/**/__init__.py")}
    assert there <= listed
    # The others are data, from folders beside.
    assert listed - there == {"sim.scenarios", "sim.cases", "hwmodels"}


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
        if path.parent.name != "cli" and path != ROOT / "cuda" / "cli.py":
            assert "print" not in names, path
            assert not exits, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_mapping_says_the_same_key_twice(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys = [ast.dump(key) for key in node.keys if key is not None]
            assert len(set(keys)) == len(keys), f"{path}:{node.lineno}"
