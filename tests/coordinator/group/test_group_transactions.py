"""Offsets that groups commit within transactions: pending until the end marker, the same after a restart."""

import pytest

from barnabas import errors
from barnabas.errors import error_for
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.records.batch import read_header
from barnabas.types import TopicPartition
from coordinator.group_rig import Later, Rig, failing

HERE = {("orders", 0): 7}
WEEK = 7 * 86400


def refusal(later: Later) -> str:
    """The error's name."""
    assert isinstance(later.value, errors.KafkaError), later.value
    return type(later.value).__name__


def codes(later: Later) -> list[str]:
    return [
        type(error_for(partition.error_code)).__name__ if partition.error_code else ""
        for topic in later.value.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("commit", "left"), [(True, 50), (False, 7)])
def test_offsets_are_pending_until_the_marker(commit: bool, left: int, restart: bool) -> None:
    rig = Rig()
    rig.commit(HERE)
    assert codes(rig.commit_in_transaction({("orders", 0): 50, ("orders", 1): 51})) == ["", ""]
    if restart:
        rig.restart()
    assert rig.fetch(partitions=(0, 1, 2)) == [7, -1, -1]
    assert rig.fetch(partitions=(0, 1, 2), require_stable=True) == [-2, -2, -1]
    assert rig.end_transaction(commit=commit).value is None
    if restart:
        rig.restart()
    assert rig.fetch(partitions=(0, 1), require_stable=True) == [left, 51 if commit else -1]


def test_the_records_are_a_batch_of_the_producer() -> None:
    rig = Rig()
    rig.commit_in_transaction(HERE, producer=(9, 4))
    header = read_header(rig.log.batches[0][0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert header.is_transactional
    assert not header.is_control
    rig.end_transaction(commit=True, producer=(9, 5))
    header = read_header(rig.log.batches[0][1])
    assert (header.producer_id, header.producer_epoch) == (9, 5)
    assert header.is_control


@pytest.mark.parametrize("restart", [False, True])
def test_the_later_commit_stays(restart: bool) -> None:
    """In the order of the log, whatever became of the transaction in between."""
    rig = Rig()
    rig.commit_in_transaction({("orders", 0): 50, ("orders", 1): 51})
    rig.commit({("orders", 0): 60})
    rig.commit_in_transaction({("orders", 1): 52}, producer=(8, 0))
    assert rig.fetch(partitions=(0, 1), require_stable=True) == [-2, -2]
    rig.end_transaction(commit=True, producer=(8, 0))
    rig.end_transaction(commit=True)
    if restart:
        rig.restart()
    assert rig.fetch(partitions=(0, 1), require_stable=True) == [60, 52]


def test_a_transaction_may_commit_again() -> None:
    rig = Rig()
    rig.commit_in_transaction({("orders", 0): 1})
    rig.commit_in_transaction({("orders", 0): 2})
    rig.end_transaction(commit=True)
    assert rig.fetch(require_stable=True) == [2]


def test_transactions_of_other_producers_and_groups_stay_open() -> None:
    rig = Rig()
    rig.commit_in_transaction(HERE)
    rig.commit_in_transaction(HERE, group="h")
    rig.commit_in_transaction({("orders", 1): 8}, producer=(8, 0))
    rig.end_transaction(commit=True)
    assert rig.fetch(partitions=(0, 1), require_stable=True) == [7, -2]
    assert rig.fetch(group="h", require_stable=True) == [7]


def test_a_marker_without_offsets_is_written_all_the_same() -> None:
    rig = Rig()
    assert rig.end_transaction(commit=True).value is None
    assert rig.log.appends == 1


class TestWhoMayCommit:
    def test_anybody_for_a_group_that_is_not_there(self) -> None:
        rig = Rig()
        assert codes(rig.commit_in_transaction(HERE)) == [""]
        assert (rig.state(), rig.group().protocol_type) == ("Empty", None)

    def test_nobody_of_a_generation_that_never_was(self) -> None:
        assert refusal(Rig().commit_in_transaction(HERE, member_id="a", generation=1)) == "IllegalGeneration"

    def test_a_member_of_the_generation(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        assert codes(rig.commit_in_transaction(HERE, member_id=a, generation=1)) == [""]
        assert refusal(rig.commit_in_transaction(HERE, member_id=a, generation=0)) == "IllegalGeneration"
        assert refusal(rig.commit_in_transaction(HERE, member_id="b", generation=1)) == "UnknownMemberId"
        assert refusal(rig.commit_in_transaction(HERE, member_id=a)) == "IllegalGeneration"

    def test_who_does_not_say_which_member(self) -> None:
        """Producers before KIP-447 are fenced by their transactional id alone."""
        rig = Rig()
        rig.stable("a")
        assert codes(rig.commit_in_transaction(HERE)) == [""]

    def test_a_static_member_that_was_replaced(self) -> None:
        rig = Rig()
        first = rig.join(instance="i").value.member_id
        second = rig.join(instance="i").value.member_id
        assert first != second
        later = rig.commit_in_transaction(HERE, member_id=first, instance="i", generation=rig.generation)
        assert refusal(later) == "FencedInstanceId"

    def test_during_a_rebalance(self) -> None:
        """Plain commits are refused then; within a transaction the generation alone decides."""
        rig = Rig()
        (a,) = rig.stable("a")
        rig.join_twice(client="b")
        assert rig.state() == "PreparingRebalance"
        assert codes(rig.commit_in_transaction(HERE, member_id=a, generation=1)) == [""]
        rig.join(a)
        assert rig.state() == "CompletingRebalance"
        assert codes(rig.commit_in_transaction(HERE, member_id=a, generation=2)) == [""]
        assert refusal(rig.commit_in_transaction(HERE, member_id=a, generation=1)) == "IllegalGeneration"


def test_metadata_that_is_too_large_fails_alone() -> None:
    rig = Rig(offset_metadata_max_bytes=3)
    assert codes(rig.commit_in_transaction(HERE, metadata="long")) == ["OffsetMetadataTooLarge"]
    assert rig.log.appends == 0
    assert codes(rig.commit_in_transaction(HERE, metadata=None)) == [""]


class TestTheLog:
    def test_a_commit_that_is_not_written_is_not_pending(self) -> None:
        rig = Rig()
        rig.commit(HERE)
        rig.log.fail = failing()
        assert refusal(rig.commit_in_transaction({("orders", 0): 50})) == "KafkaStorageError"
        assert rig.fetch(require_stable=True) == [7]

    def test_a_marker_that_is_not_written_decides_nothing(self) -> None:
        rig = Rig()
        rig.commit_in_transaction(HERE)
        rig.log.fail = failing()
        assert refusal(rig.end_transaction(commit=True)) == "KafkaStorageError"
        assert rig.fetch(require_stable=True) == [-2]
        rig.log.fail = None
        assert rig.end_transaction(commit=True).value is None
        assert rig.fetch(require_stable=True) == [7]

    def test_answers_wait_for_the_replicas(self) -> None:
        rig = Rig(offset_commit_timeout_ms=5000)
        rig.log.replicated = False
        committed, ended = rig.commit_in_transaction(HERE), rig.end_transaction(commit=True)
        assert not committed.done
        rig.groups.on_high_watermark(0, 1)
        assert codes(committed) == [""]
        assert not ended.done
        rig.advance(6)
        assert refusal(ended) == "RequestTimedOut"

    def test_elsewhere(self) -> None:
        rig = Rig()
        rig.groups.on_resigned(0)
        assert refusal(rig.commit_in_transaction(HERE)) == "NotCoordinator"
        assert refusal(rig.end_transaction(commit=True)) == "NotCoordinator"


class TestForgetting:
    def delete_offset(self, rig: Rig, partition: int) -> None:
        topic = OffsetDeleteRequestTopic(
            name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        later = Later()
        rig.groups.delete_offsets(OffsetDeleteRequest(group_id="g", topics=[topic]), reply=later)
        assert later.error == 0

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_deleted_offset_is_not_pending_any_more(self, restart: bool) -> None:
        rig = Rig()
        rig.commit_in_transaction({("orders", 0): 1, ("orders", 1): 2})
        self.delete_offset(rig, 1)
        if restart:
            rig.restart()
        assert rig.fetch(partitions=(0, 1), require_stable=True) == [-2, -1]
        rig.end_transaction(commit=True)
        assert rig.fetch(partitions=(0, 1), require_stable=True) == [1, -1]

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_deleted_group_takes_its_pending_offsets_with_it(self, restart: bool) -> None:
        rig = Rig()
        rig.commit_in_transaction(HERE)
        rig.commit(HERE)
        later = Later()
        rig.groups.delete_groups(["g"], reply=later)
        assert later.value[0].error_code == 0
        rig.end_transaction(commit=True)
        if restart:
            rig.restart()
        assert rig.group() is None
        assert rig.fetch(require_stable=True) == [-1]

    def test_deleted_topics(self) -> None:
        rig = Rig()
        rig.commit_in_transaction({("orders", 0): 1, ("other", 0): 2})
        rig.groups.on_partitions_deleted([TopicPartition("orders", 0)])
        rig.end_transaction(commit=True)
        assert rig.fetch_everything() == {("other", 0): 2}

    def test_nothing_of_a_pending_offset_expires(self) -> None:
        rig = Rig()
        rig.commit(HERE)
        rig.commit_in_transaction(HERE)
        rig.advance(WEEK + 1)
        rig.groups.expire_offsets()
        assert rig.fetch() == [7]
        rig.end_transaction(commit=False)
        rig.groups.expire_offsets()
        assert rig.group() is None

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_group_with_an_open_transaction_stays(self, restart: bool) -> None:
        rig = Rig()
        rig.commit_in_transaction(HERE)
        if restart:
            rig.restart()
        rig.advance(WEEK + 1)
        rig.groups.expire_offsets()
        assert rig.state() == "Empty"
        rig.end_transaction(commit=False)
        rig.groups.expire_offsets()
        assert rig.group() is None


def test_one_question_does_not_look_at_all_open_transactions() -> None:
    """Thousands of producers may have offsets pending on one partition, each for its own group."""
    rig = Rig()
    for number in range(300):
        rig.commit_in_transaction(HERE, producer=(number, 0), group=f"g{number}")
    offsets = rig.shard().offsets
    assert offsets.has_open_transactions("g299")
    for number in range(300):
        rig.end_transaction(commit=number % 2 == 0, producer=(number, 0))
    assert not any(offsets.has_open_transactions(f"g{number}") for number in range(300))
    assert [rig.fetch(group=f"g{number}", require_stable=True)[0] for number in range(4)] == [7, -1, 7, -1]
