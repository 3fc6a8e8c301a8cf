"""The replicas of one partition, each a Partition over a real log, with a network that a test moves by hand."""

import uuid
from collections.abc import Sequence

from barnabas.config.log_config import LogConfig
from barnabas.log.log_manager import LogManager
from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch, FollowerRead
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from hand_clock import HandClock

__all__ = ["ReplicaSet"]

TOPIC_ID = uuid.UUID(int=7)


class ReplicaSet:
    """Broker n has its replica in the log of the topic "bn". All brokers are live, in broker epoch 10 + n."""

    def __init__(
        self,
        logs: LogManager,
        clock: HandClock,
        replicas: Sequence[int] = (1, 2, 3),
        *,
        min_isr: int = 1,
        fsync: bool = False,
    ) -> None:
        self.clock = clock
        self.replicas = tuple(BrokerId(each) for each in replicas)
        self.epochs: dict[int, int] = {each: 10 + each for each in replicas}
        self.to_flush: list[Partition] = []
        self.partitions: dict[int, Partition] = {}
        for broker in replicas:
            log = logs.create(TopicPartition(f"b{broker}", 0), TOPIC_ID, LogConfig(min_insync_replicas=min_isr))
            self.partitions[broker] = Partition(
                TopicPartition("t", 0), TOPIC_ID, log,
                broker_epochs=lambda broker_id: self.epochs.get(broker_id),
                replica_lag_time_max_ms=10_000,
                flush_behind=self.to_flush.append if fsync else None,
            )  # fmt: skip

    def elect(
        self,
        leader: int,
        epoch: int = 0,
        isr: Sequence[int] | None = None,
        *,
        partition_epoch: int | None = None,
        adding: Sequence[int] = (),
    ) -> Partition:
        """Gives all brokers the same metadata."""
        for broker, partition in self.partitions.items():
            partition.become(
                broker_id=BrokerId(broker),
                leader_id=BrokerId(leader),
                leader_epoch=LeaderEpoch(epoch),
                partition_epoch=epoch if partition_epoch is None else partition_epoch,
                replicas=self.replicas,
                in_sync_replicas=self.replicas if isr is None else tuple(BrokerId(each) for each in isr),
                adding_replicas=tuple(BrokerId(each) for each in adding),
            )
        return self.partitions[leader]

    def ask(
        self, leader: int, broker: int, fetch: FollowerFetch | None = None, max_bytes: int = 100_000
    ) -> FollowerRead:
        """Lets a leader answer a follower's fetch."""
        fetch = fetch or self.partitions[broker].next_fetch()
        assert fetch is not None
        return self.partitions[leader].fetch_from_follower(
            BrokerId(broker), self.epochs.get(broker, -1), fetch,
            max_bytes=max_bytes, min_one_message=True, now=self.clock.monotonic(),
        )  # fmt: skip

    def fetch(self, leader: int, broker: int) -> FollowerRead:
        """Lets a follower fetch once and take the answer."""
        partition = self.partitions[broker]
        fetch = partition.next_fetch()
        assert fetch is not None
        read = self.ask(leader, broker, fetch)
        if read.diverging_epoch is not None:
            partition.truncate_to_diverging_epoch(fetch, *read.diverging_epoch)
        else:
            records = read.records.read() if read.records is not None else b""
            partition.append_as_follower(
                fetch, records, high_watermark=read.high_watermark, log_start_offset=read.log_start_offset
            )
        return read

    def flush(self) -> None:
        """Ends the syncs that are due."""
        due, self.to_flush[:] = list(self.to_flush), []
        for partition in due:
            partition.log.flush()
            partition.flushed()

    def marks(self) -> dict[int, tuple[int, int]]:
        """Returns log end offset and high watermark of each broker."""
        return {
            broker: (partition.log.log_end_offset, partition.log.high_watermark)
            for broker, partition in self.partitions.items()
        }
