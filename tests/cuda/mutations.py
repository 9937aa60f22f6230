"""Seeded bugs: are the tests of kernels able to fail?

``python tests/cuda/mutations.py [WORD]`` applies each bug (or those whose line has WORD) to a copy,
runs the tests of that kernel file, then the sanitizers, and says what caught it. Exits with 1 if one
is missed. Without WORD the verdicts go into ``verdicts.txt``, to be committed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from cuda_cases import CASES  # noqa: E402 - found beside the tests

SECONDS_TO_HANG = 240.0
VERDICTS = Path(__file__).with_name("verdicts.txt")
MISSED = "MISSED"


class Mutation(NamedTuple):
    file: str
    bug: str
    before: str
    """Occurs once in the file."""
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.bug}"


MUTATIONS = [
    Mutation(
        "ddtree",
        "a barrier dropped before the next node is looked for",
        "slot, count, count);\n    }\n    __syncwarp();\n",
        "slot, count, count);\n    }\n",
    ),
    Mutation(
        "ddtree",
        "of equals the one pushed last",
        "static_cast<unsigned>(0xffff - push) << 16",
        "static_cast<unsigned>(push) << 16",
    ),
    Mutation(
        "ddtree",
        "the sibling counts as pushed after the child",
        "sibling, 2 * node - 1)",
        "sibling, 2 * node + 1)",
    ),
    Mutation("ddtree", "a wrong mask bit beyond the first 16 nodes", "1u << node % 32", "1u << node % 16"),
    Mutation(
        "ddtree",
        "the child takes its parent's position",
        "marginal[depth * ranks]",
        "marginal[(depth - 1) * ranks]",
    ),
    Mutation(
        "accept",
        "half of the warp missing from a ballot",
        "__ballot_sync(ALL_LANES,",
        "__ballot_sync(0xffffu,",
    ),
    Mutation(
        "accept",
        "a barrier dropped between clearing and writing the path",
        "committed[row + i] = -1;\n  __syncwarp();\n",
        "committed[row + i] = -1;\n",
    ),
    Mutation(
        "accept",
        "the first accepted node instead of the deepest",
        "static_cast<unsigned>(nodes.depth[i]) << 16",
        "0u << 16",
    ),
    Mutation(
        "accept",
        "nodes beyond the tree are read",
        "node >= count || (node > 0",
        "(node > 0",
    ),
    Mutation(
        "mla_tree_attention",
        "a barrier dropped when a tile arrives",
        "    __syncthreads();  // this tile has arrived, and everyone is done with the one before\n",
        "",
    ),
    Mutation(
        "mla_tree_attention",
        "a barrier dropped before the softmax",
        "    __syncthreads();\n    weigh_keys",
        "    weigh_keys",
    ),
    Mutation(
        "mla_tree_attention",
        "a barrier dropped before the values are added",
        "    __syncthreads();\n    rescale_output",
        "    rescale_output",
    ),
    Mutation(
        "mla_tree_attention",
        "a tile is used before it has arrived",
        "    wait_async<0>();\n    __syncthreads();  // this",
        "    wait_async<1>();\n    __syncthreads();  // this",
    ),
    Mutation("mla_tree_attention", "a wrong mask bit", ">> own % 32 & 1u", ">> (own & 15) & 1u"),
    Mutation("mla_tree_attention", "a wrong mask word", "words + own / 32]", "words]"),
    Mutation(
        "mla_tree_attention",
        "the total is not rescaled",
        "shared.total[row] * rescale + total",
        "shared.total[row] + total",
    ),
    Mutation(
        "mla_tree_attention",
        "rows beyond the last are written",
        "      for (int column = 0; column < COLUMN_TILES; ++column)\n        if (row < rows)\n",
        "      for (int column = 0; column < COLUMN_TILES; ++column)\n",
    ),
    Mutation(
        "mla_tree_attention",
        "keys beyond the last are read",
        "const bool valid = first + key < end;",
        "const bool valid = first + key < end + KEYS;",
    ),
    Mutation(
        "mla_tree_attention",
        "a barrier dropped after the fp8 tile is converted",
        "      __syncthreads();\n    }\n",
        "    }\n",
    ),
    Mutation(
        "mla_tree_attention",
        "a barrier dropped before the warps' shares are joined",
        "  total_of_warp[warp] = own.total;\n  __syncthreads();\n",
        "  total_of_warp[warp] = own.total;\n",
    ),
    Mutation(
        "mla_tree_attention",
        "only every eighth share is joined",
        "first < splits; first += WARPS * AHEAD)",
        "first < min(splits, 1); first += WARPS * AHEAD)",
    ),
    Mutation(
        "mla_tree_attention",
        "the highest score of the first shares only",
        "  return warp_max(highest);\n",
        "  return highest;\n",
    ),
    Mutation(
        "experts_w4a16",
        "the scale of the neighbouring group",
        "unit.scales[group][",
        "unit.scales[group ^ 1][",
    ),
    Mutation(
        "experts_w4a16",
        "a barrier dropped when a unit arrives",
        "    __syncwarp();  // scales came through other lanes, and the oldest unit has been read\n",
        "",
    ),
    Mutation(
        "experts_w4a16",
        "a unit is used before it has arrived",
        "wait_async<STAGES - 2>",
        "wait_async<STAGES - 1>",
    ),
    Mutation(
        "experts_w4a16",
        "a barrier dropped before the warps' sums are read",
        "  __syncthreads();\n  for (int w = 1",
        "  for (int w = 1",
    ),
    Mutation(
        "experts_w4a16", "slots of the next expert are overwritten", "if (slot < end) out[to]", "out[to]"
    ),
    Mutation(
        "experts_w4a16",
        "only the first eight tokens of an expert",
        "base < end; base += TOKENS) {\n    const uint4* row = slots.row(base + lane / 4, end);\n"
        "    stream_units(ring[warp], from, share",
        "base < end; base += 99) {\n    const uint4* row = slots.row(base + lane / 4, end);\n"
        "    stream_units(ring[warp], from, share",
    ),
    Mutation(
        "gemm_bf16",
        "a barrier dropped when a stage arrives",
        "    __syncthreads();  // stage i has arrived, and everyone has read the one before\n",
        "",
    ),
    Mutation("gemm_bf16", "the counter is not set back", "    if (last) *counter = 0u;\n", ""),
    Mutation(
        "gemm_bf16",
        "the last columns are lost where splits do not divide them",
        "(split + 1) * stages / splits * COLUMNS",
        "(split * stages / splits + stages / splits) * COLUMNS",
    ),
    Mutation(
        "gemm_bf16",
        "a token beyond the last is written",
        " && first_token + token < x.rows)",
        " && first_token + token <= x.rows)",
    ),
    Mutation("norm", "a barrier dropped before the warps' sums are read", "  __syncthreads();\n", ""),
    Mutation("top_k", "-0 comes after 0", "__float_as_uint(value + 0.f)", "__float_as_uint(value)"),
    Mutation("top_k", "a value is taken twice", "if (key < limit)", "if (key <= limit)"),
    Mutation("top_k", "the end of the row is read past", "min(begin + share, vocabulary)", "begin + share"),
    Mutation(
        "allreduce",
        "nobody waits for the peers",
        "    wait_for_peer(peers, phase);\n",
        "    if (phase > 1) wait_for_peer(peers, phase);\n",
    ),
    Mutation(
        "allreduce",
        "the flag of the call before counts",
        "load_acquire(flag) - peers.epoch) < 0",
        "load_acquire(flag) - peers.epoch) < -1",
    ),
    Mutation(
        "allreduce",
        "one shot: an input may be overwritten while it is read",
        "  meet_peers(peers, 1);  // nobody",
        "  // nobody",
    ),
    Mutation(
        "allreduce",
        "two shot: slices are gathered before they are there",
        "  meet_peers(peers, 1);  // the",
        "  // the",
    ),
    Mutation(
        "allreduce",
        "the last slice runs over the end",
        "min(vectors, (rank + 1) * slice)",
        "(rank + 1) * slice",
    ),
    Mutation(
        "support",
        "the rest of a copy is forgotten",
        "  for (; i < vectors; i += stride) to[i] = from[i];\n",
        "",
    ),
    Mutation(
        "support",
        "the last vector is not swept",
        "i < vectors; i += stride) {\n    const uint4 v",
        "i + 1 < vectors; i += stride) {\n    const uint4 v",
    ),
    Mutation("support", "every sum is written", "if (sum == RARE)", "if (sum <= RARE)"),
    Mutation(
        "support", "a stamp of another SM", "if (processor_number() != 0)", "if (processor_number() < 3)"
    ),
]

TESTS = {
    "ddtree": ["test_trees.py"],
    "accept": ["test_trees.py"],
    "mla_tree_attention": ["test_masks.py"],
    "experts_w4a16": ["test_experts.py"],
    "top_k": ["test_numbers.py"],
    "allreduce": ["test_allreduce.py"],
    "support": ["test_support.py"],
}
"""Beside test_kernels.py, which runs for all."""
COPIED = ("cuda", "sim", "hwmodels", "tests", "pyproject.toml")


def copy_sources(to: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)
    # What is not changed need not be compiled again.
    for target in ("host", "sanitized"):
        if (ROOT / "build" / "cuda" / target).exists():
            shutil.copytree(ROOT / "build" / "cuda" / target, to / "build" / "cuda" / target)


def apply(mutation: Mutation, root: Path) -> None:
    path = root / "cuda" / "kernels" / f"{mutation.file}.cu"
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.before) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.before!r} occurs {text.count(mutation.before)} times")
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")


def run_tests(root: Path, names: list[str], chosen: str) -> str:
    """What failed, in a word; nothing if all passed. *chosen* is an expression for pytest's -k."""
    paths = [f"tests/cuda/{name}" for name in names]
    quick = ["-q", "-x", "-n", "2", "--benchmark-disable", "-p", "no:cacheprovider", "-k", chosen]
    command = [sys.executable, "-m", "pytest", *quick, *paths]
    said, code = run_for(SECONDS_TO_HANG, command, root)
    if code == 0:
        return ""
    if code is None:
        return "hang"
    if " failed" not in said or "CommandError" in said:
        raise SystemExit(f"the tests did not run:\n{said}")
    reasons = {"deadlock:": "deadlock", "crashed": "crash"}
    return next((reason for word, reason in reasons.items() if word in said), "wrong result")


def run_for(seconds: float, command: list[str], folder: Path) -> tuple[str, int | None]:
    """What *command* said and its exit code; no code if it took too long and was ended."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"HYPOTHESIS_PROFILE": "first"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=seconds)[0], process.returncode
    except subprocess.TimeoutExpired:
        # A bug may corrupt memory: workers spin where no signal of their own ends them.
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], None


def try_mutation(mutation: Mutation) -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_sources(root)
        apply(mutation, root)
        chosen = " or ".join(["not test_kernels", *operations_of(mutation.file)])
        own = ["test_kernels.py", *TESTS.get(mutation.file, [])]
        return run_tests(root, own, chosen) or run_sanitizers(root)


def run_sanitizers(root: Path) -> str:
    return "sanitizer" if run_tests(root, ["test_sanitized.py"], "every_run") else ""


def operations_of(file: str) -> set[str]:
    """The operations that launch a kernel of *file*."""
    return {
        type(operation).__name__
        for operation in CASES
        if any(launch.file == file for launch in operation.launches())
    }


def check_the_copy() -> None:
    """Without a bug every test passes in a copy: else nothing would be said by one that fails."""
    with tempfile.TemporaryDirectory() as folder:
        copy_sources(Path(folder))
        files = sorted({name for names in TESTS.values() for name in names})
        if failed := run_tests(Path(folder), ["test_kernels.py", *files, "test_sanitized.py"], ""):
            raise SystemExit(f"without any bug: {failed}")


def judge(mutation: Mutation) -> str:
    """A line that ends with what caught it; says how long that took."""
    begin = time.monotonic()
    reason = try_mutation(mutation)
    verdict = f"{mutation.name}: {f'caught, {reason}' if reason else MISSED}"
    print(f"{time.monotonic() - begin:5.1f} s  {verdict}", flush=True)
    return verdict


def main(word: str) -> int:
    check_the_copy()
    verdicts = [judge(mutation) for mutation in MUTATIONS if word in mutation.name]
    missed = [verdict for verdict in verdicts if verdict.endswith(MISSED)]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} caught", *missed, sep="\n")
    if not word:
        VERDICTS.write_text("".join(f"{verdict}\n" for verdict in verdicts), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
