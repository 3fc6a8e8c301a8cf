"""TLS and the settings of connections, against a server that speaks TLS in front of a broker."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.settings import AdminSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.broker.addresses import split_address
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import OperationTimedOut, UsageError
from barnabas.testing import Broker

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def tls_port(broker: Broker, certificate: tuple[Path, Path]) -> Iterator[int]:
    """A port that speaks TLS and passes everything on to the broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    ports: list[int] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(*split_address(broker.bootstrap_servers))
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    yield ports[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def made(**settings: Any) -> tuple[NetworkClient, ssl.SSLContext | None]:
    parsed = AdminSettings(security_protocol="SSL", **settings)
    return NetworkClient(network_client_settings(parsed), time.monotonic()), ssl_context(parsed)


def test_both_drivers_speak_tls(tls_port: int, certificate: tuple[Path, Path]) -> None:
    servers = f"localhost:{tls_port}"
    network_client, context = made(bootstrap_servers=servers, ssl_truststore_location=str(certificate[0]))
    driver = SyncDriver(network_client, ssl_context=context)
    driver.wait_for(driver.run(network_client.refresh_metadata), 60)
    assert network_client.metadata.cluster.brokers
    driver.close()

    async def main() -> None:
        trusted = certificate[0].read_text()
        network_client, context = made(bootstrap_servers=servers, ssl_truststore_certificates=trusted)
        driver = AioDriver(network_client, ssl_context=context)
        await driver.wait_for(driver.run(network_client.refresh_metadata), 60)
        assert network_client.metadata.cluster.brokers
        driver.close()

    asyncio.run(main())


def test_the_stage_and_the_reason_are_told(tls_port: int, certificate: tuple[Path, Path]) -> None:
    def failure(host: str, **settings: Any) -> str:
        network_client, context = made(bootstrap_servers=f"{host}:{tls_port}", **settings)
        driver = SyncDriver(network_client, ssl_context=context)
        with pytest.raises(OperationTimedOut) as raised:
            driver.wait_for(driver.run(lambda: network_client.topic("t", 3.0)), 60)
        driver.close()
        return str(raised.value)

    assert "tls: " in failure("localhost")
    trusted = {"ssl_truststore_location": str(certificate[0])}
    assert "IP address mismatch" in failure("127.0.0.1", **trusted)


def test_a_plaintext_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def behave() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.sendall(b"\0\0\0\x04none")
            connection.close()

        threading.Thread(target=behave, daemon=True).start()
        network_client, context = made(bootstrap_servers=f"localhost:{listener.getsockname()[1]}")
        driver = SyncDriver(network_client, ssl_context=context)
        with pytest.raises(OperationTimedOut, match="tls: "):
            driver.wait_for(driver.run(lambda: network_client.topic("t", 3.0)), 60)
        driver.close()


def test_settings_that_cannot_work(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=r"ssl\.truststore\.location=/nowhere is no file"):
        made(ssl_truststore_location="/nowhere")
    with pytest.raises(UsageError, match="belong together"):
        made(ssl_keystore_key="-----BEGIN")
    with pytest.raises(UsageError, match="TLS cannot be set up"):
        made(ssl_keystore_location=str(certificate[0]))
    with pytest.raises(UsageError, match="TLS cannot be set up"):
        made(ssl_cipher_suites="NO-SUCH-SUITE")
    cert, key = certificate
    _, context = made(
        ssl_keystore_certificate_chain=cert.read_text(),
        ssl_keystore_key=key.read_text(),
        ssl_endpoint_identification_algorithm="",
        ssl_enabled_protocols="TLSv1.3",
    )
    assert context is not None
    assert (context.check_hostname, context.minimum_version) == (False, ssl.TLSVersion.TLSv1_3)
    own = ssl.create_default_context()
    assert made(ssl_context=own)[1] is own
