"""Committed offsets: who may commit, what is fetched, what is deleted, what expires."""

import pytest

from barnabas import errors
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.types import TopicPartition
from coordinator.group_rig import Later, Rig, failing

DAY = 24 * 60 * 60
WEEK = 7 * DAY
HERE = {("orders", 0): 7}


def delete_offsets(rig: Rig, topic: str, group: str = "g") -> Later:
    later = Later()
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    rig.groups.delete_offsets(OffsetDeleteRequest(group_id=group, topics=topics), reply=later)
    return later


class TestCommit:
    def test_a_member_commits_and_anyone_reads(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        assert rig.commit_code({("orders", 0): 7, ("orders", 3): 8}, member_id=a, generation=1) == 0
        assert rig.fetch(partitions=(0, 1, 3)) == [7, -1, 8]
        assert rig.fetch_everything() == {("orders", 0): 7, ("orders", 3): 8}

    def test_a_commit_is_one_batch(self) -> None:
        rig = Rig()
        rig.commit({("orders", index): index for index in range(20)})
        assert (rig.log.appends, rig.log.ends[0]) == (1, 20)

    def test_without_a_group_a_simple_one_is_made(self) -> None:
        rig = Rig()
        assert rig.commit_code(HERE) == 0
        assert (rig.state(), rig.group().protocol_type) == ("Empty", None)
        rig.restart()
        assert rig.fetch() == [7]
        assert rig.state() == "Empty"

    @pytest.mark.parametrize(
        ("version", "code"), [(8, errors.IllegalGeneration.code), (9, errors.GroupIdNotFound.code)]
    )
    def test_a_generation_of_a_group_that_does_not_exist(self, version: int, code: int) -> None:
        assert Rig().commit_code(HERE, member_id="a", generation=1, version=version) == code

    def test_strangers_do_not_commit_to_a_group_with_members(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        assert rig.commit_code(HERE) == errors.UnknownMemberId.code
        assert rig.commit_code(HERE, member_id="ghost", generation=1) == errors.UnknownMemberId.code
        assert rig.commit_code(HERE, member_id=a, generation=2) == errors.IllegalGeneration.code
        assert rig.commit_code(HERE, member_id=a, generation=1, instance="i") == errors.UnknownMemberId.code
        assert rig.fetch() == [-1]

    def test_no_commit_while_the_assignment_is_awaited(self) -> None:
        rig = Rig()
        joined = rig.join_twice().value
        code = rig.commit_code(HERE, member_id=joined.member_id, generation=1)
        assert code == errors.RebalanceInProgress.code

    def test_the_old_generation_commits_while_the_next_one_gathers(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.join_twice(client="b")
        assert rig.commit_code(HERE, member_id=a, generation=1) == 0

    def test_an_administrator_resets_the_offsets_of_an_empty_group(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.leave(a)
        assert rig.commit_code({("orders", 0): 0}) == 0
        assert rig.fetch() == [0]

    def test_metadata_is_kept_and_bounded(self) -> None:
        rig = Rig(offset_metadata_max_bytes=5)
        assert rig.commit_code(HERE, metadata="12345") == 0
        assert rig.commit_code({("orders", 1): 1}, metadata="123456") == errors.OffsetMetadataTooLarge.code
        assert rig.shard().offsets.get("g", "orders", 0).metadata == "12345"
        assert rig.fetch(partitions=(1,)) == [-1]

    def test_null_metadata_becomes_empty(self) -> None:
        rig = Rig()
        assert rig.commit_code(HERE, metadata=None) == 0
        assert rig.shard().offsets.get("g", "orders", 0).metadata == ""

    def test_a_commit_that_is_not_written_changes_nothing(self) -> None:
        rig = Rig()
        rig.commit(HERE)
        rig.log.fail = failing()
        assert rig.commit_code({("orders", 0): 99}) == errors.NotCoordinator.code
        assert rig.fetch() == [7]

    def test_the_answer_waits_for_the_replicas_and_gives_up_in_time(self) -> None:
        rig = Rig(offset_commit_timeout_ms=5000)
        rig.log.replicated = False
        first, second = rig.commit(HERE), rig.commit({("orders", 0): 8})
        assert not first.done
        rig.groups.on_high_watermark(0, 1)
        assert first.value.topics[0].partitions[0].error_code == 0
        assert not second.done
        rig.advance(6)
        assert second.value.topics[0].partitions[0].error_code == errors.CoordinatorNotAvailable.code


class TestDelete:
    def test_offsets_of_an_empty_group(self) -> None:
        rig = Rig()
        rig.commit(HERE)
        answer = delete_offsets(rig, "orders").value
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert rig.fetch() == [-1]
        rig.restart()
        assert rig.fetch() == [-1]

    def test_not_of_a_topic_that_members_read(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.commit({("orders", 0): 7, ("other", 0): 8}, member_id=a, generation=1)
        code = delete_offsets(rig, "orders").value.topics[0].partitions[0].error_code
        assert code == errors.GroupSubscribedToTopic.code
        assert delete_offsets(rig, "other").value.topics[0].partitions[0].error_code == 0
        assert rig.fetch_everything() == {("orders", 0): 7}

    def test_not_where_nobody_knows_what_members_read(self) -> None:
        rig = Rig()
        rig.join_twice(protocol_type="connect")
        assert delete_offsets(rig, "orders").error == errors.NonEmptyGroup.code

    def test_of_no_group(self) -> None:
        assert delete_offsets(Rig(), "orders").error == errors.GroupIdNotFound.code

    def test_deleted_partitions_leave_no_offsets(self) -> None:
        rig = Rig(partitions=3)
        for group in "abcdef":
            rig.commit({("orders", 0): 1, ("orders", 1): 2}, group=group)
        rig.groups.on_partitions_deleted([TopicPartition("orders", 1)])
        for group in "abcdef":
            assert rig.fetch_everything(group) == {("orders", 0): 1}

    def test_deleted_partitions_leave_no_offsets_where_they_are_being_loaded(self) -> None:
        """Otherwise a new topic of the same name would begin at the offsets of the old one."""
        rig = Rig(partitions=3)
        for group in "abcdef":
            rig.commit({("orders", 0): 1, ("orders", 1): 2}, group=group)
        for partition in range(3):
            rig.groups.on_resigned(partition)
            rig.groups.on_elected(partition, 2)
        rig.groups.on_partitions_deleted([TopicPartition("orders", 1)])
        rig.advance(0)
        for group in "abcdef":
            assert rig.fetch_everything(group) == {("orders", 0): 1}
        rig.restart()
        assert rig.fetch_everything("a") == {("orders", 0): 1}


class TestExpiry:
    def test_simple_groups_by_the_time_of_the_commit(self) -> None:
        rig = Rig()
        rig.commit(HERE)
        rig.advance(WEEK / 2)
        rig.commit({("orders", 1): 8})
        rig.advance(WEEK / 2)
        rig.groups.expire_offsets()
        assert rig.fetch_everything() == {("orders", 1): 8}
        rig.advance(WEEK / 2)
        rig.groups.expire_offsets()
        assert rig.group() is None
        rig.restart()
        assert rig.group() is None

    def test_a_group_from_the_moment_it_became_empty(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a", session_ms=1_800_000)
        rig.commit(HERE, member_id=a, generation=1)
        for _ in range(700):
            rig.advance(1000)
            rig.heartbeat(a, 1)
        rig.groups.expire_offsets()
        assert rig.fetch() == [7], "a topic that is read keeps its offsets"
        rig.leave(a)
        rig.advance(WEEK - 1)
        rig.groups.expire_offsets()
        assert rig.fetch() == [7]
        rig.advance(2)
        rig.groups.expire_offsets()
        assert rig.group() is None

    def test_topics_that_nobody_in_the_group_reads_any_more(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a", session_ms=1_800_000)
        rig.commit({("orders", 0): 7, ("left", 0): 8}, member_id=a, generation=1)
        for _ in range(700):
            rig.advance(1000)
            rig.heartbeat(a, 1)
        rig.groups.expire_offsets()
        assert rig.fetch_everything() == {("orders", 0): 7}

    def test_an_old_clients_own_retention(self) -> None:
        rig = Rig()
        rig.commit(HERE, retention_ms=60_000, version=4)
        rig.advance(59)
        rig.groups.expire_offsets()
        assert rig.fetch() == [7]
        rig.advance(2)
        rig.groups.expire_offsets()
        assert rig.fetch() == [-1]

    def test_an_empty_group_without_offsets_goes_at_once(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.leave(a)
        rig.groups.expire_offsets()
        assert rig.group() is None
        assert rig.shard().stored == {}

    def test_nothing_to_do_writes_nothing(self) -> None:
        rig = Rig()
        rig.stable("a")
        before = rig.log.appends
        rig.groups.expire_offsets()
        assert rig.log.appends == before
