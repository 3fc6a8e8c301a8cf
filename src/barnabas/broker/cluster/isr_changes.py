"""Sends the changes of in-sync replicas that leaders propose to the controller (AlterPartition)."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.services import BrokerServices
from barnabas.errors import BarnabasError, KafkaError, NotController, error_for
from barnabas.metadata.image import PartitionImage
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    DescribedPartitionData,
    RequestedPartitionData,
    RequestedTopicData,
)
from barnabas.replication.replica import IsrChange
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

__all__ = ["IsrChangeSender"]

CHANGES_MAX: Final = 2000
"""The most changes in one request."""
BACKOFF_S: Final = 0.05

_log = logging.getLogger("barnabas.broker")

Result = PartitionImage | KafkaError


class IsrChangeSender:
    """Has one request in flight; changes of other partitions wait for the next one. A partition has one change at a
    time. Used on the event loop's thread."""

    def __init__(self, broker: BrokerServices, controller: ControllerChannel) -> None:
        self._broker = broker
        self._controller = controller
        self._waiting: dict[TopicPartition, IsrChange] = {}
        self._is_sending = False
        self._is_closed = False

    def submit(self, change: IsrChange) -> None:
        """Sends a change soon. A newer one of the same partition takes the place of one that waits."""
        self._waiting[change.topic_partition] = change
        if not self._is_sending and not self._is_closed:
            self._is_sending = True
            # in the next turn of the loop, with the other partitions of the same Fetch
            self._broker.loop.call_soon(lambda: run_handler(self._broker.loop, self._send_all()))

    def close(self) -> None:
        self._is_closed = True

    async def _send_all(self) -> None:
        try:
            while self._waiting and not self._is_closed:
                changes = [self._waiting.pop(key) for key in tuple(islice(self._waiting, CHANGES_MAX))]
                try:
                    results = await self._send(changes)
                except BarnabasError:
                    results = dict.fromkeys(map(_key, changes), NotController("the controller has not answered"))
                if not self._take(changes, results):
                    await asyncio.sleep(BACKOFF_S)
        finally:
            self._is_sending = False

    def _take(self, changes: Iterable[IsrChange], results: dict[tuple[UUID, int], Result]) -> bool:
        """Gives the results to the partitions. Returns whether none has to be sent again."""
        is_done = True
        for change in changes:
            partition = self._broker.replica_manager.get(*change.topic_partition)
            if partition is None or partition.topic_id != change.topic_id:
                continue
            result = results.get(_key(change), NotController("the controller has not answered"))
            if isinstance(result, KafkaError):
                if partition.isr_change_refused(change, result):
                    self._waiting.setdefault(change.topic_partition, change)
                    is_done = False
            else:
                before = partition.in_sync_replicas
                partition.isr_change_accepted(
                    change,
                    leader_epoch=result.leader_epoch,
                    partition_epoch=result.partition_epoch,
                    in_sync_replicas=result.isr,
                )
                _tell(change.topic_partition, before, partition.in_sync_replicas)
        return is_done

    async def _send(self, changes: Iterable[IsrChange]) -> dict[tuple[UUID, int], Result]:
        node_id = self._broker.node_id
        epoch = self._broker.image.brokers[node_id].epoch
        request = AlterPartitionRequest(broker_id=node_id, broker_epoch=epoch, topics=_topics(changes))
        response: AlterPartitionResponse = await self._controller.send(request)
        return {
            (topic.topic_id, partition.partition_index): _result(partition)
            for topic in response.topics
            for partition in topic.partitions
        }


def _tell(topic_partition: TopicPartition, before: Sequence[BrokerId], after: Sequence[BrokerId]) -> None:
    """Logs the change of a partition's ISR, as Kafka does: without it, nobody finds out later when a replica fell
    behind."""
    lost, won = set(before) - set(after), set(after) - set(before)
    if lost or won:
        verb = "shrinks" if lost else "expands"
        members = (",".join(map(str, sorted(each))) for each in (before, after))
        _log.info("the ISR of %s %s from %s to %s", topic_partition, verb, *members)


def _key(change: IsrChange) -> tuple[UUID, int]:
    return change.topic_id, change.topic_partition.partition


def _topics(changes: Iterable[IsrChange]) -> list[RequestedTopicData]:
    topics: dict[UUID, list[RequestedPartitionData]] = {}
    for change in changes:
        topics.setdefault(change.topic_id, []).append(
            RequestedPartitionData(
                partition_index=change.topic_partition.partition,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in change.new_isr
                ],
            )
        )
    return [RequestedTopicData(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]


def _result(partition: DescribedPartitionData) -> Result:
    if partition.error_code:
        return error_for(partition.error_code, "the controller refuses the change of in-sync replicas")
    return PartitionImage(
        BrokerId(partition.leader_id),
        LeaderEpoch(partition.leader_epoch),
        (),
        tuple(map(BrokerId, partition.isr)),
        partition.partition_epoch,
    )
