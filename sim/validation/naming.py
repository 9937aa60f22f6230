"""Which catalog entry a publication means: names in free text, matched against aliases.

Text and aliases are taken apart into words first (``Kimi-K2.6`` and ``kimi k2.6`` are the same), and
an alias matches whole words only: ``b200`` is not in ``GB200``, nor ``kimi-k2`` in ``Kimi-K2.6``. An alias
that ends in a version with a dot stands for all of its patches: ``vllm 0.15`` is in ``vLLM 0.15.1``. Of
several that match the longest wins. An entry's own name is one of its aliases.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.devices import Gpu
from hwmodels.drafters import Drafter
from hwmodels.entry import Entry
from hwmodels.models import TargetModel
from hwmodels.stacks import ExpertKernel
from hwmodels.work import DType
from sim.validation.errors import Unpredictable

_COUNTED = re.compile(r"(?<![a-z0-9.])(\d+) ?x ?(?=[a-z])")
"""``8xB200`` and ``2 x RTX A6000``."""
_SEPARATORS = re.compile(r"[^a-z0-9.]+|\.(?![a-z0-9])|(?<![a-z0-9])\.")


def words(text: str) -> str:
    """*text* in lower case, its words apart by single spaces and with one at both ends."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\N{MULTIPLICATION SIGN}", "x")
    plain = _COUNTED.sub(r"\1 x ", plain)
    return f" {' '.join(_SEPARATORS.sub(' ', plain).split())} "


class Match(NamedTuple):
    """An entry that a text names, and how much of the text it takes."""

    length: int
    entry: Entry


def matches(kind: Kind, text: str) -> list[Match]:
    """The entries of *kind* that *text* names, the longest alias first, equals by name."""
    said = words(text)
    found = []
    for name in catalog.names(kind):
        entry = catalog.entry(kind, name)
        length = max(
            (len(alias) for alias in map(words, (name, *entry.aliases)) if _is_in(alias, said)), default=0
        )
        if length:
            found.append(Match(length, entry))
    return sorted(found, key=lambda match: (-match.length, match.entry.name))


def _is_in(alias: str, said: str) -> bool:
    """Whether all of *alias* stands in *said*, both as ``words`` makes them."""
    if not alias.strip():
        return False
    versioned = "." in alias.rsplit(maxsplit=1)[-1]
    return alias in said or (versioned and re.search(rf"{re.escape(alias[:-1])}\.\d", said) is not None)


def _named(kind: Kind, what: str, text: str) -> Entry:
    """The entry of *kind* that *text* names best; Unpredictable where it names none."""
    found = matches(kind, text)
    if not found:
        raise Unpredictable(f"{what} '{text}' is not in the catalog" if text else f"the row names no {what}")
    return found[0].entry


def gpu(text: str) -> Gpu:
    """The GPU that *text* names."""
    return catalog.gpu(_named(Kind.GPU, "GPU", text).name)


def stack(engine: str, method: str = "") -> str:
    """The stack that the text of an engine column names, of two versions the one that suits *method*."""
    if not matches(Kind.STACK, engine):
        return _named(Kind.STACK, "engine", engine).name
    return _named(Kind.STACK, "engine", f"{engine} {method}").name


class Quantisation(Enum):
    """How a publication says that weights are stored; the value lists the storage types it can mean."""

    AWQ = (DType.AWQ_INT4, DType.INT4)
    Q4_K_M = (DType.Q4_K_M,)
    INT4 = (DType.INT4, DType.AWQ_INT4)
    NVFP4 = (DType.NVFP4,)
    FP8 = (DType.FP8_BLOCK, DType.FP8)
    BF16 = (DType.BF16,)


_SAID_AS = {
    Quantisation.AWQ: "awq|gptq",
    Quantisation.Q4_K_M: "q4 k m|q4 k s|q4 k|q4",
    Quantisation.INT4: "(?:mx)?int4|w4a16|4bit",
    Quantisation.NVFP4: "nvfp4|fp4",
    Quantisation.FP8: "fp8|w8a8",
    Quantisation.BF16: "bf16|bfloat16|fp16",
}
_QUANTISATION = re.compile(
    "|".join(f"(?P<{kind.name}>(?<= )(?:{pattern})(?= ))" for kind, pattern in _SAID_AS.items())
)


def quantisation(text: str) -> Quantisation | None:
    """What *text* says first of how weights are stored: experts come before attention."""
    found = _QUANTISATION.search(words(text))
    return None if found is None or found.lastgroup is None else Quantisation[found.lastgroup]


def weight_dtype(model: TargetModel) -> DType:
    """How most of a model's weights are stored: its experts where it has any."""
    return model.experts.dtype if model.experts is not None else model.plain_mlp_dtype


def target_model(text: str, quantised: str) -> TargetModel:
    """The target model that *text* names, in the variant that *quantised* (else *text*) says."""
    wanted = quantisation(quantised) or quantisation(text)
    if quantised.strip() and wanted is None:
        raise Unpredictable(f"quantisation '{quantised}' is not known")
    found = matches(Kind.MODEL, f"{text} {quantised}")
    if not found:
        raise Unpredictable(f"model '{text}' is not in the catalog" if text else "the row names no model")
    for match in found:
        model = catalog.target_model(match.entry.name)
        if wanted is None or weight_dtype(model) in wanted.value:
            return model
    have = ", ".join(sorted({weight_dtype(catalog.target_model(m.entry.name)).value for m in found}))
    assert wanted is not None
    raise Unpredictable(f"model '{text}' is known as {have}, not as {wanted.name}")


def drafter(text: str, method: str, target: TargetModel) -> Drafter:
    """The drafter of *target* that *text*, else the method, names: by itself or by its kind."""
    own = [entry for entry in _drafters() if _drafts_for(entry, target)]
    said = (*matches(Kind.DRAFTER, text), *matches(Kind.DRAFTER, method))
    named = [match.entry for match in said if match.entry in own]
    kinds = drafter_kinds(f"{text} {method}")
    by_name = [entry for kind in kinds for entry in own if kind in _kinds_of(entry)]
    by_method = [entry for kind in kinds for entry in own if kind == entry.method]
    for entry in (*named, *by_name, *by_method):
        return catalog.drafter(entry.name)
    what = f"no drafter '{text or method}' for {target.name} is in the catalog"
    have = ", ".join(entry.name for entry in own)
    raise Unpredictable(f"{what} (known for it: {have})" if have else what)


def drafter_kinds(text: str) -> list[str]:
    """The kinds of drafter that *text* speaks of, in order: ``eagle``, ``mtp``, ``dflash``, ``dflash2``."""
    return [kind for kind in map(_drafter_kind, words(text).split()) if kind]


def _drafters() -> list[Drafter]:
    """Those that are published."""
    entries = (catalog.drafter(name) for name in catalog.names(Kind.DRAFTER))
    return [entry for entry in entries if not entry.hypothetical]


_DRAFTER_KINDS = re.compile(r"(dflash2?|eagle|mtp|nextn)[0-9.]*")
_ALSO_CALLED = {"nextn": "mtp"}


def _drafter_kind(word: str) -> str | None:
    """``eagle`` for EAGLE, EAGLE3 and EAGLE3.1; None where *word* names no kind of drafter."""
    found = _DRAFTER_KINDS.fullmatch(word)
    return None if found is None else _ALSO_CALLED.get(found[1], found[1])


def _kinds_of(entry: Drafter) -> set[str]:
    """The kinds that the entry's own name has."""
    return set(drafter_kinds(entry.name))


def _drafts_for(entry: Drafter, target: TargetModel) -> bool:
    """Whether *entry* was trained for *target*, or for the model that *target* is a variant of."""
    return any(target.name == name or target.name.startswith(f"{name}_") for name in entry.targets)


def interconnect(text: str, of: Gpu) -> tuple[str, bool]:
    """The interconnect that *text* names, else the usual one of *of*; and whether it was named."""
    return _or_usual(matches(Kind.INTERCONNECT, text), of.usual_interconnect, of, "interconnect", text)


def host(text: str, of: Gpu) -> tuple[str, bool]:
    """The host that *text* names, else the usual one of *of*; and whether it was named."""
    return _or_usual(matches(Kind.HOST, text), of.usual_host, of, "host", "")


def _or_usual(found: Sequence[Match], usual: str | None, of: Gpu, what: str, text: str) -> tuple[str, bool]:
    if found:
        return found[0].entry.name, True
    if usual is None:
        said = f"'{text}' names none that is known" if text else "the row names none"
        raise Unpredictable(f"{what}: {said}, and none is usual for {of.name}")
    return usual, False


def expert_kernel(text: str, known: Iterable[ExpertKernel]) -> str | None:
    """The expert kernel of *known* that *text* asks for by name; None where it asks for none."""
    said = words(text)
    for kernel in known:
        short = (words(kernel.kernel), words(kernel.kernel.split("_", maxsplit=1)[0]))
        if any(name in said for name in short):
            return kernel.kernel
    return None
