"""The client of a schema registry with Confluent's HTTP API. It caches schemas by their ids."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from barnabas.client.schema_registry.avro_references import BrokenReference, named_types, resolved
from barnabas.errors import BarnabasError, UsageError

__all__ = [
    "PREFIX_BYTES",
    "RegisteredSchema",
    "RegistryUnavailable",
    "SchemaRegistryClient",
    "UnknownSchema",
    "schema_id_of",
]

_ROUNDS: Final = 2
_ANSWER_MAX: Final = 16 * 1024 * 1024
_KEPT_MAX: Final = 1000
_REFERENCES_MAX: Final = 100
_AVRO: Final = "AVRO"
_MAGIC: Final = 0
PREFIX_BYTES: Final = 5
"""The size of the prefix of a value: a zero, and the schema's id in 4 bytes, big endian."""


class RegistryUnavailable(BarnabasError):
    """No registry answers, or none accepts the credentials."""


class UnknownSchema(BarnabasError):
    """The registry does not have the schema, or it has one of another kind than Avro."""


class RegisteredSchema(NamedTuple):
    """A schema as it is registered; an Avro schema has the schemas in it that it refers to."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str


def schema_id_of(value: bytes) -> int | None:
    """Returns the schema's id in front of a value, None if the value does not begin with one."""
    if len(value) < PREFIX_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and sends credentials only to the address that they were given for."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Returns the request to the new address, without credentials unless scheme, host and port are the same."""
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            request.remove_header("Authorization")
        return request


_opener: Final = urllib.request.build_opener(_Redirects)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class SchemaRegistryClient:
    """Asks a registry that has one or several addresses."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        """Raises UsageError."""
        urls = [url.strip().rstrip("/") for url in settings.get("url", "").split(",") if url.strip()]
        if not urls:
            raise UsageError(
                "schema.registry.url is missing; give the registry's address, such as http://localhost:8081"
            )
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise UsageError(f"schema.registry.url: {url!r} is not an address; write http://host:8081")
        self._urls = urls
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        user = settings.get("basic.auth.user.info")
        if user is not None:
            if ":" not in user:
                raise UsageError("schema.registry.basic.auth.user.info must be user:password")
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._schemas: dict[int, RegisteredSchema] = {}

    def find(self, schema_id: int) -> RegisteredSchema:
        """Returns a schema by its id. Raises UnknownSchema, RegistryUnavailable."""
        found = self._schemas.get(schema_id)
        if found is None:
            answer = self._ask(f"/schemas/ids/{schema_id}")
            if answer is None:
                raise UnknownSchema(f"the registry at {self._urls[0]} has no schema {schema_id}")
            found = self._resolved(answer, f"schema {schema_id}")
            if len(self._schemas) >= _KEPT_MAX:
                self._schemas.clear()
            self._schemas[schema_id] = found
        return found

    def schema_of(self, schema_id: int) -> str:
        """Returns the JSON of an Avro schema by its id. Raises UnknownSchema, RegistryUnavailable."""
        return _avro(self.find(schema_id), f"schema {schema_id}")

    def latest(self, subject: str) -> str:
        """Returns the JSON of the newest Avro schema of a subject. Raises UnknownSchema, RegistryUnavailable."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        what = f"subject {subject!r}"
        if answer is None:
            raise UnknownSchema(f"the registry at {self._urls[0]} has no {what}")
        return _avro(self._resolved(answer, what), what)

    def _resolved(self, answer: Any, what: str) -> RegisteredSchema:
        """Returns the schema of a response, and puts the schemas into it that an Avro schema refers to. Raises
        UnknownSchema, RegistryUnavailable."""
        schema, references = _registered(answer, what)
        if not references or schema.kind != _AVRO:
            return schema
        known: dict[str, Any] = {}
        try:
            self._gather(references, what, known, set())
            return RegisteredSchema(_AVRO, resolved(schema.text, known))
        except BrokenReference as error:
            raise UnknownSchema(f"{what} of the registry: {error}") from None

    def _gather(self, references: Any, what: str, known: dict[str, Any], seen: set[tuple[str, int]]) -> None:
        """Adds the types of the referenced schemas to `known`. Raises UnknownSchema, RegistryUnavailable."""
        for reference in references:
            try:
                version_of_subject = str(reference["subject"]), int(reference["version"])
            except (LookupError, TypeError, ValueError):
                raise UnknownSchema(
                    f"{what} refers to {str(reference)[:80]}, which names no subject and version"
                ) from None
            if version_of_subject in seen:
                continue
            if len(seen) >= _REFERENCES_MAX:
                raise UnknownSchema(f"{what} refers to more than {_REFERENCES_MAX} other schemas")
            seen.add(version_of_subject)
            subject, version = version_of_subject
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
            if answer is None:
                raise UnknownSchema(f"{what} refers to version {version} of subject {subject!r}, which is not there")
            name = f"version {version} of subject {subject!r}"
            schema, more = _registered(answer, name)
            self._gather(more, name, known, seen)
            known |= named_types(_avro(schema, name))

    def _ask(self, path: str) -> Any:
        """Returns the JSON of the response, None for HTTP 404."""
        failures: dict[str, str] = {}
        for url in self._urls * _ROUNDS:
            request = urllib.request.Request(url + path, headers=self._headers)
            try:
                with _opener.open(request, timeout=self._timeout_s) as answer:
                    return json.loads(answer.read(_ANSWER_MAX))
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        return None
                    failures[url] = f"HTTP {error.code} {error.reason}"
                    if error.code in (401, 403):
                        failures[url] += " (schema.registry.basic.auth.user.info is user:password)"
            except (OSError, ValueError) as error:
                failures[url] = str(getattr(error, "reason", error)) or type(error).__name__
        reasons = "; ".join(f"{url}: {reason}" for url, reason in failures.items())
        raise RegistryUnavailable(f"the schema registry gives no answer to {path} ({reasons}); see schema.registry.url")


def _registered(answer: Any, what: str) -> tuple[RegisteredSchema, list[Any]]:
    """Returns the schema and the references of a response. Raises UnknownSchema."""
    schema = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(schema, str):
        raise UnknownSchema(f"the registry's answer for {what} has no schema")
    references = answer.get("references")
    kind = str(answer.get("schemaType") or _AVRO)
    return RegisteredSchema(kind, schema), references if isinstance(references, list) else []


def _avro(schema: RegisteredSchema, what: str) -> str:
    """Returns an Avro schema's text. Raises UnknownSchema for other kinds."""
    if schema.kind != _AVRO:
        raise UnknownSchema(f"{what} is {schema.kind}, not Avro")
    return schema.text
