"""The offsets that commits take while records are decoded, delivered, iterated over and rolled back."""

from barnabas.client.consumer.delivered_records import DecodedRecords, DeliveredRecords
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.positions import ResetStrategy
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.compiled.consumer_records import ConsumerRecord, RecordOrigin
from barnabas.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
START = OffsetAndMetadata(0, "", 7)


class Delivery:
    """A subscription whose partition 0 has ten decoded records, of which none is delivered."""

    def __init__(self) -> None:
        self.subscription = SubscriptionState(ResetStrategy("earliest"))
        self.subscription.assign([T0, T1])
        for partition in (T0, T1):
            self.subscription.seek(partition, 0)
            state = self.subscription.get(partition)
            assert state is not None
            state.follow_leader(1, 7, can_validate=True)
        self.delivered = DeliveredRecords(self.subscription)
        self.decoded = self.decode(range(10))

    def decode(self, offsets: range) -> DecodedRecords:
        records = [ConsumerRecord(RecordOrigin("t", 0, 7, 0), offset, 0, None, b"", ()) for offset in offsets]
        state = self.subscription.get(T0)
        assert state is not None
        before = OffsetAndMetadata(offsets.start, "", 7)
        state.advance(offsets.stop, 7)
        return self.delivered.hold(T0, records, before)

    def poll(self, limit: int) -> list[int]:
        """A poll that returns decoded records, as the fronts deliver them."""
        self.delivered.mark_processed()
        decoded = self.delivered.next_decoded()
        records = [] if decoded is None else self.delivered.deliver(decoded, limit)
        self.delivered.rollback_positions = {}
        return [record.offset for record in records]

    @property
    def consumed(self) -> int:
        return self.delivered.consumed()[T0].offset

    @property
    def processed(self) -> int:
        return self.delivered.processed()[T0].offset


def test_decoded_records_are_not_consumed_before_their_delivery() -> None:
    delivery = Delivery()
    assert delivery.delivered.position(T0) == START
    assert delivery.consumed == delivery.processed == 0


def test_delivered_records_count_as_processed_at_the_next_poll() -> None:
    delivery = Delivery()
    assert delivery.poll(4) == [0, 1, 2, 3]
    assert (delivery.consumed, delivery.processed) == (4, 0)
    assert delivery.poll(4) == [4, 5, 6, 7]
    assert (delivery.consumed, delivery.processed) == (8, 4)
    assert delivery.poll(4) == [8, 9]
    assert delivery.poll(4) == []
    assert (delivery.consumed, delivery.processed) == (10, 10)


def test_no_automatic_commit_goes_back_behind_a_commit_of_the_application() -> None:
    delivery = Delivery()
    delivery.poll(4)
    for offset, processed in ((2, 2), (4, 4), (1, 1)):  # with the last one it takes back what it has said before
        delivery.delivered.note_commit({T0: OffsetAndMetadata(offset, "done", 7)})
        assert delivery.delivered.processed()[T0] == OffsetAndMetadata(processed, "done", 7)
    delivery.poll(4)
    assert (delivery.consumed, delivery.processed) == (8, 4)


def test_a_commit_counts_as_far_as_records_were_delivered() -> None:
    delivery = Delivery()
    delivery.poll(4)
    delivery.delivered.note_commit({T0: OffsetAndMetadata(8, "", 7)})
    assert delivery.processed == 4
    delivery.poll(6)
    assert (delivery.consumed, delivery.processed) == (10, 4)


def test_a_commit_does_not_count_after_the_log_was_made_anew() -> None:
    delivery = Delivery()
    delivery.poll(10)
    delivery.delivered.note_commit({T0: OffsetAndMetadata(10, "", 7)})
    assert delivery.poll(10) == []
    delivery.subscription.seek(T0, 0)  # as a reset of the position, which drops nothing
    delivery.decode(range(12))
    assert len(delivery.poll(12)) == 12
    assert (delivery.consumed, delivery.processed) == (12, 0)


def test_a_commit_before_a_drop_or_of_another_partition_does_not_count() -> None:
    delivery = Delivery()
    delivery.poll(4)
    delivery.delivered.note_commit({T0: OffsetAndMetadata(4, "", 7), TopicPartition("other", 0): START})
    delivery.delivered.drop([T0])
    delivery.subscription.seek(T0, 0)
    delivery.decode(range(10))
    delivery.poll(6)
    assert (delivery.consumed, delivery.processed) == (6, 0)


def test_offsets_carry_the_epoch_of_the_last_record() -> None:
    delivery = Delivery()
    delivery.poll(4)
    assert delivery.delivered.consumed()[T0] == OffsetAndMetadata(4, "", 7)


def test_the_current_record_of_an_iteration_is_consumed_and_not_processed() -> None:
    delivery = Delivery()
    delivery.delivered.begin_iteration(delivery.decoded)
    assert [next(delivery.decoded.iterator).offset for _ in range(3)] == [0, 1, 2]
    assert (delivery.consumed, delivery.processed) == (3, 2)
    list(delivery.decoded.iterator)
    assert (delivery.consumed, delivery.processed) == (10, 9)
    delivery.delivered.mark_processed()
    assert (delivery.consumed, delivery.processed) == (10, 10)


def test_an_iteration_that_ends_leaves_its_other_records_for_a_poll() -> None:
    delivery = Delivery()
    delivery.delivered.begin_iteration(delivery.decoded)
    next(delivery.decoded.iterator)
    next(delivery.decoded.iterator)
    delivery.delivered.end_iteration()
    assert list(delivery.decoded.iterator) == []
    assert (delivery.consumed, delivery.processed) == (2, 1)
    assert delivery.poll(100) == [*range(2, 10)]


def test_a_commit_leaves_out_the_records_of_an_interrupted_poll() -> None:
    delivery = Delivery()
    delivery.delivered.deliver(delivery.decoded, 4)  # an interrupt comes before `rollback_positions` is emptied
    assert delivery.delivered.rollback_positions == {T0: START}
    assert delivery.delivered.position(T0) == START
    assert delivery.consumed == delivery.processed == 0


def test_records_that_are_delivered_at_once_count_from_the_position_before() -> None:
    delivery = Delivery()
    delivery.poll(10)
    delivery.delivered.mark_processed()
    state = delivery.subscription.get(T0)
    assert state is not None
    state.advance(25, 7)
    delivery.delivered.deliver_all(T0, OffsetAndMetadata(10, "", 7))
    assert (delivery.consumed, delivery.processed) == (25, 10)
    delivery.delivered.mark_processed()
    assert delivery.processed == 25


def test_a_paused_partition_keeps_its_decoded_records() -> None:
    delivery = Delivery()
    delivery.subscription.pause([T0])
    assert delivery.poll(100) == []
    assert delivery.consumed == 0
    delivery.subscription.resume([T0])
    assert delivery.poll(100) == [*range(10)]


def test_a_dropped_partition_ends_its_iteration() -> None:
    delivery = Delivery()
    delivery.delivered.begin_iteration(delivery.decoded)
    next(delivery.decoded.iterator)
    delivery.subscription.seek(T0, 5)
    delivery.delivered.drop([T0])
    assert list(delivery.decoded.iterator) == []
    assert delivery.delivered.current is None
    assert delivery.poll(100) == []
    assert delivery.delivered.position(T0) == OffsetAndMetadata(5, "", -1)


def test_partitions_without_decoded_records_keep_their_positions() -> None:
    delivery = Delivery()
    delivery.poll(3)
    assert delivery.delivered.consumed()[T1].offset == delivery.delivered.processed()[T1].offset == 0
