"""Closed forms for collectives: S bytes, n ranks, alpha seconds, B bytes/s per GPU and direction.

Ring and two-shot: Thakur et al., IJHPCA 19(1) 2005. One-shot and multicast: the
message is pushed to every peer, or once through a multicasting switch. All are 0
for one rank. Arrival skew is not in them; it comes out of the simulation.
"""

from __future__ import annotations


def ring_allreduce(size_bytes: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """``2(n-1) alpha + 2S(n-1)/(nB)`` seconds."""
    steps = 2 * (ranks - 1)
    return steps * alpha + steps * size_bytes / (ranks * bandwidth)


def one_shot_allreduce(size_bytes: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """``alpha + (n-1)S/B`` seconds."""
    return 0.0 if ranks == 1 else alpha + (ranks - 1) * size_bytes / bandwidth


def two_shot_allreduce(size_bytes: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """``2 alpha + 2S(n-1)/(nB)`` seconds."""
    return 0.0 if ranks == 1 else 2 * alpha + 2 * (ranks - 1) * size_bytes / (ranks * bandwidth)


def multicast_allreduce(size_bytes: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """``alpha + S/B`` seconds."""
    return 0.0 if ranks == 1 else alpha + size_bytes / bandwidth


def ring_allgather(size_bytes: float, ranks: int, alpha: float, bandwidth: float) -> float:
    """``(n-1) alpha + S(n-1)/(nB)`` seconds for *size_bytes* gathered in total."""
    return (ranks - 1) * (alpha + size_bytes / (ranks * bandwidth))


def ring_exchange(size_bytes: float, ranks: int, base: float, hop: float, bandwidth: float) -> float:
    """``base + (n-1) hop + S(n-1)/(nB)`` seconds: all-gather or reduce-scatter as NCCL's tuner has them."""
    return 0.0 if ranks == 1 else base + (ranks - 1) * (hop + size_bytes / (ranks * bandwidth))
