"""The versions that kio does not have yet, against the bytes that the classes of kafka-clients 4.4.0 write."""

from uuid import UUID

import pytest

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.schema import Message

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")

WRITTEN_BY_KAFKA = [
    (
        ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id="c", node_id=7),
        5,
        "0261023102630000000700",
    ),
    (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 5, "0261023100ffffffff00"),
    (ApiVersionsResponse(error_code=129), 5, "0081010000000000"),
    (
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=7,
            producer_epoch=2,
            generation_id=3,
            member_id="m",
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=1, committed_offset=5, committed_leader_epoch=4, committed_metadata="x"
                        )
                    ],
                )
            ],
        ),
        6,
        f"027402670000000000000007000200000003026d0002{TOPIC_ID.hex}02000000010000000000000005000000040278000000",
    ),
    (
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[TxnOffsetCommitResponsePartition(partition_index=1, error_code=100)],
                )
            ]
        ),
        6,
        "00000000020102030405060708090a0b0c0d0e0f1002000000010064000000",
    ),
    (DeleteGroupsRequest(groups_names=["g"]), 3, "02026700"),
    (
        DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id="g", error_code=134, error_message="no"),
                DeletableGroupResult(group_id="h"),
            ]
        ),
        3,
        "000000000302670086036e6f0002680000000000",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "written"), WRITTEN_BY_KAFKA, ids=[type(each[0]).__name__ for each in WRITTEN_BY_KAFKA]
)
def test_the_bytes_are_kafkas(message: Message, version: int, written: str) -> None:
    assert bytes(encode(message, version)).hex() == written
    assert decode(type(message), version, bytes.fromhex(written))[0] == message
