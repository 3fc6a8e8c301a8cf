# ruff: noqa: E501 -- sentences are compared whole
"""Topic settings: Kafka's names, defaults, synonyms and refusals."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.definitions import ConfigSource
from barnabas.config.topic import TOPIC_CONFIGS, is_list, topic_defaults, validate_topic_overrides
from barnabas.errors import InvalidConfig

# What DescribeConfigs of Apache Kafka 4.4.0 lists for a topic.
KAFKA_TOPIC_CONFIGS = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level delete.retention.ms
errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms max.compaction.lag.ms
max.decompressed.message.bytes max.message.bytes
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
min.compaction.lag.ms min.insync.replicas preallocate remote.copy.lag.bytes remote.copy.lag.ms
remote.log.copy.disable remote.log.delete.on.disable
remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
unclean.leader.election.enable
"""

DEFAULTS = topic_defaults({})


def test_every_setting_that_kafka_shows_is_there() -> None:
    assert TOPIC_CONFIGS.names() == KAFKA_TOPIC_CONFIGS.split()


def test_a_topics_own_setting_wins_over_the_brokers() -> None:
    broker = BrokerConfig.of({"log.segment.bytes": 4096, "log.retention.hours": 2})
    config = broker.log_config({"segment.bytes": "100", "cleanup.policy": "compact,delete"})
    assert config.segment_bytes == 100
    assert config.retention_ms == 2 * 3_600_000
    assert config.cleanup_policy == {"compact", "delete"}
    assert broker.log_config({}).segment_bytes == 4096


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 1}, 3_600_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2}, 120_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2, "log.retention.ms": 3}, 3),
        ({"log.retention.hours": -1}, -1),
    ],
)
def test_the_finest_unit_wins(settings: dict[str, int], retention_ms: int) -> None:
    assert BrokerConfig.of(settings).default_log_config.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"segment.bytes": "abc"}, "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
        ({"segment.bytes": "13"}, "Invalid value 13 for configuration segment.bytes: Value must be at least 14"),
        (
            {"cleanup.policy": "foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"message.timestamp.type": "Foo"},
            "Invalid value Foo for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
        ),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"compression.gzip.level": "0"},
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_refusals_are_kafkas(overrides: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        validate_topic_overrides(overrides, DEFAULTS)
    assert error.value.message == sentence


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(InvalidConfig) as error:
        validate_topic_overrides({"retention.mss": "1"}, DEFAULTS)
    assert error.value.message == "Unknown topic config name: retention.mss. Did you mean retention.ms?"
    with pytest.raises(InvalidConfig) as error:
        validate_topic_overrides({"nope": "1"}, DEFAULTS)
    assert error.value.message == "Unknown topic config name: nope"


def test_throttled_replicas() -> None:
    name = "leader.replication.throttled.replicas"
    for good in ("*", "0:1,1:2", ""):
        validate_topic_overrides({name: good}, DEFAULTS)
    with pytest.raises(InvalidConfig, match="must be the literal"):
        validate_topic_overrides({name: "x"}, DEFAULTS)


def test_described_as_kafka_describes() -> None:
    broker = BrokerConfig({"log.retention.ms": "1000"}, {"message.max.bytes": "1000000"}, {"log.retention.ms": "2000"})
    entries = {entry.name: entry for entry in broker.describe_topic({"retention.ms": "7"})}
    assert len(entries) == 37
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("7", ConfigSource.TOPIC_CONFIG)
    assert [(synonym.name, synonym.value, int(synonym.source)) for synonym in retention.synonyms] == [
        ("retention.ms", "7", 1),
        ("log.retention.ms", "2000", 2),
        ("log.retention.ms", "1000", 4),
        ("log.retention.hours", "168", 5),
    ]
    largest = entries["max.message.bytes"]
    assert (largest.value, largest.source) == ("1000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    # As on Kafka 4.4.0: nobody sets log.roll.ms, so segment.ms has no synonyms although log.roll.hours counts.
    assert entries["segment.ms"].synonyms == ()
    assert entries["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["cleanup.policy"].value == "delete"
    assert all(entry.documentation for entry in entries.values())
    assert [entry.name for entry in broker.describe_topic({}, ["retention.ms", "nope"])] == ["retention.ms"]


def test_lists() -> None:
    assert is_list("cleanup.policy")
    assert not is_list("retention.ms")
    assert not is_list("nope")
