"""A data directory that this release of Apache Kafka wrote goes on under Barnabas."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas import NewTopic, TopicPartition

from .conftest import wait_for
from .harness.broker import KAFKA_LIBS, BarnabasBroker, KafkaBroker, LocalBroker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="Barnabas' consumer has no consumer protocol")

pytestmark = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Apache Kafka (BARNABAS_KAFKA_LIBS)",
)

PLACES = [TopicPartition("flights", index) for index in range(3)]
SETTINGS = {"retention.ms": "-1", "max.message.bytes": "2000000"}
KEPT = [b"early", *(b"%d-%d" % (each, number) for each in (0, 2) for number in range(20))]
GROUPS = {"ground-crew": "classic", "modern": "consumer"}


def write(bootstrap: str) -> None:
    """A topic with settings, records with and without transactions, one aborted, and a group of either protocol."""
    with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("flights", 3, 1, SETTINGS), NewTopic("gone", 1, 1)])
        admin.delete_topics("gone")
    with barnabas.Producer(bootstrap_servers=bootstrap) as producer:
        for place in PLACES:
            producer.send(place.topic, b"early", partition=place.partition).result(60)
    transact(bootstrap, commits=(True, False, True))
    for group, protocol in GROUPS.items():
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
        consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["flights"])
        seen = 0
        while seen < len(PLACES) * len(KEPT):
            seen += len(consumer.consume(500, 1.0))
        consumer.commit(asynchronous=False)
        consumer.close()


def transact(bootstrap: str, commits: tuple[bool, ...], transactional_id: str = "tower") -> None:
    with barnabas.Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        for index, commit in enumerate(commits):
            producer.begin_transaction()
            for place in PLACES:
                for number in range(20):
                    producer.send(place.topic, b"%d-%d" % (index, number), partition=place.partition)
            producer.flush()  # an abort takes back what has not been sent
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def told(bootstrap: str) -> dict[str, Any]:
    """What a broker says about all of it."""
    with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
        [configs] = admin.describe_configs([("topic", "flights")], keys=list(SETTINGS)).values()
        transaction = admin.describe_transactions("tower")["tower"]
        return {
            "topics": sorted(topic.name for topic in admin.list_topics()),
            "id": admin.describe_topics("flights")["flights"].topic_id,
            "cluster": admin.describe_cluster().cluster_id,
            "settings": {name: configs[name].value for name in SETTINGS},
            "ends": {place: admin.list_offsets({place: "latest"})[place].offset for place in PLACES},
            "committed": {group: offsets(admin, group) for group in GROUPS},
            "transaction": (transaction.state, transaction.producer_id, transaction.producer_epoch),
            "records": {place: read(bootstrap, place) for place in PLACES},
        }


def offsets(admin: barnabas.Admin, group: str) -> dict[TopicPartition, int]:
    return {place: found.offset for place, found in admin.list_group_offsets(group).items()}


def read(bootstrap: str, place: TopicPartition) -> list[bytes]:
    """The committed values of a partition, to its end."""
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    seen: list[bytes] = []
    with barnabas.Consumer(settings, bootstrap_servers=bootstrap) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            seen += [record.value for record in consumer.poll(1.0)]
    return seen


def dump(directory: Path) -> None:
    """Has `barnabas dump-log` read every file that Apache Kafka left; its exit code says whether one is damaged."""
    folders = [*directory.glob("flights-*"), *directory.glob("__[ct][or]*-*")]
    files = [str(path) for folder in folders for path in folder.iterdir() if path.stat().st_size]
    assert {Path(file).suffix for file in files} >= {".log", ".txnindex", ".metadata"}
    command = [sys.executable, "-m", "barnabas", "dump-log", *files]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-2000:]


def start(broker: LocalBroker) -> str:
    broker.start()
    return broker.bootstrap


@pytest.mark.parametrize("crash", [False, True], ids=["ended", "killed"])
def test_a_directory_of_kafkas_goes_on_here(tmp_path: Path, crash: bool) -> None:
    theirs, ours = KafkaBroker(tmp_path), BarnabasBroker(tmp_path)
    bootstrap = start(theirs)
    try:
        write(bootstrap)
        wait_for("the end of the last transaction", lambda: told(bootstrap)["transaction"][0] == "CompleteCommit")
        before = told(bootstrap)
    finally:
        theirs.kill() if crash else theirs.stop()
    assert before["settings"] == SETTINGS
    assert before["records"] == dict.fromkeys(PLACES, KEPT)
    assert before["committed"] == dict.fromkeys(GROUPS, before["ends"])
    dump(ours.data_dir)
    bootstrap = start(ours)
    try:
        assert told(bootstrap) == before
        transact(bootstrap, commits=(True,))
        after = told(bootstrap)
    finally:
        ours.stop()
    assert after["records"] == {place: [*KEPT, *KEPT[1:21]] for place in PLACES}
    assert after["transaction"][2] > before["transaction"][2], "who still held the id is fenced"
