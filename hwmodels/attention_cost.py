"""The cost of attention: tables of one query per request, carried to a tree of queries.

A kernel says itself how its time grows with the queries of one request (``QueryScaling``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from hwmodels import lookup, roofline, tables
from hwmodels.basis import GB, US, Basis
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound, Estimate, Source
from hwmodels.stacks import AttentionKernel, QueryScaling
from hwmodels.work import GqaAttention, MlaAttention


class AttentionCost:
    """Costs latent and grouped-query attention."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._machine = basis.machine

    def latent(self, work: MlaAttention) -> Estimate:
        """One-query table over (batch, context), scaled to a tree's queries as the kernel does."""
        found = self._latent_table(work)
        if found is None:
            return self._basis.streamed(work, self._machine.stack.dispatch.attention_kernels.value)
        kernel, grid = found.kernel, found.grid
        served = work.requests * (work.queries if kernel.query_scaling is QueryScaling.AS_BATCH else 1)
        covered = grid.covers(served, work.seen) and found.caveat is None
        tabled = covered and kernel.serial_us_per_1k_context is None
        exact = work.queries == 1 and _breaks(work) == 0 and tabled
        seconds = found.passes * self._latent_pass(kernel, grid, served, work)
        seconds += self._query_seconds(kernel, work) + self._fragmentation_seconds(work, served)
        source = Source.MEASURED if exact else self._scaled_attention(kernel, work)
        reread = kernel.reread_gb_s.spread if kernel.reread_gb_s and work.queries > 1 else 0.0
        serial = kernel.serial_us_per_1k_context.spread if kernel.serial_us_per_1k_context else 0.0
        return Estimate(
            seconds=max(seconds, self._basis.floor_seconds(work)),
            spread=max(grid.smoothing, reread, serial),
            source=self._basis.carried(source, grid.framework),
            bound=Bound.MEMORY,
            evidence=f"{found.evidence}, {_how(kernel)}",
        )

    def _latent_table(self, work: MlaAttention) -> lookup.FoundGrid | None:
        """The stack's table; before one that needs a caveat, what the database has."""
        stack = self._machine.stack
        found = lookup.latent_attention(self._machine.gpu.measured_as, stack.attention, work)
        if self._basis.database is None or (found is not None and found.caveat is None):
            return found
        return (
            lookup.latent_of(self._basis.database, stack.framework, found.kernel if found else None, work)
            or found
        )

    def _scaled_attention(self, kernel: AttentionKernel, work: MlaAttention) -> Source:
        """What a figure beyond the table rests on: the weakest of the rules it needs."""
        if _breaks(work):
            return self._machine.gpu.kv_run_overhead_bytes.source
        if work.queries == 1 and kernel.serial_us_per_1k_context is not None:
            return kernel.serial_us_per_1k_context.source
        return kernel.scaling_source if work.queries > 1 else Source.SCALED

    def grouped(self, work: GqaAttention) -> Estimate:
        """One-query table of this shape; else the longest of smaller shapes; else the roofline.

        The queries of one request share a pass over the cache as long as they fill one tile;
        what lies beyond reads it again, in part where a tile is not full.
        """
        streamed = self._basis.streamed(work, self._machine.stack.dispatch.attention_kernels.value)
        candidates = self._grouped_tables(work)
        if not candidates:
            return streamed
        timed = [(self._grouped_pass(found, shape, work), found) for found, shape in candidates]
        seconds, found = max(timed, key=lambda pair: pair[0])
        again = work.queries * work.heads / (work.kv_heads * found.kernel.tile_rows) - 1
        seconds += max(0.0, again) * roofline.demand(work).bytes / self._basis.achieved_bytes_s
        if found.caveat is not None and streamed.seconds > seconds:
            return replace(streamed, evidence=f"{streamed.evidence}, not below {found.evidence}")
        exact = work.queries == 1 and found.caveat is None and found.grid.covers(work.requests, work.seen)
        source = found.kernel.scaling_source if work.queries > 1 else Source.SCALED
        return Estimate(
            seconds=max(seconds, self._basis.floor_seconds(work)),
            spread=found.grid.smoothing,
            source=self._basis.carried(Source.MEASURED if exact else source, found.grid.framework),
            bound=streamed.bound,
            evidence=f"{found.evidence}, {_how(found.kernel)}",
        )

    def _grouped_tables(self, work: GqaAttention) -> list[tuple[lookup.FoundGrid, tables.HeadShape]]:
        """The stack's table of this shape; else the database's; else those of smaller shapes."""
        stack = self._machine.stack
        found = lookup.grouped_attention(self._machine.gpu.measured_as, stack.grouped_attention, work)
        if self._basis.database is None or (found and found[0][0].caveat is None):
            return found
        kernel = found[0][0].kernel if found else None
        more = lookup.grouped_of(self._basis.database, stack.framework, kernel, work)
        shape = tables.HeadShape(work.heads, work.kv_heads, work.head_dim)
        return found if more is None else [(more, shape)]

    def _grouped_pass(self, found: lookup.FoundGrid, shape: tables.HeadShape, work: GqaAttention) -> float:
        """Seconds of one query per request, by the table of *shape*."""
        token_bytes = 2 * roofline.cached_token_bytes(shape.kv_heads * shape.head_dim, work.dtype)
        return self._one_pass(found.grid, work.requests, work.seen, token_bytes)

    def _latent_pass(
        self, kernel: AttentionKernel, grid: tables.Grid, served: int, work: MlaAttention
    ) -> float:
        """One query per request: the table, or its shortest context and the kernel's own growth."""
        serial = kernel.serial_us_per_1k_context
        if serial is None:
            return self._one_pass(grid, served, work.seen, _token_bytes(work))
        streamed = served * work.seen * _token_bytes(work) / self._basis.achieved_bytes_s
        return self._one_pass(grid, served, 0, 0.0) + serial.value * US * work.seen / 1000 + streamed

    def _one_pass(self, grid: tables.Grid, served: int, seen: int, token_bytes: float) -> float:
        """Table time, plus DRAM time of what lies beyond the table."""
        batch, context = grid.clamp(served, seen)
        beyond = max(0.0, served * seen - batch * context) * token_bytes
        return self._basis.seconds_here(grid(served, seen)) + beyond / self._basis.achieved_bytes_s

    def _query_seconds(self, kernel: AttentionKernel, work: MlaAttention) -> float:
        cache_bytes = work.requests * work.seen * _token_bytes(work)
        match kernel.query_scaling:
            case QueryScaling.AS_BATCH:
                return 0.0
            case QueryScaling.SHARED:
                tiles = -(-work.heads * work.queries // kernel.tile_rows)
                return (tiles - 1) * cache_bytes / self._basis.achieved_bytes_s
            case QueryScaling.REREAD:
                if kernel.reread_gb_s is None:
                    raise HardwareError(self._machine.stack.name, f"{kernel.kernel} lacks reread_gb_s")
                return (work.queries - 1) * cache_bytes / (kernel.reread_gb_s.value * GB)
            case _:
                assert_never(kernel.query_scaling)

    def _fragmentation_seconds(self, work: MlaAttention, served: int) -> float:
        lost = self._machine.gpu.kv_run_overhead_bytes.value * _breaks(work) * served
        return lost / self._basis.achieved_bytes_s


def _breaks(work: MlaAttention) -> int:
    """Breaks between contiguous runs in one request's cache."""
    return max(0, -(-work.seen // work.run_tokens) - 1)


def _how(kernel: AttentionKernel) -> str:
    """How *kernel* scales with queries, in words."""
    return f"{kernel.query_scaling.value} queries ({kernel.scaling_ref.strip()})"


def _token_bytes(work: MlaAttention) -> float:
    return roofline.cached_token_bytes(work.latent, work.dtype)
