"""An operator's mistakes end in one line that names the setting, the rule and the remedy, without a traceback and not
with 0.

Everything goes through `barnabas serve`, as a process.
"""

import os
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.sent_requests import batch, produce
from broker.wire import Wire, server_of
from no_more_threads import refuse_threads


class Outcome(NamedTuple):
    code: int
    line: str


def serve(data: Path | str, *words: str) -> Outcome:
    """Run it until it gives up; the one line that it wrote."""
    command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(data)]
    if "--listen" not in words:
        command += ["--listen", "127.0.0.1:0"]
    ended = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    assert ended.stdout == ""
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert lines[0].startswith("barnabas: ")
    return Outcome(ended.returncode, lines[0].removeprefix("barnabas: "))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped, with 20 batches in t-0."""
    directory = tmp_path / "data"
    with Broker(data_dir=directory) as broker:
        broker.create_topic("t")
        with Wire(broker) as wire:
            for number in range(20):
                wire.ask(produce(broker, {0: batch(b"%d" % number)}), 12)
    return directory


def test_a_registry_that_another_program_holds_may_be_free_at_the_next_start(data: Path) -> None:
    with closing(sqlite3.connect(data / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, line = serve(data)
    assert (code, "registry.db: cannot be used as the registry: " in line, "is locked" in line) == (75, True, True)


# --- addresses ------------------------------------------------------------------------------------------------------


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        line = serve(tmp_path / "data", "--listen", f"127.0.0.1:{port}").line
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line
    assert "--listen" in line


@pytest.mark.parametrize("address", ["203.0.113.7:9092", "no.such.host.invalid:9092"])
def test_an_address_that_is_not_ours(tmp_path: Path, address: str) -> None:
    line = serve(tmp_path / "data", "--listen", address).line
    assert address in line
    assert "cannot listen there" in line


@pytest.mark.parametrize("address", ["9092", "localhost", "127.0.0.1:port", "127.0.0.1:99999"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    line = serve(tmp_path / "data", "--listen", address).line
    assert address in line
    assert "127.0.0.1:9092" in line, "an example"


# --- directories ----------------------------------------------------------------------------------------------------


def test_a_file_in_the_place_of_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("something")
    line = serve(tmp_path / "data").line
    assert str(tmp_path / "data") in line
    assert (tmp_path / "data").read_text() == "something"


def test_a_file_on_the_way_to_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    assert str(tmp_path / "file" / "data") in serve(tmp_path / "file" / "data").line


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    for target in (locked, locked / "data"):
        line = serve(target).line
        assert str(target) in line
        assert "ermission" in line


def test_a_read_only_file_system() -> None:
    line = serve("/proc/barnabas").line
    assert "/proc/barnabas" in line
    assert "choose another with --data-dir" in line


def test_a_directory_that_another_broker_uses(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        line = serve(tmp_path / "data").line
        assert str(tmp_path / "data") in line
        assert "broker" in line
        broker.create_topic("still-served")


def test_a_directory_of_another_cluster(data: Path) -> None:
    properties = data / "meta.properties"
    text = properties.read_text()
    properties.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", text))
    line = serve(data).line
    assert "AAAAAAAAAAAAAAAAAAAAAA" in line
    assert "meta.properties" in line


def test_a_directory_of_another_node(data: Path) -> None:
    line = serve(data, "--node-id", "7").line
    assert "node.id" in line
    assert "7" in line
    assert "meta.properties" in line


def test_a_meta_properties_that_is_none(data: Path) -> None:
    (data / "meta.properties").write_bytes(b"\xff\xfe\x00rubbish")
    assert str(data / "meta.properties") in serve(data).line


def test_a_registry_that_is_none(data: Path) -> None:
    (data / "registry.db").write_bytes(b"this is not a database" * 100)
    line = serve(data).line
    assert str(data / "registry.db") in line
    assert f"make it anew by `barnabas cluster recover --registry {data}/registry.db" in line
    assert "copy" not in line, "an old one would give leader epochs and producer ids out twice"


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("log.segment.byte=1", ("log.segment.byte", "did you mean log.segment.bytes?")),
        ("num.completely.unknown=1", ("num.completely.unknown",)),
        ("num.partitions=many", ("num.partitions", "many", "Not a number of type INT")),
        ("num.partitions=0", ("num.partitions", "at least 1")),
        ("durability=sometimes", ("durability", "page-cache, fsync")),
        ("log.retention.ms=0", ("log.retention.ms", "greater than or equal to 1")),
        ("listeners=SSL://127.0.0.1:9093", ("listeners", "SSL")),
        ("authorizer.class.name=org.apache.kafka.Authorizer", ("authorizer.class.name",)),
        ("max.connections.per.ip.overrides=10.0.0.1", ("max.connections.per.ip.overrides", "host:count")),
        ("max.connections.per.ip.overrides=no.such.host.invalid:4", ("no.such.host.invalid", "cannot be resolved")),
        ("advertise=10.0.0.0", ("advertise", "10.0.0.0/8=kafka.example.com:9092")),
        ("novalue", ("novalue", "NAME=VALUE")),
    ],
)
def test_settings(tmp_path: Path, setting: str, parts: tuple[str, ...]) -> None:
    words = ["--set", setting]
    if setting.startswith("listeners"):
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(tmp_path / "data"), *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode != 0
        (line,) = ended.stderr.strip().splitlines()
    else:
        line = serve(tmp_path / "data", *words).line
    for part in parts:
        assert part in line
    assert not (tmp_path / "data").exists(), "a mistake is found before anything is touched"


def test_a_setting_in_a_file_is_found_there(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("# ours\nnum.partitions=2\nlog.segment.byte=5\n")
    line = serve(tmp_path / "data", "--config", str(properties)).line
    assert f"{properties}:3" in line or ("server.properties" in line and "3" in line)
    assert "log.segment.bytes" in line


def test_a_file_of_settings_that_is_not_there(tmp_path: Path) -> None:
    line = serve(tmp_path / "data", "--config", str(tmp_path / "gone.properties")).line
    assert str(tmp_path / "gone.properties") in line


def test_a_ready_file_without_a_directory(tmp_path: Path) -> None:
    line = serve(tmp_path / "data", "--ready-file", str(tmp_path / "no" / "ready")).line
    assert str(tmp_path / "no" / "ready") in line


# --- logs -----------------------------------------------------------------------------------------------------------


def restarted(data: Path) -> list[bytes | None]:
    """Returns the values of the records that exist after a start."""
    with Broker(data_dir=data) as broker:
        return [record.value for record in broker.records("t")]


@pytest.mark.parametrize(
    ("byte", "rule"),
    [(64, "the CRC of the batch there does not fit"), (0, "which cannot follow"), (16, "no batch begins there")],
)
def test_a_damaged_batch_is_said_and_costs_none_behind_it(data: Path, byte: int, rule: str) -> None:
    """After the death of the process: a write that was torn has no whole batch behind it."""
    segment = data / "t-0" / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    content[sum(_sizes(content)[:15]) + byte] ^= 0x7F
    segment.write_bytes(content)
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with Broker(data_dir=data) as broker:
        assert broker.end_offsets("t") == [20]
        log = server_of(broker).log_manager.get(TopicPartition("t", 0))
        assert log is not None
        assert str(segment) in log.lacks
        assert rule in log.lacks
    assert segment.read_bytes() == bytes(content)


def test_a_torn_tail_is_cut_and_said(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = data / "t-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-5])
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with caplog.at_level("WARNING"):
        values = restarted(data)
    assert values == [b"%d" % number for number in range(19)]
    line, loss = [message for message in caplog.messages if str(segment) in message]
    assert str(len(segment.read_bytes())) in line
    assert "offsets 19 to 19" in loss


def _sizes(log: bytes | bytearray) -> list[int]:
    sizes, position = [], 0
    while position + 12 <= len(log):
        sizes.append(12 + int.from_bytes(log[position + 8 : position + 12], "big"))
        position += sizes[-1]
    return sizes


def test_lost_indexes_are_built_again(data: Path) -> None:
    for name in (".index", ".timeindex"):
        (data / "t-0" / f"{0:020}{name}").unlink(missing_ok=True)
    assert restarted(data) == [b"%d" % number for number in range(20)]


def test_without_a_thread_that_looks_advertised_names_up_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_threads(monkeypatch, "barnabas-names")
    with Broker(data_dir=tmp_path, settings={"advertised.listeners": "PLAINTEXT://no.test:9092"}) as broker:
        assert server_of(broker).endpoints
