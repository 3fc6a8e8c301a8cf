"""One socket of the synchronous driver."""

import os
import select
import socket

import pytest

from barnabas.connection.broker.cluster_connections import Connect
from barnabas.connection.drivers.channel import Channel, lowat_grows_buffer, resolve


def test_empty_buffers_are_written_like_others() -> None:
    """Produce requests of brokers before Kafka 2.4 end in one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        channel = Channel(Connect(1, *address, 5.0), None, (-1, -1))
        assert channel.begin(resolve(*address, numeric=True))
        accepted, _ = listener.accept()
        while not channel.proceed():
            pass
        for buffers in ([b"a", b""], [b""], [b"", b"b", b"", memoryview(b"c"), b""]):
            channel.write(buffers)
            assert not channel.wants_write
        channel.close()
        with accepted:
            assert accepted.makefile("rb").read() == b"abc"


def peeked(seen: socket.socket) -> bytes:
    try:
        return seen.recv(100_000, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


@pytest.mark.timeout(60)
def test_nobody_looks_before_as_much_of_a_large_frame_has_come_as_is_of_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as poller:
        address = listener.getsockname()
        grows = lowat_grows_buffer(os.uname().sysname, os.uname().release)
        for buffers, waits in (((-1, -1), grows), ((-1, 65536), False)):  # a buffer of a set size may not hold so much
            channel = Channel(Connect(1, *address, 5.0), None, buffers)
            assert channel.begin(resolve(*address, numeric=True))
            accepted, _ = listener.accept()
            poller.register(channel.fd, select.EPOLLIN)
            while not channel.proceed():
                pass
            channel.expect(100_000)
            with accepted, socket.socket(fileno=os.dup(channel.fd)) as seen:
                accepted.sendall(bytes(40_000))
                while len(peeked(seen)) < 40_000:
                    pass
                assert bool(poller.poll(0)) is not waits
                accepted.sendall(bytes(60_000))
                assert poller.poll(30)
                assert channel.read(200_000) is not None
                channel.expect(0)
                accepted.sendall(b"x")
                assert poller.poll(30)
            channel.close()


def test_a_system_whose_buffer_does_not_grow_with_the_mark_is_given_none() -> None:
    systems = ("4.4.0", "4.17.19", "5.4.0-216-generic", "5.7.0", "6.18.44-fc", "10.1-rc3", "odd")
    assert [lowat_grows_buffer("Linux", release) for release in systems] == [
        False,
        False,
        False,
        True,
        True,
        True,
        False,
    ]
    assert lowat_grows_buffer("Darwin", "9.8.0")
