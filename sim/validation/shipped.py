"""The cases that come with the simulator, and what is known of how far it is off on them."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """Where they are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "cases"
    return installed if installed.is_dir() else package.parent / "validation"


def cases() -> Path:
    """Published measurements."""
    return folder() / "cases.csv"


def fits() -> Path:
    """Which host costs of which stack are fitted to which of them."""
    return folder() / "fits.yaml"


def residuals() -> Path:
    """How far their predictions are off; ``python -m sim validate --residuals`` writes it."""
    return folder() / "residuals.csv"
