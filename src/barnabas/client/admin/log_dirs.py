"""Operations on the brokers' log directories: what is in them, and moves of replicas between them (KIP-113)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.admin.operations import AdminOperations, BrokerNodes, partitions_of
from barnabas.client.admin.topics import partition_error
from barnabas.client.offset_messages import by_topic
from barnabas.connection.network_client import Node
from barnabas.connection.retry import Answer
from barnabas.types import BrokerId, TopicPartition

__all__ = ["LogDir", "LogDirOperations", "LogDirReplica", "TopicPartitionReplica"]


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


FULL_BYTES: Final = 64 * 1024
"""Less than this is left where a disk is full: what was written in part was cut off again."""


class LogDirReplica(NamedTuple):
    """One replica's space on disk, in bytes. A replica that `is_future` is moved into this directory: it is there a
    second time, and has still to copy `offset_lag` records.

    `compaction` is that of a compacted log: cleaned_offset, dirty_bytes, dirty_ratio, last_cleaned_ms, uncleanable (the
    reason, if it is), ... Barnabas's brokers send it in a tagged field of their own; None from other brokers. `damage`
    is what they cannot read of a log that is damaged: the file, the position and the error; '' if they know of nothing.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    compaction: dict[str, Any] | None = None
    is_future: bool = False
    damage: str = ""


class LogDir(NamedTuple):
    """One log directory of a broker; -1 for sizes that the broker does not tell. With an error code nothing else is
    known.

    `is_cordoned`: it gets no new replicas (KIP-1066). `device` names the disk, for all brokers of a machine alike.
    Barnabas's brokers send it in a tagged field of their own; empty from other brokers.
    """

    broker_id: BrokerId
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: tuple[LogDirReplica, ...]
    device: str = ""
    is_cordoned: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the disk has no room for records."""
        return 0 <= self.usable_bytes < FULL_BYTES


class LogDirOperations(AdminOperations):
    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, list[LogDir]]:
        """Returns the log directories of these brokers (None: all that live), with the replicas in them (`partitions`:
        only of these).

        A directory that failed has an error code. Raises ItemsFailed, by broker.
        """
        from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

        driver = self._driver("describe_log_dirs", timeout)
        brokers = None if broker_ids is None else list(broker_ids)
        request = DescribeLogDirsRequest()
        request.topics = None
        if partitions is not None:
            wanted = by_topic(partitions_of(partitions))
            request.topics = [DescribableLogDirTopic(topic=topic, partitions=ids) for topic, ids in wanted.items()]

        def answers(response: Any, asked: list[BrokerId]) -> Iterable[Answer[BrokerId, list[LogDir]]]:
            yield asked[0], response.error_code, [_log_dir(asked[0], result) for result in response.results]

        found = await self._at_brokers(driver, brokers, lambda _: request, answers)
        return dict(found.items())

    async def alter_replica_log_dirs(
        self, directories: Mapping[tuple[str, int, int], str], *, timeout: float | None = None
    ) -> None:
        """Begins to move replicas, given as (topic, partition, broker id), into these log directories of their brokers.
        The path of the directory that a replica is in cancels its move.

        `describe_log_dirs` tells whether that is done: a replica stands there as a future one until then. Raises
        ItemsFailed (LogDirNotFound, KafkaStorageError, ...). ReplicaNotAvailable says that the broker has no such
        replica yet, and will create it in this directory.
        """
        from barnabas.protocol.messages import alter_replica_log_dirs as messages

        driver = self._driver("alter_replica_log_dirs", timeout, changes=True)
        paths = {TopicPartitionReplica(*replica): path for replica, path in directories.items()}
        await self._brokers(driver, [replica.broker_id for replica in paths])

        def request(wanted: list[TopicPartitionReplica]) -> messages.AlterReplicaLogDirsRequest:
            by_path: dict[str, list[TopicPartition]] = {}
            for replica in wanted:
                by_path.setdefault(paths[replica], []).append(TopicPartition(replica.topic, replica.partition))
            return messages.AlterReplicaLogDirsRequest(
                dirs=[
                    messages.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            messages.AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                            for topic, indexes in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in by_path.items()
                ]
            )

        def answers(response: Any, asked: list[TopicPartitionReplica]) -> Iterable[Answer[TopicPartitionReplica, None]]:
            for topic in response.results:
                for p in topic.partitions:
                    tp = TopicPartition(topic.topic_name, p.partition_index)
                    error = p.error_code and partition_error(p.error_code, tp, None)
                    yield TopicPartitionReplica(*tp, asked[0].broker_id), error, None

        nodes = BrokerNodes(self._client)

        def target(replica: TopicPartitionReplica) -> Node | None:
            return nodes(BrokerId(replica.broker_id))

        await driver.run(paths, target, request, answers, is_retriable=lambda _: False)


def _log_dir(node_id: int, result: Any) -> LogDir:
    replicas = tuple(
        LogDirReplica(
            *(topic.name, p.partition_index, p.partition_size, p.offset_lag, _compaction(p.compaction)),
            is_future=p.is_future_key,
            damage=p.damage or "",
        )
        for topic in result.topics
        for p in topic.partitions
    )
    return LogDir(
        BrokerId(node_id),
        result.log_dir,
        result.error_code,
        result.total_bytes,
        result.usable_bytes,
        replicas,
        result.device or "",
        result.is_cordoned,
    )


def _compaction(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None  # the tag means something else to this broker
    return found if isinstance(found, dict) else None
