"""Reading partitions: one fetch always on its way to each leader, batches decoded when asked for.

`SimpleConsumer(cluster, {TopicPartition("t", 0): 0}).poll()` gives what arrived. Positions only move past what was
returned. Groups are `group_member`'s business: this reads what it is told to.
"""

import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import BACKOFF_FIRST_S, BACKOFF_MAX_S, Cluster
from barnabas.client.connection import Connection
from barnabas.client.deadline import Deadline
from barnabas.client.errors import BrokerUnreachable, ClientError, ConnectionLost
from barnabas.errors import BarnabasError, CorruptMessage, KafkaError, OffsetOutOfRange, error_for
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.types import TopicPartition

__all__ = ["Fetched", "SimpleConsumer"]

TOPIC_ID_FROM: Final = 13
READ_COMMITTED: Final = 1
REQUEST_MARGIN_S: Final = 30.0
"""How long an answer may take beyond what the broker was told to wait."""


class Fetched(NamedTuple):
    """Whole batches of one partition from one answer. `records()` decodes them."""

    partition: TopicPartition
    position: int
    """The offset that was asked for: batches may begin before it."""
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    batches: list[tuple[BatchHeader, memoryview]]
    aborted: frozenset[tuple[int, int]]
    """(producer id, base offset) of the batches to leave out: of aborted transactions, read_committed only."""

    @property
    def record_count(self) -> int:
        """As the headers say, control batches left out; exact if the answer begins at the position."""
        return sum(header.record_count for header, _ in self.batches if not header.is_control)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch) for _, batch in self.batches)

    def records(self) -> Iterator[Record]:
        """Raises CorruptMessage for a batch that cannot be read."""
        for header, batch in self.batches:
            if header.is_control or (header.producer_id, header.base_offset) in self.aborted:
                continue
            records = read_records(batch)
            if header.base_offset < self.position:
                records = [record for record in records if record.offset >= self.position]
            yield from records


class SimpleConsumer:
    """See the module. `positions` maps each partition to the next offset to read."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int] | None = None,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        read_committed: bool = False,
        on_out_of_range: Callable[[TopicPartition, int], int] | None = None,
        prefetch: bool = True,
        timeout_s: float = 30.0,
    ) -> None:
        self.cluster = cluster
        self.positions: dict[TopicPartition, int] = dict(positions or {})
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.last_stable_offsets: dict[TopicPartition, int] = {}
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._read_committed = read_committed
        self._on_out_of_range = on_out_of_range
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        """What the fetch in flight to a broker asked for: partition to offset."""
        self._pause = BACKOFF_FIRST_S
        self._failure: KafkaError | None = None
        self._trouble: Deadline | None = None
        """Set at the first failure, cleared by an answer: when it passes, poll raises."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these from now on; fetches that are under way for others are thrown away."""
        self.positions = dict(positions)
        self._drop_fetches()

    def pause_fetching(self) -> None:
        """Forget what is in flight, so that nothing is read twice after positions changed."""
        self._drop_fetches()

    def poll(self, timeout_s: float = 1.0) -> list[Fetched]:
        """What arrives first, or nothing after the timeout. Positions are advanced past it.

        Raises KafkaErrors that do not pass (authorization, OffsetOutOfRange without a handler), and what hinders every
        retry for `timeout_s` of the constructor.
        """
        deadline = Deadline(timeout_s)
        while True:
            try:
                fetched = self._poll_once(deadline)
            except (KafkaError, ClientError) as error:
                self._after(error)
                fetched = []
            if fetched or deadline.passed:
                return fetched

    def _poll_once(self, deadline: Deadline) -> list[Fetched]:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not self.positions:
            deadline.pause(min(0.1, deadline.remaining()))
            return []
        self._send_fetches()
        ready = self._wait(deadline)
        fetched: list[Fetched] = []
        for node_id in ready:
            asked = self._asked.pop(node_id)
            response = self._connections[node_id].receive(Deadline(REQUEST_MARGIN_S))[1]
            assert isinstance(response, FetchResponse)
            fetched += self._take(asked, response)
        if ready:
            self._pause, self._trouble = BACKOFF_FIRST_S, None
            if self._prefetch and fetched:
                self._send_fetches()
        return fetched

    def _wait(self, deadline: Deadline) -> list[int]:
        sockets = {self._connections[node_id].fileno(): node_id for node_id in self._asked}
        if not sockets:
            return []
        ready, _, _ = select.select([*sockets], [], [], deadline.remaining())
        return [sockets[number] for number in ready]

    def _send_fetches(self) -> None:
        """One fetch to each leader that has none in flight."""
        nodes: dict[int, dict[TopicPartition, int]] = {}
        for where, offset in self.positions.items():
            node_id = self.cluster.leader(*where, deadline=Deadline(self._timeout_s))
            if node_id not in self._asked:
                nodes.setdefault(node_id, {})[where] = offset
        for node_id, asked in nodes.items():
            connection = self._connections.get(node_id)
            if connection is None or not connection.is_open:
                connection = self.cluster.open_connection(node_id, Deadline(self._timeout_s))
                self._connections[node_id] = connection
            with_ids = all(self.cluster.topic_id(where.topic).int for where in asked)
            version = connection.version_of(FetchRequest, at_most=None if with_ids else TOPIC_ID_FROM - 1)
            connection.send(self._request(asked), version, Deadline(self._timeout_s))
            self._asked[node_id] = asked

    def _request(self, asked: Mapping[TopicPartition, int]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for where, offset in asked.items():
            partition = FetchPartition(
                partition=where.partition, fetch_offset=offset, partition_max_bytes=self._partition_max_bytes
            )
            topics.setdefault(where.topic, []).append(partition)
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=READ_COMMITTED if self._read_committed else 0,
            topics=[
                FetchTopic(topic=name, topic_id=self.cluster.topic_id(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _take(self, asked: dict[TopicPartition, int], response: FetchResponse) -> list[Fetched]:
        if response.error_code:
            raise error_for(response.error_code)
        fetched: list[Fetched] = []
        failure: KafkaError | None = None
        for topic in response.responses:
            name = topic.topic or self.cluster.topic_name(topic.topic_id) or ""
            for answer in topic.partitions:
                where = TopicPartition(name, answer.partition_index)
                position = asked.get(where)
                if position is None or self.positions.get(where) != position:
                    continue
                try:
                    found = self._take_partition(where, position, answer)
                except KafkaError as error:
                    failure = error
                    continue
                if found is not None:
                    fetched.append(found)
                    self.positions[where] = found.next_offset
        # what came with a failure is given out first: its positions are advanced
        self._failure = failure
        return fetched

    def _take_partition(self, where: TopicPartition, position: int, answer: Any) -> Fetched | None:
        if answer.error_code == OffsetOutOfRange.code and self._on_out_of_range is not None:
            self.positions[where] = self._on_out_of_range(where, position)
            return None
        if answer.error_code:
            kind = error_for(answer.error_code)
            raise error_for(answer.error_code, f"{where} at offset {position}: {kind.kafka_name}")
        self.high_watermarks[where] = answer.high_watermark
        self.last_stable_offsets[where] = answer.last_stable_offset
        if not answer.records:
            return None
        return _fetched(where, position, answer)

    def _after(self, error: BarnabasError) -> None:
        """Wait a little and look the leaders up again, or give up."""
        passes = isinstance(error, KafkaError | ConnectionLost) and error.retriable
        if not passes and not isinstance(error, BrokerUnreachable):
            raise error
        if self._trouble is None:
            self._trouble = Deadline(self._timeout_s)
        elif self._trouble.passed:
            raise error
        self._drop_fetches()
        self.cluster.forget({where.topic for where in self.positions})
        self._trouble.pause(self._pause)
        self._pause = min(self._pause * 2, BACKOFF_MAX_S)

    def _drop_fetches(self) -> None:
        for node_id in [*self._asked]:
            self._connections.pop(node_id).close()
        self._asked.clear()

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the positions and the ends last seen; partitions not yet heard of are left out."""
        return {w: max(self.high_watermarks[w] - p, 0) for w, p in self.positions.items() if w in self.high_watermarks}

    def close(self) -> None:
        self._asked.clear()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> "SimpleConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fetched(where: TopicPartition, position: int, answer: Any) -> Fetched | None:
    batches: list[tuple[BatchHeader, memoryview]] = []
    next_offset = position
    for header, batch in iter_batches(answer.records):
        if header.next_offset > position:
            batches.append((header, batch))
            next_offset = header.next_offset
    if not batches:
        raise CorruptMessage(f"{where} at offset {position}: {len(answer.records)} bytes without a whole batch")
    aborted = _aborted(batches, answer.aborted_transactions or ())
    return Fetched(where, position, next_offset, answer.high_watermark, answer.last_stable_offset, batches, aborted)


def _aborted(
    batches: Iterable[tuple[BatchHeader, memoryview]], transactions: Iterable[Any]
) -> frozenset[tuple[int, int]]:
    """Batches of aborted transactions: from a transaction's first offset up to its producer's abort marker."""
    pending = sorted(transactions, key=lambda t: t.first_offset)
    if not pending:
        return frozenset()
    active: set[int] = set()
    found = set()
    for header, batch in batches:
        while pending and pending[0].first_offset <= header.last_offset:
            active.add(pending.pop(0).producer_id)
        if header.producer_id not in active:
            continue
        if header.is_control:
            if _is_abort(batch):
                active.discard(header.producer_id)
        elif header.is_transactional:
            found.add((header.producer_id, header.base_offset))
    return frozenset(found)


def _is_abort(batch: memoryview) -> bool:
    key = read_records(batch)[0].key
    return key is not None and key[2:4] == b"\x00\x00"
