"""One call of the application: requests to whoever must answer, again until each item has its end or the time is over.

The calls are flows (`barnabas.connection.flow`), so the same text serves both drivers.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from barnabas.connection.broker.client_request import Error
from barnabas.connection.network_client import NetworkClient, Target
from barnabas.connection.retry import Answer, RequestBuilder, Results, Retry
from barnabas.connection.timers import spelled
from barnabas.errors import (
    Attempt,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ItemsFailed,
    KafkaError,
    NotController,
    NotCoordinator,
    OperationTimedOut,
    ThrottlingQuotaExceeded,
    UnstableOffsetCommit,
)
from barnabas.protocol.schema import Request

__all__ = ["Answer", "Job", "Outcome", "Query", "controller_moves", "coordinator_moves"]

K = TypeVar("K")
V = TypeVar("V")

Query = RequestBuilder


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


class Outcome(Results[K, V]):
    """What became of each item."""

    def __init__(self, what: str, items: Iterable[K]) -> None:
        super().__init__(items)
        self.what = what
        self.attempts: tuple[Attempt, ...] = ()

    def result(self) -> dict[K, V]:
        """All of it, or raise ItemsFailed."""
        if self.failed:
            raise ItemsFailed(self.what, self.failed, self.succeeded, self.attempts)
        return self.succeeded


class Job(Retry):
    """The requests of one call of the administrator."""

    def __init__(
        self, client: NetworkClient, what: str, *, timeout_s: float, request_timeout_s: float, retries: int
    ) -> None:
        super().__init__(client, timeout_s=timeout_s, retries=retries, gave_up=f"{what} gave up")
        self.what = what
        self._request_timeout_s = request_timeout_s

    @property
    def timeout_ms(self) -> int:
        """How long a broker may work on a request."""
        left = max(self.deadline - self.client.now, 0.0)
        return round(min(left, self._request_timeout_s) * 1000)

    async def ask(
        self,
        request: Request | Query,
        to: Target,
        *,
        check: Callable[[Any], KafkaError | int] = lambda response: 0,
        again: Callable[[KafkaError], bool] = _any_passes,
    ) -> Any:
        """One response. `check` takes the error or its code out of it."""
        return await self.send(request, to, check, is_retriable=again)

    async def each(
        self,
        items: Collection[K],
        target: Callable[[K], Target | None],
        request: Callable[[list[K]], Request | Query],
        answers: Callable[[Any, list[K]], Iterable[Answer[K, V]]],
        *,
        again: Callable[[KafkaError], bool] = _any_passes,
    ) -> Outcome[K, V]:
        """The answer to each item, from its target; see `Retry.send_each`."""
        outcome: Outcome[K, V] = Outcome(self.what, items)
        await self.send_each(outcome, target, request, answers, is_retriable=again)
        outcome.attempts = tuple(self.attempts)
        return outcome

    async def fresh_metadata(self) -> None:
        await self.refresh_metadata()

    def given_up(self, error: Error | None) -> Error:
        """What a pending item ends with: what kept it from succeeding, and that time or tries are over."""
        if error is None or isinstance(error, OperationTimedOut):
            return super().given_up(error)
        if self.retries == 0:
            return error
        text = f"{self.what} gave up after {self.failures} tries, {spelled(self.timeout_s)} at most: {error}"
        given_up = OperationTimedOut(text, tuple(self.attempts))
        given_up.__cause__ = error
        return given_up
