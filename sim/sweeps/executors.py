"""Where cells are run: processes of this machine, or a Dask cluster.

Both are ``concurrent.futures.Executor``; what is done with them is the same.
"""

from __future__ import annotations

import logging
import multiprocessing
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from sim.errors import ScenarioError
from sim.sweeps.errors import SweepError

CONNECT_SECONDS = 20
LOCAL = re.compile(r"local:([1-9]\d{0,3})")
REMOTE = re.compile(r"(tcp|tls|ucx|ws|wss)://\S+:\d+")


@dataclass(frozen=True, slots=True)
class Workers:
    """An executor and how many cells it runs at once."""

    executor: Executor
    count: int


@contextmanager
def processes(count: int) -> Iterator[Workers]:
    """*count* processes of this machine. They end with this one, however it ends."""
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _become_worker)
    try:
        yield Workers(executor, count)
    except BaseException:
        # A cell may take minutes, and nobody waits for these any more.
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    else:
        executor.shutdown()


def _become_worker() -> None:
    """Leave Ctrl-C to the parent, and never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    signal.raise_signal(signal.SIGTERM)


@contextmanager
def cluster(address: str) -> Iterator[Workers]:
    """The Dask cluster at *address* (``tcp://host:port``), or N local workers (``local:N``)."""
    if not LOCAL.fullmatch(address) and not REMOTE.fullmatch(address):
        raise ScenarioError("--cluster", 0, "", f"expected local:N or tcp://host:port, got {address}")
    try:
        from distributed import Client, LocalCluster  # noqa: PLC0415 - an extra
    except ImportError:
        raise SweepError(
            "--cluster", "needs Dask: install the extra, pip install 'specdec-sim[cluster]'"
        ) from None
    local_workers = LOCAL.fullmatch(address)
    if local_workers is None:
        with _connected(Client, address) as workers:
            yield workers
        return
    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=int(local_workers[1]),
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as local,
        _connected(Client, local.scheduler_address) as workers,
    ):
        yield workers


@contextmanager
def _connected(client_type: type, address: str) -> Iterator[Workers]:
    try:
        client = client_type(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as problem:
        raise SweepError(f"--cluster {address}", f"no Dask scheduler answers there: {problem}") from None
    try:
        yield Workers(client.get_executor(pure=False), _threads(client, address))
    finally:
        client.close()


def _threads(client: Any, address: str) -> int:
    """How many cells the cluster runs at once; SweepError where it has no workers."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        raise SweepError(f"--cluster {address}", "the scheduler has no workers") from None
    return int(sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()))
