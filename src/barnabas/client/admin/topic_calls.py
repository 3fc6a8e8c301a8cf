"""Calls about topics, their partitions and records."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.admin.base import Calls, names_of, partitions_of
from barnabas.client.admin.job import Answer, Outcome, Query, controller_moves
from barnabas.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    create_partitions_request,
    create_topics_request,
    created_topic,
    delete_records_request,
    delete_topics_request,
    elect_leaders_request,
    election_answers,
    partition_answers,
    topic_error,
)
from barnabas.client.offset_messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    PartitionOffset,
    offset_answers,
    offset_request,
)
from barnabas.connection.cluster import TopicView, topic_view
from barnabas.connection.network_client import ANY, CONTROLLER
from barnabas.errors import ElectionNotNeeded, KafkaError, UnknownTopicOrPartition, error_for
from barnabas.types import TopicPartition

__all__ = ["ISOLATIONS", "TIMES", "TopicCalls"]

TIMES: Final = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
_MAX_TIMESTAMP_FROM: Final = 7
"""The version of ListOffsets."""


class TopicCalls(Calls):
    """See the module. `timeout` is in seconds, default.api.timeout.ms by default."""

    # --- topics -----------------------------------------------------------------------------------------------------

    async def create_topics(
        self,
        topics: NewTopic | str | Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Make topics; a plain name leaves partitions and replicas to the broker. By name what was made.

        `validate_only` checks and makes nothing. Raises ItemsFailed (TopicAlreadyExists, InvalidTopic, ...).
        """
        given = [topics] if isinstance(topics, NewTopic | str) else topics
        wanted = {t.name: t for t in (NewTopic(topic) if isinstance(topic, str) else topic for topic in given)}
        job = self._job("create_topics", timeout)

        def answers(response: Any, _: object) -> Iterable[Answer[str, CreatedTopic]]:
            for t in response.topics:
                yield t.name, t.error_code and topic_error(t.error_code, t.error_message, t.name), created_topic(t)

        outcome = await job.each(
            wanted,
            lambda _: CONTROLLER,
            lambda names: create_topics_request(
                [wanted[name] for name in names], validate_only=validate_only, timeout_ms=job.timeout_ms
            ),
            answers,
            again=controller_moves,
        )
        return outcome.result()

    async def delete_topics(self, names: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics with all their records. Raises ItemsFailed (UnknownTopicOrPartition, ...)."""
        job = self._job("delete_topics", timeout)

        def answers(response: Any, _: object) -> Iterable[Answer[str, None]]:
            for t in response.responses:
                yield t.name, t.error_code and topic_error(t.error_code, t.error_message, t.name), None

        outcome = await job.each(
            names_of(names),
            lambda _: CONTROLLER,
            lambda wanted: delete_topics_request(wanted, timeout_ms=job.timeout_ms),
            answers,
            again=controller_moves,
        )
        outcome.result()

    async def list_topics(self, *, internal: bool = False, timeout: float | None = None) -> list[TopicView]:
        """All topics with their partitions, sorted by name; with `internal` also those that brokers keep for
        themselves."""
        response = await self._job("list_topics", timeout).ask(_metadata_query(None), ANY)
        views = (topic_view(topic) for topic in response.topics)
        return sorted((view for view in views if internal or not view.is_internal), key=lambda view: view.name)

    async def describe_topics(
        self, names: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicView]:
        """Partitions, leaders and replicas of topics, by name. Raises ItemsFailed (UnknownTopicOrPartition, ...)."""

        def answers(response: Any, _: object) -> Iterable[Answer[str, TopicView]]:
            for t in response.topics:
                view = topic_view(t)
                yield view.name, t.error_code and topic_error(t.error_code, None, view.name), view

        def again(error: KafkaError) -> bool:
            return error.retriable and not isinstance(error, UnknownTopicOrPartition)

        job = self._job("describe_topics", timeout)
        return (await job.each(names_of(names), lambda _: ANY, _metadata_query, answers, again=again)).result()

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Grow topics to so many partitions in total.

        Records with keys stay where they are, but new ones of the same key may go to another partition: order by key
        breaks at this point. A KeysMove warning says so for topics that have records. Raises ItemsFailed
        (InvalidPartitions, UnknownTopicOrPartition, ...).
        """
        job = self._job("create_partitions", timeout)

        def answers(response: Any, _: object) -> Iterable[Answer[str, None]]:
            for t in response.results:
                yield t.name, t.error_code and topic_error(t.error_code, t.error_message, t.name), None

        outcome = await job.each(
            list(counts),
            lambda _: CONTROLLER,
            lambda names: create_partitions_request(
                {name: counts[name] for name in names}, validate_only=validate_only, timeout_ms=job.timeout_ms
            ),
            answers,
            again=controller_moves,
        )
        outcome.result()

    async def topics_with_records(self, counts: Mapping[str, int], timeout: float | None = None) -> list[str]:
        """Those of `create_partitions` that were written to, also where the records are deleted since; topics that do
        not exist are left out."""
        job = self._job("create_partitions", timeout)
        response = await job.ask(_metadata_query(list(counts)), ANY)
        partitions = [
            TopicPartition(topic.name, p.partition_index)
            for topic in response.topics
            for p in topic.partitions
            if not topic.error_code
        ]
        ends = await self._at_leaders(
            job, partitions, lambda wanted: offset_request(dict.fromkeys(wanted, LATEST)), _offsets
        )
        return sorted({where.topic for where, end in ends.items() if end.offset > 0})

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        unclean: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Make the preferred replicas leaders; None: of all partitions that have another one.

        `unclean` gives partitions without a leader to any replica that lives, which may lose records. False where the
        leader was right already. Raises ItemsFailed (PreferredLeaderNotAvailable, ...).
        """
        job = self._job("elect_leaders", timeout)
        wanted = None if partitions is None else partitions_of(partitions)
        response = await job.ask(
            elect_leaders_request(wanted, unclean=unclean, timeout_ms=job.timeout_ms),
            CONTROLLER,
            check=lambda r: r.error_code,
            again=controller_moves,
        )
        outcome: Outcome[TopicPartition, bool] = Outcome("elect_leaders", ())
        for where, code, message in election_answers(response):
            if code and code != ElectionNotNeeded.code:
                outcome.failed[where] = error_for(code, message or f"{where}: {error_for(code)}")
            else:
                outcome.succeeded[where] = not code
        return outcome.result()

    # --- records ----------------------------------------------------------------------------------------------------

    async def delete_records(
        self, before: Mapping[tuple[str, int], int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Drop all records before an offset (-1: all there are); the new first offset of each partition.

        Raises ItemsFailed (OffsetOutOfRange, PolicyViolation for a compacted topic, TopicNotFound, ...).
        """
        job = self._job("delete_records", timeout)

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, int]]:
            for where, code, p in partition_answers(response):
                yield where, code and error_for(code, f"{where}: {error_for(code)}"), p.low_watermark

        return await self._at_leaders(
            job,
            partitions_of(before),
            lambda wanted: delete_records_request(
                {where: before[where] for where in wanted}, timeout_ms=job.timeout_ms
            ),
            answers,
        )

    async def list_offsets(
        self,
        at: Mapping[tuple[str, int], int | str],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, PartitionOffset]:
        """The offset of each partition at `earliest`, `latest` (the next one to be written), `max_timestamp`, or the
        first one at or after a time in ms.

        With isolation `read_committed` the latest offset is that of the first open transaction. Offset -1: no such
        record. Raises ItemsFailed (TopicNotFound, ...), UsageError.
        """
        times = {where: TIMES[when] if isinstance(when := at[where], str) else when for where in partitions_of(at)}
        needed = _MAX_TIMESTAMP_FROM if MAX_TIMESTAMP in times.values() else 0
        job = self._job("list_offsets", timeout)

        def query(wanted: list[TopicPartition]) -> Query:
            request = offset_request(
                {where: times[where] for where in wanted},
                read_committed=isolation == "read_committed",
                timeout_ms=job.timeout_ms,
            )
            return Query(request, at_least=needed)

        return await self._at_leaders(job, list(times), query, _offsets)


def _offsets(response: Any, _: object) -> Iterable[Answer[TopicPartition, PartitionOffset]]:
    for where, code, found in offset_answers(response):
        yield where, code and error_for(code, f"{where}: {error_for(code)}"), found


def _metadata_query(names: list[str] | None) -> Query:
    """Of these topics, or (None) of all."""
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(allow_auto_topic_creation=False)
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]

    def build(version: int) -> MetadataRequest:
        request.topics = [] if version == 0 and topics is None else topics
        return request

    return Query(MetadataRequest, build)
