"""The network between the brokers of a test's cluster: links that can be cut and slowed down, each direction by itself.

Every broker advertises to the others an address of this proxy, which passes the bytes on. A connection begins with the
client id `broker-N`, by which the proxy knows who connects. A cut link holds bytes and the ends of connections back, as
a cable that is pulled does: both sides notice by their timeouts only, and after `heal` the bytes arrive late. While a
broker does not listen, the proxy refuses connections to it, as the broker's host does.
"""

import asyncio
import itertools
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from barnabas.testing.ports import ReservedPort
from barnabas.testing.waiting import result_within

__all__ = ["Links"]

_FIRST_FRAME: Final = struct.Struct(">ihhih")
"""Length, API key, version, correlation id, length of the client id."""
_CLIENT_ID: Final = re.compile(rb"broker-(\d+)")
_CLIENT_ID_MAX: Final = 64
_WAITING_BYTES_MAX: Final = 1 << 20
"""The bytes of one direction of a connection that wait for a slow link, before no more are read."""
_PATIENCE_S: Final = 30.0
_REFUSED_S: Final = 0.05
"""The time for which connections are refused after one that found nobody listening."""

Link = tuple[int, int]
"""The node ids of the sender and the receiver."""


class _Chunk(NamedTuple):
    """Bytes that are to be passed on at a time of the event loop; none for the end of the connection."""

    due: float
    data: bytes


class Links:
    """The links between the brokers of one cluster, served by a thread. The methods return when they apply."""

    def __init__(self, brokers: Mapping[int, int]) -> None:
        """`brokers` has the port on which each broker listens for the others, by node id."""
        self._node_ids = tuple(brokers)
        self._cut: set[Link] = set()
        self._delays: dict[Link, float] = {}
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._targets = brokers
        self._ports = {node_id: ReservedPort() for node_id in brokers}
        self._servers: dict[int, asyncio.Server] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-links", daemon=True)
        self._thread.start()
        try:
            for node_id in brokers:
                result_within(asyncio.run_coroutine_threadsafe(self._listen(node_id), self._loop), _PATIENCE_S)
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> dict[int, int]:
        """The port of the proxy for each broker."""
        return {node_id: port.number for node_id, port in self._ports.items()}

    async def _listen(self, node_id: int) -> None:
        listener = socket.create_server(("127.0.0.1", self._ports[node_id].number), backlog=100)
        target = self._targets[node_id]
        self._servers[node_id] = await self._loop.create_server(
            lambda: _Connection(self, node_id, target).near, sock=listener
        )

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self, links: Iterable[Link]) -> None:
        """Stops the bytes on these links."""
        wanted = tuple(links)
        self._apply(lambda: self._cut.update(wanted))

    def slow(self, links: Iterable[Link], delay_s: float) -> None:
        """Delays the bytes on these links, which stay in their order; 0 ends that. Bytes that were held back for longer
        wait so long as well."""
        wanted = tuple(links)
        self._apply(lambda: self._delays.update(dict.fromkeys(wanted, delay_s)))

    def heal(self) -> None:
        """Makes all links whole and fast again; what was held back goes out at once."""

        def heal() -> None:
            self._cut.clear()
            self._delays.clear()

        self._apply(heal)

    def is_whole(self, node_id: int) -> bool:
        """Returns whether no link from or to the broker is cut."""
        return not any(node_id in link for link in self._cut)

    def is_cut_between(self, one: int, other: int) -> bool:
        """Returns whether the link between two brokers is cut, at least one way."""
        return not self._cut.isdisjoint(((one, other), (other, one)))

    def all_links(self) -> Iterable[Link]:
        return itertools.permutations(self._node_ids, 2)

    def _apply(self, change: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def apply() -> None:
            change()
            for connection in tuple(self._connections):
                connection.links_changed()
            done.set_result(None)

        self._loop.call_soon_threadsafe(apply)
        result_within(done, _PATIENCE_S)

    def close(self) -> None:
        """Ends the proxy with all its connections."""

        def end() -> None:
            for connection in tuple(self._connections):
                connection.abort()
            for server in self._servers.values():
                server.close()
            self._loop.call_soon(self._loop.stop)  # after the callbacks of the connections that end

        self._loop.call_soon_threadsafe(end)
        self._thread.join(_PATIENCE_S)
        for port in self._ports.values():
            port.release()
        self._loop.close()

    # --- for the connections ----------------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def opened(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def ended(self, connection: "_Connection") -> None:
        self._connections.discard(connection)

    def refuse(self, node_id: int) -> None:
        """Refuses connections to a broker for a moment, because nobody listens there."""
        server = self._servers.pop(node_id, None)
        if server is not None:
            server.close()
            self._loop.call_later(_REFUSED_S, lambda: self._loop.create_task(self._listen(node_id)))

    def is_cut(self, link: Link) -> bool:
        return link in self._cut

    def delay_of(self, link: Link) -> float:
        return self._delays.get(link, 0.0)


class _End(asyncio.Protocol):
    """One end of a connection through the proxy. What it receives waits here until the link passes it on."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.waiting: deque[_Chunk] = deque()
        self.waiting_bytes = 0
        self.receiver_full = False
        """Whether the other end cannot take more."""
        self._reads = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connection.made(self)

    def data_received(self, data: bytes) -> None:
        self._connection.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.received(self, b"")

    def pause_writing(self) -> None:
        self._connection.other(self).receiver_full = True
        self._connection.pump(self._connection.other(self))

    def resume_writing(self) -> None:
        self._connection.other(self).receiver_full = False
        self._connection.pump(self._connection.other(self))

    def read(self, wanted: bool) -> None:
        """Starts or stops reading."""
        if wanted != self._reads and self.transport is not None and not self.transport.is_closing():
            self._reads = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()


class _Connection:
    """A connection from one broker to another: the near end was accepted, the far end connects to the listener once the
    first bytes may pass."""

    def __init__(self, links: Links, target: int, port: int) -> None:
        self._links = links
        self._target = target
        self._port = port
        self._source: int | None = None
        """The node id of the broker that connects; None until it is known, 0 for somebody else."""
        self.near = _End(self)
        self.far = _End(self)
        self._connecting: asyncio.Task[None] | None = None
        self._begun = b""
        self._timers: dict[_End, asyncio.TimerHandle] = {}
        links.opened(self)

    def other(self, end: _End) -> _End:
        return self.far if end is self.near else self.near

    def _link(self, sender: _End) -> Link:
        ends = self._source or 0, self._target
        return ends if sender is self.near else ends[::-1]

    def made(self, end: _End) -> None:
        transport = end.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if end is self.far:
            self.pump(self.near)

    def received(self, end: _End, data: bytes) -> None:
        """Takes what an end has received; nothing means that it is closed."""
        if end is self.near and self._source is None:
            data = self._begun + data
            self._source = _source_of(data) if data else 0
            if self._source is None:
                self._begun = data
                return
        end.waiting.append(_Chunk(self._links.loop.time() + self._links.delay_of(self._link(end)), data))
        end.waiting_bytes += len(data)
        self.pump(end)

    def links_changed(self) -> None:
        for end in (self.near, self.far):
            latest = self._links.loop.time() + self._links.delay_of(self._link(end))
            end.waiting = deque(_Chunk(min(due, latest), data) for due, data in end.waiting)
            self.pump(end)

    def pump(self, sender: _End) -> None:
        """Passes on what an end has received, in its order, as far as the link allows."""
        loop, receiver = self._links.loop, self.other(sender)
        is_cut = self._links.is_cut(self._link(sender))
        timer = self._timers.pop(sender, None)
        if timer is not None:
            timer.cancel()
        while sender.waiting and not is_cut and not sender.receiver_full:
            due, data = sender.waiting[0]
            if due > loop.time():
                self._timers[sender] = loop.call_at(due, self.pump, sender)
                break
            if receiver.transport is None:
                if self._connecting is None:
                    self._connecting = loop.create_task(self._connect())
                break
            sender.waiting.popleft()
            sender.waiting_bytes -= len(data)
            if not data:
                self._close()
                return
            receiver.transport.write(data)
        sender.read(not is_cut and not sender.receiver_full and sender.waiting_bytes < _WAITING_BYTES_MAX)

    async def _connect(self) -> None:
        try:
            await self._links.loop.create_connection(lambda: self.far, "127.0.0.1", self._port)
        except OSError:  # nobody listens
            self._links.refuse(self._target)
            self.abort()

    def _close(self) -> None:
        """Closes both ends after what was written."""
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.close()
        self._forget()

    def abort(self) -> None:
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()
        self._forget()

    def _forget(self) -> None:
        self._links.ended(self)
        for timer in self._timers.values():
            timer.cancel()
        for end in (self.near, self.far):
            end.waiting.clear()
        if self._connecting is not None:
            self._connecting.cancel()


def _source_of(data: bytes) -> int | None:
    """Returns the node id of the broker whose first bytes these are; 0 for somebody else, None if more are needed."""
    if len(data) < _FIRST_FRAME.size:
        return None
    *_, length = _FIRST_FRAME.unpack_from(data)
    if not 0 < length <= _CLIENT_ID_MAX:
        return 0
    if len(data) < _FIRST_FRAME.size + length:
        return None
    found = _CLIENT_ID.fullmatch(data, _FIRST_FRAME.size, _FIRST_FRAME.size + length)
    return 0 if found is None else int(found[1])
