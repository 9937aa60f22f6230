"""Small files of published cases: two systems, quick to predict."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.validation.cases import COLUMNS, Case, read

PLAIN: dict[str, str] = {
    "id": "P1",
    "model": "Qwen3-8B",
    "method": "none (baseline)",
    "gpu": "B200",
    "n_gpu": "1",
    "interconnect": "none",
    "parallelism": "TP1",
    "quantisation": "BF16",
    "engine": "SGLang",
    "concurrency": "1",
    "context_tokens": "1k in/1k out",
    "workload": "chat",
    "acceptance_length": "1.0",
    "tok_s_total": "230",
    "source": "a test",
}
DRAFTED = PLAIN | {
    "id": "D1",
    "drafter": "z-lab DFlash",
    "method": "DFlash chain",
    "block_size": "16",
    "verify_M_per_req": "16",
    "acceptance_length": "8.01",
    "acceptance_length_origin": "reported",
    "tok_s_total": "1175",
    "baseline_tok_s_total": "231",
}
OTHER = PLAIN | {"id": "O1", "gpu": "h100_sxm", "tok_s_total": "150"}
ROWS = (PLAIN, DRAFTED, OTHER)


def text(rows: Sequence[Mapping[str, str]], columns: Sequence[str] = COLUMNS) -> str:
    """*rows* as CSV; what a row does not say is blank."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def cases(folder: Path, rows: Sequence[Mapping[str, str]]) -> tuple[Case, ...]:
    """*rows* written into *folder* and read."""
    path = folder / "cases.csv"
    path.write_text(text(rows), encoding="utf-8")
    return read(path)
