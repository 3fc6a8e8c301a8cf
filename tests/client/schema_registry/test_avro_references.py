"""Avro schemas that are put into those that refer to them."""

import json
from io import BytesIO

import pytest

from barnabas.client.schema_registry.avro_references import BrokenReference, named_types, resolved
from client.schema_registry.fake_registry import written

fastavro = pytest.importorskip("fastavro")


def test_names_mean_the_same_wherever_a_type_is_put() -> None:
    """One without a namespace, and one with, that are both called T."""
    plain = {"type": "fixed", "name": "T", "size": 1}
    named = {"type": "record", "name": "T", "namespace": "n", "fields": [{"name": "t", "type": "long"}]}
    known = {**named_types(json.dumps(plain)), **named_types(json.dumps(named))}
    assert sorted(known) == ["T", "n.T"]
    main = {"type": "record", "name": "M", "fields": [{"name": "a", "type": "n.T"}, {"name": "b", "type": "T"}]}
    schema = json.loads(resolved(json.dumps(main), known))
    value = {"a": {"t": 5}, "b": b"x"}
    data = written(schema, value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None) == value


def test_a_type_without_a_namespace_named_within_one() -> None:
    size = {"type": "fixed", "name": "Size", "size": 1}
    base = {
        "type": "record",
        "name": "Base",
        "fields": [{"name": "x", "type": "Size"}, {"name": "y", "type": ["null", "Size"]}],
    }
    known = {**named_types(json.dumps(base)), **named_types(json.dumps(size))}
    main = {"type": "record", "name": "O", "namespace": "n", "fields": [{"name": "b", "type": "Base"}]}
    schema = json.loads(resolved(json.dumps(main), known))
    value = {"b": {"x": b"1", "y": b"2"}}
    data = written(schema, value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None) == value
    main["fields"] = [{"name": "b", "type": "Base"}, {"name": "c", "type": {"type": "array", "items": "Base"}}]
    with pytest.raises(BrokenReference, match="Base has no namespace and is named a second time, within one"):
        resolved(json.dumps(main), known)
    same = {**named_types(json.dumps({**size, "name": "n.Base"})), **known}  # the nearest one is meant
    fields = json.loads(resolved(json.dumps(main), same))["fields"]
    assert (fields[0]["type"]["name"], fields[1]["type"]["items"]) == ("n.Base", "n.Base")


def test_properties_of_ones_own_have_any_name() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["a"], "items": {"note": 1}, "values": ["b"]}
    text = json.dumps({"type": "record", "name": "R", "values": {}, "fields": [{"name": "e", "type": inner}]})
    assert sorted(named_types(text)) == ["E", "R"]
    main = {"type": "array", "items": {"type": "map", "values": "E"}}
    schema = fastavro.parse_schema(json.loads(resolved(json.dumps(main), named_types(text))))
    data = written(schema, [{"k": "a"}])
    assert fastavro.schemaless_reader(BytesIO(data), schema, None) == [{"k": "a"}]
    with pytest.raises(BrokenReference, match="not an Avro schema"):
        named_types(json.dumps({"type": "record", "name": "R", "fields": 5}))
