"""NVIDIA AIConfigurator's measured tables, read where its package is installed (extra ``perfdb``).

The shipped tables hold the shapes of known models. A GPU whose file names a system of
the package (``perfdb: a100_sxm``) takes what they lack from there: other shapes, and GPUs
without tables of their own. Only the parquet files are read; the package is not imported.

A file of the package lies at ``<system>/<op>/<framework>/<version>/<name>.parquet`` and has
one latency in ms a row. The newest version that has the file is taken, and of several
kernels the one that is fastest over the sizes, as an engine would choose it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from hwmodels import tables
from hwmodels.errors import HardwareError
from hwmodels.tables import ExpertShape, ExpertsLine, Grid, HeadShape, Points
from hwmodels.work import DType

PACKAGE = "aiconfigurator_core"
FRAMEWORKS = ("sglang", "vllm", "trtllm")
"""Engines whose kernels the package has, in the order in which they are asked after the stack's own."""
LEAST_SIDE = 256
"""Weights with a shorter side are left out."""
LARGEST_M = 1024
"""More tokens than this are no decoding."""
GROUP_LIMITED = (256, 7168, 2048)
"""Experts, hidden and intermediate of DeepSeek-V3, whose grouped top-k touches fewer."""
UNEVEN = {("vllm", 512): (32, 48)}
"""Rows by engine and experts that touch fewer experts than balanced ones do, by their tokens."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Database:
    """The files of one system in *folder*."""

    folder: Path

    def gemm(self, framework: str, dtype: DType) -> Grid | None:
        """Dense GEMM latency over (n, k, m); None where nothing was measured."""
        return _gemm(self.folder, framework, dtype)

    def latent_attention(self, framework: str, heads: int, dtype: DType) -> Grid | None:
        """MLA decode latency over (batch, context) of *heads* per rank; None where nothing was measured."""
        return _latent_attention(self.folder, framework, heads, dtype)

    def grouped_attention(self, framework: str, shape: HeadShape, dtype: DType) -> Grid | None:
        """GQA decode latency over (batch, context); None where nothing was measured."""
        return _grouped_attention(self.folder, framework, shape, dtype)

    def experts(self, framework: str, dtype: DType, shape: ExpertShape) -> ExpertsLine | None:
        """The line of exactly *shape*; None where nothing was measured."""
        return _experts(self.folder, framework, dtype, shape)


def installed() -> Path | None:
    """The folder with a folder for every system; None where the package is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "systems" / "data"


def database(system: str | None) -> Database | None:
    """The files of *system*; None where none is asked for or the package is not installed.

    HardwareError where the package does not know *system*.
    """
    folder = installed()
    if system is None or folder is None:
        return None
    if not (folder / system).is_dir():
        known = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        raise HardwareError(system, f"{PACKAGE} has no such system (known: {known})")
    return Database(folder / system)


def frameworks(own: str) -> list[str]:
    """The engines to ask, *own* first."""
    return [own, *(name for name in FRAMEWORKS if name != own)]


@cache
def _gemm(folder: Path, framework: str, dtype: DType) -> Grid | None:
    found = _rows(folder, "gemm", framework, "gemm_perf", gemm_dtype=dtype.value)
    tokens = _tokens_of_weights(found)
    every = set.intersection(*tokens.values()) if tokens else set()
    kept = [r for r in found if min(r["n"], r["k"]) >= LEAST_SIDE and r["m"] in every]
    return _fastest_grid(folder, framework, kept, ("n", "k", "m"))


def _tokens_of_weights(found: list[Row]) -> dict[tuple[int, int], set[int]]:
    """The tokens up to LARGEST_M that each weight of LEAST_SIDE or more was measured with."""
    tokens: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in found:
        if min(row["n"], row["k"]) >= LEAST_SIDE and row["m"] <= LARGEST_M:
            tokens[row["n"], row["k"]].add(row["m"])
    return tokens


@cache
def _latent_attention(folder: Path, framework: str, heads: int, dtype: DType) -> Grid | None:
    wanted = {"num_heads": heads, "kv_cache_dtype": dtype.value}
    found = _rows(folder, "mla", framework, "generation_mla_perf", **wanted)
    return _fastest_grid(folder, framework, _with_context(found), ("batch_size", "context"))


@cache
def _grouped_attention(folder: Path, framework: str, shape: HeadShape, dtype: DType) -> Grid | None:
    wanted = {
        "num_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "kv_cache_dtype": dtype.value,
        "window_size": 0,
    }
    found = _rows(folder, "attention", framework, "generation_attention_perf", **wanted)
    return _fastest_grid(folder, framework, _with_context(found), ("batch_size", "context"))


@cache
def _experts(folder: Path, framework: str, dtype: DType, shape: ExpertShape) -> ExpertsLine | None:
    found = _rows(
        folder,
        "moe",
        framework,
        "moe_perf",
        moe_dtype=dtype.value,
        hidden_size=shape.hidden,
        distribution="balanced",
    )
    kept = [row for row in found if _of_shape(row, shape) and _is_balanced(framework, row)]
    best = _fastest(_by_kernel(kept, ("num_tokens",)))
    if best is None:
        return None
    kernel, points = best
    means = {int(tokens): float(np.mean(us)) for (tokens,), us in sorted(points.items())}
    if len([tokens for tokens in means if tokens > tables.WARM_ROWS_MAX_TOKENS]) < tables.LEAST_ROWS:
        return None
    name = f"{PACKAGE} {folder.name} {framework} {kernel} {dtype.value}"
    return tables.experts_line(shape, means, name)


def _of_shape(row: Row, shape: ExpertShape) -> bool:
    """True where one rank of *row* has *shape*."""
    ranks, spread = row["moe_tp_size"], row["moe_ep_size"]
    if row["inter_size"] % ranks or row["num_experts"] % spread or row["topk"] % spread:
        return False
    on_a_rank = (row["num_experts"] // spread, row["hidden_size"], row["inter_size"] // ranks)
    return (*on_a_rank, row["topk"] // spread) == shape


def _is_balanced(framework: str, row: Row) -> bool:
    """True where every token of *row* touches top-k experts of its own."""
    grouped = (row["num_experts"], row["hidden_size"], row["inter_size"]) == GROUP_LIMITED
    uneven = row["num_tokens"] in UNEVEN.get((framework, row["num_experts"]), ())
    return not grouped and not uneven and "min_latency" not in row["kernel_source"]


def _with_context(found: list[Row]) -> list[Row]:
    """*found* with the cached tokens that the query sees, itself included."""
    return [row | {"context": row["isl"] + row["step"]} for row in found]


def _rows(folder: Path, op: str, framework: str, name: str, **wanted: Any) -> list[Row]:
    """The rows of the newest file *name* of *op* that have the *wanted* values."""
    files = sorted((folder / op / framework).glob(f"*/{name}.parquet"), key=_version)
    if not files:
        return []
    filters = [(column, "=", value) for column, value in wanted.items()]
    found: list[Row] = parquet.read_table(files[-1], filters=filters).to_pylist()
    return found


def _version(file: Path) -> tuple[int, ...]:
    """The numbers in a version such as 1.3.0rc20."""
    return tuple(int(number) for number in re.findall(r"\d+", file.parent.name))


def _by_kernel(found: list[Row], keys: tuple[str, ...]) -> dict[str, Points]:
    """us by the sizes *keys*, for each kernel."""
    points: dict[str, Points] = defaultdict(lambda: defaultdict(list))
    for row in found:
        points[row["kernel_source"]][tuple(float(row[key]) for key in keys)].append(1000 * row["latency"])
    return points


def _fastest(kernels: dict[str, Points]) -> tuple[str, Points] | None:
    """The kernel that takes least over the sizes all of them have; None where there is none."""
    if not kernels:
        return None
    shared = set.intersection(*(set(points) for points in kernels.values()))
    if not shared:
        return max(kernels.items(), key=lambda pair: len(pair[1]))
    return min(kernels.items(), key=lambda pair: sum(np.mean(pair[1][size]) for size in shared))


def _fastest_grid(folder: Path, framework: str, found: list[Row], keys: tuple[str, ...]) -> Grid | None:
    best = _fastest(_by_kernel(found, keys))
    if best is None:
        return None
    kernel, points = best
    name = f"{PACKAGE} {folder.name} {framework} {kernel}"
    return tables.extended_grid(name, _without_holes(points), framework)


def _without_holes(points: Points) -> Points:
    """*points* whose sizes but the last are every combination of some, each with the smallest last size."""
    rows: dict[tuple[float, ...], set[float]] = defaultdict(set)
    for *row, last in points:
        rows[tuple(row)].add(last)
    first = min(last for lasts in rows.values() for last in lasts)
    kept = _rectangle({row for row, lasts in rows.items() if first in lasts})
    return {size: us for size, us in points.items() if size[:-1] in kept}


def _rectangle(rows: set[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """What is left of *rows* when the size with the most gaps goes, until no combination is missing."""
    while True:
        axes = [{row[i] for row in rows} for i in range(len(next(iter(rows))))]
        combinations = int(np.prod([len(axis) for axis in axes]))
        if len(rows) == combinations:
            return rows
        shares = {
            (i, size): sum(row[i] == size for row in rows) * len(axis)
            for i, axis in enumerate(axes)
            for size in sorted(axis)
        }
        worst, gone = min(shares, key=lambda key: shares[key])
        rows = {row for row in rows if row[worst] != gone}
