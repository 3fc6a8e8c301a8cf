"""Brokers that share a file of the registry, and do not see each other's processes: in containers of one machine."""

import os
import shutil
import sqlite3
import subprocess
import uuid
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import barnabas
from testing.cluster.served import Served, serve, until

WITH_BOOT_ID = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def within(kind: str, directory: Path, node_id: int) -> list[str]:
    """Returns what the command of a broker begins with that runs in a container of its own."""
    if kind == "process ids":
        return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    boot = directory / f"boot-{node_id}"
    boot.write_text(f"{uuid.uuid4()}\n")
    return ["unshare", "--mount", "sh", "-c", WITH_BOOT_ID, str(boot)]


def controller(registry: Path) -> tuple[int, int]:
    """Returns the controller and its epoch."""
    with closing(sqlite3.connect(registry)) as db:
        found: tuple[int, int] = db.execute("SELECT controller_id, controller_epoch FROM state").fetchone()
        return found


@pytest.mark.parametrize("kind", ["process ids", "boot ids"])
def test_brokers_that_do_not_see_each_other_know_who_is_dead(kind: str, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("containers need unshare and root")
    if subprocess.run([*within(kind, tmp_path, 0), "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here")
    registry = tmp_path / "registry.db"
    settings = {"broker_session_timeout_ms": 60_000, "default_replication_factor": 3, "min_insync_replicas": 2}
    with ExitStack() as stack:
        brokers: dict[int, Served] = {}
        for node_id in (1, 2, 3):
            where = ["--registry", str(registry)]
            data_dir, inside = tmp_path / f"data-{node_id}", within(kind, tmp_path, node_id)
            started = serve(tmp_path / f"served-{node_id}", node_id, data_dir, *where, within=inside, **settings)
            brokers[node_id] = stack.enter_context(started)
            brokers[node_id].address()
        with barnabas.Producer(bootstrap_servers=brokers[3].address()) as producer:
            producer.send("t", b"one").result(timeout=60)
        assert controller(registry) == (1, 1), "nobody has taken a live one for dead"
        brokers[1].process.kill()
        brokers[1].process.wait()
        until(lambda: controller(registry) in {(2, 2), (3, 2)}, timeout_s=10)
        with barnabas.Producer(bootstrap_servers=brokers[3].address()) as producer:
            producer.send("t", b"two").result(timeout=60)
        assert controller(registry)[1] == 2
