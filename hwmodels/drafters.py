"""Drafters: what guesses tokens for a target model, and how often it is right.

A drafter states its method, and with it which sizes it has. A block drafter guesses a
whole block in one pass; the others guess one position a pass, each from the token and
the hidden state of the one before.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hwmodels.documents import Strict
from hwmodels.entry import Entry, Figure
from hwmodels.estimate import Source
from hwmodels.models import Gqa, Mla, RoutedExperts, Size, TargetModel
from hwmodels.work import DType


class Method(StrEnum):
    """How a drafter guesses."""

    DFLASH = "dflash"
    """A block in one pass, by block diffusion (arXiv 2602.06036)."""
    EAGLE = "eagle"
    """One position a pass, by a small model fed with features of the target (EAGLE-3, arXiv 2503.01840)."""
    MTP = "mtp"
    """One position a pass, by a layer trained with the target (DeepSeek-V3, arXiv 2412.19437)."""


class Accuracy(Strict):
    """How often a drafter is right, fitted to published acceptance.

    Either *rates*, or a curve over depth: position d is right with log-odds
    ``top1_logit - depth_slope ln d`` in a step of middling difficulty.
    """

    rates: tuple[float, ...] | None = None
    """Unconditional acceptance rate of each position of a chain, as vLLM prints them."""
    top1_logit: float | None = None
    depth_slope: float = Field(default=0.0, ge=0)
    step_sd: float = Field(default=0.0, ge=0)
    """Standard deviation of the log-odds from step to step."""
    easy_share: float = Field(default=0.0, ge=0, le=1)
    """Share of steps in which nearly every position is right."""
    off_spine: float = Field(ge=0, le=1)
    """What is left of a position's chance once a choice other than the first was accepted."""
    stated_slope: float = Field(default=0.0, ge=0)
    """How much faster the log-odds that the drafter states fall with ln d than those it is right with."""
    source: Source
    ref: str = Field(min_length=3)
    """What it was fitted to."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.rates is None) == (self.top1_logit is None):
            raise ValueError("give rates or top1_logit")
        if self.rates is not None and any(b > a for a, b in pairwise((1.0, *self.rates, 0.0))):
            raise ValueError(f"unconditional rates fall from at most 1, got {list(self.rates)}")
        return self


class Drafter(Entry):
    """What every drafter's file has."""

    method: Method
    ref: str
    targets: tuple[str, ...] = ()
    """Models that it was trained for."""
    dtype: DType
    """Storage type of its projections."""
    parameters_billion: Figure
    """What it keeps in memory beside the target."""
    accuracy: Accuracy | None = None
    hypothetical: bool = False
    """True where no such drafter is published."""

    @property
    def longest_block(self) -> int | None:
        """The block beyond which it was not trained; None where passes go on one after another."""
        return None

    @property
    def stored_as(self) -> DType:
        """Storage type of most of its weights."""
        return self.dtype


class DFlash(Drafter):
    """A block-diffusion drafter sharing the target's embedding and LM head."""

    method: Literal[Method.DFLASH]
    layers: Size
    hidden: Size
    intermediate: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    feature_layers: Size
    """Target layers whose hidden states feed the drafter."""
    window: Size
    """Cached tokens its attention sees."""
    trained_block: Size

    @property
    def longest_block(self) -> int | None:
        """The block that it was trained at."""
        return self.trained_block


class Eagle(Drafter):
    """A dense transformer of a layer or a few, with embedding and LM head of its own.

    Its first layer attends with embedding and hidden state side by side, 2 x hidden wide.
    On the first pass after a verification the hidden state is fused from features of the
    target; later passes take the drafter's own.
    """

    method: Literal[Method.EAGLE]
    layers: Size
    hidden: Size
    intermediate: Size
    attention: Annotated[Mla | Gqa, Field(discriminator="kind")]
    feature_layers: Size
    """Target layers, as wide as the drafter, that one projection fuses."""
    vocab: Size
    """Tokens that its LM head knows; often fewer than the target's."""
    head_dtype: DType = DType.BF16
    """Its LM head; quantised checkpoints mostly leave it alone."""

    @property
    def stored_as(self) -> DType:
        """That of embedding and LM head, which are larger than its layers."""
        return self.head_dtype

    def as_model(self, target: TargetModel) -> TargetModel:
        """Its layers and LM head as a model of their own; *target* lends what no kernel reads."""
        return target.model_copy(
            update={
                "name": self.name,
                "layers": self.layers,
                "dense_layers": self.layers,
                "hidden": self.hidden,
                "dense_intermediate": self.intermediate,
                "vocab": self.vocab,
                "dense_dtype": self.dtype,
                "mlp_dtype": None,
                "head_dtype": self.head_dtype,
                "attention": self.attention,
                "linear_attention": None,
                "experts": None,
            }
        )


class Mtp(Drafter):
    """One more layer of the target's own shape, run once for every position.

    Embedding and LM head are the target's.

    Embedding and hidden state go side by side through one projection, 2 x hidden -> hidden.
    """

    method: Literal[Method.MTP]
    expert_dtype: DType | None
    """Storage type of its routed experts; null where the target has none."""

    @property
    def stored_as(self) -> DType:
        """That of its experts, where it has some."""
        return self.expert_dtype or self.dtype

    def as_model(self, target: TargetModel) -> TargetModel:
        """Its layer and the LM head of *target* as a model of their own."""
        return target.model_copy(
            update={
                "name": self.name,
                "layers": 1,
                "dense_layers": 0 if target.experts else 1,
                "dense_dtype": self.dtype,
                "mlp_dtype": None,
                "linear_attention": None,
                "experts": self._experts(target),
            }
        )

    def _experts(self, target: TargetModel) -> RoutedExperts | None:
        if target.experts is None or self.expert_dtype is None:
            return target.experts
        return target.experts.model_copy(update={"dtype": self.expert_dtype})


BY_METHOD: dict[str, type[Drafter]] = {Method.DFLASH: DFlash, Method.EAGLE: Eagle, Method.MTP: Mtp}
