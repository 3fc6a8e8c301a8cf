"""Watches the ends of logs and epochs, and the arrival of new records, for programs that plan reads (`LogWatcher`)."""

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.fetch.fetch_session import (
    ZERO_ID,
    FetchConfig,
    FetchRequestBuilder,
    FetchRequestData,
    RequestedPartition,
)
from barnabas.client.fetch.fetcher import FETCH_ROLE
from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.offset_messages import PartitionOffset
from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.flow import settle
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.promise import Promise
from barnabas.protocol.fetch_session import FINAL_EPOCH, NO_SESSION
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = ["LogWatcher"]

T = TypeVar("T")

_BYTES_MAX: Final = 1
"""The most bytes of a response. Brokers send at least one batch, which is not read."""


class LogWatcher:
    """Requests offsets and epochs from the leaders of partitions, and waits for new records. Connections and metadata
    are kept between the calls, which must come from one thread. Close it.

    A wait sends one Fetch request to each leader, outside of sessions, which brokers hold back until there are records.
    The first response with records ends the wait. The requests that are still held back then serve the next wait."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Takes the settings of an admin client. Connects at the first use. Raises UsageError."""
        found = AdminSettings(settings)
        self._timeout_s = found.default_api_timeout_ms / 1000
        self._client = NetworkClient(network_client_settings(found, allow_auto_topic_creation=False), time.monotonic())
        self._driver = SyncDriver(self._client, ssl_context=ssl_context(found), name="log watcher")
        self._calls = KafkaAdminClient(self._client, found)
        self._in_flight: set[BrokerId] = set()
        """The nodes that have a Fetch request. Responses of a connection are in the order of its requests, so a node
        never gets a second one."""
        self._requested: dict[BrokerId, dict[TopicPartition, RequestedPartition]] = {}
        self._deadline = float("-inf")
        self._config = FetchConfig(max_bytes=_BYTES_MAX)
        self._arrival: Promise[None] = Promise()

    def close(self) -> None:
        self._driver.close()

    def __enter__(self) -> "LogWatcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def admin(self, call: Callable[[KafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of an administrator's call, which is made over the same connections."""
        return self._driver.wait_for(self._driver.run(lambda: settle(call(self._calls))))

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, PartitionOffset]:
        """Returns the first offset at or after each timestamp: ms, -1 for the end, -2 for the beginning."""
        return self._driver.wait_for(
            self._driver.run(
                lambda: list_offsets(self._client, timestamps, read_committed=read_committed, timeout_s=self._timeout_s)
            )
        )

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
        """Returns (epoch, end offset) of the largest leader epoch that is not above the given one; -1 for none."""
        return self._driver.wait_for(self._driver.run(lambda: epoch_ends(self._client, epochs, self._timeout_s)))

    def wait_for_records(
        self, offsets: Mapping[TopicPartition, int], timeout: float, *, read_committed: bool = False
    ) -> bool:
        """Waits until there may be a record at one of the offsets or behind it. Returns False if there is none in time.
        Returns True also after an error, such as an unknown leader: the caller then looks again."""
        arrival = self._driver.run(lambda: self._begin_wait(offsets, timeout, read_committed))
        return self._driver.wait(lambda: arrival.done, timeout)

    def _begin_wait(self, offsets: Mapping[TopicPartition, int], timeout: float, read_committed: bool) -> Promise[None]:
        arrival = self._arrival = Promise()
        self._config = self._config._replace(read_committed=read_committed)
        self._deadline = self._client.now + timeout
        self._requested = {}
        metadata = self._client.metadata
        topics = {topic_partition.topic for topic_partition in offsets}
        metadata.remove_topics(set(metadata.topics) - topics)
        self._client.add_topics(topics)
        for topic_partition, offset in offsets.items():
            leader, known = metadata.leader(topic_partition), metadata.partition(topic_partition)
            if leader < 0 or known is None:
                metadata.request_update()
                arrival.resolve(None)
            else:
                topic_id = metadata.topic_id(topic_partition.topic)
                data = RequestedPartition(topic_id, offset, known.leader_epoch, _BYTES_MAX)
                self._requested.setdefault(leader, {})[topic_partition] = data
        for node in self._requested.keys() - self._in_flight:
            self._send(node)
        return arrival

    def _send(self, node: BrokerId) -> None:
        requested = self._requested[node]
        has_ids = all(each.topic_id != ZERO_ID for each in requested.values())
        data = FetchRequestData(NO_SESSION, FINAL_EPOCH, requested, (), (), requested, has_ids)
        wait_s = max(self._deadline - self._client.now, 0.0)
        request = FetchRequestBuilder(node, data, round(wait_s * 1000), self._config)
        self._in_flight.add(node)
        timeout_s = self._client.settings.connection.request_timeout_s + wait_s
        call = ClientRequest(
            FetchRequest,
            lambda response, error: self._answered(node, response, error),
            build=request.build,
            at_most=request.at_most,
            timeout_s=timeout_s,
        )
        self._client.send(call, Node(node, FETCH_ROLE))

    def _answered(self, node: BrokerId, response: Any, error: Error | None) -> None:
        self._in_flight.discard(node)
        answers = () if error else [answer for topic in response.responses for answer in topic.partitions]
        if error or response.error_code or any(answer.error_code for answer in answers):
            self._client.metadata.request_update()
            self._arrival.resolve(None)
        elif any(answer.records for answer in answers):
            self._arrival.resolve(None)
        elif not self._arrival.done and node in self._requested and self._client.now < self._deadline:
            self._send(node)  # the response was to a request of an earlier wait
