"""The sizes of Kimi K2.6 on one of 8 GPUs under tensor parallelism; numbers only.

Source: config.json of moonshotai/Kimi-K2.6, as in ``hwmodels/data/models/kimi_k2_6.yaml``.
"""

from __future__ import annotations

from typing import Final

RANKS: Final = 8
"""GPUs that share the model."""

HIDDEN: Final = 7168
EXPERTS: Final = 384
TOP_K: Final = 8
EXPERT_INTERMEDIATE: Final = 2048 // RANKS
DENSE_INTERMEDIATE: Final = 18432 // RANKS

HEADS: Final = 64 // RANKS
NOPE: Final = 128
ROPE: Final = 64
VALUE: Final = 128
LATENT: Final = 512
CACHE_WIDTH: Final = LATENT + ROPE
"""Values that the cache holds for a token and layer, on every rank."""
Q_LORA: Final = 1536

VOCABULARY: Final = 163840 // RANKS

BLOCK: Final = 16
"""The longest block of the drafters, the token of the last step included."""

GEMMS: Final = {
    "attention_in": (Q_LORA + CACHE_WIDTH, HIDDEN),
    "query_up": (HEADS * (NOPE + ROPE), Q_LORA),
    "attention_out": (HIDDEN, HEADS * VALUE),
    "router": (EXPERTS, HIDDEN),
    "shared_gate_up": (2 * EXPERT_INTERMEDIATE, HIDDEN),
    "shared_down": (HIDDEN, EXPERT_INTERMEDIATE),
    "dense_gate_up": (2 * DENSE_INTERMEDIATE, HIDDEN),
    "dense_down": (HIDDEN, DENSE_INTERMEDIATE),
    "lm_head": (VOCABULARY, HIDDEN),
}
"""(rows, columns) of each rank's dense bf16 weights; the absorbed per-head products are not among them."""
