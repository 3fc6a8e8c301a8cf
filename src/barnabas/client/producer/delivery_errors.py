"""Makes the errors of batches that were not written."""

from typing import Final

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.connection.broker.client_request import Error
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import Attempt, ClientError, KafkaError, OperationTimedOut, error_for
from barnabas.protocol.produce import PartitionResponse

__all__ = ["error_of", "name_refused", "note_failure", "timed_out"]

FAILURES_KEPT: Final = 5


def note_failure(batch: ProducerBatch, error: Error) -> None:
    """Notes a failed attempt to send the batch."""
    attempts = (
        error.attempts
        if isinstance(error, ClientError)
        else (Attempt(f"{batch.topic}-{batch.partition}", "request", f"{error.kafka_name}: {error}", ""),)
    )
    batch.failures = [*(batch.failures or ()), *attempts][-FAILURES_KEPT:]


def error_of(answer: PartitionResponse, batch: ProducerBatch) -> KafkaError:
    """Returns the error of the batch in a broker's response."""
    reasons = [f"record {index}: {text}" for index, text in answer.record_errors[:3]]
    text = "; ".join(filter(None, [answer.error_message, *reasons]))
    kind = error_for(answer.error_code)
    return error_for(answer.error_code, f"{batch.topic}-{batch.partition}: {text or kind.kafka_name}")


def name_refused(batch: ProducerBatch, error: KafkaError, answer: PartitionResponse) -> KafkaError:
    """Gives an error of its own to each record that the broker refuses by index. Returns the error of the other
    records, which failed only because they were in the same batch."""
    if not answer.record_errors:
        return error
    kind, name = type(error), f"{batch.topic}-{batch.partition}"
    batch.record_errors = {index: kind(f"{name}: {text or error}") for index, text in answer.record_errors}
    return kind(f"{name}: other records of the batch were refused: {error}")


def timed_out(batch: ProducerBatch, client: NetworkClient, timeout_ms: int) -> ClientError:
    """Returns the error of a batch whose delivery.timeout.ms is over, with the reason why it was not acknowledged."""
    topic_partition = f"{batch.topic}-{batch.partition}"
    attempts: tuple[Attempt, ...] = tuple(batch.failures or ())
    if attempts:
        why = f"the last of {batch.attempts} tries: {attempts[-1]}"
    elif batch.attempts:
        why = "no answer came"
    elif client.metadata.topic(batch.topic) is None:
        why = str(client.metadata.topic_error(batch.topic))
    else:
        unreachable = client.unreachable()
        attempts = unreachable.attempts
        why = str(unreachable) if attempts else "it was never sent: the leader did not take more"
    text = f"{batch.count} records for {topic_partition} were not acknowledged within delivery.timeout.ms"
    return OperationTimedOut(f"{text} ({timeout_ms}): {why}", attempts)
