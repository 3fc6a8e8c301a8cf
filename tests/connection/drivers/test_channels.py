"""The sockets of the synchronous driver: names, addresses and connections that fail."""

import os
import socket
import ssl
from typing import Any

import pytest

from barnabas.connection.broker.addresses import split_address
from barnabas.connection.drivers import channel
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.errors import BrokerUnreachable
from barnabas.testing import Broker
from connection.drivers.conftest import groups, network_client_at
from no_more_threads import refuse_threads


def test_addresses_that_do_not_answer() -> None:
    driver = SyncDriver(network_client_at("127.0.0.1:1"))
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: tcp: connection refused") as raised:
        driver.wait_for(groups(driver), 60)
    assert "nothing listens there" in raised.value.attempts[0].hint
    driver.close()
    driver = SyncDriver(network_client_at("no-such-host.invalid:1"))
    with pytest.raises(BrokerUnreachable, match="dns"):
        driver.wait_for(groups(driver), 60)
    driver.close()


def test_the_second_address_of_a_name_serves(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    host, port = split_address(broker.bootstrap_servers)
    dead = channel.resolve("127.0.0.1", 1)[0]
    good = channel.resolve(host, port)[0]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [dead, good])
    driver = SyncDriver(network_client_at("two-addresses:9092"))
    assert driver.wait_for(driver.run(driver.client.refresh_metadata), 60) is None
    driver.close()


def test_a_name_needs_a_thread_and_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch, "barnabas-dns")
    driver = SyncDriver(network_client_at("localhost:9"))
    with pytest.raises(BrokerUnreachable, match="dns: can't start new thread"):
        driver.wait_for(groups(driver), 60)
    driver.close()


def test_what_tls_closes_by_itself_is_one_more_failure(broker: Broker) -> None:
    """As it does when a connection ends, with something said, before the handshake."""

    class Context:
        def wrap_socket(self, sock: socket.socket, **_: Any) -> None:
            os.close(sock.detach())
            raise ssl.SSLError(1, "Closed before TLS handshake")

    driver = SyncDriver(network_client_at(broker.bootstrap_servers), ssl_context=Context())  # type: ignore[arg-type]
    with pytest.raises(BrokerUnreachable, match="tls: closed before TLS handshake"):
        driver.wait_for(groups(driver), 60)
    driver.close()
