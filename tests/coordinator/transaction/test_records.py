"""Records of __transaction_state against bytes that Kafka 4.4.0's own TransactionLogValue writes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.transaction.records import TransactionRecord, decode_record, encode_record
from barnabas.coordinator.transaction.transaction_metadata import NO_TIMEOUT, TransactionMetadata, TransactionState
from barnabas.errors import CorruptMessage
from barnabas.types import TopicPartition

S = TransactionState

KEY = bytes.fromhex("0000000d62657374656c6c756e672dc3bc")
ID = "bestellung-ü"
THEN = 1_700_000_000_000
ORDERS = frozenset((TopicPartition("orders", 3),))

EMPTY = TransactionMetadata(4711, 60_000, THEN, 3, previous_producer_id=4711)
ONGOING = EMPTY._replace(
    state=S.ONGOING,
    partitions=ORDERS,
    start_timestamp_ms=THEN,
    last_update_timestamp_ms=THEN + 1,
    client_transaction_version=2,
)
WRITTEN = {
    "empty": (EMPTY, "0001000000000000126700030000ea6000000000018bcfe56800ffffffffffffffff0100080000000000001267"),
    "ongoing": (
        ONGOING,
        (
            "0001000000000000126700030000ea600102076f72646572730200000003000000018bcfe568010000018bcfe56800"
            "020008000000000000126702020002"
        ),
    ),
    "prepared": (
        ONGOING._replace(state=S.PREPARE_COMMIT, producer_epoch=4, last_update_timestamp_ms=THEN + 2),
        (
            "0001000000000000126700040000ea600202076f72646572730200000003000000018bcfe568020000018bcfe56800"
            "020008000000000000126702020002"
        ),
    ),
    "out of epochs": (
        ONGOING._replace(
            state=S.PREPARE_ABORT,
            producer_epoch=32767,
            next_producer_id=4712,
            timeout_ms=NO_TIMEOUT,
            last_update_timestamp_ms=THEN + 2,
        ),
        (
            "000100000000000012677fff7fffffff0302076f72646572730200000003000000018bcfe568020000018bcfe56800"
            "03000800000000000012670108000000000000126802020002"
        ),
    ),
    "completed": (
        ONGOING._replace(
            state=S.COMPLETE_ABORT,
            producer_id=4712,
            producer_epoch=0,
            partitions=frozenset(),
            last_update_timestamp_ms=THEN + 3,
        ),
        "0001000000000000126800000000ea6005010000018bcfe568030000018bcfe56800020008000000000000126702020002",
    ),
    "an older client's": (
        ONGOING._replace(state=S.PREPARE_ABORT, client_transaction_version=0),
        (
            "0001000000000000126700030000ea600302076f72646572730200000003000000018bcfe568010000018bcfe56800"
            "0100080000000000001267"
        ),
    ),
    "kept for a two-phase commit": (
        ONGOING._replace(
            timeout_ms=NO_TIMEOUT,
            next_producer_id=4711,
            next_producer_epoch=9,
            partitions=frozenset(TopicPartition("orders", index) for index in (200, 0, 3))
            | {TopicPartition("__consumer_offsets", 12)},
        ),
        (
            "0001000000000000126700037fffffff0103135f5f636f6e73756d65725f6f666673657473020000000c00076f7264657273"
            "040000000000000003000000c8000000018bcfe568010000018bcfe56800"
            "0400080000000000001267010800000000000012670202000203020009"
        ),
    ),
}
VERSION_0 = {
    "empty": (EMPTY, "0000000000000000126700030000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    "ongoing": (
        ONGOING._replace(state=S.PREPARE_ABORT, client_transaction_version=0),
        "0000000000000000126700030000ea60030000000100066f726465727300000001000000030000018bcfe568010000018bcfe56800",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_as_kafka_writes(name: str) -> None:
    metadata, value = WRITTEN[name]
    assert encode_record(TransactionRecord(ID, metadata)) == (KEY, bytes.fromhex(value))


@pytest.mark.parametrize("name", WRITTEN)
def test_read_again(name: str) -> None:
    metadata, value = WRITTEN[name]
    assert decode_record(KEY, bytes.fromhex(value)) == TransactionRecord(ID, metadata)


@pytest.mark.parametrize("name", VERSION_0)
def test_version_0_is_read(name: str) -> None:
    metadata, value = VERSION_0[name]
    expected = TransactionRecord(ID, metadata._replace(previous_producer_id=-1))
    assert decode_record(KEY, bytes.fromhex(value)) == expected


def test_the_last_epoch_is_not_in_the_log() -> None:
    again = ONGOING._replace(last_producer_epoch=2)
    assert encode_record(TransactionRecord(ID, again)) == encode_record(TransactionRecord(ID, ONGOING))


def test_tombstones() -> None:
    assert encode_record(TransactionRecord(ID, None)) == (KEY, None)
    assert decode_record(KEY, None) == TransactionRecord(ID, None)


def test_kinds_and_versions_of_later_protocols_are_left_alone() -> None:
    assert decode_record(b"\0\1" + KEY[2:], b"\0\0") is None
    assert decode_record(KEY, b"\0\2" + bytes(80)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY[:-1], bytes.fromhex(WRITTEN["empty"][1])),
        (KEY, bytes.fromhex(WRITTEN["ongoing"][1])[:30]),
        (KEY, bytes.fromhex("0001000000000000126700030000ea6063000000018bcfe56800ffffffffffffffff00")),
        (KEY, b""),
        (KEY, b"\0"),
    ],
)
def test_damaged_records(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_record(key, value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_rubbish_is_a_record_or_one_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(CorruptMessage):
        decode_record(key, value)


@given(st.binary(max_size=120))
def test_rubbish_values_are_a_record_or_one_error(value: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        decode_record(KEY, b"\0\1" + value)


_INT64 = st.integers(-1, 2**63 - 1)
_EPOCH = st.integers(-1, 32767)


@given(
    st.builds(
        TransactionMetadata,
        producer_id=_INT64,
        timeout_ms=st.integers(1, NO_TIMEOUT),
        last_update_timestamp_ms=_INT64,
        producer_epoch=_EPOCH,
        last_producer_epoch=st.just(-1),
        previous_producer_id=_INT64,
        next_producer_id=_INT64,
        next_producer_epoch=_EPOCH,
        state=st.sampled_from(sorted(S, key=lambda state: state.number)),
        partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=5),
        start_timestamp_ms=_INT64,
        client_transaction_version=st.integers(0, 2),
    )
)
def test_whatever_is_written_is_read(metadata: TransactionMetadata) -> None:
    expected = metadata._replace(partitions=frozenset()) if metadata.state is S.EMPTY else metadata
    assert decode_record(*encode_record(TransactionRecord("t", metadata))) == TransactionRecord("t", expected)
