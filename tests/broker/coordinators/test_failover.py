"""Coordinators over replicated partitions: what waits for the followers, and what a change of the leader leaves."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_STATE_TOPIC
from barnabas.errors import CoordinatorNotAvailable, NotCoordinator, error_for
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema import Request
from barnabas.replication.partition import Partition
from barnabas.types import LeaderEpoch, Offset
from broker.admin_rig import CONNECTION, create, running_broker
from broker.cluster.moved_partitions import turn
from broker.followers import FOLLOWER, add_follower, elect, follower_has, remove_follower

SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"


class Answer:
    """A request to a handler, and its response as the client reads it, once it is there."""

    def __init__(self, broker: Broker, request: Request, version: int) -> None:
        api = ApiKey(request.API_KEY)
        context = RequestContext(api, version, 1, b"test", CONNECTION)  # type: ignore[arg-type]
        received, _ = decode(type(request), version, bytes(encode(request, version)))
        self._broker = broker
        self._version = version
        response = import_module(HANDLER_MODULES[api.name.lower()]).handle(broker, received, context)
        self._response = run_handler(broker.loop, response) if isinstance(response, Coroutine) else response

    @property
    def waits(self) -> bool:
        return isinstance(self._response, asyncio.Future) and not self._response.done()

    @property
    def value(self) -> Any:
        response = self._response
        if isinstance(response, asyncio.Future):
            assert response.done(), "no answer yet"
            response = response.result()
        return decode(type(response), self._version, bytes(encode(response, self._version)))[0]

    def expire(self) -> Any:
        """Runs the loop until the answer is there."""
        if isinstance(self._response, asyncio.Future):
            self._broker.loop.run_until_complete(self._response)
        return self.value


class Rig:
    """A broker that leads the coordinators' partitions, with a follower in the ISR."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        create(broker, "t", 2)
        for kind in (0, 1):
            Answer(broker, FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4).expire()
        self.offsets = broker.replica_manager.leader_of(OFFSETS_TOPIC, 0)
        self.transactions = broker.replica_manager.leader_of(TRANSACTION_STATE_TOPIC, 0)
        for partition in (self.offsets, self.transactions):
            add_follower(partition)

    def ask(self, request: Request, version: int) -> Answer:
        answer = Answer(self.broker, request, version)
        turn(self.broker)
        return answer

    def replicate(self, *partitions: Partition, offset: int | None = None) -> None:
        for partition in partitions or (self.offsets, self.transactions):
            follower_has(partition, partition.log.log_end_offset if offset is None else offset)
        turn(self.broker)

    def resign(self, partition: Partition) -> None:
        """Another broker is elected."""
        elect(partition, FOLLOWER)
        for resigned in self.broker.replica_manager.on_resignation:
            resigned(partition.topic_partition)
        turn(self.broker)

    def lead(self, partition: Partition) -> None:
        """This broker is elected again, and its coordinator reads the log."""
        elect(partition, partition.replicas[0])
        for elected in self.broker.replica_manager.on_leadership:
            elected(partition)
        turn(self.broker)

    def truncate(self, partition: Partition) -> None:
        """The other leader does not have what was not committed."""
        fetch = partition.next_fetch()
        assert fetch is not None
        log = partition.log
        partition.truncate_to_diverging_epoch(fetch, LeaderEpoch(fetch.last_fetched_epoch), Offset(log.high_watermark))
        assert log.log_end_offset == log.high_watermark

    # --- groups -----------------------------------------------------------------------------------------------------

    def commit(self, offset: int) -> Answer:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        return self.ask(request, 8)

    def fetch(self) -> Answer:
        return self.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)

    def join(self, member_id: str = "", timeout_ms: int = 60_000) -> Answer:
        request = JoinGroupRequest(
            group_id="members",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=timeout_ms,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        return self.ask(request, 3)

    def sync(self, generation: int, member_id: str, *assigned: str) -> Answer:
        assignments = [SyncGroupRequestAssignment(member_id=name, assignment=b"all") for name in assigned]
        return self.ask(
            SyncGroupRequest(
                group_id="members", generation_id=generation, member_id=member_id, assignments=assignments
            ),
            3,
        )

    def heartbeat(self, generation: int, member_id: str) -> Answer:
        return self.ask(HeartbeatRequest(group_id="members", generation_id=generation, member_id=member_id), 3)

    # --- transactions -----------------------------------------------------------------------------------------------

    def init(self) -> Answer:
        return self.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)

    def begin(self) -> tuple[int, int]:
        """An open transaction in t-0; returns its producer."""
        answer = self.init()
        self.replicate(self.transactions)
        producer = answer.expire().producer_id, answer.value.producer_epoch
        added = self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            3,
        )
        self.replicate(self.transactions)
        (topic,) = added.expire().results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0
        return producer

    def end(self, producer: tuple[int, int]) -> Answer:
        request = EndTxnRequest(
            transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=True
        )
        return self.ask(request, 3)

    def state(self) -> str:
        answer = self.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        (found,) = answer.expire().transaction_states
        return str(found.transaction_state)

    @property
    def markers(self) -> int:
        """The number of end markers in t-0."""
        return self.broker.replica_manager.leader_of("t", 0).log.log_end_offset


def commit_error(answer: Answer) -> str:
    return name_of(answer.value.topics[0].partitions[0].error_code)


def name_of(code: int) -> str:
    return type(error_for(code)).__name__ if code else ""


def committed(answer: Answer) -> int:
    (group,) = answer.value.groups
    assert group.error_code == 0
    return int(group.topics[0].partitions[0].committed_offset) if group.topics else -1


@contextmanager
def rig_of(directory: Path, **settings: object) -> Iterator[Rig]:
    chosen = {
        "offsets_topic_num_partitions": 1,
        "transaction_state_log_num_partitions": 1,
        "group_initial_rebalance_delay_ms": 0,
        **settings,
    }
    with running_broker(directory, **chosen) as broker:
        yield Rig(broker)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rig_of(tmp_path) as rig:
        yield rig


class TestCommits:
    def test_a_commit_waits_for_the_followers(self, rig: Rig) -> None:
        answer = rig.commit(5)
        assert answer.waits
        rig.replicate(offset=rig.offsets.log.log_end_offset - 1)
        assert answer.waits
        rig.replicate()
        assert commit_error(answer) == ""

    def test_what_is_not_committed_is_not_shown(self, rig: Rig) -> None:
        rig.commit(5)
        seen = rig.fetch()
        assert seen.waits
        rig.replicate()
        assert committed(seen) == 5

    def test_a_commit_fails_at_once_where_too_few_replicas_are_in_sync(self, rig: Rig) -> None:
        rig.offsets.set_config(replace(rig.offsets.log.config, min_insync_replicas=2))
        remove_follower(rig.offsets)
        before = rig.offsets.log.log_end_offset
        assert commit_error(rig.commit(5)) == CoordinatorNotAvailable.__name__
        assert rig.offsets.log.log_end_offset == before

    def test_a_slow_follower_makes_clients_try_again(self, tmp_path: Path) -> None:
        with rig_of(tmp_path, offsets_commit_timeout_ms=1) as rig:
            answer = rig.commit(5)
            answer.expire()
            assert commit_error(answer) == CoordinatorNotAvailable.__name__
            rig.replicate()
            seen = rig.fetch()
            assert committed(seen) == 5, "Kafka also keeps what is in the log"

    def test_a_commit_that_waits_ends_with_the_leadership(self, rig: Rig) -> None:
        answer, seen = rig.commit(5), rig.fetch()
        rig.resign(rig.offsets)
        assert commit_error(answer) == NotCoordinator.__name__
        assert name_of(seen.value.groups[0].error_code) == NotCoordinator.__name__
        assert commit_error(rig.commit(6)) == NotCoordinator.__name__
        assert name_of(rig.fetch().value.groups[0].error_code) == NotCoordinator.__name__

    def test_a_new_leader_shows_no_offset_before_it_is_committed_in_its_epoch(self, rig: Rig) -> None:
        """What it has loaded beyond the high watermark may be truncated by the next leader."""
        first = rig.commit(5)
        rig.replicate()
        assert commit_error(first) == ""
        rig.commit(6)
        rig.resign(rig.offsets)
        rig.lead(rig.offsets)
        seen = rig.fetch()
        assert seen.waits
        rig.replicate()
        assert committed(seen) == 6

    def test_what_the_next_leader_lacks_was_never_shown(self, rig: Rig) -> None:
        rig.commit(5)
        rig.replicate()
        lost, seen = rig.commit(6), rig.fetch()
        rig.resign(rig.offsets)
        assert commit_error(lost) == NotCoordinator.__name__
        assert name_of(seen.value.groups[0].error_code) == NotCoordinator.__name__
        rig.truncate(rig.offsets)
        rig.lead(rig.offsets)
        rig.replicate()
        assert committed(rig.fetch()) == 5


class TestMembers:
    def member(self, rig: Rig) -> tuple[int, str]:
        """A group with one member whose assignment is committed; returns generation and member id."""
        joined = rig.join()
        rig.replicate()
        joined.expire()
        generation, member_id = joined.value.generation_id, joined.value.member_id
        synced = rig.sync(generation, member_id, member_id)
        assert synced.waits, "the assignment has to be committed"
        rig.replicate()
        assert (synced.value.error_code, synced.value.assignment) == (0, b"all")
        return generation, member_id

    def test_a_join_that_waits_ends_with_the_leadership(self, rig: Rig) -> None:
        _, first = self.member(rig)
        waiting = rig.join()
        assert waiting.waits, "the first member has to join again"
        rig.resign(rig.offsets)
        assert name_of(waiting.value.error_code) == NotCoordinator.__name__
        assert first

    def test_a_sync_that_waits_ends_with_the_leadership(self, rig: Rig) -> None:
        generation, first = self.member(rig)
        joins = [rig.join(), rig.join(first)]
        rig.replicate()
        (second,) = {join.expire().member_id for join in joins} - {first}
        generations = {join.value.generation_id for join in joins}
        assert generations == {generation + 1}
        leader = joins[0].value.leader
        follower = second if leader == first else first
        waiting = rig.sync(generation + 1, follower)
        stored = rig.sync(generation + 1, leader, first, second)
        assert waiting.waits
        assert stored.waits
        rig.resign(rig.offsets)
        assert {name_of(answer.value.error_code) for answer in (waiting, stored)} == {NotCoordinator.__name__}

    def test_members_go_on_with_the_next_coordinator(self, rig: Rig) -> None:
        generation, member_id = self.member(rig)
        rig.resign(rig.offsets)
        assert name_of(rig.heartbeat(generation, member_id).value.error_code) == NotCoordinator.__name__
        rig.lead(rig.offsets)
        rig.replicate()
        assert rig.heartbeat(generation, member_id).expire().error_code == 0
        joined = rig.join(member_id)
        rig.replicate()
        assert joined.expire().generation_id > generation

    def test_groups_are_listed_by_their_coordinator(self, rig: Rig) -> None:
        self.member(rig)
        assert [group.group_id for group in rig.ask(ListGroupsRequest(), 4).value.groups] == ["members"]
        rig.resign(rig.offsets)
        assert rig.ask(ListGroupsRequest(), 4).value.groups == []


class TestTransactions:
    def test_a_producer_id_waits_for_the_followers(self, rig: Rig) -> None:
        answer = rig.init()
        assert answer.waits
        rig.replicate()
        assert answer.value.error_code == 0

    @pytest.mark.parametrize("lead_again", [True, False])
    def test_an_initialisation_ends_with_the_leadership(self, rig: Rig, lead_again: bool) -> None:
        answer = rig.init()
        rig.resign(rig.transactions)
        assert name_of(answer.value.error_code) == NotCoordinator.__name__
        if lead_again:
            rig.lead(rig.transactions)
            again = rig.init()
            rig.replicate()
            assert again.expire().producer_epoch == 1, "the first record was replicated"
        else:
            assert name_of(rig.init().value.error_code) == NotCoordinator.__name__

    def test_no_marker_is_written_before_the_decision_is_committed(self, rig: Rig) -> None:
        producer = rig.begin()
        answer = rig.end(producer)
        assert answer.waits
        assert rig.markers == 0
        rig.replicate()
        assert answer.value.error_code == 0
        assert rig.markers == 1

    def test_a_decision_goes_to_the_next_leader(self, rig: Rig) -> None:
        producer = rig.begin()
        answer = rig.end(producer)
        rig.resign(rig.transactions)
        assert name_of(answer.value.error_code) == NotCoordinator.__name__
        rig.lead(rig.transactions)
        assert rig.markers == 0, "its followers may lack the decision"
        rig.replicate()
        assert rig.markers == 1
        rig.replicate()
        assert rig.state() == "CompleteCommit"
        again = rig.end(producer)
        assert again.waits, "its followers may have left it by now"
        rig.replicate()
        assert again.value.error_code == 0

    def test_a_decision_that_the_next_leader_lacks_was_never_made(self, rig: Rig) -> None:
        producer = rig.begin()
        answer = rig.end(producer)
        rig.resign(rig.transactions)
        assert name_of(answer.value.error_code) == NotCoordinator.__name__
        rig.truncate(rig.transactions)
        rig.lead(rig.transactions)
        rig.replicate()
        assert (rig.state(), rig.markers) == ("Ongoing", 0)
        again = rig.end(producer)
        rig.replicate()
        assert again.value.error_code == 0

    def test_transactions_are_listed_by_their_coordinator(self, rig: Rig) -> None:
        rig.begin()
        listed = rig.ask(ListTransactionsRequest(), 0).value.transaction_states
        assert [found.transactional_id for found in listed] == ["x"]
        rig.resign(rig.transactions)
        assert rig.ask(ListTransactionsRequest(), 0).value.transaction_states == []
        described = rig.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0).value.transaction_states
        assert name_of(described[0].error_code) == NotCoordinator.__name__
