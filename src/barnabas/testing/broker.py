"""A broker in a thread of the test process: a real one, with a log on disk, on a free port."""

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from barnabas.broker import server
from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import TopicWish
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.errors import CoordinatorLoadInProgress, KafkaError, UnknownTopicOrPartition, error_for
from barnabas.log.log import Log
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.records.batch import iter_batches
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.testing.faults import Faults

__all__ = ["Broker"]

T = TypeVar("T")

_READ_BYTES = 1 << 20

TEST_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.delete.delay.ms": 0,
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 5,
}
"""What differs from a broker of `barnabas serve`: nothing a test would have to wait for, a topic of committed offsets
that is made in a few milliseconds, and no retention by time: records with made-up timestamps are years old, and would
go when the broker has run for half a minute, and every five minutes from then on. `settings` and those of a topic
win."""


class Broker:
    """A broker for tests: `with Broker() as broker: client(broker.bootstrap_servers)`.

    Without `data_dir` the log lives in a temporary directory that goes with the broker; with one it stays, and a second
    broker on it finds what the first one left. `settings` are Kafka's (`{"num.partitions": 4}`). All methods may be
    called from any thread.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._own_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="barnabas-")) if data_dir is None else Path(data_dir)
        self._host = host
        self._port = port
        self._settings = dict(settings or {})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: server.Broker | None = None
        self.faults = Faults(self._running)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> "Broker":
        """Ready when it returns. Raises UsageError as `barnabas serve` would."""
        assert self._broker is None, "the broker runs"
        settings = {**TEST_SETTINGS, **self._settings, "log.dirs": str(self.data_dir)}
        settings["listeners"] = f"PLAINTEXT://{self._host}:{self._port}"
        config = BrokerConfig.of(settings)
        loop = asyncio.new_event_loop()
        broker = server.Broker(config, loop)
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name="barnabas-broker", daemon=True)
        self._thread.start()
        try:
            self._on_loop(broker.start)
        except BaseException:
            self._end_thread()
            raise
        self._broker = broker
        self._port = broker.endpoints[0].port
        self.faults.install()
        return self

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    def stop(self) -> None:
        """Shut down cleanly. The port and the data are kept for `start`; `close` forgets them."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            try:
                self._on_loop(broker.stop)
            finally:
                self._end_thread()

    def restart(self) -> None:
        """Stop and start on the same port and data: what clients see of a broker's restart."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the data if the directory was ours."""
        self.stop()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None

    def _running(self) -> server.Broker:
        assert self._broker is not None, "the broker does not run: use it as a context manager or call start()"
        return self._broker

    def _on_loop(self, function: Callable[[], T]) -> T:
        """Run on the broker's thread, return or raise what it did."""
        assert self._loop is not None
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return future.result()

    # --- what tests want --------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any client on this machine."""
        return self._running().endpoints[0].local_address

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Raises TopicAlreadyExists, InvalidTopic, InvalidConfig."""
        broker = self._running()
        wish = TopicWish(name, partitions=partitions, configs=dict(config or {}))
        result = self._on_loop(lambda: broker.controller.create_topics([wish]))[name]
        if isinstance(result, KafkaError):
            raise result

    def delete_topic(self, name: str) -> None:
        """Raises UnknownTopicOrPartition."""
        broker = self._running()
        error = self._on_loop(lambda: broker.controller.delete_topics([name]))[name]
        if error is not None:
            raise error

    def topics(self) -> list[str]:
        """Names of the topics that are not Kafka's own."""
        return sorted(name for name, topic in self._running().image.topics.items() if not topic.is_internal)

    def end_offsets(self, topic: str) -> list[int]:
        """The high watermark of each partition."""
        broker = self._running()

        def read() -> list[int]:
            found = broker.image.topics.get(topic)
            if found is None:
                raise UnknownTopicOrPartition(f"topic {topic} does not exist")
            return [broker.replica_manager.leader_of(topic, p).log.high_watermark for p in range(len(found.partitions))]

        return self._on_loop(read)

    def reset(self) -> None:
        """As new: no topics, no groups, no faults; clients may stay connected."""
        broker = self._running()
        self.faults.clear()

        def clear() -> None:
            names = list(broker.image.topics)
            if names:
                broker.controller.delete_topics(names)

        self._on_loop(clear)

    def wait_for(self, condition: Callable[[], Any], timeout_s: float = 30.0, what: str = "the condition") -> None:
        """Until the condition is true. Raises TimeoutError that says `what`."""
        event = threading.Event()
        loop = self._loop
        assert loop is not None
        deadline = loop.time() + timeout_s
        while not condition():
            if loop.time() > deadline:
                raise TimeoutError(f"{what} did not come true within {timeout_s} s")
            event.wait(0.005)

    def wait_for_group(self, group_id: str, members: int = 1, timeout_s: float = 30.0) -> None:
        """Until the group is stable with that many members. Raises TimeoutError."""
        broker = self._running()

        def stable() -> bool:
            described: list[DescribedGroup] = []
            self._on_loop(lambda: broker.groups.describe_groups([group_id], api_version=5, reply=described.extend))
            return all(group.group_state == "Stable" and len(group.members) == members for group in described)

        self.wait_for(stable, timeout_s, f"group {group_id} with {members} stable members")

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The group's committed offsets by (topic, partition); none for a group that is not there. Raises what a client
        would get as an error."""
        if OFFSETS_TOPIC not in self._running().image.topics:
            return {}  # made when the first group asks for its coordinator
        answers: list[OffsetFetchResponseGroup] = []

        def answered() -> bool:
            answers[:] = self._fetch_offsets(group_id)
            return answers[0].error_code != CoordinatorLoadInProgress.code

        self.wait_for(answered, what=f"the committed offsets of group {group_id}")
        if answers[0].error_code:
            raise error_for(answers[0].error_code)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answers[0].topics
            for partition in topic.partitions
        }

    def _fetch_offsets(self, group_id: str) -> list[OffsetFetchResponseGroup]:
        broker = self._running()
        found: list[OffsetFetchResponseGroup] = []
        wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        self._on_loop(lambda: broker.groups.fetch_offsets(wanted, require_stable=False, reply=found.extend))
        self.wait_for(lambda: found, what=f"an answer about group {group_id}")
        return found

    def lag(self, group_id: str) -> dict[tuple[str, int], int]:
        """Records between the committed offset and the end, for each partition with a committed offset."""
        lags: dict[tuple[str, int], int] = {}
        for (topic, partition), offset in self.committed(group_id).items():
            with contextlib.suppress(UnknownTopicOrPartition):
                lags[topic, partition] = self.end_offsets(topic)[partition] - offset
        return lags

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What stands in the topic, decoded: of one partition, or of all, one after the other. Control records and what
        is above the high watermark are left out. Raises UnknownTopicOrPartition."""
        broker = self._running()

        def read() -> list[Record]:
            image = broker.image.topics.get(topic)
            if image is None:
                raise UnknownTopicOrPartition(f"topic {topic} does not exist")
            found: list[Record] = []
            for index in range(len(image.partitions)) if partition is None else (partition,):
                found += _records_of(broker.replica_manager.leader_of(topic, index).log)
            return found

        return self._on_loop(read)


def _records_of(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        file_slice = log.read(offset, _READ_BYTES, upper_bound=log.high_watermark, min_one_message=True).file_slice
        if file_slice is None:
            break
        for header, batch in iter_batches(file_slice.read()):
            if not header.is_control:
                found += [record for record in read_records(batch) if record.offset >= offset]
            offset = header.next_offset
    return found
