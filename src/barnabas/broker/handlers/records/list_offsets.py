"""ListOffsets v1-v11: the offset at a timestamp, or at one of the named places of a log.

There is no tiered storage here: the earliest local offset is the log's start, and tiered segments have no offsets.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from barnabas.broker.requests.duplicates import once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.replication.partition import Partition
from barnabas.types import LeaderEpoch

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_NOT_AVAILABLE_FROM = 5
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

Find = Callable[[BrokerServices, str, ListOffsetsPartition, bool, int], ListOffsetsPartitionResponse]


def handle(broker: BrokerServices, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, []).extend(topic.partitions)
    committed, version = request.isolation_level == 1, context.api_version
    find = _find_for_follower if context.is_broker and request.replica_id >= 0 else _find
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name, partitions=_partitions(broker, name, partitions, committed, version, find)
            )
            for name, partitions in topics.items()
        ]
    )


def _partitions(
    broker: BrokerServices,
    topic: str,
    partitions: list[ListOffsetsPartition],
    read_committed: bool,
    version: int,
    find: Find,
) -> Sequence[ListOffsetsPartitionResponse]:
    seen = Counter(wanted.partition_index for wanted in partitions)

    def one(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        try:
            if seen[index] > 1:
                raise InvalidRequest("the partition stands more than once in the request")
            return find(broker, topic, wanted, read_committed, version)
        except (KafkaError, OSError, EOFError) as error:
            if not isinstance(error, KafkaError):
                broker.log.error("%s-%d: reading for a time failed: %s", topic, index, error)
                error = KafkaStorageError()
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code, timestamp=-1, offset=-1)

    return LazySequence(once(partitions, lambda wanted: wanted.partition_index), one)


def _find_for_follower(
    broker: BrokerServices, topic: str, wanted: ListOffsetsPartition, read_committed: bool, version: int
) -> ListOffsetsPartitionResponse:
    """Finds the latest offset for a follower: the end of the log, whether its records are committed or not."""
    if wanted.timestamp != LATEST:
        return _find(broker, topic, wanted, read_committed, version)
    partition = broker.replica_manager.leader_of(topic, wanted.partition_index)
    partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=-1,
        offset=partition.log.log_end_offset,
        leader_epoch=partition.leader_epoch,
    )


def _find(
    broker: BrokerServices, topic: str, wanted: ListOffsetsPartition, read_committed: bool, version: int
) -> ListOffsetsPartitionResponse:
    partition = broker.replica_manager.leader_of(topic, wanted.partition_index)
    partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
    log = partition.log
    timestamp, offset, epoch = -1, -1, -1
    spec = wanted.timestamp
    if spec < EARLIEST and version < _FIRST_VERSION.get(spec, 1 << 15):
        raise UnsupportedVersion(f"timestamp {spec} has no meaning in ListOffsets v{version}")
    if spec == LATEST:
        _check_committed(partition, version)
        offset = partition.upper_bound(read_committed=read_committed)
        epoch = partition.leader_epoch
    elif spec in (EARLIEST, EARLIEST_LOCAL):
        offset = log.log_start_offset
        empty = offset == log.log_end_offset  # the next record will have the current leader epoch
        epoch = partition.leader_epoch if empty else log.leader_epochs.epoch_for(offset)
    elif spec in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        pass
    else:
        found = log.max_timestamp() if spec == MAX_TIMESTAMP else log.offset_for_timestamp(spec)
        if found is not None and found[1] < partition.upper_bound(read_committed=read_committed):
            timestamp, offset, epoch = found
        else:
            _check_committed(partition, version)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _check_committed(partition: Partition, version: int) -> None:
    """Raises an error while a new leader does not know the high watermark: the end offset that clients see would go
    back."""
    if partition.log.high_watermark < partition.epoch_start_offset:
        raise (OffsetNotAvailable if version >= _NOT_AVAILABLE_FROM else LeaderNotAvailable)(
            f"the high watermark of {partition.topic_partition} has not reached the start of its leader's epoch"
        )
