"""A request that is sent again until it succeeds, fails for good, or its time is over."""

from collections.abc import Callable
from typing import Any

from barnabas.connection.broker.client_request import Build, ClientRequest, Error
from barnabas.connection.network_client import CONTROLLER, Coordinator, NetworkClient, Target
from barnabas.connection.promise import Promise
from barnabas.connection.timers import spelled
from barnabas.errors import (
    Attempt,
    ClientError,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    OperationTimedOut,
    error_for,
)
from barnabas.protocol.schema import Request

__all__ = ["ask"]

ATTEMPTS_KEPT = 20


def ask(
    client: NetworkClient,
    request: Request | type[Request],
    to: Target,
    *,
    timeout_s: float,
    build: Build | None = None,
    at_most: int | None = None,
    check: Callable[[Any], int | KafkaError | None] | None = None,
    attempt_timeout_s: float | None = None,
) -> Promise[Any]:
    """The response. `check` takes the error or its code out of it: a retriable one is tried again, another one fails.

    Lost connections and what KafkaError calls retriable are tried again after a pause that grows; a coordinator that
    moved is looked for again. Fails with OperationTimedOut and all attempts, or with the last KafkaError.
    """
    return _Asking(client, request, to, timeout_s, build, at_most, check, attempt_timeout_s).promise


class _Asking:
    def __init__(
        self,
        client: NetworkClient,
        request: Request | type[Request],
        to: Target,
        timeout_s: float,
        build: Build | None,
        at_most: int | None,
        check: Callable[[Any], int | KafkaError | None] | None,
        attempt_timeout_s: float | None,
    ) -> None:
        self.promise: Promise[Any] = Promise()
        self._client = client
        self._request = request
        self._to = to
        self._build = build
        self._at_most = at_most
        self._check = check
        self._attempt_timeout_s = attempt_timeout_s
        self._timeout_s = timeout_s
        self._until = client.now + timeout_s
        self._attempts: list[Attempt] = []
        self._failures = 0
        self._last: Error | None = None
        timer = client.at(self._until, self._give_up)
        self.promise.on_done(lambda _: timer.cancel())
        self._try()

    def _try(self) -> None:
        if self.promise.done:
            return
        call = ClientRequest(
            self._request,
            self._done,
            build=self._build,
            at_most=self._at_most,
            timeout_s=self._attempt_timeout_s,
        )
        self._client.send(call, self._to)

    def _done(self, response: Any, error: Error | None) -> None:
        if error is None and self._check is not None:
            found = self._check(response)
            if found:
                told = getattr(response, "error_message", None) or ""
                error = error_for(found, told) if isinstance(found, int) else found
        if error is None:
            self.promise.resolve(response)
            return
        self._note(error)
        if not error.retriable:
            self.promise.fail(error)
            return
        self._failures += 1
        pause = self._client.backoff_s(self._failures)
        self._client.at(self._client.now + pause, self._try)

    def _note(self, error: Error) -> None:
        self._last = error
        if isinstance(error, ClientError):
            self._attempts += error.attempts
        else:
            self._attempts.append(Attempt("broker", "request", f"{error.kafka_name}: {error}", ""))
        del self._attempts[:-ATTEMPTS_KEPT]
        if isinstance(self._to, Coordinator) and isinstance(
            error, NotCoordinator | CoordinatorNotAvailable | ClientError
        ):
            self._client.forget_coordinator(self._to)
        elif self._to is CONTROLLER:
            self._client.metadata.mark_stale()

    def _give_up(self) -> None:
        if isinstance(self._last, KafkaError):
            self.promise.fail(self._last)
            return
        attempts = tuple(self._attempts) or self._client.unreachable().attempts
        why = self._last or (self._client.unreachable() if attempts else "no answer came")
        self.promise.fail(OperationTimedOut(f"gave up after {spelled(self._timeout_s)}: {why}", attempts))
