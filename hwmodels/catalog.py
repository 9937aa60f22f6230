"""The hardware catalog: one YAML file per GPU, interconnect, host, stack, model or drafter.

Every number is a ``Figure``: a value with its kind of source, a reference and,
where it is uncertain, a range. ``load(Kind.GPU, "b300_sxm")`` finds an entry by
name, or by path where the name ends in ``.yaml``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, model_validator

from hwmodels.captured import Captured
from hwmodels.documents import (
    Document,
    Inheritance,
    Strict,
    did_you_mean,
    read,
    resolve,
    validate,
)
from hwmodels.drafters import BY_METHOD, Drafter
from hwmodels.entry import Entry, Figure
from hwmodels.errors import DocumentError
from hwmodels.estimate import Source
from hwmodels.measured import SHIPPED, SUFFIX
from hwmodels.models import TargetModel
from hwmodels.work import DType

DATA = Path(__file__).resolve().parent / "data"
TABLES = DATA / "tables"


class Kind(Enum):
    """Catalog sections; the value is the folder under ``hwmodels/data``."""

    GPU = "gpus"
    INTERCONNECT = "interconnects"
    HOST = "hosts"
    STACK = "stacks"
    MODEL = "models"
    DRAFTER = "drafters"


class GpuNoise(Strict):
    """How kernel times vary on this GPU, as relative standard deviations."""

    kernel_cv: Figure
    """One execution against another of the same kernel."""
    step_cv: Figure
    """Shared by all kernels of one decode step (clock, scheduling)."""
    rank_cv: Figure
    """One GPU of the node against another, for a whole run."""
    spike_probability: Figure
    """Chance that a step is hit by a stall."""
    spike_factor_low: Figure
    spike_factor_high: Figure


class Gpu(Entry):
    """One accelerator."""

    compute_capability: str
    measured_as: str
    """The ``gpu`` column of the measured tables, and what stacks choose kernels by."""
    measured: str | None = None
    """A measured file beside this one (``my_gpu.jsonl``) or the name of a shipped one; not inherited."""
    perfdb: str | None = None
    """The system of NVIDIA AIConfigurator (extra ``perfdb``) that has what the shipped tables lack."""
    memory_bandwidth_gb_s: Figure
    achieved_bandwidth_gb_s: Figure
    """What dense kernels reach when weights come from DRAM."""
    memory_gib: Figure
    l2_mib: Figure
    tflops: dict[DType, Figure]
    """Dense peak by storage type; INT4 weights multiply in BF16."""
    kernel_floor_us: Figure
    """The shortest kernel inside a graph, its gap to the next one included."""
    kv_run_overhead_bytes: Figure
    """DRAM traffic lost at each break between contiguous runs of cached tokens."""
    usual_interconnect: str | None = None
    """Between several of these where a publication does not say; None where nothing is usual."""
    usual_host: str | None = None
    """The host they usually sit in."""
    noise: GpuNoise


class Interconnect(Entry):
    """The fabric between the GPUs of one node."""

    fabric: str
    """The ``fabric`` column of the AllReduce table."""
    link: str
    """Name of the link lane in records, such as ``nvlink`` or ``pcie``."""
    bandwidth_gb_s: Figure
    """Per GPU and direction, as a transfer reaches it."""
    alpha_us: Figure
    """Latency of one hop in the closed forms."""
    collective_base_us: Figure | None = None
    """What a collective of a library takes before its first hop; without it *alpha_us* has it spread out."""
    collective_hop_us: Figure | None = None
    """Each further rank of such a collective."""
    small_message_algorithm_max_bytes: Figure
    """Largest message for which a one-shot kernel is chosen, where the stack has one."""
    noise_cv: Figure


class Host(Entry):
    """The CPU side of the node."""

    pcie_gb_s: Figure
    heap_us_per_operation: Figure
    """Best-first tree in Python: one push or pop, with what is computed for it."""
    mask_us_per_node: Figure
    """A node's row of the ancestor mask."""
    noise_cv: Figure
    """Eager host work, one execution against another."""
    graph_launch_cv: Figure


class QueryScaling(Enum):
    """How an attention kernel's time grows with the queries of one request."""

    SHARED = "shared"
    """KV is read once per tile of queries."""
    REREAD = "reread"
    """Every query after the first reads the KV again, at *reread_gb_s*."""
    AS_BATCH = "as_batch"
    """Every query is served like a request of its own."""


class Selector(Strict):
    """Rows of a measured table: framework, version and kernel, for some GPUs."""

    gpus: tuple[str, ...]
    framework: str
    version: str
    kernel: str


class ExpertKernel(Selector):
    """The grouped expert GEMM a stack runs for one weight type."""

    dtype: DType
    fills_gpu: bool = False
    """True where its blocks take every SM and its shared memory until it ends, so that nothing runs beside
    it: Marlin gives each SM one stripe of the work (IST-DASLab/marlin, arXiv 2408.11743)."""


class AttentionKernel(Selector):
    """A decode attention kernel that a stack runs, and how it scales with queries."""

    query_scaling: QueryScaling
    scaling_source: Source
    """What the scaling itself rests on; the table is measured with one query."""
    scaling_ref: str
    reread_gb_s: Figure | None = None
    tile_rows: int = Field(default=64, ge=1)
    """Rows (heads of one cache x queries) that one pass over the KV serves, for ``shared``."""
    serial_us_per_1k_context: Figure | None = None
    """Where the table's growth with context is another build's: what each request's longest block of
    threads takes per 1,000 cached tokens, on top of the bytes of the whole batch."""

    @property
    def rows(self) -> Selector:
        """Its rows alone: the same table whatever its figures are."""
        return Selector(gpus=self.gpus, framework=self.framework, version=self.version, kernel=self.kernel)


class AllReduceCutoff(Strict):
    """A size from which an engine hands AllReduces of *ranks* GPUs to another kernel, such as NCCL's.

    Its measured rows are of whatever ran, so times are not interpolated across it.
    """

    ranks: int = Field(ge=2)
    from_bytes: int = Field(ge=1)
    ref: str = Field(min_length=3)


class AllReduceChoice(Strict):
    """The AllReduce algorithms a stack uses on one fabric."""

    fabrics: tuple[str, ...]
    framework: str | None = None
    """The engine the kernels come from; None for libraries that any engine calls, such as NCCL."""
    large: str
    small: str | None = None
    """Used up to the interconnect's small-message limit, where given."""
    cutoffs: tuple[AllReduceCutoff, ...] = ()
    """Where the engine goes over to other kernels inside the rows of *large*."""

    def cutoff_bytes(self, ranks: int) -> int | None:
        """From how many bytes on other kernels run on *ranks* GPUs."""
        found = [cutoff.from_bytes for cutoff in self.cutoffs if cutoff.ranks == ranks]
        return found[0] if found else None


class QuantisedGemm(Strict):
    """Dense kernels of a stack for weights that no table has: what they reach of the datasheet."""

    dtypes: tuple[DType, ...]
    bandwidth_share: Figure
    """Of the datasheet's memory bandwidth, with one token."""
    serial: bool
    """True where a tile is read and multiplied one after the other: both times add up."""


class CaptureLimit(Strict):
    """A size beyond which the stack cannot capture a CUDA graph on some GPUs."""

    compute_capability: str
    max_tree_budget: int
    ref: str


class Dispatch(Strict):
    """What the Python (or C++) side of a step costs."""

    graphs: bool
    graph_launch_fixed_us: Figure
    graph_launch_us_per_node: Figure
    eager_launch_us: Figure
    eager_collective_launch_us: Figure
    schedule_us: Figure
    """Scheduling, input preparation and output handling of one step with one request."""
    request_us: Figure
    """The same for every further request."""
    tree_dispatch_us: Figure
    """Dispatch of the top-k and tree section."""
    tree_fixed_us: Figure
    """Tree build beyond heap and mask: tensor to Python and back."""
    copy_latency_us: Figure
    """One copy between host and device, beyond its bytes."""
    synchronise_us: Figure
    """What the host loses at a point where it waits for the GPU."""
    top_k_us: Figure
    gpu_tree_us_per_node: Figure
    """Tree build as a GPU kernel, where the scenario asks for it."""
    captured: Captured
    capture_limits: tuple[CaptureLimit, ...] = ()
    expert_kernels: Figure
    """Kernels launched for one routed-expert layer."""
    attention_kernels: Figure
    """Kernels launched for one attention."""


class DraftGraphs(Enum):
    """How the passes of a sequential drafter (EAGLE, MTP) are captured."""

    PER_PASS = "per_pass"
    """A graph for every pass, with Python in between."""
    FIRST_AND_REST = "first_and_rest"
    """A graph for the pass after the verification, one for all others."""
    ONE = "one"
    """All passes in one graph."""


class Drafting(Strict):
    """What a chain, or a sequential drafter's tree, costs beside the kernels of its passes."""

    graphs: DraftGraphs
    passes_in_schedule: int = Field(ge=0)
    """Passes whose Python ``schedule_us`` holds already, for it was measured with them."""
    pass_us: Figure
    """Python of each pass beyond those: metadata, inputs, sampling."""
    loose_kernels: Figure
    """Small kernels of a step that are launched one by one, beyond those of acceptance."""
    tree_us: Figure
    """GPU time to choose the nodes of an EAGLE tree among all candidates, and to build it."""


class BlockSchedule(Enum):
    """When the host prepares a step that drafts a chain with a block drafter."""

    BEFORE = "before"
    """When it has the results of the last one, while the GPU waits."""
    BESIDE_VERIFY = "beside_verify"
    """While the last one is verified; it waits for the draft before it launches the verification."""
    AHEAD = "ahead"
    """While the last one runs: it waits for nothing."""


class Overlap(Strict):
    """What this stack runs at the same time."""

    shared_expert_stream: bool
    """Shared expert on a second stream beside router and routed experts."""
    shared_expert_stream_max_tokens: int | None = Field(default=None, ge=0)
    """Passes of more tokens keep to one stream."""
    fused_allreduce_norm: bool
    """Residual add and RMSNorm inside the AllReduce kernel."""
    schedule_ahead: bool
    """In plain decoding the host prepares the next step while the GPU runs this one."""
    speculative_schedule_ahead: bool
    """A stack that schedules ahead does so with chains of a sequential drafter too; trees are waited for."""
    block_schedule: BlockSchedule
    """When it prepares a step with a chain of a block drafter."""
    exposed_us: Figure | None = None
    """Host time between two steps that nothing hides, although the stack schedules ahead."""
    programmatic_launch_us: Figure | None = None
    """What programmatic dependent launch takes off the gap before every kernel, where the stack uses it."""
    ref: str


class KvMemory(Strict):
    """What a stack leaves of a GPU's memory for the attention cache, and in what portions it hands it out."""

    fraction: Figure
    """Of a GPU's memory: weights, workspaces and cache together."""
    workspace_gib: Figure
    """Of that, what is neither weights nor cache: activations, communication buffers, graphs."""
    block_tokens: int = Field(ge=1)
    """Cached tokens that are allocated together."""
    ref: str
    """Where the size of a block is stated."""

    @model_validator(mode="after")
    def _is_a_fraction(self) -> Self:
        if not self.fraction.value <= 1:
            raise ValueError(f"fraction must be at most 1, got {self.fraction.value}")
        return self


class Stack(Entry):
    """A serving engine: its kernels, its host costs, its cache and what it overlaps."""

    framework: str
    """The ``framework`` column of rows measured in this engine; other rows are carried over."""
    experts: tuple[ExpertKernel, ...]
    attention: tuple[AttentionKernel, ...]
    """For latent attention."""
    grouped_attention: tuple[AttentionKernel, ...] = ()
    """For grouped-query attention: the first that was measured with a shape serves it."""
    allreduce: tuple[AllReduceChoice, ...]
    quantised_gemm: tuple[QuantisedGemm, ...] = ()
    dispatch: Dispatch
    drafting: Drafting
    memory: KvMemory
    overlap: Overlap


EntryT = TypeVar("EntryT", bound=Entry)
_MODELS: dict[Kind, type[Entry]] = {
    Kind.GPU: Gpu,
    Kind.INTERCONNECT: Interconnect,
    Kind.HOST: Host,
    Kind.STACK: Stack,
    Kind.MODEL: TargetModel,
    Kind.DRAFTER: Drafter,
}


def names(kind: Kind) -> list[str]:
    """The names of the shipped entries of *kind*, sorted."""
    return sorted(path.stem for path in (DATA / kind.value).glob("*.yaml"))


@cache
def _load(kind: Kind, name: str) -> Entry:
    path = Path(name) if name.endswith(".yaml") else DATA / kind.value / f"{name}.yaml"
    if not name.endswith(".yaml") and name not in names(kind):
        raise DocumentError("catalog", 0, "", unknown_name(kind, name))
    document = resolve(path, _inheritance(kind))
    return validate(document, _by_method(document) if kind is Kind.DRAFTER else _MODELS[kind])


def _by_method(document: Document) -> type[Entry]:
    """What a drafter of the method that *document* states is made of."""
    method = document.data.get("method")
    if method in BY_METHOD:
        return BY_METHOD[method]
    where = (*document.place(("method",)), "method")
    if method is None:
        raise DocumentError(*where, "missing, and it has no default")
    raise DocumentError(
        *where, f"expected one of {', '.join(map(repr, map(str, BY_METHOD)))}, got {method!r}"
    )


def _inheritance(kind: Kind) -> Inheritance:
    """Names and measurements of one entry say nothing of another that extends it."""
    own = frozenset({"aliases", "measured"})
    return Inheritance(library=DATA / kind.value, own=own, prepare=_with_measured)


def _with_measured(document: Document, folder: Path) -> Document:
    """*document* with the measured file it names looked for in *folder*, or among the shipped ones."""
    name = document.data.get("measured")
    if not isinstance(name, str):
        return document
    path = measured_path(name, folder)
    if not path.is_file():
        hint = did_you_mean(name, measured_names()) if not name.endswith(SUFFIX) else ""
        raise DocumentError(*document.place(("measured",)), "measured", f"no such file: {name}{hint}")
    return Document(document.file, {**document.data, "measured": str(path)}, document.places)


def measured_path(name: str, folder: Path = Path()) -> Path:
    """Where the measured file *name* would be: in *folder*, or shipped where it has no ending."""
    return folder / name if name.endswith(SUFFIX) else SHIPPED / f"{name}{SUFFIX}"


def measured_names() -> list[str]:
    """The names of the shipped measured files, sorted."""
    return sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}"))


def unknown_name(kind: Kind, name: str) -> str:
    """Say that *name* is not an entry of *kind*, and what is."""
    known = names(kind)
    begun = [entry for entry in known if entry.startswith(name)]
    near = begun or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    singular = kind.value.removesuffix("s")
    hint = f", did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"
    return f"no {singular} named '{name}'{hint}"


def _typed(kind: Kind, name: str, model: type[EntryT]) -> EntryT:
    entry = _load(kind, name)
    assert isinstance(entry, model)
    return entry


def entry(kind: Kind, name: str) -> Entry:
    """The entry *name* of *kind*; DocumentError where there is none."""
    return _load(kind, name)


def gpu(name: str) -> Gpu:
    """The GPU *name*; DocumentError where there is none."""
    return _typed(Kind.GPU, name, Gpu)


def interconnect(name: str) -> Interconnect:
    """The interconnect *name*."""
    return _typed(Kind.INTERCONNECT, name, Interconnect)


def host(name: str) -> Host:
    """The host *name*."""
    return _typed(Kind.HOST, name, Host)


def stack(name: str) -> Stack:
    """The software stack *name*."""
    return _typed(Kind.STACK, name, Stack)


def target_model(name: str) -> TargetModel:
    """The target model *name*."""
    return _typed(Kind.MODEL, name, TargetModel)


def drafter(name: str) -> Drafter:
    """The drafter *name*."""
    return _typed(Kind.DRAFTER, name, Drafter)


def find(name: str) -> tuple[Kind, Entry]:
    """The entry called *name* in whichever section has it, or in the file *name* (``.yaml``)."""
    if name.endswith(".yaml"):
        kind = _kind_of(Path(name))
        return kind, _load(kind, name)
    for kind in Kind:
        if name in names(kind):
            return kind, _load(kind, name)
    known = [n for kind in Kind for n in names(kind)]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f", did you mean '{near[0]}'?" if near else ""
    raise DocumentError("catalog", 0, "", f"no entry named '{name}'{hint}")


def _kind_of(path: Path) -> Kind:
    """The section whose entries have the most keys in common with the file at *path*."""
    given = resolve(path, Inheritance(library=_base_folder(path))).data.keys()
    return max(Kind, key=lambda kind: len(given & _fields(kind)))


def _fields(kind: Kind) -> set[str]:
    """The keys that an entry of *kind* may have."""
    models = BY_METHOD.values() if kind is Kind.DRAFTER else [_MODELS[kind]]
    return {field for model in models for field in model.model_fields}


def _base_folder(path: Path) -> Path | None:
    """The section that has the entry which the file at *path* extends, if it extends one."""
    base = str(read(path).data.get("extends", "")).removesuffix(".yaml")
    return next((DATA / kind.value for kind in Kind if base in names(kind)), None)


def figures(entry: Entry) -> list[tuple[str, Figure]]:
    """Every Figure of *entry* with its dotted key, in file order."""
    return [(key, value) for key, value in _leaves(entry, "") if isinstance(value, Figure)]


def _leaves(value: Any, key: str) -> list[tuple[str, Any]]:
    """*value* taken apart down to figures and plain values, with their keys."""
    if isinstance(value, Figure):
        return [(key, value)]
    if isinstance(value, Strict):
        parts = [(f".{name}", getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, dict):
        parts = [(f".{getattr(name, 'value', name)}", child) for name, child in value.items()]
    elif isinstance(value, tuple):
        parts = [(f"[{index}]", child) for index, child in enumerate(value)]
    else:
        return [(key, value)]
    return [leaf for part, child in parts for leaf in _leaves(child, f"{key}{part}".lstrip("."))]


def with_values(entry: EntryT, values: Mapping[str, float]) -> EntryT:
    """*entry* with figures of other *values*, by their keys in ``figures``; those lose their range.

    KeyError where *entry* has no such figure.
    """
    paths = {_path(key): value for key, value in values.items()}
    changed = _changed(entry, paths)
    assert isinstance(changed, type(entry))
    return changed


@cache
def _path(key: str) -> tuple[str, ...]:
    """``attention[0].reread_gb_s`` as its parts."""
    return tuple(key.replace("[", ".").replace("]", "").split("."))


def _changed(value: Any, values: Mapping[tuple[str, ...], float]) -> Any:
    """*value* with the figures at the paths of *values* replaced."""
    if isinstance(value, Figure) and values.keys() == {()}:
        return value.model_copy(update={"value": values[()], "range": None})
    if () in values or isinstance(value, Figure):
        raise KeyError(f"{value!r} is not a figure, or has none inside")
    inside: dict[str, dict[tuple[str, ...], float]] = {}
    for (first, *rest), new in values.items():
        inside.setdefault(first, {})[tuple(rest)] = new
    if isinstance(value, Strict):
        held = {name: getattr(value, name) for name in inside if name in type(value).model_fields}
        _all_known(inside, held)
        return value.model_copy(update={name: _changed(held[name], new) for name, new in inside.items()})
    if isinstance(value, dict):
        named = {str(getattr(key, "value", key)): key for key in value}
        _all_known(inside, named)
        return value | {named[name]: _changed(value[named[name]], new) for name, new in inside.items()}
    items = {str(index): child for index, child in enumerate(value)} if isinstance(value, tuple) else {}
    _all_known(inside, items)
    return tuple(
        _changed(child, inside[index]) if index in inside else child for index, child in items.items()
    )


def _all_known(names: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted({*names} - {*known})
    if unknown:
        raise KeyError(f"no figure at {unknown[0]}")
