"""Batches that would poison their readers, by hand on the wire; each code is what Apache Kafka answered."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from crc32c import crc32c

from .harness import wire
from .harness.broker import Broker
from .harness.wire import encode_batch, encode_record, produce, simple_batch, zigzag

OK, CORRUPT, TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD, UNKNOWN = 0, 2, 10, 32, 87, -1
OUT_OF_ORDER, FENCED_EPOCH, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_ACKS = 45, 47, 3, 17, 21
#: Where Kafka says UNKNOWN_SERVER_ERROR a broker may know better.
REFUSED = {UNKNOWN, CORRUPT, INVALID_RECORD}

RECORDS = b"".join(encode_record(index, b"k", value) for index, value in enumerate((b"a", b"b", b"c")))
GOOD = simple_batch(b"a", b"b", b"c")
LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, COUNT = 8, 12, 16, 17, 21, 23, 35, 57


def changed(at: int, layout: str, value: int, *, right_crc: bool = True) -> bytes:
    """The good batch with one field changed, by default under a CRC that fits."""
    batch = bytearray(GOOD)
    struct.pack_into(layout, batch, at, value)
    if right_crc:
        struct.pack_into(">I", batch, CRC, crc32c(bytes(batch[ATTRIBUTES:])))
    return bytes(batch)


def future() -> bytes:
    return simple_batch(b"x", timestamp=time.time_ns() // 1_000_000 + 4 * 3_600_000)


GZIPPED = gzip.compress(RECORDS)
POISON: dict[str, tuple[bytes, set[int]]] = {
    "wrong CRC": (changed(CRC, ">I", 0, right_crc=False), {CORRUPT}),
    "one record more than there are": (changed(COUNT, ">i", 4), {INVALID_RECORD}),
    "one record less than there are": (changed(COUNT, ">i", 2), {INVALID_RECORD}),
    "no records": (changed(COUNT, ">i", 0), {INVALID_RECORD}),
    "negative count": (changed(COUNT, ">i", -1), {INVALID_RECORD}),
    "two billion records": (changed(COUNT, ">i", 2**31 - 1), {INVALID_RECORD}),
    "last offset too high": (changed(LAST_DELTA, ">i", 3), {INVALID_RECORD}),
    "last offset too low": (changed(LAST_DELTA, ">i", 1), {INVALID_RECORD}),
    "last offset negative": (changed(LAST_DELTA, ">i", -1), {INVALID_RECORD}),
    "longer than sent": (changed(LENGTH, ">i", len(GOOD) - 11), {INVALID_RECORD, CORRUPT}),
    "shorter than sent": (changed(LENGTH, ">i", len(GOOD) - 13), {CORRUPT}),
    "length zero": (changed(LENGTH, ">i", 0), {CORRUPT}),
    "length negative": (changed(LENGTH, ">i", -5), {CORRUPT}),
    "length of two gigabytes": (changed(LENGTH, ">i", 2**31 - 1), REFUSED | {TOO_LARGE}),
    "magic 1": (changed(MAGIC, ">b", 1), REFUSED),
    "magic 0": (changed(MAGIC, ">b", 0), REFUSED),
    "magic 3": (changed(MAGIC, ">b", 3), REFUSED),
    "magic -1": (changed(MAGIC, ">b", -1), REFUSED),
    "base offset 7": (changed(0, ">q", 7), {INVALID_RECORD}),
    "unknown codec 5": (changed(ATTRIBUTES, ">h", 5), REFUSED | {76}),
    "unknown codec 7": (changed(ATTRIBUTES, ">h", 7), REFUSED | {76}),
    "a control batch": (changed(ATTRIBUTES, ">h", 0x20), {INVALID_RECORD}),
    "four hours ahead": (future(), {INVALID_TIMESTAMP}),
    "nothing at all": (b"", {INVALID_RECORD}),
    "half a header": (GOOD[:40], {INVALID_RECORD, CORRUPT}),
    "cut by a byte": (GOOD[:-1], {INVALID_RECORD, CORRUPT}),
    "two batches": (GOOD + GOOD, {INVALID_RECORD}),
    "gzip that is none": (encode_batch(b"garbage", 3, codec=1), REFUSED),
    "snappy that is none": (encode_batch(b"garbage", 3, codec=2), REFUSED),
    "lz4 that is none": (encode_batch(b"garbage", 3, codec=3), REFUSED),
    "zstd that is none": (encode_batch(b"garbage", 3, codec=4), REFUSED),
    "snappy in the framing format": (encode_batch(bytes(cramjam.snappy.compress(RECORDS)), 3, codec=2), REFUSED),
    "gzip: one record more": (encode_batch(GZIPPED, 4, codec=1), {INVALID_RECORD}),
    "gzip: one record less": (encode_batch(GZIPPED, 2, codec=1), {INVALID_RECORD}),
    "gzip: last offset too high": (encode_batch(GZIPPED, 3, codec=1, last_offset_delta=5), {INVALID_RECORD}),
    "gzip: cut": (encode_batch(GZIPPED[:-9], 3, codec=1), REFUSED),
    "gzip: wrong checksum": (encode_batch(GZIPPED[:-8] + bytes(8), 3, codec=1), REFUSED),
    "gzip: records of garbage": (encode_batch(gzip.compress(b"\xff" * 50), 3, codec=1), REFUSED),
    "gzip: offsets in disorder": (
        encode_batch(gzip.compress(encode_record(1, b"k", b"a") + encode_record(0, b"k", b"a")), 2, codec=1),
        REFUSED,
    ),
    "records of garbage": (encode_batch(b"\xff" * 50, 3), REFUSED),
    "a record too short for its fields": (encode_batch(b"\x02" + RECORDS[1:], 3), REFUSED),
    "a key longer than its record": (encode_batch(b"\x14\0\0\0" + zigzag(10**9) + b"kkkkkkk", 1), REFUSED),
    "a producer without sequence": (simple_batch(b"x", producer_id=900_001, epoch=0, sequence=-1), {INVALID_RECORD}),
    "above max.message.bytes": (simple_batch(b"x" * 1_100_000), {TOO_LARGE}),
}

FINE = {
    "a leader epoch of its own": changed(EPOCH, ">i", 9),
    "with a reserved attribute": changed(ATTRIBUTES, ">h", 0x80),
    "from 1970": simple_batch(b"x", timestamp=1),
    "without timestamp": simple_batch(b"x", timestamp=-1),
    "gzip": encode_batch(GZIPPED, 3, codec=1),
    "gzip in two members": encode_batch(gzip.compress(RECORDS[:11]) + gzip.compress(RECORDS[11:]), 3, codec=1),
    "snappy in one raw block": encode_batch(bytes(cramjam.snappy.compress_raw(RECORDS)), 3, codec=2),
    "lz4": encode_batch(lz4.frame.compress(RECORDS, block_linked=False), 3, codec=3),
    "zstd": encode_batch(zstandard.compress(RECORDS), 3, codec=4),
    "a producer that begins at sequence 5": simple_batch(b"x", producer_id=900_002, epoch=0, sequence=5),
}


@pytest.mark.parametrize("name", POISON)
def test_poison_is_refused_and_nothing_is_stored(name: str, shared_topic: str, broker: Broker) -> None:
    batch, codes = POISON[name]
    with wire.Connection(broker.address) as connection:
        before = wire.end_offset(connection, shared_topic, 0)
        answer = produce(connection, shared_topic, 0, batch)
        assert answer.error in codes
        assert answer.offset == -1
        # The connection goes on, and so does the partition.
        assert wire.end_offset(connection, shared_topic, 0) == before
        assert produce(connection, shared_topic, 0, GOOD) == (OK, before[1])


@pytest.mark.parametrize("name", FINE)
def test_unusual_but_fine(name: str, topic: str, broker: Broker) -> None:
    with wire.Connection(broker.address) as connection:
        assert produce(connection, topic, 0, GOOD) == (OK, 0)
        assert produce(connection, topic, 0, FINE[name]) == (OK, 3)
        assert produce(connection, topic, 0, GOOD).error == OK
    first, second, third = wire.fetch_all(broker.address, topic)
    assert first.as_sent == third.as_sent == GOOD[8:12] + GOOD[16:]
    assert second.as_sent == FINE[name][8:12] + FINE[name][16:]


def test_only_the_broker_says_log_append_time(topic: str, broker: Broker) -> None:
    with wire.Connection(broker.address) as connection:
        assert produce(connection, topic, 0, changed(ATTRIBUTES, ">h", 0x08)) == (OK, 0)
    (stored,) = wire.fetch_all(broker.address, topic)
    assert stored.attributes & 0x08 == 0
    assert stored.crc_is_right


@pytest.fixture(scope="module")
def shared_topic(broker: Broker) -> str:
    name = f"poison.{time.time_ns()}"
    wire.create_topic(broker.address, name)
    return name


def test_a_small_batch_that_grows_huge_does_no_harm(topic: str, broker: Broker) -> None:
    bomb = encode_batch(zstandard.compress(encode_record(0, b"k", bytes(50_000_000))), 1, codec=4)
    with wire.Connection(broker.address, timeout_s=30) as connection:
        produce(connection, topic, 0, bomb)  # Kafka takes it; a broker may refuse it
        assert produce(connection, topic, 0, GOOD).error == OK


def test_keys_are_wanted_by_compacted_topics(unique: Callable[[str], str], broker: Broker) -> None:
    name = unique("compacted")
    wire.create_topic(broker.address, name, configs={"cleanup.policy": "compact"})
    keyless = encode_record(0, None, b"v")
    with wire.Connection(broker.address) as connection:
        assert produce(connection, name, 0, encode_batch(keyless, 1)).error == INVALID_RECORD
        assert produce(connection, name, 0, encode_batch(gzip.compress(keyless), 1, codec=1)).error == INVALID_RECORD
        assert produce(connection, name, 0, GOOD) == (OK, 0)


def test_wrong_places(topic: str, broker: Broker, unique: Callable[[str], str]) -> None:
    with wire.Connection(broker.address) as connection:
        assert produce(connection, topic, 7, GOOD).error == UNKNOWN_TOPIC
        assert produce(connection, topic, -1, GOOD).error == UNKNOWN_TOPIC
        assert produce(connection, unique("unknown"), 0, GOOD).error == UNKNOWN_TOPIC
        assert produce(connection, "not a name", 0, GOOD).error in (UNKNOWN_TOPIC, INVALID_TOPIC)


@pytest.mark.parametrize("acks", [2, -2])
def test_wrong_acks(topic: str, broker: Broker, acks: int) -> None:
    with wire.Connection(broker.address) as connection:
        reader = connection.ask(wire.PRODUCE, 7, wire.produce_body(topic, 0, GOOD, acks=acks))
        assert wire.produced(reader).error == INVALID_ACKS
        assert wire.end_offset(connection, topic, 0) == (OK, 0)


def test_sequences_of_an_idempotent_producer(topic: str, broker: Broker) -> None:
    def send(epoch: int, sequence: int) -> tuple[int, int]:
        return produce(connection, topic, 0, simple_batch(b"x", producer_id=910_001, epoch=epoch, sequence=sequence))

    with wire.Connection(broker.address) as connection:
        assert send(3, 0) == (OK, 0)
        assert send(3, 0) == (OK, 0)  # a duplicate is answered with its first offset
        assert send(3, 1) == (OK, 1)
        assert send(3, 3) == (OUT_OF_ORDER, -1)
        assert send(3, 1) == (OK, 1)
        assert send(2, 2) == (FENCED_EPOCH, -1)
        assert send(4, 5) == (OUT_OF_ORDER, -1)
        assert send(4, 0) == (OK, 2)
        assert wire.end_offset(connection, topic, 0) == (OK, 3)


def test_five_in_flight_are_remembered(topic: str, broker: Broker) -> None:
    with wire.Connection(broker.address) as connection:
        batches = [simple_batch(b"x", producer_id=910_002, epoch=0, sequence=index) for index in range(6)]
        assert [produce(connection, topic, 0, each).offset for each in batches] == list(range(6))
        assert [produce(connection, topic, 0, each).offset for each in batches[1:]] == list(range(1, 6))
        assert wire.end_offset(connection, topic, 0) == (OK, 6)


def test_fetches_from_wrong_offsets(topic: str, broker: Broker) -> None:
    with wire.Connection(broker.address) as connection:
        produce(connection, topic, 0, GOOD)
        for offset in (-1, -5, 4, 10**9):
            assert wire.fetch(connection, topic, 0, offset, wait_ms=100)[0] == 1, offset
        assert wire.fetch(connection, topic, 9, 0, wait_ms=100)[0] == UNKNOWN_TOPIC
        error, high_watermark, data = wire.fetch(connection, topic, 0, 0, max_bytes=0)
        assert (error, high_watermark) == (OK, 3)
        assert [batch.record_count for batch in wire.split_batches(data)] == [3]
        # From the middle of a batch the whole batch comes.
        _, _, data = wire.fetch(connection, topic, 0, 2)
        assert [batch.base_offset for batch in wire.split_batches(data)] == [0]
