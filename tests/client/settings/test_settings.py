"""Settings of all clients: Kafka's own table of them, and what is refused."""

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.settings import AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings, foreign
from barnabas.errors import UsageError

CLIENTS: dict[str, type[ClientSettings]] = {"P": ProducerSettings, "C": ConsumerSettings, "A": AdminSettings}

DIFFERENT = {
    "bootstrap.servers": "a default that works on a developer's machine",
    "key.serializer": "bytes need none",
    "value.serializer": "bytes need none",
    "key.deserializer": "bytes need none",
    "value.deserializer": "bytes need none",
    "partition.assignment.strategy": "names in place of Java classes",
    "sasl.mechanism": "no Kerberos",
    "ssl.keystore.type": "PEM only",
    "ssl.truststore.type": "PEM only",
}


def kafka_settings() -> list[tuple[str, str, str, str]]:
    """What Kafka 4.4.0's ConfigDefs say: client, name, type, default."""
    table = Path(__file__).parent / "golden" / "kafka_client_settings.tsv"
    return [tuple(line.split("\t")) for line in table.read_text().splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize(("client", "name", "kind", "default"), kafka_settings())
def test_every_setting_of_kafka_is_ours_too_or_listed(client: str, name: str, kind: str, default: str) -> None:
    setting = CLIENTS[client].definitions.get(name)
    if setting is None:
        ours = name in foreign.WITHOUT_EFFECT or foreign.refusal(name)
        assert ours, f"{name} of Kafka is unknown here"
        return
    assert setting.type.name == kind
    if name not in DIFFERENT and (client, name) != ("C", "receive.buffer.bytes"):
        text = setting.format(setting.default)
        assert ("null" if text is None else text) == default.strip("[]").replace(", ", ",")


def test_what_we_add_to_kafka_is_little() -> None:
    of_kafka = {name for _, name, _, _ in kafka_settings()}
    ours = {name for client in CLIENTS.values() for name in client.definitions.names()}
    assert ours - of_kafka == {
        "bootstrap.timeout.ms", "sasl.username", "sasl.password", "ssl.context", "sasl.oauthbearer.token.provider"
    }  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS.values())
def test_attributes_are_declared(client: type[ClientSettings]) -> None:
    hints = get_type_hints(client)
    settings = client()
    for setting in client.definitions:
        assert setting.attribute in hints, f"declare {setting.attribute}"
        assert hasattr(settings, setting.attribute)
    known = {setting.attribute for setting in client.definitions}
    extra = set(hints) - known - {"own", "definitions", "client", "given", "warnings", "_values", "_spellings"}
    assert not extra, "declared, but no setting"
    assert not [name for name, _ in inspect.getmembers(client, inspect.isdatadescriptor) if name in known]


@pytest.mark.parametrize(
    ("client", "given", "message"),
    [
        (ProducerSettings, {"lingr.ms": 1}, "a producer has no setting lingr.ms; did you mean linger.ms"),
        (ProducerSettings, {"linger_msec": 1}, "did you mean linger.ms"),
        (ConsumerSettings, {"linger.ms": 1}, "a consumer has no setting linger.ms"),
        (ProducerSettings, {"xyzzy": 1}, "docs/client-settings.md lists all"),
        (ProducerSettings, {"linger.ms": 1, "linger_ms": 1}, "linger.ms is given twice"),
        (ProducerSettings, {"linger.ms": "5.5"}, "linger.ms: Not a number of type LONG"),
        (ProducerSettings, {"linger.ms": True}, "linger.ms: Not a number of type LONG"),
        (ProducerSettings, {"linger.ms": -1}, "Value must be at least 0"),
        (ProducerSettings, {"linger.ms": {}}, "linger.ms takes a long, not dict"),
        (ProducerSettings, {"compression.type": "brotli"}, "must be one of: none, gzip, snappy, lz4, zstd"),
        (ProducerSettings, {"compression.gzip.level": 0}, "between 1 and 9 or equal to -1"),
        (ProducerSettings, {"queue.buffering.max.ms": 5}, "librdkafka's name: linger.ms is the setting"),
        (ConsumerSettings, {"consumer_timeout_ms": 5}, "until_end()"),
        (ConsumerSettings, {"ssl_cafile": "x"}, "kafka-python or aiokafka: ssl_truststore_location is the setting"),
        (ProducerSettings, {"max_batch_size": 5}, "kafka-python or aiokafka: batch_size is the setting"),
        (ProducerSettings, {"ssl.ca.location": "x"}, "ssl.truststore.location is the setting"),
        (ProducerSettings, {"sasl.kerberos.service.name": "kafka"}, "Kerberos is not supported"),
        (ProducerSettings, {"ssl.keystore.password": "geheim"}, "ssl.key.password"),
        (ProducerSettings, {"bootstrap.servers": ""}, "bootstrap.servers is empty"),
        (ProducerSettings, {"max.in.flight.requests.per.connection": 6}, "at most 5 with enable.idempotence"),
        (ProducerSettings, {"acks": 1, "enable.idempotence": True}, "acks=1 rules out"),
        (ProducerSettings, {"retries": 0, "transactional.id": "t"}, "retries=0 rules out"),
        (
            ProducerSettings,
            {"enable.idempotence": False, "transactional.id": "t"},
            "enable.idempotence=false rules out",
        ),
        (ProducerSettings, {"transactional.id": ""}, "String must be non-empty"),
        (ProducerSettings, {"transactional.id": "\ud800"}, "transactional.id is not UTF-8"),
        (ProducerSettings, {"client.id": "a" * 2**15}, "client.id has 32,768 bytes, and a text of a request at most"),
        (AdminSettings, {"sasl.password": "geheim\udcff"}, "sasl.password is not UTF-8"),
        (ProducerSettings, {"delivery.timeout.ms": 30_004}, "linger.ms + request.timeout.ms = 30005"),
        (ProducerSettings, {"key.serializer": "str"}, "key.serializer takes a Python object"),
        (ProducerSettings, {"partitioner.class": "murmur3"}, "give one of round_robin, or an object"),
        (ConsumerSettings, {"group.id": " "}, "String must be non-empty"),
        (ConsumerSettings, {"group.id": "g" * 40_000}, "group.id has 40,000 bytes"),
        (ConsumerSettings, {"enable.auto.commit": True}, "enable.auto.commit needs group.id"),
        (ConsumerSettings, {"auto.offset.reset": "smallest"}, "earliest, latest, none or by_duration"),
        (ConsumerSettings, {"auto.offset.reset": "by_duration:-PT1H"}, "earliest, latest, none or by_duration"),
        (ConsumerSettings, {"heartbeat.interval.ms": 45_000}, "must be below session.timeout.ms=45000"),
        (ConsumerSettings, {"partition.assignment.strategy": "sticki"}, "did you mean 'sticky'"),
        (ConsumerSettings, {"partition.assignment.strategy": []}, "strategy is empty"),
        (ConsumerSettings, {"group.protocol": "consumer"}, "is not spoken by this client; leave it out"),
        (ConsumerSettings, {"group.remote.assignor": "uniform"}, "partition.assignment.strategy"),
        (ConsumerSettings, {"share.acquire.mode": "x"}, "share groups are not supported"),
        (AdminSettings, {"security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        (AdminSettings, {"security.protocol": "TLS"}, "must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (AdminSettings, {"sasl.jaas.config": "x"}, "give sasl.username and sasl.password instead"),
    ],
)
def test_what_is_wrong_is_named(client: type[ClientSettings], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        client(given)
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)
