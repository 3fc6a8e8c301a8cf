"""Commits of members and of outsiders, against a coordinator that answers by script."""

import logging
from typing import Any

import pytest

from barnabas.client.consumer.group.generation import MemberState
from barnabas.client.consumer.group.offset_commits import AutoCommit, OffsetCommits
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.promise import Promise
from barnabas.errors import (
    CommitFailed,
    FencedInstanceId,
    GroupAuthorizationFailed,
    KafkaError,
    OffsetMetadataTooLarge,
    OperationTimedOut,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UsageError,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.types import TopicPartition
from simulation.cluster import SILENT
from simulation.membership import PARKED, ScriptedGroup
from simulation.requests import ReceivedRequest

COMMIT, FETCH = 8, 9
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Committing(ScriptedGroup):
    """A script with a store of offsets: `codes` are the answers to come, by partition or for all."""

    def __init__(self, *, member: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self.committed: list[Any] = []
        self.commits = OffsetCommits(
            self.cluster.network_client,
            "g",
            self.settings.group_instance_id,
            self.membership,
            self.committed.append,
        )
        self.codes: list[Any] = []
        self.fetch_codes: list[tuple[int, int]] = []
        self.stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self.cluster.handlers[COMMIT] = self._commit
        self.cluster.handlers[FETCH] = self._fetch
        if member:
            self.join()

    def _commit(self, received: ReceivedRequest) -> Any:
        answer = self.codes.pop(0) if self.codes else 0
        if answer is SILENT:
            return SILENT
        topics = []
        for topic in received.request.topics:
            partitions = []
            for p in topic.partitions:
                code = answer.get(p.partition_index, 0) if isinstance(answer, dict) else answer
                if not code:
                    committed = OffsetAndMetadata(p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
                    self.stored[TopicPartition(topic.name, p.partition_index)] = committed
                partitions.append(OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, received: ReceivedRequest) -> Any:
        group_code, code = self.fetch_codes.pop(0) if self.fetch_codes else (0, 0)
        (group,) = received.request.groups
        topics = []
        for topic in group.topics:
            partitions = []
            for index in topic.partition_indexes:
                known = self.stored.get(TopicPartition(topic.name, index), OffsetAndMetadata(-1))
                partitions.append(
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=known.offset,
                        committed_leader_epoch=known.leader_epoch,
                        metadata=known.metadata,
                        error_code=code,
                    )
                )
            topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=group_code)]
        )

    def commit(self, offset: int = 5, *, timeout_s: float | None = 30.0) -> Promise[None]:
        return self.commits.commit({P0: OffsetAndMetadata(offset, "note", 3)}, timeout_s=timeout_s)

    def outcome(self, promise: Promise[None]) -> BaseException | None:
        assert self.cluster.run(lambda: promise.done, seconds=100)
        return promise.error


@pytest.fixture
def group() -> Committing:
    return Committing()


# --- members ----------------------------------------------------------------------------------------------------------


def test_a_member_commits_in_its_generation(group: Committing) -> None:
    assert group.outcome(group.commit()) is None
    (request,) = group.asked(COMMIT)
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 1, "m-1")
    assert group.stored == {P0: OffsetAndMetadata(5, "note", 3)}
    assert group.committed == [group.stored]
    assert group.commits.sent == 1


def test_nothing_to_commit_asks_nobody(group: Committing) -> None:
    assert group.commits.commit({}).done
    assert group.asked(COMMIT) == []


def test_negative_offsets_are_refused(group: Committing) -> None:
    with pytest.raises(UsageError, match="t-0: offset -1 is negative"):
        group.commit(-1).result()


@pytest.mark.parametrize("code", [3, 7, 14, 15, 16])
def test_passing_errors_are_tried_again_or_not(group: Committing, code: int) -> None:
    group.codes = [code, code]
    lookups = len(group.asked(ApiKey.FIND_COORDINATOR))
    assert group.outcome(group.commit()) is None
    assert len(group.asked(COMMIT)) == 3
    assert len(group.asked(ApiKey.FIND_COORDINATOR)) - lookups == (2 if code in (7, 15, 16) else 0)
    group.codes = [code]
    error = group.outcome(group.commit(timeout_s=None))
    assert isinstance(error, KafkaError)
    assert (error.code, error.retriable) == (code, True)


@pytest.mark.parametrize("timeout_s", [30.0, None])
def test_a_repeat_does_not_overtake_a_later_commit(group: Committing, timeout_s: float | None) -> None:
    group.codes = [14]
    first = group.commit(5)
    assert group.cluster.run(lambda: not group.codes, seconds=100)
    assert group.outcome(group.commit(9, timeout_s=timeout_s)) is None
    assert group.outcome(first) is None
    assert not group.cluster.run(lambda: len(group.asked(COMMIT)) > 2, seconds=40)
    assert group.stored[P0].offset == 9


def test_a_repeat_waits_for_what_becomes_of_a_later_commit(group: Committing) -> None:
    both = {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(5)}
    group.codes = [14, 28]
    first = group.commits.commit(both, timeout_s=30.0)
    later = group.commit(9)
    assert isinstance(group.outcome(later), KafkaError)
    assert group.outcome(first) is None
    assert group.stored == both
    group.codes = [14]
    first = group.commits.commit(both, timeout_s=30.0)
    assert group.outcome(group.commit(9)) is None
    assert group.outcome(first) is None
    assert {partition: stored.offset for partition, stored in group.stored.items()} == {P0: 9, P1: 5}


def test_a_commit_that_finds_nobody_says_what_was_tried(group: Committing) -> None:
    group.cluster.stop(1)
    error = group.outcome(group.commit(timeout_s=5))
    assert isinstance(error, OperationTimedOut)
    assert "given up after 5 s" in str(error)
    assert any(attempt.error == "connection refused" for attempt in error.attempts)


def test_a_lost_answer_is_asked_for_again(group: Committing) -> None:
    group.codes = [SILENT]
    promise = group.commit()
    group.idle(0.01)
    for link in list(group.cluster.links.values()):
        group.cluster.cut(link)
    assert group.outcome(promise) is None
    assert len(group.asked(COMMIT)) == 2


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (12, OffsetMetadataTooLarge, "commit of t-0"),
        (29, TopicAuthorizationFailed, "offsets of t;"),
        (30, GroupAuthorizationFailed, "READ the group"),
    ],
)
def test_lasting_errors_fail_at_once(group: Committing, code: int, error: type[KafkaError], words: str) -> None:
    group.codes = [code]
    with pytest.raises(error, match=words):
        raise group.outcome(group.commit()) or AssertionError
    assert len(group.asked(COMMIT)) == 1


def test_the_worse_of_two_errors_counts(group: Committing) -> None:
    group.codes = [{0: 29, 1: 12}]
    promise = group.commits.commit({P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2)}, timeout_s=30)
    assert isinstance(group.outcome(promise), OffsetMetadataTooLarge)


@pytest.mark.parametrize(("code", "member"), [(25, ""), (22, "m-1")])
def test_a_member_that_was_expelled_hears_it_at_its_commit(group: Committing, code: int, member: str) -> None:
    group.codes = [code]
    error = group.outcome(group.commit())
    assert isinstance(error, CommitFailed)
    assert "max.poll.interval.ms" in str(error)
    assert group.membership.state is MemberState.UNJOINED
    group.poll(1)
    assert group.events == ["assigned mine", "lost", "assigned mine"]
    assert group.asked(ApiKey.JOIN_GROUP)[1].member_id == member


def test_a_commit_of_an_older_generation_harms_nobody(group: Committing) -> None:
    group.codes = [22]
    promise = group.commit()
    group.membership.generation = group.membership.generation._replace(generation_id=9)
    assert isinstance(group.outcome(promise), CommitFailed)
    assert group.membership.state is MemberState.STABLE


def test_a_repeat_never_goes_out_in_a_later_generation(group: Committing) -> None:
    """The partition was with another member in between, and that has committed more."""
    group.codes = [14]
    promise = group.commit(5)
    assert group.cluster.run(lambda: not group.codes, seconds=100)
    group.answer_with(ApiKey.JOIN_GROUP, group.joined(generation=2))
    group.membership.request_rejoin("a test")
    group.poll(0.01)
    assert group.membership.state is MemberState.STABLE
    assert group.membership.generation.generation_id == 2
    group.stored[P0] = OffsetAndMetadata(9)
    assert not promise.done
    error = group.outcome(promise)
    assert isinstance(error, CommitFailed)
    assert "made in generation 1, this is generation 2" in str(error)
    assert len(group.asked(COMMIT)) == 1
    assert group.stored[P0].offset == 9


def test_a_repeat_within_a_rebalance_fails_and_is_not_kept_for_its_end(group: Committing) -> None:
    group.codes = [14]
    promise = group.commit(5)
    assert group.cluster.run(lambda: not group.codes, seconds=100)
    group.answer_with(ApiKey.JOIN_GROUP, PARKED)
    group.membership.request_rejoin("a test")
    group.poll(0.001)
    assert group.membership.rebalancing
    assert isinstance(group.outcome(promise), RebalanceInProgress)
    group.release(group.joined(generation=2))
    group.poll(1)
    assert len(group.asked(COMMIT)) == 1


def test_what_was_committed_from_outside_is_not_repeated_by_a_member() -> None:
    group = Committing(member=False)
    group.codes = [14]
    promise = group.commit(5)
    assert group.cluster.run(lambda: not group.codes, seconds=100)
    group.join()
    assert isinstance(group.outcome(promise), CommitFailed)
    assert len(group.asked(COMMIT)) == 1


def test_commits_during_a_rebalance(group: Committing) -> None:
    group.codes = [27]
    assert isinstance(group.outcome(group.commit()), RebalanceInProgress)
    assert group.membership.rejoin_reason == "the group is rebalancing"
    group.answer_with(ApiKey.JOIN_GROUP, PARKED)
    group.poll(1)
    assert group.membership.rebalancing
    count = len(group.asked(COMMIT))
    assert isinstance(group.outcome(group.commit()), RebalanceInProgress)
    assert len(group.asked(COMMIT)) == count
    group.release(group.joined(generation=2))
    group.poll(1)
    assert group.outcome(group.commit()) is None


def test_a_fenced_commit() -> None:
    group = Committing(group_instance_id="i-1")
    group.codes = [82]
    assert isinstance(group.outcome(group.commit()), FencedInstanceId)
    assert group.asked(COMMIT)[0].group_instance_id == "i-1"


def test_who_is_not_in_the_group_cannot_commit() -> None:
    group = Committing(member=False)
    group.membership.subscribe()
    assert isinstance(group.outcome(group.commit()), CommitFailed)


# --- from outside -----------------------------------------------------------------------------------------------------


def test_without_a_subscription_commits_come_from_outside() -> None:
    group = Committing(member=False)
    assert group.outcome(group.commit()) is None
    (request,) = group.asked(COMMIT)
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (-1, "", None)
    group.codes = [25]
    error = group.outcome(group.commit())
    assert isinstance(error, CommitFailed)
    assert "a group of its own" in str(error)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_what_is_committed(group: Committing) -> None:
    group.stored[P0] = OffsetAndMetadata(7, "x", 2)
    group.fetch_codes = [(14, 0), (16, 0), (0, 88)]
    found = group.cluster.result(group.commits.committed([P0, P1], 30))
    assert found == {P0: OffsetAndMetadata(7, "x", 2), P1: None}
    assert len(group.asked(FETCH)) == 4
    assert group.asked(FETCH)[0].require_stable
    assert group.commits.committed([], 30).result() == {}


@pytest.mark.parametrize(("codes", "words"), [((30, 0), "READ the group"), ((0, 29), "offset of t-0")])
def test_refused_questions(group: Committing, codes: tuple[int, int], words: str) -> None:
    group.fetch_codes = [codes]
    with pytest.raises(KafkaError, match=words):
        group.cluster.result(group.commits.committed([P0], 30))


# --- by itself --------------------------------------------------------------------------------------------------------


class Position:
    def __init__(self) -> None:
        self.offset = 1

    def __call__(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {P0: OffsetAndMetadata(self.offset)}


def test_commits_every_interval(group: Committing) -> None:
    position = Position()
    auto = AutoCommit(group.commits, 5, position)
    group.cluster.network_client.components.append(auto)
    group.idle(20)
    assert group.asked(COMMIT) == []
    auto.start()
    for second in range(20):
        position.offset = second
        group.idle(1)
    assert [request.topics[0].partitions[0].committed_offset for request in group.asked(COMMIT)] == [4, 9, 14, 19]
    auto.stop()
    group.idle(20)
    assert len(group.asked(COMMIT)) == 4


def test_a_failed_one_is_made_up_for_soon(group: Committing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    auto = AutoCommit(group.commits, 5, Position())
    group.cluster.network_client.components.append(auto)
    auto.start()
    group.codes = [16]
    group.idle(5.2)
    assert len(group.asked(COMMIT)) == 2
    group.codes = [12]
    group.idle(5)
    assert "auto-commit of 1 partitions fails: " in caplog.text
    assert len(group.asked(COMMIT)) == 3


def test_one_at_a_time(group: Committing) -> None:
    auto = AutoCommit(group.commits, 1, Position())
    group.cluster.network_client.components.append(auto)
    auto.start()
    group.codes = [SILENT]
    group.idle(10)
    assert len(group.asked(COMMIT)) == 1


def test_the_last_commit_before_the_end_waits_for_its_answer(group: Committing) -> None:
    auto = AutoCommit(group.commits, 5, Position())
    group.codes = [15]
    assert group.outcome(auto.commit(timeout_s=5)) is None
    assert group.stored == {P0: OffsetAndMetadata(1)}
