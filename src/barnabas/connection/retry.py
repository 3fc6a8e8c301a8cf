"""The retry policy of the clients: which errors are retried, after which pauses, and until when."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.connection.broker.client_request import Build, ClientRequest, Error
from barnabas.connection.flow import settle
from barnabas.connection.network_client import CONTROLLER, Coordinator, NetworkClient, Node, Target
from barnabas.connection.promise import Promise
from barnabas.connection.timers import NEVER, spelled
from barnabas.errors import (
    Attempt,
    BarnabasError,
    ClientClosed,
    ClientError,
    ConcurrentTransactions,
    ConnectionLost,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NotCoordinator,
    OperationTimedOut,
    RequestTimedOut,
    error_for,
)
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = [
    "CONCURRENT_TRANSACTIONS_BACKOFF_S",
    "Answer",
    "Check",
    "RequestBuilder",
    "Results",
    "Retry",
    "find_target_again",
    "leader_of",
    "send_with_retries",
]

K = TypeVar("K")
V = TypeVar("V")

ATTEMPTS_KEPT: Final = 20
CONCURRENT_TRANSACTIONS_BACKOFF_S: Final = 0.02
"""The first pause after CONCURRENT_TRANSACTIONS: the last transaction's markers are written within milliseconds."""

Answer = tuple[K, KafkaError | int, V]
"""An item, its error or error code, and its result."""
Check = Callable[[Any], Error | int | None]
"""Returns the error or the error code of a response."""


class RequestBuilder(NamedTuple):
    """A request, or its class and `build`, which makes it for the broker's version. The request is not sent to a broker
    that speaks none of the versions from `at_least` to `at_most`."""

    request: Request | type[Request]
    build: Build | None = None
    at_most: int | None = None
    at_least: int = 0


class Results(Generic[K, V]):
    """The items of an operation: pending (with their last errors), succeeded and failed."""

    def __init__(self, items: Iterable[K]) -> None:
        self.pending: dict[K, Error | None] = dict.fromkeys(items)
        self.succeeded: dict[K, V] = {}
        self.failed: dict[K, BarnabasError] = {}

    def attempt_failed(self, item: K, error: Error, retriable: bool) -> None:
        if retriable:
            self.pending[item] = error
        else:
            del self.pending[item]
            self.failed[item] = error


def leader_of(client: NetworkClient, partition: TopicPartition) -> Node | LeaderNotAvailable | None:
    """Returns the partition's leader, or the reason why there is none now; None for a partition that is unknown."""
    view = client.metadata.partition(partition)
    if view is None:
        return None
    if view.leader >= 0:
        return Node(view.leader)
    replicas = ", ".join(map(str, view.replicas))
    return LeaderNotAvailable(f"{partition} has no leader (replicas on brokers {replicas})")


def find_target_again(client: NetworkClient, target: Target, error: Error) -> None:
    """Makes the client look up the coordinator or the controller again, if `error` may mean that it has moved."""
    if isinstance(target, Coordinator):
        if isinstance(error, ConnectionLost | NotCoordinator | CoordinatorNotAvailable | RequestTimedOut):
            client.forget_coordinator(target)
    elif target is CONTROLLER:
        client.metadata.request_update()


def send_with_retries(
    client: NetworkClient,
    request: Request | RequestBuilder,
    target: Target,
    *,
    timeout_s: float,
    check: Check | None = None,
) -> Promise[Any]:
    """Sends a request by `Retry.send` with a policy of its own, and returns the response."""
    return settle(Retry(client, timeout_s=timeout_s).send(request, target, check))


class Retry:
    """Sends the requests of one operation, again after a pause where that helps, until its deadline.

    Its coroutines are flows (`barnabas.connection.flow`), so they serve threads and event loops. `gave_up` begins the
    text of the OperationTimedOut that ends the operation.
    """

    def __init__(
        self,
        client: NetworkClient,
        *,
        timeout_s: float = NEVER,
        retries: float = float("inf"),
        gave_up: str = "gave up",
        attempts: list[Attempt] | None = None,
    ) -> None:
        self.client = client
        self.attempts = [] if attempts is None else attempts
        """The last failed attempts, oldest first."""
        self.has_sent = False
        """Whether an attempt was made, so that a broker may have got the request."""
        self.failures = 0
        """The number of failed attempts since the operation began."""
        self.retries = retries
        self.timeout_s = timeout_s
        self.deadline = client.now + timeout_s
        self._gave_up = gave_up
        self._last_error: Error | None = None

    # --- one request ------------------------------------------------------------------------------------------------

    async def send(
        self,
        request: Request | RequestBuilder,
        target: Target,
        check: Check | None = None,
        *,
        is_retriable: Callable[[KafkaError], bool] = lambda error: error.retriable,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Sends a request until it succeeds, and returns the response. Raises an error that is not retriable, the error
        of `given_up` at the deadline, or the last error when the response is not wanted any more (but never before the
        attempt in flight has ended)."""
        while True:
            try:
                return await self.send_once(request, target, check)
            except (KafkaError, ClientError) as error:
                retriable = is_retriable(error) if isinstance(error, KafkaError) else error.retriable
                if not retriable or not is_wanted():
                    raise
                await self.pause(error)
                if not is_wanted():
                    raise

    def send_once(
        self,
        request: Request | RequestBuilder,
        target: Target,
        check: Check | None = None,
        *,
        has_items: bool = False,
    ) -> Promise[Any]:
        """Makes one attempt, and notes its failure. At the deadline the attempt fails with OperationTimedOut."""
        self.has_sent = True
        promise: Promise[Any] = Promise()
        builder = request if isinstance(request, RequestBuilder) else RequestBuilder(request)

        def done(response: Any, error: Error | None) -> None:
            try:
                found = check(response) if error is None and check is not None else error
            except Exception as mistake:  # of the caller: it must not end the driver
                promise.fail(mistake)
                return
            if not found:
                promise.resolve(response)
                return
            if isinstance(found, int):
                found = error_for(found, getattr(response, "error_message", None) or "")
            self.note(found, target)
            promise.fail(found)

        kind, build, at_most, at_least = builder
        self.client.send(ClientRequest(kind, done, build=build, at_most=at_most, at_least=at_least), target)
        return self.end_at_deadline(promise, has_items=has_items)

    # --- several items ----------------------------------------------------------------------------------------------

    async def send_each(
        self,
        results: Results[K, V],
        target_of: Callable[[K], Target | KafkaError | None],
        request_for: Callable[[list[K]], Request | RequestBuilder],
        answers: Callable[[Any, list[K]], Iterable[Answer[K, V]]],
        *,
        is_retriable: Callable[[KafkaError], bool] = lambda error: error.retriable,
        on_success: Callable[[K, V], None] = lambda item, value: None,
        ends_with_first_failure: bool = False,
    ) -> None:
        """Sends each pending item to its target until the item has succeeded or failed. Items of one target share a
        request, and `answers` reads its response. `target_of` returns None for a target that the next metadata may
        show, or the reason why there is none yet."""

        def take(response: Promise[Any], items: list[K], target: Target) -> None:
            try:
                found = list(answers(response.result(), items))
            except (ClientError, KafkaError) as error:
                for item in items:
                    last = results.pending[item]
                    results.attempt_failed(
                        item, self.given_up(last) if isinstance(error, OperationTimedOut) else error, error.retriable
                    )
                return
            for item, code, value in found:
                if item in results.pending and code:
                    refusal = error_for(code) if isinstance(code, int) else code
                    self.note(refusal, target)
                    results.attempt_failed(item, refusal, is_retriable(refusal))
                elif item in results.pending:
                    del results.pending[item]
                    results.succeeded[item] = value
                    on_success(item, value)

        while results.pending:
            await self._send_round(results, target_of, request_for, take, ends_with_first_failure)
            if not results.pending or (results.failed and ends_with_first_failure):
                return
            self.failures += 1
            again = self.client.now + self.client.backoff_s(self.failures)
            lasting: Error | None = None
            if self.failures <= self.retries and again < self.deadline:
                error = await self._refresh_metadata()
                if isinstance(error, ClientClosed):
                    raise error
                if error is None or error.retriable:
                    await self.sleep_until(again)
                    continue
                lasting = None if isinstance(error, OperationTimedOut) else error
            for item, last in results.pending.items():
                results.failed[item] = lasting or self.given_up(last)
            results.pending.clear()

    async def _send_round(
        self,
        results: Results[K, V],
        target_of: Callable[[K], Target | KafkaError | None],
        request_for: Callable[[list[K]], Request | RequestBuilder],
        take: Callable[[Promise[Any], list[K], Target], None],
        ends_with_first_failure: bool,
    ) -> None:
        """Sends all pending items at once, and waits for the responses or for the first failure."""
        over: Promise[None] = Promise()
        targets: dict[Target, list[K]] = {}
        for item in list(results.pending):
            try:
                target = target_of(item)
            except KafkaError as error:
                results.attempt_failed(item, error, retriable=False)
                continue
            if isinstance(target, KafkaError):
                results.attempt_failed(item, target, retriable=True)
            elif target is not None:
                targets.setdefault(target, []).append(item)

        def answered(target: Target, response: Promise[Any]) -> None:
            if over.done:
                return
            try:
                take(response, targets.pop(target), target)
            except Exception as error:
                over.fail(error)
            if not targets or (results.failed and ends_with_first_failure):
                over.resolve(None)

        for target, items in list(targets.items()):
            self.send_once(request_for(items), target, has_items=True).on_done(partial(answered, target))
        if targets or over.done:
            await over

    # --- time -------------------------------------------------------------------------------------------------------

    async def pause(self, error: Error) -> None:
        """Waits after a failed attempt, longer after each. Raises the error of `given_up` if no time is left."""
        self.failures += 1
        backoff_s = self.client.backoff_s(self.failures)
        if isinstance(error, ConcurrentTransactions):
            backoff_s = min(backoff_s, CONCURRENT_TRANSACTIONS_BACKOFF_S * 2.0 ** min(self.failures - 1, 10))
        again = self.client.now + backoff_s
        if self.failures > self.retries or again >= self.deadline:
            raise self.given_up(error)
        await self.sleep_until(again)

    def sleep_until(self, when: float) -> Promise[None]:
        slept: Promise[None] = Promise()
        self.client.at(when, lambda: slept.resolve(None))
        return slept

    def end_at_deadline(self, promise: Promise[V], *, has_items: bool = False) -> Promise[V]:
        """Fails the promise at the deadline with the error that the operation ends with, which names the last failure.
        A request for items names none, because each item has a last failure of its own."""
        if self.deadline < NEVER and not promise.done:

            def fail() -> None:
                promise.fail(self.given_up(None if has_items else self._last_error))

            timer = self.client.at(self.deadline, fail)
            promise.on_done(lambda _: timer.cancel())
        return promise

    async def refresh_metadata(self) -> None:
        """Waits for metadata that is requested after this call. Raises OperationTimedOut, and errors that are not
        retriable: wrong credentials, wrong addresses."""
        while True:
            error = await self._refresh_metadata()
            if error is None:
                return
            if not error.retriable:
                raise error

    async def _refresh_metadata(self) -> Error | None:
        refreshed = self.end_at_deadline(self.client.refresh_metadata())
        try:
            await refreshed
        except (KafkaError, ClientError) as error:
            if self.client.closed:
                return ClientClosed("the client is closed")
            if self.client.now >= self.deadline:
                return self.given_up(None)
            self.note(error, CONTROLLER)
            return error
        return None

    # --- errors -----------------------------------------------------------------------------------------------------

    def note(self, error: Error, target: Target) -> None:
        """Notes a failed attempt for the error of the operation, and makes the client find a target that may have moved
        again."""
        self._last_error = error
        if isinstance(error, ClientError):
            new = error.attempts
        else:
            new = (Attempt(_name_of(target), "request", f"{error.kafka_name}: {error}", ""),)
        self.attempts += [attempt for attempt in new if attempt not in self.attempts[-len(new) :]]
        del self.attempts[:-ATTEMPTS_KEPT]
        find_target_again(self.client, target, error)

    def given_up(self, error: Error | None) -> Error:
        """Returns the error of the operation when its time or its attempts are over, given the last failure."""
        if isinstance(error, KafkaError | OperationTimedOut):
            return error
        attempts = tuple(self.attempts) or self.client.unreachable().attempts
        why = error or (self.client.unreachable() if attempts else "no answer came")
        return OperationTimedOut(f"{self._gave_up} after {spelled(self.timeout_s)}: {why}", attempts)


def _name_of(target: Target) -> str:
    if isinstance(target, Node):
        return f"broker {target.node_id}"
    if isinstance(target, Coordinator):
        return f"coordinator of {target.key!r}"
    return "controller" if target is CONTROLLER else "broker"
