"""An internal topic as its coordinator sees it: partitions of this broker, by number."""

from barnabas.errors import KafkaStorageError, NotLeaderOrFollower
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.records.validation import own_batch
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager

__all__ = ["ReplicatedCoordinatorLog"]


class ReplicatedCoordinatorLog:
    """Implements `coordinator.runtime.CoordinatorLog` over the replica manager."""

    def __init__(self, topic: str, replica_manager: ReplicaManager, load_buffer_bytes: int) -> None:
        self._topic = topic
        self._replica_manager = replica_manager
        self._load_buffer_bytes = load_buffer_bytes
        """offsets.load.buffer.size; a batch that is larger is read whole."""

    def _partition(self, partition: int) -> Partition:
        return self._replica_manager.leader_of(self._topic, partition)

    def append(
        self,
        partition: int,
        batch: bytes,
        leader_epoch: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Returns the log end offset behind the batch."""
        found = self._partition(partition)
        if found.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(f"{found.topic_partition} is in leader epoch {found.leader_epoch}")
        info = found.append_as_leader(
            own_batch(batch), -1, origin="coordinator", guard=guard, transaction_version=transaction_version
        )
        return info.last_offset + 1

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that contains `offset`, at least one; b"" at the log's end."""
        found = self._partition(partition)
        log = found.log
        size = min(max_bytes, self._load_buffer_bytes)
        read = log.read(offset, size, upper_bound=log.log_end_offset, min_one_message=True)
        if read.file_slice is None:
            return b""
        try:
            return read.file_slice.read()
        except OSError as error:
            raise KafkaStorageError(f"{found.topic_partition}: {error.strerror}") from error

    def log_range(self, partition: int) -> tuple[int, int]:
        """(log start offset, log end offset)."""
        log = self._partition(partition).log
        return log.log_start_offset, log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        return self._partition(partition).log.high_watermark

    def max_batch_bytes(self, partition: int) -> int:
        return self._partition(partition).log.config.max_message_bytes
