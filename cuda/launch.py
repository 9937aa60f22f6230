"""How each kernel is launched: its buffers, grid, block, shared memory and order of arguments.

An operation is a frozen dataclass of sizes. It names its *buffers* and its *launches*; who runs
it - the host shim, the emulated driver, a GPU - brings memory for the buffers. This is the only
description; the sizes in it repeat constants of the kernel files, whose tests hold them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil, prod
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cuda import shapes

AnyArray = NDArray[Any]
Arrays = Mapping[str, AnyArray]
"""The memory of an operation, by name of the buffer."""
Size = tuple[int, int, int]
Argument = str | np.int32 | np.uint32 | np.uint64 | np.float32
"""The name of a buffer, or a scalar."""

SMALLEST_SHARED_LIMIT = 99 * 1024
"""Bytes of shared memory that a block may ask for on sm_120; the other targets have 227 KB."""
WARP = 32


class InstructionPath(Enum):
    """What a kernel computes with; data files carry it."""

    MMA_SYNC = "mma.sync"
    """Tensor cores through mma.sync.m16n8k16, which all targets have; not wgmma, not tcgen05."""
    CUDA_CORES = "cuda cores"


class Element(Enum):
    """What a buffer holds: numpy's type of the bits, and bits that no result has."""

    F32 = (np.float32, 0x7FC00001)
    F64 = (np.float64, 0x7FF8000000000001)
    BF16 = (np.uint16, 0x7FC1)
    E4M3 = (np.uint8, 0x7F)
    BYTE = (np.uint8, 0xA5)
    I32 = (np.int32, 0x5A5A5A5A)
    U32 = (np.uint32, 0xDEADBEEF)
    U64 = (np.uint64, 0xDEADBEEFDEADBEEF)

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type; bf16 and e4m3 travel as their bits."""
        kind: type[np.number[Any]] = self.value[0]
        return np.dtype(kind)

    @property
    def poison(self) -> int:
        """Bits to fill outputs with: NaN, or a number that no kernel writes."""
        return int(self.value[1])


class Role(Enum):
    """What a kernel does with a buffer."""

    INPUT = "input"
    OUTPUT = "output"
    UPDATED = "updated"
    WORK = "work"
    """Written and read again inside the operation; what was there before does not matter."""
    ZEROED = "zeroed"
    """Zero before the first launch, and after each."""


@dataclass(frozen=True)
class Buffer:
    """Memory for ``prod(shape)`` elements in row-major order."""

    name: str
    element: Element
    shape: tuple[int, ...]
    role: Role

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.element.dtype.itemsize

    def poisoned(self) -> AnyArray:
        """An array full of the element's poison; of zeros for a zeroed buffer."""
        if self.role is Role.ZEROED:
            return np.zeros(self.shape, self.element.dtype)
        bits = np.dtype(f"u{self.element.dtype.itemsize}")
        return np.full(self.shape, self.element.poison, bits).view(self.element.dtype)


class Launch(NamedTuple):
    """One kernel launch. *arguments* are names of buffers and numpy scalars, in order."""

    file: str
    """In ``cuda/kernels/``, without its ending."""
    entry: str
    grid: Size
    block: Size
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    """Dynamic shared memory."""

    @property
    def format(self) -> str:
        """The arguments for ``struct.pack`` and pycuda's ``prepare``: P for buffers, scalars by type."""
        return "".join("P" if isinstance(a, str) else a.dtype.char for a in self.arguments).replace("L", "Q")

    def values(self, addresses: Mapping[str, int]) -> list[int | float]:
        """The arguments as Python numbers, with the *addresses* of buffers."""
        return [addresses[a] if isinstance(a, str) else a.item() for a in self.arguments]


class Operation(Protocol):
    """What one measured point runs."""

    path: ClassVar[InstructionPath]

    def buffers(self) -> tuple[Buffer, ...]:
        """All memory that the launches name."""
        ...

    def launches(self) -> tuple[Launch, ...]:
        """In order, on one stream."""
        ...


def mask_words(nodes: int) -> int:
    """32-bit words of a row of the ancestor mask."""
    return ceil(nodes / WARP)


def _inputs(element: Element, **shapes_by_name: tuple[int, ...]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, element, shape, Role.INPUT) for name, shape in shapes_by_name.items())


def _outputs(element: Element, **shapes_by_name: tuple[int, ...]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, element, shape, Role.OUTPUT) for name, shape in shapes_by_name.items())


def _arguments(*given: Argument) -> tuple[Argument, ...]:
    return given


def _int32(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(value) for value in values)


# Trees


@dataclass(frozen=True)
class TreeBuild:
    """The DDTree of each request. At most 255 budget and 1024 positions x ranks.

    Marginals are f32 and fall along ranks; arrays over nodes have the root first, missing nodes -1.
    """

    requests: int
    positions: int
    ranks: int
    budget: int
    path: ClassVar = InstructionPath.CUDA_CORES

    @property
    def size(self) -> int:
        """Nodes, the root among them."""
        return self.budget + 1

    def buffers(self) -> tuple[Buffer, ...]:
        """Marginals and tokens in; parent, depth, token, probability, mask and count out."""
        choices, nodes = (self.requests, self.positions, self.ranks), (self.requests, self.size)
        return (
            *_inputs(Element.F32, marginals=choices),
            *_inputs(Element.I32, tokens=choices, root_token=(self.requests,)),
            *_outputs(Element.I32, parent=nodes, depth=nodes, token=nodes, nodes=(self.requests,)),
            *_outputs(Element.F64, probability=nodes),
            *_outputs(Element.U32, sees=(*nodes, mask_words(self.size))),
        )

    def launches(self) -> tuple[Launch, ...]:
        """One warp a request."""
        sizes = _int32(self.positions, self.ranks, self.budget)
        outputs = ("parent", "depth", "token", "probability", "sees", "nodes")
        arguments = _arguments("marginals", "tokens", "root_token", *sizes, *outputs)
        return (Launch("ddtree", "build_tree", (self.requests, 1, 1), (WARP, 1, 1), arguments),)


@dataclass(frozen=True)
class TreeAccept:
    """Greedy acceptance over trees as ``TreeBuild`` writes them; *target* is the target's choice per node."""

    requests: int
    budget: int
    path: ClassVar = InstructionPath.CUDA_CORES

    @property
    def size(self) -> int:
        """Nodes, the root among them."""
        return self.budget + 1

    def buffers(self) -> tuple[Buffer, ...]:
        """A tree and the target's tokens in; acceptance length, path and committed tokens out."""
        nodes, one = (self.requests, self.size), (self.requests,)
        return (
            *_inputs(Element.I32, token=nodes, parent=nodes, depth=nodes, nodes=one, target=nodes),
            *_inputs(Element.U32, sees=(*nodes, mask_words(self.size))),
            *_outputs(Element.I32, length=one, accepted=nodes, committed=nodes),
        )

    def launches(self) -> tuple[Launch, ...]:
        """One warp a request."""
        sizes = _int32(self.size, mask_words(self.size))
        tree = ("token", "parent", "depth", "sees", "nodes", "target")
        arguments = _arguments(*tree, *sizes, "length", "accepted", "committed")
        return (Launch("accept", "accept_tree", (self.requests, 1, 1), (WARP, 1, 1), arguments),)


# Experts

EXPERT_TILE_ROWS = 16
EXPERT_UNIT_COLUMNS = 256
EXPERT_GROUP = 32
EXPERT_UNIT_BYTES = EXPERT_TILE_ROWS * EXPERT_UNIT_COLUMNS * (EXPERT_GROUP // 2 + 2) // EXPERT_GROUP
"""Int4 weights, and a bf16 scale for each group of 32."""
EXPERT_WARPS = 4
EXPERT_DOWN_TILES = 4


@dataclass(frozen=True)
class ExpertLayer:
    """The routed experts of one layer: gate and up with SiLU, down with the routing weight, sum.

    *hidden* is a multiple of 1024, *intermediate* of 256. A slot is a (token, expert) pair; slots
    are sorted by expert.
    """

    tokens: int
    experts: int = shapes.EXPERTS
    top_k: int = shapes.TOP_K
    hidden: int = shapes.HIDDEN
    intermediate: int = shapes.EXPERT_INTERMEDIATE
    path: ClassVar = InstructionPath.MMA_SYNC

    @property
    def slots(self) -> int:
        """(token, expert) pairs."""
        return self.tokens * self.top_k

    @property
    def most_active(self) -> int:
        """Experts that can have tokens."""
        return min(self.experts, self.slots)

    def unit_shape(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        """(experts, tiles, units, bytes) of packed weights."""
        return (
            self.experts,
            rows // EXPERT_TILE_ROWS,
            columns // EXPERT_UNIT_COLUMNS,
            EXPERT_UNIT_BYTES,
        )

    def buffers(self) -> tuple[Buffer, ...]:
        """Weights, activations and routing in; the layer's output per token out."""
        return (
            *_inputs(
                Element.BYTE,
                gate_up=self.unit_shape(2 * self.intermediate, self.hidden),
                down=self.unit_shape(self.hidden, self.intermediate),
            ),
            *_inputs(Element.BF16, x=(self.tokens, self.hidden)),
            *_inputs(
                Element.I32,
                active=(1,),
                expert=(self.most_active,),
                offset=(self.most_active + 1,),
                token_of_slot=(self.slots,),
                own_slot=(self.slots,),
                slot_of=(self.tokens, self.top_k),
            ),
            *_inputs(Element.F32, slot_weight=(self.slots,)),
            Buffer("gated", Element.BF16, (self.slots, self.intermediate), Role.OUTPUT),
            Buffer("parts", Element.BF16, (self.slots, self.hidden), Role.OUTPUT),
            Buffer("out", Element.BF16, (self.tokens, self.hidden), Role.OUTPUT),
        )

    def launches(self) -> tuple[Launch, ...]:
        """Gate and up, down, sum."""
        return self.gate_up_launch(), self.down_launch(), self.combine_launch()

    def gate_up_launch(self) -> Launch:
        """A block for each tile of eight gate and eight up rows."""
        grid = (self.intermediate // 8, self.most_active, 1)
        routing = ("active", "expert", "offset", "token_of_slot")
        arguments = _arguments("gate_up", "x", *routing, np.int32(self.hidden), "gated")
        return Launch("experts_w4a16", "experts_gate_up", grid, (EXPERT_WARPS * WARP, 1, 1), arguments)

    def down_launch(self) -> Launch:
        """A block for each 16 tiles of 16 rows."""
        rows = EXPERT_TILE_ROWS * EXPERT_WARPS * EXPERT_DOWN_TILES
        grid = (self.hidden // rows, self.most_active, 1)
        routing = ("active", "expert", "offset", "own_slot", "slot_weight")
        arguments = _arguments("down", "gated", *routing, np.int32(self.intermediate), "parts")
        return Launch("experts_w4a16", "experts_down", grid, (EXPERT_WARPS * WARP, 1, 1), arguments)

    def combine_launch(self) -> Launch:
        """A thread for each eight values of a token."""
        vectors = self.hidden // 8
        arguments = _arguments("parts", "slot_of", *_int32(vectors, self.top_k), "out")
        grid = (ceil(vectors / 128), self.tokens, 1)
        return Launch("experts_w4a16", "experts_combine", grid, (128, 1, 1), arguments)


# Attention


class Cache(Enum):
    """The type of the latent cache."""

    BF16 = "bf16"
    FP8 = "fp8"
    """e4m3 with one scale."""


ATTENTION_KEYS = 32
ATTENTION_THREADS = 256
JOIN_COLUMNS = 128
"""Of a block that joins shares: four for each lane."""
ATTENTION_RESIDENT = {16: 2, 32: 1}
"""Blocks that the registers of an SM hold at once, by their rows."""


def attention_row_tile(rows: int) -> int:
    """Rows of a block: 16 where that is all there are, else 32."""
    return 16 if rows <= 16 else 32


@dataclass(frozen=True)
class TreeAttention:
    """MLA over a committed *context* and the tree's own *tokens* (the root among them), *splits* shares.

    *scale* multiplies scores, *cache_scale* what an fp8 cache holds.
    """

    requests: int
    tokens: int
    context: int
    splits: int
    cache: Cache = Cache.BF16
    heads: int = shapes.HEADS
    scale: float = (shapes.NOPE + shapes.ROPE) ** -0.5
    cache_scale: float = 1.0
    path: ClassVar = InstructionPath.MMA_SYNC

    @property
    def rows(self) -> int:
        """(token, head) pairs of a request."""
        return self.tokens * self.heads

    @property
    def row_tile(self) -> int:
        """Rows of a block."""
        return attention_row_tile(self.rows)

    @property
    def shared_bytes(self) -> int:
        """Ring, converted tile, scores, weights, and three figures a row."""
        width, rows = shapes.CACHE_WIDTH, self.row_tile
        fp8 = self.cache is Cache.FP8
        ring = 2 * ATTENTION_KEYS * (width + 16 if fp8 else (width + 8) * 2)
        converted = ATTENTION_KEYS * (width + 8) * 2 if fp8 else 16
        scores = 4 * rows * (ATTENTION_KEYS + 4) * 4
        return ring + converted + scores + rows * (ATTENTION_KEYS + 8) * 2 + 3 * rows * 4

    def buffers(self) -> tuple[Buffer, ...]:
        """Queries, cache and mask in; the latent output per token and head out."""
        element = Element.BF16 if self.cache is Cache.BF16 else Element.E4M3
        requests, shares = self.requests, (self.requests, self.splits, self.rows)
        return (
            *_inputs(Element.BF16, query=(requests, self.tokens, self.heads, shapes.CACHE_WIDTH)),
            *_inputs(element, cache=(requests, self.context + self.tokens, shapes.CACHE_WIDTH)),
            *_inputs(Element.U32, sees=(requests, self.tokens, mask_words(self.tokens))),
            Buffer("sums", Element.F32, (*shares, shapes.LATENT), Role.WORK),
            Buffer("highest_and_total", Element.F32, (*shares, 2), Role.WORK),
            *_outputs(Element.BF16, out=(requests, self.tokens, self.heads, shapes.LATENT)),
        )

    def launches(self) -> tuple[Launch, ...]:
        """The shares of the keys, and their sum."""
        return self.attend_launch(), self.join_launch()

    def attend_launch(self) -> Launch:
        """A block for each share of the keys, row tile and request."""
        sizes = _int32(self.tokens, self.heads, self.context, mask_words(self.tokens))
        scale = np.float32(self.scale * self.cache_scale)
        arguments = _arguments("query", "cache", "sees", *sizes, scale, "sums", "highest_and_total")
        entry = f"mla_attend_{self.cache.value}_rows{self.row_tile}"
        grid = (self.splits, ceil(self.rows / self.row_tile), self.requests)
        block = (ATTENTION_THREADS, 1, 1)
        return Launch("mla_tree_attention", entry, grid, block, arguments, self.shared_bytes)

    def join_launch(self) -> Launch:
        """A block for each row and fourth of the columns; its warps share the splits."""
        sizes = _int32(self.rows, self.splits)
        scale = np.float32(self.cache_scale)
        arguments = _arguments("sums", "highest_and_total", *sizes, scale, "out")
        grid = (self.rows, shapes.LATENT // JOIN_COLUMNS, self.requests)
        return Launch("mla_tree_attention", "mla_join", grid, (ATTENTION_THREADS, 1, 1), arguments)


def attention_splits(requests: int, tokens: int, heads: int, context: int, processors: int) -> int:
    """Shares of the keys that give *processors* SMs the blocks they hold at once, of four tiles at least.

    Where shared memory holds fewer (sm_120) the blocks run in two full rounds.
    """
    rows = tokens * heads
    row_tile = attention_row_tile(rows)
    blocks = ATTENTION_RESIDENT[row_tile] * processors
    most = max(1, (context + tokens) // (4 * ATTENTION_KEYS))
    return min(most, max(1, round(blocks / (requests * ceil(rows / row_tile)))))


# Dense products

GEMM_ROWS = 64
GEMM_COLUMNS = 64
GEMM_STAGES = 6
GEMM_TOKENS = (8, 16, 40)


@dataclass(frozen=True)
class Gemm:
    """``out[token][row] = x[token] . weight[row]``; *columns* is a multiple of 64, split *splits* times."""

    tokens: int
    rows: int
    columns: int
    splits: int
    path: ClassVar = InstructionPath.MMA_SYNC

    @property
    def token_tile(self) -> int:
        """Tokens of a block."""
        return next((t for t in GEMM_TOKENS if self.tokens <= t), GEMM_TOKENS[-1])

    @property
    def grid(self) -> Size:
        """Row tiles, splits, token tiles."""
        return ceil(self.rows / GEMM_ROWS), self.splits, ceil(self.tokens / self.token_tile)

    def buffers(self) -> tuple[Buffer, ...]:
        """x and weight in, out; parts and counters are for adding up the splits."""
        tiles, splits, batches = self.grid
        parts = (batches, tiles, splits, self.token_tile, GEMM_ROWS)
        return (
            *_inputs(Element.BF16, x=(self.tokens, self.columns), weight=(self.rows, self.columns)),
            Buffer("parts", Element.F32, parts, Role.WORK),
            Buffer("counters", Element.U32, (batches, tiles), Role.ZEROED),
            *_outputs(Element.BF16, out=(self.tokens, self.rows)),
        )

    def launches(self) -> tuple[Launch, ...]:
        """One launch; the last block of a tile adds up."""
        sizes = _int32(self.tokens, self.rows, self.columns)
        arguments = _arguments("x", "weight", *sizes, "parts", "counters", "out")
        shared = GEMM_STAGES * (GEMM_ROWS + self.token_tile) * (GEMM_COLUMNS + 8) * 2
        entry = f"gemm_tokens{self.token_tile}"
        return (Launch("gemm_bf16", entry, self.grid, (128, 1, 1), arguments, shared),)


def gemm_splits(rows: int, columns: int, processors: int) -> int:
    """Splits that give each of *processors* SMs two blocks, of four stages of columns at least."""
    tiles, most = ceil(rows / GEMM_ROWS), max(1, columns // (4 * GEMM_COLUMNS))
    return min(most, max(1, round(2 * processors / tiles)))


# Small kernels


@dataclass(frozen=True)
class Norm:
    """``residual += x``, ``out = residual / rms * weight``; *hidden* is a multiple of 1024."""

    tokens: int
    hidden: int = shapes.HIDDEN
    epsilon: float = 1e-6
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """bf16 throughout."""
        rows = (self.tokens, self.hidden)
        return (
            *_inputs(Element.BF16, x=rows, weight=(self.hidden,)),
            Buffer("residual", Element.BF16, rows, Role.UPDATED),
            *_outputs(Element.BF16, out=rows),
        )

    def launches(self) -> tuple[Launch, ...]:
        """A block a token, 32 values a thread."""
        arguments = _arguments("x", "weight", np.float32(self.epsilon), "residual", "out")
        return (Launch("norm", "add_rms_norm", (self.tokens, 1, 1), (self.hidden // 32, 1, 1), arguments),)


@dataclass(frozen=True)
class TopK:
    """The *k* largest of *vocabulary* bf16 logits per row, of equals the lower id; *k* at most 16."""

    rows: int
    k: int
    vocabulary: int = shapes.VOCABULARY
    parts: int = 4
    """Blocks that share a row; chosen."""
    first_id: int = 0
    """Of this rank's slice."""
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """Logits in; values and ids out, largest first."""
        return (
            *_inputs(Element.BF16, logits=(self.rows, self.vocabulary)),
            Buffer("best", Element.U64, (self.rows, self.parts, self.k), Role.WORK),
            *_outputs(Element.F32, values=(self.rows, self.k)),
            *_outputs(Element.I32, ids=(self.rows, self.k)),
        )

    def launches(self) -> tuple[Launch, ...]:
        """The parts of a row, and the best of them."""
        sizes = _int32(self.vocabulary, self.k)
        arguments = _arguments("best", *_int32(self.parts * self.k, self.k, self.first_id), "values", "ids")
        return (
            Launch(
                "top_k", "top_k_parts", (self.parts, self.rows, 1), (256, 1, 1), ("logits", *sizes, "best")
            ),
            Launch("top_k", "top_k_merge", (self.rows, 1, 1), (WARP, 1, 1), arguments),
        )


# AllReduce

ALLREDUCE_THREADS = 256
ALLREDUCE_PHASES = 2
ALLREDUCE_MOST_BLOCKS = 36
"""As vLLM's custom_all_reduce.cuh, kMaxBlocks; all run at once, as blocks wait for each other."""
SPIN_LIMIT_NS = 2_000_000_000
"""Chosen. After this a kernel that waits for another gives up and says so."""


def allreduce_blocks(vectors: int) -> int:
    """Blocks that give each of *vectors* (of eight values) a thread, up to the most."""
    return max(1, min(ALLREDUCE_MOST_BLOCKS, ceil(vectors / ALLREDUCE_THREADS)))


@dataclass(frozen=True)
class AllReduceStandIn:
    """The one-shot sum with all *ranks* inputs in one GPU's memory: no link, no handshake, no AllReduce.

    *inputs* has the address of each; all are (*values*,) bf16, a multiple of 8.
    """

    ranks: int
    values: int
    blocks: int | None = None
    """None: as many as ``allreduce_blocks`` says."""
    path: ClassVar = InstructionPath.CUDA_CORES

    @property
    def grid(self) -> Size:
        """A thread for each vector, or some."""
        return self.blocks or allreduce_blocks(self.values // 8), 1, 1

    def buffers(self) -> tuple[Buffer, ...]:
        """Addresses of the inputs in, the sum out."""
        addresses = _inputs(Element.U64, inputs=(self.ranks,))
        return (*addresses, *_outputs(Element.BF16, out=(self.values,)))

    def launches(self) -> tuple[Launch, ...]:
        """One launch."""
        arguments = _arguments("inputs", *_int32(self.ranks, self.values // 8), "out")
        block = (ALLREDUCE_THREADS, 1, 1)
        return (Launch("allreduce", "allreduce_standin", self.grid, block, arguments),)


class Shots(Enum):
    """The algorithm of an AllReduce."""

    ONE = "one_shot"
    TWO = "two_shot"


@dataclass(frozen=True)
class AllReduce:
    """One rank's part: all *ranks* launch it together, with the same *epoch*, one above the last.

    The addresses are those of every rank's input, slice and flags, in order of ranks; a slice has
    room for ``slice_values`` bf16 values, flags for ``flag_shape`` u32, zero at first.
    """

    ranks: int
    rank: int
    values: int
    epoch: int
    shots: Shots
    blocks: int | None = None
    """None: as many as ``allreduce_blocks`` says."""
    limit_ns: int = SPIN_LIMIT_NS
    path: ClassVar = InstructionPath.CUDA_CORES

    @property
    def slice_values(self) -> int:
        """bf16 values of a rank's slice in two shots."""
        return ceil(self.values // 8 / self.ranks) * 8

    @property
    def grid(self) -> Size:
        """The same on every rank: a thread for each vector that a rank sums, or some."""
        summed = self.slice_values if self.shots is Shots.TWO else self.values
        return self.blocks or allreduce_blocks(summed // 8), 1, 1

    @property
    def flag_shape(self) -> Size:
        """(phases, blocks, ranks)."""
        return ALLREDUCE_PHASES, self.grid[0], self.ranks

    def buffers(self) -> tuple[Buffer, ...]:
        """Addresses in each rank's memory in; the sum, and whether a peer was missed, out."""
        one = (self.ranks,)
        two_shot = _inputs(Element.U64, slices=one) if self.shots is Shots.TWO else ()
        return (
            *_inputs(Element.U64, inputs=one, flags=one),
            *two_shot,
            *_outputs(Element.BF16, out=(self.values,)),
            Buffer("timed_out", Element.U32, (1,), Role.ZEROED),
        )

    def launches(self) -> tuple[Launch, ...]:
        """One launch."""
        slices = ("slices",) if self.shots is Shots.TWO else ()
        arguments = _arguments(
            *("inputs", *slices, "flags"),
            *_int32(self.rank, self.ranks),
            np.uint32(self.epoch),
            *_int32(self.values // 8),
            *("out", "timed_out"),
            np.uint64(self.limit_ns),
        )
        block = (ALLREDUCE_THREADS, 1, 1)
        return (Launch("allreduce", f"allreduce_{self.shots.value}", self.grid, block, arguments),)


# Support

SWEEP_BLOCKS = 1024
"""Chosen: all that an H200 holds at once, 8 on each of 132 SMs, but for a few."""
SWEEP_THREADS = 256
SWEEP_RARE = 0x9E3779B9
"""Chosen: any word that few sums are."""


@dataclass(frozen=True)
class Empty:
    """A kernel that does nothing."""

    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """None."""
        return ()

    def launches(self) -> tuple[Launch, ...]:
        """One thread."""
        return (Launch("support", "empty", (1, 1, 1), (1, 1, 1), ()),)


@dataclass(frozen=True)
class Copy:
    """*bytes* from one place in a GPU's memory to another, a multiple of 16."""

    bytes: int
    blocks: int = SWEEP_BLOCKS
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """From, to."""
        one = (self.bytes // 4,)
        return (*_inputs(Element.U32, source=one), *_outputs(Element.U32, copied=one))

    def launches(self) -> tuple[Launch, ...]:
        """Four 16-byte loads under way in each thread."""
        arguments = _arguments("source", "copied", np.uint64(self.bytes // 16))
        return (Launch("support", "copy", (self.blocks, 1, 1), (SWEEP_THREADS, 1, 1), arguments),)


@dataclass(frozen=True)
class Sweep:
    """Reads *bytes*, a multiple of 16: evicts the L2 cache and leaves it clean."""

    bytes: int
    blocks: int = SWEEP_BLOCKS
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """What is read, and a word that is written if a thread's sum is ``SWEEP_RARE``."""
        return (*_inputs(Element.U32, swept=(self.bytes // 4,)), *_outputs(Element.U32, seen=(1,)))

    def launches(self) -> tuple[Launch, ...]:
        """One launch."""
        arguments = _arguments("swept", np.uint64(self.bytes // 16), "seen")
        return (Launch("support", "sweep", (self.blocks, 1, 1), (SWEEP_THREADS, 1, 1), arguments),)


@dataclass(frozen=True)
class Hold:
    """Holds its stream until ``go[0]`` is not zero, or for *limit_ns*; then ``timed_out[0]`` is 1.

    Both are in mapped host memory.
    """

    limit_ns: int = SPIN_LIMIT_NS
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """Two flags."""
        return (
            *_inputs(Element.U32, go=(1,)),
            Buffer("timed_out", Element.U32, (1,), Role.ZEROED),
        )

    def launches(self) -> tuple[Launch, ...]:
        """One thread."""
        arguments = _arguments("go", "timed_out", np.uint64(self.limit_ns))
        return (Launch("support", "hold", (1, 1, 1), (1, 1, 1), arguments),)


@dataclass(frozen=True)
class Stamp:
    """Writes (time in ns, cycles of SM 0's clock), but nothing where no block runs on SM 0.

    *processors* are all SMs of the GPU, so that one does; on the host one is enough.
    """

    processors: int = 1
    path: ClassVar = InstructionPath.CUDA_CORES

    def buffers(self) -> tuple[Buffer, ...]:
        """Two 64-bit counts."""
        return _outputs(Element.U64, stamp=(2,))

    def launches(self) -> tuple[Launch, ...]:
        """A thread for each SM."""
        return (Launch("support", "stamp", (self.processors, 1, 1), (1, 1, 1), ("stamp",)),)
