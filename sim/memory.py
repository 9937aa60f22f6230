"""What has to fit into one GPU: weights of target and drafter, and the cache."""

from __future__ import annotations

from hwmodels.catalog import Drafter, KvMemory, TargetModel
from hwmodels.roofline import cached_token_bytes, weight_bytes
from hwmodels.work import BITS_PER_VALUE, DType

GIB = 2**30


def target_bytes_per_rank(model: TargetModel, ranks: int) -> float:
    """Weights of *model* on one of *ranks* GPUs; what MLA cannot shard is on every one."""
    per_layer = _attention_bytes(model, ranks)
    dense = 3 * weight_bytes(model.hidden, model.dense_intermediate, model.dense_dtype) / ranks
    moe_layers = model.layers - model.dense_layers
    head = 2 * weight_bytes(model.vocab, model.hidden, DType.BF16) / ranks
    return (
        model.layers * per_layer
        + model.dense_layers * dense
        + moe_layers * _expert_layer_bytes(model, ranks)
        + head
    )


def _attention_bytes(model: TargetModel, ranks: int) -> float:
    heads = model.heads / ranks
    values = (
        model.hidden * (model.q_lora + model.latent)
        + model.q_lora * heads * (model.nope_dim + model.rope_dim)
        + model.kv_lora * heads * (model.nope_dim + model.v_dim)
        + model.hidden * heads * model.v_dim
    )
    return values * BITS_PER_VALUE[model.dense_dtype] / 8


def _expert_layer_bytes(model: TargetModel, ranks: int) -> float:
    one = 3 * model.hidden * model.expert_intermediate
    routed = model.experts * one * BITS_PER_VALUE[model.expert_dtype] / 8
    shared = model.shared_experts * one * BITS_PER_VALUE[model.dense_dtype] / 8
    return (routed + shared) / ranks + model.hidden * model.experts * BITS_PER_VALUE[DType.BF16] / 8


def drafter_bytes_per_rank(drafter: Drafter, ranks: int) -> float:
    """Weights of *drafter* on one rank."""
    return drafter.parameters_billion.value * 1e9 * BITS_PER_VALUE[drafter.dtype] / 8 / ranks


def cache_bytes(model: TargetModel, tokens: int, dtype: DType) -> float:
    """Latent cache of *tokens* tokens in all layers; every TP rank holds the whole of it."""
    return tokens * model.layers * cached_token_bytes(model.latent, dtype)


def cache_room_bytes(memory: KvMemory, gpu_gib: float, weights: float) -> float:
    """What a GPU of *gpu_gib* has left for the cache beside *weights* bytes; below 0 if nothing."""
    return (gpu_gib * memory.fraction.value - memory.workspace_gib.value) * GIB - weights
