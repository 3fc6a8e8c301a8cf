"""DeleteRecords over the wire, at every version."""

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.testing import Broker
from broker.admin_rig import versions
from broker.handlers.records.five_records import list_offsets
from broker.handlers.records.five_records import topic as topic
from broker.sent_requests import batch, fetch, produce
from broker.wire import Wire, name_of


def delete_records(wire: Wire, offset: int, version: int = 2, *, topic: str = "t", index: int = 0) -> tuple[str, int]:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    ((found,),) = [
        answer.partitions for answer in wire.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), version).topics
    ]
    return name_of(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_the_start_of_a_log_moves_up(broker: Broker, wire: Wire, version: int) -> None:
    assert delete_records(wire, 2, version) == ("", 2)
    assert delete_records(wire, 1, version) == ("", 2), "never back"
    assert list_offsets(wire, -2, 7)[1] == 2
    answer = wire.ask(fetch(broker, {0: 0}), 12)
    assert name_of(answer.responses[0].partitions[0].error_code) == "OffsetOutOfRange"
    assert delete_records(wire, 6, version) == ("OffsetOutOfRange", -1)
    assert delete_records(wire, -2, version) == ("OffsetOutOfRange", -1)
    assert delete_records(wire, -1, version) == ("", 5)
    assert [record.offset for record in broker.records("t", 0)] == []


def test_records_that_may_not_be_deleted(broker: Broker, wire: Wire) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    broker.create_topic("both", configs={"cleanup.policy": "compact,delete"})
    assert delete_records(wire, 0, topic="compacted") == ("PolicyViolation", -1)
    assert delete_records(wire, 0, topic="both") == ("", 0)
    assert delete_records(wire, 0, topic="gone") == ("UnknownTopicOrPartition", -1)
    assert delete_records(wire, 0, index=5) == ("UnknownTopicOrPartition", -1)


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with Wire(broker) as wire:
            wire.ask(produce(broker, {0: batch(b"a", b"b", b"c")}), 12)
            assert delete_records(wire, 2) == ("", 2)
        broker.restart()
        assert [record.value for record in broker.records("t")] == [b"c"]
