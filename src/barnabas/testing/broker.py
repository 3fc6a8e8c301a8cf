"""A broker in a thread of the test process: a real one, with a log on disk, on a free port."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from uuid import UUID

from barnabas.broker import server
from barnabas.broker.startup.directory_age import UnconfirmedReplicas
from barnabas.broker.startup.directory_check import MissingDirectories
from barnabas.broker.startup.start_attempts import StartAttempts
from barnabas.client.admin.topics import NewTopic
from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import Controller, TopicRequest
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.errors import (
    BarnabasError,
    CoordinatorLoadInProgress,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    UsageError,
    error_for,
)
from barnabas.metadata.image import NO_LEADER, MetadataImage
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.registry.registry import RegistryUnreachable
from barnabas.replication.partition import Partition
from barnabas.testing.checks import (
    new_topics,
    refuse_settings,
    require_count,
    require_partition,
    require_patience,
)
from barnabas.testing.clock import SkewedClock
from barnabas.testing.contents import Text, TopicRecord, append, partition_for_key, records_of
from barnabas.testing.disk import FaultyDisk
from barnabas.testing.exits import at_exit
from barnabas.testing.faults import Faults
from barnabas.testing.groups import AwaitedGroup, GroupState
from barnabas.testing.ports import ReservedPort
from barnabas.testing.renamed import renamed
from barnabas.testing.waiting import Wait, is_done_within, wait_for_condition
from barnabas.types import BrokerId, Offset

if TYPE_CHECKING:
    from barnabas.client.admin.front import Admin

__all__ = ["Broker", "BrokerDied"]

T = TypeVar("T")

_PAUSE_TURN_S: Final = 0.1
_ALIVE_S: Final = 0.2
"""The interval at which a call that waits for the broker's thread checks that the thread is alive."""

TEST_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.dir.reserve.bytes": 0,
    "log.segment.delete.delay.ms": 0,
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 5,
}
"""The settings that differ from those of `barnabas serve`, unless `settings` or those of a topic say otherwise.

No waits, no reserve for a full disk, a topic of committed offsets that is created in a few milliseconds, and no
retention by time: that would delete records with made-up timestamps, which are years old, after half a minute."""


_LOG_DIRS: Mapping[str, str] = dict.fromkeys(
    ("log.dir", "log.dirs"), "data_dir says where the logs are, and log_dirs=2 gives a broker two directories"
)


class BrokerDied(BarnabasError):
    """The thread of a test's broker has ended, or does not respond."""


async def _settle(future: "Future[T]", work: Coroutine[Any, Any, T]) -> None:
    try:
        future.set_result(await work)
    except Exception as error:
        future.set_exception(error)


class Broker:
    """A broker for tests: `with Broker() as broker: client(broker.bootstrap_servers)`.

    `data_dir`: the directory of the log. Without one the log lives in a temporary directory that is removed when the
    broker is closed. A given directory stays, and a later broker on it finds the records of the earlier one.
    `log_dirs`: the number of log directories; several are in that one. `settings`: the broker's settings under Kafka's
    names (`{"num.partitions": 4}`). `patience`: the seconds that a method waits for the broker's thread before it
    raises BrokerDied. `machine`: the name of the machine on which it seems to run, for those of a cluster. All methods
    may be called from any thread.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        log_dirs: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        patience: float = 30.0,
        machine: str | None = None,
    ) -> None:
        refuse_settings(settings or {}, _LOG_DIRS)
        require_count(log_dirs, 100, "a broker has 1 to 100 log directories")
        require_patience(patience)
        self._settings = dict(settings or {})
        self._machine = machine
        self._own_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="barnabas-")) if data_dir is None else Path(data_dir)
        self._keep_open = at_exit(self.close) if self._own_dir else None
        """Takes back that the broker is closed at the end of the process."""
        numbers = range(1, log_dirs + 1)
        self.log_dirs = (self.data_dir,) if log_dirs == 1 else tuple(self.data_dir / f"log-{n}" for n in numbers)
        self.patience = patience
        self.number: int | None = None
        """The node id by which a cluster calls the broker."""
        self._host = host
        self._port = port
        self._reserved: ReservedPort | None = None
        """The port between starts, if none was given."""
        self._address = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: server.Broker | None = None
        self._paused: SimpleQueue[Callable[[], None]] | None = None
        """While the broker is paused: takes the function with which its thread goes on."""
        self.faults = Faults(lambda: self._broker)
        self.disk = FaultyDisk()
        self.clock = SkewedClock()

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, *, lost_dirs: str | Path | Iterable[str | Path] = ()) -> "Broker":
        """Starts the broker, which takes requests when this returns. Raises UsageError as `barnabas serve` does, and
        where the broker runs already.

        `lost_dirs`: log directories that a test has removed for good. It is needed where nobody else has the replicas
        that were in them, in a cluster: they begin anew, empty.
        """
        if self._broker is not None:
            raise UsageError(f"the broker at {self._address} runs already; call stop() or restart()")
        if self._port == 0 and self._reserved is None and "listeners" not in self._settings:
            with contextlib.suppress(OSError):  # the broker tells of an address that cannot be had
                self._reserved = ReservedPort(self._host)
        listener = f"PLAINTEXT://{self._host}:{self._port if self._reserved is None else self._reserved.number}"
        settings = {**TEST_SETTINGS, "listeners": listener, **self._settings, "log.dirs": self.log_dirs}
        config = BrokerConfig.of(settings)
        attempts = StartAttempts()
        lost: Collection[UUID] = ()
        while self._broker is None:
            try:
                self._broker = self._started(config, lost)
            except RegistryUnreachable as error:
                attempts.pause(error, config.zookeeper_connection_max_s)
            except UnconfirmedReplicas as error:
                if lost or not error.missing or not lost_dirs:
                    raise
                lost = _lost(error.missing, lost_dirs)
            except MissingDirectories as error:
                lost = _lost(error.paths, lost_dirs)
        self._address = self._broker.endpoints[0].local_address
        self.faults.install()
        return self

    def _started(self, config: BrokerConfig, lost: Collection[UUID]) -> server.Broker:
        """Starts a broker in a thread. Raises UsageError, RegistryUnreachable."""
        loop = asyncio.new_event_loop()
        broker = server.Broker(
            config, loop, clock=self.clock, disk=self.disk, lost_directories=lost, boot=self._machine
        )
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name="barnabas-broker", daemon=True)
        self._thread.start()
        try:
            self._on_loop(broker.start)
        except BaseException:
            self._end_thread()
            raise
        return broker

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    def stop(self) -> None:
        """Shuts the broker down. The port and the data are kept for `start`; `close` forgets them. A member of a
        cluster hands over what it leads first.

        The broker's logger names the logs that a fault of the disk has stopped: the next start recovers them.
        """
        if self._broker is not None:
            broker = self._broker
            self.resume()
            if broker.cluster is not None:
                self._result_of(lambda future: broker.loop.create_task(_settle(future, broker.leave_cluster())))
            self._stop()

    def _stop(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            try:
                self._on_loop(broker.stop)
            except KafkaStorageError as error:
                broker.log.warning("not all logs could be closed, the next start recovers them: %s", error)
            finally:
                self._end_thread()

    def kill(self) -> None:
        """Ends the broker as SIGKILL ends a process: it hands nothing over and writes nothing more. Port and data are
        kept for `start`, also while the broker is paused."""
        broker, thread = self._running(), self._thread
        assert thread is not None
        self._broker = None
        ended: list[BaseException] = []

        def die() -> None:
            for task in asyncio.all_tasks(broker.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # they end as those of a dead process
            try:
                broker.abandon()
            except BaseException as error:
                ended.append(error)
            broker.loop.call_soon(broker.loop.stop)  # after the callbacks that close the sockets

        if self._paused is not None:
            self._paused.put(die)
            self._paused = None
        else:
            broker.loop.call_soon_threadsafe(die)
        thread.join(self.patience)
        if thread.is_alive():
            raise BrokerDied(f"the broker does not end; it is here:\n{_stack_of(thread)}")
        self._loop = self._thread = None
        if ended:
            raise ended[0]

    def pause(self) -> None:
        """Holds the broker's thread still, as SIGSTOP does: nothing is answered or sent until `resume`. What its other
        threads do at this moment, such as a write to the registry, they finish."""
        if self._paused is not None:
            return
        member = self._running().cluster
        paused: SimpleQueue[Callable[[], None]] = SimpleQueue()

        def hold(future: "Future[None]") -> None:
            future.set_result(None)
            while True:
                with contextlib.suppress(Empty):
                    return paused.get(timeout=_PAUSE_TURN_S)()
                if member is not None:
                    member.note_turn()  # a process that is stopped has no watchdog that runs

        self._result_of(hold)
        self._paused = paused

    def resume(self) -> None:
        """Ends a pause."""
        if self._paused is not None:
            self._paused.put(lambda: None)
            self._paused = None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def restart(self) -> None:
        """Stops the broker and starts it on the same port and data: what clients see of a broker's restart."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """An outage: inside the `with` block connections are refused, behind it the broker serves the same data at the
        same address. A block that starts the broker itself ends the outage early."""
        self.stop()
        try:
            yield
        finally:
            if not self.is_running:
                self.start()

    def close(self) -> None:
        """Stops the broker, and removes the data if the directory is a temporary one."""
        admin = self.__dict__.pop("admin", None)
        if admin is not None:
            admin.close()
        self.resume()
        self._stop()
        if self._reserved is not None:
            self._reserved.release()
            self._reserved = None
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._keep_open is not None:
            self._keep_open()

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
        with contextlib.suppress(RuntimeError):  # the thread has ended by itself and closed its loop
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self.patience)
        self._loop = self._thread = None

    def _running(self) -> server.Broker:
        if self._broker is None:
            raise self._not_running()
        return self._broker

    def _not_running(self) -> UsageError:
        """Returns the error for a broker that does not run, which says how to start it."""
        if self.number is None:
            return UsageError("the broker does not run: use it as a context manager or call start()")
        return UsageError(f"broker {self.number} does not run: start({self.number}) starts it")

    def _held(self) -> UsageError:
        """Returns the error for a broker that is paused, which says how to let it go on."""
        number = self.number
        return UsageError(
            "the broker is paused: call resume()"
            if number is None
            else f"broker {number} is paused: call resume({number})"
        )

    def _on_loop(self, function: Callable[[], T]) -> T:
        """Runs a function on the broker's thread; returns or raises what the function did. Raises BrokerDied."""

        def begin(future: "Future[T]") -> None:
            future.set_result(function())

        return self._result_of(begin)

    def _on_controller(self, action: Callable[[Controller], T]) -> T:
        """Has the broker's controller run an action; returns or raises what that did. Raises BrokerDied."""
        broker = self._running()
        return self._result_of(lambda future: broker.loop.create_task(_settle(future, broker.controller.call(action))))

    def _result_of(self, begin: "Callable[[Future[T]], object]") -> T:
        """Calls `begin` on the broker's thread, and waits for the future that it is given."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            raise self._not_running()
        if self._paused is not None:
            raise self._held()
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return  # the caller has given up
            try:
                begin(future)
            except BaseException as error:
                future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the thread has ended, which is reported below
            loop.call_soon_threadsafe(call)
        deadline = time.monotonic() + self.patience
        while True:
            if is_done_within(future, _ALIVE_S):
                return future.result()
            if not thread.is_alive():
                raise BrokerDied("the broker's thread has ended; its error is in the log")
            if time.monotonic() > deadline and future.cancel():
                raise BrokerDied(
                    f"the broker's thread has not answered within {self.patience:g} s; it is here:\n"
                    + _stack_of(thread)
                )

    # --- what tests want --------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for any client on this machine: also while the broker is stopped, since its next start takes the
        same port. Raises UsageError before the first start."""
        if not self._address:
            raise UsageError("the broker has no port before its first start: use `with Broker() as broker`, or start()")
        return self._address

    @property
    def image(self) -> MetadataImage:
        """The metadata of the cluster as this broker knows them, which do not change: brokers, topics, partitions with
        leaders and in-sync replicas, settings."""
        return self._running().image

    @cached_property
    def admin(self) -> "Admin":
        """An administrator of this broker, which is closed with it: all that `barnabas.Admin` can do. Its requests meet
        the faults that the test has asked for; the other methods of this class do not."""
        from barnabas.client.admin.front import Admin  # only tests that use it pay for its import

        return Admin(bootstrap_servers=self.bootstrap_servers)

    @renamed(config="configs")
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic. Raises TopicAlreadyExists, InvalidTopic, InvalidConfig, InvalidPartitions."""
        self.create_topics(NewTopic(name, partitions, configs=configs or {}))

    def create_topics(self, topics: NewTopic | str | Iterable[NewTopic | str]) -> None:
        """Creates topics, in their order. Raises the error of the first one that cannot be created."""
        for name, partitions, factor, configs, assignments in new_topics(topics):
            request = TopicRequest(name, partitions, factor, sorted(assignments.items()), configs)
            result = self._on_controller(partial(Controller.create_topics, requests=[request]))[name]
            if isinstance(result, KafkaError):
                raise result

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. Raises UnknownTopicOrPartition."""
        self.delete_topics(name)

    def delete_topics(self, names: str | Iterable[str]) -> None:
        """Deletes topics. Raises the error of the first one that cannot be deleted."""
        wanted = [names] if isinstance(names, str) else list(names)
        for error in self._on_controller(lambda controller: controller.delete_topics(wanted)).values():
            if error is not None:
                raise error

    def topics(self) -> list[str]:
        """Returns the names of the topics that are not Kafka's own, sorted."""
        return sorted(name for name, topic in self._running().image.topics.items() if not topic.is_internal)

    def produce(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        partition: int | None = None,
        headers: Mapping[str, Text | None] | Iterable[tuple[str, Text | None]] = (),
        timestamp: int | None = None,
        acks: Literal["all", 1] = "all",
    ) -> RecordMetadata:
        """Appends one record, past the network and the faults, and returns where it stands.

        `value`, `key`, values of `headers`: bytes, or text that is encoded as UTF-8. `partition`: by default the one
        that every Kafka client chooses for the key (murmur2), 0 without a key. `timestamp`: milliseconds, by default
        now. `acks`: in a cluster "all" waits until all in-sync replicas have the record, so that `records` finds it; 1
        waits for nobody, and ignores min.insync.replicas: for a record that the leader alone has. The topic must exist.
        Raises UnknownTopicOrPartition, NotLeaderOrFollower, what the broker refuses a record for (MessageTooLarge,
        InvalidRecord ...), and TimeoutError if the others do not get the record, which stays in the leader's log.
        """
        if acks not in ("all", 1):
            raise UsageError(f"acks is 'all' or 1, not {acks!r}")
        placed, epoch, waits = self._append(topic, value, key, partition, headers, timestamp, acks)
        if waits:
            of = (placed.topic, placed.partition, placed.offset, epoch)
            self._wait_for(
                lambda: self._is_committed(*of),
                self.patience,
                lambda _: (
                    f"not all in-sync replicas of {placed.topic}-{placed.partition} have the record at offset "
                    f"{placed.offset} within {self.patience:g} s; acks=1 does not wait for them"
                ),
            )
        return placed

    def _append(
        self,
        topic: str,
        value: Text | None,
        key: Text | None,
        partition: int | None,
        headers: Mapping[str, Text | None] | Iterable[tuple[str, Text | None]],
        timestamp: int | None,
        acks: Literal["all", 1],
    ) -> tuple[RecordMetadata, int, bool]:
        """Appends one record. Returns where it stands, the leader epoch, and whether others still have to get it."""
        broker = self._running()

        def write() -> tuple[RecordMetadata, int, bool]:
            index = partition
            if index is None:
                index = partition_for_key(key, len(_partitions_of(broker, topic)))
            [leader] = _partitions_of(broker, topic, index)
            now_ms = broker.clock.wall_ms()
            placed = append(
                leader,
                key,
                value,
                headers,
                now_ms if timestamp is None else timestamp,
                now_ms,
                -1 if acks == "all" else 1,
            )
            waits = acks == "all" and broker.cluster is not None and not leader.is_committed(Offset(placed.offset))
            return placed, leader.leader_epoch, waits

        return self._on_loop(write)

    def _is_committed(self, topic: str, partition: int, offset: int, epoch: int) -> bool:
        """Returns whether all in-sync replicas have a record that was appended in this leader epoch. Raises the error
        that ends the wait for them."""
        broker = self._running()

        def look() -> bool:
            leader = broker.replica_manager.leader_of(topic, partition)
            if leader.leader_epoch != epoch:
                raise NotLeaderOrFollower(f"{topic}-{partition} has another leader epoch since the record was appended")
            if leader.flush_error is not None:
                raise leader.flush_error
            return leader.is_committed(Offset(offset))

        return self._on_loop(look)

    def records(self, topic: str, partition: int | None = None) -> list[TopicRecord]:
        """Returns the records of the topic below the high watermark: those of one partition, or those of each partition
        after the other. Control records are left out, records of aborted transactions are not.
        Raises UnknownTopicOrPartition, and NotLeaderOrFollower for those that another broker leads."""
        broker = self._running()
        return self._on_loop(
            lambda: [record for each in _partitions_of(broker, topic, partition) for record in records_of(each)]
        )

    def end_offsets(self, topic: str, partition: int | None = None) -> list[int]:
        """Returns the high watermark of each partition, or of one. Raises UnknownTopicOrPartition, and
        NotLeaderOrFollower for those that another broker leads."""
        broker = self._running()
        return self._on_loop(lambda: [each.log.high_watermark for each in _partitions_of(broker, topic, partition)])

    def move_leader(self, topic: str, partition: int, leader: int) -> None:
        """Has another in-sync replica lead a partition, as the controller of a cluster. Raises UnknownTopicOrPartition,
        EligibleLeadersNotAvailable."""
        self._on_controller(lambda controller: controller.move_leader(topic, partition, BrokerId(leader)))

    def heal(self) -> None:
        """Ends a pause, and all faults: of requests, of the disk, of the clock."""
        self.resume()
        self.faults.clear()
        self.disk.heal()
        self.clock.heal()

    def reset(self) -> None:
        """Deletes all topics and groups and clears all faults; clients may stay connected."""
        self.heal()
        self._on_controller(lambda controller: controller.delete_topics(list(controller.image.topics)))

    # --- waiting ----------------------------------------------------------------------------------------------------

    @renamed(timeout_s="timeout")
    def wait_for(self, condition: Callable[[], Any], timeout: float = 30.0, what: str = "the condition") -> None:
        """Waits until the condition returns something true. Raises TimeoutError, which names `what` and the value that
        the condition returned last."""
        wait_for_condition(condition, timeout, what).in_thread("wait_for")

    async def async_wait_for(
        self, condition: Callable[[], Any], timeout: float = 30.0, what: str = "the condition"
    ) -> None:
        """Waits as `wait_for` does, on the caller's event loop, which calls the condition."""
        await wait_for_condition(condition, timeout, what).on_loop()

    def _wait_for(self, condition: Callable[[], T], timeout: float, message: Callable[[T], str]) -> T:
        return Wait(condition, timeout, message).in_thread()

    @renamed(timeout_s="timeout")
    def wait_for_group(self, group_id: str, members: int = 1, timeout: float = 30.0) -> None:
        """Waits until the group is stable with that many members. Raises TimeoutError, which says what the group was
        like at the end, and NotCoordinator where another broker of a cluster coordinates it."""
        self._group_wait(group_id, members, timeout).in_thread("wait_for_group")

    async def async_wait_for_group(self, group_id: str, members: int = 1, timeout: float = 30.0) -> None:
        """Waits as `wait_for_group` does, on the caller's event loop."""
        await self._group_wait(group_id, members, timeout).on_loop()

    def _group_wait(self, group_id: str, members: int, timeout: float) -> Wait[bool]:
        awaited = AwaitedGroup(group_id, members, timeout, self.group_state)
        return Wait(awaited.is_stable, timeout, awaited.message)

    # --- groups -----------------------------------------------------------------------------------------------------

    def group_state(self, group_id: str) -> GroupState | None:
        """Returns the state of a group and its number of members; None while no coordinator is ready. Raises the error
        that a client would get, which in a cluster names the coordinator if that is another broker."""
        broker = self._running()
        found: list[DescribedGroup] = []
        self._on_loop(lambda: broker.groups.describe_groups([group_id], api_version=5, reply=found.extend))
        if not found:
            return None  # its partition is being read
        code = found[0].error_code
        if code:
            self._refuse_elsewhere(group_id, code)
            error = error_for(code)
            if not error.retriable:
                raise error
            return None
        return GroupState(found[0].group_state, len(found[0].members))

    def _refuse_elsewhere(self, group_id: str, code: int) -> None:
        """Raises an error that names the coordinator of a group, if the code says that this broker is not the one, and
        another one is."""
        broker = self._running()
        home = broker.image.partition(OFFSETS_TOPIC, broker.groups.partition_for(group_id))
        if code == NotCoordinator.code and home is not None and home.leader not in (broker.node_id, NO_LEADER):
            raise NotCoordinator(
                f"broker {broker.node_id} does not coordinate group {group_id}, broker {home.leader} does: ask "
                f"broker({home.leader}), or the cluster, which has committed, lag and wait_for_group as well"
            )

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """Returns the group's committed offsets by (topic, partition); nothing for a group that does not exist. Raises
        the error that a client would get, which in a cluster names the coordinator if that is another broker."""
        if OFFSETS_TOPIC not in self._running().image.topics:
            return {}  # created when the first group asks for its coordinator
        deadline = time.monotonic() + self.patience

        def answered() -> OffsetFetchResponseGroup | None:
            answer = self._fetch_offsets(group_id, deadline)
            return None if answer.error_code == CoordinatorLoadInProgress.code else answer

        answer = self._wait_for(
            answered, self.patience, lambda _: f"the offsets of group {group_id} were still being read"
        )
        assert answer is not None
        if answer.error_code:
            self._refuse_elsewhere(group_id, answer.error_code)
            raise error_for(answer.error_code)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    def _fetch_offsets(self, group_id: str, deadline: float) -> OffsetFetchResponseGroup:
        broker = self._running()
        found: list[OffsetFetchResponseGroup] = []
        wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        self._on_loop(lambda: broker.groups.fetch_offsets(wanted, require_stable=False, reply=found.extend))
        left = max(deadline - time.monotonic(), 0.0)
        return self._wait_for(lambda: found, left, lambda _: f"no answer about group {group_id}")[0]

    def lag(self, group_id: str) -> dict[tuple[str, int], int]:
        """Returns the number of records between the committed offset and the end, for each partition that has a
        committed offset."""
        lags: dict[tuple[str, int], int] = {}
        for (topic, partition), offset in self.committed(group_id).items():
            with contextlib.suppress(UnknownTopicOrPartition):
                lags[topic, partition] = self.end_offsets(topic, partition)[0] - offset
        return lags


def _lost(missing: Mapping[UUID, str], lost_dirs: str | Path | Iterable[str | Path]) -> Collection[UUID]:
    """Returns the ids of the log directories that are missing. Raises UsageError for one that is not given up."""
    given = {os.path.realpath(each) for each in ([lost_dirs] if isinstance(lost_dirs, str | Path) else lost_dirs)}
    kept = sorted(set(missing.values()) - given)
    if kept:
        raise UsageError(
            f"the log directories {kept!r} are missing, and nobody else has all replicas that were there: put them "
            "back, or give them up by start(lost_dirs=[...]), in a cluster start(i, lost_dirs=[...]): they begin anew, "
            "empty"
        )
    return missing.keys()


def _partitions_of(broker: server.Broker, topic: str, partition: int | None = None) -> list[Partition]:
    """Returns all partitions of a topic, or one. Raises UnknownTopicOrPartition, NotLeaderOrFollower."""
    if partition is not None:
        require_partition(partition)
        return [broker.replica_manager.leader_of(topic, partition)]
    found = broker.image.topics.get(topic)
    if found is None:
        there = ", ".join(sorted(name for name, each in broker.image.topics.items() if not each.is_internal))
        raise UnknownTopicOrPartition(f"topic {topic} does not exist; there are {there or 'no topics'}")
    return [broker.replica_manager.leader_of(topic, index) for index in range(len(found.partitions))]


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
