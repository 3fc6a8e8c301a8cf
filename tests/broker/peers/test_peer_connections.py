"""Requests to another broker: a real one, one that stands still, and ports that are none."""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.peers.peer_connections import IN_FLIGHT_MAX, PeerAddress, PeerConnections, Role
from barnabas.config.endpoints import Endpoint
from barnabas.connection.broker.client_request import ClientRequest
from barnabas.errors import BrokerNotAvailable, ClientClosed, ConnectionLost, RequestTimedOut, SaslAuthenticationFailed
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.version import __version__
from broker.cluster.clusters import wait_for
from broker.peers.conftest import QUICK, SOON_S, Peer, member, member_of, peer_of
from broker.wire import on_loop


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, SOON_S))


def accepted(peer: Peer) -> set[int]:
    """Returns the ports of the connections that the broker has from brokers now."""
    acceptor = member_of(peer.broker)._listener._acceptor
    return on_loop(peer.broker, lambda: {connection.peer_port for connection in acceptor.connections})


def test_a_request_gets_its_response(peer: Peer) -> None:
    async def main() -> None:
        async with peer.connected() as peers:
            assert not peers.is_ready(1, Role.CONTROL)
            response = await peers.send(1, ListGroupsRequest())
            assert (response.error_code, response.groups) == (0, [])
            assert peers.is_ready(1, Role.CONTROL)
            assert not peers.is_ready(1, Role.FETCH)

    run(main())


def test_a_request_may_be_sent_by_the_callback_of_another(peer: Peer) -> None:
    async def main() -> None:
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        async with peer.connected() as peers:
            responses: list[Any] = []

            def take(response: Any, error: Any) -> None:
                responses.append(response or error)
                if len(responses) == 3:
                    done.set_result(responses)
                else:
                    send()

            def send() -> None:
                peers.send_request(1, ClientRequest(ListGroupsRequest(), take), role=Role.FETCH)

            send()
            assert [response.error_code for response in await done] == [0, 0, 0]

    run(main())


def test_each_role_has_a_connection(peer: Peer) -> None:
    async def main() -> None:
        before = accepted(peer)
        async with peer.connected() as peers:
            for _ in range(2):
                await asyncio.gather(*(peers.send(1, ListGroupsRequest(), role=role) for role in Role))
            assert len(accepted(peer) - before) == len(Role) == 4

    run(main())


def test_a_request_of_one_role_does_not_wait_for_another(peer: Peer) -> None:
    """DescribeLogDirs reads the disk in a thread, and its connection takes nothing meanwhile."""

    async def main() -> None:
        async with peer.connected() as peers:
            answers = await asyncio.gather(
                peers.send(1, DescribeLogDirsRequest(topics=None), role=Role.FORWARD),
                peers.send(1, ListGroupsRequest()),
            )
            assert [answer.error_code for answer in answers] == [0, 0]

    run(main())


def test_requests_in_flight_are_bounded(peer: Peer) -> None:
    async def main() -> None:
        async with peer.connected() as peers:
            await peers.send(1, ListGroupsRequest())
            with peer.stopped():
                waiting = [peers.send(1, ListGroupsRequest()) for _ in range(IN_FLIGHT_MAX)]
                with pytest.raises(RequestTimedOut, match="1000 requests to broker 1 wait for responses"):
                    await peers.send(1, ListGroupsRequest())
            assert {answer.error_code for answer in await asyncio.gather(*waiting)} == {0}
            assert (await peers.send(1, ListGroupsRequest())).error_code == 0

    run(main())


def test_a_silent_peer_fails_the_request_in_time(peer: Peer) -> None:
    async def main() -> None:
        async with peer.connected(settings=QUICK._replace(request_timeout_s=0.05)) as peers:
            await peers.send(1, ListGroupsRequest(), timeout_s=SOON_S)
            with peer.stopped(), pytest.raises(ConnectionLost, match="no answer to ListGroups in time"):
                await peers.send(1, ListGroupsRequest())
            assert (await peers.send(1, ListGroupsRequest(), timeout_s=SOON_S)).error_code == 0

    run(main())


def test_a_port_that_takes_connections_and_says_nothing(peer: Peer) -> None:
    async def main(port: int) -> None:
        address = PeerAddress(Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", port), 1)
        settings = QUICK._replace(setup_timeout_s=0.05)
        async with peer.connected(address_of=lambda node_id: address, settings=settings) as peers:
            with pytest.raises(ConnectionLost, match="version: timed out"):
                await peers.send(1, ListGroupsRequest())

    with socket.create_server(("127.0.0.1", 0)) as server:
        run(main(server.getsockname()[1]))


def test_a_peer_that_does_not_listen_is_told_by_the_next_request(peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", server.getsockname()[1])

    async def main() -> None:
        async with peer.connected(address_of=lambda node_id: PeerAddress(endpoint, 1)) as peers:
            for _ in range(3):  # each after a backoff
                with pytest.raises(ConnectionLost, match="tcp: connection refused"):
                    await peers.send(1, ListGroupsRequest())

    run(main())


def told(peers: PeerConnections) -> "asyncio.Queue[tuple[int, bool]]":
    """Returns what is told of connections that could not be made."""
    queue: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
    peers.on_peer_unreached = lambda node_id, refused: queue.put_nowait((node_id, refused))
    return queue


def test_a_host_that_refuses_connections_is_told(peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", server.getsockname()[1])

    async def main() -> None:
        async with peer.connected(address_of=lambda node_id: PeerAddress(endpoint, 1)) as peers:
            unreached = told(peers)
            for _ in range(3):  # each after a backoff
                peers.connect(1)
                assert await unreached.get() == (1, True)

    run(main())


@pytest.mark.parametrize("then", ["nothing", "the end"])
def test_a_port_that_takes_connections_refuses_none(peer: Peer, then: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if then == "nothing":
            await reader.read()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = PeerAddress(Endpoint("INTERNAL", "SASL_PLAINTEXT", *server.sockets[0].getsockname()[:2]), 1)
            settings = QUICK._replace(setup_timeout_s=0.05)
            async with peer.connected(address_of=lambda node_id: address, settings=settings) as peers:
                unreached = told(peers)
                peers.connect(1)
                assert await unreached.get() == (1, False)

    run(main())


def test_a_connection_may_be_opened_without_a_request(peer: Peer) -> None:
    async def main() -> None:
        before = accepted(peer)
        async with peer.connected() as peers:
            peers.connect(1)
            await asyncio.to_thread(wait_for, lambda: accepted(peer) - before)
            peers.connect(1)
            await peers.send(1, ListGroupsRequest())
            assert len(accepted(peer) - before) == 1
        peers.connect(1)

    run(main())


def test_a_broker_that_is_not_registered(peer: Peer) -> None:
    async def main() -> None:
        async with peer.connected(address_of=lambda node_id: None) as peers:
            with pytest.raises(BrokerNotAvailable, match="broker 9 is not registered"):
                await peers.send(9, ListGroupsRequest())

    run(main())


def test_a_peer_that_restarts_at_another_port(tmp_path: Path) -> None:
    with member(tmp_path) as broker:
        peer = peer_of(broker)
        now = [peer]

        async def main() -> None:
            async with peer.connected(address_of=lambda node_id: PeerAddress(now[0].endpoint, 1)) as peers:
                await peers.send(1, ListGroupsRequest())
                loop = asyncio.get_running_loop()
                with peer.stopped():
                    in_flight = peers.send(1, ListGroupsRequest())
                    stopping = loop.run_in_executor(None, broker.stop)
                await stopping
                assert (await asyncio.gather(in_flight, return_exceptions=True))[0] is not None
                with pytest.raises(ConnectionLost):
                    await peers.send(1, ListGroupsRequest())
                await loop.run_in_executor(None, broker.start)
                now[0] = await loop.run_in_executor(None, peer_of, broker)
                assert now[0].secret == peer.secret
                assert (await peers.send(1, ListGroupsRequest())).error_code == 0

        run(main())


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_a_new_registration_gets_a_new_connection(peer: Peer, whose: str) -> None:
    epochs = {"theirs": 1, "ours": 7}

    async def main() -> None:
        async with peer.connected(
            address_of=lambda node_id: PeerAddress(peer.endpoint, epochs["theirs"]),
            identity=lambda: peer.identity(broker_epoch=epochs["ours"]),
        ) as peers:
            await peers.send(1, ListGroupsRequest())
            first = accepted(peer)
            await peers.send(1, ListGroupsRequest())
            assert accepted(peer) == first
            epochs[whose] += 1
            peers.addresses_changed()
            await peers.send(1, ListGroupsRequest())
            assert accepted(peer) != first

    run(main())


def test_connections_to_a_peer_that_is_gone_are_closed(peer: Peer) -> None:
    known: list[PeerAddress | None] = [PeerAddress(peer.endpoint, 1)]

    async def main() -> None:
        async with peer.connected(address_of=lambda node_id: known[0]) as peers:
            await peers.send(1, ListGroupsRequest())
            with peer.stopped():
                waiting = peers.send(1, ListGroupsRequest())
                peers.addresses_changed()
                assert not waiting.done()
                known[0] = None
                peers.addresses_changed()
                with pytest.raises(ConnectionLost, match="the broker is gone"):
                    await waiting
            assert not peers.is_ready(1, Role.CONTROL)

    run(main())


def test_the_wrong_secret(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with peer.connected(secret=bytes(32)) as peers:
            for _ in range(3):
                with pytest.raises(SaslAuthenticationFailed, match="SCRAM-SHA-256 with wrong credentials"):
                    await peers.send(1, ListGroupsRequest())

    run(main())
    host, port = peer.address
    lines = [record.getMessage() for record in caplog.records if record.name == "test.peer"]
    assert lines == [
        f"broker 1 at {host}:{port} cannot be used: authentication failed: SCRAM-SHA-256 with wrong credentials"
    ]


def test_a_peer_that_ends_during_the_authentication_is_not_called_useless(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        writer.write(size + await reader.readexactly(int.from_bytes(size, "big")))

    async def end_after_the_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_peer, to_peer = await asyncio.open_connection(*peer.address)
        await pass_on(reader, to_peer)
        await pass_on(from_peer, writer)
        await reader.readexactly(4)  # of the first message of SASL
        for each in (writer, to_peer):
            each.close()

    async def main() -> None:
        async with await asyncio.start_server(end_after_the_versions, "127.0.0.1", 0) as relay:
            address = PeerAddress(Endpoint("INTERNAL", "SASL_PLAINTEXT", *relay.sockets[0].getsockname()[:2]), 1)
            async with peer.connected(address_of=lambda _: address) as peers:
                with pytest.raises(ConnectionLost, match="sasl: connection closed by the broker"):
                    await peers.send(1, ListGroupsRequest())

    run(main())
    assert [record.getMessage() for record in caplog.records if record.name == "test.peer"] == []


ANOTHER_CLUSTER = (
    "broker 1 of release {release} is of cluster {cluster}, broker 2 of release 0.0.9 of cluster another: "
    "start both with the registry of one cluster, or correct the address in listeners"
)
INCOMPATIBLE = (
    "broker 1 of release {release} speaks levels 1 to 1 of the protocol between brokers, broker 2 of release 0.0.9 "
    "levels 5 to 6: upgrade broker 1 to release 0.0.9, by one between them if the cluster must go on serving"
)
SAME_ID = (
    "broker 1 of release {release} and broker 1 of release 0.0.9 have one node.id: "
    "stop the one that is a copy, or give it another"
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cluster_id": "another"}, ANOTHER_CLUSTER),
        ({"first_level": 5, "last_level": 6}, INCOMPATIBLE),
        ({"node_id": 1}, SAME_ID),
    ],
)
def test_a_peer_that_does_not_fit_is_reported_once(
    peer: Peer, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], problem: str
) -> None:
    expected = problem.format(release=__version__, cluster=peer.cluster_id)

    async def main() -> None:
        async with peer.connected(identity=lambda: peer.identity(**changes)) as peers:
            for _ in range(2):
                with pytest.raises(ConnectionLost) as raised:
                    await peers.send(1, ListGroupsRequest())
                assert str(raised.value).endswith(f": introduction: {expected}")

    run(main())
    host, port = peer.address
    lines = [record.getMessage() for record in caplog.records if record.name == "test.peer"]
    assert lines == [f"broker 1 at {host}:{port} cannot be used: {expected}"]


def test_another_broker_at_the_address_of_a_peer(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with peer.connected() as peers:
            with pytest.raises(ConnectionLost, match="listens where broker 3 did; its new address is not known yet"):
                await peers.send(3, ListGroupsRequest())

    run(main())


def test_the_end_fails_what_waits(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with peer.connected() as peers:
            await peers.send(1, ListGroupsRequest())
            with peer.stopped():
                waiting, cancelled = peers.send(1, ListGroupsRequest()), peers.send(1, ListGroupsRequest())
                cancelled.cancel()
                peers.close()
                with pytest.raises(ClientClosed, match="the broker shuts down"):
                    await waiting
            with pytest.raises(ClientClosed):
                await peers.send(1, ListGroupsRequest())
            peers.addresses_changed()

    run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
