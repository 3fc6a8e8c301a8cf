"""Operations that give partitions other replicas (KIP-455)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.admin.operations import AdminOperations, controller_moves, partitions_of
from barnabas.client.admin.topics import partition_error
from barnabas.client.offset_messages import by_topic, grouped
from barnabas.connection.network_client import CONTROLLER
from barnabas.connection.retry import Answer
from barnabas.types import TopicPartition

__all__ = ["PartitionReassignment", "ReassignmentOperations"]


class PartitionReassignment(NamedTuple):
    """A reassignment in progress: all replicas of now, those that are being added, and those that leave at the end."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReassignmentOperations(AdminOperations):
    async def alter_partition_reassignments(
        self, replicas: Mapping[tuple[str, int], Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Begins to move partitions to these brokers, the preferred leader first; None cancels what is in progress.

        `list_partition_reassignments` tells whether that is done. Raises ItemsFailed (InvalidReplicaAssignment,
        NoReassignmentInProgress, UnknownTopicOrPartition, ...).
        """
        from barnabas.protocol.messages import alter_partition_reassignments as messages

        driver = self._driver("alter_partition_reassignments", timeout, changes=True)

        def request(wanted: list[TopicPartition]) -> messages.AlterPartitionReassignmentsRequest:
            def partition(tp: TopicPartition) -> messages.ReassignablePartition:
                brokers = replicas[tp]
                return messages.ReassignablePartition(
                    partition_index=tp.partition, replicas=None if brokers is None else list(brokers)
                )

            topics = grouped(
                wanted, partition, lambda name, asked: messages.ReassignableTopic(name=name, partitions=asked)
            )
            return messages.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=driver.timeout_ms)

        def answers(response: Any, asked: list[TopicPartition]) -> Iterable[Answer[TopicPartition, None]]:
            if response.error_code:
                for tp in asked:
                    yield tp, partition_error(response.error_code, tp, response.error_message), None
                return
            for topic in response.responses:
                for p in topic.partitions:
                    tp = TopicPartition(topic.name, p.partition_index)
                    yield tp, p.error_code and partition_error(p.error_code, tp, p.error_message), None

        await self._at_controller(driver, partitions_of(replicas), request, answers)

    async def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the reassignments in progress, of these partitions or (None) of all."""
        from barnabas.protocol.messages import list_partition_reassignments as messages

        driver = self._driver("list_partition_reassignments", timeout)
        request = messages.ListPartitionReassignmentsRequest(timeout_ms=driver.timeout_ms)
        request.topics = None
        if partitions is not None:
            wanted = by_topic(partitions_of(partitions))
            request.topics = [
                messages.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in wanted.items()
            ]
        response = await driver.send(request, CONTROLLER, lambda r: r.error_code, is_retriable=controller_moves)
        return {
            TopicPartition(topic.name, p.partition_index): PartitionReassignment(
                tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for topic in response.topics
            for p in topic.partitions
        }
