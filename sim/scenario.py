"""What a scenario file may say, and how it is loaded.

A scenario is strict: unknown keys, wrong types, NaN and impossible combinations
are refused with file, line and key. ``extends:`` starts from another file and
changes a few lines; ``--set key=value`` edits the same mapping before validation, a mapping as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.documents import (
    Document,
    Inheritance,
    KeyPath,
    Strict,
    did_you_mean,
    dotted,
    known_keys,
    merge,
    parse,
    resolve,
    validate,
)
from hwmodels.measured import SUFFIX
from hwmodels.work import DType
from sim import shipped
from sim.choices import Counts, Shape
from sim.ddtree import TreeSpec
from sim.errors import ScenarioError
from sim.uncertainty import checks, posterior_file
from sim.uncertainty.stated import FORMS, Distributions, Named

KINDS = ("length", "rates", "hazard", "mean_length", "quality", "trace")
ACCEPTANCE_KINDS = frozenset({*KINDS, "mean_length_range", "counts"})
"""In a file that extends another, one of these replaces all that the other has."""
VARIATION = ("request_sd", "step_correlation", "decay_per_1k_context")
RIVALS = ACCEPTANCE_KINDS | {name.rstrip("_") for name in FORMS}
"""Keys that replace one another: kinds of acceptance, and forms of a distribution."""
OWN_KEYS = frozenset({"question", "anchor", "assumptions", "regression"})
"""What a file says of itself: one that extends it must say its own."""
KEEP_ANCHOR = ("anchor", "runs", "seed", "load.output_tokens", "calibration")
"""Overrides of these leave the question as it was; any other takes the published figure away."""
MAX_BUDGET = 4096
MAX_BLOCK = 256
MAX_TOP_K = 64
MAX_CONTEXT = 1_000_000


class TreeBuilder(Enum):
    """Where the draft tree is built."""

    HOST = "host"
    GPU = "gpu"


class CapturePolicy(Enum):
    """Whether the stack's limit on captured graph sizes holds."""

    KEPT = "kept"
    LIFTED = "lifted"


class Drafting(Strict):
    """The drafter and its block."""

    model: str = "kimi_dflash"
    """Catalog name of the drafter."""
    block: int = Field(ge=0, le=MAX_BLOCK)
    """Positions drafted a step, the known first token included; 0 or 1 drafts nothing.

    A sequential drafter (EAGLE, MTP) takes block - 1 passes: vLLM's num_speculative_tokens, SGLang's
    speculative_num_steps, plus one.
    """


class Tree(Strict):
    """The draft tree that one pass verifies."""

    budget: int = Field(ge=0, le=MAX_BUDGET)
    """Tree nodes without the root; a verify pass has budget + 1 tokens. 0 is plain decoding.

    SGLang's speculative_num_draft_tokens counts the root: budget + 1.
    """
    shape: Shape = Shape.DDTREE
    """ddtree: the most probable prefixes; chain: first choices alone, at most block - 1; eagle: a beam."""
    top_k: int | None = Field(default=None, ge=1, le=MAX_TOP_K)
    """Of shape eagle: prefixes kept at every depth, and choices of each (speculative_eagle_topk)."""
    builder: TreeBuilder = TreeBuilder.HOST
    workers: int = Field(default=1, ge=1, le=512)
    """Host threads that build trees, each those of some requests; Python has one."""

    @model_validator(mode="after")
    def _beam(self) -> Self:
        if (self.shape is Shape.EAGLE) != (self.top_k is not None):
            raise ValueError("top_k goes with shape eagle, and that with top_k (null takes it away)")
        return self


class Quality(Strict):
    """Acceptance that follows from the tree: the catalog says how often the drafter is right."""

    mean_length: float | None = Field(default=None, ge=1)
    """Shift the drafter's log-odds until this mean acceptance length is met ..."""
    block: int | None = Field(default=None, ge=2, le=MAX_BLOCK)
    """... at this block (the scenario's where left out) ..."""
    budget: int | None = Field(default=None, ge=1, le=MAX_BUDGET)
    """... and this budget (the scenario's where left out) ..."""
    shape: Shape | None = None
    """... and this shape (the scenario's where left out) ..."""
    top_k: int | None = Field(default=None, ge=1, le=MAX_TOP_K)
    """... and this top_k (the scenario's where left out); other blocks, budgets and shapes follow."""
    off_spine: float | None = Field(default=None, ge=0, le=1)
    """Instead of the catalog's: what is left of a position's chance off the drafter's first choices."""


class Acceptance(Strict):
    """How many tokens a step commits (acceptance length, the target's own token included).

    Give exactly one of `length`, `rates`, `hazard`, `mean_length`, `quality`, `trace`.
    """

    length: int | None = Field(default=None, ge=1)
    """The same length every step."""
    rates: tuple[float, ...] | None = None
    """Unconditional acceptance rate of each drafted position, as vLLM prints them."""
    hazard: float | tuple[float, ...] | None = None
    """Chance that a position is accepted once all before it are; one value or one per position."""
    mean_length: float | None = Field(default=None, ge=1)
    """Solve for the constant hazard that gives this mean."""
    quality: Quality | None = None
    """Let it follow from the tree and the drafter's accuracy; answers to block and budget."""
    trace: str | None = None
    """A file of observed lengths (CSV or JSON lines), drawn request by request."""
    counts: Counts | None = None
    """What the trace counts, where its file does not say: with-target or drafted-only."""
    mean_length_range: tuple[float, float] | None = None
    """What is not known about the mean: the report shows both ends."""
    request_sd: float = Field(default=0.0, ge=0, le=5)
    """Variation between requests: standard deviation of the hazard's log-odds."""
    step_correlation: float = Field(default=0.0, ge=0, lt=1)
    """Correlation of neighbouring steps inside a request (Gaussian copula)."""
    decay_per_1k_context: float = Field(default=0.0, ge=0, le=5)
    """How far the hazard's log-odds fall per 1,000 tokens decoded beyond the start."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            have = " and ".join(given) or "none"
            if not given and self.mean_length_range is not None:
                have += " (beside mean_length_range, which replaces what is inherited: say its mean again)"
            raise ValueError(f"give exactly one of {', '.join(KINDS)}; got {have}")
        if self.mean_length_range is not None:
            self._check_range(self.mean_length_range)
        for name in ("length", "trace"):
            varied = [key for key in VARIATION if getattr(self, key)]
            if getattr(self, name) is not None and varied:
                away = ", ".join(varied)
                raise ValueError(f"{name} has its own variation: take away {away} (null where inherited)")
        for name, values in (("rates", self.rates), ("hazard", self.hazard_vector)):
            if values is not None and not all(0 <= value <= 1 for value in values):
                raise ValueError(f"{name} must lie in [0, 1], got {list(values)}")
        if self.rates is not None and any(b > a for a, b in zip(self.rates, self.rates[1:], strict=False)):
            raise ValueError(
                f"unconditional rates cannot rise, got {list(self.rates)}; conditional ones go into hazard"
            )
        return self

    def _check_range(self, ends: tuple[float, float]) -> None:
        if self.asked_mean is None:
            raise ValueError("mean_length_range goes with mean_length")
        if not 1 <= ends[0] <= self.asked_mean <= ends[1]:
            raise ValueError(
                f"mean_length_range {list(ends)} must start at 1 or more"
                f" and hold mean_length {self.asked_mean}"
            )

    @property
    def asked_mean(self) -> float | None:
        """The mean that is solved for, whichever way."""
        return self.quality.mean_length if self.quality is not None else self.mean_length

    @property
    def hazard_vector(self) -> tuple[float, ...] | None:
        """The hazards as a tuple, one value where it is constant."""
        return (self.hazard,) if isinstance(self.hazard, float) else self.hazard


class Experts(Strict):
    """The routed experts."""

    kernel: str | None = None
    """Expert kernel to use where the stack knows several (marlin, trtllm_gen, cutlass)."""
    routing_correlation: float | None = Field(default=None, ge=0, le=0.45)
    """How alike all tokens of a pass route (rho), instead of the model's two figures; 0 is independent."""
    ep: int = Field(default=1, ge=1, le=8)
    """Groups of GPUs that share out whole experts (expert parallelism); inside a group they are sliced."""


class KvCache(Strict):
    """The attention cache."""

    dtype: DType = DType.BF16
    run_tokens: int = Field(default=MAX_CONTEXT, ge=1, le=MAX_CONTEXT)
    """Cached tokens that lie contiguously in memory; small values are a fragmented cache."""
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    """Of a GPU's memory, for weights and cache, as engines are told; the stack's default where left out."""

    @model_validator(mode="after")
    def _cache_type(self) -> Self:
        if self.dtype not in (DType.BF16, DType.FP8):
            raise ValueError(f"the cache is bfloat16 or fp8, not {self.dtype.value}")
        return self


class Load(Strict):
    """What is decoded: requests in lock-step, each replaced by the next when it has its output."""

    context_tokens: int = Field(ge=0, le=MAX_CONTEXT)
    """Tokens in the cache when decoding begins."""
    output_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """A request decodes until it has committed at least this many tokens."""
    concurrency: int = Field(default=1, ge=1, le=512)
    """Requests decoded together, as far as they fit into the cache; the others wait."""
    prefill: bool = False
    """Count the prefill of every request that joins: the batch waits for it. Else it is outside."""


class Anchor(Strict):
    """A published measurement or claim to set beside the prediction. Never an input."""

    tok_s: float | None = Field(default=None, gt=0)
    tok_s_range: tuple[float, float] | None = None
    """A claimed range, where the source gives no single figure."""
    acceptance_length: float | None = Field(default=None, ge=1)
    source: str = Field(min_length=3)

    @model_validator(mode="after")
    def _some_figure(self) -> Self:
        if (self.tok_s is None) == (self.tok_s_range is None):
            raise ValueError("give tok_s or tok_s_range")
        if self.tok_s_range and not 0 < self.tok_s_range[0] <= self.tok_s_range[1]:
            raise ValueError(f"tok_s_range must rise from above 0, got {list(self.tok_s_range)}")
        return self

    @property
    def published_tok_s(self) -> float:
        """The published figure; the middle of a range."""
        if self.tok_s is not None:
            return self.tok_s
        assert self.tok_s_range is not None
        return sum(self.tok_s_range) / 2


class Cause(Strict):
    """A difference from another scenario."""

    name: str = Field(min_length=3)
    keys: tuple[str, ...] = Field(min_length=1)
    """Scenario keys, such as kv.run_tokens, whose values here are the cause."""


class Candidate(Strict):
    """Something that the source does not say, and that would slow the scenario down."""

    name: str = Field(min_length=3)
    changes: dict[str, int | float | str | bool] = Field(min_length=1)
    """Scenario keys and the values they would have."""


class Regression(Strict):
    """What this scenario is slower than, and why."""

    since: str
    """The scenario that it is compared with: a file beside this one, or a shipped one's name."""
    causes: tuple[Cause, ...] = Field(min_length=1, max_length=6)
    candidates: tuple[Candidate, ...] = Field(default=(), max_length=6)


class Scenario(Strict):
    """One question to the simulator: machine, model, drafter, tree, acceptance and load."""

    question: str = Field(min_length=10)
    """The question this scenario answers, in one sentence."""
    model: str = "kimi_k2_6"
    gpu: str
    gpus: int = Field(default=8, ge=1, le=8)
    """Tensor-parallel ranks."""
    dcp: int = Field(default=1, ge=1, le=8)
    """Decode context parallelism: so many ranks each hold a share of every request's cache."""
    interconnect: str
    host: str
    stack: str
    drafter: Drafting
    tree: Tree
    acceptance: Acceptance
    load: Load
    kv: KvCache = KvCache()
    experts: Experts = Experts()
    capture_limit: CapturePolicy = CapturePolicy.KEPT
    assumptions: tuple[str, ...] = ()
    """What this scenario takes for granted; the report repeats it."""
    anchor: Anchor | None = None
    regression: Regression | None = None
    calibration: str | None = None
    """A posterior, or its folder, from the command calibrate: what is not known is drawn from it."""
    uncertain: Distributions = Field(default_factory=Named)
    """What is not known, by scenario key, figure (gpu.achieved_bandwidth_gb_s) or work.<family>.

    Figures and tables that are not named here are as uncertain as their source says.
    """
    runs: int = Field(default=256, ge=1, le=1_000_000)
    seed: int = Field(default=1, ge=0, le=2**63 - 1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        asked, at = self._asked_length(), self.asked_at
        if asked > at.cap + 1e-9 and not self.is_plain:
            raise ValueError(
                f"acceptance asks for {asked:g} tokens per step, but {at} allow at most {at.cap}"
            )
        self._check_positions()
        if self.gpus not in (1, 2, 4, 8):
            raise ValueError(f"gpus must be 1, 2, 4 or 8, got {self.gpus}")
        if self.gpus % self.dcp:
            raise ValueError(f"dcp must divide the {self.gpus} GPUs, got {self.dcp}")
        if self.gpus % self.experts.ep:
            raise ValueError(f"experts.ep must divide the {self.gpus} GPUs, got {self.experts.ep}")
        return self

    def _check_positions(self) -> None:
        """A vector has one entry for each drafted position."""
        hazard = self.acceptance.hazard
        vector = self.acceptance.rates if self.acceptance.rates is not None else hazard
        needed = self.drafted.positions
        if isinstance(vector, tuple) and not self.is_plain and len(vector) != needed:
            found = f"acceptance has {len(vector)} positions for a block of {self.drafter.block}"
            raise ValueError(f"{found} (needs {needed})")

    def _asked_length(self) -> float:
        given = self.acceptance
        top = given.mean_length_range[1] if given.mean_length_range else given.asked_mean
        return max(given.length or 1, top or 1)

    @property
    def entries(self) -> dict[Kind, str]:
        """The catalog entries that are named."""
        return {
            kind: self.drafter.model if kind is Kind.DRAFTER else getattr(self, str(key[0]))
            for key, kind in CATALOG_KEYS.items()
        }

    @property
    def drafted(self) -> TreeSpec:
        """The tree that a step drafts."""
        return TreeSpec(self.drafter.block, self.tree.budget, self.tree.shape, self.tree.top_k or 1)

    @property
    def asked_at(self) -> TreeSpec:
        """The tree at which the acceptance that is asked for holds."""
        quality, own = self.acceptance.quality or Quality(), self.drafted
        return TreeSpec(
            quality.block or own.block,
            quality.budget or own.budget,
            quality.shape or own.shape,
            quality.top_k or own.top_k,
        )

    @property
    def is_plain(self) -> bool:
        """True where nothing is drafted: plain decoding."""
        return self.tree.budget == 0 or self.drafter.block <= 1

    @property
    def max_acceptance_length(self) -> int:
        """The most tokens that one step can commit."""
        return 1 if self.is_plain else self.drafted.cap

    @property
    def request_tokens(self) -> int:
        """Cached tokens that one request needs room for: all it ever has, and those of its last pass."""
        return self.load.context_tokens + self.load.output_tokens + self.verify_tokens

    @property
    def verify_tokens(self) -> int:
        """Tokens of one request in one verify pass (M), the root included."""
        return 1 if self.is_plain else self.drafted.nodes + 1


CATALOG_KEYS: dict[KeyPath, Kind] = {
    ("model",): Kind.MODEL,
    ("gpu",): Kind.GPU,
    ("interconnect",): Kind.INTERCONNECT,
    ("host",): Kind.HOST,
    ("stack",): Kind.STACK,
    ("drafter", "model"): Kind.DRAFTER,
}

TRACE_KEY: KeyPath = ("acceptance", "trace")
SINCE_KEY: KeyPath = ("regression", "since")
CALIBRATION_KEY: KeyPath = ("calibration",)
FILE_KEYS = (TRACE_KEY, SINCE_KEY, CALIBRATION_KEY)
"""Keys that name files, and no catalog entries."""


def load(path: Path, overrides: tuple[str, ...] = ()) -> Scenario:
    """The Scenario in *path* with *overrides* (``"tree.budget=16"``) applied; ScenarioError if wrong."""
    return build(edited(path, overrides))


def edited(path: Path, overrides: tuple[str, ...]) -> Document:
    """The scenario in *path* with *overrides* applied, before validation."""
    document = read(path)
    for override in overrides:
        document = changed(document, *parse_override(override))
    return document


def read(path: Path) -> Document:
    """The scenario in *path*, and what it extends, before validation."""
    how = Inheritance(ScenarioError, RIVALS, OWN_KEYS, shipped.folder(), _with_paths)
    return resolve(path, how)


def build(document: Document) -> Scenario:
    """Validate *document* and check that the catalog knows every name in it."""
    scenario = validate(document, Scenario, ScenarioError)
    for key, kind in CATALOG_KEYS.items():
        problem = _unknown(kind, scenario.entries[kind])
        if problem:
            raise ScenarioError(*document.place(key), dotted(key), problem)
    since = None if scenario.regression is None else scenario.regression.since
    known = None if scenario.calibration is None else str(posterior_file.located(scenario.calibration))
    files = (scenario.acceptance.trace, since, known)
    for key, file in zip(FILE_KEYS, files, strict=True):
        if file is not None and not Path(file).is_file():
            raise ScenarioError(*document.place(key), dotted(key), f"no such file: {file}")
    _check_causes(scenario, document)
    _check_uncertain(scenario, document)
    return scenario


def _check_causes(scenario: Scenario, document: Document) -> None:
    """Every key that a regression names is one that scenarios have."""
    asked = scenario.regression
    if asked is None:
        return
    file, line = document.place(("regression",))
    causes = [key for cause in asked.causes for key in cause.keys]
    for key in (*causes, *(key for candidate in asked.candidates for key in candidate.changes)):
        check_key(key, f"{file}:{line}" if line else file)


def _check_uncertain(scenario: Scenario, document: Document) -> None:
    """Every key under ``uncertain`` is known, and takes every value that it may be drawn as."""
    for key, stated in scenario.uncertain.items():
        problem = checks.problem_of(scenario, key, stated)
        if problem:
            raise ScenarioError(*document.place(("uncertain", key)), f"uncertain.{key}", problem)


def unknown_entry(key: str, value: Any) -> str:
    """Why *value* of *key* names no catalog entry; empty where it does, or where it need not."""
    kind = CATALOG_KEYS.get(tuple(key.split(".")))
    return _unknown(kind, value) if kind is not None and isinstance(value, str) else ""


def _unknown(kind: Kind, name: str) -> str:
    if name.endswith(".yaml"):
        return "" if Path(name).is_file() else f"no such file: {name}"
    if kind is Kind.GPU and name.endswith(SUFFIX):
        return f"'{name}' holds measurements; name a GPU's .yaml file that says 'measured: {Path(name).name}'"
    return "" if name in catalog.names(kind) else catalog.unknown_name(kind, name)


def _with_paths(document: Document, folder: Path) -> Document:
    """*document* with the files it names (catalog entries, a trace) looked for beside it, in *folder*."""
    data = _with_files(document.data, lambda key, name: _beside(key, name, folder))
    return Document(document.file, data, document.places)


def _with_files(data: dict[str, Any], moved: Callable[[KeyPath, str], str]) -> dict[str, Any]:
    """*data* with the name of every file in it as *moved* says it."""
    for key in (*CATALOG_KEYS, *FILE_KEYS):
        owner = data.get(str(key[0])) if len(key) > 1 else data
        name = owner.get(str(key[-1])) if isinstance(owner, dict) else None
        is_file = isinstance(name, str) and (key in FILE_KEYS or name.endswith(".yaml"))
        if isinstance(owner, dict) and is_file:
            changed_owner = {**owner, str(key[-1]): moved(key, str(name))}
            data = {**data, str(key[0]): changed_owner} if len(key) > 1 else changed_owner
    return data


def _beside(key: KeyPath, name: str, folder: Path) -> str:
    """The file *name* in *folder*; for a scenario to compare with also a shipped one by its name."""
    path = folder / name
    if key == SINCE_KEY and not path.is_file() and name in shipped.names():
        path = shipped.find(name)
    return str(path)


def as_file_in(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """What a file in *folder* has to say to be *scenario*, wherever it is read from.

    Files are named from there, shipped scenarios by name: the folder may go along with what it names.
    """
    return _with_files(scenario.model_dump(mode="json"), lambda _, name: _named_from(folder, name))


def _named_from(folder: Path, name: str) -> str:
    path = Path(name).resolve()
    if path.parent == shipped.folder().resolve():
        return path.stem
    return Path(os.path.relpath(path, folder.resolve())).as_posix()


def parse_override(text: str) -> tuple[str, Any, str]:
    """Key, value and place of ``--set key=value``; the value is read as YAML."""
    key, equals, raw = text.partition("=")
    place = f"--set {text}"
    if not equals or not key.strip():
        raise ScenarioError(place, 0, "", "expected key=value, such as tree.budget=16")
    return key.strip(), parse(f"value: {raw}", place, ScenarioError).data["value"], place


def changed(document: Document, key: str, value: Any, place: str) -> Document:
    """*document* with *key* (``tree.budget``) set to *value*, which *place* asked for.

    A mapping takes the place of the whole mapping there, where a file that extends another would be laid
    over it: what is said in one place should not mix with keys that were chosen for something else.
    """
    path = key_path(key)
    places = {p: where for p, where in document.places.items() if p[: len(path)] != path}
    data = document.data
    if isinstance(value, dict):
        data = merge(data, _nested(path, None), frozenset())
        value = merge({}, value, frozenset())
    merged = merge(data, _nested(*_whole(document, path, value)), RIVALS)
    if not key.startswith(KEEP_ANCHOR):
        merged.pop("anchor", None)
        merged.pop("regression", None)
    return Document(document.file, merged, {**places, path: (place, 0)})


def key_path(key: str) -> KeyPath:
    """A dotted key as a path; what is uncertain is named by a dotted key itself."""
    first, _, rest = key.partition(".")
    return (first, rest) if first == "uncertain" and rest else tuple(key.split("."))


def _whole(document: Document, path: KeyPath, value: Any) -> tuple[KeyPath, Any]:
    """One key inside a kind of acceptance as the whole kind, so that its other keys stay."""
    *outer, kind, last = ("", *path)
    if kind not in ACCEPTANCE_KINDS:
        return path, value
    held: Any = document.data
    for part in (*outer[1:], kind):
        held = held.get(part) if isinstance(held, dict) else None
    inside = merge(held if isinstance(held, dict) else {}, {str(last): value}, frozenset())
    return (*outer[1:], kind), inside


def _nested(path: KeyPath, value: Any) -> dict[str, Any]:
    """``("tree", "budget")`` and 8 as ``{"tree": {"budget": 8}}``."""
    *outer, last = map(str, path)
    nested = {last: value}
    for part in reversed(outer):
        nested = {part: nested}
    return nested


def located(key: str, value: Any, folder: Path) -> Any:
    """*value* of *key* with the files it names looked for in *folder*."""
    path = key_path(key)
    found: Any = _with_paths(Document("", _nested(path, value)), folder).data
    for part in path:
        found = found[part]
    return found


def check_key(key: str, place: str) -> None:
    """Raise a ScenarioError where no scenario has *key*, with the nearest one that it has."""
    path = tuple(key.split("."))
    for depth, part in enumerate(path):
        if path[:depth] == ("uncertain",):
            # Named by a key of its own, which is checked with the whole scenario.
            return
        known = known_keys(Scenario, path[:depth])
        if part not in known:
            raise ScenarioError(place, 0, key, f"unknown key{did_you_mean(part, known)}")


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, catalog names included, for editors."""
    whole = Scenario.model_json_schema()
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "specdec-sim scenario"
    whole["properties"]["extends"] = {
        "type": "string",
        "description": "Another scenario file; this one changes what it repeats.",
    }
    for key, kind in CATALOG_KEYS.items():
        owner = whole["$defs"]["Drafting"] if key[0] == "drafter" else whole
        owner["properties"][str(key[-1])]["examples"] = catalog.names(kind)
    # A file that extends another may leave out what it inherits.
    whole["anyOf"] = [{"required": ["extends"]}, {"required": whole.pop("required")}]
    return whole
