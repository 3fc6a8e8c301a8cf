"""The errors that a transactional producer makes of responses."""

import pytest

from barnabas.client.producer.transactions.errors import (
    ABORTABLE,
    add_partitions_error,
    init_error,
    is_fenced,
    offsets_error,
    produce_error_is_fatal,
)
from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    MessageTooLarge,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
)
from barnabas.protocol.messages import add_partitions_to_txn as adding
from barnabas.protocol.messages import txn_offset_commit as commits


def test_the_reasons_of_a_refused_init_name_the_setting() -> None:
    assert init_error(0, "tx", two_phase=True) is None
    refused = str(init_error(TransactionalIdAuthorizationFailed.code, "tx", two_phase=True))
    assert "'tx'" in refused
    assert "transaction.two.phase.commit.enable" in refused
    assert "two.phase" not in str(init_error(TransactionalIdAuthorizationFailed.code, "tx", two_phase=False))
    assert "transaction.timeout.ms" in str(init_error(InvalidTransactionTimeout.code, "tx", two_phase=False))
    fenced = init_error(ProducerFenced.code, "tx", two_phase=False)
    assert isinstance(fenced, ProducerFenced)
    assert "PRODUCER_FENCED" in str(fenced)


@pytest.mark.parametrize(
    ("codes", "told"), [((0, 0), None), ((55, 29), 29), ((29, 55), 29), ((55, 0), 55), ((0, 3), 3)]
)
def test_the_partition_that_was_refused_counts_more_than_those_that_were_not_tried(
    codes: tuple[int, int], told: int | None
) -> None:
    results = [
        adding.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    topic = adding.AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
    error = add_partitions_error(adding.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))
    assert (error and error.code) == told
    if error is not None:
        assert f"t-{codes.index(error.code)}" in str(error)


@pytest.mark.parametrize(("codes", "told"), [((0, 0), None), ((14, 22), 22), ((22, 14), 22), ((14, 0), 14)])
def test_an_error_that_stays_counts_more_than_one_that_passes(codes: tuple[int, int], told: int | None) -> None:
    answers = [
        commits.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    topic = commits.TxnOffsetCommitResponseTopic(name="t", partitions=answers)
    error = offsets_error(commits.TxnOffsetCommitResponse(topics=[topic]), "g")
    assert (error and error.code) == told
    assert error is None or "group 'g'" in str(error)


def test_what_ends_a_producer_and_what_its_transaction_alone() -> None:
    assert is_fenced(ProducerFenced("x"))
    assert is_fenced(InvalidProducerEpoch("x"))
    assert produce_error_is_fatal(ClusterAuthorizationFailed("x"))
    assert not produce_error_is_fatal(MessageTooLarge("x"))
    assert not any(produce_error_is_fatal(kind("x")) for kind in ABORTABLE)
