"""The group coordinator of a running broker: what it writes, and what goes with a topic."""

from typing import Any

import pytest

from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.records.batch import iter_headers
from barnabas.records.compression import CODEC_IDS
from barnabas.testing import Broker
from broker.wire import Wire, server_of


def commit(wire: Wire, offset: int, topic: str = "t") -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m" * 500)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    assert wire.ask(request, 8).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(("number", "codec"), list(enumerate(["none", "gzip", "snappy", "lz4", "zstd"])))
def test_coordinators_compress_as_they_are_told_and_load_what_they_wrote(number: int, codec: str) -> None:
    settings: dict[str, Any] = {
        "offsets.topic.compression.codec": number,
        "offsets.topic.num.partitions": 1,
        "offsets.load.buffer.size": 100,  # smaller than any batch: each is read whole all the same
    }
    with Broker(settings=settings) as broker:
        broker.create_topic("t")
        with Wire(broker) as wire:
            wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
            for offset in range(20):
                commit(wire, offset)
        log = server_of(broker).replica_manager.leader_of("__consumer_offsets", 0).log
        read = log.read(0, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).file_slice
        assert read is not None
        assert {header.compression_type for header in iter_headers(read.read())} == {CODEC_IDS[codec]}
        broker.restart()
        assert broker.committed("g") == {("t", 0): 19}


def test_offsets_go_with_their_topic() -> None:
    with Broker() as broker, Wire(broker) as wire:
        wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        for name in ("t", "kept"):
            broker.create_topic(name)
            commit(wire, 5, topic=name)
        assert broker.committed("g") == {("t", 0): 5, ("kept", 0): 5}
        broker.delete_topic("t")
        broker.wait_for(lambda: broker.committed("g") == {("kept", 0): 5})
        broker.create_topic("t")
        assert broker.committed("g") == {("kept", 0): 5}, "the new topic of that name has no offsets"
