"""Posteriors as files: a Parquet table with a column for each unknown and a row for each draw."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hwmodels.documents import Strict
from sim import files
from sim.errors import ScenarioError
from sim.uncertainty.posterior import Lack, Observation, Posterior, Sort

NAME = "posterior.parquet"
"""In the folder of a calibration."""
FORMAT_VERSION = 1
"""1 (2026-12): first."""
ABOUT = b"specdec-sim calibration"
"""Of the metadata that say what the table is."""


class _About(Strict):
    """What a file says of its draws."""

    version: int
    lacks: tuple[tuple[Sort, Lack], ...]
    observations: tuple[Observation, ...]
    effective: float
    provenance: dict[str, Any]


def located(name: str) -> Path:
    """The file that *name* means: itself, or the one of a calibration's folder."""
    path = Path(name)
    return path / NAME if path.is_dir() else path


def write(posterior: Posterior, path: Path, provenance: dict[str, Any]) -> None:
    """Put *posterior* at *path* in one move."""
    about = {
        "version": FORMAT_VERSION,
        "lacks": [[sort, lack] for sort, lack in posterior.lacks.items()],
        "observations": posterior.observations,
        "effective": posterior.effective,
        "provenance": provenance,
    }
    columns = dict(zip(posterior.identities, posterior.quantiles.T, strict=True))
    table = pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about)})
    with files.replacing(path) as temporary:
        pq.write_table(table, temporary)


def read(name: str) -> Posterior:
    """The posterior called *name*, a file or a calibration's folder; ScenarioError where it is none."""
    path = located(name)
    if not path.is_file():
        raise _error(path, "no such file, nor the folder of a calibration (made by the command calibrate)")
    try:
        table = pq.read_table(path)
        about = _About.model_validate_json((table.schema.metadata or {})[ABOUT], strict=False)
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise _error(path, "not a posterior as the command calibrate writes it") from None
    if about.version != FORMAT_VERSION:
        raise _error(
            path, f"has format {about.version}, this program reads {FORMAT_VERSION}; calibrate again"
        )
    quantiles = np.array([column.to_numpy() for column in table.columns], dtype=float).T
    if not len(table) or not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise _error(path, "holds draws that are no quantiles")
    return Posterior(
        file=str(path),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        identities=tuple(table.column_names),
        quantiles=quantiles,
        lacks=dict(about.lacks),
        observations=about.observations,
        effective=about.effective,
    )


def _error(path: Path, problem: str) -> ScenarioError:
    return ScenarioError(str(path), 0, "calibration", problem)
