"""A schema registry, asked by HTTP as Confluent's is; what it has said once is kept."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from barnabas.errors import BarnabasError, UsageError
from barnabas.spark.formats.avro_references import BrokenReference, named_types, whole
from barnabas.spark.formats.rules import FormatRules

__all__ = ["Registry", "RegistryUnavailable", "UnknownSchema", "shared_registry", "with_reader_schema"]

_ROUNDS: Final = 2
_ANSWER_MAX: Final = 16 * 1024 * 1024
_KEPT_MAX: Final = 1000
_REGISTRIES_MAX: Final = 4
_REFERENCES_MAX: Final = 100
_registries: "dict[tuple[tuple[str, str], ...], Registry]" = {}


class RegistryUnavailable(BarnabasError):
    """No registry gives an answer, or not to us."""


class UnknownSchema(BarnabasError):
    """The registry does not have it, or it is no Avro."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and keeps the password to the address that it was given for."""

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


class Registry:
    """One or several addresses of the same registry."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        """Raises UsageError."""
        urls = [url.strip().rstrip("/") for url in settings.get("url", "").split(",") if url.strip()]
        if not urls:
            raise UsageError(
                "valueFormat=confluent-avro needs option schema.registry.url, such as http://localhost:8081"
            )
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise UsageError(f"option schema.registry.url: {url!r} is no address; write http://host:8081")
        self._urls = urls
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        user = settings.get("basic.auth.user.info")
        if user is not None:
            if ":" not in user:
                raise UsageError("option schema.registry.basic.auth.user.info must be user:password")
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._schemas: dict[int, str] = {}

    def schema_of(self, schema_id: int) -> str:
        """A schema's JSON by its id. Raises UnknownSchema, RegistryUnavailable."""
        found = self._schemas.get(schema_id)
        if found is None:
            answer = self._ask(f"/schemas/ids/{schema_id}")
            if answer is None:
                raise UnknownSchema(f"the registry at {self._urls[0]} has no schema {schema_id}")
            found = self._avro_of(answer, f"schema {schema_id}")
            if len(self._schemas) >= _KEPT_MAX:
                self._schemas.clear()
            self._schemas[schema_id] = found
        return found

    def latest(self, subject: str) -> str:
        """The newest schema of a subject. Raises UnknownSchema, RegistryUnavailable."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise UnknownSchema(f"the registry at {self._urls[0]} has no subject {subject!r}")
        return self._avro_of(answer, f"subject {subject!r}")

    def _avro_of(self, answer: Any, what: str) -> str:
        """With all that it refers to in it. Raises UnknownSchema, RegistryUnavailable."""
        schema, references = _avro_of(answer, what)
        if not references:
            return schema
        known: dict[str, Any] = {}
        try:
            self._gather(references, what, known, set())
            return whole(schema, known)
        except BrokenReference as error:
            raise UnknownSchema(f"{what} of the registry: {error}") from None

    def _gather(self, references: Any, what: str, known: dict[str, Any], seen: set[tuple[str, int]]) -> None:
        for reference in references:
            try:
                place = str(reference["subject"]), int(reference["version"])
            except (LookupError, TypeError, ValueError):
                raise UnknownSchema(
                    f"{what} refers to {str(reference)[:80]}, which names no subject and version"
                ) from None
            if place in seen:
                continue
            if len(seen) >= _REFERENCES_MAX:
                raise UnknownSchema(f"{what} refers to more than {_REFERENCES_MAX} other schemas")
            seen.add(place)
            subject, version = place
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
            if answer is None:
                raise UnknownSchema(f"{what} refers to version {version} of subject {subject!r}, which is not there")
            schema, more = _avro_of(answer, f"version {version} of subject {subject!r}")
            self._gather(more, f"version {version} of subject {subject!r}", known, seen)
            known |= named_types(schema)

    def _ask(self, path: str) -> Any:
        """The answer's document; None if there is no such thing."""
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
                        failures[url] += " (option schema.registry.basic.auth.user.info is user:password)"
            except (OSError, ValueError) as error:
                failures[url] = str(getattr(error, "reason", error)) or type(error).__name__
        told = "; ".join(f"{url}: {reason}" for url, reason in failures.items())
        raise RegistryUnavailable(f"the schema registry gives no answer to {path} ({told}); see schema.registry.url")


def _avro_of(answer: Any, what: str) -> tuple[str, list[Any]]:
    """The schema's JSON, and what it refers to. Raises UnknownSchema."""
    schema = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(schema, str):
        raise UnknownSchema(f"the registry's answer for {what} has no schema")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UnknownSchema(f"{what} is {kind}, not Avro")
    references = answer.get("references")
    return schema, references if isinstance(references, list) else []


def shared_registry(rules: FormatRules) -> Registry:
    """One for all tasks of a worker process."""
    key = tuple(sorted(rules.registry.items()))
    found = _registries.get(key)
    if found is None:
        while len(_registries) >= _REGISTRIES_MAX:
            del _registries[next(iter(_registries))]
        found = _registries[key] = Registry(rules.registry, rules.registry_timeout_s)
    return found


def with_reader_schema(rules: FormatRules, options: Mapping[str, str]) -> FormatRules:
    """With the schema that all values are brought into: as given, or the newest one of the topic. Raises UsageError."""
    from barnabas.spark.formats.avro_schema import parse_schema, value_type

    registry = shared_registry(rules)
    text = rules.schema
    if not text:
        topic = _one_topic(options)
        try:
            text = registry.latest(f"{topic}-value")
        except UnknownSchema as error:
            raise UsageError(f"{error}; give the reader's schema by option valueSchema") from None
    return rules._replace(schema=text, value_type=value_type(parse_schema(text)))


def _one_topic(options: Mapping[str, str]) -> str:
    given = {name.lower(): text for name, text in options.items()}
    topics = [topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip()]
    if not topics and "assign" in given:
        from barnabas.spark.offsets import parse_partitions

        topics = list(dict.fromkeys(where.topic for where in parse_partitions(given["assign"], "assign")))
    if len(topics) != 1:
        raise UsageError(
            "valueFormat=confluent-avro takes the reader's schema from the registry for one topic (option subscribe);"
            " for several give it by option valueSchema"
        )
    return topics[0]
