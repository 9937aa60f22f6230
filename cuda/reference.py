"""What kernels must give: seeded inputs for each operation, and answers in double precision.

``make_inputs`` and ``expect`` know every operation of ``cuda.launch``; ``check`` compares what a
kernel gave. The answers share no code and, where there is a choice, no algorithm with the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuda.launch import (
    EXPERT_GROUP,
    EXPERT_TILE_ROWS,
    EXPERT_UNIT_COLUMNS,
    AllReduce,
    AllReduceStandIn,
    AnyArray,
    Arrays,
    Cache,
    Copy,
    Element,
    ExpertLayer,
    Gemm,
    Norm,
    Operation,
    TopK,
    TreeAccept,
    TreeAttention,
    TreeBuild,
    mask_words,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BitArray = NDArray[np.uint16]
Bytes = NDArray[np.uint8]
Answers = dict[str, AnyArray]

BF16_ERROR = 2.0**-8
"""The largest relative error of rounding to bf16; over a row it is mostly below half of it."""


class WrongResultError(Exception):
    """A kernel's *buffer* is not what it must be."""

    def __init__(self, operation: Operation, buffer: str, problem: str) -> None:
        super().__init__(operation, buffer, problem)
        self.buffer = buffer

    def __str__(self) -> str:
        operation, buffer, problem = self.args
        return f"{buffer} of {operation}: {problem}"


# Number formats


def to_bf16(values: AnyArray) -> BitArray:
    """The bits of *values* rounded to bf16, to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def from_bf16(bits: AnyArray) -> FloatArray:
    """The values of bf16 *bits*."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def from_e4m3(bits: AnyArray) -> FloatArray:
    """The values of e4m3 *bits*: sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinity."""
    exponent, mantissa = bits >> 3 & 15, (bits & 7).astype(np.float64)
    normal = (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.float64) - 7)
    values = np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    values = np.where(bits & 127 == 127, np.nan, values)
    return np.where(bits & 128, -values, values)


# Ancestor masks


def pack_mask(sees: AnyArray) -> NDArray[np.uint32]:
    """(..., nodes, words) bits of a boolean mask (..., nodes, nodes); bit j of word w is node 32 w + j."""
    nodes = sees.shape[-1]
    padded = np.zeros((*sees.shape[:-1], mask_words(nodes) * 32), bool)
    padded[..., :nodes] = sees
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint32)


def mask_of(parents: AnyArray) -> NDArray[np.bool_]:
    """(nodes, nodes) what each node sees: itself and its ancestors; a root has parent -1."""
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


# Experts


def pack_units(weights: Bytes, scales: BitArray) -> Bytes:
    """Int4 *weights* (experts, rows, columns) of 0 to 15 and *scales* (experts, rows, groups) for the kernel.

    The value of a weight is (weight - 8) x scale. (experts, tiles, units, bytes).
    """
    experts, rows, columns = weights.shape
    tiles, units = rows // EXPERT_TILE_ROWS, columns // EXPERT_UNIT_COLUMNS
    packed = np.concatenate(
        [
            _pack_weights(weights.reshape(experts, tiles, 2, 8, units, 4, 2, 4, 2, 2, 2)),
            _pack_scales(scales.reshape(experts, tiles, 2, 8, units, EXPERT_UNIT_COLUMNS // EXPERT_GROUP)),
        ],
        axis=-1,
    )
    return np.ascontiguousarray(packed)


def _pack_weights(split: Bytes) -> Bytes:
    """From axes (expert, tile, row half, row, unit, vector, group, lane, step, column half, pair)."""
    lanes = np.transpose(split, (0, 1, 4, 5, 3, 7, 6, 8, 9, 2, 10)).astype(np.uint32)
    shifts = np.array([[[0, 16], [4, 20]], [[8, 24], [12, 28]]], np.uint32)
    words = np.ascontiguousarray(np.sum(lanes << shifts, axis=(-3, -2, -1), dtype=np.uint32))
    return words.reshape(*words.shape[:3], -1).view(np.uint8)


def _pack_scales(split: BitArray) -> Bytes:
    """From axes (expert, tile, row half, row, unit, group): pairs of rows 8 apart lie together."""
    pairs = np.ascontiguousarray(np.transpose(split, (0, 1, 4, 5, 3, 2)))
    return pairs.reshape(*pairs.shape[:3], -1).view(np.uint8)


def unpack_units(packed: Bytes) -> FloatArray:
    """The values of one expert's weights (rows, columns) from its *packed* (tiles, units, bytes)."""
    tiles, units, size = packed.shape
    split = size * 8 // 9
    words = (
        np.ascontiguousarray(packed[..., :split])
        .view(np.uint32)
        .reshape(tiles, units, 4, 8, 4, 2, 2, 1, 1, 1)
    )
    shifts = np.array([[[0, 16], [4, 20]], [[8, 24], [12, 28]]], np.uint32)
    # (tile, unit, vector, row, lane, group, step, column half, row half, pair)
    quantised = (words >> shifts & np.uint32(15)).astype(np.float64) - 8
    rows = np.transpose(quantised, (0, 8, 3, 1, 2, 5, 4, 6, 7, 9)).reshape(
        tiles, 2, 8, units, 8, EXPERT_GROUP
    )
    scales = from_bf16(np.ascontiguousarray(packed[..., split:]).view(np.uint16)).reshape(
        tiles, units, 8, 8, 2
    )
    values = rows * np.transpose(scales, (0, 4, 3, 1, 2))[..., None]
    return values.reshape(tiles * EXPERT_TILE_ROWS, units * EXPERT_UNIT_COLUMNS)


def interleave_gate_and_up(gate: AnyArray, up: AnyArray) -> AnyArray:
    """Rows of *gate* and *up* (experts, rows, ...) as the kernel wants them: eight and eight."""
    experts, rows, *rest = gate.shape
    both = [array.reshape(experts, rows // 8, 1, 8, *rest) for array in (gate, up)]
    return np.concatenate(both, axis=2).reshape(experts, 2 * rows, *rest)


def route(rng: np.random.Generator, operation: ExpertLayer) -> Answers:
    """A fresh routing: *top_k* different experts a token, all equally likely, and their weights."""
    chosen = np.stack(
        [rng.choice(operation.experts, operation.top_k, replace=False) for _ in range(operation.tokens)]
    )
    return sort_by_expert(operation, chosen, rng.dirichlet(np.ones(operation.top_k), operation.tokens))


def sort_by_expert(operation: ExpertLayer, chosen: AnyArray, weights: AnyArray) -> Answers:
    """The kernel's routing arrays for *chosen* experts and their *weights*, both (tokens, top_k)."""
    order = np.argsort(chosen.ravel(), kind="stable")
    active, counts = np.unique(chosen, return_counts=True)
    expert, offset = np.zeros(operation.most_active, int), np.zeros(operation.most_active + 1, int)
    expert[: len(active)] = active
    offset[1 : len(active) + 1] = np.cumsum(counts)
    slot_of = np.empty(operation.slots, int)
    slot_of[order] = np.arange(operation.slots)
    integers = {
        "active": np.array([len(active)]),
        "expert": expert,
        "offset": offset,
        "token_of_slot": order // operation.top_k,
        "own_slot": np.arange(operation.slots),
        "slot_of": slot_of.reshape(chosen.shape),
    }
    ready = {name: array.astype(np.int32) for name, array in integers.items()}
    return ready | {"slot_weight": weights.ravel()[order].astype(np.float32)}


def _random_units(rng: np.random.Generator, shape: tuple[int, ...], columns: int) -> Bytes:
    """Packed weights of random bits; scales keep the product's size near that of the activations."""
    units = rng.integers(0, 256, shape, np.uint8)
    split = shape[-1] * 8 // 9
    scales = to_bf16(rng.uniform(0.1, 0.3, (*shape[:-1], (shape[-1] - split) // 2)) / columns**0.5)
    units[..., split:] = scales.view(np.uint8).reshape(*shape[:-1], -1)
    return units


# Inputs


@singledispatch
def make_inputs(operation: Operation, rng: np.random.Generator) -> Answers:  # noqa: ARG001
    """Random arrays for every input and updated buffer of *operation*."""
    raise TypeError(f"no inputs are known for {operation}")


@make_inputs.register
def _(operation: TreeBuild, rng: np.random.Generator) -> Answers:
    shape = (operation.requests, operation.positions, operation.ranks)
    # Some mass lies beyond the ranks that are kept, and the first choice has most of it.
    shares = rng.dirichlet(np.geomspace(4, 0.1, operation.ranks + 1), shape[:2])[..., :-1]
    return {
        "marginals": -np.sort(-shares, axis=-1).astype(np.float32),
        "tokens": _distinct_tokens(rng, shape),
        "root_token": rng.integers(0, 1000, operation.requests, np.int32),
    }


def _distinct_tokens(rng: np.random.Generator, shape: tuple[int, int, int]) -> IntArray:
    """Tokens (requests, positions, ranks) that differ along ranks."""
    return np.argsort(rng.random((*shape[:2], 4 * shape[2])), axis=-1)[..., : shape[2]].astype(np.int32)


@make_inputs.register
def _(operation: TreeAccept, rng: np.random.Generator) -> Answers:
    build = TreeBuild(operation.requests, positions=15, ranks=8, budget=operation.budget)
    tree = expect(build, make_inputs(build, rng))
    target = rng.integers(0, 1000, tree["token"].shape, np.int32)
    for request in range(operation.requests):
        for node in range(1, tree["nodes"][request]):
            # Of several children that claim their parent's choice the last one has it.
            if rng.random() < 0.5:
                target[request, tree["parent"][request, node]] = tree["token"][request, node]
    names = ("token", "parent", "depth", "sees", "nodes")
    return {name: tree[name] for name in names} | {"target": target}


@make_inputs.register
def _(operation: ExpertLayer, rng: np.random.Generator) -> Answers:
    gate_up = operation.unit_shape(2 * operation.intermediate, operation.hidden)
    down = operation.unit_shape(operation.hidden, operation.intermediate)
    arrays = {
        "gate_up": _random_units(rng, gate_up, operation.hidden),
        "down": _random_units(rng, down, operation.intermediate),
    }
    x = to_bf16(rng.standard_normal((operation.tokens, operation.hidden)))
    return {**arrays, "x": x, **route(rng, operation)}


@make_inputs.register
def _(operation: TreeAttention, rng: np.random.Generator) -> Answers:
    buffers = {buffer.name: buffer for buffer in operation.buffers()}
    masks = [mask_of(_random_parents(rng, operation.tokens)) for _ in range(operation.requests)]
    return {
        "query": to_bf16(rng.standard_normal(buffers["query"].shape)),
        "cache": _random_cache(rng, operation.cache, buffers["cache"].shape),
        "sees": pack_mask(np.stack(masks)),
    }


def _random_cache(rng: np.random.Generator, cache: Cache, shape: tuple[int, ...]) -> AnyArray:
    if cache is Cache.BF16:
        return to_bf16(rng.standard_normal(shape))
    # Up to 1.875: near the size of a normal variate, with all bits of the format in use.
    bits: AnyArray = rng.integers(0, 64, shape, np.uint8) + rng.choice(np.array([0, 128], np.uint8), shape)
    return bits


def _random_parents(rng: np.random.Generator, nodes: int) -> IntArray:
    """The root first, then each below one before it."""
    return np.array([-1, *(rng.integers(0, node) for node in range(1, nodes))], np.int32)


@make_inputs.register
def _(operation: Gemm, rng: np.random.Generator) -> Answers:
    weight = rng.standard_normal((operation.rows, operation.columns)) / operation.columns**0.5
    return {
        "x": to_bf16(rng.standard_normal((operation.tokens, operation.columns))),
        "weight": to_bf16(weight),
    }


@make_inputs.register
def _(operation: Norm, rng: np.random.Generator) -> Answers:
    rows = (operation.tokens, operation.hidden)
    return {
        "x": to_bf16(rng.standard_normal(rows)),
        "residual": to_bf16(3 * rng.standard_normal(rows)),
        "weight": to_bf16(rng.uniform(0.5, 1.5, operation.hidden)),
    }


@make_inputs.register
def _(operation: TopK, rng: np.random.Generator) -> Answers:
    # In bf16 so many values of so few bits tie.
    return {"logits": to_bf16(4 * rng.standard_normal((operation.rows, operation.vocabulary)))}


@make_inputs.register
def _(operation: Copy, rng: np.random.Generator) -> Answers:
    return {"source": rng.integers(0, 2**32, operation.bytes // 4, np.uint32)}


def make_rank_inputs(operation: AllReduce | AllReduceStandIn, rng: np.random.Generator) -> BitArray:
    """The ranks' inputs (ranks, values) in bf16; *operation* itself takes their addresses."""
    return to_bf16(rng.standard_normal((operation.ranks, operation.values)))


# Answers


@singledispatch
def expect(operation: Operation, inputs: Arrays) -> Answers:  # noqa: ARG001
    """What the output and updated buffers of *operation* must hold; bf16 results as float64."""
    raise TypeError(f"no answer is known for {operation}")


@expect.register
def _(operation: TreeBuild, inputs: Arrays) -> Answers:
    trees = [_build_tree(operation, *request) for request in zip(*map(inputs.get, _TREE_INPUTS), strict=True)]
    return {name: np.stack([tree[name] for tree in trees]) for name in trees[0]}


_TREE_INPUTS = ("marginals", "tokens", "root_token")


@dataclass(frozen=True)
class _Prefix:
    probability: float
    push: int
    parent: int
    position: int
    rank: int


def _build_tree(operation: TreeBuild, marginals: AnyArray, tokens: AnyArray, root_token: int) -> Answers:
    """Takes the best of a plain list, again and again."""
    rows, found = marginals.astype(np.float64), [_Prefix(1.0, -1, -1, -1, 0)]
    open_ones: list[_Prefix] = []

    def push(parent: int, position: int, rank: int) -> None:
        if position < operation.positions and rank < operation.ranks:
            probability = found[parent].probability * float(rows[position, rank])
            open_ones.append(_Prefix(probability, len(open_ones), parent, position, rank))

    push(0, 0, 0)
    taken: set[int] = set()
    while len(found) <= operation.budget:
        left = [prefix for prefix in open_ones if prefix.push not in taken and prefix.probability > 0]
        if not left:
            break
        best = min(left, key=lambda prefix: (-prefix.probability, prefix.push))
        taken.add(best.push)
        found.append(best)
        push(best.parent, best.position, best.rank + 1)
        push(len(found) - 1, best.position + 1, 0)
    return _tree_arrays(operation, found, tokens, root_token)


def _tree_arrays(operation: TreeBuild, found: list[_Prefix], tokens: AnyArray, root_token: int) -> Answers:
    count = len(found)
    arrays: Answers = {name: np.full(operation.size, -1, np.int32) for name in ("parent", "depth", "token")}
    arrays["parent"][:count] = [prefix.parent for prefix in found]
    arrays["depth"][:count] = [prefix.position + 1 for prefix in found]
    arrays["token"][:count] = [root_token, *(tokens[p.position, p.rank] for p in found[1:])]
    probability = np.zeros(operation.size)
    probability[:count] = [prefix.probability for prefix in found]
    sees = np.zeros((operation.size, operation.size), bool)
    sees[:count, :count] = mask_of(arrays["parent"][:count])
    extra = {"probability": probability, "sees": pack_mask(sees), "nodes": np.int32(count)}
    return arrays | {name: np.asarray(value) for name, value in extra.items()}


@expect.register
def _(operation: TreeAccept, inputs: Arrays) -> Answers:
    shape = (operation.requests, operation.size)
    answers = {name: np.full(shape, -1, np.int32) for name in ("accepted", "committed")}
    length = np.zeros(operation.requests, np.int32)
    for request in range(operation.requests):
        path, tokens = _walk({name: array[request] for name, array in inputs.items()})
        answers["accepted"][request, : len(path)] = path
        answers["committed"][request, : len(tokens)] = tokens
        length[request] = len(tokens)
    return answers | {"length": length}


def _walk(tree: Arrays) -> tuple[list[int], list[int]]:
    """Accepted nodes and committed tokens, from the root down."""
    count = int(tree["nodes"])
    children = {(int(tree["parent"][n]), int(tree["token"][n])): n for n in range(count - 1, 0, -1)}
    at = 0
    path: list[int] = []
    tokens: list[int] = []
    while True:
        tokens.append(int(tree["target"][at]))
        if (at, tokens[-1]) not in children:
            return path, tokens
        at = children[at, tokens[-1]]
        path.append(at)


@expect.register
def _(operation: ExpertLayer, inputs: Arrays) -> Answers:
    x, gated = from_bf16(inputs["x"]), np.empty((operation.slots, operation.intermediate))
    parts = np.empty((operation.slots, operation.hidden))
    for number in range(int(inputs["active"][0])):
        slots = slice(*inputs["offset"][number : number + 2])
        expert = inputs["expert"][number]
        gate_up = unpack_units(inputs["gate_up"][expert]).reshape(-1, 2, 8, operation.hidden)
        gate, up = (gate_up[:, i].reshape(-1, operation.hidden) for i in (0, 1))
        tokens = x[inputs["token_of_slot"][slots]]
        gated[slots] = _silu(tokens @ gate.T) * (tokens @ up.T)
        down = from_bf16(to_bf16(gated[slots])) @ unpack_units(inputs["down"][expert]).T
        parts[slots] = down * inputs["slot_weight"][slots, None]
    return {"gated": gated, "parts": parts, "out": parts[inputs["slot_of"]].sum(axis=1)}


def _silu(x: FloatArray) -> FloatArray:
    weight: FloatArray = 1 / (1 + np.exp(-x))
    return x * weight


@expect.register
def _(operation: TreeAttention, inputs: Arrays) -> Answers:
    decode = from_bf16 if operation.cache is Cache.BF16 else from_e4m3
    requests = zip(
        from_bf16(inputs["query"]),
        decode(inputs["cache"]) * operation.cache_scale,
        inputs["sees"],
        strict=True,
    )
    return {"out": np.stack([_attend(operation, *request) for request in requests])}


def _attend(operation: TreeAttention, query: FloatArray, keys: FloatArray, sees: AnyArray) -> FloatArray:
    own = np.unpackbits(sees.view(np.uint8), axis=-1, bitorder="little")[:, : operation.tokens].astype(bool)
    visible = np.concatenate([np.ones((operation.tokens, operation.context), bool), own], axis=1)
    scores = np.einsum("thw,kw->thk", query, keys, optimize=True) * operation.scale
    scores = np.where(visible[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    latent = next(b for b in operation.buffers() if b.name == "out").shape[-1]
    out: FloatArray = np.einsum("thk,kw->thw", weights, keys[:, :latent], optimize=True)
    return out


@expect.register
def _(_: Gemm, inputs: Arrays) -> Answers:
    return {"out": from_bf16(inputs["x"]) @ from_bf16(inputs["weight"]).T}


@expect.register
def _(operation: Norm, inputs: Arrays) -> Answers:
    residual = from_bf16(to_bf16(from_bf16(inputs["x"]) + from_bf16(inputs["residual"])))
    mean_square = np.mean(residual**2, axis=-1, keepdims=True)
    return {
        "residual": residual,
        "out": residual / np.sqrt(mean_square + operation.epsilon) * from_bf16(inputs["weight"]),
    }


@expect.register
def _(operation: TopK, inputs: Arrays) -> Answers:
    logits = from_bf16(inputs["logits"])
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, : operation.k]
    return {
        "values": np.take_along_axis(logits, ids, axis=-1).astype(np.float32),
        "ids": (ids + operation.first_id).astype(np.int32),
    }


@expect.register
def _(_: Copy, inputs: Arrays) -> Answers:
    return {"copied": inputs["source"]}


def expect_sum(rank_inputs: BitArray) -> BitArray:
    """The AllReduce of *rank_inputs* (ranks, values): f32 in the order of ranks, then bf16, bit for bit."""
    total = np.zeros(rank_inputs.shape[1], np.float32)
    for values in rank_inputs:
        total += from_bf16(values).astype(np.float32)
    return to_bf16(total)


# Comparison

MOST_ERROR: dict[type, float] = {
    # Chosen, with room: a rounding costs a row about half of BF16_ERROR.
    # Products are exact and sums f32: only results are rounded.
    Gemm: BF16_ERROR,
    Norm: BF16_ERROR,
    # ... here after each of the three products,
    ExpertLayer: 1.5 * BF16_ERROR,
    # ... and here the weights of the softmax too.
    TreeAttention: 1.5 * BF16_ERROR,
}
"""The error allowed of each row of a bf16 result: norm of the difference over norm of the answer."""


def check(operation: Operation, inputs: Arrays, results: Arrays) -> None:
    """Raise ``WrongResultError`` unless *results* are what ``expect`` says.

    Integers, masks, double and single precision must be equal; rows of bf16 within ``MOST_ERROR``.
    """
    answers = expect(operation, inputs)
    for buffer in operation.buffers():
        if buffer.name not in answers:
            continue
        if buffer.element is Element.BF16:
            _check_rows(operation, buffer.name, answers[buffer.name], from_bf16(results[buffer.name]))
        else:
            _check_equal(operation, buffer.name, answers[buffer.name], results[buffer.name])


def row_errors(answer: AnyArray, result: AnyArray) -> FloatArray:
    """Of each last-axis row: the norm of the difference over that of the *answer*; NaN is infinite."""
    difference = np.linalg.norm(result - answer, axis=-1)
    size = np.maximum(np.linalg.norm(answer, axis=-1), np.finfo(np.float32).tiny)
    errors: FloatArray = np.nan_to_num(difference / size, nan=np.inf)
    return errors


def _check_rows(operation: Operation, name: str, answer: AnyArray, result: AnyArray) -> None:
    allowed = MOST_ERROR[type(operation)]
    errors = row_errors(answer, result)
    if errors.max() > allowed:
        row = np.unravel_index(int(errors.argmax()), errors.shape)
        problem = f"row {tuple(map(int, row))} is off by {errors.max():.2g}, {allowed:.2g} is allowed"
        raise WrongResultError(operation, name, problem)


def _check_equal(operation: Operation, name: str, answer: AnyArray, result: AnyArray) -> None:
    if not np.array_equal(answer, result):
        differing = np.argwhere(np.asarray(answer) != result)
        first: Any = tuple(map(int, differing[0])) if len(differing) else ()
        problem = f"{result[first]} at {first}, not {answer[first]}; {len(differing)} differ"
        raise WrongResultError(operation, name, problem)
