"""The levers: what each acts on, and what it means that one is better.

A *time* that is 10 % better is 10 % shorter, a *rate* that is 10 % better is 10 % higher; free is no
time, an infinite rate. Levers on the work of a step may overlap - AllReduces of the drafter belong to
the link and to the draft forward - so their effects do not add up, nor do they need to.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.work import AllReduce, Copy, EagerLaunch, GraphLaunch, HostWork
from sim.graph import Component
from sim.pieces import Label
from sim.setup import Setup

Array = NDArray[np.float64]
SMALLEST_MESSAGE_BYTES = 1
WORSE = 1.5
"""Times as long, for the other side of a tornado: a time 50 % longer, a rate divided by this."""


class Degree(Enum):
    """How much better something is."""

    TENTH = 0.1
    HALF = 0.5
    FREE = 1.0

    @property
    def title(self) -> str:
        """In words."""
        return "free" if self is Degree.FREE else f"{self.value:.0%} better".replace("%", " %")


class Group(Enum):
    """What levers have in common."""

    WORK = "part of the step"
    TOGETHER = "parts of the step together"
    PARAMETER = "parameter"


class Lever(Enum):
    """Something that could be better."""

    EXPERTS = "expert GEMM"
    ATTENTION = "attention"
    DENSE = "dense GEMMs"
    LM_HEAD = "LM head and logits"
    SMALL_KERNELS = "small kernels, KV compaction"
    ALLREDUCE_LATENCY = "AllReduce latency"
    ALLREDUCE_BANDWIDTH = "AllReduce bandwidth"
    DRAFTER = "draft forward"
    TREE = "tree build and top-k"
    DISPATCH = "dispatch and scheduling"
    GRAPH_LAUNCH = "graph launch"
    EAGER_LAUNCH = "launches one by one"
    SYNC = "synchronisation and copies"
    PREFILL = "prefill of requests that join"
    HOST = "all host work"
    DEVICES = "all GPU and link work"
    REST = "all but the experts"
    HBM_BANDWIDTH = "HBM bandwidth"
    ARRIVAL_SKEW = "arrival skew of ranks"
    ACCEPTANCE = "acceptance length"

    @property
    def group(self) -> Group:
        """The kind of lever it is."""
        if self in (Lever.HBM_BANDWIDTH, Lever.ARRIVAL_SKEW, Lever.ACCEPTANCE):
            return Group.PARAMETER
        together = self in (Lever.HOST, Lever.DEVICES, Lever.REST)
        return Group.TOGETHER if together else Group.WORK

    @property
    def is_rate(self) -> bool:
        """True where better is higher."""
        return self in (Lever.ALLREDUCE_BANDWIDTH, Lever.HBM_BANDWIDTH)

    def kept(self, degree: Degree) -> float:
        """What is left of the time that it acts on."""
        if degree is Degree.FREE:
            return 0.0
        better: float = degree.value
        return 1 / (1 + better) if self.is_rate else 1 - better


ON_WORK = tuple(lever for lever in Lever if lever.group is not Group.PARAMETER)
"""Levers that act on a share of the time of each piece of work."""

_BY_COMPONENT = {
    Component.EXPERTS: Lever.EXPERTS,
    Component.ATTENTION: Lever.ATTENTION,
    Component.DENSE: Lever.DENSE,
    Component.LM_HEAD: Lever.LM_HEAD,
    Component.SMALL_KERNELS: Lever.SMALL_KERNELS,
    Component.ACCEPTANCE: Lever.SMALL_KERNELS,
    Component.DRAFTER: Lever.DRAFTER,
    Component.TREE: Lever.TREE,
    Component.COPIES: Lever.SYNC,
    Component.SCHEDULING: Lever.DISPATCH,
    Component.PREFILL: Lever.PREFILL,
}


class TransferTime(NamedTuple):
    """An AllReduce's time in two parts."""

    latency_s: float
    """What the smallest message takes on the same GPUs; it does not grow with bytes."""
    bytes_s: float
    """The rest."""


def split_transfer(setup: Setup, work: AllReduce) -> TransferTime:
    """*work*'s mean time, split by what the same AllReduce takes with next to no bytes."""
    whole = setup.costs.estimate(work).seconds
    smallest = setup.costs.estimate(AllReduce(min(SMALLEST_MESSAGE_BYTES, work.size_bytes), work.ranks))
    latency = min(whole, smallest.seconds)
    return TransferTime(latency, whole - latency)


def acts_on(setup: Setup, labels: tuple[Label, ...]) -> dict[Lever, Array]:
    """For each lever on work the share (labels,) of each label's time that it acts on.

    Levers that find nothing in the step are left out, as is all but the experts of a model without any.
    """
    shares = {lever: np.zeros(len(labels)) for lever in ON_WORK}
    for at, label in enumerate(labels):
        for lever, share in _shares(setup, label).items():
            shares[lever][at] = share
    if not shares[Lever.EXPERTS].any():
        del shares[Lever.REST]
    return {lever: found for lever, found in shares.items() if found.any()}


def _shares(setup: Setup, label: Label) -> dict[Lever, float]:
    own = _own(label)
    found: dict[Lever, float] = {} if own is None else {own: 1.0}
    if isinstance(label.work, AllReduce):
        found |= _transfer_shares(setup, label.work)
    found[Lever.HOST if is_on_host(label) else Lever.DEVICES] = 1.0
    if label.component is not Component.EXPERTS:
        found[Lever.REST] = 1.0
    return found


def _own(label: Label) -> Lever | None:
    """The lever of a label's component; None for AllReduces between layers, which have two."""
    if label.component is Component.LAUNCH:
        match label.work:
            case GraphLaunch():
                return Lever.GRAPH_LAUNCH
            case EagerLaunch():
                return Lever.EAGER_LAUNCH
            case _:
                return Lever.DISPATCH
    return _BY_COMPONENT.get(label.component)


def _transfer_shares(setup: Setup, work: AllReduce) -> dict[Lever, float]:
    parts = split_transfer(setup, work)
    whole = parts.latency_s + parts.bytes_s
    if not whole:
        return {}
    latency = parts.latency_s / whole
    return {Lever.ALLREDUCE_LATENCY: latency, Lever.ALLREDUCE_BANDWIDTH: 1 - latency}


def is_on_host(label: Label) -> bool:
    """True for what the host does or waits for: Python, trees, launches, copies."""
    return isinstance(label.work, HostWork | GraphLaunch | EagerLaunch | Copy)
