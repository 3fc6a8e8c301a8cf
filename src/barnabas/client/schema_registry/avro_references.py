"""Puts referenced Avro schemas into the schema that refers to them, each where it is named first."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.errors import BarnabasError

__all__ = ["BrokenReference", "named_types", "resolved"]

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED: Final = ("record", "error", "enum", "fixed")


class BrokenReference(BarnabasError):
    """A text is not an Avro schema."""


def named_types(text: str) -> dict[str, Any]:
    """Returns all types that a schema defines, by full name. Raises BrokenReference."""
    found: dict[str, Any] = {}
    with _broken(text):
        _collect(_qualified(json.loads(text), ""), found)
    return found


def resolved(text: str, known: Mapping[str, Any]) -> str:
    """Returns the schema with `known` types in the place of references to them. Raises BrokenReference."""
    with _broken(text):
        return json.dumps(_filled(_qualified(json.loads(text), ""), known, set()))


@contextlib.contextmanager
def _broken(text: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenReference(f"not an Avro schema ({type(error).__name__}: {error}): {text[:80]}") from None


def _qualified(schema: Any, namespace: str) -> Any:
    """Returns the schema with full names only, so that a part of it means the same in every place."""
    if isinstance(schema, str):
        bare = schema in _PRIMITIVES or "." in schema or not namespace
        return schema if bare else f"{namespace}.{schema}"
    if isinstance(schema, list):
        return [_qualified(each, namespace) for each in schema]
    kind = schema["type"]
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {**schema, inner: _qualified(schema[inner], namespace)}
    if kind not in _NAMED:
        return {**schema, "type": _qualified(kind, namespace)}
    name: str = schema["name"]
    if "." not in name:
        namespace = schema.get("namespace", namespace)
        name = f"{namespace}.{name}" if namespace else name
    namespace = name.rpartition(".")[0]
    found = {**schema, "name": name, "namespace": namespace}
    if "fields" in schema:
        found["fields"] = [{**field, "type": _qualified(field["type"], namespace)} for field in schema["fields"]]
    return found


def _parts(schema: Any) -> list[Any]:
    """Returns the parts of a schema that may name other types. Properties that Avro does not define are none."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return []
    if _is_named(schema):
        return [field["type"] for field in schema.get("fields", ())]
    return [schema[_inner(schema)]]


def _is_named(schema: Any) -> bool:
    return isinstance(schema["type"], str) and schema["type"] in _NAMED


def _inner(schema: Any) -> str:
    """Returns the key under which a schema has the schema that it is made of."""
    kind = schema["type"]
    return {"array": "items", "map": "values"}.get(kind, "type") if isinstance(kind, str) else "type"


def _collect(schema: Any, found: dict[str, Any]) -> None:
    if isinstance(schema, dict) and _is_named(schema):
        found.setdefault(schema["name"], schema)
    for part in _parts(schema):
        _collect(part, found)


def _meant(name: str, known: Mapping[str, Any], done: set[str]) -> str:
    """Returns the full name of the type that a name refers to: a name within a namespace may be that of a type without
    one. fastavro finds such a type within a namespace only where it is written out."""
    bare = name.rpartition(".")[2]
    if name in known or name in done or bare not in known:
        return name
    if bare in done:
        raise ValueError(f"{bare} has no namespace and is named a second time, within one: give it a namespace")
    return bare


def _filled(schema: Any, known: Mapping[str, Any], done: set[str]) -> Any:
    if isinstance(schema, str):
        name = _meant(schema, known, done)
        return _filled(known[name], known, done) if name in known and name not in done else name
    if isinstance(schema, list):
        return [_filled(each, known, done) for each in schema]
    if _is_named(schema):
        if schema["name"] in done:
            return schema["name"]
        done.add(schema["name"])
        if "fields" not in schema:
            return schema
        fields = [{**field, "type": _filled(field["type"], known, done)} for field in schema["fields"]]
        return {**schema, "fields": fields}
    inner = _inner(schema)
    return {**schema, inner: _filled(schema[inner], known, done)}
