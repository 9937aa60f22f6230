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
from hwmodels.drafters import Drafter
from hwmodels.errors import DocumentError
from hwmodels.models import TargetModel
from sim import scenario
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


class Method(StrEnum):
    """How a row decodes."""

    PLAIN = "plain"
    CHAIN = "chain"
    EAGLE_TREE = "eagle"
    DDTREE = "ddtree"


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


_PLAIN = re.compile(r"(?<= )(?:none|baseline|plain|autoregressive|ar|vanilla|off|no spec[a-z]*)(?= )")


def _is_plain(method: str) -> bool:
    return _PLAIN.search(naming.words(method)) is not None


def method_of(text: str, top_k: int | None = None) -> Method:
    """What the method column says; Unpredictable where it says nothing known. *top_k* above 1 is a tree."""
    said = naming.words(text)
    if _is_plain(text):
        return Method.PLAIN
    if " ddtree " in said:
        return Method.DDTREE
    if not naming.drafter_kinds(text) and " chain " not in said:
        raise Unpredictable(f"method '{text}' is not known" if text else "the row names no method")
    return Method.EAGLE_TREE if " tree " in said or (top_k or 1) > 1 else Method.CHAIN


def question(case: Case, kind: CaseKind) -> Question:
    """The Question that *case* asks; Unpredictable where it cannot be put."""
    if " live service " in naming.words(case.workload):
        raise Unpredictable("a live service: what else it decoded at the time is not stated")
    method = method_of(case.method, case.topk)
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
        if case.acceptance_length is None:
            raise Unpredictable("no acceptance_length: only plain decoding can be predicted")
        drafter = naming.drafter(case.drafter, case.method, target)
        keys |= _drafting(case, method, drafter, notes) | {
            "acceptance": {"mean_length": case.acceptance_length}
        }
    return Question(case, kind, _scenario(case, keys), contexts, tuple(notes))


def _scenario(case: Case, keys: dict[str, Any]) -> Scenario:
    """The Scenario that *keys* say; Unpredictable where the simulator does not know one of them."""
    try:
        return scenario.build(Document(f"case {case.id}", keys))
    except DocumentError as problem:
        where = f"{problem.key}: " if problem.key else ""
        raise Unpredictable(f"{where}{problem.problem}") from None


_SHARDING = re.compile(r"(?<![a-z])(tp|ep|dcp|dp|dep|pp|cp)\s*[-= ]?\s*(\d+)")
_COUNT_OF_GPUS = re.compile(
    r"(?:^|(?<=\s))(\d+)\s*x(?=\s)|(\d+)\s*(?:gpus?|cards?)(?=\s)|(?<=\s)x\s*(\d+)(?=\s)"
)
_UNKNOWN_SHARDING = {
    "dp": "data parallelism",
    "dep": "data parallelism",
    "pp": "pipeline parallelism",
    "cp": "context parallelism",
}


def _machine(case: Case, gpu: Gpu, notes: list[str]) -> dict[str, Any]:
    """GPU, ranks, fabric, host and stack."""
    said = {name: int(count) for name, count in _SHARDING.findall(case.parallelism.casefold())}
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
    if said.get("ep", 1) > 1:
        keys |= {"experts": {"ep": said["ep"]}}
    return keys


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


def _drafting(case: Case, method: Method, drafter: Drafter, notes: list[str]) -> dict[str, Any]:
    """Drafter, block and tree."""
    nodes = _nodes(case)
    if method is Method.CHAIN:
        block = nodes + 1
        return {"drafter": _drafter(drafter, block), "tree": {"shape": "chain", "budget": nodes}}
    if method is Method.DDTREE:
        block = case.block_size or drafter.longest_block or nodes + 1
        return {"drafter": _drafter(drafter, block), "tree": {"shape": "ddtree", "budget": nodes}}
    tree: dict[str, Any] = {"shape": "eagle", "budget": nodes, "top_k": case.topk or 1}
    return {"drafter": _drafter(drafter, _draft_steps(case, nodes, notes) + 1), "tree": tree}


def _drafter(drafter: Drafter, block: int) -> dict[str, Any]:
    return {"model": drafter.name, "block": block}


def _nodes(case: Case) -> int:
    """Tree nodes without the root: what is verified counts the root, what is drafted mostly does not."""
    if case.verify_M_per_req is not None and case.verify_M_per_req > 1:
        return case.verify_M_per_req - 1
    stated = (case.tree_budget, case.num_draft_tokens, (case.block_size or 1) - 1)
    nodes = next((count for count in stated if count), 0)
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
