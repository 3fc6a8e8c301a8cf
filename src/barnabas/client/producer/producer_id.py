"""Who an idempotent producer is to the brokers: an id and an epoch."""

from typing import Any, Final

from barnabas.connection.broker.client_request import Error
from barnabas.connection.network_client import ANY, NetworkClient
from barnabas.connection.promise import Promise
from barnabas.connection.retry import send_with_retries
from barnabas.errors import ClientClosed
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = ["EPOCH_MAX", "Identity"]

EPOCH_MAX: Final = 32766
"""The last epoch that may be used; 32767 is the coordinator's own, to fence with."""
ASK_S: Final = 60.0


class Identity:
    """Asked for once; the epoch goes up when a gap in the sequences must be left behind (KIP-360)."""

    def __init__(self, client: NetworkClient) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.error: Error | None = None
        """Why there is no id and will be none."""
        self._client = client
        self._asked: Promise[Any] | None = None

    @property
    def is_known(self) -> bool:
        return self.producer_id >= 0

    def seek(self) -> None:
        """Ask for an id, if that is not under way."""
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        if self._asked is None and self.error is None:
            # 2147483647 as in Kafka's clients: without a transaction there is nothing that could time out
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            self._asked = send_with_retries(
                self._client, request, ANY, timeout_s=ASK_S, check=lambda response: response.error_code
            )
            self._asked.on_done(self._answered)

    def _answered(self, promise: Promise[Any]) -> None:
        self._asked = None
        error = promise.error
        if error is None:
            response = promise.result()
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        elif not getattr(error, "retriable", False) and not isinstance(error, ClientClosed):
            self._give_up(error)

    def _give_up(self, error: Any) -> None:
        if type(error).__name__ != "OperationTimedOut":
            self.error = error

    def bump(self) -> None:
        """Start anew: batches that wait get sequences from 0 under the next epoch, or under another id when the epochs
        are used up."""
        if self.producer_epoch >= EPOCH_MAX:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
            self.seek()
        else:
            self.producer_epoch += 1
