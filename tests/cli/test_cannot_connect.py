"""The error of a command that does not reach a broker: one line with address, stage, reason and remedy."""

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.testing import Broker
from cli.conftest import run_barnabas

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
REFUSAL = "Authentication failed: Invalid username or password"

Serve = Callable[[Callable[[socket.socket], None]], int]

COMMANDS = {
    "topics": ("topics", "list"),
    "produce": ("produce", "t"),
    "consume": ("consume", "t", "--group", "g"),
    "groups": ("groups", "describe", "g"),
    "perf": ("perf", "producer", "-n", "1"),
}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that treats each connection as it is told; its port."""
    with contextlib.ExitStack() as stack:

        def start(behave: Callable[[socket.socket], None]) -> int:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        connection, _ = listener.accept()
                        with connection, contextlib.suppress(OSError):
                            behave(connection)

            threading.Thread(target=run, daemon=True).start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return int(listener.getsockname()[1])

        yield start


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) for localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    return cert, key


def told(*arguments: str, code: int = 1) -> str:
    """The one line that a command ends with."""
    done = run_barnabas(*arguments, input="x\n")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert done.stderr.startswith("barnabas: ")
    return done.stderr


def topics_list(address: str, *settings: str) -> tuple[str, dict[str, Any]]:
    """The line, and the last attempt of the same told as JSON."""
    arguments = ["topics", "list", "-b", address, *(part for setting in settings for part in ("-X", setting))]
    line = told(*arguments)
    done = run_barnabas(*arguments, "--json")
    attempts = json.loads(done.stderr)["attempts"]
    assert attempts, "no attempt is told"
    return line, attempts[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_port(command: str) -> None:
    line = told(*COMMANDS[command], "-b", "127.0.0.1:1")
    assert "no broker reachable: 127.0.0.1:1: tcp: connection refused (nothing listens there" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_name(command: str) -> None:
    line = told(*COMMANDS[command], "-b", "no-such-host.invalid:9092")
    assert "no-such-host.invalid:9092: dns: " in line
    assert "check its spelling" in line


def test_every_address_is_told() -> None:
    line, attempt = topics_list("127.0.0.1:1,no-such-host.invalid:2")
    assert "127.0.0.1:1: tcp: connection refused" in line
    assert "no-such-host.invalid:2: dns: " in line
    assert attempt.keys() == {"address", "stage", "error", "hint", "elapsed_ms", "errno"}


def test_tls_to_a_plaintext_port(bootstrap: str) -> None:
    line, attempt = topics_list(bootstrap, "security.protocol=SSL")
    assert attempt["stage"] == "tls"
    assert "security.protocol is PLAINTEXT" in line


@pytest.mark.parametrize("tool", ["topics", "doctor"])
def test_plaintext_to_a_tls_port(serve: Serve, certificate: tuple[Path, Path], tool: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    address = f"127.0.0.1:{serve(lambda connection: context.wrap_socket(connection, server_side=True).close())}"
    if tool == "topics":
        line, attempt = topics_list(address)
        assert (attempt["stage"], "security.protocol" in line) == ("version", True)
    else:
        done = run_barnabas("doctor", "-b", address)
        assert done.returncode == 1
        assert "the port speaks TLS" in done.stdout
        assert "set security.protocol to SSL" in done.stdout


def test_a_certificate_that_nobody_vouches_for(serve: Serve, certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    port = serve(lambda connection: context.wrap_socket(connection, server_side=True).close())
    line, attempt = topics_list(f"localhost:{port}", "security.protocol=SSL")
    assert attempt["stage"] == "tls"
    assert "certificate verify failed: self" in line
    assert "ssl.truststore.location" in line
    trusted = f"ssl.truststore.location={certificate[0]}"
    line, _ = topics_list(f"127.0.0.1:{port}", "security.protocol=SSL", trusted)
    assert "the certificate is for another name" in line


def test_a_web_server(serve: Serve) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    line, attempt = topics_list(f"127.0.0.1:{serve(behave)}")
    assert attempt["stage"] == "version"
    assert "the port answers HTTP" in line


def test_a_server_that_closes_at_once(serve: Serve) -> None:
    line, attempt = topics_list(f"127.0.0.1:{serve(lambda connection: None)}")
    assert attempt["stage"] == "version"
    assert "set security.protocol" in line


def test_a_server_that_says_nothing(serve: Serve) -> None:
    wait = threading.Event()
    address = f"127.0.0.1:{serve(lambda connection: wait.wait(60) and None)}"
    line = told("topics", "list", "-b", address, "--timeout", "3")
    wait.set()
    assert "version: timed out (connected, but no answer: not a Kafka broker, or a TLS listener, or it hangs)" in line


def with_sasl(connection: socket.socket) -> None:
    """A broker that knows SASL PLAIN and lets nobody in."""
    apis = {API_VERSIONS: 3, SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 1, METADATA: 12}
    known = [ApiVersion(api_key=key, min_version=0, max_version=last) for key, last in apis.items()]
    while True:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        if not size:
            return
        frame = connection.recv(size, socket.MSG_WAITALL)
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        answer: Any
        if key == SASL_HANDSHAKE:
            answer = SaslHandshakeResponse(error_code=0 if frame.endswith(b"PLAIN") else 33, mechanisms=["PLAIN"])
        elif key == SASL_AUTHENTICATE:
            answer = SaslAuthenticateResponse(error_code=58, error_message=REFUSAL)
        elif version > apis[API_VERSIONS]:
            answer, version = ApiVersionsResponse(error_code=35, api_keys=known), 0
        else:
            answer = ApiVersionsResponse(api_keys=known)
        body = frame[4:8] + encode(answer, version)
        connection.sendall(len(body).to_bytes(4, "big") + body)


SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.username=me")


def test_a_wrong_password(serve: Serve, tmp_path: Path) -> None:
    address = f"127.0.0.1:{serve(with_sasl)}"
    line, attempt = topics_list(address, *SASL, "sasl.mechanism=PLAIN", "sasl.password=wrong")
    assert attempt["stage"] == "sasl"
    assert f"{address}: sasl: Authentication failed: Invalid username or password (check sasl.username" in line
    settings = tmp_path / "client.properties"
    settings.write_text(
        "\n".join([*SASL, "sasl.mechanism=PLAIN", "sasl.password=wrong", f"bootstrap.servers={address}"])
    )
    for command in COMMANDS.values():
        assert "Invalid username or password" in told(*command, "-X", str(settings))
        done = run_barnabas(*command, input="x\n", environment={"BARNABAS_CLIENT_CONFIG": str(settings)})
        assert "Invalid username or password" in done.stderr


def test_a_mechanism_that_the_broker_does_not_have(serve: Serve) -> None:
    address = f"127.0.0.1:{serve(with_sasl)}"
    line, attempt = topics_list(address, *SASL, "sasl.mechanism=SCRAM-SHA-256", "sasl.password=x")
    assert attempt["stage"] == "sasl"
    assert "it offers: PLAIN (set sasl.mechanism" in line


def test_settings_that_are_none(bootstrap: str) -> None:
    assert "did you mean security.protocol?" in told("topics", "list", "-X", "security.protocl=SSL", code=2)
    unreadable = told("topics", "list", "-X", "/no/such/file", code=2)
    assert "cannot read the settings file /no/such/file: No such file" in unreadable
    assert "needs sasl.mechanism" in told("topics", "list", "-X", "security.protocol=SASL_SSL", code=2)
    done = run_barnabas("produce", "-b", bootstrap, "made-by-produce", "--create", "-X", "linger.ms=1", input="x\n")
    assert done.returncode == 0, done.stderr


def test_a_broker_that_goes_away_while_it_is_asked() -> None:
    with Broker() as broker:
        broker.faults.disconnect("METADATA", times=None)
        line = told("topics", "list", "-b", broker.bootstrap_servers, "--timeout", "3")
    assert "list_topics gave up after" in line
    assert "request: connection closed by the broker" in line
