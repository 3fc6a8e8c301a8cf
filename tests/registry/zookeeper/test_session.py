"""The session with ZooKeeper: addresses, transactions, what is deleted below a node."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from barnabas.errors import UsageError
from certificates import make_certificate
from zookeeper_server import ZooKeeperServer, another_program

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from barnabas.registry.registry import RegistryUnavailable
from barnabas.registry.zookeeper.session import (
    Check,
    Conflict,
    Create,
    Delete,
    Set,
    ZooKeeperAccess,
    ZooKeeperSession,
    _Handler,
    parse_connect,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:2181", ("a:2181", "")),
        ("a:2181/", ("a:2181", "")),
        (" a:2181, b:2181/kafka/x ", ("a:2181,b:2181", "/kafka/x")),
        ("[::1]:2181/x/", ("[::1]:2181", "/x")),
        ("[fe80::1%eth0],10.0.0.1,zk-1.a_b:1,b:65535/ü 1", ("[fe80::1%eth0],10.0.0.1,zk-1.a_b:1,b:65535", "/ü 1")),
    ],
)
def test_addresses(text: str, expected: tuple[str, str]) -> None:
    assert parse_connect(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "/x", ",", "a,", "a//x", "a/x//y", "a//", "a/x//", "a/a/./b", "a/x/../q", "a/..", "a/.", "a/x\0y"),
        *("a/\x7f", "a/\ud800", "a/\ufff0", "a:abc/x", "a:99999/x", "a:65536", "a:-1/x", "a:0", "a: 2181", "a:"),
        *("a:1:2", "::1:2181", "[::1/x", "[::1", "::1]", "[::1]2181", "[::1]:x", "[]:1", "[1]:1", "[::1%]", "[a]"),
        *("a b:1", "a\0:1", "u@a:1"),
    ],
    ids=ascii,
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not of the form host:2181,host:2181/path, such as ") as raised:
        parse_connect(text)
    assert str(raised.value).isprintable()


def test_the_wrong_part_of_an_address_is_named() -> None:
    with pytest.raises(UsageError, match=r"'b:0' is no host with a port from 1 to 65535"):
        parse_connect("a:2181,b:0/x")
    with pytest.raises(UsageError, match=r"'a:1/x/\.\./q' .* no path with '\.\.' between slashes"):
        parse_connect("a:1/x/../q")


def test_what_a_tls_record_has_left_is_ready_to_be_read(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path, "pem")
    ours, theirs = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cafile=str(pem))
    client.check_hostname = False
    accepted: list[ssl.SSLSocket] = []

    def serve() -> None:
        accepted.append(server.wrap_socket(theirs, server_side=True))
        accepted[0].sendall(b"two answers")

    serving = Thread(target=serve)
    serving.start()
    with client.wrap_socket(ours) as connection:
        assert connection.recv(4) == b"two "
        serving.join()
        other, _ = sockets = socket.socketpair()
        handler = _Handler(1.0, client)
        assert handler.select([other, connection], [], [], 30) == ([connection], [], [])
        assert connection.recv(100) == b"answers"
        assert handler.select([other, connection], [], [], 0.001) == ([], [], [])
        for each in (*sockets, *accepted):
            each.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _serve_the_second(listener: socket.socket, server: str) -> None:
    """Never answers the first connection, as ZooKeeper sometimes does while it starts."""
    host, _, port = server.partition(":")
    with (
        suppress(OSError),
        listener.accept()[0],
        listener.accept()[0] as client,
        socket.create_connection((host, int(port))) as real,
    ):
        Thread(target=_copy, args=(real, client), daemon=True).start()
        _copy(client, real)


def test_a_server_that_never_answers_is_given_up_soon(zookeeper: ZooKeeperServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_serve_the_second, args=(listener, zookeeper.address), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        session = ZooKeeperSession(ZooKeeperAccess(address, 9, 8))
        session.make_root()
        assert session.read(["/zookeeper"]) != [None]
        session.close()


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(ZooKeeperAccess(zookeeper.new_path(), 5, 10))
    session.make_root()
    yield session
    session.close()


def test_a_transaction_is_all_or_nothing(session: ZooKeeperSession) -> None:
    session.commit([Create("/a", b"1"), Set("/a", b"2"), Create("/b")])
    for failing in (Check("/a", 7), Create("/a"), Set("/c", b""), Delete("/c"), Set("/a", b"", 0)):
        with pytest.raises(Conflict):
            session.commit([Set("/b", b"x"), failing])
    session.commit([Create("/a/below")])
    with pytest.raises(Conflict):
        session.commit([Delete("/a")])
    nodes = session.read(["/a", "/b", "/c"], sync=True)
    assert [node and (node.data, node.version, node.owner) for node in nodes] == [(b"2", 1, 0), (b"", 0, 0), None]


def test_an_ephemeral_node_is_of_its_session(session: ZooKeeperSession) -> None:
    session.commit([Create("/a", ephemeral=True)])
    (node,) = session.read(["/a"])
    assert node is not None
    assert node.owner == session.id != 0


def test_nodes_are_numbered_by_zookeeper(session: ZooKeeperSession) -> None:
    session.commit([Create("/a"), Create("/a/b_", b"1", numbered=True), Create("/a/b_", b"2", numbered=True)])
    assert sorted(session.children(["/a"])[0]) == ["b_0000000000", "b_0000000001"]
    session.delete(["/a/b_0000000001"])
    session.commit([Create("/a/b_", b"3", numbered=True)])
    first, last = sorted(session.children(["/a"])[0])
    assert last > "b_0000000001"
    nodes = session.read([f"/a/{first}", f"/a/{last}"])
    assert [node and node.data for node in nodes] == [b"1", b"3"]
    assert all(node and abs(node.created_ms - time.time() * 1000) < 60_000 for node in nodes)


def test_reads_make_no_path(zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path() + "/deep"
    session = ZooKeeperSession(ZooKeeperAccess(connect, 5, 10))
    assert session.read(["/a"], sync=True) == [None]
    assert session.children(["/a"]) == [[]]
    session.close()
    with another_program(zookeeper.address) as other:
        assert other.exists("/" + connect.split("/")[1]) is None


def test_what_zookeeper_refuses_for_another_reason_is_no_conflict(session: ZooKeeperSession) -> None:
    session.commit([Create("/a", ephemeral=True)])
    with pytest.raises(RegistryUnavailable, match="refuses to write /a/b"):
        session.commit([Create("/a/b")])


def test_all_below_a_node_is_deleted(session: ZooKeeperSession) -> None:
    session.commit([Create("/a"), Create("/ab"), *(Create(f"/a/{number}") for number in range(600))])
    session.commit([Create(f"/a/{number}/b") for number in range(600)])
    session.commit([Create("/mine")])
    with pytest.raises(Conflict):
        session.delete_below("/a", Check("/mine", 1))
    assert len(session.all_below(["/a"])) == 1201
    session.delete_below("/a", Check("/mine", 0))
    assert session.read(["/a"]) == [None]
    assert session.read(["/ab"]) != [None]


def test_more_reads_than_are_sent_at_once(session: ZooKeeperSession) -> None:
    session.commit([Create(f"/{number}", b"%d" % number) for number in range(1300)])
    found = session.read([f"/{number}" for number in range(1301)])
    assert [node and node.data for node in found] == [*(b"%d" % number for number in range(1300)), None]


def test_numbers_are_given_once(session: ZooKeeperSession) -> None:
    session.make(["/n", "/n"])
    assert [session.next_number("/n") for _ in range(3)] == [1, 2, 3]
