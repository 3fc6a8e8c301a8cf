"""The files: batches as the clients sent them, and Kafka's own kafka-dump-log reading all of it.

A proxy between clients and broker keeps what was sent; the broker advertises the proxy's address.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Drivers
from .harness import wire
from .harness.broker import LocalBroker, free_port, local_broker
from .harness.clients import CLIENTS, KAFKA_TOOLS, Client, chosen
from .harness.data import CODECS, numbered
from .harness.driver import Driver
from .harness.groups import join, leave, settle
from .harness.proxy import RecordingProxy
from .harness.tools import KafkaTools
from .test_matrix import RECORDS, without_what

SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
GROUP = "the.group"
STATIC_TOPIC = "dumped"


class Site:
    """A broker whose files may be looked at, with the proxy before it and clients that go through the proxy."""

    def __init__(self, broker: LocalBroker, proxy: RecordingProxy, drivers: Drivers, bootstrap: str) -> None:
        self.broker = broker
        self.proxy = proxy
        self.drivers = drivers
        self.bootstrap = bootstrap

    def folder(self, topic: str, partition: int = 0) -> Path:
        return self.broker.data_dir / f"{topic}-{partition}"

    def log_files(self, topic: str) -> list[Path]:
        return sorted(self.folder(topic).glob("*.log"))

    def stored(self, topic: str) -> list[wire.Batch]:
        return [batch for file in self.log_files(topic) for batch in wire.split_batches(file.read_bytes())]

    def topic_id(self, topic: str) -> str:
        """In hexadecimal, from partition.metadata."""
        text = (self.folder(topic) / "partition.metadata").read_text()
        found = re.search(r"topic_id: (\S+)", text)
        assert found is not None, text
        return decode_id(found[1])


def decode_id(text: str) -> str:
    return base64.urlsafe_b64decode(text + "==").hex()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Its own broker even where BARNABAS_TEST_BROKER is set: only files of our own can be looked at."""
    proxy_port = free_port()
    listen = f"127.0.0.1:{proxy_port}"
    settings = {"advertised.listeners": f"PLAINTEXT://{listen}", "num.partitions": "1"}
    broker = local_broker(tmp_path_factory.mktemp("site"), settings)
    proxy = RecordingProxy(("127.0.0.1", proxy_port))
    broker.start()
    proxy.start(broker.address)
    drivers = Drivers(listen, tmp_path_factory.mktemp("site-clients"))
    yield Site(broker, proxy, drivers, listen)
    drivers.stop()
    proxy.stop()
    broker.stop()


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_batches_are_stored_as_they_were_sent(client: Client, site: Site) -> None:
    driver: Driver = site.drivers(client)
    records = [without_what(client, each) for each in RECORDS]
    for codec in CODECS:
        topic = f"bytes.{client.name}.{codec}"
        wire.create_topic(site.broker.address, topic)
        driver.call("produce", topic=topic, records=records, compression=codec)
        name = topic if (topic, 0) in site.proxy.sent else site.topic_id(topic)
        sent = [batch for each in site.proxy.sent[(name, 0)] for batch in wire.split_batches(each)]
        stored = site.stored(topic)
        assert sent, f"the proxy saw no Produce for {topic}"
        assert [batch.as_sent for batch in stored] == [batch.as_sent for batch in sent], codec
        assert all(batch.crc_is_right for batch in stored)
        assert any(batch.codec == CODECS.index(codec) for batch in stored), codec
        offset = 0
        for batch in stored:
            assert batch.base_offset == offset
            assert batch.leader_epoch >= 0
            offset = batch.last_offset + 1
        assert offset == len(records)


@pytest.fixture(scope="module")
def tools(site: Site) -> KafkaTools:
    if not chosen(KAFKA_TOOLS):
        pytest.skip("kafka-tools is not among BARNABAS_TEST_CLIENTS")
    return KafkaTools(site.drivers(KAFKA_TOOLS), site.bootstrap)


@pytest.fixture(scope="module")
def written(site: Site) -> str:
    """A topic of several segments with every codec, and a group with committed offsets."""
    wire.create_topic(site.broker.address, STATIC_TOPIC, configs=SMALL_SEGMENTS)
    with wire.Connection(site.broker.address) as connection:
        for index in range(400):
            batch = wire.simple_batch(*(f"{index}-{each}".encode() * 200 for each in range(5)))
            assert wire.produce(connection, STATIC_TOPIC, 0, batch).error == 0
    confluent = next(each for each in CLIENTS if each.name == "confluent-kafka")
    driver = site.drivers(confluent)
    for codec in CODECS[1:]:
        driver.call("produce", topic=STATIC_TOPIC, records=numbered(50), compression=codec, idempotent=True)
    member = join(driver, GROUP, [STATIC_TOPIC])
    settle([member], 1)
    driver.call("commit", id=member[1], offsets=[[STATIC_TOPIC, 0, 1234]])
    leave(member)
    return STATIC_TOPIC


def dump(tools: KafkaTools, *arguments: str) -> str:
    done = tools.run("kafka-dump-log", *arguments, connect=False)
    for trouble in ("Exception", "mismatch", "not equal", "isvalid: false", "Found timestamp", "non-consecutive"):
        assert trouble not in done.out + done.err, done.out[-2000:] + done.err[-2000:]
    return done.out


def test_dump_log_reads_the_segments(site: Site, tools: KafkaTools, written: str) -> None:
    files = site.log_files(written)
    assert len(files) > 1
    told = dump(tools, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+)", told, re.MULTILINE)]
    assert offsets == list(range(2000 + 50 * 4))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in told
    assert "payload: 399-4" in told


@pytest.fixture
def stopped(site: Site, written: str) -> Iterator[Site]:
    """While the broker is down: only then are the last segment's indexes trimmed to what they hold."""
    site.broker.stop()
    yield site
    site.broker.start()


def test_dump_log_verifies_the_indexes(stopped: Site, tools: KafkaTools, written: str) -> None:
    folder = stopped.folder(written)
    for kind in ("index", "timeindex"):
        files = sorted(folder.glob(f"*.{kind}"))
        assert len(files) == len(stopped.log_files(written))
        told = dump(tools, "--files", ",".join(map(str, files)))
        assert told.count("Dumping") == len(files)
        sane = dump(tools, "--index-sanity-check", "--files", ",".join(map(str, files)))
        assert sane.count("passed sanity check") == len(files)
    assert re.search(r"offset: \d+ position: \d+", dump(tools, "--files", str(sorted(folder.glob("*.index"))[0])))


def test_dump_log_reads_producer_snapshots(site: Site, tools: KafkaTools, written: str) -> None:
    files = sorted(site.folder(written).glob("*.snapshot"))
    assert files
    told = dump(tools, "--files", str(files[-1]))
    assert re.search(r"producerId: \d+ producerEpoch: 0", told)


def test_dump_log_decodes_committed_offsets(site: Site, tools: KafkaTools, written: str) -> None:
    told = ""
    for folder in sorted(site.broker.data_dir.glob("__consumer_offsets-*")):
        for file in sorted(folder.glob("*.log")):
            if file.stat().st_size:
                told += dump(tools, "--offsets-decoder", "--print-data-log", "--files", str(file))
    assert f'"group":"{GROUP}"' in told
    commit = re.search(rf'"topic":"{written}","partition":0.*?"offset":1234', told)
    assert commit is not None
    assert '"protocolType":"consumer"' in told
    assert '"leader":"' in told


def test_the_files_of_a_data_directory(stopped: Site, written: str) -> None:
    folder = stopped.broker.data_dir
    properties = dict(
        line.split("=", 1) for line in (folder / "meta.properties").read_text().splitlines() if not line.startswith("#")
    )
    assert properties["version"] == "1"
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", properties["cluster.id"])
    assert properties["node.id"].isdigit()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        assert (folder / name).exists()
    checkpoint = (folder / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert checkpoint[0] == "0"
    assert int(checkpoint[1]) == len(checkpoint) - 2
    assert f"{written} 0 2200" in checkpoint
    version, count, first, *_ = (stopped.folder(written) / "leader-epoch-checkpoint").read_text().splitlines()
    assert (version, first) == ("0", "0 0")
    assert int(count) >= 1
    assert (folder / ".kafka_cleanshutdown").exists()
    assert re.fullmatch(
        r"version: 0\ntopic_id: [A-Za-z0-9_-]{22}", (stopped.folder(written) / "partition.metadata").read_text().strip()
    )
