"""Operations on topics, their partitions and their records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.admin.operations import AdminOperations, controller_moves, partitions_of
from barnabas.client.offset_messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    PartitionOffset,
    by_topic,
    grouped,
    offset_answers,
    offset_request,
)
from barnabas.connection.cluster import TopicView, topic_view
from barnabas.connection.network_client import ANY, CONTROLLER
from barnabas.connection.retry import Answer, RequestBuilder, Results
from barnabas.errors import ElectionNotNeeded, KafkaError, UnknownTopicOrPartition, error_for
from barnabas.types import TopicPartition

__all__ = [
    "ISOLATIONS",
    "TIMES",
    "CreatedTopic",
    "EligibleLeaders",
    "NewTopic",
    "TopicOperations",
    "keys_move_warning",
    "partition_answers",
    "partition_error",
    "topic_error",
]

TIMES: Final = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
_MAX_TIMESTAMP_FROM: Final = 7
"""The first version of ListOffsets with MAX_TIMESTAMP."""


class NewTopic(NamedTuple):
    """A topic to be created; -1 leaves the choice to the broker.

    `assignments` places each partition on brokers, the preferred leader first; the two numbers stay -1 then.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    """A topic as the broker created it; -1 where the broker is too old to say."""

    name: str
    partitions: int
    replication_factor: int


class EligibleLeaders(NamedTuple):
    """The replicas outside of a partition's ISR that have all committed records (KIP-966), and the last leader of a
    partition that has none."""

    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_leaders: tuple[int, ...] = ()


class TopicOperations(AdminOperations):
    # --- topics -----------------------------------------------------------------------------------------------------

    async def create_topics(
        self,
        topics: NewTopic | str | Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Creates topics, and returns them by name. A plain name leaves partitions and replicas to the broker.

        `validate_only` checks and creates nothing. Raises ItemsFailed (TopicAlreadyExists, InvalidTopic, ...).
        """
        from barnabas.protocol.messages import create_topics as messages

        given = [topics] if isinstance(topics, NewTopic | str) else topics
        wanted = {t.name: t for t in (NewTopic(topic) if isinstance(topic, str) else topic for topic in given)}
        driver = self._driver("create_topics", timeout, changes=not validate_only)

        def request(names: list[str]) -> messages.CreateTopicsRequest:
            creatable = [
                messages.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        messages.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                        for index, brokers in topic.assignments.items()
                    ],
                    configs=[messages.CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
                )
                for topic in map(wanted.__getitem__, names)
            ]
            return messages.CreateTopicsRequest(
                topics=creatable, validate_only=validate_only, timeout_ms=driver.timeout_ms
            )

        def answers(response: Any, _: object) -> Iterable[Answer[str, CreatedTopic]]:
            for t in response.topics:
                created = CreatedTopic(t.name, t.num_partitions, t.replication_factor)
                yield t.name, t.error_code and topic_error(t.error_code, t.error_message, t.name), created

        return await self._at_controller(driver, wanted, request, answers)

    async def delete_topics(self, names: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes topics with all their records. Raises ItemsFailed (UnknownTopicOrPartition, ...)."""
        from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

        driver = self._driver("delete_topics", timeout, changes=True)

        def request(wanted: list[str]) -> DeleteTopicsRequest:
            topics = [DeleteTopicState(name=name) for name in wanted]
            return DeleteTopicsRequest(topics=topics, topic_names=wanted, timeout_ms=driver.timeout_ms)

        await self._at_controller(driver, list(names), request, lambda r, _: _topic_answers(r.responses))

    async def list_topics(self, *, internal: bool = False, timeout: float | None = None) -> list[TopicView]:
        """Returns all topics with their partitions, sorted by name; with `internal` also those of the brokers
        themselves."""
        response = await self._driver("list_topics", timeout).send(_metadata_request(None), ANY)
        views = (topic_view(topic) for topic in response.topics)
        return sorted((view for view in views if internal or not view.is_internal), key=lambda view: view.name)

    async def describe_topics(
        self, names: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicView]:
        """Returns partitions, leaders and replicas of topics, by name. Raises ItemsFailed (UnknownTopicOrPartition,
        ...)."""

        def answers(response: Any, _: object) -> Iterable[Answer[str, TopicView]]:
            for t in response.topics:
                view = topic_view(t)
                yield view.name, t.error_code and topic_error(t.error_code, None, view.name), view

        def is_retriable(error: KafkaError) -> bool:
            return error.retriable and not isinstance(error, UnknownTopicOrPartition)

        driver = self._driver("describe_topics", timeout)
        return await driver.run(list(names), lambda _: ANY, _metadata_request, answers, is_retriable=is_retriable)

    async def eligible_leaders(
        self, names: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[TopicPartition, EligibleLeaders]:
        """Returns the eligible leader replicas of the partitions of topics. Topics that do not exist are left out.

        Raises UnsupportedVersion where the brokers are older than Kafka 3.8.
        """
        from barnabas.protocol.messages import describe_topic_partitions as messages

        driver = self._driver("eligible_leaders", timeout)
        found: dict[TopicPartition, EligibleLeaders] = {}
        topics = sorted({*names})
        cursor: messages.RequestedCursor | None = None
        while topics:
            request = messages.DescribeTopicPartitionsRequest(
                topics=[messages.TopicRequest(name=name) for name in topics], cursor=cursor
            )
            response = await driver.send(request, ANY)
            for topic in response.topics:
                for p in topic.partitions:
                    leaders = EligibleLeaders(tuple(p.eligible_leader_replicas or ()), tuple(p.last_known_elr or ()))
                    found[TopicPartition(topic.name, p.partition_index)] = leaders
            following = response.next_cursor
            if following is None:
                break
            cursor = messages.RequestedCursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )
            topics = [name for name in topics if name >= following.topic_name]
        return found

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Adds partitions, so that each topic has as many as `counts` says.

        Records with keys stay where they are, but new ones of the same key may go to another partition: order by key
        breaks at this point. A KeysMove warning says so for topics that have records. Raises ItemsFailed
        (InvalidPartitions, UnknownTopicOrPartition, ...).
        """
        from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

        driver = self._driver("create_partitions", timeout, changes=not validate_only)

        def request(names: list[str]) -> CreatePartitionsRequest:
            topics = [CreatePartitionsTopic(name=name, count=counts[name]) for name in names]
            for topic in topics:
                topic.assignments = None  # null: the broker places them
            return CreatePartitionsRequest(topics=topics, timeout_ms=driver.timeout_ms, validate_only=validate_only)

        await self._at_controller(driver, list(counts), request, lambda r, _: _topic_answers(r.results))

    async def topics_with_records(self, counts: Mapping[str, int], timeout: float | None = None) -> list[str]:
        """Returns those topics of `create_partitions` that were ever written to; unknown topics are left out."""
        driver = self._driver("create_partitions", timeout)
        response = await driver.send(_metadata_request(list(counts)), ANY)
        partitions = [
            TopicPartition(topic.name, p.partition_index)
            for topic in response.topics
            for p in topic.partitions
            if not topic.error_code
        ]
        ends = await self._at_leaders(
            driver, partitions, lambda wanted: offset_request(dict.fromkeys(wanted, LATEST)), _offsets
        )
        return sorted({partition.topic for partition, end in ends.items() if end.offset > 0})

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        unclean: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Makes the preferred replicas leaders, of these partitions or (None) of all that have another leader.

        `unclean` gives partitions without a leader to any replica that lives, which may lose records. The result is
        False for partitions that had the right leader already. Raises ItemsFailed (PreferredLeaderNotAvailable, ...).
        """
        from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

        driver = self._driver("elect_leaders", timeout, changes=True)
        request = ElectLeadersRequest(election_type=int(unclean), timeout_ms=driver.timeout_ms)
        request.topic_partitions = None
        if partitions is not None:
            wanted = by_topic(partitions_of(partitions))
            request.topic_partitions = [TopicPartitions(topic=t, partitions=ps) for t, ps in wanted.items()]
        response = await driver.send(request, CONTROLLER, lambda r: r.error_code, is_retriable=controller_moves)
        results: Results[TopicPartition, bool] = Results(())
        for topic in response.replica_election_results:
            for p in topic.partition_result:
                partition = TopicPartition(topic.topic, p.partition_id)
                if p.error_code and p.error_code != ElectionNotNeeded.code:
                    results.failed[partition] = error_for(
                        p.error_code, p.error_message or f"{partition}: {error_for(p.error_code)}"
                    )
                else:
                    results.succeeded[partition] = not p.error_code
        return driver.result_of(results)

    # --- records ----------------------------------------------------------------------------------------------------

    async def delete_records(
        self, before: Mapping[tuple[str, int], int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes all records before an offset (-1: all records), and returns the new first offset of each partition.

        Raises ItemsFailed (OffsetOutOfRange, PolicyViolation for a compacted topic, TopicNotFound, ...).
        """
        from barnabas.protocol.messages import delete_records as messages

        driver = self._driver("delete_records", timeout, changes=True)

        def request(wanted: list[TopicPartition]) -> messages.DeleteRecordsRequest:
            topics = grouped(
                wanted,
                lambda p: messages.DeleteRecordsPartition(partition_index=p.partition, offset=before[p]),
                lambda name, asked: messages.DeleteRecordsTopic(name=name, partitions=asked),
            )
            return messages.DeleteRecordsRequest(topics=topics, timeout_ms=driver.timeout_ms)

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, int]]:
            for partition, code, p in partition_answers(response):
                yield partition, code and partition_error(code, partition), p.low_watermark

        return await self._at_leaders(driver, partitions_of(before), request, answers)

    async def list_offsets(
        self,
        at: Mapping[tuple[str, int], int | str],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, PartitionOffset]:
        """Returns the offset of each partition at `earliest`, `latest` (the next one to be written), `max_timestamp`,
        or the first one at or after a time in ms.

        With isolation `read_committed` the latest offset is that of the first open transaction. Offset -1: no such
        record. Raises ItemsFailed (TopicNotFound, ...), UsageError.
        """
        times = {p: TIMES[time] if isinstance(time := at[p], str) else time for p in partitions_of(at)}
        needed = _MAX_TIMESTAMP_FROM if MAX_TIMESTAMP in times.values() else 0
        driver = self._driver("list_offsets", timeout)

        def request(wanted: list[TopicPartition]) -> RequestBuilder:
            built = offset_request(
                {partition: times[partition] for partition in wanted},
                read_committed=isolation == "read_committed",
                timeout_ms=driver.timeout_ms,
            )
            return RequestBuilder(built, at_least=needed)

        return await self._at_leaders(driver, list(times), request, _offsets)


def keys_move_warning(topic: str) -> str:
    """Returns the text of the warning before a topic with records gets more partitions."""
    return (
        f"topic {topic!r} has records: with more partitions, new ones of the same key may go to another partition, so"
        " consumers do not see them in order with the old ones"
    )


def topic_error(code: int, message: str | None, topic: str) -> KafkaError:
    """Returns the error of a code, with the topic's name in its text."""
    if code == UnknownTopicOrPartition.code:
        return error_for(code, f"topic {topic!r} does not exist")
    return error_for(code, message or f"topic {topic!r}: {error_for(code)}")


def partition_error(code: int, partition: TopicPartition, message: str | None = None) -> KafkaError:
    """Returns the error of a code, with the partition in its text."""
    return error_for(code, f"{partition}: {message or error_for(code)}")


def partition_answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
    """Yields (partition, error code, answer) of a response that has topics and partitions."""
    for topic in response.topics:
        for p in topic.partitions:
            yield TopicPartition(topic.name, p.partition_index), p.error_code, p


def _topic_answers(results: Any) -> Iterable[Answer[str, None]]:
    for t in results:
        yield t.name, t.error_code and topic_error(t.error_code, t.error_message, t.name), None


def _offsets(response: Any, _: object) -> Iterable[Answer[TopicPartition, PartitionOffset]]:
    for partition, code, found in offset_answers(response):
        yield partition, code and partition_error(code, partition), found


def _metadata_request(names: list[str] | None) -> RequestBuilder:
    """Returns a Metadata request for these topics, or (None) for all."""
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(allow_auto_topic_creation=False)
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]

    def build(version: int) -> MetadataRequest:
        request.topics = [] if version == 0 and topics is None else topics
        return request

    return RequestBuilder(MetadataRequest, build)
