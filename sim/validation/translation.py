"""A row of published measurements as a scenario: what was run, in the simulator's own terms.

Nothing measured enters: a scenario takes the row's acceptance length and never its throughput.
What a row does not say is assumed, and ``Question.notes`` says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hwmodels import catalog
from hwmodels.devices import Gpu
from hwmodels.documents import Document
from hwmodels.errors import DocumentError
from hwmodels.models import TargetModel
from sim import scenario
from sim.choices import Shape
from sim.memory import GIB, target_bytes_per_rank
from sim.scenario import Scenario
from sim.validation import naming, workloads
from sim.validation.cases import Case
from sim.validation.errors import Unpredictable
from sim.validation.workloads import Contexts


class CaseKind(StrEnum):
    """Which of a row's two measurements is meant."""

    BASELINE = "baseline"
    """Plain decoding."""
    SPECULATIVE = "speculative"


@dataclass(frozen=True)
class Question:
    """What to predict for *case*: its *scenario*, the *contexts* it decodes over and what was assumed."""

    case: Case
    kind: CaseKind
    scenario: Scenario
    contexts: Contexts
    notes: tuple[str, ...]

    @property
    def measured_tok_s(self) -> float:
        """What was measured."""
        value = measured(self.case, self.kind)
        assert value is not None
        return value

    @property
    def acceptance_length(self) -> float:
        """Tokens that a step of one request commits."""
        return 1.0 if self.kind is CaseKind.BASELINE else self.case.acceptance_length or 1.0

    @property
    def system(self) -> str:
        """The machine and engine: ``8x b300_sxm, sglang``."""
        return f"{self.scenario.gpus}x {self.scenario.gpu}, {self.scenario.stack}"


def measured(case: Case, kind: CaseKind) -> float | None:
    """What *case* measured of *kind*; None where it did not."""
    plain = _is_plain(case.method)
    if kind is CaseKind.SPECULATIVE:
        return None if plain else case.tok_s_total
    return case.tok_s_total if plain and case.tok_s_total is not None else case.baseline_tok_s_total


_PLAIN = re.compile(
    r"(?<= )(?:none|baseline|plain|autoregressive|ar|vanilla|off|(?:no|without) spec[a-z]*)(?= )"
)
_SWITCHED_OFF = re.compile(r" [a-z0-9.]+ (?:off|disabled) ")


def _is_plain(method: str) -> bool:
    """Whether nothing is drafted: after a drafter's name the word is about something else."""
    said = naming.words(method)
    found = _PLAIN.search(said)
    if found is None or _SWITCHED_OFF.fullmatch(said):
        return found is not None
    return not naming.drafter_kinds(said[: found.start()])


def shape_of(method: str, top_k: int | None = None) -> Shape | None:
    """What *method* drafts; None in plain decoding. *top_k* above 1 is a tree.

    Unpredictable where it says nothing known.
    """
    said = naming.words(method)
    if _is_plain(method):
        return None
    if " ddtree " in said:
        return Shape.DDTREE
    if not naming.drafter_kinds(method) and " chain " not in said:
        raise Unpredictable(f"method '{method}' is not known" if method else "the row names no method")
    return Shape.EAGLE if " tree " in said or (top_k or 1) > 1 else Shape.CHAIN


def question(case: Case, kind: CaseKind) -> Question:
    """The Question that *case* asks; Unpredictable where it cannot be put."""
    if " live service " in naming.words(case.workload):
        raise Unpredictable("a live service: what else it decoded at the time is not stated")
    shape = shape_of(case.method, case.topk)
    gpu = naming.gpu(case.gpu)
    target = naming.target_model(case.model, case.quantisation)
    contexts = workloads.contexts(case.context_tokens, case.workload)
    notes = [contexts.note] if contexts.note else []
    keys = _machine(case, gpu, notes) | _load(case, contexts, notes)
    keys |= {"question": f"Case {case.id}: how many tokens per second?", "model": target.name}
    keys |= _kernels(case, gpu, target, str(keys["stack"]), keys.pop("experts", {}))
    if kind is CaseKind.BASELINE:
        keys |= {"drafter": {"block": 0}, "tree": {"budget": 0}, "acceptance": {"length": 1}}
    else:
        keys |= _speculation(case, shape, target, notes)
    return Question(case, kind, _scenario(case, keys), contexts, tuple(notes))


def _scenario(case: Case, keys: dict[str, Any]) -> Scenario:
    """The Scenario that *keys* say; Unpredictable where the simulator does not know one of them."""
    try:
        return scenario.build(Document(f"case {case.id}", keys))
    except DocumentError as problem:
        where = f"{problem.key}: " if problem.key else ""
        raise Unpredictable(f"{where}{problem.problem}") from None


_SHARDING = re.compile(r"(?<![a-z])(tp|ep|dcp|dp|dep|pp|cp)(?: size)? ?(\d{1,9})(?!\d)")
_ALL_EXPERTS = re.compile(r"(?<= )ep(?= )")
"""vLLM's switch: as many groups of experts as GPUs."""
_SPELLED_OUT = {
    "decode context parallel": "dcp",
    "tensor parallel": "tp",
    "expert parallel": "ep",
    "data parallel": "dp",
    "pipeline parallel": "pp",
    "context parallel": "cp",
}
_OF_NO_CONSEQUENCE = re.compile(
    r"\d{1,9}x?|x\d{0,9}|gpus?|cards?|ranks?|nodes?|single|one|none|only|and|over|all|on|per"
)
_COUNT_OF_GPUS = re.compile(
    r"(?:^|(?<=\s))(\d{1,9})\s*x(?=\s)|(?<!\d)(\d{1,9})\s*(?:gpus?|cards?)(?=\s)|(?<=\s)x\s*(\d{1,9})(?=\s)"
)
_UNKNOWN_SHARDING = {
    "dp": "data parallelism",
    "dep": "data parallelism",
    "pp": "pipeline parallelism",
    "cp": "context parallelism",
}


def _machine(case: Case, gpu: Gpu, notes: list[str]) -> dict[str, Any]:
    """GPU, ranks, fabric, host and stack."""
    said = _sharding(case.parallelism)
    for name, what in _UNKNOWN_SHARDING.items():
        if said.get(name, 1) > 1:
            raise Unpredictable(f"parallelism '{case.parallelism}': {what} is not simulated")
    gpus = _gpu_count(case, gpu, said, notes)
    if said.get("tp", gpus) != gpus:
        raise Unpredictable(
            f"parallelism '{case.parallelism}' on {gpus} GPUs: only TP over all of them is simulated"
        )
    fabric, named = naming.interconnect(case.interconnect, gpu)
    if not named and gpus > 1:
        notes.append(f"interconnect taken to be {fabric}, usual for {gpu.name}")
    host, named = naming.host(case.interconnect, gpu)
    if not named:
        notes.append(f"host taken to be {host}, usual for {gpu.name}")
    keys = {"gpu": gpu.name, "gpus": gpus, "interconnect": fabric, "host": host}
    keys |= {"stack": naming.stack(case.engine, case.method)}
    if said.get("dcp", 1) > 1:
        keys |= {"dcp": said["dcp"]}
    if said.get("ep", 1) != 1:
        keys |= {"experts": {"ep": said["ep"] or gpus}}
    return keys


def _sharding(text: str) -> dict[str, int]:
    """Ranks by kind of parallelism, 0 for experts over all GPUs; Unpredictable where *text* says more."""
    plain = naming.words(text)
    for long, short in _SPELLED_OUT.items():
        plain = re.sub(f"(?<= ){long}(?:ism)?(?= )", short, plain)
    said = {name: int(count) for name, count in _SHARDING.findall(plain)}
    rest = _SHARDING.sub(" ", plain)
    if _ALL_EXPERTS.search(rest):
        said.setdefault("ep", 0)
        rest = _ALL_EXPERTS.sub(" ", rest)
    for word in rest.split():
        if not _OF_NO_CONSEQUENCE.fullmatch(word):
            raise Unpredictable(f"parallelism '{text}': '{word}' is not known")
    return said


FITS_SHARE = 0.8
"""Of a GPU's memory, for weights alone."""


def _fits_one(case: Case, gpu: Gpu) -> bool:
    target = naming.target_model(case.model, case.quantisation)
    return target_bytes_per_rank(target, 1) <= FITS_SHARE * gpu.memory_gib.value * GIB


def _gpu_count(case: Case, gpu: Gpu, said: dict[str, int], notes: list[str]) -> int:
    if case.n_gpu is not None and case.n_gpu > 1 and "tp" not in said:
        if not case.parallelism and not case.interconnect and _fits_one(case, gpu):
            notes.append(
                f"one of {case.n_gpu} GPUs taken to run: no parallelism or link is named, and it fits"
            )
            return 1
        notes.append("parallelism taken to be TP over all GPUs")
    if case.n_gpu is not None:
        return case.n_gpu
    if "tp" in said:
        return said["tp"]
    found = _COUNT_OF_GPUS.search(naming.words(f"{case.parallelism} {case.gpu}"))
    if found is None:
        raise Unpredictable("neither n_gpu nor parallelism says how many GPUs")
    return int(next(count for count in found.groups() if count))


def _load(case: Case, contexts: Contexts, notes: list[str]) -> dict[str, Any]:
    if case.concurrency is None:
        notes.append("concurrency taken to be 1")
    load = {"context_tokens": contexts.start, "output_tokens": contexts.output, "prefill": contexts.prefill}
    keys: dict[str, Any] = {"load": load | {"concurrency": case.concurrency or 1}}
    if naming.words(case.kv_dtype).strip() in ("", "auto"):
        notes.append("cache taken to be bfloat16")
        return keys
    said = naming.quantisation(case.kv_dtype)
    if said not in (naming.Quantisation.FP8, naming.Quantisation.BF16):
        raise Unpredictable(f"kv_dtype '{case.kv_dtype}' is not fp8 or bfloat16")
    return keys | {"kv": {"dtype": "fp8" if said is naming.Quantisation.FP8 else "bfloat16"}}


def _kernels(
    case: Case, gpu: Gpu, target: TargetModel, stack: str, experts: dict[str, Any]
) -> dict[str, Any]:
    """The experts' keys, with the kernel where the row names one that the stack has."""
    if target.experts is not None:
        dtype, known = target.experts.dtype, catalog.stack(stack).experts
        suited = [kernel for kernel in known if kernel.dtype is dtype and gpu.measured_as in kernel.gpus]
        kernel = naming.expert_kernel(f"{case.quantisation} {case.engine}", suited)
        experts = experts | ({} if kernel is None else {"kernel": kernel})
    return {"experts": experts} if experts else {}


def _speculation(case: Case, shape: Shape | None, target: TargetModel, notes: list[str]) -> dict[str, Any]:
    """Drafter, block, tree and acceptance."""
    if shape is None:
        raise Unpredictable(f"method '{case.method}' drafts nothing")
    if case.acceptance_length is None:
        raise Unpredictable("no acceptance_length: only plain decoding can be predicted")
    drafter, nodes = naming.drafter(case.drafter, case.method, target), _nodes(case)
    tree: dict[str, Any] = {"shape": shape.value}
    match shape:
        case Shape.CHAIN:
            nodes = _of_block(case, nodes, notes)
            block = nodes + 1
        case Shape.DDTREE:
            block = case.block_size or drafter.longest_block or nodes + 1
        case Shape.EAGLE:
            block = _draft_steps(case, nodes, notes) + 1
            tree["top_k"] = case.topk or 1
    return {
        "drafter": {"model": drafter.name, "block": block},
        "tree": tree | {"budget": nodes},
        "acceptance": {"mean_length": case.acceptance_length},
    }


def _of_block(case: Case, nodes: int, notes: list[str]) -> int:
    """*nodes* of a chain: a block has one less than positions. Unpredictable where they are more."""
    if not case.block_size or nodes < case.block_size:
        return nodes
    if nodes == case.num_draft_tokens == case.block_size and case.block_size > 1:
        notes.append("num_draft_tokens taken to count the known token, as block_size does")
        return nodes - 1
    raise Unpredictable(f"a chain of {nodes} drafts does not come from a block_size of {case.block_size}")


_TIMES = re.compile(r"(?<= )x ?(\d{1,3})(?= )")
"""``MTP x3``."""


def _nodes(case: Case) -> int:
    """Tree nodes without the root: what is verified counts the root, what is drafted mostly does not."""
    if case.verify_M_per_req is not None and case.verify_M_per_req > 1:
        return case.verify_M_per_req - 1
    stated = (case.tree_budget, case.num_draft_tokens, (case.block_size or 1) - 1)
    named = _TIMES.search(naming.words(f"{case.drafter} {case.method}"))
    nodes = next((count for count in (*stated, int(named[1]) if named else 0) if count), 0)
    if not nodes:
        raise Unpredictable("no verify_M_per_req, tree_budget, num_draft_tokens or block_size")
    return nodes


_STEPS = re.compile(r"steps\s*[=:]?\s*(\d+)", re.IGNORECASE)
USUAL_STEPS = 3
"""SGLang's own choice for most targets of EAGLE."""


def _draft_steps(case: Case, nodes: int, notes: list[str]) -> int:
    """Depth of an EAGLE tree: SGLang's num_draft_tokens counts nodes, so the notes may say the steps."""
    found = _STEPS.search(case.notes)
    if found or case.block_size:
        return int(found[1]) if found else (case.block_size or 1) - 1
    notes.append(f"depth of the EAGLE tree taken to be {min(nodes, USUAL_STEPS)}")
    return min(nodes, USUAL_STEPS)
