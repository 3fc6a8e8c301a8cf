"""Addresses of a broker: how they are written, and which sets of them are refused."""

import pytest

from barnabas.config.endpoints import Endpoint, parse_endpoint, parse_endpoints, parse_protocol_map
from barnabas.errors import UsageError

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "SSL": "SSL"}


@pytest.mark.parametrize(
    ("text", "host", "port", "local"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092, "127.0.0.1:9092"),
        ("internal://kafka.example:0", "kafka.example", 0, "kafka.example:0"),
        ("PLAINTEXT://:9092", "", 9092, "127.0.0.1:9092"),
        ("PLAINTEXT://[::]:9092", "::", 9092, "[::1]:9092"),
        (" PLAINTEXT://[fe80::1]:65535 ", "fe80::1", 65535, "[fe80::1]:65535"),
    ],
)
def test_an_address_is_read_and_written(text: str, host: str, port: int, local: str) -> None:
    endpoint = parse_endpoint("listeners", text, PROTOCOLS)
    assert (endpoint.host, endpoint.port, endpoint.local_address) == (host, port, local)
    assert parse_endpoint("listeners", str(endpoint), PROTOCOLS) == endpoint
    assert endpoint.name == text.strip().partition("://")[0].upper()


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["PLAINTEXT//h:1"], "not of the form NAME://host:port"),
        (["PLAINTEXT://h"], "not of the form NAME://host:port"),
        (["PLAINTEXT://h:65536"], "not of the form NAME://host:port"),
        (["OTHER://h:1"], "has a name without protocol; add OTHER:PLAINTEXT"),
        (["SSL://h:1"], "asks for SSL, which is not served"),
        (["CONTROLLER://h:1"], "no listener for clients"),
        (["PLAINTEXT://h:1", "plaintext://h:2"], "different name, but got PLAINTEXT, PLAINTEXT"),
        (["PLAINTEXT://h:1", "INTERNAL://h:1"], "different address and port"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=f"listeners: .*{sentence}"):
        parse_endpoints("listeners", texts, PROTOCOLS, ["controller"])


def test_what_may_stand_beside_each_other() -> None:
    free = parse_endpoints("listeners", ["PLAINTEXT://h:0", "INTERNAL://h:0"], PROTOCOLS)
    assert free == (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 0), Endpoint("INTERNAL", "PLAINTEXT", "h", 0))
    assert len(parse_endpoints("advertised.listeners", ["PLAINTEXT://h:1", "INTERNAL://h:1"], PROTOCOLS)) == 2


def test_protocols_of_names() -> None:
    assert parse_protocol_map("a:ssl, B : PLAINTEXT") == {"A": "SSL", "B": "PLAINTEXT"}
    with pytest.raises(UsageError, match="'b' is not of the form NAME:PROTOCOL"):
        parse_protocol_map("a:ssl,b")
