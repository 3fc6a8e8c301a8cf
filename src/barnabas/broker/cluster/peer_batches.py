"""Gathers small questions to other brokers into requests: many entries in one request, few requests in flight.

A request leaves at the end of the turn of the loop in which its first entry came, so that it has the entries of the
whole turn. While as many requests as allowed are in flight, entries gather for the next one.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from barnabas.broker.peers.peer_connections import Role
from barnabas.broker.process.failure_log import FailureLog
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.errors import ClientClosed
from barnabas.protocol.schema import Request

__all__ = ["ENTRIES_MAX", "ITEMS_MAX", "QUEUED_MAX", "Entry", "PeerBatches", "RequestSender"]

ENTRIES_MAX: Final = 1_000
"""The bound on the entries of one request."""
ITEMS_MAX: Final = 10_000
"""The bound on the partitions of one request; a single entry may have more."""
QUEUED_MAX: Final = 10_000
"""The bound on the entries that wait for requests to one broker."""


class RequestSender(Protocol):
    """`PeerConnections`, of which only this is used."""

    def send_request(self, node_id: int, request: ClientRequest, *, role: Role) -> None:
        """Sends a request, and calls its `done` when it ends, perhaps before this returns."""


class Entry(Protocol):
    """A part of a request, with its own answer."""

    @property
    def key(self) -> Hashable:
        """Entries of one key never share a request, because the response could not tell them apart."""

    @property
    def items(self) -> int:
        """The number of its partitions."""


E = TypeVar("E", bound=Entry)
R = TypeVar("R")


class _Node(Generic[E]):
    """The entries for one broker."""

    def __init__(self) -> None:
        self.queued: deque[E] = deque()
        self.in_flight: dict[int, list[E]] = {}
        self.sent = 0
        self.is_scheduled = False


class PeerBatches(Generic[E, R]):
    """The queues of one kind of request, by broker. Each entry gets exactly one of `answered` and `failed`."""

    def __init__(
        self,
        peers: Callable[[], RequestSender | None],
        call_soon: Callable[[Callable[[], None]], object],
        failures: FailureLog,
        *,
        request: Callable[[list[E]], Request],
        results: Callable[[Any], R],
        answered: Callable[[int, E, R], None],
        failed: Callable[[int, E, Error], None],
        in_flight_max: int,
        timeout_s: float,
        at_least: int,
    ) -> None:
        """`request` makes the request of some entries, and `results` reads its response for all of them. `answered` and
        `failed` get the broker. A broker that does not serve version `at_least` does not get the request."""
        self._peers = peers
        self._call_soon = call_soon
        self._failures = failures
        self._request = request
        self._results = results
        self._answered = answered
        self._failed = failed
        self._in_flight_max = in_flight_max
        self._timeout_s = timeout_s
        self._at_least = at_least
        self._nodes: dict[int, _Node[E]] = {}

    def add(self, node_id: int, entry: E) -> bool:
        """Queues an entry for a broker. Returns False, and does nothing, if too many wait."""
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node()
        if len(node.queued) >= QUEUED_MAX:
            return False
        node.queued.append(entry)
        self._schedule(node_id, node)
        return True

    def drop(self, is_gone: Callable[[int], bool], error: Error) -> None:
        """Fails all entries for brokers that are gone, also those in flight: a broker that hangs answers nobody."""
        for node_id in [node_id for node_id in self._nodes if is_gone(node_id)]:
            node = self._nodes.pop(node_id)
            batches = [*node.in_flight.values(), [*node.queued]]
            node.in_flight.clear()
            node.queued.clear()
            for entries in batches:
                self._end(node_id, entries, None, error)

    def _schedule(self, node_id: int, node: _Node[E]) -> None:
        if node.queued and not node.is_scheduled and len(node.in_flight) < self._in_flight_max:
            node.is_scheduled = True
            self._call_soon(lambda: self._send(node_id, node))

    def _send(self, node_id: int, node: _Node[E]) -> None:
        node.is_scheduled = False
        entries = _taken(node.queued)
        if not entries:
            return  # dropped meanwhile
        number = node.sent = node.sent + 1
        node.in_flight[number] = entries

        def done(response: Any, error: Error | None) -> None:
            if node.in_flight.pop(number, None) is not None:  # not dropped meanwhile
                self._schedule(node_id, node)
                self._end(node_id, entries, response, error)

        peers = self._peers()
        if peers is None:
            done(None, ClientClosed("this broker has no connections to others"))
            return
        request = ClientRequest(self._request(entries), done, at_least=self._at_least, timeout_s=self._timeout_s)
        peers.send_request(node_id, request, role=Role.TRANSACTION)
        self._schedule(node_id, node)

    def _end(self, node_id: int, entries: list[E], response: Any, error: Error | None) -> None:
        results = self._results(response) if error is None else None
        for entry in entries:
            try:
                if error is not None:
                    self._failed(node_id, entry, error)
                else:
                    self._answered(node_id, entry, cast(R, results))
            except Exception as bug:  # of whoever asked: the others must get their answers
                self._failures.report(f"the answer of broker {node_id} about {entry.key}", bug)


def _taken(queued: "deque[E]") -> list[E]:
    """Takes the entries of the next request from the queue. An entry whose key is in the request already stays."""
    entries: list[E] = []
    left: list[E] = []
    keys: set[Hashable] = set()
    items = 0
    while queued and len(entries) + len(left) < ENTRIES_MAX:
        entry = queued[0]
        if entries and items + entry.items > ITEMS_MAX:
            break
        queued.popleft()
        if entry.key in keys:
            left.append(entry)
            continue
        keys.add(entry.key)
        entries.append(entry)
        items += entry.items
    queued.extendleft(reversed(left))
    return entries
