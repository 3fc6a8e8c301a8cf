"""A client's connection: reads frames, sends replies in order, and bounds both.

The connection calls the dispatcher with each request at once, in the order of arrival; the reply may come later.
Replies leave in the order of the requests, as the protocol promises, so a reply that is ready waits for the replies
before it. The connection stops reading at `PENDING_MAX` pending replies, or at `OUTGOING_BYTES_MAX` bytes that the
client has not read. `QueuedRequests` bounds the requests of all connections together, `QueuedResponses` the replies.

The event loop never sends bytes of a file that are not in the page cache: `sendfile` would wait for the disk. A thread
reads the next chunk into the page cache, while the connection keeps the order of its replies.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

from barnabas.errors import BarnabasError
from barnabas.network.page_cache import CHUNK_SIZE, bring_in, is_resident, read_resident
from barnabas.network.queued_responses import QueuedResponses
from barnabas.network.time_slicing import SLICE_S, TimeSlicer
from barnabas.protocol.framing import BufferPool, FrameReader, FrameTooLarge
from barnabas.records.file_slice import FileSlice

__all__ = [
    "CLIENT_CLOSED",
    "NO_REPLY",
    "Connection",
    "InThread",
    "Parts",
    "PendingReply",
    "QueuedRequests",
    "RequestConnection",
    "RequestHandler",
    "plain_address",
    "size_of",
]

Part = bytes | bytearray | FileSlice
Parts = Sequence[Part]
"""A whole response frame, its size field included."""
InThread = Callable[[Callable[[], None]], "asyncio.Future[None]"]
"""Runs a function in a thread. The future is completed on the event loop."""

PENDING_MAX: Final = 1000
OUTGOING_BYTES_MAX: Final = 1024 * 1024
"""More than a socket buffer holds, so that the client has something to read until the broker reads again."""
SENDFILE_MIN: Final = 64 * 1024
"""Smaller slices are read, and sent together with their neighbours by one system call."""
HALF_CLOSED_MAX_S: Final = 10.0
"""The time for which a client that has ended its stream still gets responses."""
_FLUSH_BYTES_MAX: Final = 4 * 1024 * 1024
"""The bytes that one connection may send before the others are served."""
_GATHERED_MAX: Final = 16
"""The responses to requests that arrived together which are sent together: a send costs more than a small request."""
_GATHERED_PART_MAX: Final = 4096
_COLD: Final = -1
"""The slice was not in the page cache a moment ago: no second check is needed."""
_JOINED_MAX: Final = 16 * 1024
"""The size up to which a response is copied into one buffer, which costs less than to queue its parts."""
_IOV_MAX: Final = 1024
"""The number of buffers in one system call, on Linux and on macOS."""

NO_REPLY: Final[Parts] = ()
"""Returned for a request that gets no response (Produce with acks=0)."""

CLIENT_CLOSED: Final = "the client closed the connection"
"""The reason for the end of a connection that is nobody's failure."""
_NO_MEMORY: Final = "no memory is left for its bytes"

_GONE: Final = (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EHOSTUNREACH)


class RequestConnection(Protocol):
    """The connection of a request, as handlers see it: a client's, or that of a client of another broker."""

    client_software: str
    state: dict[str, Any] | None

    @property
    def closed(self) -> bool: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    @property
    def local_host(self) -> str: ...

    @property
    def local_port(self) -> int: ...

    def mute(self) -> None: ...

    def unmute(self) -> None: ...

    def pending_reply(self) -> "PendingReply": ...

    def reply_ready(self, reply: "PendingReply") -> None: ...

    def close(self, reason: str) -> None: ...


class PendingReply:
    """A reply that comes later, by one call of `resolve`."""

    __slots__ = ("_connection", "in_order", "on_abandoned", "parts", "queued_bytes", "request_bytes")

    def __init__(self, connection: RequestConnection) -> None:
        self._connection = connection
        self.parts: Parts | None = None
        self.request_bytes = 0
        """The bytes that QueuedRequests counts for the request."""
        self.in_order = False
        """Whether the reply has its place in the order of replies: the handler has returned."""
        self.queued_bytes = 0
        """The bytes that QueuedResponses counts while the reply waits for the replies before it."""
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the connection is closed before the reply."""

    def resolve(self, parts: Parts) -> None:
        assert self.parts is None, "a request gets one reply"
        self.parts = parts
        self.on_abandoned = None
        self._connection.reply_ready(self)

    def abandon(self) -> None:
        """Calls `on_abandoned`, because the connection is closed."""
        callback, self.on_abandoned = self.on_abandoned, None
        if callback is not None:
            callback()

    def fail(self, reason: str) -> None:
        """Closes the connection because of a bug, so that the client does not wait for the reply."""
        self._connection.close(reason)


class QueuedRequests:
    """Bounds the bytes of requests without a reply over all connections (queued.max.request.bytes).

    Above the bound, connections with a new request are not read from until there is room.
    """

    __slots__ = ("_bytes_max", "_paused", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._paused: dict[Connection, None] = {}
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        return self.size_bytes >= self._bytes_max

    def hold(self, reply: PendingReply, size: int) -> None:
        reply.request_bytes = size
        self.size_bytes += size

    def release(self, reply: PendingReply) -> None:
        self.size_bytes -= reply.request_bytes
        reply.request_bytes = 0
        while self._paused and not self.full:
            connection = next(iter(self._paused))
            del self._paused[connection]
            connection.maybe_resume()

    def wait_for_room(self, connection: "Connection") -> None:
        self._paused[connection] = None

    def forget(self, connection: "Connection") -> None:
        self._paused.pop(connection, None)


class RequestHandler(Protocol):
    """The broker as a connection sees it."""

    def __call__(self, connection: "Connection", frame: memoryview) -> Parts | PendingReply:
        """Handles one request. The frame is only valid during the call. Raises BarnabasError to close the
        connection."""


class Connection:
    """A non-blocking socket on the event loop. `on_close` is called once."""

    __slots__ = (
        "_ended",
        "_fd",
        "_frames",
        "_gathered",
        "_handler",
        "_head_sent",
        "_in_queue",
        "_in_thread",
        "_loop",
        "_muted",
        "_on_close",
        "_out",
        "_pending",
        "_pending_max",
        "_queued_requests",
        "_queued_responses",
        "_recv_into",
        "_resident",
        "_socket",
        "_time_slicer",
        "_unhandled",
        "_writing",
        "client_software",
        "closed",
        "last_active",
        "listener_name",
        "local_host",
        "local_port",
        "out_bytes",
        "paused",
        "peer_host",
        "peer_port",
        "queued_bytes",
        "state",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        listener_name: str,
        pool: BufferPool,
        request_size_max: int,
        handler: RequestHandler,
        on_close: Callable[["Connection", str], None],
        time_slicer: TimeSlicer,
        queued_responses: QueuedResponses,
        pending_max: int = PENDING_MAX,
        queued_requests: QueuedRequests | None = None,
        in_thread: InThread | None = None,
    ) -> None:
        """Without `in_thread` the event loop itself reads what is not in the page cache."""
        self._loop = loop
        self._socket = sock
        self._recv_into = sock.recv_into
        self._fd = sock.fileno()
        self._frames = FrameReader(pool, request_size_max)
        self._handler = handler
        self._on_close = on_close
        self._time_slicer = time_slicer
        self._queued_responses = queued_responses
        self._pending_max = pending_max
        self._queued_requests = queued_requests
        self._in_thread = in_thread
        self._pending: deque[Parts | PendingReply] = deque()
        self._out: deque[Part | memoryview] = deque()
        """The parts that the socket has not taken. A memoryview is the rest of a part, and always the first."""
        self.out_bytes = 0
        self.queued_bytes = 0
        """The memory of the responses in `_out`, and of the ready ones in `_pending`, without slices."""
        self._gathered: list[bytes | bytearray] | None = None
        """Small responses to the requests of one read while these are handled; None for a single request."""
        self._head_sent = 0
        """The sent bytes of the slice at the head of `_out`. The slice itself keeps its file open."""
        self._resident = 0
        """The bytes of the slice at the head that were in the page cache when checked, or that a thread has read."""
        self._writing = False
        """Whether `_flush` will be called: by the loop when the socket takes more, or when a thread is done."""
        self.paused = False
        self._muted = 0
        """The number of requests that must be finished before the next one is taken."""
        self._in_queue = False
        """Whether received requests wait in the queue of the time slicer: the socket is not read from meanwhile."""
        self._ended: asyncio.TimerHandle | None = None
        """Closes a client that has ended its stream and does not read its responses."""
        self._unhandled: deque[bytes] = deque()
        """Requests that were received together with the one that paused the connection or used up the slice."""
        self.closed = False
        self.listener_name = listener_name
        self.peer_host, self.peer_port = _address(sock.getpeername())
        self.local_host, self.local_port = _address(sock.getsockname())
        self.client_software = ""
        self.state: dict[str, Any] | None = None
        """Values that a handler keeps for the life of the connection."""
        self.last_active = loop.time()
        loop.add_reader(self._fd, self.read)

    def set_request_size_max(self, size: int) -> None:
        """Sets the bound on the frames from the next read on."""
        self._frames.size_max = size

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Reads from the socket. The loop calls it when there are data."""
        after_requests = self._time_slicer.after_requests
        after_requests.begin()
        try:
            self._read()
        except MemoryError:
            if self.closed:
                raise  # of a handler: nobody knows what it has done
            self.close(_NO_MEMORY)
        finally:
            after_requests.end()

    def _read(self) -> None:
        frames = self._frames
        loop = self._loop
        self.last_active = began = loop.time()
        while True:
            try:
                buffer = frames.buffer()
                count = self._recv_into(buffer)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(f"read failed: {error.strerror}")
                return
            if count == 0:
                self._on_end_of_stream()
                return
            filled = count == len(buffer)
            try:
                if not self._handle(frames.received(count)):
                    return
            except (FrameTooLarge, BarnabasError) as error:
                self.close(str(error))
                return
            if not filled or loop.time() - began >= SLICE_S:
                return

    def _on_end_of_stream(self) -> None:
        """Closes the connection, or sends the outstanding responses first: the client may still read.

        A client that has disconnected looks the same until the broker writes, so the wait is bounded.
        """
        if not self._owes_responses:
            self.close(CLIENT_CLOSED)
            return
        self._loop.remove_reader(self._fd)
        self._ended = self._loop.call_later(HALF_CLOSED_MAX_S, self.close, CLIENT_CLOSED)

    def _handle(self, frames: Sequence[memoryview]) -> bool:
        """Handles requests. Returns False if one of them stops the reading, or if they take longer than a slice.

        The other requests are kept then.
        """
        if len(frames) < 2:
            for frame in frames:
                self._request(frame)
            return not (self.closed or self.paused)
        left = iter(frames)
        if self._handle_slice(left):
            return True
        if not self.closed:
            self._unhandled.extend(map(bytes, left))
            if not self.paused:
                self._loop.remove_reader(self._fd)
                self._enqueue()
        return False

    def _handle_slice(self, frames: Iterator[memoryview]) -> bool:
        """Handles requests for one slice. Returns False if requests may be left."""
        now = self._loop.time
        until = now() + SLICE_S
        self._gathered = []
        try:
            for frame in frames:
                self._request(frame)
                if self.closed or self.paused or now() >= until:
                    return False
        finally:
            self._send_gathered()
        return True

    def _enqueue(self) -> None:
        self._in_queue = True
        self._time_slicer.add(self._handle_unhandled)

    def _handle_unhandled(self) -> bool:
        """Handles the kept requests for one slice. Returns True if there are more; otherwise reading goes on."""
        if self.closed:
            return False
        if self.paused:  # while it was in the queue
            self._in_queue = False
            return False
        kept = self._unhandled
        try:
            self._handle_slice(self._take_unhandled())
        except BarnabasError as error:
            self.close(str(error))
        if self.closed:
            return False
        if kept and not self.paused:
            return True
        self._in_queue = False
        if not self.paused:
            self._loop.add_reader(self._fd, self.read)
        return False

    def _take_unhandled(self) -> Iterator[memoryview]:
        while self._unhandled:
            yield memoryview(self._unhandled.popleft())

    def _request(self, frame: memoryview) -> None:
        if self._queued_responses.is_over:
            self._queued_responses.make_room()
            if self.closed:
                return
        try:
            reply = self._handler(self, frame)
        except BarnabasError:
            raise
        except Exception:
            # A bug. It is raised, but the next response must not be taken for the response to this request.
            self.close("the request's handler failed")
            raise
        if self.closed or reply is NO_REPLY:
            return
        pending = self._pending
        if isinstance(reply, PendingReply):
            self._add_pending(reply, len(frame))
        elif pending:
            pending.append(reply)
            self._queue(_memory_of(reply))
        else:
            self._send(reply)
        if (pending or self._out) and self._has_enough(self._pending_max, OUTGOING_BYTES_MAX):
            self._pause()

    def _has_enough(self, count: int, size: int) -> bool:
        """Returns whether `count` responses, or `size` bytes of them, wait."""
        return (
            len(self._pending) >= count
            or len(self._out) >= max(count, _IOV_MAX)
            or self.out_bytes >= size
            or self.queued_bytes >= size
        )

    def _add_pending(self, reply: PendingReply, size: int) -> None:
        self._pending.append(reply)
        reply.in_order = True
        requests = self._queued_requests
        if requests is not None and reply.parts is None:
            requests.hold(reply, size)
            if requests.full:
                requests.wait_for_room(self)
                self._pause()
        if reply.parts is not None:  # resolved by its handler
            self.reply_ready(reply)

    def _pause(self) -> None:
        if not self.paused:
            self.paused = True
            if not self._in_queue:
                self._loop.remove_reader(self._fd)

    def mute(self) -> None:
        """Takes no further request until `unmute` has been called as often as `mute`."""
        self._muted += 1
        self._pause()

    def unmute(self) -> None:
        self._muted -= 1
        self.maybe_resume()

    def maybe_resume(self) -> None:
        """Reads again if no bound and no `mute` prevents it."""
        if self._ended is not None and not self._owes_responses:
            self.close(CLIENT_CLOSED)
            return
        if not self.paused or self._muted or self.closed:
            return
        if self._queued_requests is not None and self._queued_requests.full:
            self._queued_requests.wait_for_room(self)
        elif not self._has_enough(self._pending_max // 2 + 1, OUTGOING_BYTES_MAX // 2):
            self.paused = False
            if self._in_queue:
                return  # reading goes on after the queued requests
            if self._unhandled:
                self._enqueue()
            elif self._ended is None:
                self._loop.add_reader(self._fd, self.read)

    # --- writing ----------------------------------------------------------------------------------------------------

    def pending_reply(self) -> PendingReply:
        """Returns a late reply for the request that is being handled. The handler returns it."""
        return PendingReply(self)

    def reply_ready(self, reply: PendingReply) -> None:
        """Sends the reply, and the ready ones after it, if it is the first in the order."""
        if self.closed or not reply.in_order:
            return
        if self._pending[0] is reply:
            self._send_ready()
        else:
            assert reply.parts is not None
            reply.queued_bytes = _memory_of(reply.parts)
            self._queue(reply.queued_bytes)

    def _send_ready(self) -> None:
        """Sends the replies at the head of the order that are ready."""
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, PendingReply):
                if head.parts is None:
                    break
                if head.request_bytes:
                    self._queued_requests.release(head)  # type: ignore[union-attr]
                parts, queued_bytes = head.parts, head.queued_bytes
            else:
                parts, queued_bytes = head, _memory_of(head)
            pending.popleft()
            if queued_bytes:
                self._unqueue(queued_bytes)
            if parts:
                self._send(parts)
            if self.closed:
                return
        self.maybe_resume()

    def _queue(self, size: int) -> None:
        self.queued_bytes += size
        self._queued_responses.add(self, size)

    def _unqueue(self, size: int) -> None:
        self.queued_bytes -= size
        self._queued_responses.remove(self, size)

    def _send(self, parts: Parts) -> None:
        gathered = self._gathered
        if gathered is not None:
            part = parts[0]
            if len(parts) == 1 and len(part) <= _GATHERED_PART_MAX and not isinstance(part, FileSlice):
                gathered.append(part)
                if len(gathered) < _GATHERED_MAX:
                    return
                parts = (b"".join(gathered),)
                gathered.clear()
            elif gathered:
                parts = (b"".join(gathered), *parts)
                gathered.clear()
        self._send_now(parts)

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered and not self.closed:
            self._send_now((b"".join(gathered),))

    def _send_now(self, parts: Parts) -> None:
        self.last_active = self._loop.time()
        part = None if self._writing else self._joined(parts)
        if part is not None:
            # The usual case: one small buffer that the socket takes whole.
            try:
                sent = self._socket.send(part)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.close(f"write failed: {error.strerror}")
                return
            if sent == len(part):
                return
            self._out.append(memoryview(part)[sent:])
            self.out_bytes += len(part) - sent
            self._queue(len(part))
            self._want_write()
            return
        for each in parts:
            self._out.append(each)
            self.out_bytes += size_of(each)
        self._queue(_memory_of(parts))
        if not self._writing:
            self._flush()

    def _joined(self, parts: Parts) -> bytes | bytearray | None:
        """Returns the data of a response if it is one buffer, or small and in the page cache."""
        first = parts[0]
        if len(parts) == 1 and not isinstance(first, FileSlice):
            return first
        size = 0
        for part in parts:
            size += size_of(part)
            if size > _JOINED_MAX:
                return None
        data: list[bytes | bytearray] = []
        try:
            for part in parts:
                if isinstance(part, FileSlice):
                    read = self._read_small(part)
                    if read is None:
                        self._resident = _COLD
                        return None
                    part = read
                data.append(part)
        except (OSError, EOFError):
            return None  # the flush meets it again
        return b"".join(data)

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._flush)

    def _flush(self) -> None:
        budget = _FLUSH_BYTES_MAX
        out = self._out
        try:
            while out and budget > 0:
                head = out[0]
                if isinstance(head, FileSlice) and head.size >= SENDFILE_MIN:
                    sent = self._send_slice(head)
                else:
                    sent = self._send_small()
                if sent < 0:
                    self._warm(out[0])  # type: ignore[arg-type]
                    return
                budget -= sent
                self.out_bytes -= sent
                self.last_active = self._loop.time()
                if self.queued_bytes:
                    self._queued_responses.mark_progress(self)
                if out and type(out[0]) is memoryview:  # the socket is full
                    break
        except BlockingIOError:
            self._want_write()
            return
        except (OSError, EOFError) as error:
            self.close(f"write failed: {getattr(error, 'strerror', None) or error}")
            return
        except MemoryError:
            self.close(_NO_MEMORY)
            return
        if out:
            self._want_write()
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self.maybe_resume()

    def _send_slice(self, head: FileSlice) -> int:
        """Sends from the slice at the head. Returns the sent bytes, or -1 if the slice must be read into the cache
        first."""
        done = self._head_sent
        try:
            if done >= self._resident:
                size = min(CHUNK_SIZE, head.size - done)
                if self._in_thread is not None and not is_resident(head.fd, head.position + done, size):
                    return -1
                self._resident = done + size
            sent = os.sendfile(self._fd, head.fd, head.position + done, self._resident - done)
        except BlockingIOError:
            raise
        except OSError as error:
            head.failed(error)
            raise
        if sent == 0:
            ended = EOFError(f"{head} ends early: the segment was truncated under a reader")
            head.failed(ended)
            raise ended
        if done + sent == head.size:
            self._out.popleft()
            self._head_sent = self._resident = 0
        else:
            self._head_sent = done + sent
        return sent

    def _send_small(self) -> int:
        """Does the same for all small parts before the next large slice, by one system call."""
        out = self._out
        gathered: list[bytes | bytearray | memoryview] = []
        size = 0
        more = 0
        for part in out:
            if size >= SENDFILE_MIN * 4 or len(gathered) == _IOV_MAX:
                break
            if isinstance(part, FileSlice):
                data = None if part.size >= SENDFILE_MIN else self._read_small(part)
                if data is None:
                    more = socket.MSG_MORE
                    if gathered and part.size < SENDFILE_MIN:
                        self._resident = _COLD
                    break
                gathered.append(data)
            else:
                gathered.append(part)
            size += len(gathered[-1])
        if not gathered:
            return -1
        sent = self._socket.send(gathered[0], more) if len(gathered) == 1 else self._socket.sendmsg(gathered, (), more)
        self._remove_sent(gathered, sent)
        return sent

    def _remove_sent(self, gathered: Sequence[bytes | bytearray | memoryview], sent: int) -> None:
        """Removes `sent` bytes from the head of `_out`. `gathered` are the data of the parts there."""
        out = self._out
        for data in gathered:
            part = out[0]
            if sent < len(data):
                if sent:
                    out[0] = memoryview(data)[sent:]
                    if isinstance(part, FileSlice):  # it is in memory now
                        self._queue(len(data))
                return
            sent -= len(data)
            out.popleft()
            if not isinstance(part, FileSlice):
                self._unqueue(len(part.obj if isinstance(part, memoryview) else part))  # type: ignore[arg-type]

    def _read_small(self, part: FileSlice) -> bytes | bytearray | None:
        """Returns the data, or None if they must be read into the page cache first."""
        try:
            if self._in_thread is None or self._resident > 0:
                self._resident = 0
                return part.read()
            if self._resident == _COLD:
                self._resident = 0
                return None
            return read_resident(part.fd, part.position, part.size)
        except (OSError, EOFError) as error:
            part.failed(error)
            raise

    def _warm(self, head: FileSlice) -> None:
        """Has a thread read the next chunk into the page cache, and sends afterwards. Ready replies queue meanwhile.

        The chunk is then sent without another check, so that pages which are dropped at once cause no endless loop.
        """
        assert self._in_thread is not None
        size = min(CHUNK_SIZE, head.size - self._head_sent)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._writing = True
        done = self._in_thread(partial(bring_in, head, self._head_sent, size))
        self._resident = self._head_sent + size
        done.add_done_callback(self._on_warmed)

    def _on_warmed(self, _: "asyncio.Future[None]") -> None:
        if not self.closed:
            self._writing = False
            self._flush()

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def _owes_responses(self) -> bool:
        return bool(self._pending or self._out or self._unhandled)

    @property
    def idle(self) -> bool:
        """Whether no request is in progress, or the client does not read its responses."""
        return bool(self._out) or not self._pending

    def close(self, reason: str) -> None:
        """Closes the connection and abandons its pending replies."""
        if self.closed:
            return
        self._send_gathered()  # the responses before the request that closes the connection
        if self.closed:
            return
        self.closed = True
        if self._ended is not None:
            self._ended.cancel()
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._socket.close()
        self._frames.close()
        pending = tuple(self._pending)
        self._pending.clear()
        if self._queued_requests is not None:
            self._queued_requests.forget(self)
        for reply in pending:
            if type(reply) is PendingReply:
                if self._queued_requests is not None:
                    self._queued_requests.release(reply)
                reply.abandon()
        self._out.clear()
        self.out_bytes = 0
        if self.queued_bytes:
            self._unqueue(self.queued_bytes)
        self._unhandled.clear()
        self._on_close(self, reason)


def size_of(part: Part) -> int:
    """Returns the number of bytes. Called so often that `len` of a slice, a call of the interpreter, would be seen."""
    return part.size if isinstance(part, FileSlice) else len(part)


def _memory_of(parts: Parts) -> int:
    """Returns the bytes that a queued response holds in memory."""
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))


def plain_address(host: str) -> str:
    """Returns 1.2.3.4 for ::ffff:1.2.3.4, an IPv4 client of an IPv6 socket."""
    return host.removeprefix("::ffff:") if "." in host else host


def _address(name: Any) -> tuple[str, int]:
    return plain_address(str(name[0])), int(name[1])
