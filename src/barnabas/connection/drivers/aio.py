"""The asyncio driver: the running loop turns the network client.

All methods but `wakeup` are called on the loop's thread. Sockets are asyncio transports.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from socket import SHUT_RDWR, socket
from typing import Any, Final, Protocol, TypeVar

from barnabas.connection.broker.cluster_connections import ClusterConnections, Connect
from barnabas.connection.drivers.channel import Address, attempt_of, prepare, resolve
from barnabas.connection.promise import Promise
from barnabas.errors import Attempt, ClientClosed, OperationTimedOut
from barnabas.out_of_memory import end_if_out_of_memory

__all__ = ["AioDriver", "DrivenClient"]

TURNS_MAX: Final = 100
POLL_MAX_S: Final = 60.0
READ_SIZE: Final = 64 * 1024

T = TypeVar("T")

_log = logging.getLogger("barnabas.client")


class _Protocol(asyncio.BufferedProtocol):
    """One socket. Bytes are received directly into a frame that is partly there, or else into a small buffer."""

    def __init__(self, driver: "AioDriver", number: int, address: str, ip: str) -> None:
        self.driver = driver
        self.number = number
        self.address = address
        self.ip = ip
        self.transport: asyncio.Transport | None = None
        self._small = memoryview(bytearray(READ_SIZE))
        self._in_frame = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.driver._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self.driver.client.connections.receive_buffer(self.number)
        self._in_frame = buffer is not None
        return self._small if buffer is None else buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.driver._received(self.number, None if self._in_frame else bytes(self._small[:nbytes]), nbytes)

    def pause_writing(self) -> None:
        self.driver.client.connections.congested(self.number, True)

    def resume_writing(self) -> None:
        self.driver.client.connections.congested(self.number, False)
        self.driver.turn_soon()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.driver._lost(self, exc or ConnectionResetError(104, "connection closed by the broker"))


class DrivenClient(Protocol):
    """A state machine that sends requests by its connections: a NetworkClient, or the connections of a broker."""

    now: float
    """The current time, which the driver sets before each call."""
    connections: ClusterConnections
    completions: deque[Callable[[], None]]
    """The callbacks that the driver calls after its turn."""

    def advance(self, now: float) -> None:
        """Does the work that is due."""

    def next_deadline(self) -> float:
        """Returns when to call `advance` even without an event."""

    def close(self) -> None:
        """Fails all requests."""


class AioDriver:
    """Drives a network client on the event loop in which the driver is made."""

    def __init__(
        self, client: DrivenClient, *, ssl_context: ssl.SSLContext | None = None, name: str = "barnabas client"
    ) -> None:
        self.client = client
        self.lock = contextlib.nullcontext()
        """The lock that shared code takes; on a loop it does nothing, as no other code runs meanwhile."""
        self.closed = False
        self._name = name
        self._why_closed = f"the {name} is closed"
        self._ssl_context = ssl_context
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, _Protocol] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._in_event = False
        """Whether an event is being reported, after which a turn follows anyway."""
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    # --- use --------------------------------------------------------------------------------------------------------

    def run(self, action: Callable[[], T]) -> T:
        """Calls `action`, which uses the network client, and makes a turn before the loop goes on."""
        self._check_open()
        self.client.now = time.monotonic()
        result = action()
        try:
            self._turn()
        except Exception as error:
            self._fail(error)
            raise
        return result

    async def wait_for(self, promise: Promise[T], timeout_s: float | None = None) -> T:
        """Returns the promise's value, or raises its error or OperationTimedOut."""
        if not promise.done:
            future: asyncio.Future[None] = self.loop.create_future()
            promise.on_done(lambda _: None if future.done() else future.set_result(None))
            try:
                async with asyncio.timeout(timeout_s):
                    await future
            except TimeoutError:
                raise OperationTimedOut(f"no result within {timeout_s:g} s") from None
        return promise.result()

    async def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `done()` returns True after a turn. Returns False if the time is over before. Raises
        ClientClosed."""
        if not done():
            self._check_open()
            waiter = done, self.loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(timeout_s):
                    await waiter[1]
            except TimeoutError:
                return done()
            finally:
                self._waiters.remove(waiter)
            if not done():
                self._check_open()
        return True

    def _wake_waiters(self) -> None:
        for done, future in self._waiters:
            if not future.done() and (self.closed or done()):
                future.set_result(None)

    def turn_soon(self) -> None:
        """Schedules a turn: work with a deadline was added."""
        if self._soon is None and not self._in_event:
            self._soon = self.loop.call_soon(self._scheduled_turn)

    def wakeup(self) -> None:
        """Schedules a turn, after which waiting tasks check their conditions. May be called from any thread."""
        if not self.closed:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._scheduled_turn)

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed(self._why_closed)
        if os.getpid() != self._pid:
            raise ClientClosed(f"the {self._name} belongs to the parent process; this one was forked from it")

    # --- turning ----------------------------------------------------------------------------------------------------

    def _scheduled_turn(self) -> None:
        self._soon = None
        if not self.closed:
            self._tell(None)

    def _tell(self, event: Callable[..., None] | None, *arguments: Any) -> None:
        """Reports an event to the network client, if there is one, with its time, and makes a turn."""
        try:
            self.client.now = now = time.monotonic()
            if event is not None:
                self._in_event = True
                try:
                    event(*arguments, now)
                finally:
                    self._in_event = False
            self._turn()
        except Exception as error:
            self._fail(error)

    def _turn(self) -> None:
        """Lets the network client act, does its I/O, and sets the timer for its next deadline."""
        client = self.client
        for _ in range(TURNS_MAX):
            client.advance(time.monotonic())
            if not self._flush():
                break
        else:
            self.turn_soon()  # the client is not at rest: the loop's other tasks run before it goes on
        left = client.next_deadline() - time.monotonic()
        if left <= 0:
            self.turn_soon()
        elif not self.closed:
            self._set_timer(self.loop.time() + min(left, POLL_MAX_S))
        if client.completions:
            self.loop.call_soon(self._call_back)
        if self._waiters:
            self._wake_waiters()

    def _set_timer(self, when: float) -> None:
        """Has a turn made at `when` or before. A timer that is due earlier stays: each request would replace it."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._timed_turn)

    def _timed_turn(self) -> None:
        self._timer = None
        if not self.closed:
            self._tell(None)

    def _call_back(self) -> None:
        completions = self.client.completions
        while completions:
            try:
                completions.popleft()()
            except Exception as error:
                end_if_out_of_memory(error)
                _log.exception("a callback of the %s fails", self._name)

    def _flush(self) -> bool:
        """Opens, writes and closes sockets as the network client asks. Returns whether it asked for anything."""
        connections = self.client.connections
        connects, output, closes = connections.take_connects(), connections.take_output(), connections.take_closes()
        for connect in connects:
            self._connecting[connect.number] = self.loop.create_task(self._connect(connect))
        for number, buffers in output:
            protocol = self._open.get(number)
            if protocol is not None and protocol.transport is not None:
                protocol.transport.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        for number in closes:
            task = self._connecting.pop(number, None)
            if task is not None:
                task.cancel()
            protocol = self._open.pop(number, None)
            if protocol is not None and protocol.transport is not None:
                protocol.transport.abort()
        return bool(connects or output or closes)

    # --- connecting -------------------------------------------------------------------------------------------------

    async def _connect(self, connect: Connect) -> None:
        """Resolves the host, and tries TCP and TLS to one address after the other."""
        address = f"[{connect.host}]:{connect.port}" if ":" in connect.host else f"{connect.host}:{connect.port}"
        started = time.monotonic()
        attempts: list[Attempt] = []
        try:
            found = await self._resolve(connect)
        except Exception as error:
            attempts.append(attempt_of(address, "", "dns", error, started))
            found = []
        else:
            self.client.connections.resolved()
        share_s = connect.timeout_s / max(len(found), 1)
        for candidate in found:
            await self._connect_to(connect, address, candidate, share_s, attempts)
            if connect.number not in self._connecting:
                return  # `_opened` took the connection, which may be lost again by now
        del self._connecting[connect.number]
        self._tell_lost(connect.number, attempts)

    async def _resolve(self, connect: Connect) -> list[Address]:
        """Looks the name up in a thread of its own: a look-up cannot be cancelled, and the end of a loop would wait for
        the threads of its executor. Raises OSError, ValueError."""
        with contextlib.suppress(OSError, ValueError, OverflowError):
            return resolve(connect.host, connect.port, numeric=True)
        loop = self.loop
        found: asyncio.Future[list[Address]] = loop.create_future()

        def tell(action: Callable[[Any], None], value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None if found.done() else action(value))

        def look_up() -> None:
            try:
                tell(found.set_result, resolve(connect.host, connect.port))
            except Exception as error:
                tell(found.set_exception, error)

        threading.Thread(target=look_up, name="barnabas-dns", daemon=True).start()
        return await found

    async def _connect_to(
        self, connect: Connect, address: str, candidate: Address, share_s: float, attempts: list[Attempt]
    ) -> None:
        settings = self.client.connections.settings
        family, kind, number, _, target = candidate
        started = time.monotonic()
        stage = "tcp"
        ip = str(target[0])
        sock = None
        is_handed_over = False
        try:
            async with asyncio.timeout(share_s):
                sock = socket(family, kind, number)
                prepare(sock, (settings.send_buffer_bytes, settings.receive_buffer_bytes))
                await self.loop.sock_connect(sock, target)
                stage = "tls" if self._ssl_context is not None else stage
                is_handed_over = True
                await self.loop.create_connection(
                    lambda: _Protocol(self, connect.number, address, ip),
                    sock=sock,
                    ssl=self._ssl_context,
                    server_hostname=connect.host if self._ssl_context is not None else None,
                )
        except BaseException as error:  # not only OSError: a host that TLS cannot name is a ValueError
            if sock is not None and is_handed_over and isinstance(error, TimeoutError | asyncio.CancelledError):
                # a transport owns the socket and may be about to watch its descriptor: only the transport may close it
                with contextlib.suppress(OSError):
                    sock.shutdown(SHUT_RDWR)
            elif sock is not None:
                sock.close()
            if not isinstance(error, Exception):
                raise
            attempts.append(attempt_of(address, ip, stage, error, started))

    def _opened(self, protocol: _Protocol) -> None:
        """Reports a connection as soon as its transport is made, because it may be lost in the next moment."""
        assert protocol.transport is not None
        if self._connecting.pop(protocol.number, None) is None:
            protocol.transport.abort()  # given up meanwhile
            return
        self._open[protocol.number] = protocol
        self._tell(self.client.connections.connected, protocol.number)

    # --- events -----------------------------------------------------------------------------------------------------

    def _received(self, number: int, data: bytes | None, count: int) -> None:
        if number in self._open:
            self._tell(self.client.connections.received, number, data, count)

    def _lost(self, protocol: _Protocol, error: Exception) -> None:
        if self._open.get(protocol.number) is not protocol:
            return
        del self._open[protocol.number]
        stage = self.client.connections.stage(protocol.number)
        attempt = attempt_of(protocol.address, protocol.ip, stage, error, time.monotonic())
        self._tell_lost(protocol.number, [attempt])

    def _tell_lost(self, number: int, attempts: list[Attempt]) -> None:
        self._tell(self.client.connections.lost, number, tuple(attempts))

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes every connection at once. Waiting tasks get ClientClosed; a second call does nothing."""
        self._shut(f"the {self._name} is closed")

    def _fail(self, error: Exception) -> None:
        """Closes the driver after an error of the network client, which no caller would get otherwise."""
        end_if_out_of_memory(error)
        _log.error("the network client of the %s fails, which closes it", self._name, exc_info=error)
        self._shut(f"the {self._name} closed itself after a mistake of its own: {error!r}")

    def _shut(self, why: str) -> None:
        if self.closed:
            return
        self._why_closed = why
        self.closed = True
        try:
            self.client.close()
            self._flush()
        finally:  # a network client that has failed may fail again
            for handle in (self._timer, self._soon):
                if handle is not None:
                    handle.cancel()
            for task in self._connecting.values():
                task.cancel()
            self._connecting.clear()
            self._wake_waiters()
            self._call_back()
