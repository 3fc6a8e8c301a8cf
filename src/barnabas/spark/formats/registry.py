"""Shares schema registry clients between the tasks of a worker process, and finds a query's reader schema."""

from collections.abc import Mapping
from typing import Final

from barnabas.client.schema_registry.registry_client import SchemaRegistryClient, UnknownSchema
from barnabas.errors import UsageError
from barnabas.spark.formats.options import FormatOptions

__all__ = ["shared_registry", "with_reader_schema"]

_REGISTRIES_MAX: Final = 4
_registries: "dict[tuple[tuple[str, str], ...], SchemaRegistryClient]" = {}


def shared_registry(format_options: FormatOptions) -> SchemaRegistryClient:
    """Returns the client that all tasks of a worker process with the same settings share."""
    key = tuple(sorted(format_options.registry.items()))
    registry = _registries.get(key)
    if registry is None:
        while len(_registries) >= _REGISTRIES_MAX:
            del _registries[next(iter(_registries))]
        registry = _registries[key] = SchemaRegistryClient(format_options.registry, format_options.registry_timeout_s)
    return registry


def with_reader_schema(format_options: FormatOptions, options: Mapping[str, str]) -> FormatOptions:
    """Returns the options with the reader schema: the given one, or the newest one of the topic. Raises UsageError."""
    from barnabas.spark.formats.avro_schema import parse_schema, value_type

    registry = shared_registry(format_options)
    text = format_options.schema
    if not text:
        topic = _single_topic(options)
        try:
            text = registry.latest(f"{topic}-value")
        except UnknownSchema as error:
            raise UsageError(f"{error}; give the reader's schema by option valueSchema") from None
    return format_options._replace(schema=text, value_type=value_type(parse_schema(text)))


def _single_topic(options: Mapping[str, str]) -> str:
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
