"""One call of the application: requests to whoever must answer, again until each item has its end or the time is over.

The calls are flows (`barnabas.connection.flow`), so the same text serves both drivers.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.connection.broker.client_request import Build, ClientRequest
from barnabas.connection.network_client import CONTROLLER, HOPELESS, Coordinator, NetworkClient, Node, Target
from barnabas.connection.promise import Promise
from barnabas.errors import (
    Attempt,
    BarnabasError,
    ClientClosed,
    ClientError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ItemsFailed,
    KafkaError,
    NotController,
    NotCoordinator,
    OperationTimedOut,
    ThrottlingQuotaExceeded,
    UnstableOffsetCommit,
    UnsupportedVersion,
    error_for,
)
from barnabas.protocol.schema import Request

__all__ = ["Answer", "Job", "Outcome", "Query", "controller_moves", "coordinator_moves"]

K = TypeVar("K")
V = TypeVar("V")

ATTEMPTS_KEPT: Final = 20

Answer = tuple[K, KafkaError | int, V]
"""(item, its error or error code, what is told of it)."""


class Query(NamedTuple):
    """A request whose form depends on the version. What an older one than `at_least` answers is not believed: it
    ignores what the newer one asks for."""

    request: Request | type[Request]
    build: Build | None = None
    at_most: int | None = None
    at_least: int = 0


def controller_moves(error: KafkaError) -> bool:
    """Whether the controller may answer otherwise soon; all else it says is meant."""
    return isinstance(error, NotController | ThrottlingQuotaExceeded)


def coordinator_moves(error: KafkaError) -> bool:
    """Whether a coordinator, this one or another, may answer otherwise soon."""
    return isinstance(
        error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator | UnstableOffsetCommit
    )


def _any_passes(error: KafkaError) -> bool:
    return error.retriable


class Outcome(Generic[K, V]):
    """What became of each item."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.succeeded: dict[K, V] = {}
        self.failed: dict[K, BarnabasError] = {}
        self.attempts: tuple[Attempt, ...] = ()

    def result(self) -> dict[K, V]:
        """All of it, or raise ItemsFailed."""
        if self.failed:
            raise ItemsFailed(self.what, self.failed, self.succeeded, self.attempts)
        return self.succeeded

    def only(self) -> V:
        """Of one item: its result, or raise its error."""
        for error in self.failed.values():
            raise error
        return next(iter(self.succeeded.values()))


class Job:
    """See the module."""

    def __init__(
        self, client: NetworkClient, what: str, *, timeout_s: float, request_timeout_s: float, retries: int
    ) -> None:
        self.client = client
        self.what = what
        self._timeout_s = timeout_s
        self._until = client.now + timeout_s
        self._request_timeout_s = request_timeout_s
        self._retries = retries
        self._attempts: list[Attempt] = []

    @property
    def timeout_ms(self) -> int:
        """How long a broker may work on a request."""
        left = max(self._until - self.client.now, 0.0)
        return round(min(left, self._request_timeout_s) * 1000)

    # --- asking -----------------------------------------------------------------------------------------------------

    async def ask(
        self,
        request: Request | Query,
        to: Target,
        *,
        check: Callable[[Any], KafkaError | int] = lambda response: 0,
        again: Callable[[KafkaError], bool] = _any_passes,
    ) -> Any:
        """One response. `check` takes the error or its code out of it."""
        outcome = await self.each(
            [to], lambda _: to, lambda _: request, lambda response, _: [(to, check(response), response)], again=again
        )
        return outcome.only()

    async def each(
        self,
        items: Collection[K],
        target: Callable[[K], Target | None],
        request: Callable[[list[K]], Request | Query],
        answers: Callable[[Any, list[K]], Iterable[Answer[K, V]]],
        *,
        again: Callable[[KafkaError], bool] = _any_passes,
    ) -> Outcome[K, V]:
        """The answer to each item, from its target; None stands for one that is not known before fresh metadata.

        Items of one target share a request; `answers` gets the response and its items.
        What fails for a reason that passes (`again`) is asked again.
        """
        outcome: Outcome[K, V] = Outcome(self.what)
        pending: dict[K, BarnabasError | None] = dict.fromkeys(items)
        failures = 0
        while pending:
            await self._round(pending, outcome, target, request, answers, again)
            if not pending:
                break
            failures += 1
            if failures > self._retries or not await self._pause(failures):
                for item, error in pending.items():
                    outcome.failed[item] = self._given_up(error, failures)
                break
        outcome.attempts = tuple(self._attempts)
        return outcome

    async def _round(
        self,
        pending: dict[K, BarnabasError | None],
        outcome: Outcome[K, V],
        target: Callable[[K], Target | None],
        request: Callable[[list[K]], Request | Query],
        answers: Callable[[Any, list[K]], Iterable[Answer[K, V]]],
        again: Callable[[KafkaError], bool],
    ) -> None:
        """Ask for all that is pending, at once."""
        targets: dict[Target, list[K]] = {}
        for item in list(pending):
            try:
                to = target(item)
            except KafkaError as error:
                del pending[item]
                outcome.failed[item] = error
                continue
            if to is not None:
                targets.setdefault(to, []).append(item)
        asked = [(to, sharing, self._send(request(sharing), to)) for to, sharing in targets.items()]
        for to, sharing, promise in asked:
            answered: Iterable[Answer[K, V]] = ()
            try:
                answered = answers(await promise, sharing)
            except (ClientError, KafkaError) as error:
                for item in sharing:
                    self._failed(item, error, to, pending, outcome, again=lambda e: e.retriable)
            for item, found, value in answered:
                if item not in pending:
                    continue
                if found:
                    told = error_for(found) if isinstance(found, int) else found
                    self._failed(item, told, to, pending, outcome, again=again)
                else:
                    del pending[item]
                    outcome.succeeded[item] = value

    def _failed(
        self,
        item: K,
        error: KafkaError | ClientError,
        to: Target,
        pending: dict[K, BarnabasError | None],
        outcome: Outcome[K, V],
        *,
        again: Callable[[Any], bool],
    ) -> None:
        self._note(error, to)
        if (isinstance(error, ClientError) and error.retriable) or (isinstance(error, KafkaError) and again(error)):
            pending[item] = error
        else:
            del pending[item]
            outcome.failed[item] = error

    def _send(self, request: Request | Query, to: Target) -> Promise[Any]:
        """One try, which ends with the job at the latest."""
        promise: Promise[Any] = Promise()
        query = request if isinstance(request, Query) else Query(request)

        def done(response: Any, error: BarnabasError | None) -> None:
            if error is None and call.version < query.at_least:
                error = UnsupportedVersion(f"the broker is too old for this: it speaks {call.name} v{call.version}")
            if error is None:
                promise.resolve(response)
            else:
                promise.fail(error)

        call = ClientRequest(query.request, done, build=query.build, at_most=query.at_most)
        timer = self.client.at(self._until, lambda: promise.fail(self._silence()))
        promise.on_done(lambda _: timer.cancel())
        self.client.send(call, to)
        return promise

    # --- between two rounds -----------------------------------------------------------------------------------------

    async def _pause(self, failures: int) -> bool:
        """Wait, longer with each failure, and have metadata fresh; False when the time is over."""
        client = self.client
        again = client.now + client.backoff_s(failures)
        if again >= self._until:
            return False
        await self._at_latest(client.refresh_metadata())
        if client.closed:
            raise ClientClosed("the client is closed")
        await self._sleep_until(again)
        return client.now < self._until

    async def fresh_metadata(self) -> None:
        """Of the topics that are wanted, asked for after this call. Raises OperationTimedOut, and what no waiting
        mends: wrong credentials, wrong addresses."""
        while not await self._at_latest(promise := self.client.refresh_metadata()):
            if self.client.closed:
                raise ClientClosed("the client is closed")
            if isinstance(promise.error, HOPELESS):
                raise promise.error
            if self.client.now >= self._until:
                raise self._silence()

    async def _at_latest(self, promise: Promise[None]) -> bool:
        """Wait for it; whether it succeeded, in time."""
        either: Promise[bool] = Promise()
        timer = self.client.at(self._until, lambda: either.resolve(False))
        promise.on_done(lambda settled: either.resolve(settled.error is None))
        succeeded = await either
        timer.cancel()
        if isinstance(promise.error, ClientError | KafkaError):
            self._note(promise.error, CONTROLLER)
        return succeeded

    async def _sleep_until(self, when: float) -> None:
        slept: Promise[None] = Promise()
        self.client.at(min(when, self._until), lambda: slept.resolve(None))
        await slept

    # --- errors -----------------------------------------------------------------------------------------------------

    def _note(self, error: KafkaError | ClientError, to: Target) -> None:
        if isinstance(error, ClientError):
            new = error.attempts
        else:
            new = (Attempt(_where(to), "request", f"{error.kafka_name}: {error}", ""),)
        self._attempts += [attempt for attempt in new if attempt not in self._attempts[-len(new) :]]
        del self._attempts[:-ATTEMPTS_KEPT]
        if isinstance(to, Coordinator) and isinstance(error, NotCoordinator | CoordinatorNotAvailable | ClientError):
            self.client.forget_coordinator(to)

    def _silence(self) -> OperationTimedOut:
        attempts = tuple(self._attempts) or self.client.unreachable().attempts
        why = self.client.unreachable() if attempts else "no answer came"
        return OperationTimedOut(f"{self.what} gave up after {self._timeout_s:g} s: {why}", attempts)

    def _given_up(self, error: BarnabasError | None, tries: int) -> BarnabasError:
        """What a pending item ends with: what kept it from succeeding, and that time or tries are over."""
        if error is None:
            return self._silence()
        if isinstance(error, OperationTimedOut) or self._retries == 0:
            return error
        text = f"{self.what} gave up after {tries} tries, {self._timeout_s:g} s at most: {error}"
        given_up = OperationTimedOut(text, tuple(self._attempts))
        given_up.__cause__ = error
        return given_up


def _where(to: Target) -> str:
    if isinstance(to, Node):
        return f"broker {to.node_id}"
    return (
        f"coordinator of {to.key!r}" if isinstance(to, Coordinator) else "controller" if to is CONTROLLER else "broker"
    )
