"""The sockets of the synchronous driver: opens, reads, writes and closes them for the network client."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.connection.broker.cluster_connections import Connect
from barnabas.connection.drivers.channel import Address, Channel, resolve
from barnabas.connection.drivers.poller import READABLE, WRITABLE, Poller
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.timers import NEVER
from barnabas.errors import Attempt

if TYPE_CHECKING:
    import ssl

__all__ = ["Channels"]

READ_SIZE: Final = 64 * 1024
"""The size of reads between two frames. The rest of a frame is received into its own buffer."""


class Channels:
    """All sockets. Only one thread at a time may use them; the resolution of names has threads of its own."""

    def __init__(
        self,
        client: NetworkClient,
        poller: Poller,
        ssl_context: "ssl.SSLContext | None",
        on_resolved: Callable[[], None],
    ) -> None:
        self._client = client
        self._connections = client.connections
        self._poller = poller
        self._ssl_context = ssl_context
        self._on_resolved = on_resolved
        self._channels: dict[int, Channel] = {}
        self._by_fd: dict[int, Channel] = {}
        self._watched: dict[int, int] = {}
        """The events that the poller watches for, by descriptor."""
        self._resolved: deque[tuple[int, list[Address], OSError | None]] = deque()

    def next_deadline(self) -> float:
        """Returns when an address that does not answer is given up for the next one."""
        due = NEVER
        for channel in self._channels.values():
            due = min(due, channel.give_up_at)
        return due

    # --- what the network client asks for ---------------------------------------------------------------------------

    def flush(self) -> bool:
        """Opens, writes and closes sockets as the network client asks. Returns whether that caused events for it."""
        connections, has_news = self._connections, False
        for connect in connections.take_connects():
            has_news = self._open(connect) or has_news
        while self._resolved:
            self._begin(*self._resolved.popleft())
            has_news = True
        has_news = self._leave_silent_addresses() or has_news
        for number, buffers in connections.take_output():
            channel = self._channels.get(number)
            if channel is not None:
                try:
                    channel.write(buffers)
                except OSError as error:
                    self._lose(channel, error)
                    has_news = True
                else:
                    self._watch(channel)
                    if channel.wants_write:
                        connections.congested(number, True)
        for number in connections.take_closes():
            closed = self._channels.pop(number, None)
            if closed is not None:
                self._unwatch(closed)
                closed.close()
        return has_news

    def _open(self, connect: Connect) -> bool:
        settings = self._client.settings.connection
        buffers = (settings.send_buffer_bytes, settings.receive_buffer_bytes)
        channel = Channel(connect, self._ssl_context, buffers)
        self._channels[connect.number] = channel
        try:
            addresses = resolve(connect.host, connect.port, numeric=True)
        except (OSError, ValueError, OverflowError):
            # Looking up a name may take seconds and cannot be interrupted.
            try:
                threading.Thread(target=self._resolve, args=(connect,), name="barnabas-dns", daemon=True).start()
            except RuntimeError as error:  # the system gives no further thread
                self._begin(connect.number, [], OSError(str(error)))
                return True
            return False
        self._begin(connect.number, addresses, None)
        return True

    def _resolve(self, connect: Connect) -> None:
        try:
            self._resolved.append((connect.number, resolve(connect.host, connect.port), None))
        except OSError as error:
            self._resolved.append((connect.number, [], error))
        except (ValueError, OverflowError) as error:  # UnicodeError is a ValueError
            self._resolved.append((connect.number, [], OSError(str(error))))
        self._on_resolved()

    def _begin(self, number: int, addresses: list[Address], error: OSError | None) -> None:
        channel = self._channels.get(number)
        if channel is None:
            return  # closed meanwhile
        if error is not None:
            channel.failed(error)
            self._forget(channel, channel.attempts)
            return
        self._client.connections.resolved()
        if channel.begin(addresses):
            self._by_fd[channel.fd] = channel
            self._watch(channel)
        else:
            self._forget(channel, channel.attempts)

    def _leave_silent_addresses(self) -> bool:
        now = time.monotonic()
        silent = [channel for channel in self._channels.values() if channel.give_up_at <= now]
        for channel in silent:
            self._next_address(channel, TimeoutError())
        return bool(silent)

    def _next_address(self, channel: Channel, error: Exception) -> None:
        channel.failed(error)
        self._unwatch(channel)
        if channel.next_address():
            self._by_fd[channel.fd] = channel
            self._watch(channel)
        else:
            self._forget(channel, channel.attempts)

    # --- events -----------------------------------------------------------------------------------------------------

    def serve(self, fd: int) -> bool:
        """Reads and writes a socket that is ready. Returns False if only more of an unfinished frame has come."""
        channel = self._by_fd.get(fd)
        if channel is None:
            return True
        has_news = True
        try:
            if channel.stage != "open":
                if channel.proceed():
                    self._client.now = now = time.monotonic()
                    self._connections.connected(channel.number, now)
            else:
                has_news = self._read(channel)
                if channel.fd == fd and channel.wants_write:
                    has_news = True
                    channel.write()
                    self._connections.congested(channel.number, channel.wants_write)
        except (OSError, ValueError) as error:  # a host that TLS cannot name is a ValueError
            if channel.stage in ("tcp", "tls"):
                self._next_address(channel, error)
            elif isinstance(error, OSError):
                self._lose(channel, error)
            else:
                raise
            return True
        if channel.fd == fd:
            self._watch(channel)
        return has_news

    def _read(self, channel: Channel) -> bool:
        """Reads once, or with TLS or an unfinished frame until nothing is left. Returns whether a frame was
        finished."""
        client, connections, number = self._client, self._connections, channel.number
        has_news = False
        while True:
            data: bytes | None = None
            buffer = connections.receive_buffer(number)
            if buffer is None:
                data = channel.read(READ_SIZE)
                count = None if data is None else len(data)
            else:
                count = channel.read_into(buffer)
            if count is None:
                channel.expect(0 if buffer is None else len(buffer))
                return has_news
            if not count:
                raise ConnectionResetError(104, "connection closed by the broker")
            client.now = now = time.monotonic()
            connections.received(number, data, count, now)
            is_whole = connections.receive_buffer(number) is None
            has_news = has_news or is_whole or data is not None
            if number not in self._channels:
                return has_news
            if is_whole and not channel.reads_ahead:
                channel.expect(0)
                return has_news

    def _lose(self, channel: Channel, error: OSError) -> None:
        self._forget(channel, [channel.failed(error, self._connections.stage(channel.number))])

    def _forget(self, channel: Channel, attempts: list[Attempt]) -> None:
        """Closes a channel that has failed, and tells the network client."""
        del self._channels[channel.number]
        self._unwatch(channel)
        channel.close()
        self._client.now = now = time.monotonic()
        self._connections.lost(channel.number, tuple(attempts), now)

    # --- the poller -------------------------------------------------------------------------------------------------

    def _watch(self, channel: Channel) -> None:
        mask = READABLE | WRITABLE if channel.wants_write else READABLE
        known = self._watched.get(channel.fd)
        if known is None:
            self._poller.register(channel.fd, mask)
        elif known != mask:
            self._poller.modify(channel.fd, mask)
        else:
            return
        self._watched[channel.fd] = mask

    def _unwatch(self, channel: Channel) -> None:
        """Ends the watch of a socket. Called before its descriptor is closed, whose number may be used again at
        once."""
        fds = [fd for fd, known in self._by_fd.items() if known is channel]
        for fd in fds:
            del self._by_fd[fd]
            if self._watched.pop(fd, None) is not None and fd == channel.fd:
                with contextlib.suppress(OSError):  # TLS closes a socket that it cannot wrap
                    self._poller.unregister(fd)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for channel in self._channels.values():
            self._unwatch(channel)
            channel.close()
        self._channels.clear()

    def abandon(self) -> None:
        """Closes the descriptors alone: in a forked child the connections still belong to the parent."""
        for channel in self._channels.values():
            channel.abandon()
        self._channels.clear()
        self._by_fd.clear()
        self._watched.clear()
