"""Sources of two stand-ins for NVIDIA's ``libcuda.so.1``, from the calls that cuda.h declares.

* The *stub* answers every call with NO_DEVICE. pycuda links with it and imports on it; at run time
  the real driver takes its place. It must never lie where a real driver is looked for.
* The *rest* of the emulated driver: what ``emulated_driver.cpp`` does not have answers NOT_SUPPORTED.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NO_DEVICE = 100
NOT_SUPPORTED = 801

HEADERS = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
"""What to preprocess for the declarations."""
VARIANTS = ("", "__CUDA_API_VERSION_INTERNAL", "CUDA_API_PER_THREAD_DEFAULT_STREAM")
"""Macros that bring out old, new and per-thread names of the calls; one at a time."""

_DECLARED = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(")
_DEFINED = re.compile(r"^int (cu[A-Z]\w*)\(", re.MULTILINE)

_STUB_ANSWERS = {
    "cuDriverGetVersion": "int cuDriverGetVersion(int *v) { *v = 13000; return 0; }",
    "cuGetErrorName": 'int cuGetErrorName(int e, const char **s) { *s = "CUDA_ERROR_NO_DEVICE"; return 0; }',
    "cuGetErrorString": (
        "int cuGetErrorString(int e, const char **s)"
        ' { *s = "no CUDA-capable device is detected (stub libcuda)"; return 0; }'
    ),
}


def declared_calls(preprocessed: str) -> set[str]:
    """Names of the driver calls in *preprocessed* headers."""
    return set(_DECLARED.findall(preprocessed))


def defined_calls(source: str) -> set[str]:
    """Names of the driver calls that *source*, the emulated driver, has."""
    return set(_DEFINED.findall(source))


def stub_source(calls: Iterable[str]) -> str:
    """C source of the stub."""
    return "".join(_STUB_ANSWERS.get(name, _answer(name, NO_DEVICE)) + "\n" for name in sorted(calls))


def rest_source(calls: Iterable[str], emulated: str) -> str:
    """C source of the calls that the *emulated* driver's source lacks."""
    missing = set(calls) - defined_calls(emulated)
    return "".join(_answer(name, NOT_SUPPORTED) + "\n" for name in sorted(missing))


def _answer(name: str, code: int) -> str:
    return f"int {name}(void) {{ return {code}; }}"
