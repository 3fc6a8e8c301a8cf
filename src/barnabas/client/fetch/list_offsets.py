"""Questions about partitions that only their leaders answer: offsets by time, ends of epochs.

One request to each leader; what fails for a passing reason is asked again once metadata is fresh.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from barnabas.client.offset_messages import (
    PartitionOffset,
    epoch_answers,
    epoch_request,
    offset_answers,
    offset_request,
)
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import HOPELESS, NetworkClient, Node
from barnabas.connection.promise import Promise
from barnabas.connection.timers import spelled
from barnabas.errors import Attempt, ClientError, KafkaError, OperationTimedOut, TopicNotFound, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["ask_leaders", "epoch_ends", "list_offsets"]

REQUEST_MAX_S: Final = 86_400.0
"""That a broker is told to work on a request, where the caller has no end to its patience."""

T = TypeVar("T")
Answers = Callable[[Any], Iterable[tuple[TopicPartition, int, T]]]
Each = Callable[[TopicPartition, T], None]

ATTEMPTS_KEPT: Final = 20


def list_offsets(
    client: NetworkClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_s: float,
    each: Each[PartitionOffset] | None = None,
) -> Promise[dict[TopicPartition, PartitionOffset]]:
    """The first offset at or after each timestamp (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP; offset -1: none."""

    def request(partitions: list[TopicPartition]) -> Request:
        wanted = {where: timestamps[where] for where in partitions}
        epochs = _leader_epochs(client, partitions)
        return offset_request(
            wanted,
            read_committed=read_committed,
            timeout_ms=round(min(timeout_s, REQUEST_MAX_S) * 1000),
            leader_epochs=epochs,
        )

    return ask_leaders(client, list(timestamps), request, offset_answers, timeout_s, each)


def epoch_ends(
    client: NetworkClient,
    epochs: Mapping[TopicPartition, int],
    timeout_s: float,
    each: Each[tuple[int, int]] | None = None,
) -> Promise[dict[TopicPartition, tuple[int, int]]]:
    """(epoch, end offset) of the largest epoch that is not above the asked one; -1 for none."""

    def request(partitions: list[TopicPartition]) -> Request:
        return epoch_request({where: epochs[where] for where in partitions}, _leader_epochs(client, partitions))

    return ask_leaders(client, list(epochs), request, epoch_answers, timeout_s, each)


def _leader_epochs(client: NetworkClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """What we take for the leaders' epochs: a leader of another one says so, instead of answering for a log that may
    be cut yet."""
    found = {}
    for where in partitions:
        view = client.metadata.partition(where)
        if view is not None:
            found[where] = view.leader_epoch
    return found


def ask_leaders(
    client: NetworkClient,
    partitions: list[TopicPartition],
    request: Callable[[list[TopicPartition]], Request],
    answers: Answers[T],
    timeout_s: float,
    each: Each[T] | None = None,
) -> Promise[dict[TopicPartition, T]]:
    """The answer of each partition's leader; `each` hears them as they come. Fails with the first error that does not
    pass, with the last one when the time is over, or with OperationTimedOut and what was tried."""
    return _Asking(client, partitions, request, answers, timeout_s, each).promise


class _Asking(Generic[T]):
    def __init__(
        self,
        client: NetworkClient,
        partitions: list[TopicPartition],
        request: Callable[[list[TopicPartition]], Request],
        answers: Answers[T],
        timeout_s: float,
        each: Each[T] | None,
    ) -> None:
        self.promise: Promise[dict[TopicPartition, T]] = Promise()
        self._client = client
        self._pending = dict.fromkeys(partitions)
        self._request = request
        self._answers = answers
        self._timeout_s = timeout_s
        self._each = each
        self._found: dict[TopicPartition, T] = {}
        self._open = 0
        """Requests without an answer."""
        self._failures = 0
        self._last: Error | None = None
        self._attempts: list[Attempt] = []
        if timeout_s < float("inf"):
            timer = client.at(client.now + timeout_s, self._give_up)
            self.promise.on_done(lambda _: timer.cancel())
        client.want_topics({where.topic for where in partitions})
        self._round()

    def _round(self) -> None:
        """Ask for all that has no answer yet."""
        if self.promise.done:
            return
        nodes: dict[int, list[TopicPartition]] = {}
        for where in self._pending:
            leader = self._client.metadata.leader(where)
            if leader >= 0:
                nodes.setdefault(leader, []).append(where)
        asked = sum(map(len, nodes.values()))
        self._open = len(nodes) + 1
        for node_id, partitions in nodes.items():
            self._ask(node_id, partitions)
        if asked < len(self._pending):
            self._client.metadata.mark_stale()
        self._ended()

    def _ask(self, node_id: int, partitions: list[TopicPartition]) -> None:
        def done(response: Any, error: Error | None) -> None:
            if self.promise.done:
                return
            if error is not None:
                self._note(error)
            else:
                self._take(response)
            self._ended()

        self._client.send(ClientRequest(self._request(partitions), done), Node(node_id))

    def _take(self, response: Any) -> None:
        for where, code, answer in self._answers(response):
            if where not in self._pending:
                continue
            if code:
                self._note(error_for(code, f"{where}: {error_for(code)}"))
            else:
                del self._pending[where]
                self._found[where] = answer
                if self._each is not None:
                    self._each(where, answer)

    def _note(self, error: Error) -> None:
        self._last = error
        if isinstance(error, ClientError):
            self._attempts = [*self._attempts, *error.attempts][-ATTEMPTS_KEPT:]
        if not error.retriable:
            self.promise.fail(error)

    def _ended(self) -> None:
        """One answer less to wait for; after the last one see what is missing."""
        self._open -= 1
        if self._open or self.promise.done:
            return
        if not self._pending:
            self.promise.resolve(self._found)
            return
        self._failures += self._last is not None
        again = self._client.now + self._client.backoff_s(self._failures)

        def refreshed(asked: Promise[None]) -> None:
            if isinstance(asked.error, HOPELESS):
                self.promise.fail(asked.error)
            else:
                self._client.at(again, self._round)

        self._client.refresh_metadata().on_done(refreshed)

    def _give_up(self) -> None:
        unknown = next((where for where in self._pending if self._client.metadata.partition(where) is None), None)
        if isinstance(self._last, KafkaError):
            self.promise.fail(self._last)
        elif unknown is not None and self._client.metadata.version and not self._attempts:
            self.promise.fail(self._why_not(unknown))
        else:
            attempts = tuple(self._attempts) or self._client.unreachable().attempts
            why = self._last or (self._client.unreachable() if attempts else "no answer came")
            self.promise.fail(OperationTimedOut(f"gave up after {spelled(self._timeout_s)}: {why}", attempts))

    def _why_not(self, where: TopicPartition) -> KafkaError:
        topic = self._client.metadata.topic(where.topic)
        if topic is None:
            return self._client.metadata.why_not(where.topic)
        last = len(topic.partitions) - 1
        return TopicNotFound(f"topic {where.topic!r} has partitions 0 to {last}, there is no {where.partition}")
