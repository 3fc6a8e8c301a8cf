"""Names that Kafka's brokers know and ours have no use for."""

import pytest

from barnabas.config.broker_settings import BROKER_CONFIGS
from barnabas.config.kafka_names import DYNAMIC, SENSITIVE, WITHOUT_EFFECT, refusals, without_effect


def test_names_for_one_listener() -> None:
    assert without_effect("listener.name.external.ssl.keystore.location")
    assert without_effect("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config")
    assert not without_effect("listener.name.external.nonsense")
    assert not without_effect("listener.name.external.max.connections"), "it has its effect"


def test_a_setting_has_an_effect_or_none() -> None:
    assert not set(BROKER_CONFIGS.names()) & WITHOUT_EFFECT.keys()


@pytest.mark.parametrize(
    ("name", "refused", "accepted"),
    [
        ("authorizer.class.name", "kafka.Acl", " "),
        ("remote.log.storage.system.enable", "TRUE", "false"),
        ("security.inter.broker.protocol", "ssl", "plaintext"),
        ("process.roles", "controller", "controller, broker"),
        ("config.providers", "vault", ""),
    ],
)
def test_a_name_is_refused_only_where_its_value_asks_for_something(name: str, refused: str, accepted: str) -> None:
    assert list(refusals({"num.io.threads": "8", name: refused})) == [name]
    assert not refusals({"num.io.threads": "8", name: accepted})


def test_each_list_is_a_part_of_the_names_without_effect() -> None:
    assert WITHOUT_EFFECT.keys() >= DYNAMIC
    assert {name for name in WITHOUT_EFFECT if name.endswith("password")} <= SENSITIVE
    assert "num.io.threads" not in SENSITIVE
