"""Posteriors as files: a Parquet table with a column for each unknown and a row for each draw."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from hwmodels.documents import Strict
from sim import files
from sim.errors import ScenarioError
from sim.uncertainty.posterior import Discrepancy, Observation, Posterior, Stored, SystemKind

NAME = "posterior.parquet"
"""In the folder of a calibration."""
FORMAT_VERSION = 1
"""1 (2026-12): first."""
TABLES = "tables_sha256"
"""In the provenance."""
ABOUT = b"specdec-sim calibration"
"""Of the metadata that say what the table is."""

Sd = Annotated[float, Field(ge=0, le=2)]
"""Of a logarithm: nothing is off by more than a factor of fifty."""


class _About(Strict):
    """What a file says of its draws."""

    format_version: int
    discrepancies: tuple[tuple[SystemKind, tuple[Sd, Sd]], ...]
    observations: tuple[Observation, ...]
    effective_sample_size: Annotated[float, Field(ge=1)]
    provenance: dict[str, str]


def located(name: str) -> Path:
    """The file that *name* means: itself, or the one of a calibration's folder."""
    path = Path(name)
    return path / NAME if path.is_dir() else path


def write(posterior: Posterior, path: Path, provenance: dict[str, str]) -> None:
    """Put *posterior* at *path* in one move."""
    about = {
        "format_version": FORMAT_VERSION,
        "discrepancies": [[kind, discrepancy] for kind, discrepancy in posterior.discrepancies.items()],
        "observations": posterior.observations,
        "effective_sample_size": posterior.effective_sample_size,
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
        said = json.loads((table.schema.metadata or {})[ABOUT])
        version = said["format_version"]
        if version == FORMAT_VERSION:
            about = _About.model_validate_json(json.dumps(said), strict=False)
            quantiles = np.array([column.to_numpy() for column in table.columns], dtype=float).T
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise _error(path, "not a posterior as the command calibrate writes it") from None
    if version != FORMAT_VERSION:
        raise _error(path, f"has format {version}, this program reads {FORMAT_VERSION}; calibrate again")
    if not len(table) or not ((quantiles >= 0) & (quantiles <= 1)).all():
        raise _error(path, "holds draws that are no quantiles")
    return Posterior(
        identities=tuple(table.column_names),
        quantiles=quantiles,
        discrepancies={kind: Discrepancy(*sds) for kind, sds in about.discrepancies},
        observations=about.observations,
        effective_sample_size=about.effective_sample_size,
        stored=Stored(
            file=str(path),
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            tables_sha256=about.provenance.get(TABLES, ""),
        ),
    )


def _error(path: Path, problem: str) -> ScenarioError:
    return ScenarioError(str(path), 0, "calibration", problem)
