"""The states of a transactional id and the moves between them."""

import pytest

from barnabas.coordinator.transaction.transaction_metadata import VALID_PREVIOUS, TransactionMetadata, TransactionState
from barnabas.types import TopicPartition


class TestState:
    def test_no_state_without_a_way_to_it(self) -> None:
        assert set(VALID_PREVIOUS) == set(TransactionState)
        assert all(VALID_PREVIOUS.values())

    @pytest.mark.parametrize("state", sorted(VALID_PREVIOUS, key=lambda state: state.number))
    def test_moves_that_the_table_does_not_have(self, state: TransactionState) -> None:
        for before in TransactionState:
            metadata = TransactionMetadata(1, 1, 0, 0, state=before)
            if before in VALID_PREVIOUS[state]:
                assert metadata.to(state, 5).state is state
            else:
                with pytest.raises(AssertionError, match=state.kafka_name):
                    metadata.to(state, 5)

    def test_kafkas_numbers(self) -> None:
        assert {state.kafka_name: state.number for state in TransactionState} == {
            "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5,
            "Dead": 6, "PrepareEpochFence": 7,
        }  # fmt: skip

    def test_partitions_grow_until_the_end(self) -> None:
        metadata = TransactionMetadata(1, 1, 0, 0)
        one, two = TopicPartition("a", 0), TopicPartition("a", 1)
        ongoing = metadata.with_partitions(frozenset((one,)), 10, 2).with_partitions(frozenset((two,)), 20, 2)
        assert ongoing.partitions == {one, two}
        assert (ongoing.start_timestamp_ms, ongoing.last_update_timestamp_ms) == (10, 20)
