"""The articles' closed-form estimate, line by line, beside the same lines from measurements.

Their arithmetic (the seed articles on Kimi K2.6 DDTree): measured Marlin time of one
INT4 MoE layer at full width on an RTX PRO 6000, divided by 8 for TP-8, times 60
layers, divided by the bandwidth ratio for B300; a *rest* that they state; tokens per
step over the sum. Every constant below is theirs, none is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hwmodels import catalog
from hwmodels.cost import CostModel
from hwmodels.errors import HardwareError
from hwmodels.estimate import NS_PER_SECOND
from hwmodels.machine import Machine
from hwmodels.work import DType, GroupedExperts, experts_touched
from sim.engine import play
from sim.fusion import fuse
from sim.graph import Component
from sim.means import BaseTimes
from sim.pieces import Pieces
from sim.setup import Setup
from sim.statistics import NS_PER_MS
from sim.step import decode_step

LAYER_TOKENS = (9.0, 32.0)
LAYER_MS = (1.18, 3.171)
"""Full-width MoE layer on one RTX PRO 6000 at M = 9 and 32."""
RANKS = 8
BASE_GPU = "rtx_pro_6000_server"
MOE_LAYERS = 60
BANDWIDTH_RATIO = {"rtx_pro_6000_server": 1.0, "b300_sxm": 4.5}
"""Stated as 8 / 1.8 TB/s, which is 4.44, and used as 4.5."""
REST_MS = {"rtx_pro_6000_server": (23.55, 23.55), "b300_sxm": (12.5, 15.0)}
"""Everything but the experts, at block 8 and at block 16; on RTX PRO 6000 only block 8 is stated."""
REST_BLOCKS = (8, 16)
NATIVE_REST_MS = 8.0
CLAIMED_FOR = ("kimi_k2_6", "b300_sxm")
"""The model and GPU of which they say that overhead dominates."""

ROUNDING_TOK_S = 10.0
"""They quote throughput in tens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity, three ways."""

    name: str
    unit: str
    article: float
    """As the articles have it."""
    corrected: float
    """Their form with measured expert kernels in place of bandwidth scaling."""
    simulated: float | None = None
    """The simulated step, every duration at its mean."""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class QuotedRange:
    """A range the articles quote, and what their own step time and lengths give."""

    quoted_tok_s: tuple[float, float]
    lengths: tuple[float, float]
    step_ms: float
    what: str

    @property
    def derived_tok_s(self) -> tuple[float, float]:
        """Lengths over the step time."""
        return (1000 * self.lengths[0] / self.step_ms, 1000 * self.lengths[1] / self.step_ms)

    @property
    def needed_lengths(self) -> tuple[float, float]:
        """Tokens a step that the quoted throughput needs in that step time."""
        return (self.quoted_tok_s[0] * self.step_ms / 1000, self.quoted_tok_s[1] * self.step_ms / 1000)

    @property
    def follows(self) -> bool:
        """True where the quoted ends are the derived ones, rounded as the articles round."""
        pairs = zip(self.quoted_tok_s, self.derived_tok_s, strict=True)
        return all(abs(quoted - derived) <= ROUNDING_TOK_S for quoted, derived in pairs)


QUOTED_FOR = ("b300_sxm", 16)
QUOTED = (
    QuotedRange((575, 770), (12, 16), 20.4, "strong drafter"),
    QuotedRange((560, 750), (12, 16), 20.4, "strong drafter, elsewhere in the text"),
    QuotedRange((600, 800), (12, 16), 20.4, "strong drafter, elsewhere in the text"),
    QuotedRange((850, 980), (12, 16), 13.3, "strong drafter with a native engine: 5.3 + 8 ms"),
)


@dataclass(frozen=True)
class ClosedForm:
    """The whole estimate of one scenario."""

    tokens: int
    lines: tuple[Line, ...]
    quoted: tuple[QuotedRange, ...]
    """What they quote for this GPU and block."""


def closed_form(setup: Setup) -> ClosedForm:
    """The articles' estimate for *setup*; HardwareError for a GPU they do not estimate."""
    gpu = setup.machine.gpu.name
    if gpu not in BANDWIDTH_RATIO:
        known = ", ".join(BANDWIDTH_RATIO)
        raise HardwareError(gpu, f"the articles give no closed form for this GPU (they do for {known})")
    tokens = setup.scenario.verify_tokens
    simulated = noiseless_step(setup)
    experts = list(_expert_lines(setup, gpu, simulated))
    step = list(_step_lines(setup, experts[-1], simulated))
    throughput = [_throughput_line(length, step[-1]) for length in _lengths(setup)]
    quoted = QUOTED if (gpu, setup.scenario.drafter.block) == QUOTED_FOR else ()
    return ClosedForm(tokens, (*experts, *step, *throughput), quoted)


def _expert_lines(setup: Setup, gpu: str, simulated: StepTime) -> Iterator[Line]:
    """From one layer on RTX PRO 6000 to all layers on *gpu*; the last line is the experts' time."""
    tokens = setup.scenario.verify_tokens
    layer_us, measured_us = article_layer_us(tokens), _measured_layer_us(setup, BASE_GPU, tokens)
    all_ms, measured_ms = layer_us * MOE_LAYERS / 1000, measured_us * MOE_LAYERS / 1000
    there_ms = _measured_layer_us(setup, gpu, tokens) * MOE_LAYERS / 1000
    yield Line(
        name="experts, one INT4 layer and rank, RTX PRO 6000",
        unit="us",
        article=layer_us,
        corrected=measured_us,
        remark="full width / 8 against a measured TP-8 slice",
    )
    yield Line(name=f"  x {MOE_LAYERS} layers", unit="ms", article=all_ms, corrected=measured_ms)
    yield Line(
        name=f"  {gpu} is faster by",
        unit="x",
        article=BANDWIDTH_RATIO[gpu],
        corrected=measured_ms / there_ms,
        remark=f"datasheet bandwidth against measured {_kernel_name(setup, gpu)}",
    )
    yield Line(
        name=f"experts, {gpu}",
        unit="ms",
        article=all_ms / BANDWIDTH_RATIO[gpu],
        corrected=there_ms,
        simulated=simulated.experts_ms,
    )


def _step_lines(setup: Setup, experts: Line, simulated: StepTime) -> Iterator[Line]:
    """The rest and the whole step."""
    rest_ms = article_rest_ms(setup)
    yield Line(
        name="everything else",
        unit="ms",
        article=rest_ms,
        corrected=rest_ms,
        simulated=simulated.total_ms - simulated.experts_ms,
        remark="stated, stated, simulated",
    )
    yield Line(
        name="step",
        unit="ms",
        article=experts.article + rest_ms,
        corrected=experts.corrected + rest_ms,
        simulated=simulated.total_ms,
    )


def _throughput_line(length: float, step: Line) -> Line:
    assert step.simulated is not None
    return Line(
        name=f"throughput at {length:g} tokens a step",
        unit="tok/s",
        article=1000 * length / step.article,
        corrected=1000 * length / step.corrected,
        simulated=1000 * length / step.simulated,
    )


def article_layer_us(tokens: int) -> float:
    """Their measured layer / 8, us; linear in tokens between their two points, constant outside."""
    return float(np.interp(tokens, LAYER_TOKENS, LAYER_MS)) * 1000 / RANKS


def article_rest_ms(setup: Setup) -> float:
    """Their rest for this stack and block, ms."""
    if setup.machine.stack.name == "native" and setup.machine.gpu.name == "b300_sxm":
        return NATIVE_REST_MS
    return float(np.interp(setup.scenario.drafter.block, REST_BLOCKS, REST_MS[setup.machine.gpu.name]))


class Overhead(NamedTuple):
    """What the articles count as overhead: the whole step but the experts."""

    rest_ms: float
    step_ms: float

    @property
    def share(self) -> float:
        """Of the step."""
        return self.rest_ms / self.step_ms


def article_overhead(setup: Setup) -> Overhead | None:
    """The articles' overhead in their own step of *setup*; None where they claim nothing."""
    drafted = setup.scenario.drafter.block in REST_BLOCKS and not setup.scenario.is_plain
    if (
        (setup.model.name, setup.machine.gpu.name) != CLAIMED_FOR
        or not drafted
        or setup.machine.ranks != RANKS
    ):
        return None
    layer_us = article_layer_us(setup.scenario.verify_tokens)
    experts_ms = layer_us * MOE_LAYERS / 1000 / BANDWIDTH_RATIO[setup.machine.gpu.name]
    rest_ms = article_rest_ms(setup)
    return Overhead(rest_ms, experts_ms + rest_ms)


def _lengths(setup: Setup) -> list[float]:
    given = setup.scenario.acceptance
    ends = given.mean_length_range or ()
    return sorted({*ends, *([given.asked_mean] if given.asked_mean else [])})


def _measured_layer_us(setup: Setup, gpu: str, tokens: int) -> float:
    """One INT4 expert layer on one TP-8 rank of *gpu*, from the fit to measured rows."""
    model = setup.model
    routed = model.experts
    assert routed is not None
    touched = experts_touched(tokens, routed.count, routed.top_k)
    work = GroupedExperts(
        tokens=tokens,
        touched=touched,
        experts=routed.count,
        top_k=routed.top_k,
        hidden=model.hidden,
        intermediate=routed.intermediate // RANKS,
        dtype=DType.INT4,
    )
    return _costs_on(setup, gpu).estimate(work).seconds * 1e6


def _costs_on(setup: Setup, gpu: str) -> CostModel:
    """The cost model of this stack on *gpu*, with its own choice of kernel there."""
    machine = setup.machine
    return CostModel(
        Machine(
            gpu=catalog.gpu(gpu),
            ranks=RANKS,
            interconnect=machine.interconnect,
            host=machine.host,
            stack=machine.stack,
            expert_kernel=machine.expert_kernel if gpu == machine.gpu.name else None,
        )
    )


def _kernel_name(setup: Setup, gpu: str) -> str:
    kernel = _costs_on(setup, gpu).experts.kernel(DType.INT4)
    return f"{kernel.framework} {kernel.version} {kernel.kernel}"


class StepTime(NamedTuple):
    """One simulated step and the routed experts in it."""

    total_ms: float
    experts_ms: float


def noiseless_step(setup: Setup) -> StepTime:
    """The step at the start context with every duration at its mean."""
    pieces = Pieces(fuse(decode_step(setup)))
    start = np.array([setup.scenario.load.context_tokens])
    seconds = BaseTimes(setup, pieces).seconds(start)[:, pieces.label_of]
    durations = np.rint(seconds * NS_PER_SECOND).astype(np.int64)
    end = play(pieces.graph, pieces.fusion.durations(durations))
    ops = pieces.fusion.graph.ops
    experts = [i for i, op in enumerate(ops) if op.component is Component.EXPERTS and op.rank == 0]
    return StepTime(float(end.max()) / NS_PER_MS, float(durations[0, experts].sum()) / NS_PER_MS)
