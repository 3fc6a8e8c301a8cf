"""DescribeLogDirs v1-v5: the sizes of partitions by data directory; from v4 on the space of its file system.

Without topics all partitions are described; those that this broker does not have are left out. A replica that is moved
to another directory stands there as well, as a future one with its lag behind the current one.

Tagged fields that Kafka does not have tell our own clients how far compacted logs are cleaned, which logs are damaged,
and which directories are on the same disk.
"""

import json
import os
from collections.abc import Set

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.data_directory import DataDirectory, read_boot_id
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(broker: BrokerServices, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    wanted: Set[tuple[str, int]]
    if request.topics is None:
        wanted = broker.log_manager.logs.keys()
    else:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    ours = context.connection.client_software.startswith("barnabas ")
    return DescribeLogDirsResponse(
        results=[_describe(broker, directory, wanted, ours) for directory in broker.log_manager.directories]
    )


def _describe(
    broker: BrokerServices, directory: DataDirectory, wanted: Set[tuple[str, int]], ours: bool
) -> DescribeLogDirsResult:
    try:
        space = os.statvfs(directory.path)
    except OSError as error:
        broker.log.warning("%s cannot be described: %s", directory.path, error.strerror)
        return DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=directory.path)
    logs = broker.log_manager
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition, log in logs.logs.items():
        if topic_partition not in wanted or logs.directory_of(topic_partition) is not directory:
            continue
        partition = DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=log.size_bytes,
            offset_lag=max(0, log.high_watermark - log.log_end_offset),
        )
        if ours and log.config.compacted:
            partition.compaction = json.dumps(broker.log_cleaner.manager.describe(log))
        if ours and log.lacks:
            partition.damage = log.lacks
        topics.setdefault(topic_partition.topic, []).append(partition)
    for future in logs.futures:
        topic_partition = future.topic_partition
        current = logs.get(topic_partition)
        if topic_partition not in wanted or future.home is not directory or current is None:
            continue
        copied = current.log_start_offset if future.log is None else future.log.log_end_offset
        partition = DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=0 if future.log is None else future.log.size_bytes,
            offset_lag=max(0, current.log_end_offset - copied),
            is_future_key=True,
        )
        topics.setdefault(topic_partition.topic, []).append(partition)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=space.f_blocks * space.f_frsize,
        usable_bytes=space.f_bavail * space.f_frsize,
        is_cordoned=directory.path in logs.cordoned,
        device=_device(directory) if ours else None,
    )


def _device(directory: DataDirectory) -> str | None:
    """Returns a name of the disk that all brokers of this machine give it, and no others; None if there is none."""
    boot_id = read_boot_id()
    return f"{boot_id}:{os.major(directory.device)}:{os.minor(directory.device)}" if boot_id else None
