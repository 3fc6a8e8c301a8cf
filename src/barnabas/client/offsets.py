"""Offsets of partitions, asked from their leaders: earliest, latest, by time, by leader epoch; and deleting records."""

from collections.abc import Collection, Mapping

from barnabas.client.admin_base import AdminBase
from barnabas.client.core.admin.topics import delete_records_request
from barnabas.client.core.offset_messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    PartitionOffset,
    epoch_answers,
    epoch_request,
    offset_answers,
    offset_request,
)
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "OffsetsAdmin", "PartitionOffset"]


class OffsetsAdmin(AdminBase):
    """Calls that go to the leaders of partitions, one request for each leader."""

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, PartitionOffset]:
        """The first offset at or after each timestamp (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP; offset -1: none."""

        def request(partitions: Collection[TopicPartition]) -> Request:
            wanted = {where: timestamps[where] for where in partitions}
            return offset_request(wanted, read_committed=read_committed, timeout_ms=self._timeout_ms)

        return self._by_leader(timestamps, request, offset_answers)

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """(earliest, end) offsets; the end is exclusive."""
        low = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        high = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return {tp: (low[tp].offset, high[tp].offset) for tp in partitions}

    def offsets_for_leader_epoch(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """(epoch, end offset) of the largest epoch that is not above the asked one."""

        def request(partitions: Collection[TopicPartition]) -> Request:
            return epoch_request({where: epochs[where] for where in partitions})

        return self._by_leader(epochs, request, epoch_answers)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop what lies before each offset (-1: all there is); the new first offsets. Raises OffsetOutOfRange."""

        def request(partitions: Collection[TopicPartition]) -> Request:
            asked = {where: before[where] for where in partitions}
            return delete_records_request(asked, timeout_ms=self._timeout_ms)

        found = self._by_leader(before, request)
        return {tp: p.low_watermark for tp, p in found.items()}
