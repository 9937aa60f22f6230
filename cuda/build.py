"""Builds the kernels and what they run on, into ``build/cuda/``; nothing else is written.

* a kernel file for the host (g++ and the shim, optionally with sanitizers) or for a GPU (nvcc);
* the stub ``libcuda`` and the emulated one;
* pycuda, from its source release, linked with the stub.

Every result is named by the hash of all that it comes from, so it is made once, and made again when
anything changes. Several processes may build at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cuda.host import libcuda

SOURCES = Path(__file__).parent
KERNELS = SOURCES / "kernels"
HOST = SOURCES / "host"
BUILD = SOURCES.parent / "build" / "cuda"

PYCUDA = "pycuda==2026.1"
"""The oldest release for CUDA 13 is 2025.1.2; this one is tested."""
HOST_MARK = b"HOST_SHIM:"
"""Begins a module image that the emulated driver takes."""


class BuildError(Exception):
    """Something could not be built."""


class MissingToolError(BuildError):
    """A program or header that must be installed is not there."""

    def __init__(self, tool: str, needed_for: str, remedy: str) -> None:
        super().__init__(tool, needed_for, remedy)
        self.tool = tool

    def __str__(self) -> str:
        tool, needed_for, remedy = self.args
        return f"{tool} is not there, but {needed_for} needs it: {remedy}"


class CommandError(BuildError):
    """A command failed; carries what it said."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        super().__init__(tuple(command), output)

    def __str__(self) -> str:
        command, output = self.args
        return f"{' '.join(command)} failed:\n{output.strip()}"


class Target(Enum):
    """What a kernel file is compiled for."""

    HOST = "host"
    SANITIZED = "sanitized"
    """The host with the address and undefined-behaviour sanitizers."""
    SM_90 = "sm_90"
    SM_100 = "sm_100"
    SM_103 = "sm_103"
    SM_120 = "sm_120"

    @property
    def is_gpu(self) -> bool:
        """Whether nvcc compiles for it."""
        return self.value.startswith("sm_")


GPUS = tuple(target for target in Target if target.is_gpu)


def target_of(capability: tuple[int, int]) -> Target:
    """The target for a GPU's compute *capability*."""
    name = "sm_{}{}".format(*capability)
    try:
        return Target(name)
    except ValueError:
        known = ", ".join(target.value for target in GPUS)
        raise BuildError(f"no kernels are compiled for {name}; there are {known}") from None


def kernel_files() -> list[str]:
    """Names of the kernel files, without their ending."""
    return sorted(path.stem for path in KERNELS.glob("*.cu"))


# Kernels


def compile_kernel(file: str, target: Target) -> Path:
    """The cubin or shared library of kernel *file* for *target*.

    Raises ``MissingToolError`` or ``CommandError``, and ``BuildError`` for an unknown file.
    """
    if file not in kernel_files():
        raise BuildError(f"there is no kernel file {file}; there are {', '.join(kernel_files())}")
    return compile_source(KERNELS / f"{file}.cu", target)


def compile_source(source: Path, target: Target) -> Path:
    """``compile_kernel`` for any *source*."""
    return _compile_for_gpu(source, target) if target.is_gpu else _compile_for_host(source, target)


def module_image(file: str, target: Target) -> bytes:
    """What to load as a module: the cubin, or for the host what the emulated driver takes."""
    path = compile_kernel(file, target)
    return path.read_bytes() if target.is_gpu else HOST_MARK + os.fsencode(path) + b"\0"


def gpu_command() -> list[str]:
    """nvcc and its flags, without target and files."""
    return [find_nvcc(), "-cubin", "-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-I", str(KERNELS)]


def host_command(target: Target) -> list[str]:
    """g++ and its flags, without files."""
    include = ["-I", str(cuda_root() / "include"), "-I", str(HOST), "-I", str(KERNELS)]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    checks = sanitizers if target is Target.SANITIZED else []
    return [find_gxx(), "-std=c++17", "-O2", "-g1", "-fPIC", *warnings, *checks, *include]


def _compile_for_gpu(source: Path, target: Target) -> Path:
    command = [*gpu_command(), f"-arch={target.value}"]

    def make(out: Path) -> None:
        said = _run([*command, str(source), "-o", str(out)])
        _usage_file(out).write_text(said, encoding="utf-8")

    return _make_once(f"{target.value}/{source.stem}.cubin", [source, *_headers(KERNELS)], command, make)


def _compile_for_host(source: Path, target: Target) -> Path:
    command, shim = host_command(target), _compile_shim(target)
    inputs = [source, *_headers(KERNELS), *_headers(HOST), HOST / "host_shim.cpp"]
    units = [
        "-shared",
        "-include",
        "host_shim.h",
        "-x",
        "c++",
        str(source),
        "-x",
        "none",
        str(shim),
        "-lpthread",
    ]
    return _make_once(
        f"{target.value}/{source.stem}.so",
        inputs,
        command,
        lambda out: _run([*command, *units, "-o", str(out)]),
    )


def _compile_shim(target: Target) -> Path:
    source, command = HOST / "host_shim.cpp", host_command(target)
    return _make_once(
        f"{target.value}/host_shim.o",
        [source, *_headers(HOST)],
        command,
        lambda out: _run([*command, "-c", str(source), "-o", str(out)]),
    )


def _headers(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.h"), *folder.glob("*.cuh")])


# What ptxas says about a cubin


class Usage(NamedTuple):
    """Resources of one kernel."""

    entry: str
    registers: int
    """Per thread."""
    spilled_bytes: int
    shared_bytes: int
    """Static shared memory."""


def read_usage(cubin: Path) -> list[Usage]:
    """The resources of each kernel in a *cubin* that ``compile_kernel`` made."""
    said = _usage_file(cubin).read_text(encoding="utf-8")
    return [_parse_usage(part) for part in said.split("Compiling entry function '")[1:]]


def _usage_file(cubin: Path) -> Path:
    return Path(f"{cubin}.txt")


def _parse_usage(text: str) -> Usage:
    def count(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, text)))

    spilled = count(r"(\d+) bytes spill stores") + count(r"(\d+) bytes spill loads")
    return Usage(
        text.split("'", maxsplit=1)[0], count(r"Used (\d+) registers"), spilled, count(r"(\d+) bytes smem")
    )


# Stand-ins for libcuda


def build_stub() -> Path:
    """A folder with the stub as libcuda.so.1 and libcuda.so, to link with."""

    def make(out: Path) -> None:
        out.mkdir()
        source, library = out / "stub.c", out / "libcuda.so.1"
        source.write_text(libcuda.stub_source(driver_calls()), encoding="utf-8")
        _run([find_gxx(), "-x", "c", *_LIBCUDA_FLAGS, "-w", "-fno-builtin", str(source), "-o", str(library)])
        (out / "libcuda.so").symlink_to(library.name)

    return _make_once("stub", [HOST / "libcuda.py", cuda_root() / "include" / "cuda.h"], _LIBCUDA_FLAGS, make)


def build_emulated_driver() -> Path:
    """The emulated libcuda.so.1; load it before pycuda is imported."""
    source = HOST / "emulated_driver.cpp"

    def make(out: Path) -> None:
        out.mkdir()
        rest = out / "rest.c"
        rest.write_text(
            libcuda.rest_source(driver_calls(), source.read_text(encoding="utf-8")), encoding="utf-8"
        )
        compiler = find_gxx()
        _run([compiler, "-x", "c", "-c", "-fPIC", "-w", "-fno-builtin", str(rest), "-o", str(out / "rest.o")])
        own = ["-std=c++17", "-Wall", "-Wextra", "-Werror", str(source), str(out / "rest.o")]
        _run([compiler, *own, *_LIBCUDA_FLAGS, "-ldl", "-lpthread", "-o", str(out / "libcuda.so.1")])

    inputs = [source, HOST / "libcuda.py", cuda_root() / "include" / "cuda.h"]
    return _make_once("emulated", inputs, _LIBCUDA_FLAGS, make) / "libcuda.so.1"


_LIBCUDA_FLAGS = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]


@cache
def driver_calls() -> frozenset[str]:
    """Names of all calls of the driver that the toolkit's cuda.h declares."""
    command = [find_gxx(), "-E", "-P", "-x", "c", "-I", str(cuda_root() / "include"), "-"]
    found: set[str] = set()
    for variant in libcuda.VARIANTS:
        macro = [f"-D{variant}"] if variant else []
        found |= libcuda.declared_calls(_run([*command, *macro], stdin=libcuda.HEADERS))
    return frozenset(found)


# pycuda


def find_pycuda_site() -> Path | None:
    """The folder for PYTHONPATH that has pycuda, if it has been built for this Python."""
    site = BUILD / f"{_pycuda_name()}-{_hash(*_pycuda_sources())}"
    return site if site.exists() else None


def build_pycuda_site() -> Path:
    """A folder for PYTHONPATH with pycuda, built against the stub; takes a minute or two."""

    def make(out: Path) -> None:
        wheels = out.parent / f"{out.name}.wheels"
        _build_pycuda_wheel(wheels)
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-compile",
        ]
        _run([*install, "--target", str(out), *map(str, wheels.glob("*.whl"))], env=_pip_environment())
        shutil.rmtree(wheels)

    return _make_once(_pycuda_name(), *_pycuda_sources(), make)


def _pycuda_name() -> str:
    return "pycuda-cp{}{}".format(*sys.version_info)


def _pycuda_sources() -> tuple[list[Path], list[str]]:
    """What it comes from: the toolkit's header, the release and this Python."""
    return [cuda_root() / "include" / "cuda.h"], [PYCUDA, sys.version]


def _build_pycuda_wheel(folder: Path) -> None:
    environment = _pip_environment() | {
        # pycuda looks for headers beside the first nvcc on the path, which may be a wrapper.
        "CPATH": str(cuda_root() / "include"),
        "LIBRARY_PATH": str(build_stub()),
        "CFLAGS": "-O1 -g0 -w",
    }
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-cache-dir", "--no-deps"]
    _run([*wheel, "--wheel-dir", str(folder), PYCUDA], env=environment)


def _pip_environment() -> dict[str, str]:
    """A home of its own: pycuda reads a settings file from there, the only way to leave cuRAND out."""
    home = BUILD / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / ".aksetup-defaults.py").write_text("CUDA_ENABLE_CURAND = False\n", encoding="utf-8")
    return dict(os.environ) | {"HOME": str(home)}


# Tools


def find_nvcc() -> str:
    """The CUDA compiler."""
    return _find_tool(
        "nvcc", "compiling kernels for a GPU", "install the CUDA toolkit and put its bin on PATH"
    )


def find_gxx() -> str:
    """The host compiler."""
    return _find_tool("g++", "running kernels on the CPU", "install g++ 9 or newer")


def _find_tool(name: str, needed_for: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(name, needed_for, remedy)
    return found


@cache
def cuda_root() -> Path:
    """The toolkit's folder: CUDA_ROOT or CUDA_HOME, beside nvcc, or /usr/local/cuda."""
    named = [Path(os.environ[name]) for name in ("CUDA_ROOT", "CUDA_HOME") if name in os.environ]
    nvcc = shutil.which("nvcc")
    beside = [Path(nvcc).resolve().parents[1]] if nvcc else []
    for folder in [*named, *beside, Path("/usr/local/cuda")]:
        if (folder / "include" / "cuda.h").exists():
            return folder
    raise MissingToolError(
        "cuda.h", "the host shim", "install the CUDA toolkit, or set CUDA_ROOT to its folder"
    )


@cache
def tool_version(tool: str) -> str:
    """What *tool* says about itself."""
    return _run([tool, "--version"])


# Making things once


def _make_once(
    name: str, inputs: Sequence[Path], command: Sequence[str], make: Callable[[Path], object]
) -> Path:
    """``build/cuda/NAME`` with the hash of *inputs* and *command* before its ending; made if need be."""
    stem, dot, ending = name.partition(".")
    out = BUILD / f"{stem}-{_hash(inputs, command)}{dot}{ending}"
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    with _lock(Path(f"{out}.lock")):
        if not out.exists():
            _make_whole(out, make)
    return out


def _make_whole(out: Path, make: Callable[[Path], object]) -> None:
    """Make it under another name, so that a broken one is never found under its own."""
    unfinished = out.with_name(f"unfinished-{out.name}")
    _remove(unfinished)
    make(unfinished)
    usage = _usage_file(unfinished)
    if usage.exists():
        usage.rename(_usage_file(out))
    unfinished.rename(out)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _hash(inputs: Sequence[Path], command: Sequence[str]) -> str:
    # The folder is left out of the hash: a copy of the sources finds what the original made.
    flags = "\0".join(command).replace(str(SOURCES), "")
    digest = hashlib.sha256(flags.encode())
    if inputs:
        tool = command[0] if Path(command[0]).is_file() else find_gxx()
        digest.update(tool_version(tool).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: Sequence[str], stdin: str = "", env: dict[str, str] | None = None) -> str:
    """Both outputs of *command*."""
    done = subprocess.run(
        command,
        input=stdin,
        env=env,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise CommandError(command, done.stdout)
    return done.stdout
