"""Target models: the sizes of a transformer, before it is sharded.

A layer has one of two token mixers (attention, or a gated delta rule where the model
is a hybrid) and one of two MLPs (dense, or routed experts).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hwmodels.documents import Strict
from hwmodels.entry import Entry, Figure
from hwmodels.work import DType

Size = Annotated[int, Field(ge=1)]


class AttentionKind(StrEnum):
    """How attention keeps its cache."""

    MLA = "mla"
    """One latent vector a token, shared by all heads (DeepSeek-V2, arXiv 2405.04434)."""
    GQA = "gqa"
    """Keys and values of groups of heads (arXiv 2305.13245)."""


class SparseIndex(Strict):
    """DeepSeek sparse attention: a small indexer picks the cached tokens that a query attends to."""

    heads: Size
    head_dim: Size
    top_k: Size
    """Cached tokens that each query attends to."""


class Mla(Strict):
    """Multi-head latent attention."""

    kind: Literal[AttentionKind.MLA]
    heads: Size
    q_lora: Size
    kv_lora: Size
    nope_dim: Size
    rope_dim: Size
    v_dim: Size
    index: SparseIndex | None = None

    @property
    def latent(self) -> int:
        """Cached values per token and layer, the same on every rank."""
        return self.kv_lora + self.rope_dim


class Gqa(Strict):
    """Grouped-query attention."""

    kind: Literal[AttentionKind.GQA]
    heads: Size
    kv_heads: Size
    head_dim: Size
    output_gate: bool = False
    """A gate as wide as the output, projected with the queries (Qwen3-Next, Qwen3.5)."""

    def kv_heads_on(self, ranks: int) -> int:
        """Key and value heads on each of *ranks*; heads that do not divide are replicated."""
        return max(1, self.kv_heads // ranks)


class LinearAttention(Strict):
    """Layers with a gated delta rule and a state of fixed size in place of attention (arXiv 2412.06464)."""

    layers: Size
    key_heads: Size
    value_heads: Size
    key_dim: Size
    value_dim: Size
    conv_width: Size
    """Taps of the short convolution over queries, keys and values."""


class RoutedExperts(Strict):
    """The experts of a mixture-of-experts layer."""

    count: Size
    top_k: Size
    shared: int = Field(ge=0)
    """Experts that every token passes through."""
    intermediate: Size
    dtype: DType
    routing_correlation: Figure
    """How alike tokens of different requests route (rho of ``work.experts_touched``)."""
    token_correlation: Figure
    """The same for tokens of one request, such as drafted ones."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.top_k > self.count:
            raise ValueError(f"top_k {self.top_k} exceeds the {self.count} experts")
        if self.token_correlation.value < self.routing_correlation.value:
            raise ValueError("tokens of one request are no less alike than those of several")
        return self


class TargetModel(Entry):
    """A transformer. Sizes are for the whole model, before sharding."""

    ref: str
    layers: Size
    dense_layers: int = Field(ge=0)
    """Layers whose MLP is dense; all of them where there are no experts."""
    hidden: Size
    dense_intermediate: int = Field(ge=0)
    vocab: Size
    dense_dtype: DType
    """Projections of attention; dense MLPs and shared experts too, where *mlp_dtype* does not say other."""
    mlp_dtype: DType | None = None
    head_dtype: DType = DType.BF16
    """The LM head; published quantised checkpoints mostly leave it alone."""
    attention: Annotated[Mla | Gqa, Field(discriminator="kind")]
    linear_attention: LinearAttention | None = None
    experts: RoutedExperts | None = None

    @model_validator(mode="after")
    def _layers_agree(self) -> Self:
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers {self.dense_layers} exceeds layers {self.layers}")
        if self.experts is None and self.dense_layers != self.layers:
            raise ValueError(f"without experts all {self.layers} layers are dense, not {self.dense_layers}")
        if self.dense_layers and not self.dense_intermediate:
            raise ValueError("dense layers need dense_intermediate")
        linear = self.linear_attention.layers if self.linear_attention else 0
        if linear >= self.layers or self.layers % (self.layers - linear):
            raise ValueError(f"{linear} of {self.layers} layers with linear attention leave no even pattern")
        return self

    @property
    def attention_layers(self) -> int:
        """Layers that keep a cache growing with the context."""
        return self.layers - (self.linear_attention.layers if self.linear_attention else 0)

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers

    @property
    def plain_mlp_dtype(self) -> DType:
        """Storage type of dense MLPs and shared experts."""
        return self.mlp_dtype or self.dense_dtype

    def is_linear(self, layer: int) -> bool:
        """True where *layer* (from 0) has linear attention: a full one ends each group of layers."""
        return (layer + 1) % (self.layers // self.attention_layers) != 0
