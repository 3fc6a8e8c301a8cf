"""The producer id and epoch under which brokers know an idempotent producer."""

from typing import Any, Final, NamedTuple

from barnabas.connection.broker.client_request import Error
from barnabas.connection.network_client import ANY, NetworkClient
from barnabas.connection.promise import Promise
from barnabas.connection.retry import send_with_retries
from barnabas.errors import ClientClosed, OperationTimedOut
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId

__all__ = ["EPOCH_MAX", "NO_PRODUCER_ID_AND_EPOCH", "ProducerIdAndEpoch", "ProducerIds"]

EPOCH_MAX: Final = 32766
"""The last epoch of a producer; coordinators use 32767 to fence."""
REQUEST_TIMEOUT_S: Final = 60.0


class ProducerIdAndEpoch(NamedTuple):
    """The id and epoch of a producer, for which brokers check the sequences."""

    producer_id: ProducerId
    producer_epoch: int


NO_PRODUCER_ID_AND_EPOCH: Final = ProducerIdAndEpoch(ProducerId(NO_PRODUCER_ID), NO_PRODUCER_EPOCH)


class ProducerIds:
    """Requests a producer id, and raises its epoch after a gap in the sequences (KIP-360)."""

    def __init__(self, client: NetworkClient) -> None:
        self.current = NO_PRODUCER_ID_AND_EPOCH
        self.error: Error | None = None
        """The error because of which there will be no producer id."""
        self._client = client
        self._requested: Promise[Any] | None = None

    @property
    def is_known(self) -> bool:
        return self.current.producer_id >= 0

    def request(self) -> None:
        """Requests a producer id from any broker, unless such a request is in flight."""
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        if self._requested is None and self.error is None:
            # 2147483647 as in Kafka's clients: without a transaction there is no timeout
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            self._requested = send_with_retries(
                self._client, request, ANY, timeout_s=REQUEST_TIMEOUT_S, check=lambda response: response.error_code
            )
            self._requested.on_done(self._take)

    def _take(self, promise: Promise[Any]) -> None:
        self._requested = None
        error: Any = promise.error
        if error is None:
            self.take_response(promise.result())
        elif not isinstance(error, ClientClosed | OperationTimedOut) and not getattr(error, "retriable", False):
            self.error = error

    def take_response(self, response: Any) -> None:
        """Takes over the producer id and epoch of a response."""
        self.current = ProducerIdAndEpoch(ProducerId(response.producer_id), response.producer_epoch)

    def bump_epoch(self) -> None:
        """Raises the epoch, or requests another producer id when the epochs are used up."""
        if self.current.producer_epoch >= EPOCH_MAX:
            self.current = NO_PRODUCER_ID_AND_EPOCH
            self.request()
        else:
            self.current = ProducerIdAndEpoch(self.current.producer_id, self.current.producer_epoch + 1)
