"""The cost of routed experts: a line in the experts touched, of this very kernel or carried from another."""

from __future__ import annotations

from dataclasses import replace

from hwmodels import lookup, tables
from hwmodels.basis import Basis
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound, Estimate, Source, weakest
from hwmodels.stacks import ExpertKernel
from hwmodels.work import DType, GroupedExperts


class ExpertCost:
    """Costs layers of routed experts, and knows which kernel runs them."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._machine = basis.machine

    def estimate(self, work: GroupedExperts) -> Estimate:
        """``a + b * U`` of this shape, in another build or the database; other shapes; the roofline."""
        lines = self._lines(work.dtype)
        own = lookup.own_line(lines, work)
        if own is not None:
            return self._on_line(own, self.kernel(work.dtype).framework, work)
        other = lookup.own_line(self._other_builds(work.dtype), work) if lines else None
        if other is not None:
            found = self._on_line(other, self.kernel(work.dtype).framework, work)
            return replace(found, source=weakest(found.source, Source.SCALED))
        more = lookup.experts_of(self._basis.database, self._machine.stack.framework, work)
        if more is not None:
            return self._on_line(*more, work)
        if not lines:
            return self._basis.streamed(work, self._machine.stack.dispatch.expert_kernels.value)
        values = lookup.expert_shape(work).values
        measured = tables.scaled_experts(lines, values, work.touched, work.tokens)
        return Estimate(
            seconds=max(self._basis.seconds_here(measured), self._basis.floor_seconds(work)),
            spread=max(line.fit.max_relative_error for line in lines),
            source=self._basis.carried(Source.SCALED, self.kernel(work.dtype).framework),
            bound=Bound.MEMORY,
            evidence=f"by bytes of an expert, from {len(lines)} other shapes such as {lines[-1].name}",
        )

    def _other_builds(self, dtype: DType) -> tuple[tables.ExpertsLine, ...]:
        """Lines of the stack's kernel for *dtype* in other versions and engines."""
        gpu, kernel = self._machine.gpu.measured_as, self.kernel(dtype)
        return tables.expert_lines_of_other_builds(gpu, kernel, dtype)

    def _on_line(self, line: tables.ExpertsLine, framework: str, work: GroupedExperts) -> Estimate:
        how = f"{line.fit.intercept:.1f} + {line.fit.slope:.3f} U us"
        if line.least(work.touched) > line.fit(work.touched):
            how = "rows of few tokens (a lower bound, above the fit)"
        measured = self._basis.seconds_here(line(work.touched, work.tokens))
        return Estimate(
            seconds=max(measured, self._basis.floor_seconds(work)),
            spread=line.fit.max_relative_error,
            source=self._basis.carried(Source.FITTED, framework),
            bound=Bound.MEMORY,
            evidence=f"{how}, {line.name}",
        )

    def _lines(self, dtype: DType) -> tuple[tables.ExpertsLine, ...]:
        """Lines of the stack's kernel for *dtype* on this GPU; none where it has no such kernel.

        HardwareError where a kernel was asked for by name and is not known.
        """
        if self._machine.expert_kernel is None and not self._kernels(dtype):
            return ()
        return tables.expert_lines(self._machine.gpu.measured_as, self.kernel(dtype), dtype)

    def fills_gpu(self, dtype: DType) -> bool:
        """True where nothing can run beside the stack's expert kernel for *dtype*."""
        return bool(self._kernels(dtype)) and self.kernel(dtype).fills_gpu

    def _kernels(self, dtype: DType) -> list[ExpertKernel]:
        machine = self._machine
        return [k for k in machine.stack.experts if k.dtype is dtype and machine.gpu.measured_as in k.gpus]

    def kernel(self, dtype: DType) -> ExpertKernel:
        """The kernel this stack runs for experts of *dtype* on this GPU."""
        machine = self._machine
        known = self._kernels(dtype)
        wanted = machine.expert_kernel
        for kernel in known:
            if wanted is None or kernel.kernel == wanted:
                return kernel
        have = ", ".join(k.kernel for k in known) or "none"
        ask = f" named '{wanted}'" if wanted else ""
        raise HardwareError(
            f"{machine.stack.name} on {machine.gpu.name}",
            f"no {dtype.value} expert kernel{ask} (known: {have})",
        )
