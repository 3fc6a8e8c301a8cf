"""The proxy between brokers: bytes in both directions, whole, cut, slow."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from barnabas.testing.cluster import links
from barnabas.testing.cluster.links import Links

PATIENCE_S = 60


class Peer:
    """A listener that stands for a broker, 2, and what connects to it through the proxy as broker 1."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.links = Links({1: 1, 2: self.listener.getsockname()[1]})
        self.sockets: list[socket.socket] = []

    def connect(self, name: bytes = b"broker-1") -> socket.socket:
        near = socket.create_connection(("127.0.0.1", self.links.ports[2]), timeout=PATIENCE_S)
        near.sendall(struct.pack(">ihhih", 10 + len(name), 18, 3, 0, len(name)) + name)
        self.sockets.append(near)
        return near

    def accept(self) -> socket.socket:
        self.listener.settimeout(PATIENCE_S)
        far, _ = self.listener.accept()
        far.settimeout(PATIENCE_S)
        self.sockets.append(far)
        return far

    def pair(self, name: bytes = b"broker-1") -> tuple[socket.socket, socket.socket]:
        near = self.connect(name)
        far = self.accept()
        assert exactly(far, 14 + len(name)).endswith(name)
        return near, far

    def close(self) -> None:
        for sock in (*self.sockets, self.listener):
            sock.close()
        self.links.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := sock.recv(size - len(found))):
        found += more
    return found


def silent(sock: socket.socket, seconds: float = 0.1) -> bool:
    sock.settimeout(seconds)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PATIENCE_S)
    return False


def test_a_broker_that_does_not_listen_refuses_connections(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_REFUSED_S", 2.0)
    address = peer.listener.getsockname()
    peer.listener.close()
    with suppress(ConnectionError):
        assert exactly(peer.connect(), 1) == b"", "the first one finds out"
    with pytest.raises(ConnectionRefusedError):
        peer.connect()
    peer.listener = socket.create_server(address)
    while True:
        with suppress(ConnectionRefusedError):
            near, far = peer.pair()
            break
    near.sendall(b"there")
    assert far.recv(100) == b"there"


def test_bytes_and_ends_pass_in_both_directions(peer: Peer) -> None:
    near, far = peer.pair()
    near.sendall(b"there")
    assert far.recv(100) == b"there"
    far.sendall(b"back")
    assert near.recv(100) == b"back"
    far.sendall(b"last")
    far.close()
    assert exactly(near, 4) + near.recv(1) == b"last"


def test_much_arrives_whole_at_a_slow_reader(peer: Peer) -> None:
    near, far = peer.pair()
    data = bytes(range(256)) * (8 << 12)
    sender = threading.Thread(target=near.sendall, args=(data,))
    sender.start()
    assert exactly(far, len(data)) == data
    sender.join()


def test_a_link_is_cut_one_way_and_delivers_later(peer: Peer) -> None:
    near, far = peer.pair()
    peer.links.cut([(1, 2)])
    near.sendall(b"late")
    assert silent(far)
    far.sendall(b"the other way")
    assert near.recv(100) == b"the other way"
    near.close()
    assert silent(far), "the end of the connection does not arrive either"
    peer.links.heal()
    assert exactly(far, 4) + far.recv(1) == b"late"


def test_a_cut_link_takes_no_more_than_buffers_hold(peer: Peer) -> None:
    near, far = peer.pair()
    peer.links.cut([(1, 2)])
    near.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        while sent < 64 << 20:
            sent += near.send(bytes(1 << 20))
    assert sent < 64 << 20
    peer.links.heal()
    assert exactly(far, sent) == bytes(sent)


def test_a_new_connection_does_not_reach_its_target_over_a_cut_link(peer: Peer) -> None:
    peer.links.cut([(1, 2)])
    peer.connect()
    peer.listener.settimeout(0.1)
    with pytest.raises(TimeoutError):
        peer.listener.accept()
    near, far = peer.pair(b"broker-3")
    near.sendall(b"another one does")
    assert far.recv(100) == b"another one does"
    peer.links.heal()
    assert exactly(peer.accept(), 22).endswith(b"broker-1")


def test_a_slow_link_keeps_the_order(peer: Peer) -> None:
    near, far = peer.pair()
    peer.links.slow([(1, 2)], 0.2)
    began = time.monotonic()
    near.sendall(b"slow ")
    far.sendall(b"the other way")
    assert near.recv(100) == b"the other way"
    assert exactly(far, 5) == b"slow "
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    "end",
    [Links.heal, lambda links: links.slow([(1, 2)], 0), lambda links: links.slow([(1, 2)], 0.1)],
    ids=["heal", "slow by 0", "slow by less"],
)
def test_what_a_slow_link_holds_back_arrives_when_it_is_faster(peer: Peer, end: Callable[[Links], None]) -> None:
    near, far = peer.pair()
    peer.links.slow([(1, 2)], 3600)
    for part in (b"one ", b"two "):
        near.sendall(part)
        while not any(part in [chunk.data for chunk in each.near.waiting] for each in tuple(peer.links._connections)):
            time.sleep(0.001)
    end(peer.links)
    near.sendall(b"three")
    assert exactly(far, 13) == b"one two three"


def test_a_broker_that_does_not_listen_is_refused(peer: Peer) -> None:
    peer.listener.close()
    near = peer.connect()
    with suppress(ConnectionResetError):
        assert near.recv(1) == b"", "the connection ends"


@pytest.mark.parametrize(
    "first", [b"\0" * 40, b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhih", 10, 18, 3, 0, 3) + b"abc"]
)
def test_others_than_brokers_are_passed_on(peer: Peer, first: bytes) -> None:
    peer.links.cut([(1, 2)])
    near = socket.create_connection(("127.0.0.1", peer.links.ports[2]), timeout=PATIENCE_S)
    peer.sockets.append(near)
    for position in range(len(first)):
        near.sendall(first[position : position + 1])
    assert exactly(peer.accept(), len(first)) == first
