"""The client of a schema registry: references, credentials, redirects, no answer."""

import base64
import json
from io import BytesIO

import pytest

from barnabas.client.schema_registry.registry_client import RegistryUnavailable, SchemaRegistryClient, UnknownSchema
from barnabas.errors import UsageError
from client.schema_registry.fake_registry import NEW, OLD, FakeRegistry, written

fastavro = pytest.importorskip("fastavro")


def test_a_schema_that_refers_to_others(registry: FakeRegistry) -> None:
    found = SchemaRegistryClient({"url": registry.url}, 5)
    text = found.schema_of(10)
    item = {"color": "RED", "also": [{"color": "BLUE", "also": []}]}
    value = {"items": [item], "color": "BLUE", "first": item}
    data = written(json.loads(text), value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(json.loads(text)), None) == value
    asked = [path for path in registry.asked if "/subjects/" in path]
    assert asked == ["/subjects/item/versions/3?deleted=true", "/subjects/color/versions/1?deleted=true"]
    with pytest.raises(UnknownSchema, match="schema 11 refers to version 4 of subject 'item', which is not there"):
        found.schema_of(11)
    with pytest.raises(UnknownSchema, match=r"schema 12 of the registry: not an Avro schema \(KeyError"):
        found.schema_of(12)


def test_a_registry_that_is_no_help(registry: FakeRegistry) -> None:
    registry.password = "ada:secret"
    with pytest.raises(RegistryUnavailable, match=r"HTTP 401 .*user:password"):
        SchemaRegistryClient({"url": registry.url}, 5).schema_of(1)
    known = {"url": f"http://127.0.0.1:1, {registry.url}/", "basic.auth.user.info": "ada:secret"}
    assert json.loads(SchemaRegistryClient(known, 5).schema_of(1)) == OLD
    with pytest.raises(UnknownSchema):
        SchemaRegistryClient(known, 5).schema_of(77)
    with pytest.raises(RegistryUnavailable, match=r"gives no answer to /schemas/ids/5 .*refused.*HTTP 500"):
        SchemaRegistryClient(known, 5).schema_of(5)
    for wrong in ({}, {"url": "localhost:8081"}, {"url": "http://x", "basic.auth.user.info": "ada"}):
        with pytest.raises(UsageError, match=r"schema\.registry\."):
            SchemaRegistryClient(wrong, 5)


def test_a_redirect_to_another_address_does_not_get_the_password(registry: FakeRegistry) -> None:
    settings = {"url": registry.url, "basic.auth.user.info": "ada:secret"}
    password = "Basic " + base64.b64encode(b"ada:secret").decode()
    other = FakeRegistry()
    try:
        registry.elsewhere = other.url
        assert json.loads(SchemaRegistryClient(settings, 5).schema_of(1)) == OLD
        assert (registry.authorizations, other.authorizations) == ([password], [None])
    finally:
        other.server.shutdown()
        other.server.server_close()
    registry.elsewhere = f"{registry.url}/moved"  # the same address: the password is for it
    assert json.loads(SchemaRegistryClient(settings, 5).schema_of(2)) == NEW
    assert registry.authorizations == [password] * 3
