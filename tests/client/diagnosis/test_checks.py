import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.diagnosis.checks import Check, diagnose, tls_name
from barnabas.testing import Broker
from client.conftest import server


def checks(bootstrap: str, *, write: bool = False, timeout_s: float = 5.0) -> list[Check]:
    return list(diagnose(bootstrap, timeout_s=timeout_s, write=write))


def failures(bootstrap: str) -> list[tuple[str, str]]:
    return [(check.name, check.detail) for check in checks(bootstrap) if check.status == "failed"]


def test_a_healthy_broker(broker: Broker) -> None:
    found = checks(broker.bootstrap_servers, write=True)
    assert [check.status for check in found] == ["ok"] * 8
    assert not any(topic.startswith("barnabas-doctor") for topic in broker.topics())


def test_who_asks_for_the_new_protocol_of_groups_is_told_what_to_set(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka with group.protocol=consumer waits without a word."""
    servers = broker.bootstrap_servers
    told = "no new consumer groups (KIP-848): clients need group.protocol=classic"
    assert [told in check.detail for check in checks(servers) if check.name == "versions"] == [True]
    monkeypatch.setattr("barnabas.client.diagnosis.checks._CONSUMER_GROUP_HEARTBEAT", 18)  # one that is served
    assert [told in check.detail for check in checks(servers) if check.name == "versions"] == [False]


def test_each_stage_has_its_own_failure() -> None:
    assert failures("no-such-host.invalid:1")[0][0] == "dns"
    assert failures("127.0.0.1:1") == [("tcp", "connection refused")]
    with server(lambda connection: (connection.recv(100), connection.sendall(b"HTTP/1.1 400"))[0:0] and None) as port:
        assert failures(f"127.0.0.1:{port}")[0][0] == "protocol"


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[tuple[str, str]]:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        cert,
        "-subj",
        "/CN=x",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl to make a certificate")
    return cert, key  # type: ignore[return-value]


def test_a_tls_port_is_recognised(certificate: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with server(lambda connection: context.wrap_socket(connection, server_side=True).close()) as port:
        assert tls_name("127.0.0.1", port, 30.0).startswith("TLS")
        name, detail = failures(f"127.0.0.1:{port}")[0]
        assert name == "protocol"
        assert "TLS" in detail


def test_advertised_addresses_that_lead_nowhere() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"}
    with Broker(settings=settings) as broker:
        found = [check for check in checks(broker.bootstrap_servers) if check.status == "failed"]
    assert [check.name for check in found] == ["advertised"]
    assert "dns" in found[0].detail
    assert "advertised.listeners" in found[0].hint


def bound_port(broker: Broker) -> int:
    """The port at which it listens, whatever it advertises."""
    assert broker._broker is not None
    return broker._broker.endpoints[0].port


def test_a_broker_that_tells_another_address_than_its_published_one_is_told_the_setting() -> None:
    told = "PLAINTEXT://127.0.0.1:1"
    protocols = "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"
    two = {"listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map": protocols}
    for settings, others in [
        ({"advertised.listeners": told}, ""),
        ({**two, "advertised.listeners": f"{told},B://127.0.0.1:2"}, ", beside the entries of its other listeners"),
    ]:
        with Broker(settings=settings) as broker:
            (check,) = [check for check in checks(f"localhost:{bound_port(broker)}") if check.status == "failed"]
            assert (check.name, check.target) == ("advertised", "broker 1 at 127.0.0.1:1")
            assert f"advertised.listeners=PLAINTEXT://localhost:{bound_port(broker)}{others} (BARNABAS_" in check.hint


def test_a_broker_that_accepts_and_does_not_answer_is_not_told_to_advertise_another_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as the listener of a broker that is starting
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{silent.getsockname()[1]}"}
        with Broker(settings=settings) as broker:
            found = [
                check for check in checks(f"127.0.0.1:{bound_port(broker)}", timeout_s=1.0) if check.status == "failed"
            ]
    (check,) = found
    assert (check.name, check.detail) == ("advertised", "version: timed out")
    assert "advertised" not in check.hint
    assert "starting" in check.hint


def test_an_advertised_address_where_another_cluster_answers(broker: Broker) -> None:
    settings = {"advertised.listeners": f"PLAINTEXT://{broker.bootstrap_servers}"}
    with Broker(settings=settings) as astray:
        bound = f"127.0.0.1:{bound_port(astray)}"
        found = [check for check in checks(bound) if check.status == "failed"]
    assert [check.name for check in found] == ["advertised"]
    assert "another cluster answers there" in found[0].detail


def test_two_clusters_in_one_list(broker: Broker) -> None:
    with Broker() as other:
        names = [name for name, _ in failures(f"{broker.bootstrap_servers},{other.bootstrap_servers}")]
    assert names == ["cluster"]
