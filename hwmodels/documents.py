"""Strict YAML 1.2 documents: line numbers kept, surprises refused.

``read`` turns a file into plain data plus the line of every key; ``validate``
turns that data into a frozen pydantic model or says what is wrong and where.
Refused: duplicate keys, tags, documents that grow beyond ``MAX_NODES`` through
aliases, directives, and anything nested deeper than ``MAX_DEPTH``.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hwmodels.errors import DocumentError

MAX_NODES = 10_000
MAX_DEPTH = 40
MAX_BYTES = 100_000
PLAIN_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
}

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A frozen model that refuses unknown keys, coercion, NaN and infinity."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@dataclass(frozen=True)
class Document:
    """Plain *data* read from *file*, with the file and 1-based line of each key path."""

    file: str
    data: dict[str, Any]
    places: dict[KeyPath, tuple[str, int]] = field(default_factory=dict)

    def place(self, path: KeyPath) -> tuple[str, int]:
        """File and line of *path* or of its nearest known ancestor; line 0 for the whole file."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places[path] if path else (self.file, 0)


def read(path: Path, error: type[DocumentError] = DocumentError) -> Document:
    """Read the mapping in the YAML file *path*; raise *error* where it is not one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise error(str(path), 0, "", f"larger than {MAX_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(str(path), 0, "", "no such file") from None
    except UnicodeDecodeError as problem:
        raise error(str(path), 0, "", f"not UTF-8 text: {problem.reason}") from None
    except OSError as problem:
        raise error(str(path), 0, "", problem.strerror or str(problem)) from None
    except ValueError as problem:
        raise error(str(path), 0, "", str(problem)) from None
    return parse(text, str(path), error)


@dataclass(frozen=True)
class Inheritance:
    """How a file that ``extends:`` another is laid over it."""

    error: type[DocumentError] = DocumentError
    rivals: frozenset[str] = frozenset()
    """Keys that replace one another (see ``merge``)."""
    own: frozenset[str] = frozenset()
    """Top-level keys that speak of one file only and are not inherited."""
    library: Path | None = None
    """A second folder to look for the extended file in."""
    prepare: Callable[[Document, Path], Document] = lambda document, _: document
    """Sees every document with its folder before it is merged."""


def resolve(path: Path, how: Inheritance = Inheritance()) -> Document:
    """Read *path* laid over the file that its ``extends:`` names, and so on down."""
    return _resolve(path, (), how)


def _resolve(path: Path, seen: tuple[Path, ...], how: Inheritance) -> Document:
    document = how.prepare(read(path, how.error), path.parent)
    base_name = document.data.pop("extends", None)
    if base_name is None:
        return document
    _, line = document.place(("extends",))
    if not isinstance(base_name, str):
        raise how.error(str(path), line, "extends", f"expected a file name, got {base_name!r}")
    base_path = _extended(base_name, path.parent, how.library)
    if base_path is None:
        known = sorted(p.stem for p in how.library.glob("*.yaml")) if how.library else []
        hint = did_you_mean(base_name.removesuffix(".yaml"), known)
        raise how.error(str(path), line, "extends", f"no such file: {base_name}{hint}")
    chain = (*seen, path.resolve())
    if base_path.resolve() in chain:
        names = " -> ".join(p.name for p in (*chain, base_path))
        raise how.error(str(path), line, "extends", f"goes in a circle: {names}")
    base = _resolve(base_path, chain, how)
    inherited = {key: value for key, value in base.data.items() if key not in how.own}
    places = {key: place for key, place in base.places.items() if not (key and key[0] in how.own)}
    merged = merge(inherited, document.data, how.rivals)
    return Document(str(path), merged, {**places, **document.places})


def _extended(name: str, folder: Path, library: Path | None) -> Path | None:
    """The file *name* in *folder*, else in *library*, there also without its ending."""
    places = [folder / name]
    if library is not None:
        places += [library / name, library / f"{name}.yaml"]
    return next((place for place in places if place.is_file()), None)


def merge(base: dict[str, Any], over: dict[str, Any], rivals: frozenset[str]) -> dict[str, Any]:
    """*over* laid on *base*: mappings merge key by key, anything else replaces.

    A key set to null takes the base's value away. Where *over* has one of the
    *rivals*, all that the base has of them go, its own value of that one too.
    """
    merged = {k: v for k, v in base.items() if not (k in rivals and rivals & over.keys())}
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value, rivals)
        else:
            merged[key] = value
    return merged


def parse(text: str, file: str, error: type[DocumentError] = DocumentError) -> Document:
    """Parse YAML *text* that came from *file*."""
    if text.lstrip("\ufeff").startswith("%") or "\n%" in text.partition("\n---")[0]:
        raise error(file, 1, "", "YAML directives are not allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _build(text, file, error)
    except MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else 0
        raise error(file, line, "", _invalid(problem.problem)) from None
    except ReusedAnchorWarning:
        raise error(file, 0, "", "not valid YAML: an anchor is defined twice") from None
    except (YAMLError, RecursionError, ValueError, LookupError, Warning) as problem:
        raise error(file, 0, "", _invalid(problem)) from None


def _invalid(problem: object) -> str:
    """The parser's complaint on one line."""
    return "not valid YAML: " + " ".join(str(problem).split())


def _build(text: str, file: str, error: type[DocumentError]) -> Document:
    yaml = YAML(typ="safe", pure=True)
    root = yaml.compose(text)
    if root is None:
        raise error(file, 0, "", "empty file")
    if not isinstance(root, MappingNode):
        raise error(file, root.start_mark.line + 1, "", "expected a mapping of keys to values")
    builder = _Builder(file, yaml, error)
    return Document(file, builder.build(root, (), 0), builder.places)


class _Builder:
    """Walks a node tree once, noting lines and refusing what the module says it refuses."""

    def __init__(self, file: str, yaml: YAML, error: type[DocumentError]) -> None:
        self.file = file
        self.yaml = yaml
        self.error = error
        self.places: dict[KeyPath, tuple[str, int]] = {}
        self.nodes = 0

    def build(self, node: Node, path: KeyPath, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._fail(node, path, f"more than {MAX_NODES:,} values (aliases that multiply?)")
        if depth > MAX_DEPTH:
            raise self._fail(node, path, f"nested deeper than {MAX_DEPTH} levels")
        if str(node.tag) not in PLAIN_TAGS:
            raise self._fail(node, path, f"tags such as {node.tag} are not allowed")
        self.places.setdefault(path, (self.file, node.start_mark.line + 1))
        if isinstance(node, MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self.build(n, (*path, i), depth + 1) for i, n in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or str(key_node.tag) not in PLAIN_TAGS:
                raise self._fail(key_node, path, "keys must be plain words")
            key = str(key_node.value)
            self.places[(*path, key)] = (self.file, key_node.start_mark.line + 1)
            if key in result:
                raise self._fail(key_node, (*path, key), "key given twice")
            result[key] = self.build(value_node, (*path, key), depth + 1)
        return result

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        value = self.yaml.constructor.construct_object(node)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._fail(node, path, f"must be a finite number, got {node.value}")
        if not isinstance(value, str | int | float | bool | None):
            value = str(node.value)
        if isinstance(value, str) and not value.isprintable() and _has_surrogate(value):
            raise self._fail(node, path, "not valid Unicode text")
        return value

    def _fail(self, node: Node, path: KeyPath, problem: str) -> DocumentError:
        return self.error(self.file, node.start_mark.line + 1, dotted(path), problem)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def dotted(path: KeyPath) -> str:
    """``("a", 0, "b")`` as ``a[0].b``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def validate(document: Document, model: type[Model], error: type[DocumentError] = DocumentError) -> Model:
    """Build *model* from *document*; the first problem becomes one *error*."""
    try:
        return model.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as problem:
        raise _translate(document, model, problem, error) from None


def _translate(
    document: Document, model: type[BaseModel], problem: ValidationError, error: type[DocumentError]
) -> DocumentError:
    # An unknown key first: it usually explains why another one is missing.
    first = min(problem.errors(include_url=False), key=lambda found: found["type"] != "extra_forbidden")
    kind, location = first["type"], tuple(first["loc"])
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        location = (*location, first["ctx"]["discriminator"].strip("'"))
    path = _without_tags(document.data, location)
    where = (*document.place(path), dotted(path))
    if kind == "extra_forbidden":
        known = known_keys(model, location[:-1])
        return error(*where, f"unknown key{did_you_mean(str(path[-1]), known)}")
    if kind in ("missing", "union_tag_not_found"):
        return error(*where, "missing, and it has no default")
    if kind == "value_error":
        return error(*where, str(first["ctx"]["error"]))
    if kind == "union_tag_invalid":
        tags = ", ".join(re.findall("'[^']*'", first["ctx"]["expected_tags"]))
        return error(*where, f"expected one of {tags}, got '{first['ctx']['tag']}'")
    wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    wanted = wanted.replace("an object", "a mapping of keys to values").replace("array", "list")
    hint = did_you_mean_choice(first)
    return error(*where, f"expected {wanted}, got {json.dumps(first['input'])}{hint}")


def _without_tags(data: Any, location: KeyPath) -> KeyPath:
    """*location* without the tags of unions that pydantic puts in: the file has no such keys."""
    path: list[str | int] = []
    for part in location[:-1]:
        if isinstance(data, dict) and part not in data:
            continue
        path.append(part)
        data = data[part]
    return (*path, *location[-1:])


def did_you_mean(word: str, known: list[str]) -> str:
    """``, did you mean 'budget'?`` for the nearest of *known*, else the list of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f", did you mean '{near[0]}'?"
    return f" (known: {', '.join(sorted(known))})" if known else ""


def did_you_mean_choice(problem: Any) -> str:
    """The nearest of an enum's values to a wrong one."""
    if problem["type"] != "enum" or not isinstance(problem["input"], str):
        return ""
    choices = [c.strip(" '") for c in problem["ctx"]["expected"].replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(problem["input"], choices, n=1, cutoff=0.5)
    return f", did you mean '{near[0]}'?" if near else ""


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys that *model* allows at *path*."""
    current: list[type[BaseModel]] = [model]
    for part in path:
        fields = [member.model_fields[part] for member in current if part in member.model_fields]
        tagged = [member for member in current if part in _tags(member)]
        # Positions of lists and keys of mappings lead no deeper: their model was found with the field.
        if fields:
            current = [found for field in fields for found in _submodels(field.annotation)]
        elif tagged:
            current = tagged
    named = (item for member in current for item in member.model_fields.items())
    return list(dict.fromkeys(field.alias or name for name, field in named))


def _submodels(annotation: Any) -> list[type[BaseModel]]:
    """The models that *annotation* allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _submodels(argument)]


def _tags(model: type[BaseModel]) -> list[str]:
    """What tells *model* apart from the other members of a union."""
    arguments = (a for f in model.model_fields.values() for a in getattr(f.annotation, "__args__", ()))
    return [argument.value for argument in arguments if isinstance(argument, Enum)]
