"""A setup with drawn values put in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwmodels import catalog
from hwmodels.basis import measured_gpu
from hwmodels.catalog import Kind
from hwmodels.devices import Gpu
from hwmodels.machine import Machine
from hwmodels.models import TargetModel
from sim.setup import Setup, resolve
from sim.uncertainty.checks import drawn
from sim.uncertainty.keys import KINDS
from sim.uncertainty.parameters import entries


def with_figures(setup: Setup, values: Mapping[str, float]) -> Setup:
    """*setup* with figures of other *values*, by name (``gpu.achieved_bandwidth_gb_s``).

    They are what the true values may be, not what another machine has: a table that was measured on
    this GPU stays as it was measured.
    """
    if not values:
        return setup
    by_kind: dict[Kind, dict[str, float]] = {}
    for name, value in values.items():
        short, _, key = name.partition(".")
        by_kind.setdefault(KINDS[short], {})[key] = float(value)
    held = entries(setup)
    new: dict[Kind, Any] = held | {
        kind: catalog.with_values(held[kind], inside) for kind, inside in by_kind.items()
    }
    gpu = new[Kind.GPU]
    machine = replace(
        setup.machine,
        gpu=gpu,
        interconnect=new[Kind.INTERCONNECT],
        host=new[Kind.HOST],
        stack=new[Kind.STACK],
        tables_of=_tables_of(setup.machine, gpu),
    )
    return replace(setup, machine=machine, model=_alike(new[Kind.MODEL]), drafter=new[Kind.DRAFTER])


def _alike(model: TargetModel) -> TargetModel:
    """*model* with tokens of one request no less alike than those of several, whatever was drawn."""
    routed = model.experts
    if routed is None or routed.token_correlation.value >= routed.routing_correlation.value:
        return model
    least = {"experts.token_correlation": routed.routing_correlation.value}
    return catalog.with_values(model, least)


def _tables_of(before: Machine, gpu: Gpu) -> Gpu:
    """The GPU behind the tables of *gpu*: itself where *before* has tables of its own."""
    there = before.tables_of or measured_gpu(before.gpu)
    same = (there.name, there.kernel_floor_us.value, there.achieved_bandwidth_gb_s.value) == (
        before.gpu.name,
        before.gpu.kernel_floor_us.value,
        before.gpu.achieved_bandwidth_gb_s.value,
    )
    return gpu if same else there


def with_scenario_keys(setup: Setup, values: Mapping[str, Any]) -> Setup:
    """*setup* of the scenario that has *values* of its keys instead; errors as ``resolve`` has them."""
    return resolve(drawn(setup.scenario, values)) if values else setup
