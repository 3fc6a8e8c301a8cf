# ruff: noqa: E501 -- the table of settings reads as rows
"""The settings of topics: every name that Kafka 4.x shows for a topic, and the broker settings that give defaults.

Where we differ: `segment.bytes` may be as small as 14, as in Kafka before 4.0, so that tests can roll segments quickly.
Tiered storage is not offered, so `remote.storage.enable=true` is refused exactly as a Kafka broker without it does.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from barnabas.config.definitions import (
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    OneOf,
    Rule,
    Setting,
    Value,
    at_least,
    between,
    nearest,
)
from barnabas.config.log_config import LONG_MAX, RECORD_BYTES_MAX, LogConfig
from barnabas.errors import InvalidConfig

__all__ = [
    "BROKER_DEFAULTS",
    "TOPIC_CONFIGS",
    "describe_topic",
    "is_list",
    "known_overrides",
    "log_config",
    "topic_defaults",
    "validate_topic_overrides",
]

_log = logging.getLogger("barnabas.config")

_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_DAY_MS: Final = 86_400_000
_SEVEN_DAYS_MS: Final = 7 * _DAY_MS


class _GzipLevel:
    """1 to 9, or -1 for zlib's own choice: 0 would store uncompressed and call it gzip."""

    def broken_by(self, value: Value) -> str | None:
        return None if value == -1 or (isinstance(value, int) and 1 <= value <= 9) else str(self)

    def __str__(self) -> str:
        return "Value must be between 1 and 9 or equal to -1"


class _ThrottledReplicas:
    """`*`, or a list of partition:broker pairs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def broken_by(self, value: Value) -> str | None:
        assert isinstance(value, tuple), value
        if value == ("*",) or all(self._pair(item) for item in value):
            return None
        return f"{self._name} must be the literal '*' or a list of replicas in the following format: {self}"

    @staticmethod
    def _pair(item: str) -> bool:
        partition, colon, broker = item.partition(":")
        return bool(colon) and partition.isdecimal() and broker.isdecimal()

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


def _topic(
    name: str, type: ConfigType, default: Value, rule: Rule | None, synonyms: tuple[str, ...], doc: str
) -> Setting:
    return Setting(name, type, default, doc, rule, synonyms=synonyms)


_CODECS: Final = OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

TOPIC_CONFIGS: Final = ConfigDef(
    (
        _topic("cleanup.policy", _LIST, ("delete",), OneOf("compact", "delete"), ("log.cleanup.policy",),
               "What happens to old segments: `delete` by age and size, `compact` to the last record of each key, both, or empty to keep everything."),
        _topic("compression.gzip.level", _INT, -1, _GzipLevel(), ("compression.gzip.level",),
               "Level for `compression.type=gzip`; -1 is zlib's default."),
        _topic("compression.lz4.level", _INT, 9, between(1, 17), ("compression.lz4.level",),
               "Level for `compression.type=lz4`."),
        _topic("compression.type", _STRING, "producer", _CODECS, ("compression.type",),
               "How batches are stored: `producer` keeps what was sent, any other name recompresses."),
        _topic("compression.zstd.level", _INT, 3, between(-131072, 22), ("compression.zstd.level",),
               "Level for `compression.type=zstd`."),
        _topic("delete.retention.ms", _LONG, _DAY_MS, at_least(0), ("log.cleaner.delete.retention.ms",),
               "How long a compacted topic keeps delete markers, so that slow readers see them."),
        _topic("errors.deadletterqueue.group.enable", _BOOLEAN, False, None, (),
               "With share groups, which are not served: whether they may write what nobody could process here."),
        _topic("file.delete.delay.ms", _LONG, 60_000, at_least(0), ("log.segment.delete.delay.ms",),
               "How long a file stays on disk after its segment left the log."),
        _topic("flush.messages", _LONG, LONG_MAX, at_least(1), ("log.flush.interval.messages",),
               "fsync after this many records; 1 means after each batch."),
        _topic("flush.ms", _LONG, LONG_MAX, at_least(0), ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
               "fsync when unflushed data is this old."),
        _topic("follower.replication.throttled.replicas", _LIST, (), _ThrottledReplicas("follower.replication.throttled.replicas"), (),
               "Replicas whose replication is throttled on the follower, as partition:broker pairs, or `*`."),
        _topic("index.interval.bytes", _INT, 4096, at_least(0), ("log.index.interval.bytes",),
               "Bytes of log between two entries of the offset index."),
        _topic("leader.replication.throttled.replicas", _LIST, (), _ThrottledReplicas("leader.replication.throttled.replicas"), (),
               "Replicas whose replication is throttled on the leader, as partition:broker pairs, or `*`."),
        _topic("local.retention.bytes", _LONG, -2, at_least(-2), ("log.local.retention.bytes",),
               "With tiered storage: bytes kept locally. -2 means as `retention.bytes`."),
        _topic("local.retention.ms", _LONG, -2, at_least(-2), ("log.local.retention.ms",),
               "With tiered storage: time kept locally. -2 means as `retention.ms`."),
        _topic("max.compaction.lag.ms", _LONG, LONG_MAX, at_least(1), ("log.cleaner.max.compaction.lag.ms",),
               "A record is compacted no later than this after it was written."),
        _topic("max.decompressed.message.bytes", _INT, RECORD_BYTES_MAX, between(1, RECORD_BYTES_MAX), ("max.decompressed.message.bytes",),
               "Largest record that a compressed batch may hold, in bytes as it is without compression. A larger one is refused. A topic that has one already, from before the setting was lowered, is neither compacted nor searched by time where it stands, as in Kafka."),
        _topic("max.message.bytes", _INT, 1024**2 + 12, at_least(0), ("message.max.bytes",),
               "Largest batch that may be written, in bytes, after compression."),
        _topic("message.timestamp.after.max.ms", _LONG, 3_600_000, at_least(0), ("log.message.timestamp.after.max.ms",),
               "How far a record's timestamp may lie in the broker's future (CreateTime only)."),
        _topic("message.timestamp.before.max.ms", _LONG, LONG_MAX, at_least(0), ("log.message.timestamp.before.max.ms",),
               "How far a record's timestamp may lie in the broker's past (CreateTime only)."),
        _topic("message.timestamp.type", _STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"), ("log.message.timestamp.type",),
               "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime)."),
        _topic("min.cleanable.dirty.ratio", _DOUBLE, 0.5, between(0, 1), ("log.cleaner.min.cleanable.ratio",),
               "Share of a compacted log that must be uncompacted before it is cleaned."),
        _topic("min.compaction.lag.ms", _LONG, 0, at_least(0), ("log.cleaner.min.compaction.lag.ms",),
               "A record is not compacted before it is this old."),
        _topic("min.insync.replicas", _INT, 1, at_least(1), ("min.insync.replicas",),
               "In-sync replicas that acks=all needs, at most as many as there are replicas; with fewer, NOT_ENOUGH_REPLICAS."),
        _topic("preallocate", _BOOLEAN, False, None, ("log.preallocate",),
               "Whether a new segment file is allocated at full size."),
        _topic("remote.copy.lag.bytes", _LONG, 0, at_least(-1), (),
               "With tiered storage: newer bytes from which on a segment is copied."),
        _topic("remote.copy.lag.ms", _LONG, 0, at_least(-1), (),
               "With tiered storage: age from which on a segment is copied."),
        _topic("remote.log.copy.disable", _BOOLEAN, False, None, (),
               "With tiered storage: stop copying, keep reading."),
        _topic("remote.log.delete.on.disable", _BOOLEAN, False, None, (),
               "With tiered storage: delete remote data when it is switched off."),
        _topic("remote.storage.enable", _BOOLEAN, False, None, (),
               "Tiered storage for the topic; this broker has none, so only `false` is accepted."),
        _topic("retention.bytes", _LONG, -1, None, ("log.retention.bytes",),
               "Bytes a partition may hold before its oldest segments go; -1 is no limit."),
        _topic("retention.ms", _LONG, _SEVEN_DAYS_MS, at_least(-1), ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
               "How long records are kept, by the largest timestamp of their segment; -1 is for ever."),
        _topic("segment.bytes", _INT, 1024**3, at_least(14), ("log.segment.bytes",),
               "Size at which a new segment file begins."),
        _topic("segment.index.bytes", _INT, 10 * 1024**2, at_least(4), ("log.index.size.max.bytes",),
               "Size of a segment's offset index; a full index begins a new segment."),
        _topic("segment.jitter.ms", _LONG, 0, at_least(0), ("log.roll.jitter.ms", "log.roll.jitter.hours"),
               "Random time taken off `segment.ms`, so that partitions do not all roll at once."),
        _topic("segment.ms", _LONG, _SEVEN_DAYS_MS, at_least(1), ("log.roll.ms", "log.roll.hours"),
               "Age at which a new segment begins though the old one is not full."),
        _topic("unclean.leader.election.enable", _BOOLEAN, False, None, ("unclean.leader.election.enable",),
               "Whether a replica outside the ISR may lead when none inside is left: availability for lost records."),
    )
)  # fmt: skip

_UNIT_MS: Final = {"hours": 3_600_000, "minutes": 60_000}
_NOT_IN_LOG_CONFIG: Final = frozenset(
    ("errors.deadletterqueue.group.enable", "local.retention.bytes", "local.retention.ms",
     "remote.copy.lag.bytes", "remote.copy.lag.ms", "remote.log.copy.disable", "remote.log.delete.on.disable",
     "remote.storage.enable")
)  # fmt: skip

BROKER_DEFAULTS: Final = {setting.synonyms[0]: setting for setting in TOPIC_CONFIGS if len(setting.synonyms) == 1}
"""Broker settings that are nothing but the default of one topic setting, by the broker's name for it."""


def is_list(name: str) -> bool:
    """Whether append and subtract make sense for a topic setting."""
    setting = TOPIC_CONFIGS.get(name)
    return setting is not None and setting.type is _LIST


def topic_defaults(broker: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the settings of a topic without overrides: the value of the first synonym that is set on the broker, or
    the default. `broker` has parsed values by the broker settings' names (None: unset)."""
    return {setting.name: _from_broker(setting, broker) for setting in TOPIC_CONFIGS}


def log_config(overrides: Mapping[str, Value], defaults: Mapping[str, Value]) -> LogConfig:
    """The typed settings that a log works with, from a topic's own parsed settings and `topic_defaults`."""
    fields: dict[str, object] = {
        name.replace(".", "_"): value
        for name, value in {**defaults, **overrides}.items()
        if name not in _NOT_IN_LOG_CONFIG
    }
    policies = fields["cleanup_policy"]
    assert isinstance(policies, tuple), policies
    fields["cleanup_policy"] = frozenset(policies)
    return LogConfig(**fields)  # type: ignore[arg-type]  # types are those of TOPIC_CONFIGS, held equal by a test


def _from_broker(setting: Setting, broker: Mapping[str, Value]) -> Value:
    for synonym in setting.synonyms:
        value = broker.get(synonym)
        if value is not None:
            unit = _UNIT_MS.get(synonym.rpartition(".")[2])
            return value if unit is None else _scaled(value, unit)
    return setting.default


def _scaled(value: Value, unit: int) -> int:
    assert isinstance(value, int), value
    return value if value < 0 else value * unit


def validate_topic_overrides(overrides: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The parsed settings of a topic; `defaults` are those of `topic_defaults`. Raises InvalidConfig with Kafka's sentence for an unknown name, a bad value, or
    two values that contradict each other (the broker's defaults included)."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            close = nearest(name, TOPIC_CONFIGS.names())
            hint = f". Did you mean {close}?" if close else ""
            raise InvalidConfig(f"Unknown topic config name: {name}{hint}")
    parsed = TOPIC_CONFIGS.parse_all(overrides)
    values = {**defaults, **parsed}
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(low, int), low
    assert isinstance(high, int), high
    if low > high:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values["remote.storage.enable"]:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        )
    return parsed


def known_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Returns the parsed settings of a topic that stand in the metadata. A newer release may have accepted names and
    values that this one does not know: they stay in the metadata, and are left out here with a line in the log."""
    parsed = {}
    for name, text in overrides.items():
        setting = TOPIC_CONFIGS.get(name)
        if setting is None:
            _tell_unknown(name)
            continue
        try:
            parsed[name] = setting.parse(text)
        except InvalidConfig:
            _tell_unknown(f"{name}={text}")
    return parsed


@lru_cache(maxsize=1000)
def _tell_unknown(setting: str) -> None:
    _log.warning("a topic has the setting %s, which this release does not know: it has no effect here", setting)


def describe_topic(
    overrides: Mapping[str, str],
    defaults: Mapping[str, Value],
    broker_synonyms: Mapping[str, tuple[ConfigSynonym, ...]],
    names: Iterable[str] | None = None,
) -> list[ConfigEntry]:
    """DescribeConfigs of a topic. `broker_synonyms`: for each broker setting, who sets it, most specific first."""
    parsed = known_overrides(overrides)
    values = {**defaults, **parsed}
    wanted = None if names is None else frozenset(names)
    return [
        _entry(setting, values[setting.name], setting.name in parsed, broker_synonyms)
        for setting in TOPIC_CONFIGS
        if wanted is None or setting.name in wanted
    ]


def _entry(
    setting: Setting, value: Value, own: bool, broker_synonyms: Mapping[str, tuple[ConfigSynonym, ...]]
) -> ConfigEntry:
    text = setting.format(value)
    # Kafka asks the first synonym for its own list: `log.retention.hours` only counts where `log.retention.ms` is set.
    below = broker_synonyms.get(setting.synonyms[0], ()) if setting.synonyms else ()
    synonyms = (ConfigSynonym(setting.name, text, ConfigSource.TOPIC_CONFIG), *below) if own else below
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(setting.name, text, source, setting.type, False, setting.sensitive, synonyms, setting.doc)
