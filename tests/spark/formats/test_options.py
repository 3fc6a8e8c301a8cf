"""The options about keys and values. No session."""

import pytest

pytest.importorskip("pyspark")

from barnabas.errors import UsageError
from barnabas.spark.formats.options import FormatOptions


def test_without_options_values_are_bytes() -> None:
    options = FormatOptions.parse({})
    assert (options.value, options.key, options.value_type) == ("binary", "binary", None)
    assert not options.is_parsed
    assert FormatOptions.parse({"VALUEFORMAT": " String ", "mode": "failfast"}).mode == "FAILFAST"


def test_the_type_of_values_follows_from_the_schema_if_spark_is_not_needed() -> None:
    sampled = FormatOptions.parse({"valueFormat": "json"})
    assert sampled.needs_sample
    assert sampled.ddl() is None
    ddl = FormatOptions.parse({"valueFormat": "json", "valueSchema": " id bigint "})
    assert (ddl.needs_sample, ddl.value_type, ddl.ddl()) == (False, None, "struct<id bigint>")
    assert ddl._replace(schema="STRUCT<id: bigint>").ddl() == "STRUCT<id: bigint>"
    text = '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}'
    of_json = FormatOptions.parse({"valueFormat": "json", "valueSchema": text})
    assert of_json.value_type is not None
    assert (of_json.value_type.simpleString(), of_json.ddl()) == ("struct<id:bigint>", None)


def test_settings_of_the_registry_go_without_their_prefix() -> None:
    options = {
        "valueFormat": "confluent-avro",
        "schema.registry.url": "http://r:1",
        "schema.registry.timeout.ms": "250",
    }
    parsed = FormatOptions.parse(options)
    assert parsed.registry == {"url": "http://r:1", "timeout.ms": "250"}
    assert parsed.registry_timeout_s == 0.25
    assert FormatOptions.parse({}).registry_timeout_s == 10


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"valueFormat": "xml"}, "valueFormat='xml' must be one of binary, string, json, avro"),
        ({"keyFormat": "json"}, "keyFormat='json' must be one of binary, string"),
        ({"messageName": "m", "valueFormat": "json"}, r"messageName is for valueFormat=protobuf, not for json"),
        (
            {"valueSchema": "id int"},
            r"valueSchema is for valueFormat=json\|avro\|confluent-avro\|protobuf, not for binary",
        ),
        ({"valueFormat": "json", "mode": "DROPMALFORMED"}, "add WHERE _corrupt IS NULL"),
        ({"valueFormat": "json", "timeZone": "Mars/Base"}, "Mars/Base"),
        ({"valueFormat": "json", "sampleSize": "0"}, "sampleSize='0' must be a whole number from 1 on"),
        ({"valueFormat": "json", "valueSchema": '{"type": 5}'}, "is not the JSON of a Spark schema"),
        ({"valueFormat": "avro"}, "valueFormat=avro needs option valueSchema"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        FormatOptions.parse(options)
