"""What has to fit into one GPU: weights of target and drafter, the cache, and the states."""

from __future__ import annotations

from hwmodels.drafters import Drafter
from hwmodels.models import Gqa, LinearAttention, Mla, RoutedExperts, TargetModel
from hwmodels.roofline import INDEX_SCALE_BYTES, STATE_BYTES, cached_token_bytes, weight_bytes
from hwmodels.stacks import KvMemory
from hwmodels.work import BITS_PER_VALUE, DType

GIB = 2**30


def target_bytes_per_rank(model: TargetModel, ranks: int) -> float:
    """Weights of *model* on one of *ranks* GPUs; what cannot be sharded is on every one."""
    mixers = model.attention_layers * _attention_values(model, ranks)
    if model.linear_attention is not None:
        mixers += model.linear_attention.layers * _linear_values(model.hidden, model.linear_attention) / ranks
    dense = 3 * weight_bytes(model.hidden, model.dense_intermediate, model.plain_mlp_dtype) / ranks
    head = weight_bytes(model.vocab, model.hidden, model.head_dtype) / ranks
    embedding = weight_bytes(model.vocab, model.hidden, DType.BF16) / ranks
    total = mixers * BITS_PER_VALUE[model.dense_dtype] / 8 + model.dense_layers * dense + head + embedding
    if model.experts is not None:
        total += model.moe_layers * _expert_layer_bytes(model, model.experts, ranks)
    return total


def _attention_values(model: TargetModel, ranks: int) -> float:
    match model.attention:
        case Mla() as mla:
            heads = mla.heads / ranks
            return (
                model.hidden * (mla.q_lora + mla.latent)
                + mla.q_lora * heads * (mla.nope_dim + mla.rope_dim)
                + mla.kv_lora * heads * (mla.nope_dim + mla.v_dim)
                + model.hidden * heads * mla.v_dim
                + _index_values(model.hidden, mla)
            )
        case Gqa() as gqa:
            heads = gqa.heads / ranks * (3 if gqa.output_gate else 2)
            return model.hidden * gqa.head_dim * (heads + 2 * gqa.kv_heads_on(ranks))


def _index_values(hidden: int, mla: Mla) -> float:
    index = mla.index
    if index is None:
        return 0.0
    return mla.q_lora * index.heads * index.head_dim + hidden * (index.head_dim + index.heads)


def _linear_values(hidden: int, linear: LinearAttention) -> float:
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    return hidden * (2 * keys + 3 * values + 2 * linear.value_heads)


def _expert_layer_bytes(model: TargetModel, routed: RoutedExperts, ranks: int) -> float:
    one = 3 * model.hidden * routed.intermediate
    experts = routed.count * one * BITS_PER_VALUE[routed.dtype] / 8
    shared = routed.shared * one * BITS_PER_VALUE[model.plain_mlp_dtype] / 8
    return (experts + shared) / ranks + model.hidden * routed.count * BITS_PER_VALUE[DType.BF16] / 8


def drafter_bytes_per_rank(drafter: Drafter, ranks: int) -> float:
    """Weights of *drafter* on one rank."""
    return drafter.parameters_billion.value * 1e9 * BITS_PER_VALUE[drafter.stored_as] / 8 / ranks


def cache_bytes(model: TargetModel, tokens: int, dtype: DType, ranks: int) -> float:
    """Cache of *tokens* tokens in all attention layers on one of *ranks*.

    Every rank holds the whole of a latent cache, and its own heads of a grouped-query one.
    """
    match model.attention:
        case Mla() as mla:
            index = 0 if mla.index is None else mla.index.head_dim + INDEX_SCALE_BYTES
            one = cached_token_bytes(mla.latent, dtype) + index
        case Gqa() as gqa:
            one = cached_token_bytes(2 * gqa.kv_heads_on(ranks) * gqa.head_dim, dtype)
    return tokens * model.attention_layers * one


def state_bytes(model: TargetModel, requests: int, ranks: int) -> float:
    """States of linear attention of *requests* on one of *ranks*, whatever the context."""
    linear = model.linear_attention
    if linear is None:
        return 0.0
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    recurrent = STATE_BYTES * values * linear.key_dim
    convolution = 2 * (linear.conv_width - 1) * (2 * keys + values)
    return requests * linear.layers * (recurrent + convolution) / ranks


def usable_gib(memory: KvMemory, gpu_gib: float, fraction: float | None) -> float:
    """What an engine uses of a GPU of *gpu_gib* for weights and cache; *fraction* where it is told so."""
    return gpu_gib * (fraction or memory.fraction.value) - memory.workspace_gib.value
