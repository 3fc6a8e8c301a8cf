"""ListOffsets over the wire, at every version."""

import pytest

from barnabas.log.unified_log import UnifiedLog
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.testing import Broker
from broker.admin_rig import versions
from broker.handlers.records.five_records import list_offsets
from broker.handlers.records.five_records import topic as topic
from broker.sent_requests import T0
from broker.wire import Wire, name_of, on_loop, server_of


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_the_ends_and_times_of_a_log(broker: Broker, wire: Wire, version: int) -> None:
    def offset(timestamp: int, index: int = 0) -> tuple[str, int, int]:
        return list_offsets(wire, timestamp, version, index=index)[:3]

    assert offset(-1) == ("", 5, -1)
    assert offset(-2) == ("", 0, -1)
    assert offset(-1, index=1) == offset(-2, index=1) == ("", 0, -1)
    assert offset(0) == ("", 0, T0)
    assert offset(T0 + 1) == offset(T0 + 10) == ("", 1, T0 + 10)
    assert offset(T0 + 11) == offset(T0 + 21) == ("", 3, T0 + 30)
    assert offset(T0 + 31) == offset(T0, index=1) == ("", -1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_places_that_younger_versions_name(broker: Broker, wire: Wire, version: int) -> None:
    for spec, first, found in ((-3, 7, ("", 3, T0 + 30)), (-4, 8, ("", 0, -1)), (-5, 9, ("", -1, -1))):
        expected = found if version >= first else ("UnsupportedVersion", -1, -1)
        assert list_offsets(wire, spec, version)[:3] == expected


@pytest.mark.parametrize("version", [4, 6, 11])
def test_list_offsets_knows_the_leader_epoch(wire: Wire, version: int) -> None:
    assert list_offsets(wire, -1, version)[3] == 0
    assert list_offsets(wire, T0, version, epoch=0)[::3] == ("", 0)
    assert list_offsets(wire, T0, version, epoch=3)[0] == "UnknownLeaderEpoch"


def test_list_offsets_of_what_is_not_there(wire: Wire) -> None:
    assert list_offsets(wire, -1, 7, topic="gone")[0] == "UnknownTopicOrPartition"
    assert list_offsets(wire, -1, 7, index=9)[0] == "UnknownTopicOrPartition"
    assert list_offsets(wire, -1, 7, index=-1)[0] == "UnknownTopicOrPartition"


def test_a_partition_that_stands_twice_is_refused_alone(wire: Wire) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    (answer,) = wire.ask(request, 7).topics
    assert [name_of(found.error_code) for found in answer.partitions] == ["InvalidRequest", ""]


def test_the_end_is_not_told_before_it_is_known(broker: Broker, wire: Wire) -> None:
    broker.create_topic("empty")
    partition = server_of(broker).replica_manager.get("empty", 0)

    def behind(by: int) -> None:
        partition.epoch_start_offset = by

    on_loop(broker, lambda: behind(1))
    assert list_offsets(wire, -1, 5, topic="empty")[:2] == ("OffsetNotAvailable", -1)
    assert list_offsets(wire, 1_700_000_000_000, 5, topic="empty")[:2] == ("OffsetNotAvailable", -1)
    assert list_offsets(wire, -1, 4, topic="empty")[:2] == ("LeaderNotAvailable", -1)
    assert list_offsets(wire, -2, 5, topic="empty")[:2] == ("", 0)
    on_loop(broker, lambda: behind(0))
    assert list_offsets(wire, -1, 5, topic="empty")[:2] == ("", 0)


def test_a_disk_that_does_not_read_is_an_error_of_the_partition(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("empty")

    def fail(self, timestamp):  # type: ignore[no-untyped-def]
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(UnifiedLog, "offset_for_timestamp", fail)
    assert list_offsets(wire, 1, 5, topic="empty")[:2] == ("KafkaStorageError", -1)
