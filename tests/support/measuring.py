"""Measured files made up for tests: emulated, and called so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hwmodels import cases, measured
from hwmodels.cases import AllReduceAlgorithm, AnyCase
from hwmodels.measured import (
    Ceilings,
    Device,
    DiscardReason,
    Harness,
    Header,
    Point,
    Series,
    Software,
    StopReason,
)
from hwmodels.work import CopyDirection, DType

SHARD = {"experts": 384, "top_k": 8, "hidden": 7168, "intermediate": 256, "dtype": DType.INT4}
CACHE = {"requests": 1, "heads": 8, "latent": 576, "dtype": DType.BF16}
MADE_UP = Software(
    driver="none", nvcc="none", python="none", numpy="none", launcher="none", git_commit="none"
)


def device(compute_capability: str = "sm_90") -> Device:
    """An emulated device that passes for one of *compute_capability*."""
    return Device(
        name="EMULATED device of a test",
        compute_capability=compute_capability,
        sm_count=1,
        l2_bytes=1,
        memory_bytes=1,
        default_sm_mhz=1.0,
        default_memory_mhz=1.0,
    )


def header(**changes: Any) -> Header:
    """The header of an emulated file, some of its fields changed."""
    harness = Harness(
        plan="made up",
        short=True,
        min_samples=1,
        max_samples=1000,
        min_gpu_time_s=0.0,
        max_noise=1.0,
        timeout_s=1.0,
        throttle_share=0.0,
        passes=1,
        warm_ups=0,
        flush_bytes=0,
        graph_copies=20,
    )
    fields: dict[str, Any] = {
        "schema_version": measured.SCHEMA_VERSION,
        "emulated": True,
        "device": device(),
        "software": MADE_UP,
        "harness": harness,
        "ceilings": Ceilings(copy_bandwidth_gb_s=1.0),
        "seed": 1,
        "source_sha256": {},
        "measured_at": "2000-01-01T00:00:00Z",
    }
    return Header(**(fields | changes))


def point(case: AnyCase, samples_us: Any, series: Series = Series.COLD, **changes: Any) -> Point:
    """A point with *samples_us*; one of experts touches what uniform routing gives."""
    samples = tuple(float(sample) for sample in samples_us)
    fields: dict[str, Any] = {
        "kernel": "made up",
        "discarded": {},
        "stop": StopReason.ENOUGH,
        "bytes": 0,
        "flops": 0,
        "floor_us": 0.0,
        "pass_medians_us": (float(np.median(samples)),),
        "touched_experts": routed(case, len(samples)) if isinstance(case, cases.Experts) else None,
    }
    return Point(case=case, series=series, samples_us=samples, **(fields | changes))


def routed(case: cases.Experts, samples: int) -> tuple[int, ...]:
    """Distinct experts that a uniform router touches, sample by sample."""
    luck = np.random.default_rng(case.tokens)
    chosen = luck.random((samples, case.tokens, case.experts)).argpartition(case.top_k, axis=2)
    return tuple(len(np.unique(sample[:, : case.top_k])) for sample in chosen)


def experts(tokens: int) -> cases.Experts:
    """A Kimi layer on one of eight ranks."""
    return cases.Experts(tokens=tokens, **SHARD)


def mla(queries: int, context_tokens: int) -> cases.Mla:
    """Attention of one Kimi layer on one of eight ranks."""
    return cases.Mla(queries=queries, context_tokens=context_tokens, **CACHE)


def write(path: Path, *points: Point, **changes: Any) -> Path:
    """A file of *points* at *path*."""
    measured.write(path, header(**changes), points)
    return path


sizes = st.integers(1, 10**9)
# Nothing takes less than a millionth of a microsecond, but an empty interval may take none.
samples = st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=1, max_size=5).filter(any)
none_at_all = st.lists(st.just(0.0), min_size=1, max_size=5)
some_cases: st.SearchStrategy[AnyCase] = st.one_of(
    st.builds(experts, st.integers(1, 40)),
    st.builds(mla, st.integers(1, 64), st.integers(0, 10**6)),
    st.builds(cases.DenseGemm, tokens=sizes, n=sizes, k=sizes, dtype=st.sampled_from(DType)),
    st.builds(cases.Norm, tokens=sizes, hidden=sizes),
    st.builds(cases.TopK, rows=sizes, vocabulary=sizes, k=sizes),
    st.builds(cases.TreeBuild, nodes=sizes, positions=sizes, candidates=sizes),
    st.builds(cases.TreeAccept, tokens=sizes),
    st.builds(
        cases.Reduce,
        message_bytes=sizes,
        ranks=st.integers(2, 8),
        algorithm=st.sampled_from(AllReduceAlgorithm),
    ),
    st.builds(
        cases.ReduceStandin,
        message_bytes=sizes,
        ranks=st.integers(2, 8),
        algorithm=st.sampled_from(AllReduceAlgorithm),
    ),
    st.builds(cases.DeviceCopy, size_bytes=sizes),
    st.builds(cases.HostCopy, size_bytes=sizes, direction=st.sampled_from(CopyDirection)),
    st.builds(cases.GraphLaunch, nodes=sizes),
    st.builds(cases.GraphReplay, nodes=sizes),
    st.just(cases.EmptyKernel()),
    st.just(cases.EmptyInterval()),
)
some_timed = st.tuples(some_cases, samples) | st.tuples(st.just(cases.EmptyInterval()), none_at_all)
some_points = st.builds(
    lambda timed, series, **changes: point(*timed, series, **changes),
    some_timed,
    st.sampled_from(Series),
    discarded=st.dictionaries(st.sampled_from(DiscardReason), st.integers(0, 99)),
    stop=st.sampled_from(StopReason),
    bytes=st.integers(0, 10**12),
    floor_us=st.floats(0, 1e6),
    sm_clock_mhz=st.none() | st.floats(1, 1e4),
)
some_files = st.lists(some_points, max_size=6, unique_by=lambda found: found.order)


PLAN_TOKENS = (1, 2, 4, 8, 9, 16, 17, 33)
PLAN_CONTEXTS = (1024, 4096, 16384)


def bimodal(low_us: float, samples: int = 200) -> list[float]:
    """Times that nobody would take for a kernel's: half of them *low_us*, half of them three times that."""
    return [low_us, 3 * low_us] * (samples // 2)


def kimi_points() -> list[Point]:
    """What a decode step of Kimi asks for, at times that are plainly made up."""
    found = [point(experts(tokens), bimodal(10 + tokens)) for tokens in PLAN_TOKENS]
    for queries in PLAN_TOKENS:
        found += [point(mla(queries, c), bimodal(5 + queries + c / 1000)) for c in PLAN_CONTEXTS]
    for tokens in PLAN_TOKENS:
        gate = cases.DenseGemm(tokens=tokens, n=384, k=7168, dtype=DType.BF16)
        found.append(point(gate, bimodal(3 + tokens)))
        found.append(point(cases.Norm(tokens=tokens, hidden=7168), bimodal(1 + tokens), Series.GRAPH))
    found += [point(cases.TopK(rows=r, vocabulary=20480, k=8), bimodal(7), Series.WARM) for r in (1, 15)]
    found += [point(cases.TreeAccept(tokens=n), bimodal(2), Series.WARM) for n in (1, 65)]
    found += [point(cases.GraphLaunch(nodes=n), bimodal(n / 10), Series.WARM) for n in (1, 4000)]
    return found


def kimi_file(folder: Path, name: str = "emulated_gpu.jsonl") -> Path:
    """A measured file in *folder*, made up and marked so."""
    return write(folder / name, *kimi_points())


def write_gpu(folder: Path, extends: str = "h200_sxm", measured: str = "emulated_gpu.jsonl") -> Path:
    """A GPU in *folder* that names a measured file beside it."""
    path = folder / "emulated_gpu.yaml"
    text = (
        f"extends: {extends}\nname: emulated_gpu\ntitle: A GPU with made up samples\nmeasured: {measured}\n"
    )
    path.write_text(text, encoding="utf-8")
    return path
