"""The same cells on a Dask cluster: the same bytes, whoever is killed; plain words where there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweeps import files, plan_of, sim_here, swept, tiny

from sim.sweeps import executors
from sim.sweeps.errors import SweepError
from sim.sweeps.plan import Plan
from sim.sweeps.run import IfStored, sweep

distributed = pytest.importorskip("distributed", reason="Dask is an extra: pip install specdec-sim[cluster]")

IMPATIENT = """
import sys
from sim import cli
from sim.sweeps import executors
executors.CONNECT_SECONDS = 1
sys.argv = sys.argv[1:]
cli.main()
"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Any]:
    """A scheduler on the loopback with two worker processes."""
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the grid without a cluster."""
    folder = tmp_path_factory.mktemp("whole")
    swept(grid(), folder)
    return files(folder)


def grid() -> Plan:
    return plan_of("tree.budget=4,8,12,16", "drafter.block=2,8", runs=200)


def test_two_worker_processes_of_a_cluster_give_the_same_bytes(
    scheduler: Any, whole: dict[str, bytes], tmp_path: Path
) -> None:
    with executors.cluster(scheduler.scheduler_address) as workers:
        assert workers.count == 2
    pool = partial(executors.cluster, scheduler.scheduler_address)
    result = swept(grid(), tmp_path, pool)
    assert set(result.errors) == {0, 2, 4, 6}
    assert files(tmp_path) == whole


def test_a_worker_of_a_cluster_killed_in_the_middle_changes_no_byte(
    scheduler: Any, whole: dict[str, bytes], tmp_path: Path
) -> None:
    killed: list[int] = []
    ended: list[int] = []

    def kill_one() -> None:
        ended.append(len(ended))
        # The four cells that are invalid are done with at once; then comes the first one that ran.
        if len(ended) > 4 and not killed:
            killed.append(next(iter(scheduler.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    pool = partial(executors.cluster, scheduler.scheduler_address)
    sweep(grid(), tmp_path, IfStored.REFUSE, pool, kill_one)
    assert killed
    assert len(ended) == 8
    assert files(tmp_path) == whole


def test_a_scheduler_that_does_not_answer_is_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1)
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody_listens.getsockname()[1]}"
        arguments = ("sweep", str(tiny()), "--axis=seed=1", f"--out={tmp_path}", f"--cluster={address}")
        code, out, err = sim_here(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: --cluster {address}: no Dask scheduler answers there: ")
    assert len(err.splitlines()) == 1


def test_a_scheduler_without_workers_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        distributed.LocalCluster(n_workers=0, **quiet) as empty,
        pytest.raises(SweepError, match=r"--cluster tcp://.*: the scheduler has no workers"),
        executors.cluster(empty.scheduler_address),
    ):
        pass


def test_an_address_that_is_none_is_one_line_and_nothing_to_wait_for(tmp_path: Path) -> None:
    """In a process of its own: what a half-made client leaves behind shows only when that ends."""
    arguments = ["sim", "sweep", str(tiny()), "--axis=seed=1", f"--out={tmp_path}", "--cluster=nonsense"]
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *arguments], text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --cluster: expected local:N or tcp://host:port, got nonsense\n"


def test_a_local_cluster_needs_no_port_of_its_own() -> None:
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # Somebody else may have it: all the better.
            taken.bind(("127.0.0.1", 8787))
        taken.listen()
        with executors.cluster("local:1") as workers:
            assert workers.count == 1


@pytest.mark.parametrize("address", ["local", "local:", "local:x", "local:0", "local:-1", "local:1.5"])
def test_a_local_cluster_has_a_number_of_workers(address: str) -> None:
    with pytest.raises(Exception, match=r"expected local:N or tcp://host:port"), executors.cluster(address):
        pass


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SweepError, match=r"needs Dask: install the extra"), executors.cluster("local:2"):
        pass
