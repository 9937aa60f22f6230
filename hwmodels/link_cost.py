"""The cost of collectives: a measured curve by message size, or closed forms of the fabric's figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels import collectives, tables
from hwmodels.basis import GB, US, Basis
from hwmodels.entry import Figure
from hwmodels.estimate import Bound, Estimate, Source, weakest
from hwmodels.stacks import AllReduceChoice
from hwmodels.work import AllGather, AllReduce, Exchange, LinkWork


class LinkCost:
    """Costs collectives. Waiting for the last rank is not in them: it comes out of the simulation."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._machine = basis.machine

    def estimate(self, work: LinkWork) -> Estimate:
        """The Estimate of *work*, when all its ranks have arrived."""
        if work.ranks == 1 or work.size_bytes == 0:
            return Estimate(
                seconds=0, spread=0, source=Source.MEASURED, bound=Bound.LINK, evidence="nothing to send"
            )
        if isinstance(work, AllGather):
            link = self._machine.interconnect
            seconds = collectives.ring_allgather(
                work.size_bytes, work.ranks, link.alpha_us.value * US, link.bandwidth_gb_s.value * GB
            )
            return self._formula(seconds, "ring AllGather")
        return self._exchange(work) if isinstance(work, Exchange) else self._allreduce(work)

    def _exchange(self, work: Exchange) -> Estimate:
        """A ring of the group's ranks, with the base latency of the library apart where it is known."""
        link = self._machine.interconnect
        base, hop = link.collective_base_us, link.collective_hop_us or link.alpha_us
        seconds = collectives.ring_exchange(
            work.size_bytes,
            work.ranks,
            0.0 if base is None else base.value * US,
            hop.value * US,
            link.bandwidth_gb_s.value * GB,
        )
        name = f"ring {work.pattern.value} of {work.ranks}"
        return self._formula(seconds, name, hop if base is None else base, hop)

    def _formula(self, seconds: float, name: str, *latencies: Figure) -> Estimate:
        """A closed form: no better than the weakest of its figures, of which *latencies* beside bandwidth."""
        link = self._machine.interconnect
        figures = (link.bandwidth_gb_s, *(latencies or (link.alpha_us,)))
        return Estimate(
            seconds=seconds,
            spread=max(figure.spread for figure in figures),
            source=weakest(Source.SCALED, *(figure.source for figure in figures)),
            bound=Bound.LINK,
            evidence=f"{name} on {link.name}",
        )

    def _allreduce(self, work: AllReduce) -> Estimate:
        """Table by message bytes; beyond it the ring's bandwidth term; without it the ring."""
        link, choice = self._machine.interconnect, self._allreduce_choice()
        bandwidth = link.bandwidth_gb_s.value * GB
        curve = None if choice is None else self._curve(choice, work)
        if choice is None or curve is None:
            seconds = collectives.ring_allreduce(
                work.size_bytes, work.ranks, link.alpha_us.value * US, bandwidth
            )
            return self._formula(seconds, "ring AllReduce")
        cutoff, measured_sizes = choice.cutoff_bytes(work.ranks), curve.size_bytes
        if cutoff is not None:
            curve = curve.on_side_of(cutoff, work.size_bytes)
        beyond = max(0.0, work.size_bytes - curve.size_bytes[-1])
        extra = collectives.ring_allreduce(beyond, work.ranks, 0.0, bandwidth)
        inside = _between_rows(work.size_bytes, measured_sizes, cutoff)
        here = curve.measured_on == self._machine.gpu.measured_as
        framework = choice.framework or self._machine.stack.framework
        return Estimate(
            seconds=curve(work.size_bytes) * US + extra,
            spread=link.bandwidth_gb_s.spread if extra else 0.0,
            source=self._basis.carried(Source.MEASURED if inside and here else Source.SCALED, framework),
            bound=Bound.LINK,
            evidence=curve.name,
        )

    def _curve(self, choice: AllReduceChoice, work: AllReduce) -> tables.Curve | None:
        gpu, fabric = self._machine.gpu.measured_as, self._machine.interconnect.fabric
        return tables.allreduce(fabric, gpu, work.ranks, self._algorithm(choice, work))

    def _algorithm(self, choice: AllReduceChoice, work: AllReduce) -> str:
        """The algorithm for this message, of those the stack has on this fabric."""
        limit = self._machine.interconnect.small_message_algorithm_max_bytes.value
        if choice.small is not None and work.size_bytes <= limit:
            return choice.small
        return choice.large

    def _allreduce_choice(self) -> AllReduceChoice | None:
        """What the stack uses on this fabric; None where it does not say."""
        fabric = self._machine.interconnect.fabric
        return next((c for c in self._machine.stack.allreduce if fabric in c.fabrics), None)


def _between_rows(size_bytes: float, rows: NDArray[np.float64], cutoff: int | None) -> bool:
    """True where *size_bytes* lies between two measured sizes, both on its side of the *cutoff*."""
    if cutoff is not None:
        own = rows >= cutoff if size_bytes >= cutoff else rows < cutoff
        rows = rows[own]
    return len(rows) > 0 and bool(rows[0] <= size_bytes <= rows[-1])
