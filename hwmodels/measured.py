"""Measured files: what ``cuda.measure`` writes and the cost model draws from.

JSON lines. The first is a Header, then one Point a line, and the last says how many points
there were, so that a file cut short is seen. Points are sorted by case (``hwmodels.cases.order_of``),
then series in the order of ``Series``; no case has two points of one series. Samples are kept
in measured order; every statistic is derived from them.

A file from an emulated device says so and is refused, for its times are made up.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from hwmodels.cases import AnyCase, Case, EmptyInterval, Experts, Op, OrderKey, order_of, words
from hwmodels.documents import Strict, did_you_mean, known_keys
from hwmodels.errors import MeasuredFileError
from hwmodels.work import experts_touched

Array = NDArray[np.float64]

SCHEMA_VERSION = 1
"""1 (2026-11): first."""
SHIPPED = Path(__file__).with_name("measured")
SUFFIX = ".jsonl"
EMULATED_PREFIX = "EMULATED"
"""How the name of an emulated device begins."""
ROUTING_ERRORS = 6.0
"""Standard errors by which the experts touched may differ from what uniform routing gives."""
SHORTEST_US = 1e-6
"""No time but zero is shorter: clocks tick far more slowly, and divisions stay finite."""
LONGEST_US = 1e8
"""Nor is one longer: a point ends after seconds. Steps of such times still fit into whole nanoseconds."""
ROUNDING = 1e-9
"""Relative error of a median that was computed elsewhere."""
MOST_BYTES = 2**30
"""Of a file: a hundred times a whole plan. Chosen."""
OPS = [op.value for op in Op]
CASES: dict[str, type[BaseModel]] = {case.model_fields["op"].default: case for case in AnyCase.__args__}
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Of ``Header.measured_at``, in UTC."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{_short(text)} has characters that do not print")
    return text


Word = Annotated[str, AfterValidator(_printable)]
"""Text that reports print as it is."""
Time = Annotated[float, Field(ge=0, le=LONGEST_US)]
"""In us."""
Clock = Annotated[float, Field(gt=0)]
"""In MHz."""


class Series(Enum):
    """What lay in the L2 cache, and whether the kernel ran alone."""

    COLD = "cold"
    """Each sample after the cache was flushed."""
    WARM = "warm"
    """Each sample right after the one before."""
    GRAPH = "graph"
    """Copies of the kernel in one CUDA graph: a sample is the mean of a copy, gap to the next included."""


class StopReason(Enum):
    """Why no more samples were taken."""

    NOISE = "noise"
    """The noise fell below its target."""
    STEADY_NOISE = "steady noise"
    """The noise stays above its target and no longer changes."""
    INVALID = "invalid"
    """Too many samples in a row had to be discarded."""
    TIMEOUT = "timeout"
    ENOUGH = "enough"
    """The most samples that a plan asks for."""


class DiscardReason(Enum):
    """Why a sample does not count."""

    THROTTLED = "throttled"
    """The SM clock was below its share of the default clock."""
    HELD_TOO_LONG = "held too long"
    """The stream was released by its time-out."""
    PEER_MISSED = "peer missed"
    """A GPU gave up waiting for another."""


class Device(Strict):
    """The GPU that ran."""

    name: Word = Field(min_length=1)
    compute_capability: str = Field(pattern=r"^sm_\d+$")
    sm_count: int = Field(ge=1)
    l2_bytes: int = Field(ge=0)
    memory_bytes: int = Field(ge=1)
    default_sm_mhz: float = Field(gt=0)
    default_memory_mhz: float = Field(ge=0)


class Software(Strict):
    """What compiled and launched the kernels."""

    driver: Word
    nvcc: Word
    nvcc_flags: Word = ""
    """What nvcc was told; empty where a file does not say."""
    python: Word
    numpy: Word
    launcher: Word
    """What launched the kernels, and its version."""
    git_commit: Word


class Harness(Strict):
    """The parameters that samples were taken with."""

    plan: Word
    short: bool
    min_samples: int = Field(ge=1)
    max_samples: int = Field(ge=1)
    min_gpu_time_s: float = Field(ge=0)
    max_noise: float = Field(ge=0)
    timeout_s: float = Field(ge=0)
    throttle_share: float = Field(ge=0, le=1)
    """A sample below this share of the default SM clock is discarded."""
    passes: int = Field(ge=1)
    warm_ups: int = Field(ge=0)
    flush_bytes: int = Field(ge=0)
    graph_copies: int = Field(ge=1)

    @model_validator(mode="after")
    def _samples_have_a_range(self) -> Self:
        if self.min_samples > self.max_samples:
            raise ValueError(f"min_samples is {self.min_samples}, but max_samples is {self.max_samples}")
        return self


class Ceilings(Strict):
    """What this device was measured to reach; floors are computed with these."""

    copy_bandwidth_gb_s: float = Field(gt=0)
    """Bytes read and written."""
    bf16_tflops: float | None = Field(default=None, gt=0)


class Header(Strict):
    """Where a file's points come from."""

    line: Literal["header"] = "header"
    schema_version: int
    emulated: bool
    device: Device
    software: Software
    harness: Harness
    ceilings: Ceilings
    seed: int = Field(ge=0)
    source_sha256: dict[str, str]
    """Of every kernel source."""
    measured_at: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    @model_validator(mode="after")
    def _measured_on_a_day(self) -> Self:
        try:
            datetime.strptime(self.measured_at, TIME_FORMAT)
        except ValueError:
            raise ValueError(f"measured_at is no time of any day: {self.measured_at}") from None
        return self

    @model_validator(mode="after")
    def _emulation_shows(self) -> Self:
        if self.emulated != self.device.name.startswith(EMULATED_PREFIX):
            said = str(self.emulated).lower()
            raise ValueError(f"emulated is {said}, but the device is called '{self.device.name}'")
        return self


class Point(Strict):
    """All samples of one case in one series."""

    line: Literal["point"] = "point"
    case: Case
    series: Series
    kernel: Word = Field(min_length=1)
    """The instruction path, such as ``mma.sync``."""
    samples_us: tuple[float, ...] = Field(min_length=1)
    """Each 0 or from SHORTEST_US to LONGEST_US; not all 0 but for an empty interval."""
    touched_experts: tuple[int, ...] | None = None
    """Distinct experts of each sample; for ``experts`` and nothing else."""
    discarded: dict[DiscardReason, Annotated[int, Field(ge=0)]]
    stop: StopReason
    """Of the last pass."""
    bytes: int = Field(ge=0)
    flops: int = Field(ge=0)
    floor_us: Time
    """What the bytes or the flops take at the measured ceilings; 0 where there is no such bound."""
    pass_medians_us: tuple[float, ...]
    """One for each time that the plan was gone through; none lies outside the samples."""
    pass_stops: tuple[StopReason, ...] = ()
    """Of each pass; empty where a file does not say."""
    sm_clock_mhz: Clock | None = None
    """Median over the samples of the last pass."""
    pass_clocks_mhz: tuple[Clock | None, ...] = ()
    """As ``sm_clock_mhz``, of each pass; None where no sample was long enough to tell."""
    clocked_samples: int = Field(default=0, ge=0)
    """Samples long enough to tell the SM clock: the others cannot be seen to be throttled."""

    @model_validator(mode="after")
    def _samples_are_times(self) -> Self:
        for at, us in enumerate(self.samples_us):
            if us < 0:
                raise ValueError(f"samples_us[{at}] is negative: {us}")
            if us > LONGEST_US or 0 < us < SHORTEST_US:
                raise ValueError(f"samples_us[{at}] is no time of a kernel: {us:g}")
        if not any(self.samples_us) and not isinstance(self.case, EmptyInterval):
            raise ValueError(f"samples_us are all 0, which no {self.case.op} takes")
        return self

    @model_validator(mode="after")
    def _experts_are_counted(self) -> Self:
        touched = self.touched_experts
        if isinstance(self.case, Experts) == (touched is None):
            raise ValueError("touched_experts goes with the op experts, and with nothing else")
        if touched is not None and len(touched) != len(self.samples_us):
            raise ValueError(f"{len(touched)} touched_experts for {len(self.samples_us)} samples_us")
        if touched is not None and isinstance(self.case, Experts):
            _check_routing(self.case, touched)
        return self

    @model_validator(mode="after")
    def _passes_agree(self) -> Self:
        passes = len(self.pass_medians_us)
        for name, said in (("pass_stops", self.pass_stops), ("pass_clocks_mhz", self.pass_clocks_mhz)):
            if said and len(said) != passes:
                raise ValueError(f"{len(said)} {name} for {passes} pass_medians_us")
        low, high = min(self.samples_us), max(self.samples_us)
        for at, us in enumerate(self.pass_medians_us):
            # A median may be rounded otherwise than the samples.
            if not low * (1 - ROUNDING) <= us <= high * (1 + ROUNDING):
                raise ValueError(f"pass_medians_us[{at}] is {us:g}, outside samples_us, {low:g} to {high:g}")
        if self.clocked_samples > len(self.samples_us):
            raise ValueError(f"{self.clocked_samples} clocked_samples of {len(self.samples_us)} samples_us")
        return self

    @property
    def median_us(self) -> float:
        """The median of the samples."""
        return float(np.median(self.samples_us))

    @property
    def relative_iqr(self) -> float:
        """Interquartile range over median; 0 where the median is."""
        low, high = np.quantile(self.samples_us, (0.25, 0.75))
        return float((high - low) / self.median_us) if self.median_us else 0.0

    @property
    def achieved(self) -> float | None:
        """Floor over median; None where there is no floor."""
        return self.floor_us / self.median_us if self.floor_us and self.median_us else None

    @property
    def order(self) -> OrderKey:
        """Files are sorted by this."""
        return (*order_of(self.case), list(Series).index(self.series))


class End(Strict):
    """The last line."""

    line: Literal["end"] = "end"
    points: int = Field(ge=0)


@dataclass(frozen=True)
class MeasuredFile:
    """A measured file, read."""

    name: str
    """The file's name without its folder."""
    sha256: str
    """Of its bytes."""
    header: Header
    points: tuple[Point, ...]


Line = TypeVar("Line", Header, Point, End)


def _check_routing(case: Experts, touched: tuple[int, ...]) -> None:
    """Refuse counts of experts that *case* cannot touch, or that uniform routing does not."""
    few, many = min(touched), max(touched)
    most = min(case.experts, case.tokens * case.top_k)
    if few < case.top_k or many > most:
        raise ValueError(f"touched_experts run from {few} to {many}, outside {case.top_k} to {most}")
    expected = experts_touched(case.tokens, case.experts, case.top_k)
    # Experts exclude one another, so the variance is below that of independent ones.
    error = np.sqrt(expected * (1 - expected / case.experts) / len(touched))
    mean = float(np.mean(touched))
    if abs(mean - expected) > ROUTING_ERRORS * error + 1e-9:
        raise ValueError(f"touched_experts average {mean:.1f}, where uniform routing gives {expected:.1f}")


def write(path: Path, header: Header, points: Iterable[Point]) -> None:
    """Put a measured file at *path* in one move, its *points* sorted; MeasuredFileError for two of a kind."""
    ordered = sorted(points, key=lambda point: point.order)
    _check_order(path.name, ordered)
    lines = [header, *ordered, End(points=len(ordered))]
    temporary = temporary_of(path)
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line.model_dump_json(exclude_none=True) + "\n" for line in lines)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_of(path: Path) -> Path:
    """Where what is to be at *path* is written first."""
    return path.with_name(f".{os.getpid()}-{path.name}")


def read(path: Path, allow_emulated: bool = False) -> MeasuredFile:
    """The measured file at *path*; MeasuredFileError where anything about it is wrong.

    *allow_emulated* is for tests and for the harness that goes on with a file of its own.
    """
    file = str(path)
    content = _bytes(path)
    lines = _lines(content, file)
    header = _header(next(lines), file, allow_emulated)
    rest = list(lines)
    if not rest or rest[-1][1].get("line") != "end":
        wanted = "a line that counts the points (copied in part? copy it again)"
        raise MeasuredFileError(file, len(rest) + 1, "the file ends here", wanted)
    points = [_validated(line, Point, file) for line in rest[:-1]]
    end = _validated(rest[-1], End, file)
    if end.points != len(points):
        found = f"{len(points)} points"
        raise MeasuredFileError(file, rest[-1][0], found, f"the {end.points} that the last line counts")
    _check_order(file, points, first_line=2)
    return MeasuredFile(path.name, hashlib.sha256(content).hexdigest(), header, tuple(points))


NumberedLine = tuple[int, dict[str, Any], str]
"""Its number, what it says, and its text."""


def _bytes(path: Path) -> bytes:
    try:
        found = path.stat()
        # A pipe or a device would be waited for, or read for ever.
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise MeasuredFileError(str(path), 0, "no regular file", "a measured file (.jsonl)")
        if found.st_size > MOST_BYTES:
            raise MeasuredFileError(str(path), 0, f"{found.st_size:,} bytes", f"{MOST_BYTES:,} at most")
        return path.read_bytes()
    except FileNotFoundError:
        raise MeasuredFileError(str(path), 0, "no such file", "a measured file (.jsonl)") from None
    except OSError as problem:
        raise MeasuredFileError(str(path), 0, problem.strerror or str(problem), "a readable file") from None


def _lines(content: bytes, file: str) -> Iterator[NumberedLine]:
    """Every line of *content* as JSON; at least one."""
    if not content.strip():
        raise MeasuredFileError(file, 0, "an empty file", "a header, points and a last line")
    for number, raw in enumerate(content.splitlines(), start=1):
        try:
            text = raw.decode("utf-8")
            found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
        except UnicodeDecodeError:
            raise MeasuredFileError(file, number, "bytes that are no UTF-8", "JSON text") from None
        except (ValueError, RecursionError) as problem:
            raise MeasuredFileError(file, number, str(problem), "one JSON object a line") from None
        if not isinstance(found, dict):
            raise MeasuredFileError(file, number, f"a {type(found).__name__}", "one JSON object a line")
        yield number, found, text


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word}, which is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """*pairs* as a mapping; ValueError for a key that is given twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key '{twice}' twice")
    return found


def _header(line: NumberedLine, file: str, allow_emulated: bool) -> Header:
    number, found, _ = line
    _check_kind(line, Header, file)
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise MeasuredFileError(file, number, f"schema_version {version!r}", f"version {SCHEMA_VERSION}")
    header = _validated(line, Header, file)
    if header.emulated and not allow_emulated:
        raise MeasuredFileError(
            file, number, f"times made up by '{header.device.name}'", "a file measured on a GPU"
        )
    return header


def _validated(line: NumberedLine, model: type[Line], file: str) -> Line:
    _check_kind(line, model, file)
    number, _, text = line
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as problem:
        raise MeasuredFileError(file, number, *_complaint(problem, model)) from None


def _check_kind(line: NumberedLine, model: type[Line], file: str) -> None:
    number, found, _ = line
    wanted = model.model_fields["line"].default
    if found.get("line") != wanted:
        raise MeasuredFileError(file, number, f"a line of kind {found.get('line')!r}", f"the kind '{wanted}'")


def _complaint(problem: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """What was found and what was expected, of the first thing that is wrong with a line."""
    first = min(problem.errors(include_url=False), key=lambda found: found["type"] != "extra_forbidden")
    loc, named = first["loc"], first["loc"]
    if len(loc) > 1 and loc[0] == "case" and loc[1] in CASES:
        # A union names its member in the path; the file does not.
        model, loc, named = CASES[str(loc[1])], loc[2:], ("case", *loc[2:])
    key = ".".join(map(str, named))
    where = f"{key}: " if key else ""
    match first["type"]:
        case "union_tag_invalid" | "union_tag_not_found":
            found = _short(first["input"].get("op"))
            return f"{where}op {found}", f"an op{did_you_mean(found, OPS)}"
        case "extra_forbidden":
            hint = did_you_mean(str(loc[-1]), known_keys(model, tuple(loc[:-1])))
            return f"{where}unknown key", f"a key of this schema version{hint}"
        case "missing":
            return f"{where}nothing", "a value"
        case "value_error":
            return f"{where}{first['ctx']['error']}", "a point or header that agrees with itself"
        case _:
            wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
            return f"{where}{_short(first['input'])}", wanted


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_order(file: str, points: list[Point], first_line: int = 0) -> None:
    """Refuse points that are not sorted, or two of one case and series."""
    for place, (before, after) in enumerate(pairwise(points), start=1):
        line = first_line + place if first_line else 0
        what = f"{words(after.case)}, {after.series.value}"
        if before.order == after.order:
            raise MeasuredFileError(file, line, f"{what} a second time", "one point for each case and series")
        if before.order > after.order:
            raise MeasuredFileError(
                file, line, f"{what} after {words(before.case)}", "points sorted by op, sizes, series"
            )
