"""Which operation of ``cuda.launch`` a case is, on a device with so many processors."""

from __future__ import annotations

from cuda import launch, shapes
from cuda.launch import Cache, Operation
from hwmodels import cases
from hwmodels.cases import AnyCase
from hwmodels.work import DType

CACHES = {DType.BF16: Cache.BF16, DType.FP8: Cache.FP8}


class UnmeasurableError(Exception):
    """No kernel here does *case*: *reason*."""

    def __init__(self, case: AnyCase, reason: str) -> None:
        super().__init__(case, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{cases.words(self.args[0])}: {self.reason}"


def operation_of(case: AnyCase, processors: int) -> Operation:
    """The operation that *case* runs; UnmeasurableError where there is no kernel for it."""
    match case:
        case cases.Experts():
            _need(case, case.dtype is DType.INT4, "the expert kernel is for int4 weights")
            shape = (case.tokens, case.experts, case.top_k, case.hidden, case.intermediate)
            return launch.ExpertLayer(*shape)
        case cases.Mla():
            return _attention(case, processors)
        case cases.DenseGemm():
            _need(case, case.dtype is DType.BF16, "the dense kernel is for bf16")
            return launch.Gemm(case.tokens, case.n, case.k, launch.gemm_splits(case.n, case.k, processors))
        case cases.Norm():
            return launch.Norm(case.tokens, case.hidden)
        case cases.TopK():
            return launch.TopK(case.rows, case.k, case.vocabulary)
        case cases.TreeBuild():
            return launch.TreeBuild(1, case.positions, case.candidates, case.nodes)
        case cases.TreeAccept():
            return launch.TreeAccept(1, case.tokens - 1)
        case cases.DeviceCopy():
            return launch.Copy(case.size_bytes)
        case cases.EmptyKernel():
            return launch.Empty()
        case _:
            raise UnmeasurableError(case, "it is no kernel on one GPU")


def _attention(case: cases.Mla, processors: int) -> launch.TreeAttention:
    _need(case, case.dtype in CACHES, "the cache is bf16 or fp8")
    _need(case, case.latent == shapes.CACHE_WIDTH, f"a cached token has {shapes.CACHE_WIDTH} values")
    splits = launch.attention_splits(case.requests, case.queries, case.heads, case.context_tokens, processors)
    sizes = (case.requests, case.queries, case.context_tokens, splits)
    return launch.TreeAttention(*sizes, CACHES[case.dtype], case.heads)


def _need(case: AnyCase, condition: bool, reason: str) -> None:
    if not condition:
        raise UnmeasurableError(case, reason)
