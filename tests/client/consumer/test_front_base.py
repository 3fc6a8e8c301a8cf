"""The calls that `barnabas.Consumer` and `barnabas.aio.Consumer` share: the same story told to both."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import ClientClosed, UsageError, WokenUp
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from client.consumer.conftest import RECORDS, poll_all
from client.fronts import public_methods

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_both_fronts_have_the_same_names_and_arguments() -> None:
    assert public_methods(barnabas.Consumer) == public_methods(barnabas.aio.Consumer)


def test_reading_committing_and_going_on(front: Any, topic: str, settings: dict[str, Any]) -> None:
    seen = []
    consumer = front(topic, **settings, enable_auto_commit=False)
    for record in consumer:
        seen.append((record.partition, record.offset))
        if len(seen) == 150:
            break
    consumer.commit()
    topic_partition = [TopicPartition(topic, number) for number in (0, 1)]
    committed = consumer.committed(topic_partition)
    assert sum(found.offset for found in committed.values() if found is not None) == 150
    assert {place: consumer.position(place) for place in topic_partition} == {
        place: found.offset if found is not None else 0 for place, found in committed.items()
    }
    consumer.close()
    consumer = front(topic, **settings)
    for records in consumer.batches():
        seen += [(record.partition, record.offset) for record in records]
        if len(seen) >= RECORDS:
            break
    consumer.close()
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(100)]
    with barnabas.Consumer(**settings) as later:
        assert {found.offset for found in later.committed(topic_partition).values() if found is not None} == {100}


def test_batches_as_columns(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **settings)
    count = 0
    for batch in consumer.batches():
        assert batch.to_arrow().column("value").to_pylist() == batch.values()
        assert batch.values() == [record.value for record in batch]
        assert consumer.position(TopicPartition(batch.topic, batch.partition)) == batch[-1].offset + 1
        count += len(batch)
        if count >= RECORDS:
            break
    consumer.close()
    assert count == RECORDS, "records came twice"


def test_polling_for_batches(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(**settings, enable_auto_commit=False)
    place = TopicPartition(topic, 1)
    consumer.assign([place])
    batch = consumer.poll_batch(60)
    assert (batch.topic, batch.partition, len(batch)) == (topic, 1, 100)
    assert list(batch.offsets()) == list(range(100))
    assert list(batch.timestamps()) == list(range(1000, 1100))
    columns = batch.offsets(), batch.timestamps(), batch.keys(), batch.values(), batch.headers()
    rows = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in batch]
    assert list(zip(*columns, strict=True)) == rows
    assert consumer.position(place) == 100
    assert consumer.poll_batch(0.01) is None, "nothing more came"
    consumer.commit()
    assert consumer.committed([place])[place].offset == 100
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll_batch(0)


def test_batches_that_deserializers_have_seen(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **{**settings, "value_deserializer": bytes.hex})
    batch = next(iter(consumer.batches()))
    assert batch.values() == [record.value for record in batch]
    assert all(isinstance(value, str) for value in batch.values())
    with pytest.raises(UsageError, match=r"use Consumer\.arrow"):
        batch.to_arrow()
    consumer.close()


def test_partitions_by_hand(front: Any, topic: str, settings: dict[str, Any]) -> None:
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = front(**settings)
    consumer.assign([place])
    assert consumer.assignment() == {place}
    assert [record.offset for record in consumer.poll(60, max_records=5)] == [0, 1, 2, 3, 4]
    consumer.seek(place, 90)
    assert [record.offset for record in consumer.poll(60)] == [*range(90, 100)]
    assert consumer.poll(0.05) == []
    consumer.seek_to_beginning()
    consumer.pause([place])
    assert consumer.paused() == {place}
    assert consumer.poll(0.1) == []
    consumer.resume([place])
    assert consumer.poll(60, max_records=1)[0].offset == 0
    assert consumer.beginning_offsets([place, other]) == {place: 0, other: 0}
    assert consumer.end_offsets([place]) == {place: 100}
    times = consumer.offsets_for_times({place: 1050, other: 5000})
    assert times[place][:2] == (50, 1050)
    assert times[other] is None
    assert [view.leader for view in consumer.partitions_for(topic)] == [1, 1]
    consumer.seek_to_end()
    assert consumer.position(place, timeout=60) == 100
    assert consumer.health().state == "assigned by hand"
    assert consumer.metrics()["assigned_partitions"] == 1
    consumer.close()
    consumer.close()


def test_arrow_tables(front: Any, topic: str, settings: dict[str, Any]) -> None:
    pytest.importorskip("pyarrow")
    consumer = front(topic, **settings)
    rows = 0
    for table in consumer.arrow():
        rows += table.num_rows
        if rows >= RECORDS:
            break
    consumer.close()
    assert rows == RECORDS, "records came twice"


def test_what_the_listener_hears(front: Any, topic: str, settings: dict[str, Any]) -> None:
    heard: list[tuple[str, int]] = []
    consumer = front(
        topic,
        **settings,
        on_assigned=lambda _, partitions: heard.append(("assigned", len(partitions))),
        on_revoked=lambda _, partitions: heard.append(("revoked", len(partitions))),
    )
    assert consumer.poll(60)
    assert consumer.group_metadata()[:2] == (settings["group_id"], 1)
    consumer.unsubscribe()
    assert heard == [("assigned", 2), ("revoked", 2)]
    assert consumer.assignment() == set()
    consumer.subscribe([topic])
    while len(heard) == 2:
        consumer.poll(0.1)
    assert heard[2:] == [("assigned", 2)]
    consumer.close()
    assert heard[3:] == [("revoked", 2)]


def test_asynchronous_commits_are_told(front: Any, topic: str, settings: dict[str, Any]) -> None:
    told: list[Any] = []
    consumer = front(**settings)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.commit_async({place: 7}, lambda offsets, error: told.append((offsets[place].offset, error)))
    deadline = time.monotonic() + 60
    while not told and time.monotonic() < deadline:
        consumer.poll(0.05)
    assert told == [(7, None)]
    assert consumer.committed([place])[place].offset == 7
    consumer.close()


def test_wakeup_comes_out_of_the_next_poll(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **settings)
    consumer.wakeup()
    with pytest.raises(WokenUp):
        consumer.poll(60)
    assert consumer.poll(60)
    consumer.close()


def test_a_closed_consumer_does_nothing_more(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll(1)
    assert list(consumer) == []


def places(records: list[Any]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def test_without_a_group_all_partitions_of_the_topics_are_read(front: Any, topic: str, alone: dict[str, Any]) -> None:
    everything = [(partition, offset) for partition in (0, 1) for offset in range(100)]
    for _ in range(2):  # nothing is committed: the second reads the same
        consumer = front(topic, **alone)
        assert places(poll_all(consumer)) == everything
        assert consumer.health().state == "without a group"
        with pytest.raises(UsageError, match=r"needs group\.id"):
            consumer.commit()
        consumer.close()


def test_without_a_group_the_reset_says_where_to_begin(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    consumer = front(topic, **{**alone, "auto_offset_reset": "latest"})
    while not consumer.assignment():
        consumer.poll(0)
    assert [consumer.position((topic, partition), 60) for partition in (0, 1)] == [100, 100]
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"new", partition=1)
    assert [record.value for record in consumer.poll(60)] == [b"new"]
    consumer.close()


def test_without_a_group_the_listener_may_seek_before_anything_is_read(
    front: Any, topic: str, alone: dict[str, Any]
) -> None:
    heard = []

    def begin_late(consumer: Any, partitions: Any) -> None:
        heard.append(sorted(partitions))
        for partition in partitions:
            consumer.seek(partition, 90)

    consumer = front(topic, **alone, on_assigned=begin_late, on_revoked=lambda _, gone: heard.append(sorted(gone)))
    assert places(poll_all(consumer, 20)) == [(partition, offset) for partition in (0, 1) for offset in range(90, 100)]
    consumer.close()
    assert heard == [[(topic, 0), (topic, 1)]] * 2


def test_without_a_group_new_partitions_are_read_as_they_come(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    consumer = front(topic, **alone, metadata_max_age_ms=50)
    poll_all(consumer)
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin, pytest.warns(barnabas.errors.KeysMove):
        admin.create_partitions({topic: 3})
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"new", partition=2)
    assert [(record.partition, record.value) for record in consumer.poll(60)] == [(2, b"new")]
    consumer.close()


def test_without_a_group_a_new_subscription_replaces_the_old_one(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    broker.create_topic(f"{topic}-other", partitions=1)
    gone: list[Any] = []
    consumer = front(topic, **alone, on_revoked=lambda _, partitions: gone.extend(partitions))
    poll_all(consumer)
    consumer.subscribe([f"{topic}-other"])
    while consumer.assignment() != {(f"{topic}-other", 0)}:
        consumer.poll(0.01)
    assert sorted(gone) == [(topic, 0), (topic, 1)]
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.close()


@pytest.mark.parametrize("group", [True, False], ids=["group", "alone"])
def test_what_begins_with_a_circumflex_is_a_regular_expression(
    front: Any, topic: str, settings: dict[str, Any], broker: Broker, group: bool
) -> None:
    named = f"plain-{topic}"
    broker.create_topic(named, partitions=1)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(named, b"one more")
    settings["group_id"] = settings["group_id"] if group else None
    consumer = front(f"^{topic[:-1]}[{topic[-1]}]", named, **settings)
    records = poll_all(consumer, RECORDS + 1)
    assert {record.topic for record in records} == {topic, named} == consumer.subscription()
    consumer.close()


def test_an_expression_that_is_none_is_refused(front: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\^orders-\(.*no regular expression"):
        front("^orders-(", **settings)


@pytest.mark.parametrize("ask", ["poll", "iterate", "batches"])
def test_who_polls_without_anything_to_read_hears_so_at_once(front: Any, settings: dict[str, Any], ask: str) -> None:
    consumer = front(**settings)
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(60),
        "iterate": lambda: next(iter(consumer)),
        "batches": lambda: next(iter(consumer.batches())),
    }
    with pytest.raises(UsageError, match=r"nothing to read: give it topics.*subscribe.*assign"):
        calls[ask]()
    consumer.close()


@pytest.mark.timeout(60)
def test_without_a_reachable_broker_the_user_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

    def told() -> list[str]:
        return [record.message for record in caplog.records if record.levelno == logging.WARNING]

    async def wait_there() -> None:
        async with barnabas.aio.Consumer("t", bootstrap_servers=address) as consumer:
            while len(told()) < 2:
                assert await consumer.poll(0.1) == []

    def wait_here() -> None:
        with barnabas.Consumer("t", bootstrap_servers=address) as consumer:
            while len(told()) < 2:
                assert consumer.poll(0.1) == []

    thread = threading.Thread(target=wait_here)
    thread.start()
    asyncio.run(wait_there())
    thread.join()
    refused = f"the consumer goes on trying: no broker reachable: {address}: tcp: connection refused (nothing listens"
    assert [text.startswith(refused) for text in told()] == [True, True], told()


def test_what_settings_warn_of_is_told(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    barnabas.Consumer(**settings, sasl_username="me").close()
    assert "security.protocol is PLAINTEXT, so sasl.username has no effect" in caplog.text
