"""A world for engines without sockets: brokers that are state machines, a clock that jumps, a network in our hands.

`World.run` lets everything happen at once; tests that want delays, losses or duplicates move single requests with
`deliver`, `answer` and `cut`.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.network_client import NetworkClient, NetworkClientSettings
from barnabas.connection.promise import Promise
from barnabas.errors import Attempt
from barnabas.protocol.apis import SERVED, message_classes, request_header_version, response_header_version
from barnabas.protocol.codec import decode, encode, read_uvarint
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Handler = Callable[["Asked"], Any]
SILENT = object()
"""What a handler returns for a broker that never answers, nor what comes after it on the connection."""


class Asked:
    """A request as a broker sees it."""

    def __init__(self, node_id: int, api_key: int, version: int, correlation_id: int, request: Any) -> None:
        self.node_id = node_id
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.came_at = 0.0


class Link:
    """One connection: requests that have come to the broker and are not answered yet."""

    def __init__(self, number: int, node_id: int) -> None:
        self.number = number
        self.node_id = node_id
        self.pending: deque[Asked] = deque()
        self.stalled = False
        self._buffer = b""

    def take(self, data: bytes, now: float) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            asked = read_request(self.node_id, frame)
            asked.came_at = now
            self.pending.append(asked)


def read_request(node_id: int, frame: bytes) -> Asked:
    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    correlation_id = int.from_bytes(frame[4:8], "big")
    position = 10 + int.from_bytes(frame[8:10], "big")
    if request_header_version(api_key, version) >= 2:
        count, position = read_uvarint(frame, position)
        assert count == 0
    request, end = decode(message_classes(api_key)[0], version, frame, position)
    assert end == len(frame), f"{len(frame) - end} bytes follow the request {request}"
    return Asked(node_id, api_key, version, correlation_id, request)


def frame_response(asked: Asked, response: Any, version: int | None = None) -> bytes:
    version = asked.version if version is None else version
    head = asked.correlation_id.to_bytes(4, "big")
    if response_header_version(asked.api_key, version):
        head += b"\0"
    body = head + encode(response, version)
    return len(body).to_bytes(4, "big") + body


class World:
    """Brokers 1 to `nodes` at host "n1", "n2" ...; the bootstrap address is "boot", which is any of them."""

    def __init__(self, *, nodes: int = 1, seed: int = 0, connection: ConnectionSettings | None = None, **settings: Any):
        self.now = 1000.0
        self.rng = random.Random(seed)
        self.up = set(range(1, nodes + 1))
        self.nodes = nodes
        self.topics: dict[str, dict[int, int]] = {}
        """Leaders by topic and partition; -1 for none."""
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_errors: dict[str, int] = {}
        self.versions = {key: (served.first, served.last) for key, served in SERVED.items()}
        self.coordinator = 1
        self.handlers: dict[int, Handler] = {18: self._api_versions, 3: self._metadata, 10: self._find_coordinator}
        self.asked: list[Asked] = []
        """Every request that was handled, in order."""
        self.links: dict[int, Link] = {}
        self.connected: list[str] = []
        self.network_client = NetworkClient(
            NetworkClientSettings((("boot", 9092),), connection or ConnectionSettings(), **settings),
            self.now,
            random.Random(seed),
        )

    # --- the network ------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Let the network client act at this moment; whether it did anything."""
        self.network_client.advance(self.now)
        connects, output, closes = (
            self.network_client.take_connects(),
            self.network_client.take_output(),
            self.network_client.take_closes(),
        )
        for order in connects:
            self.connected.append(order.host)
            node_id = min(self.up, default=0) if order.host == "boot" else int(order.host[1:])
            if node_id in self.up:
                self.links[order.number] = Link(order.number, node_id)
                self.network_client.connected(order.number, self.now)
            else:
                attempt = Attempt(f"{order.host}:{order.port}", "tcp", "connection refused", "is it running?")
                self.network_client.lost(order.number, (attempt,), self.now)
        for number, buffers in output:
            if number in self.links:
                self.links[number].take(b"".join(buffers), self.now)
        for number in closes:
            self.links.pop(number, None)
        return bool(connects or output or closes)

    def answer(self, link: Link) -> None:
        """Handle the oldest request of a connection, and let its answer arrive."""
        data = self.handle(link)
        if data is not None and link.number in self.links:
            self.network_client.received(link.number, data, self.now)

    def handle(self, link: Link) -> bytes | None:
        """The answer's frame; None if there is none to send."""
        asked = link.pending.popleft()
        self.asked.append(asked)
        response = self.handlers[asked.api_key](asked)
        if response is SILENT:
            link.stalled = True
            return None
        if response is None or isinstance(response, bytes):
            return response
        return frame_response(asked, response)

    def cut(self, link: Link) -> None:
        """The connection breaks; what was not handled never is."""
        if self.links.pop(link.number, None) is not None:
            attempt = Attempt(f"n{link.node_id}:9092", "request", "connection reset by peer", "")
            self.network_client.lost(link.number, (attempt,), self.now)

    def stop(self, node_id: int) -> None:
        self.up.discard(node_id)
        for link in [link for link in self.links.values() if link.node_id == node_id]:
            self.cut(link)

    def run(self, until: Callable[[], bool] = lambda: False, *, seconds: float = 3600.0) -> bool:
        """Answer everything at once; jump to the next deadline when nothing is left. False when the time is over."""
        end = self.now + seconds
        while not until():
            if self.turn():
                continue
            waiting = [link for link in self.links.values() if link.pending and not link.stalled]
            if waiting:
                self.answer(waiting[0])
                continue
            if until():
                break
            due = self.network_client.next_deadline()
            if due > end:
                self.now = self.network_client.now = max(self.now, end)
                return False
            self.now = max(self.now + 1e-6, due)
        return True

    def result(self, promise: Promise[Any], *, seconds: float = 3600.0) -> Any:
        assert self.run(lambda: promise.done, seconds=seconds), "the promise is not settled"
        return promise.result()

    def count(self, api_key: int) -> int:
        return sum(asked.api_key == api_key for asked in self.asked)

    # --- the brokers ------------------------------------------------------------------------------------------------

    def _api_versions(self, asked: Asked) -> Any:
        known = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in self.versions.items()]
        if asked.version > self.versions[18][1]:
            return frame_response(asked, ApiVersionsResponse(error_code=35, api_keys=known), 0)
        return ApiVersionsResponse(api_keys=known)

    def _metadata(self, asked: Asked) -> Any:
        names = [topic.name for topic in asked.request.topics] if asked.request.topics is not None else [*self.topics]
        topics = []
        for name in names:
            error = self.topic_errors.get(name, 0 if name in self.topics else 3)
            partitions = [
                MetadataResponsePartition(
                    error_code=5 if leader < 0 else 0,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.epochs.get((name, index), 0),
                    replica_nodes=[*range(1, self.nodes + 1)],
                    isr_nodes=[1],
                )
                for index, leader in self.topics.get(name, {}).items()
            ]
            topics.append(MetadataResponseTopic(error_code=error, name=name, partitions=[] if error else partitions))
        brokers = [MetadataResponseBroker(node_id=i, host=f"n{i}", port=9092) for i in range(1, self.nodes + 1)]
        return MetadataResponse(brokers=brokers, cluster_id="sim", controller_id=1, topics=topics)

    def _find_coordinator(self, asked: Asked) -> Any:
        host = f"n{self.coordinator}"
        if asked.version >= 4:
            found = [
                Coordinator(key=key, node_id=self.coordinator, host=host, port=9092)
                for key in asked.request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        return FindCoordinatorResponse(node_id=self.coordinator, host=host, port=9092)
