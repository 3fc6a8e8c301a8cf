"""Values of a schema registry, decoded by `barnabas consume`."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from barnabas.cli.records.registry_values import RegistryDecoder, Undecodable
from barnabas.client.schema_registry.registry_client import RegistryUnavailable
from barnabas.errors import UsageError
from cli.conftest import Run
from client.schema_registry.fake_registry import written

pytest.importorskip("fastavro")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string", "bytes"]},
        {"name": "rate", "type": "double"},
    ],
}
SCHEMAS = {
    1: {"schema": json.dumps(ORDER)},
    2: {"schema": '{"type": "object"}', "schemaType": "JSON"},
    3: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    4: {"schema": '"string"'},
}
MOMENT = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a registry with SCHEMAS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = SCHEMAS.get(int(self.path.rpartition("/")[2]))
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def order(**more: Any) -> bytes:
    return framed(1, written(ORDER, {"total": Decimal("1.50"), "at": MOMENT, "note": None, "rate": 1.5} | more))


def test_avro_and_json_become_json(registry: str) -> None:
    decoder = RegistryDecoder({"url": registry}, 10)
    plain = {"total": "1.50", "at": "2013-01-01T05:15:00+00:00", "note": None, "rate": 1.5}
    assert decoder.decode(order()) == plain
    assert decoder.decode(order(note="ü")) == plain | {"note": "ü"}
    assert decoder.decode(order(note=b"\xff", rate=float("nan"))) == plain | {"note": {"base64": "/w=="}, "rate": "nan"}
    assert decoder.decode(framed(2, b'{"a": [1]}')) == {"a": [1]}
    assert decoder.decode(framed(4, written("string", "key"))) == "key"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begins with nothing, not with a zero and a schema's id"),
        (b"plain text", "begins with 706c61696e, not"),
        (framed(1, b"\x01"), "is not of schema 1: "),
        (order() + b"!", "is not of schema 1: 1 bytes are left"),
        (framed(2, b"{"), "is not JSON: "),
        (framed(3, b"x"), "schema 3 is PROTOBUF, which is not understood"),
        (framed(9, b"x"), "has no schema 9"),
    ],
)
def test_what_cannot_be_decoded_says_why(registry: str, data: bytes, words: str) -> None:
    with pytest.raises(Undecodable) as raised:
        RegistryDecoder({"url": registry}, 10).decode(data)
    assert words in str(raised.value)


def test_a_registry_that_is_not_there_is_an_error_of_its_own() -> None:
    with pytest.raises(RegistryUnavailable, match=r"[Cc]onnection refused"):
        RegistryDecoder({"url": "http://127.0.0.1:1"}, 10).decode(order())
    with pytest.raises(UsageError, match=r"schema\.registry\.url is missing"):
        RegistryDecoder({}, 10)


def test_consume_prints_decoded_values(in_process: Run, name: str, registry: str) -> None:
    in_process("topics", "create", name, "-p", "1")
    values = [order(), framed(2, b'{"a":1}'), b"plain"]
    in_process("produce", name, "-D", "\\x1e\\x1e", "-k", "k", input=b"\x1e\x1e".join(values))
    first = '{"total":"1.50","at":"2013-01-01T05:15:00+00:00","note":null,"rate":1.5}'
    text = in_process("consume", name, "-e", "--registry", registry)
    assert text.stdout.splitlines() == [first, '{"a":1}', "plain"]
    assert text.returncode == 1
    assert text.stderr.splitlines() == [
        f"% {name}-0 offset 2: the value begins with 706c61696e, not with a zero and a schema's id",
        "barnabas: could not decode 1 of the keys and values, which were printed as they are",
    ]
    setting = ("-X", f"schema.registry.url={registry}", "--value-as", "registry")
    lines = in_process("consume", name, "-e", "-c", "2", "--json", *setting)
    assert lines.returncode == 0, lines.stderr
    decoded = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [record["value"] for record in decoded] == [json.loads(first), {"a": 1}]
    assert in_process("consume", name, "-e", "--grep-value", '"a":1', "-c", "1", *setting).stdout == '{"a":1}\n'
    missing = in_process("consume", name, "--value-as", "registry")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
