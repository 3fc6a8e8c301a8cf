"""A coordinator's access to the partitions of its internal topic that this broker leads."""

from barnabas.errors import CorruptMessage, KafkaStorageError, NotLeaderOrFollower
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.records.batch import crc_of, iter_batches
from barnabas.records.validation import own_batch
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import LeaderEpoch, Offset

__all__ = ["ReplicatedCoordinatorLog"]


class ReplicatedCoordinatorLog:
    """Implements `coordinator_loader.CoordinatorLog` with the replica manager."""

    def __init__(self, topic: str, replica_manager: ReplicaManager, load_buffer_bytes: int) -> None:
        self._topic = topic
        self._replica_manager = replica_manager
        self._load_buffer_bytes = load_buffer_bytes
        """The setting offsets.load.buffer.size. A larger batch is still read whole."""

    def _partition(self, partition: int) -> Partition:
        return self._replica_manager.leader_of(self._topic, partition)

    def append(
        self,
        partition: int,
        batch: bytes,
        leader_epoch: LeaderEpoch,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Offset:
        """Appends the batch and returns the log end offset after it."""
        found = self._partition(partition)
        if found.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(f"{found.topic_partition} is in leader epoch {found.leader_epoch}")
        info = found.append_as_leader(
            own_batch(batch), -1, origin="coordinator", guard=guard, transaction_version=transaction_version
        )
        return Offset(info.last_offset + 1)

    def read(self, partition: int, offset: Offset, max_bytes: int) -> bytes:
        """Returns whole batches from the one that contains `offset` on, at least one; b"" at the log's end. Raises
        KafkaStorageError for one with a wrong checksum: a coordinator must not believe it."""
        found = self._partition(partition)
        try:
            return self._read(found, offset, max_bytes)
        except KafkaStorageError as error:
            if not (damage := found.log.damage.found):
                raise
            raise KafkaStorageError(
                f"{found.topic_partition}: offset {offset} cannot be read ({damage}); unless another replica is in sync"
                f" and takes over, move {found.log.directory} away while the broker is stopped: it begins empty then"
            ) from error

    def _read(self, found: Partition, offset: Offset, max_bytes: int) -> bytes:
        log = found.log
        size = min(max_bytes, self._load_buffer_bytes)
        read = log.read(offset, size, upper_bound=log.log_end_offset, min_one_message=True)
        if read.file_slice is None:
            return b""
        try:
            data = read.file_slice.read()
            for header, batch in iter_batches(data):
                if crc_of(batch) != header.crc:
                    raise CorruptMessage(f"the CRC of the batch at offset {header.base_offset} is wrong")
        except (OSError, EOFError) as error:
            read.file_slice.failed(error)
            raise KafkaStorageError(f"{found.topic_partition}: {error}") from error
        except CorruptMessage as error:
            log.damage.note(f"{log.directory}: offset {offset}: {error}")
            raise KafkaStorageError(f"{found.topic_partition}: {error}") from error
        return data

    def log_range(self, partition: int) -> tuple[Offset, Offset]:
        log = self._partition(partition).log
        return log.log_start_offset, log.log_end_offset

    def high_watermark(self, partition: int) -> Offset:
        return self._partition(partition).log.high_watermark

    def max_batch_bytes(self, partition: int) -> int:
        return self._partition(partition).log.config.max_message_bytes
