"""Settings of the clients: spellings, types, what fits together, secrets, and Kafka's own table of defaults."""

import inspect
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from barnabas.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    docs,
    foreign,
)
from barnabas.client.settings.consumer import duration_ms
from barnabas.client.settings.jaas import parse_jaas
from barnabas.client.settings.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords
from barnabas.errors import UsageError

CLIENTS: dict[str, type[ClientSettings]] = {"P": ProducerSettings, "C": ConsumerSettings, "A": AdminSettings}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password=\'s3;cret\';'

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
    """What Kafka 4.3.1's ConfigDefs say: client, name, type, default."""
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


def test_a_consumer_leaves_its_receive_buffer_to_the_system() -> None:
    assert ConsumerSettings().receive_buffer_bytes == -1


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
    "make",
    [
        lambda: ProducerSettings(linger_ms=7),
        lambda: ProducerSettings({"linger.ms": 7}),
        lambda: ProducerSettings({"linger_ms": "7"}),
        lambda: ProducerSettings({"linger.ms": " 7 "}, acks=None),
        lambda: ProducerSettings(linger_ms=9).replace(linger_ms=7),
    ],
)
def test_spellings(make: Callable[[], ProducerSettings]) -> None:
    settings = make()
    assert settings.linger_ms == 7
    assert settings["linger.ms"] == 7
    assert list(settings.given) == ["linger.ms"]


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
        (ProducerSettings, {"delivery.timeout.ms": 30_004}, "linger.ms + request.timeout.ms = 30005"),
        (ProducerSettings, {"key.serializer": "str"}, "key.serializer takes a Python object"),
        (ProducerSettings, {"partitioner.class": "murmur3"}, "give one of round_robin, or an object"),
        (ConsumerSettings, {"group.id": " "}, "String must be non-empty"),
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


def test_idempotence_gives_way_to_what_was_asked_for() -> None:
    settings = ProducerSettings(acks="1")
    assert not settings.enable_idempotence
    assert settings.acks == 1
    assert "acks=1" in settings.warnings[0]
    assert not ProducerSettings(retries=0).enable_idempotence
    assert ProducerSettings(enable_idempotence=False, max_in_flight_requests_per_connection=9).warnings == ()
    assert ProducerSettings(acks="ALL").acks == ProducerSettings(acks=-1).acks == -1


def test_delivery_timeout_follows_what_it_must_cover() -> None:
    assert ProducerSettings(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    assert ProducerSettings().delivery_timeout_ms == 120_000


def test_compression_level_is_that_of_the_codec() -> None:
    assert ProducerSettings().compression_level is None
    assert ProducerSettings(compression_type="GZIP").compression_level == -1
    assert ProducerSettings(compression_type="zstd", compression_zstd_level=9).compression_level == 9


def test_consumer_without_a_group_commits_nothing() -> None:
    assert not ConsumerSettings().enable_auto_commit
    assert ConsumerSettings(group_id="g").enable_auto_commit


def test_assignors_by_name_java_class_and_object() -> None:
    mine = object()
    given = ["org.apache.kafka.clients.consumer.StickyAssignor", "range", mine]
    settings = ConsumerSettings(partition_assignment_strategy=given)
    assert settings.partition_assignment_strategy == ("sticky", "range", mine)
    assert ConsumerSettings(partition_assignment_strategy=mine).partition_assignment_strategy == (mine,)
    text = ConsumerSettings(partition_assignment_strategy="roundrobin, range")
    assert text.partition_assignment_strategy == ("roundrobin", "range")
    assert ConsumerSettings().partition_assignment_strategy == ("range", "cooperative-sticky")


def test_callables_pass_untouched() -> None:
    settings = ProducerSettings(key_serializer=str.encode, partitioner_class=min, interceptor_classes=[max])
    assert settings.key_serializer is str.encode
    assert settings.partitioner_class is min
    assert settings.interceptor_classes == (max,)
    assert ProducerSettings(partitioner_class="round_robin").partitioner_class == "round_robin"


def test_secrets_are_not_shown() -> None:
    settings = ProducerSettings(
        security_protocol="sasl_ssl", sasl_mechanism="plain", sasl_username="u", sasl_password=" geheim "
    )
    assert settings.sasl_password == " geheim "
    assert "geheim" not in repr(settings)
    assert "sasl.username=u" in repr(settings)
    assert settings.uses_tls
    assert settings.uses_sasl
    assert settings.sasl_mechanism == "PLAIN"


def test_security_without_its_protocol_is_told() -> None:
    (warning,) = ConsumerSettings(sasl_username="u", ssl_key_password="p").warnings
    assert warning == "security.protocol is PLAINTEXT, so sasl.username, ssl.key.password has no effect"


def test_settings_of_the_jvm_are_taken_with_a_warning() -> None:
    settings = ConsumerSettings({"metric.reporters": "x", "client.dns.lookup": "use_all_dns_ips"})
    assert settings.warnings == ("settings of Kafka without effect here: client.dns.lookup, metric.reporters",)


def test_settings_do_not_change() -> None:
    settings = ProducerSettings()
    with pytest.raises(AttributeError, match="linger_ms"):
        settings.linger_ms = 6


def test_jaas_as_java_writes_it() -> None:
    settings = AdminSettings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=JAAS)
    assert (settings.sasl_username, settings.sasl_password) == ('al"ice', "s3;cret")
    assert parse_jaas("PlainLoginModule required username=u password=p ;") == ("u", "p")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "com.sun.security.auth.module.Krb5LoginModule required;",
        'PlainLoginModule required username="geheim";',
        'PlainLoginModule required username="geheim" password="p"',
        'PlainLoginModule required username="geheim" password="p" more',
    ],
)
def test_jaas_of_another_form_is_refused_unseen(text: str) -> None:
    with pytest.raises(UsageError, match=r"give sasl\.username and sasl\.password instead") as caught:
        parse_jaas(text)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.001s", 1),
        ("P2D", 172_800_000),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("-PT1H", None),
        ("PT-1H", None),
        ("1h", None),
        ("P1Y", None),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "client-settings.md"
    command = "python -m barnabas.client.settings.docs > docs/client-settings.md"
    assert page.read_text() == docs.render_markdown(), f"run: {command}"


def test_the_keywords_for_type_checkers_are_up_to_date() -> None:
    """`Producer(...)` and the like complete, and are checked, by what that module says."""
    root = Path(__file__).parents[3]
    made = runpy.run_path(str(root / "tools" / "generate_client_keywords.py"))
    module = root / "src" / "barnabas" / "client" / "settings" / "keywords.py"
    assert module.read_text() == made["render"](), "run: python tools/generate_client_keywords.py --write"


@pytest.mark.parametrize(
    ("settings", "keywords", "parameters"),
    [
        (AdminSettings, AdminKeywords, set()),
        (ProducerSettings, ProducerKeywords, set()),
        (ConsumerSettings, ConsumerKeywords, {"key_deserializer", "value_deserializer"}),
    ],
)
def test_every_setting_is_a_keyword(settings: Any, keywords: Any, parameters: set[str]) -> None:
    callbacks = {"on_assigned", "on_revoked", "on_lost"} if settings is ConsumerSettings else set()
    named = {setting.attribute for setting in settings.definitions}
    assert set(get_type_hints(keywords)) | parameters == named | callbacks
