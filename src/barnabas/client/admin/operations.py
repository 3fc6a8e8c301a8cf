"""The base of all operations of the admin client: timeouts, and the brokers that answer.

The fronts check all arguments beforehand (`arguments`), so operations get values of the right types.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from barnabas.client.settings.admin import AdminSettings
from barnabas.connection.broker.client_request import Error
from barnabas.connection.network_client import ANY, CONTROLLER, Coordinator, NetworkClient, Node, Target
from barnabas.connection.retry import Answer, RequestBuilder, Results, Retry, leader_of
from barnabas.connection.timers import spelled
from barnabas.errors import (
    BrokerNotAvailable,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ItemsFailed,
    KafkaError,
    NotController,
    NotCoordinator,
    OperationTimedOut,
    ThrottlingQuotaExceeded,
    UnstableOffsetCommit,
    UnsupportedVersion,
    UsageError,
)
from barnabas.protocol.schema import Request
from barnabas.types import BrokerId, TopicPartition

__all__ = ["AdminApiDriver", "AdminOperations", "BrokerNodes", "controller_moves", "coordinator_moves", "partitions_of"]

MISSED_MAX: Final = 3
"""The number of metadata responses without a topic or broker after which it does not exist: brokers learn late."""

K = TypeVar("K")
V = TypeVar("V")
RequestFor = Callable[[list[K]], Request | RequestBuilder]
"""Makes the request for items that share a target."""
AnswersFrom = Callable[[Any, list[K]], Iterable[Answer[K, V]]]
"""Reads the answers for the items out of the response."""


def partitions_of(partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Returns partitions, which may be plain tuples, without duplicates."""
    return list(dict.fromkeys(TopicPartition(*partition) for partition in partitions))


def controller_moves(error: KafkaError) -> bool:
    """Returns whether a controller may answer differently soon. Its other errors are final."""
    return isinstance(error, NotController | ThrottlingQuotaExceeded)


def coordinator_moves(error: KafkaError) -> bool:
    """Returns whether a coordinator, this one or another, may answer differently soon."""
    return isinstance(
        error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator | UnstableOffsetCommit
    )


class AdminApiDriver(Retry):
    """Sends the requests of one operation until each item has a result or the timeout is over."""

    def __init__(
        self,
        client: NetworkClient,
        name: str,
        *,
        timeout_s: float,
        request_timeout_s: float,
        retries: int,
        changes: bool = False,
    ) -> None:
        """`changes` says that the operation changes something, which may happen although no answer comes in time."""
        super().__init__(client, timeout_s=timeout_s, retries=retries, gave_up=f"{name} gave up")
        self._name = name
        self._changes = changes
        self._request_timeout_s = request_timeout_s

    @property
    def timeout_ms(self) -> int:
        """The time that a broker may work on a request."""
        left = max(self.deadline - self.client.now, 0.0)
        return round(min(left, self._request_timeout_s) * 1000)

    async def run(
        self,
        items: Collection[K],
        target: Callable[[K], Target | KafkaError | None],
        request: RequestFor[K],
        answers: AnswersFrom[K, V],
        *,
        is_retriable: Callable[[KafkaError], bool] = lambda error: error.retriable,
    ) -> dict[K, V]:
        """Returns the result of each item from its target. Raises ItemsFailed. See `Retry.send_each`."""
        results: Results[K, V] = Results(items)
        await self.send_each(results, target, request, answers, is_retriable=is_retriable)
        return self.result_of(results)

    def result_of(self, results: Results[K, V]) -> dict[K, V]:
        if results.failed:
            raise ItemsFailed(self._name, results.failed, results.succeeded, tuple(self.attempts))
        return results.succeeded

    def given_up(self, error: Error | None) -> Error:
        """Returns the error of a pending item: its last one, and that the time or the retries are over."""
        if error is None or isinstance(error, OperationTimedOut):
            given_up = super().given_up(error)
            is_unanswered = error is None and self.has_sent and not self.attempts
            if is_unanswered and self._changes and isinstance(given_up, OperationTimedOut):
                return OperationTimedOut(f"{given_up}; it may be carried out yet", given_up.attempts)
            return given_up
        if self.retries == 0:
            return error
        text = f"{self._name} gave up after {self.failures} tries, {spelled(self.timeout_s)} at most: {error}"
        given_up = OperationTimedOut(text, tuple(self.attempts))
        given_up.__cause__ = error
        return given_up


class AdminOperations:
    def __init__(self, client: NetworkClient, settings: AdminSettings) -> None:
        self._client = client
        self._settings = settings
        self._topic_users: Counter[str] = Counter()
        """The number of running operations that need a topic's leaders."""

    def _driver(self, name: str, timeout: float | None, *, changes: bool = False) -> AdminApiDriver:
        settings = self._settings
        return AdminApiDriver(
            self._client,
            name,
            timeout_s=settings.default_api_timeout_ms / 1000 if timeout is None else timeout,
            request_timeout_s=settings.request_timeout_ms / 1000,
            retries=settings.retries,
            changes=changes,
        )

    async def _at_controller(
        self, driver: AdminApiDriver, items: Collection[K], request: RequestFor[K], answers: AnswersFrom[K, V]
    ) -> dict[K, V]:
        """Asks the controller about the items. Raises ItemsFailed."""
        return await driver.run(items, lambda _: CONTROLLER, request, answers, is_retriable=controller_moves)

    async def _at_coordinators(
        self,
        driver: AdminApiDriver,
        items: Collection[K],
        coordinator: Callable[[K], Coordinator],
        request: RequestFor[K],
        answers: AnswersFrom[K, V],
    ) -> dict[K, V]:
        """Asks each item's coordinator. Raises ItemsFailed."""
        return await driver.run(items, coordinator, request, answers, is_retriable=coordinator_moves)

    async def _at_leaders(
        self,
        driver: AdminApiDriver,
        partitions: Collection[TopicPartition],
        request: RequestFor[TopicPartition],
        answers: AnswersFrom[TopicPartition, V],
    ) -> dict[TopicPartition, V]:
        """Asks the partitions' leaders. Raises ItemsFailed."""
        with PartitionLeaders(self._client, self._topic_users, partitions) as leaders:
            if partitions:
                await driver.refresh_metadata()
            return await driver.run(partitions, leaders, request, answers)

    async def _at_brokers(
        self,
        driver: AdminApiDriver,
        wanted: Collection[int] | None,
        request: RequestFor[BrokerId],
        answers: AnswersFrom[BrokerId, V],
        *,
        is_retriable: Callable[[KafkaError], bool] = lambda error: error.retriable,
    ) -> dict[BrokerId, V]:
        """Asks the wanted brokers, or (None) all that live. Raises UsageError for an unknown one, and ItemsFailed."""
        brokers = await (self._live_brokers(driver) if wanted is None else self._brokers(driver, wanted))
        return await driver.run(brokers, BrokerNodes(self._client), request, answers, is_retriable=is_retriable)

    async def _live_brokers(self, driver: AdminApiDriver) -> list[BrokerId]:
        """Returns the ids of all live brokers. Metadata names one that has died for some time yet, so that clients keep
        what they have for it until it is back."""
        from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

        await driver.refresh_metadata()
        try:
            response = await driver.send(DescribeClusterRequest(), ANY, lambda r: r.error_code)
        except UnsupportedVersion:  # before Kafka 2.8
            return sorted(map(BrokerId, self._client.metadata.cluster.brokers))
        return sorted(BrokerId(broker.broker_id) for broker in response.brokers)

    async def _brokers(self, driver: AdminApiDriver, wanted: Collection[int]) -> list[BrokerId]:
        """Returns the ids of the wanted brokers in order. Raises UsageError for an unknown one."""
        await driver.refresh_metadata()
        known = sorted(map(BrokerId, self._client.metadata.cluster.brokers))
        for node_id in wanted:
            if node_id not in known:
                listed = ", ".join(map(str, known))
                raise UsageError(f"broker {node_id} is not in the cluster; its brokers are {listed}")
        return sorted(map(BrokerId, set(wanted)))


class BrokerNodes:
    """Finds brokers for `AdminApiDriver.run`. Raises BrokerNotAvailable for one that several metadata responses did not
    have."""

    def __init__(self, client: NetworkClient) -> None:
        self._client = client
        self._missed: Counter[BrokerId] = Counter()

    def __call__(self, broker_id: BrokerId) -> Node | None:
        if broker_id in self._client.metadata.cluster.brokers:
            return Node(broker_id)
        self._missed[broker_id] += 1
        if self._missed[broker_id] >= MISSED_MAX:
            raise BrokerNotAvailable("it has left the cluster")
        return None


class PartitionLeaders:
    """Finds each partition's leader for `AdminApiDriver.run`. The metadata keeps their topics within the `with` block.

    Raises TopicNotFound for topics and partitions that several metadata responses did not have.
    """

    def __init__(self, client: NetworkClient, users: Counter[str], partitions: Collection[TopicPartition]) -> None:
        self._metadata = client.metadata
        self._client = client
        self._users = users
        self._topics = {partition.topic for partition in partitions}
        self._missed: dict[TopicPartition, int] = {}

    def __enter__(self) -> "PartitionLeaders":
        self._users.update(self._topics)
        self._client.add_topics(self._topics)
        return self

    def __exit__(self, *_: object) -> None:
        self._users.subtract(self._topics)
        unused = [topic for topic in self._topics if self._users[topic] <= 0]
        for topic in unused:
            del self._users[topic]
        self._metadata.remove_topics(unused)

    def __call__(self, partition: TopicPartition) -> Node | KafkaError | None:
        if self._metadata.partition(partition) is None:
            missed = self._missed[partition] = self._missed.get(partition, 0) + 1
            if missed >= MISSED_MAX:
                raise self._metadata.partition_error(partition)
        return leader_of(self._client, partition)
