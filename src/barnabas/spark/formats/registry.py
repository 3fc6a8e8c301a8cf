"""The registry of a query: one for all tasks of a worker process, and the schema that its values are brought into."""

from collections.abc import Mapping
from typing import Final

from barnabas.client.schema_registry.registry_client import SchemaRegistryClient, UnknownSchema
from barnabas.errors import UsageError
from barnabas.spark.formats.rules import FormatRules

__all__ = ["shared_registry", "with_reader_schema"]

_REGISTRIES_MAX: Final = 4
_registries: "dict[tuple[tuple[str, str], ...], SchemaRegistryClient]" = {}


def shared_registry(rules: FormatRules) -> SchemaRegistryClient:
    """One for all tasks of a worker process."""
    key = tuple(sorted(rules.registry.items()))
    found = _registries.get(key)
    if found is None:
        while len(_registries) >= _REGISTRIES_MAX:
            del _registries[next(iter(_registries))]
        found = _registries[key] = SchemaRegistryClient(rules.registry, rules.registry_timeout_s)
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
        from barnabas.spark.source.offsets import parse_partitions

        topics = list(dict.fromkeys(partition.topic for partition in parse_partitions(given["assign"], "assign")))
    if len(topics) != 1:
        raise UsageError(
            "valueFormat=confluent-avro takes the reader's schema from the registry for one topic (option subscribe);"
            " for several give it by option valueSchema"
        )
    return topics[0]
