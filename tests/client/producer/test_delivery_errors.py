"""The errors of batches that were not written."""

import pytest

from barnabas.client.producer.delivery_errors import FAILURES_KEPT, error_of, name_refused, note_failure, timed_out
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.errors import Attempt, ConnectionLost, InvalidRecord, NotLeaderOrFollower, OperationTimedOut
from barnabas.protocol.produce import PartitionResponse
from simulation.cluster import SingleClientCluster
from simulation.producer import SimulatedProducer


@pytest.fixture
def batch() -> ProducerBatch:
    producing = SimulatedProducer()
    producing.send(b"v")
    (batch,) = producing.kafka_producer.accumulator.all_batches()
    return batch


def test_the_last_attempts_are_kept(batch: ProducerBatch) -> None:
    for number in range(FAILURES_KEPT):
        note_failure(batch, ConnectionLost("lost", (Attempt(f"b{number}:1", "request", "reset", ""),)))
    note_failure(batch, NotLeaderOrFollower("moved"))
    assert batch.failures is not None
    assert [attempt.address for attempt in batch.failures] == ["b1:1", "b2:1", "b3:1", "b4:1", "t-0"]
    assert batch.failures[-1].error == "NOT_LEADER_OR_FOLLOWER: moved"


def test_an_error_names_its_partition_and_the_first_reasons(batch: ProducerBatch) -> None:
    code = InvalidRecord.code
    assert str(error_of(PartitionResponse(0, code), batch)) == "t-0: INVALID_RECORD"
    reasons = [(number, f"no key {number}") for number in range(9)]
    told = str(error_of(PartitionResponse(0, code, record_errors=reasons, error_message="bad"), batch))
    assert told == "t-0: bad; record 0: no key 0; record 1: no key 1; record 2: no key 2"


def test_refused_records_have_errors_of_their_own(batch: ProducerBatch) -> None:
    error = InvalidRecord("t-0: bad")
    assert name_refused(batch, error, PartitionResponse(0, InvalidRecord.code)) is error
    assert batch.record_errors is None
    answer = PartitionResponse(0, InvalidRecord.code, record_errors=[(1, "no key"), (2, None)])
    assert str(name_refused(batch, error, answer)) == "t-0: other records of the batch were refused: t-0: bad"
    assert batch.record_errors is not None
    assert {index: str(each) for index, each in batch.record_errors.items()} == {1: "t-0: no key", 2: "t-0: t-0: bad"}


def test_a_batch_whose_time_is_over_says_why(batch: ProducerBatch) -> None:
    cluster = SingleClientCluster({"t": 1})
    cluster.result(cluster.network_client.topic("t", 5))

    def why() -> str:
        error = timed_out(batch, cluster.network_client, 1000)
        assert isinstance(error, OperationTimedOut)
        head, _, reason = str(error).partition(" (1000): ")
        assert head == "1 records for t-0 were not acknowledged within delivery.timeout.ms"
        return reason

    assert why() == "it was never sent: the leader did not take more"
    batch.attempts = 2
    assert why() == "no answer came"
    note_failure(batch, NotLeaderOrFollower("moved"))
    assert why().startswith("the last of 2 tries: t-0")
    batch.attempts, batch.failures = 0, None
    cluster.network_client.metadata.remove_topics(["t"])
    assert why() == "topic 't' does not exist"
