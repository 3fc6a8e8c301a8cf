"""A consumer's fetcher against a simulated cluster, without a network client between them."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.fetch_session import FetchConfig, FetchRequestBuilder
from barnabas.client.fetch.fetcher import Fetcher
from barnabas.client.fetch.positions import PartitionState, ResetStrategy
from barnabas.connection.metadata import Metadata
from barnabas.errors import BarnabasError
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.fetch import from_message
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.records.compiled.consumer_records import ConsumerRecord
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.log import Log

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NEWEST = 18


def cluster_of(counts: dict[str, int], *, nodes: int = 2, version: int = NEWEST, slots: int = 10) -> Cluster:
    """A cluster with these topics, that serves Fetch up to this version and has room for so many sessions."""
    cluster = Cluster(counts, nodes=nodes, session_slots=slots)
    cluster.versions[ApiKey.FETCH] = (4, version)
    for name, count in counts.items():
        for index in range(count):
            cluster.log(name, index)
    return cluster


def append(log: Log, count: int) -> None:
    """Appends batches of up to three records. Each value names itself and the one before it, so that a reader can tell
    one history from another."""
    values = []
    for offset in range(log.end, log.end + count):
        before = values[-1] if values else log.values.get(offset - 1, b"nothing")
        assert before is not None
        itself = b"%d.%d.%s" % (log.leader_epoch, offset, uuid4().hex[:8].encode())
        values.append(b"%s after %s" % (itself, before.split()[0]))
    for first in range(0, count, 3):
        log.append(*values[first : first + 3], timestamp=1000)


class Rig:
    """A consumer's fetcher, subscription and metadata, without a network client between them and the cluster."""

    def __init__(self, cluster: Cluster, config: FetchConfig | None = None, reset: str = "earliest") -> None:
        self.cluster = cluster
        self.metadata = Metadata()
        self.metadata.add_topics(cluster.topics)
        self.subscription = SubscriptionState(ResetStrategy(reset))
        self.invalid = 0
        """The number of positions that responses have made invalid."""
        self.fetcher = Fetcher(self.subscription, self.metadata, config or FetchConfig(), self._note_invalid)
        self.refresh()

    def _note_invalid(self) -> None:
        self.invalid += 1

    @property
    def now(self) -> float:
        return self.cluster.now

    def refresh(self) -> None:
        response = self.cluster.call(1, MetadataRequest(topics=None), 13)
        self.metadata.update(response, None, self.now)
        self.fetcher.follow_leaders()

    def start(self, *partitions: TopicPartition, offset: int = 0) -> None:
        self.subscription.assign(partitions)
        for topic_partition in partitions:
            self.subscription.seek(topic_partition, offset)

    def requests(self, is_ready: Callable[[int], bool] = lambda _: True) -> list[FetchRequestBuilder]:
        return self.fetcher.prepare_requests(self.now, is_ready)

    def fetch(self, request: FetchRequestBuilder) -> messages.FetchResponse:
        """Returns what the broker answers to the request."""
        newest = self.cluster.versions[ApiKey.FETCH][1]
        version = newest if request.at_most is None else min(newest, request.at_most)
        response = self.cluster.call(request.node, request.build(version), version)
        assert isinstance(response, messages.FetchResponse)
        return response

    def answer(self, request: FetchRequestBuilder, response: messages.FetchResponse | None = None) -> None:
        self.fetcher.answered(request, from_message(response or self.fetch(request)), self.now)

    def round(self) -> int:
        """One request to each broker and its answer."""
        requests = self.requests()
        for request in requests:
            self.answer(request)
        return len(requests)

    def read(self, limit: int = 1000) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most `limit` records, taken as a consumer's poll takes them."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        buffer = self.fetcher.buffer
        while limit > 0 and (fetch := buffer.next_fetch(raises_errors=not found)) is not None:
            try:
                records = fetch.read(limit)
            except BarnabasError:
                buffer.was_read(fetch, ended=False)
                if found:
                    break
                raise
            assert buffer.was_read(fetch, ended=fetch.is_ended)
            if records:
                found.setdefault(fetch.partition, []).extend(records)
            limit -= len(records)
        return found

    def offsets(self, limit: int = 1000) -> dict[TopicPartition, list[int]]:
        return {tp: [record.offset for record in found] for tp, found in self.read(limit).items()}

    def state(self) -> PartitionState:
        state = self.subscription.get(T0)
        assert state is not None
        return state

    def position(self, topic_partition: TopicPartition = T0) -> int | None:
        position = self.subscription.position(topic_partition)
        return None if position is None else position.offset


def one(count: int = 10, **options: Any) -> Rig:
    """One partition with `count` records, read from its beginning."""
    cluster = cluster_of({"t": 1}, nodes=1)
    append(cluster.logs[T0], count)
    rig = Rig(cluster, **options)
    rig.start(T0)
    return rig
