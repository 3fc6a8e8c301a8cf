"""Transactions of the client libraries: what each commits every client sees, what it aborts none does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Drivers, wait_for
from .harness import wire
from .harness.broker import Broker, KafkaBroker, LocalBroker
from .harness.clients import CLIENTS, LEAVES_OPEN, NEW_JAVA, NO_TRANSACTIONS, Client, chosen
from .harness.data import numbered, unpack
from .harness.driver import ClientError, Driver

PARTITIONS = 2
TAKE_MS = 60_000
Unique = Callable[[str], str]

#: What each library says, if to `send` and to `end`, when another producer has taken over the transactional id.
FENCED = {
    "confluent-kafka": {"send": ("KafkaException", -144), "end": ("KafkaException", -144)},
    "kafka-python": {"send": ("InvalidProducerEpochError", 47), "end": ("ProducerFencedError", 90)},
    "aiokafka": {"send": ("ProducerFenced", None), "end": ("ProducerFenced", None)},
    "java-2.4.1": {"send": ("ProducerFencedException", 47), "end": ("ProducerFencedException", 47)},
    NEW_JAVA: {"send": ("InvalidProducerEpochException", 47), "end": ("ProducerFencedException", 90)},
    "franz-go": {"send": ("INVALID_PRODUCER_EPOCH", 47), "end": ("PRODUCER_FENCED", 90)},
    "barnabas": {"send": ("InvalidProducerEpoch", 47), "end": ("ProducerFenced", 90)},
    "kafkajs": {"send": ("KafkaJSProtocolError", 47), "end": ("KafkaJSProtocolError", 47)},
}
#: And to `end` when Apache Kafka up to 4.4.0 has ended the transaction at its timeout. KAFKA-20785 mends that.
TIMED_OUT = {
    NEW_JAVA: ("InvalidTxnStateException", 48),
    "franz-go": ("INVALID_TXN_STATE", 48),
    "barnabas": ("InvalidTxnState", 48),
}


class Producer:
    """A transactional producer in some client's program."""

    def __init__(self, driver: Driver, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._driver = driver
        self._id = driver.new_id()
        driver.call("producer", id=self._id, transactional_id=transactional_id, timeout_ms=timeout_ms)

    def begin(self, topic: str, name: str) -> None:
        """With one record in each partition."""
        self._driver.call("begin", id=self._id)
        self.send(topic, name)

    def send(self, topic: str, name: str, partitions: int = PARTITIONS) -> None:
        records = [each for index in range(partitions) for each in numbered(1, partition=index, prefix=name)]
        self._driver.call("send", id=self._id, topic=topic, records=records)

    def end(self, *, commit: bool) -> None:
        self._driver.call("end", id=self._id, commit=commit)

    def close(self) -> None:
        self._driver.call("close_producer", id=self._id)


def read(driver: Driver, topic: str, isolation: str, count: int) -> list[list[str]]:
    """The values of each partition once there are `count` in all of them together."""
    name = driver.new_id()
    places = [[topic, index, "earliest"] for index in range(PARTITIONS)]
    driver.call("open", id=name, assign=places, isolation=isolation)
    try:
        records = driver.call("take", id=name, count=count, timeout_ms=TAKE_MS)["records"]
    finally:
        driver.call("close", id=name)
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for record in sorted(records, key=lambda each: each["o"]):
        found[record["p"]].append(unpack(record["v"]).decode())
    return found


def produce(driver: Driver, topic: str, name: str) -> None:
    """Outside of any transaction."""
    for index in range(PARTITIONS):
        driver.call("produce", topic=topic, records=numbered(1, partition=index, prefix=name))


def check(reader: Driver, topic: str, *names: str, isolation: str = "read_committed") -> None:
    """These are there, in this order. What should not be there would be among them: the last one is the last."""
    found = read(reader, topic, isolation, len(names) * PARTITIONS)
    assert found == [[f"{name}-0" for name in names]] * PARTITIONS, f"{reader.name}, {isolation}"


def able() -> list[Client]:
    """The clients of this run that have transactions."""
    return [each for each in CLIENTS if each.name not in NO_TRANSACTIONS and chosen(each) and each.missing() is None]


def next_of(client: Client, clients: list[Client]) -> Client:
    """Another one, each time another one."""
    names = [each.name for each in clients]
    after = CLIENTS[CLIENTS.index(client) + 1 :] + CLIENTS
    return next(each for each in after if each.name in names)


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest) -> Client:
    client: Client = request.param
    if reason := NO_TRANSACTIONS.get(client.name):
        pytest.skip(reason)
    return client


@pytest.fixture
def writer(client: Client, drivers: Drivers) -> Driver:
    return drivers(client)


@pytest.fixture
def reader(client: Client, drivers: Drivers) -> Driver:
    """Of another make."""
    return drivers(next_of(client, [each for each in CLIENTS if chosen(each) and each.missing() is None]))


@pytest.fixture
def make_topic(broker: Broker, unique: Unique) -> Callable[[], str]:
    def make() -> str:
        name = unique("topic")
        wire.create_topic(broker.address, name, partitions=PARTITIONS)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[[], str]) -> str:
    return make_topic()


def test_commits_and_aborts(writer: Driver, reader: Driver, topic: str, unique: Unique) -> None:
    producer = Producer(writer, unique("id"))
    for name, commit in (("first", True), ("lost", False), ("second", True), ("third", True)):
        producer.begin(topic, name)
        producer.end(commit=commit)
    producer.close()
    check(reader, topic, "first", "second", "third")
    check(reader, topic, "first", "lost", "second", "third", isolation="read_uncommitted")


def test_read_process_write(
    client: Client, writer: Driver, drivers: Drivers, make_topic: Callable[[], str], unique: Unique
) -> None:
    """Offsets and records are committed together, or neither."""
    source, target, group, name = make_topic(), make_topic(), unique("group"), unique("id")
    asked = drivers(next_of(client, able()))
    asked.call("produce", topic=source, records=numbered(3, partition=0) + numbered(3, partition=1))
    everything = [[f"record-{index}" for index in range(3)]] * PARTITIONS
    for commit, offsets in ((False, [-1, -1]), (True, [3, 3])):
        job = {"group": group, "source": source, "target": target, "count": 6, "commit": commit}
        done = writer.call("process", id=writer.new_id(), transactional_id=name, **job)
        assert done == {"records": 6}
        wait_for(
            f"offsets {offsets} after commit={commit}",
            lambda offsets=offsets: committed(asked, group, source) == offsets,  # type: ignore[misc]
            tell=lambda: str(committed(asked, group, source)),
        )
    assert read(asked, target, "read_committed", 6) == everything
    assert read(asked, target, "read_uncommitted", 12) == [[*each, *each] for each in everything]


def committed(driver: Driver, group: str, topic: str) -> list[int]:
    offsets: list[int] = driver.call("committed", group=group, topic=topic, partitions=[0, 1])["offsets"]
    return offsets


@pytest.mark.parametrize("attempt", ["send", "end"])
def test_a_second_producer_of_the_id_fences_the_first(
    client: Client, writer: Driver, drivers: Drivers, reader: Driver, topic: str, unique: Unique, attempt: str
) -> None:
    """The second one is of another make. The first one sends one record: most libraries tell the next one otherwise."""
    name = unique("id")
    first = Producer(writer, name)
    first.begin(topic, "lost")
    second = Producer(drivers(next_of(client, able())), name)
    second.begin(topic, "kept")
    second.end(commit=True)
    with pytest.raises(ClientError) as refused:
        first.send(topic, "late", partitions=1) if attempt == "send" else first.end(commit=True)
    assert (refused.value.name, refused.value.code) == FENCED[client.name][attempt]
    check(reader, topic, "kept")


def test_closing_aborts(client: Client, writer: Driver, reader: Driver, topic: str, unique: Unique) -> None:
    if reason := LEAVES_OPEN.get(client.name):
        pytest.skip(reason)
    producer = Producer(writer, unique("id"))
    producer.begin(topic, "lost")
    producer.close()
    produce(reader, topic, "late")
    check(reader, topic, "late")


def test_beginning_anew_aborts(writer: Driver, reader: Driver, topic: str, unique: Unique) -> None:
    name = unique("id")
    Producer(writer, name).begin(topic, "lost")
    again = Producer(writer, name)
    again.begin(topic, "kept")
    again.end(commit=True)
    check(reader, topic, "kept")


class Party:
    """All clients, each with a transaction on a topic of its own."""

    def __init__(self, drivers: Drivers, make_topic: Callable[[], str], unique: Unique, timeout_ms: int) -> None:
        self.producers: dict[str, Producer] = {}
        self.topics: dict[str, str] = {}
        self._drivers = drivers
        for client in able():
            topic = self.topics[client.name] = make_topic()
            producer = self.producers[client.name] = Producer(drivers(client), unique("id"), timeout_ms)
            producer.begin(topic, "early")

    def readers(self) -> list[tuple[Driver, str]]:
        clients = [each for each in CLIENTS if chosen(each) and each.missing() is None]
        return [(self._drivers(next_of(each, clients)), self.topics[each.name]) for each in able()]


def test_the_broker_crashes_before_the_commit(
    own_broker: LocalBroker, drivers: Drivers, make_topic: Callable[[], str], unique: Unique
) -> None:
    party = Party(drivers, make_topic, unique, timeout_ms=300_000)
    own_broker.restart(crash=True)
    for name, producer in party.producers.items():
        producer.send(party.topics[name], "late")
        producer.end(commit=True)
    for reader, topic in party.readers():
        check(reader, topic, "early", "late")


def test_the_broker_ends_what_takes_too_long(
    broker: Broker, drivers: Drivers, make_topic: Callable[[], str], unique: Unique
) -> None:
    """Who reads committed records waits for the transactions' timeouts, and then for nothing more."""
    party = Party(drivers, make_topic, unique, timeout_ms=20_000)
    for reader, topic in party.readers():
        produce(reader, topic, "late")
        check(reader, topic, "late")
    for name, producer in party.producers.items():
        with pytest.raises(ClientError) as refused:
            producer.end(commit=True)
        expected = FENCED[name]["end"]
        if isinstance(broker, KafkaBroker):
            expected = TIMED_OUT.get(name, expected)
        assert (refused.value.name, refused.value.code) == expected, name
