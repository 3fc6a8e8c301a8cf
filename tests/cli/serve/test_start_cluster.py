"""`barnabas serve --brokers 3`: what the supervisor makes of the options, with real brokers."""

import json
import os
import select
import signal
import socket
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.cli.serve.start_cluster import announce
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.version import __version__
from broker.cluster.clusters import wait_for
from broker.served import small_file_system
from cli.conftest import run_barnabas
from cli.serve.processes import Serve, broker_pids, log_until, ready_addresses
from cli.serve.processes import serve as serve
from small_disks import fill


def test_three_brokers_start_and_end_with_one_command(serve: Serve, tmp_path: Path) -> None:
    data, ready = tmp_path / "data", tmp_path / "ready"
    process = serve("--brokers", "3", "--data-dir", str(data), "--ready-file", str(ready), "--racks", "a,b,c")
    addresses = ready_addresses(process)
    assert ready.read_text().splitlines() == addresses
    for number, address in enumerate(addresses, start=1):
        with Admin(bootstrap_servers=address) as admin:
            wait_for(lambda admin=admin: len(admin.describe_cluster().brokers) == 3, "word of the others")
            assert admin.describe_cluster().brokers[number].rack == "abc"[number - 1]
            (described,) = admin.describe_configs([("broker", str(number))]).values()
            assert described["default.replication.factor"].value == "3"
            assert described["min.insync.replicas"].value == "2"
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, ""), errors
    assert not ready.exists()
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["broker-1", "broker-2", "broker-3"]
    assert all((data / f"broker-{number}" / ".kafka_cleanshutdown").exists() for number in (1, 2, 3))


def test_programs_read_that_the_cluster_is_ready(serve: Serve, tmp_path: Path) -> None:
    process = serve("--brokers=2", "--data-dir", str(tmp_path), "--json")
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    assert (facts["event"], facts["node_ids"], facts["data_dirs"]) == ("ready", [1, 2], [str(tmp_path)])
    assert facts["release"] == __version__
    assert len(facts["addresses"]) == 2


def test_brokers_that_are_left_out_are_named(serve: Serve, tmp_path: Path) -> None:
    left = tmp_path / "broker-2"
    left.mkdir()
    EmbeddedRegistry(tmp_path / "registry.db").close()
    (left / "meta.properties").write_text("version=1\nnode.id=2\n")
    process = serve("--brokers=1", "--data-dir", str(tmp_path))
    log_until(process, f"--brokers 1: no broker is started for {left}, ")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("barnabas cluster of 1 broker is ready on ")
    assert f", release {__version__}, " in line


def test_when_it_is_ready_a_record_is_on_three_brokers(serve: Serve, tmp_path: Path) -> None:
    addresses = ready_addresses(serve("--brokers", "3", "--data-dir", str(tmp_path)))
    with Producer(bootstrap_servers=addresses[0], acks="all") as producer:
        producer.send("made-by-itself", b"1").result(timeout=30)
    with Admin(bootstrap_servers=addresses[2]) as admin:
        partition = admin.describe_topics(["made-by-itself"])["made-by-itself"].partitions[0]
    assert sorted(partition.in_sync_replicas) == [1, 2, 3]


def test_a_broker_that_was_killed_comes_back_where_it_was(serve: Serve, tmp_path: Path) -> None:
    process = serve("--brokers", "3", "--data-dir", str(tmp_path))
    addresses = ready_addresses(process)
    pids = broker_pids(process)
    os.kill(pids[2], signal.SIGKILL)
    log_until(process, rf"broker 2 \(pid {pids[2]}\) died with signal 9: starting it again in 0.1 s")
    log_until(process, "broker 2 .* is ready")
    with Admin(bootstrap_servers=addresses[0]) as admin:
        wait_for(lambda: len(admin.describe_cluster().brokers) == 3, "word of the broker")
        brokers = admin.describe_cluster().brokers
    assert [f"{brokers[number].host}:{brokers[number].port}" for number in (1, 2, 3)] == addresses


def test_a_killed_supervisor_takes_brokers_along(serve: Serve, tmp_path: Path) -> None:
    process = serve("--brokers", "3", "--data-dir", str(tmp_path))
    ready_addresses(process)
    descriptors = [os.pidfd_open(pid) for pid in broker_pids(process).values()]
    process.kill()
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)


def test_a_busy_port_ends_all_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_barnabas("serve", "--brokers=2", "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("barnabas: broker 1: ")
    assert f"127.0.0.1:{port}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("broken", ["never used", "used before"])
def test_one_broker_whose_directory_cannot_be_used_stops_no_other(serve: Serve, tmp_path: Path, broken: str) -> None:
    directory = tmp_path / "broker-2"
    if broken == "used before":
        EmbeddedRegistry(tmp_path / "registry.db").close()
        directory.mkdir()
        (directory / "meta.properties").write_bytes(b"\xff\xff")
    else:
        directory.write_text("no directory")
    process = serve("--brokers=3", "--data-dir", str(tmp_path), "--json")
    log_until(process, rf"broker 2 .*exit code 2: .*{directory}.*: starting it again in 0.1 s$")
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    assert facts["node_ids"] == [1, 3]
    with Producer(bootstrap_servers=facts["addresses"][0], acks="all") as producer:
        producer.send("made-by-itself", b"1").result(timeout=30)
    directory.rename(tmp_path / "broken")
    log_until(process, "broker 2 .* is ready")


def test_a_ready_file_that_cannot_be_written_ends_all_with_one_line(tmp_path: Path) -> None:
    data, ready = tmp_path / "data", tmp_path / "ready"
    ready.mkdir()
    done = run_barnabas(
        "serve", "--brokers=2", "--data-dir", str(data), "--listen", "127.0.0.1:0", "--ready-file", str(ready)
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"barnabas: --ready-file {ready}: cannot be written")
    assert all((data / f"broker-{number}" / ".kafka_cleanshutdown").exists() for number in (1, 2))


def test_it_starts_and_ends_on_a_full_disk_and_deletes_topics_there(serve: Serve, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_file_system(disk, "64m"):
        for topic in ("first", "second"):
            process = serve("--brokers", "3", "--data-dir", str(disk / "data"))
            addresses = ready_addresses(process)
            with Admin(bootstrap_servers=addresses[0]) as admin:
                if topic == "first":
                    admin.create_topics(["first", "second"])
                fill(disk)
                admin.delete_topics(topic)
            fill(disk)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            fill(disk)


def test_what_cannot_be_the_directory_of_broker_1_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=5\n")
    done = run_barnabas("serve", "--brokers=2", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert (done.returncode, "belongs to broker 5" in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_brokers_are_announced_before_they_come(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    for _ in range(2):
        announce(path, [1, 2, 3])
    registry = EmbeddedRegistry(path)
    try:
        assert sorted(registry.load().image.brokers) == [1, 2, 3]
    finally:
        registry.close()


def test_settings_that_are_given_win_over_those_of_a_cluster(serve: Serve, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("default.replication.factor=1\n")
    process = serve("--brokers=1", "--config", str(settings), "--data-dir", str(tmp_path / "data"), "--json")
    process2 = serve("--brokers=3", "--config", str(settings), "--data-dir", str(tmp_path / "more"))
    assert process.stdout is not None
    addresses = [*json.loads(process.stdout.readline())["addresses"], ready_addresses(process2)[0]]
    for address in addresses:
        with Admin(bootstrap_servers=address) as admin:
            (described,) = admin.describe_configs([("broker", "1")]).values()
            assert described["default.replication.factor"].value == "1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--brokers", "0"], "barnabas serve: --brokers"),
        (["--brokers", "three"], "barnabas serve: --brokers"),
        (["--racks", "a,b"], "--racks a,b: is for --brokers"),
        (["--brokers", "3", "--racks", "a,b"], "--racks: 2 racks for 3 brokers"),
        (["--brokers", "3", "--racks", "a,b,"], "--racks 'a,b,': the name of a rack is missing"),
        (["--brokers", "3", "--racks", ""], "--racks '': the name of a rack is missing"),
        (["--brokers", "3", "--node-id", "1"], "node.id: --brokers gives the brokers the ids 1 to 3"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = run_barnabas("serve", "--data-dir", str(tmp_path / "data"), *arguments)
    assert (done.returncode, done.stderr.removeprefix("barnabas: ").startswith(told)) == (2, True), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
