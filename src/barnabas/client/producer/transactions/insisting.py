"""Requests to coordinators that are sent again until they are answered, or nobody wants the answer any more."""

from collections.abc import Callable
from typing import Any, Final

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import Coordinator, NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import (
    Attempt,
    ClientError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    RequestTimedOut,
    error_for,
)
from barnabas.protocol.schema import Request

__all__ = ["CONCURRENT_S", "Insisting"]

ATTEMPTS_KEPT: Final = 20
CONCURRENT_S: Final = 0.02
"""The first pause while the markers of the transaction before are being written: that takes milliseconds."""


class Insisting:
    """See the module. `attempts` are the tries that failed since somebody cleared them."""

    def __init__(self, client: NetworkClient) -> None:
        self.attempts: list[Attempt] = []
        self._client = client

    async def ask(
        self,
        request: Request,
        to: Coordinator,
        check: Callable[[Any], int | KafkaError | None],
        *,
        at_most: int | None = None,
        at_least: int = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Any:
        """The response. Raises what no repeat mends, or the last error once it is not `wanted` any more: never before
        the try under way has ended."""
        failures = 0
        while True:
            try:
                return await self._try(request, to, check, at_most, at_least)
            except (KafkaError, ClientError) as error:
                self._note(error, to)
                if not error.retriable or not wanted():
                    raise
                failures += 1
                await self._pause(error, failures)
                if not wanted():
                    raise

    def _try(
        self,
        request: Request,
        to: Coordinator,
        check: Callable[[Any], int | KafkaError | None],
        at_most: int | None,
        at_least: int,
    ) -> Promise[Any]:
        promise: Promise[Any] = Promise()

        def done(response: Any, error: Error | None) -> None:
            found = check(response) if error is None else error
            if isinstance(found, int) and found:
                found = error_for(found)
            if found:
                promise.fail(found)
            else:
                promise.resolve(response)

        self._client.send(ClientRequest(request, done, at_most=at_most, at_least=at_least), to)
        return promise

    def _note(self, error: Error, to: Coordinator) -> None:
        if isinstance(error, ClientError):
            self.attempts += error.attempts
        else:
            where = f"coordinator of {to.key!r}"
            self.attempts.append(Attempt(where, "request", f"{error.kafka_name}: {error}", ""))
        del self.attempts[:-ATTEMPTS_KEPT]
        if isinstance(error, ClientError | NotCoordinator | CoordinatorNotAvailable | RequestTimedOut):
            self._client.forget_coordinator(to)

    async def _pause(self, error: Error, failures: int) -> None:
        pause = self._client.backoff_s(failures)
        if isinstance(error, ConcurrentTransactions):
            pause = min(pause, CONCURRENT_S * 2.0 ** min(failures - 1, 10))
        slept: Promise[None] = Promise()
        self._client.at(self._client.now + pause, lambda: slept.resolve(None))
        await slept
