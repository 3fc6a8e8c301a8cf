"""Whole consumers against simulated brokers that delay, reorder, drop and double answers and give every error that
passes; members come, go and die, leaders and coordinators move, transactions end this way or that.

Whatever happens: while a member has a partition it gets each visible record of it once and in order; nothing is
committed that no application is done with, so that a crash costs no record; of transactions nothing is seen but what
was committed. An application is done with what it got when it asks for more, commits, seeks or closes. Once the
trouble is over every visible record has been given to somebody and positions stand at the end.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.client.errors import ClientError, CommitFailed, WokenUp
from barnabas.errors import RebalanceInProgress, error_for
from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import CUT, LOSE, TWICE, Cluster, Late
from simulation.consumer import SimulatedConsumer, virtual_time

TOPIC = "orders"
PARTITIONS = 3
ALL = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
NAMES = ("a", "b", "c")
SESSION_S, INTERVAL_S, COMMIT_S = 10, 40, 2
ITERATION_S = 0.1
COORDINATOR_ERRORS = [7, 14, 15, 16]
LEADER_ERRORS = [3, 5, 6, 7, 9, 56, 74, 75, 78]
"""Those that pass; what else a broker might say is the application's."""
ERRORS = {
    ApiKey.FETCH: [-1, 3, 6, 9, 56, 74, 75, 78, 100],
    ApiKey.LIST_OFFSETS: LEADER_ERRORS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: LEADER_ERRORS,
    ApiKey.OFFSET_COMMIT: [*COORDINATOR_ERRORS, 27],
    ApiKey.OFFSET_FETCH: [7, 14, 15, 16, 88],
    ApiKey.FIND_COORDINATOR: [7, 14, 15],
    ApiKey.JOIN_GROUP: [*COORDINATOR_ERRORS, 25],
    ApiKey.SYNC_GROUP: [*COORDINATOR_ERRORS, 22, 27],
    ApiKey.HEARTBEAT: [*COORDINATOR_ERRORS, 27],
    ApiKey.METADATA: [],
}
PASSING = tuple(type(error_for(code)) for code in COORDINATOR_ERRORS)
NETWORK = [CUT, LOSE, TWICE, Late(0.3), Late(4.0)]


class Application:
    """Reads, checks what it gets, and commits as it is told to."""

    def __init__(self, machine: "ConsumerMachine", name: str, assignor: str) -> None:
        self.machine = machine
        self.last: dict[TopicPartition, int | None] = {}
        """Of each partition that it has: the last offset that it got since the partition came or it sought."""
        self.at_hand: list[tuple[TopicPartition, int]] = []
        """Records that it got and may still be working on."""
        self.consumer = SimulatedConsumer(
            machine.cluster,
            name,
            TOPIC,
            group_id="g",
            isolation_level=machine.isolation_level,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=SESSION_S * 1000,
            max_poll_interval_ms=INTERVAL_S * 1000,
            max_poll_records=7,
            enable_auto_commit=machine.auto_commit,
            auto_commit_interval_ms=COMMIT_S * 1000,
            group_instance_id="static-c" if name == "c" else None,
            on_assigned=self._assigned,
            on_revoked=self._gone,
        )

    def _assigned(self, _: Any, partitions: Any) -> None:
        self.last |= dict.fromkeys(partitions)

    def _gone(self, _: Any, partitions: Any) -> None:
        for partition in partitions:
            del self.last[partition]

    def poll(self, timeout: float) -> None:
        """At once, or record by record as far as there are some without waiting."""
        self.is_done()
        for record in self.consumer.poll(timeout):
            self._take(record)
        for record in self._few():
            self._take(record)

    def _few(self) -> Iterator[Any]:
        left = self.machine.rng.choice([0, 0, 1, 5, 12])
        if not left or not self.consumer._state.is_ready() or self.consumer._state.needs_poll:
            return
        self.is_done()
        # what is ready may hold nothing for readers of committed records
        enough = self.machine.cluster.scheduler.call_later(ITERATION_S, self.consumer.wakeup)
        try:
            for record in self.consumer:
                yield record
                left -= 1
                if not left or not self.consumer._state.is_ready() or self.consumer._state.needs_poll:
                    return
                self.is_done()  # who asks for the next record is done with this one, though none may come
        except WokenUp:
            pass
        finally:
            enough.cancel()

    def _take(self, record: Any) -> None:
        partition = TopicPartition(record.topic, record.partition)
        self._check(partition, record.offset)
        assert record.value == b"%d" % record.offset
        self.machine.given[partition].add(record.offset)
        self.at_hand.append((partition, record.offset))

    def is_done(self) -> None:
        """With all that it has got."""
        for partition, offset in self.at_hand:
            self.machine.done[partition].add(offset)
        self.at_hand.clear()

    def _check(self, partition: TopicPartition, offset: int) -> None:
        visible = self.machine.visible(partition)
        at = bisect_left(visible, offset)
        assert at < len(visible), f"{partition}: offset {offset} is not to be seen"
        assert visible[at] == offset, f"{partition}: offset {offset} is not to be seen"
        last = self.last[partition]
        if last is not None:
            assert at, f"{partition}: {offset} after {last}"
            are_deleted = last < visible[at - 1] < self.machine.cluster.log(*partition).start
            assert visible[at - 1] == last or are_deleted, f"{partition}: {offset} after {last}, not {visible[at - 1]}"
        self.last[partition] = offset

    def commit(self) -> bool:
        """Returns whether the coordinator took it."""
        self.is_done()
        with suppress(RebalanceInProgress, CommitFailed, ClientError, *PASSING):
            self.consumer.commit(timeout=5)
            return True
        return False


class ConsumerMachine(RuleBasedStateMachine):
    @initialize(
        assignor=st.sampled_from(["range", "cooperative-sticky"]),
        isolation_level=st.sampled_from(["read_committed", "read_uncommitted"]),
        auto_commit=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def begin(self, assignor: str, isolation_level: str, auto_commit: bool, seed: int) -> None:
        self.rng = random.Random(seed)
        self.assignor, self.isolation_level, self.auto_commit = assignor, isolation_level, auto_commit
        self.cluster = Cluster({TOPIC: PARTITIONS}, nodes=2, initial_rebalance_delay_ms=0)
        self.stack = ExitStack()
        self.stack.enter_context(virtual_time(self.cluster))
        self.applications: dict[str, Application] = {}
        self.given: dict[TopicPartition, set[int]] = {partition: set() for partition in ALL}
        self.done: dict[TopicPartition, set[int]] = {partition: set() for partition in ALL}
        self.start("a")

    def visible(self, partition: TopicPartition) -> list[int]:
        return self.cluster.log(*partition).visible(read_committed=self.isolation_level == "read_committed")

    # --- producers --------------------------------------------------------------------------------------------------

    def _write(self, partition: TopicPartition, count: int, append: Callable[..., None]) -> None:
        log = self.cluster.log(*partition)
        append(*(b"%d" % offset for offset in range(log.end, log.end + count)))
        self.cluster.written()

    @rule(partition=st.sampled_from(ALL), count=st.integers(1, 30))
    def append(self, partition: TopicPartition, count: int) -> None:
        self._write(partition, count, self.cluster.log(*partition).append)

    @rule(partition=st.sampled_from(ALL), count=st.integers(1, 5), producer_id=st.integers(1, 3))
    def write_in_a_transaction(self, partition: TopicPartition, count: int, producer_id: int) -> None:
        self._write(partition, count, partial(self.cluster.log(*partition).write, producer_id))

    @rule(partition=st.sampled_from(ALL), committed=st.booleans())
    def end_a_transaction(self, partition: TopicPartition, committed: bool) -> None:
        log = self.cluster.log(*partition)
        if log.open:
            log.end_transaction(self.rng.choice(sorted(log.open)), committed=committed)
            self.cluster.written()

    @rule(partition=st.sampled_from(ALL), kept=st.integers(0, 10))
    def delete_records(self, partition: TopicPartition, kept: int) -> None:
        """All but the last ones, which nobody has to get or to be done with then."""
        log = self.cluster.log(*partition)
        log.start = max(log.start, log.end - kept)
        for offsets in (self.given, self.done):
            offsets[partition].update(range(log.start))

    # --- applications -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def start(self, name: str) -> None:
        if name not in self.applications:
            self.applications[name] = Application(self, name, self.assignor)

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        application = self.applications.pop(name, None)
        if application is not None:
            application.consumer.crash()

    @rule(name=st.sampled_from(NAMES))
    def close(self, name: str) -> None:
        application = self.applications.pop(name, None)
        if application is not None:
            application.is_done()
            application.consumer.close()
            self.cluster.clients.remove(application.consumer.client)

    @rule(timeout=st.sampled_from([0.0, 0.1, 2.0]), times=st.integers(1, 6), stays=st.booleans())
    def poll(self, timeout: float, times: int, stays: bool) -> None:
        """A consumer that `stays` keeps its records for longer than auto.commit.interval.ms before the next poll."""
        for _ in range(times):
            for name in self.rng.sample(sorted(self.applications), len(self.applications)):
                self.applications[name].poll(timeout)
                if stays:
                    self.cluster.run(seconds=COMMIT_S + 0.1)
                    self.nothing_is_committed_that_nobody_is_done_with()

    @rule(name=st.sampled_from(NAMES))
    def commit(self, name: str) -> None:
        if name in self.applications:
            self.applications[name].commit()

    @rule(name=st.sampled_from(NAMES), back=st.integers(0, 5))
    def seek(self, name: str, back: int) -> None:
        """To a record that it has got."""
        application = self.applications.get(name)
        for partition, last in list(application.last.items()) if application is not None else ():
            assert application is not None
            if last is not None and partition in application.consumer.assignment():
                application.is_done()  # it says itself where it stands
                visible = self.visible(partition)
                application.consumer.seek(partition, visible[max(bisect_left(visible, last) - back, 0)])
                application.last[partition] = None

    @rule(name=st.sampled_from(NAMES), partition=st.sampled_from(ALL))
    def pause_or_resume(self, name: str, partition: TopicPartition) -> None:
        application = self.applications.get(name)
        if application is not None and partition in application.consumer.assignment():
            paused = partition in application.consumer.paused()
            (application.consumer.resume if paused else application.consumer.pause)([partition])

    @rule(seconds=st.sampled_from([0.2, 3.0, 12.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.run(seconds=seconds)

    # --- trouble ----------------------------------------------------------------------------------------------------

    @rule(api_key=st.sampled_from(sorted(ERRORS)), count=st.integers(1, 3), number=st.integers(0, 1000))
    def fault(self, api_key: int, count: int, number: int) -> None:
        kinds = [*NETWORK, *ERRORS[api_key]]
        self.cluster.add_fault(api_key, *[kinds[number % len(kinds)]] * count)

    @rule(partition=st.sampled_from(ALL), node_id=st.sampled_from([1, 2]))
    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        self.cluster.move_leader(partition, node_id)

    @rule(node_id=st.sampled_from([1, 2]))
    def move_coordinator(self, node_id: int) -> None:
        self.cluster.move_coordinator(node_id)

    @precondition(lambda self: len(self.cluster.up) == 2)
    @rule(node_id=st.sampled_from([1, 2]), seconds=st.sampled_from([0.5, 5.0]))
    def outage(self, node_id: int, seconds: float) -> None:
        self.cluster.stop(node_id)
        self.cluster.run(seconds=seconds)
        self.poll(0.1, 1, False)
        self.cluster.up.add(node_id)

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_committed_that_nobody_is_done_with(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for partition, offset in self.cluster.committed("g").items():
            missed = {each for each in self.visible(partition) if each < offset} - self.done[partition]
            assert not missed, f"{partition} is committed at {offset}, and nobody is done with {sorted(missed)}"

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        with self.stack:
            self._end()

    def _end(self) -> None:
        self.cluster.faults.clear()
        for partition in ALL:
            log = self.cluster.log(*partition)
            for producer_id in sorted(log.open):
                log.end_transaction(producer_id, committed=bool(producer_id % 2))
        self.cluster.written()
        self.start("a")
        for application in self.applications.values():
            application.consumer.resume(application.consumer.paused())
        deadline = self.cluster.now + 3 * INTERVAL_S
        while not (self._is_over() and all(each.commit() for each in self.applications.values())):
            assert self.cluster.now < deadline, {
                name: each.consumer.health() for name, each in self.applications.items()
            }
            for application in self.applications.values():
                application.poll(0.2)
        assert self.cluster.committed("g") == {
            partition: self.cluster.log(*partition).end for partition in ALL
        } or not any(self.visible(partition) for partition in ALL)

    def _is_over(self) -> bool:
        """Each partition is with somebody who has come to its end."""
        standing = {
            partition: application.consumer._state.delivered.position(partition)
            for application in self.applications.values()
            for partition in application.last
            if partition in application.consumer.assignment()
        }
        if standing.keys() != set(ALL) or sum(len(each.last) for each in self.applications.values()) != len(ALL):
            return False
        ends = {partition: self.cluster.log(*partition).end for partition in ALL}
        if any(found is None or found.offset != ends[partition] for partition, found in standing.items()):
            return False
        assert self.given == {partition: set(self.visible(partition)) | self.given[partition] for partition in ALL}
        return True


TestConsumers = ConsumerMachine.TestCase
TestConsumers.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("seed", range(6))
def test_commits_in_the_middle_of_an_iteration_or_a_poll(seed: int) -> None:
    """A consumer keeps its records for longer than auto.commit.interval.ms, time and again: steps that the model finds
    itself, but not in each of its runs."""
    machine = ConsumerMachine()
    machine.begin(assignor="range", isolation_level="read_uncommitted", auto_commit=True, seed=seed)
    for _ in range(3):
        for partition in ALL:
            machine.append(partition=partition, count=20)
        machine.poll(timeout=2.0, times=4, stays=True)
    machine.teardown()
