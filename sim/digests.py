"""Hashes of what results depend on beside their scenario: figures, code, libraries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from hwmodels import catalog
from sim import __version__

PRESENTATION = frozenset(
    {
        "listing.py",
        "pictures.py",
        "sweeps/pictures.py",
        "sweeps/report.py",
        "timeline.py",
        "waterfall.py",
    }
)
"""Sources that show numbers and make none: changing them leaves stored results valid."""
SHOWING = frozenset({"cli", "report"})
"""Packages of such sources, which others use too."""
BESIDE = frozenset(
    {"calibration", "comparison", "hardware", "html", "levers", "logs", "tracing", "trees", "validation"}
)
"""Packages that no simulation uses."""
LIBRARIES = ("numba", "numpy", "scipy", "simpy")
"""Libraries whose versions may change numbers in the last digit, or all of them."""


def tables() -> str:
    """SHA-256 over the catalog and the measured tables."""
    return _of_files(catalog.DATA, catalog.DATA.rglob("*"))


def provenance() -> dict[str, str]:
    """What a result was made with."""
    return {"specdec_sim": __version__, "tables_sha256": tables()}


@cache
def code() -> str:
    """SHA-256 over the simulator's sources and figures and the libraries it computes with."""
    package = Path(__file__).parent
    parts = [
        _of_files(package, [path for path in package.rglob("*.py") if _counts(path.relative_to(package))])
    ]
    parts += [_of_files(catalog.DATA.parent, catalog.DATA.parent.rglob("*.py")), tables()]
    parts += [f"{name} {version(name)}" for name in LIBRARIES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _counts(source: Path) -> bool:
    """Whether the simulator's *source*, a path inside the package, can change a number."""
    return source.as_posix() not in PRESENTATION and source.parts[0] not in SHOWING | BESIDE


def _of_files(root: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in paths if p.is_file()):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
