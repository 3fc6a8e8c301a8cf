"""What the calls of an administrator share: settings, deadlines, names, and who leads what.

The fronts have read all arguments (`arguments`): what comes here is of the right kind.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from barnabas.client.admin.job import Answer, Job, Query
from barnabas.client.settings.admin import AdminSettings
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.errors import KafkaError, TopicNotFound, UsageError
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["Calls", "names_of", "partitions_of"]

MISSED_MAX: Final = 3
"""Metadata answers without a topic that are believed: a new one may not be known to every broker yet."""

V = TypeVar("V")


def names_of(names: str | Iterable[str]) -> list[str]:
    """One name or several, each once. A text is one name, not its letters."""
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def partitions_of(partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Each once; plain tuples do as well."""
    return list(dict.fromkeys(TopicPartition(*where) for where in partitions))


class Calls:
    """See the module."""

    def __init__(self, client: NetworkClient, settings: AdminSettings) -> None:
        self._client = client
        self._settings = settings
        self._topic_users: Counter[str] = Counter()
        """Calls under way that need the topic's leaders."""

    def _job(self, what: str, timeout: float | None) -> Job:
        settings = self._settings
        return Job(
            self._client,
            what,
            timeout_s=settings.default_api_timeout_ms / 1000 if timeout is None else timeout,
            request_timeout_s=settings.request_timeout_ms / 1000,
            retries=settings.retries,
        )

    async def _at_leaders(
        self,
        job: Job,
        partitions: Collection[TopicPartition],
        request: Callable[[list[TopicPartition]], Request | Query],
        answers: Callable[[Any, list[TopicPartition]], Iterable[Answer[TopicPartition, V]]],
    ) -> dict[TopicPartition, V]:
        """Ask the partitions' leaders. Raises ItemsFailed."""
        with Leaders(self._client, self._topic_users, partitions) as leaders:
            if partitions:
                await job.fresh_metadata()
            return (await job.each(partitions, leaders, request, answers)).result()

    async def _brokers(self, job: Job, wanted: Collection[int] | None) -> list[int]:
        """The ids of the live brokers, or of these. Raises UsageError for one that is not there."""
        await job.fresh_metadata()
        known = sorted(self._client.metadata.view.brokers)
        if wanted is None:
            return known
        for node_id in wanted:
            if node_id not in known:
                listed = ", ".join(map(str, known))
                raise UsageError(f"broker {node_id} is not in the cluster; its brokers are {listed}")
        return sorted(set(wanted))


class Leaders:
    """Where each partition's leader is, for `Job.each`; its topics are kept in the metadata while the block lasts.

    Raises TopicNotFound for what metadata still does not have after several answers.
    """

    def __init__(self, client: NetworkClient, users: Counter[str], partitions: Collection[TopicPartition]) -> None:
        self._metadata = client.metadata
        self._client = client
        self._users = users
        self._topics = {where.topic for where in partitions}
        self._missed: dict[TopicPartition, int] = {}

    def __enter__(self) -> "Leaders":
        self._users.update(self._topics)
        self._client.want_topics(self._topics)
        return self

    def __exit__(self, *_: object) -> None:
        self._users.subtract(self._topics)
        unused = [topic for topic in self._topics if self._users[topic] <= 0]
        for topic in unused:
            del self._users[topic]
        self._metadata.unwant(unused)

    def __call__(self, where: TopicPartition) -> Node | None:
        if self._metadata.partition(where) is None:
            missed = self._missed[where] = self._missed.get(where, 0) + 1
            if missed >= MISSED_MAX:
                raise self._unknown(where)
        leader = self._metadata.leader(where)
        return Node(leader) if leader >= 0 else None

    def _unknown(self, where: TopicPartition) -> KafkaError:
        topic = self._metadata.topic(where.topic)
        if topic is None:
            return self._metadata.why_not(where.topic)
        return TopicNotFound(
            f"topic {where.topic!r} has partitions 0 to {len(topic.partitions) - 1}, there is no {where.partition}"
        )
