"""The hardware catalog: one YAML file per GPU, interconnect, host, stack, model or drafter.

Every number is a ``Figure``: a value with its kind of source, a reference and,
where it is uncertain, a range. ``entry(Kind.GPU, "b300_sxm")`` finds an entry by
name, or by path where the name ends in ``.yaml``.
"""

from __future__ import annotations

import difflib
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hwmodels.devices import Gpu, Host, Interconnect
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
from hwmodels.measured import SHIPPED, SUFFIX
from hwmodels.models import TargetModel
from hwmodels.stacks import Stack

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
def entry(kind: Kind, name: str) -> Entry:
    """The entry *name* of *kind*; DocumentError where there is none."""
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
    found = entry(kind, name)
    assert isinstance(found, model)
    return found


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
        return kind, entry(kind, name)
    for kind in Kind:
        if name in names(kind):
            return kind, entry(kind, name)
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
