# ruff: noqa: E501 -- sentences are compared whole
"""A broker's settings: typed attributes, sources, dynamic changes, and rules between settings."""

import typing

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.broker_settings import BROKER_CONFIGS
from barnabas.config.definitions import ConfigSource, ConfigType
from barnabas.errors import InvalidConfig, InvalidRequest, UsageError
from barnabas.types import BrokerId

TYPES = {
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.SHORT: int,
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.PASSWORD: str,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.DOUBLE: float,
}


def test_every_setting_is_an_attribute_of_its_type() -> None:
    hints = typing.get_type_hints(BrokerConfig)
    for setting in BROKER_CONFIGS:
        expected = BrokerId if setting.name == "node.id" else TYPES[setting.type]
        assert hints[setting.attribute] in (expected, expected | None), setting.name
        assert (hints[setting.attribute] == expected) == (setting.default is not None), setting.name


def test_defaults() -> None:
    config = BrokerConfig()
    assert config.node_id == config.broker_id == 1
    assert config.offsets_topic_num_partitions == 50
    assert config.data_dirs == ("barnabas-data",)
    assert str(config.endpoints[0]) == "PLAINTEXT://127.0.0.1:9092"
    assert config.advertised_endpoints == ()
    with pytest.raises(AttributeError, match="does not change"):
        config.node_id = 2


def test_of_python_values() -> None:
    config = BrokerConfig.of({"num.partitions": 4, "auto.create.topics.enable": False, "log.dirs": ["a", "b"]})
    assert (config.num_partitions, config.auto_create_topics_enable, config.data_dirs) == (4, False, ("a", "b"))
    with pytest.raises(UsageError, match=r"did you mean num\.partitions"):
        BrokerConfig.of({"num.partition": 4})


def test_node_id_and_broker_id_are_one() -> None:
    assert BrokerConfig({"broker.id": "7"}).node_id == 7
    assert BrokerConfig({"node.id": "7"}).broker_id == 7
    assert BrokerConfig({"broker.id": "-1"}).node_id == 1
    with pytest.raises(UsageError, match="must be equal"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"listeners": "SSL://:9093"}, "asks for SSL, which is not served"),
        ({"listeners": "EXTERNAL://:9093"}, "add EXTERNAL:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "127.0.0.1:9092"}, "not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:99999"}, "not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "different name"),
        ({"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"}, "no listener for clients"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable"),
        ({"advertised.listeners": "OTHER://a:1", "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
         "not a name in listeners"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "5"}, "must not be larger"),
        ({"broker.heartbeat.interval.ms": "9000"}, "must be smaller"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl needs zookeeper.digest"),
        *(({"zookeeper.digest": digest}, "^zookeeper.digest is not of the form user:password; give both, such as")
          for digest in ("topsecret", "topsecret:", ":topsecret", ":")),
        ({"log.dirs": ","}, "At least one log directory"),
    ],
)  # fmt: skip
def test_rules_between_settings(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as raised:
        BrokerConfig(settings)
    assert "topsecret" not in str(raised.value)


def test_kraft_controller_listeners_are_left_out() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert [(endpoint.host, endpoint.port) for endpoint in config.endpoints] == [("::1", 9092)]
    assert str(config.endpoints[0]) == "PLAINTEXT://[::1]:9092"


BROKERS_APART = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,OUTER:PLAINTEXT"}


@pytest.mark.parametrize(
    ("settings", "clients", "brokers"),
    [
        ({}, ["PLAINTEXT"], "INTERNAL://127.0.0.1:0"),
        ({"listeners": "PLAINTEXT://:9092"}, ["PLAINTEXT"], "INTERNAL://127.0.0.1:0"),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, ["PLAINTEXT"], "INTERNAL://10.0.0.1:0"),
        # Kafka's own file names the clients' listener, which stays one
        ({"inter.broker.listener.name": "PLAINTEXT"}, ["PLAINTEXT"], "INTERNAL://127.0.0.1:0"),
        (
            {
                "listeners": "PLAINTEXT://10.0.0.1:9092,INTERNAL://10.0.0.2:9094",
                "inter.broker.listener.name": "internal",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            },
            ["PLAINTEXT", "INTERNAL"],
            "BROKERS://10.0.0.2:0",
        ),
        (
            {"listeners": "PLAINTEXT://:1,INTERNAL://[::1]:9094", "inter.broker.listener.name": "INTERNAL"}
            | BROKERS_APART,
            ["PLAINTEXT"],
            "INTERNAL://[::1]:9094",
        ),
        ({"inter.broker.listener.name": "INTERNAL"} | BROKERS_APART, ["PLAINTEXT"], "INTERNAL://127.0.0.1:0"),
        ({"inter.broker.listener.name": "replication"}, ["PLAINTEXT"], "REPLICATION://127.0.0.1:0"),
        ({"listeners": "PLAINTEXT://:9092", "zookeeper.connect": "zk:2181"}, ["PLAINTEXT"], "INTERNAL://:0"),
    ],
)
def test_the_listener_for_brokers(settings: dict[str, str], clients: list[str], brokers: str) -> None:
    config = BrokerConfig(settings)
    assert [endpoint.name for endpoint in config.endpoints] == clients
    assert str(config.inter_broker_endpoint) == brokers
    assert config.inter_broker_endpoint.security_protocol == "SASL_PLAINTEXT"
    assert config.advertised_inter_broker_endpoint is None


def test_brokers_are_told_another_address_than_clients() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,INTERNAL://:9094",
        "inter.broker.listener.name": "INTERNAL",
        **BROKERS_APART,
    }
    with pytest.raises(UsageError, match=r"other brokers cannot connect to INTERNAL://:9094; name it in advertised"):
        BrokerConfig(settings)
    config = BrokerConfig(settings | {"advertised.listeners": "PLAINTEXT://a:9092,INTERNAL://b:9094"})
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://a:9092"]
    assert str(config.advertised_inter_broker_endpoint) == "INTERNAL://b:9094"
    settings["zookeeper.connect"] = "zk:2181"  # then they are told the machine's name
    assert str(BrokerConfig(settings).inter_broker_endpoint) == "INTERNAL://:9094"
    with pytest.raises(UsageError, match=r"other brokers cannot connect to INTERNAL://:9094"):
        BrokerConfig(settings | {"advertised.listeners": "PLAINTEXT://a:9092,INTERNAL://:9094"})


def test_dynamic_settings_win_this_brokers_before_all_brokers() -> None:
    config = BrokerConfig({"message.max.bytes": "1000"})
    changed = config.update_dynamic(
        {"message.max.bytes": "2000", "log.segment.bytes": "50"}, {"log.segment.bytes": "60"}
    )
    assert (config.message_max_bytes, changed.message_max_bytes, changed.log_segment_bytes) == (1000, 2000, 60)
    assert changed.default_log_config.segment_bytes == 60
    assert changed.update_dynamic({}, {}).message_max_bytes == 1000
    assert config.update_dynamic({"message.max.bytes": "x"}, {}).message_max_bytes == 1000


@pytest.mark.parametrize(
    ("settings", "per_broker", "sentence"),
    [
        ({"node.id": "5"}, True, "Cannot update these configs dynamically: [node.id]"),
        ({"advertised.listeners": "PLAINTEXT://a:1"}, False, "Cannot update these configs dynamically: [advertised.listeners]"),
        ({"message.max.bytes": "x"}, False, "Invalid value x for configuration message.max.bytes: Not a number of type INT"),
        ({"log.segment.bytes": "13"}, True, "Invalid value 13 for configuration log.segment.bytes: Value must be at least 14"),
        ({"log.retention.ms": "0"}, True, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ],
)  # fmt: skip
def test_dynamic_refusals_are_kafkas(settings: dict[str, str], per_broker: bool, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        BrokerConfig().validate_dynamic(settings, per_broker=per_broker)
    assert error.value.message == sentence


def test_dynamic_names() -> None:
    config = BrokerConfig()
    config.validate_dynamic({"log.retention.ms": "5000", "max.connections.per.ip": "10"}, per_broker=False)
    config.validate_dynamic({"sasl.kerberos.min.time.before.relogin": "58000"}, per_broker=True)
    with pytest.raises(InvalidConfig, match="not a setting of a broker"):
        config.validate_dynamic({"unknown.thing": "1"}, per_broker=False)


def test_the_jitter_of_rolls_is_a_default_of_topics() -> None:
    assert BrokerConfig.of({"log.roll.jitter.hours": 2}).default_log_config.segment_jitter_ms == 7_200_000
    assert (
        BrokerConfig.of({"log.roll.jitter.hours": 2, "log.roll.jitter.ms": 5}).default_log_config.segment_jitter_ms == 5
    )


def test_a_limit_of_a_listener_that_is_not_there_is_refused_at_run_time() -> None:
    config = BrokerConfig.of({"listeners": "EXTERNAL://:1", "listener.security.protocol.map": "EXTERNAL:PLAINTEXT"})
    config.check_own({"listener.name.external.max.connections": "9"})
    with pytest.raises(InvalidRequest, match=r"listener\.name\.internal\.max\.connections is of no listener"):
        config.check_own({"listener.name.internal.max.connections": "9"})


def test_a_limit_of_one_listener() -> None:
    name = "listener.name.external.max.connections"
    config = BrokerConfig({name: "7"})
    assert config.max_connections_of_listeners == {"EXTERNAL": 7}
    assert config.update_dynamic({}, {name: "9"}).max_connections_of_listeners == {"EXTERNAL": 9}
    config.validate_dynamic({name: "9"}, per_broker=True)
    with pytest.raises(InvalidRequest, match=name):
        config.validate_dynamic({name: "-1"}, per_broker=True)
    (entry,) = config.describe([name])
    assert (entry.value, entry.read_only) == ("7", False)
    assert "without effect" not in (entry.documentation or "")


def test_described_as_kafka_describes() -> None:
    config = BrokerConfig({"node.id": "1", "ssl.key.password": "sesame", "num.network.threads": "8"})
    config = config.update_dynamic({"message.max.bytes": "1000000"}, {})
    entries = {entry.name: entry for entry in config.describe()}
    assert {entry.name for entry in config.describe()} >= set(BROKER_CONFIGS.names())
    largest = entries["message.max.bytes"]
    assert (largest.value, largest.source, largest.read_only) == (
        "1000000",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        False,
    )
    assert [int(synonym.source) for synonym in largest.synonyms] == [3, 5]
    assert entries["node.id"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["node.id"].read_only
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].synonyms) == (None, ())
    assert (entries["ssl.key.password"].value, entries["ssl.key.password"].sensitive) == (None, True)
    assert entries["num.network.threads"].value == "8"
    unset = entries["group.consumer.max.size"]
    assert (unset.value, unset.source, unset.read_only) == (None, ConfigSource.DEFAULT_CONFIG, True)
    assert unset.documentation == "Accepted without effect here (the new consumer, share and streams groups)."
    assert entries["ssl.keystore.password"].sensitive
    assert "port" not in entries
    assert [(entry.name, entry.value) for entry in config.describe_default()] == [("message.max.bytes", "1000000")]
    assert [entry.name for entry in config.describe(["node.id"])] == ["node.id"]
    assert config.describe_default(["node.id"]) == []
