"""The cost of the host side of a step: launches, copies and Python, each a figure of host or stack."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from hwmodels.basis import GB, US, from_figure
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound, Estimate, weakest
from hwmodels.machine import Machine
from hwmodels.work import Copy, EagerLaunch, GraphLaunch, HostTask, HostWork, LooseLaunch


class HostCost:
    """Costs what the CPU of *machine* does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def estimate(self, work: Copy | HostWork | GraphLaunch | EagerLaunch | LooseLaunch) -> Estimate:
        """The Estimate of *work*; HardwareError where the stack lacks its figure."""
        host, dispatch = self._machine.host, self._machine.stack.dispatch
        match work:
            case Copy(size_bytes, _):
                extra = size_bytes / (host.pcie_gb_s.value * GB)
                return from_figure(dispatch.copy_latency_us, Bound.HOST, "copy latency", extra)
            case GraphLaunch(nodes):
                per_node = dispatch.graph_launch_us_per_node
                extra = dispatch.graph_launch_fixed_us.value * US
                return from_figure(per_node, Bound.HOST, "graph launch", extra, nodes)
            case LooseLaunch(kernels):
                return from_figure(dispatch.loose_launch_us, Bound.HOST, "loose launch", 0.0, kernels)
            case EagerLaunch(kernels, collective):
                each = dispatch.eager_collective_launch_us if collective else dispatch.eager_launch_us
                return from_figure(each, Bound.HOST, "eager launch", 0.0, kernels)
            case HostWork():
                return self._task(work)
            case _:
                assert_never(work)

    def _scheduling(self, requests: int) -> Estimate:
        """The stack's figure for one request, and the one for every further."""
        first, more = self._machine.stack.dispatch.schedule_us, self._machine.stack.dispatch.request_us
        alone = from_figure(first, Bound.HOST, "scheduling")
        if requests == 1:
            return alone
        source = weakest(first.source, more.source)
        return replace(alone, seconds=alone.seconds + more.value * (requests - 1) * US, source=source)

    def _task(self, work: HostWork) -> Estimate:
        host, dispatch = self._machine.host, self._machine.stack.dispatch
        match work.task:
            case HostTask.SCHEDULE:
                return self._scheduling(work.items)
            case HostTask.TREE_DISPATCH:
                return from_figure(dispatch.tree_dispatch_us, Bound.HOST, "tree dispatch")
            case HostTask.SYNCHRONISE:
                return from_figure(dispatch.synchronise_us, Bound.HOST, "synchronisation")
            case HostTask.HAND_OVER:
                exposed = self._machine.stack.overlap.exposed_us
                if exposed is None:
                    raise HardwareError(self._machine.stack.name, "lacks exposed_us")
                return from_figure(exposed, Bound.HOST, "between two steps")
            case HostTask.TREE_BUILD:
                extra = dispatch.tree_fixed_us.value * US
                return from_figure(
                    host.heap_us_per_operation, Bound.HOST, "best-first heap", extra, work.items
                )
            case HostTask.TREE_MASK:
                return from_figure(host.mask_us_per_node, Bound.HOST, "ancestor mask", times=work.items)
            case HostTask.DRAFT_PASS:
                return from_figure(
                    self._machine.stack.drafting.pass_us, Bound.HOST, "draft pass", times=work.items
                )
            case _:
                assert_never(work.task)
