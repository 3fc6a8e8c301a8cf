"""Subscriptions and assignments on the wire: all versions, other clients' readers, rubbish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.types import TopicPartition

TOLD = Subscription(("b", "a"), (TopicPartition("b", 1), TopicPartition("a", 0)), 7, "rack", b"data")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_in_every_version(version: int) -> None:
    owned = (TopicPartition("a", 0), TopicPartition("b", 1)) if version >= 1 else ()
    generation, rack = 7 if version >= 2 else -1, "rack" if version >= 3 else None
    data = encode_subscription(TOLD, version)
    assert decode_subscription(data) == Subscription(("a", "b"), owned, generation, rack, b"data")


def test_bytes_are_kafkas() -> None:
    """As kafka-clients 4.4.0 writes this subscription (ConsumerProtocol.serializeSubscription)."""
    assert encode_subscription(TOLD).hex() == (
        "0003000000020001610001620000000464617461"  # version, topics, user data
        "00000002000161000000010000000000016200000001000000010000000700047261636b"  # owned, generation, rack
    )
    assert encode_subscription(Subscription(("t",))).hex() == "000300000001000174ffffffff00000000ffffffffffff"
    assert encode_assignment([TopicPartition("t", 2), TopicPartition("t", 0)]).hex() == (
        "000100000001000174000000020000000000000002ffffffff"
    )


def test_newer_versions_are_read_as_the_newest() -> None:
    data = bytearray(encode_subscription(TOLD)) + b"what came later"
    data[1] = 9
    assert decode_subscription(bytes(data)) == decode_subscription(encode_subscription(TOLD))
    assert decode_assignment(b"\0\5" + encode_assignment([TopicPartition("t", 1)])[2:]) == (TopicPartition("t", 1),)


def test_an_empty_rack_is_none() -> None:
    assert decode_subscription(encode_subscription(TOLD._replace(rack=""))).rack is None


@given(st.binary(max_size=50))
def test_rubbish_is_an_empty_subscription(data: bytes) -> None:
    assert isinstance(decode_subscription(data), Subscription)
    assert isinstance(decode_assignment(data), tuple)


def test_other_python_clients_read_what_we_write() -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

    told = ConsumerProtocolMemberMetadata.decode(encode_subscription(TOLD))
    assert list(told.subscription) == ["a", "b"]
    assert told.user_data == b"data"
